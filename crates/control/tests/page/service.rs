//! The real service in this process, on a port of its own.

use sha2::{Digest as _, Sha256};
use std::io::Write as _;
use std::net::TcpListener;
use std::thread::JoinHandle;
use tailbound_api::{MoveStep, MoveVm};
use tailbound_control::ledger::{Call, Command, Ledger};
use tailbound_control::server::{Authentication, Config, Metrics, Server};
use tailbound_control::service::Service;
use tailbound_control::store::{Sqlite, Store as _};
use tailbound_placement::{Policy, Spec, TenantId};
use tokio::runtime::Runtime;

/// The topology that the documentation shows.
pub(crate) const TWO_PODS: &str = include_str!("../../../../experiments/topologies/two-pods.toml");

/// A running service; it ends when dropped.
pub(crate) struct Running {
    runtime: Runtime,
    service: Service,
    server: Server,
    serving: Option<JoinHandle<()>>,
    /// Such as `http://127.0.0.1:1234`.
    pub(crate) origin: String,
    _files: tempfile::TempDir,
}

/// Name of a token, and its identity as lines of the tokens file.
pub(crate) type Token<'a> = (&'a str, &'a str);

impl Running {
    /// Starts a service with the sample topology and without authentication.
    pub(crate) fn open() -> Self {
        Self::start(Spec::from_toml(TWO_PODS).unwrap(), &[])
    }

    /// With these tokens; with none it is open.
    pub(crate) fn start(spec: Spec, tokens: &[Token<'_>]) -> Self {
        let files = tempfile::tempdir().unwrap();
        let authentication = if tokens.is_empty() {
            Authentication::InsecureLoopback
        } else {
            let path = files.path().join("tokens.toml");
            let mut file = std::fs::File::create(&path).unwrap();
            for (token, whose) in tokens {
                write!(file, "[[token]]\nname = {token:?}\n{whose}\nsha256 = \"").unwrap();
                for byte in Sha256::digest(token) {
                    write!(file, "{byte:02x}").unwrap();
                }
                writeln!(file, "\"").unwrap();
            }
            Authentication::Tokens(path)
        };
        let runtime = Runtime::new().unwrap();
        let (mut ledger, changes) = Ledger::new(spec, Policy::Silo).unwrap();
        let mut store = Sqlite::open(&files.path().join("ledger.sqlite")).unwrap();
        ledger.set_revision(store.commit(&changes).unwrap());
        let service = Service::start(ledger, |_| {});
        let leading = service.lead(Box::new(store), Box::new(|error| panic!("{error}")));
        runtime.block_on(leading).unwrap();
        let config = Config {
            authentication,
            tls: None,
            streams: 8,
            connections: 100,
            hose: None,
            collector: None,
        };
        let server = Server::new(config, service.clone(), None, Metrics::new()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let serving = {
            let (server, handle) = (server.clone(), runtime.handle().clone());
            std::thread::spawn(move || handle.block_on(server.run(listener)).unwrap())
        };
        Self {
            runtime,
            service,
            server,
            serving: Some(serving),
            origin,
            _files: files,
        }
    }

    /// Reports a link rate for a host.
    pub(crate) fn say(&self, host: &str, link: &str) {
        let report = format!(
            r#"{{"revision":7,"change":100,"limits":{{"link":"{link}","frame":"1538B","slowest":"1kbit/s","subtree_bursts":true}},
                "cpu":{{"cpus":2,"threads":8,"largest":500,"reservable":1500,"overrun":"0ns",
                "interrupts":"0ns","steal":"0ns","share":0,"unpromised":{{"cpu":500,"threads":2}}}},
                "unpromised":[{{"guest":"own","what":"it has 0.500 of a CPU"}}]}}"#
        );
        let call = Call::of_service(Command::Report {
            host: host.to_owned(),
            report: Box::new(serde_json::from_str(&report).unwrap()),
        });
        self.runtime.block_on(self.service.call(call)).unwrap();
    }

    /// Reports over HTTP a host's measurements of one minute: the lateness of packets, and the
    /// waiting time of tenant 1's packets on the host. Each pair is a number of packets and a
    /// quantile in nanoseconds: 99.9 %, or 99 % for few packets.
    pub(crate) fn measured(&self, host: &str, late: (u64, u64), waited: (u64, u64)) {
        let tail = |(packets, longest_ns)| {
            let is_few = packets < 10_000;
            let share = if is_few { "p99_ns" } else { "p99_9_ns" };
            serde_json::json!({ "packets": packets, share: longest_ns })
        };
        let report = serde_json::json!({
            "revision": 2, "change": 100,
            "limits": { "link": "10Gbit/s", "frame": "1538B", "slowest": "1kbit/s", "subtree_bursts": true },
            "measured": {
                "window_ns": 60_000_000_000_u64,
                "late": tail(late), "waited": [{ "tenant": 1, "tail": tail(waited) }],
            },
        });
        let address = format!("{}/v1/hosts/{host}/report", self.origin);
        let agent = ureq::Agent::config_builder()
            .proxy(None)
            .build()
            .new_agent();
        let answer = agent.post(address).send_json(report).unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
    }

    /// Changes a step of a move of one of the tenant's machines, as another client.
    pub(crate) fn move_vm(&self, tenant: u64, vm: u32, step: MoveStep) {
        let call = Call::of_service(Command::Move {
            id: TenantId(tenant),
            step: MoveVm { vm, step },
        });
        self.runtime.block_on(self.service.call(call)).unwrap();
    }

    /// Creates a tenant of `acme`, as another client.
    pub(crate) fn create(&self, name: &str, vms: u32) {
        let is_admitted = self.admits(&format!(
            r#"{{"owner":"acme","name":"{name}","vms":{vms},"guarantee":{{"bandwidth":"250Mbit/s","burst":"15KB","delay":"1ms","burst_rate":"1Gbit/s"}}}}"#
        ));
        assert!(is_admitted, "{name}");
    }

    /// Reserves a place for a machine of `acme`, as a scheduler.
    pub(crate) fn reserve(&self, tenant: &str, host: &str) {
        let reservation = format!(
            r#"{{"owner":"acme","tenant":"{tenant}","placement":[{{"host":"{host}","vms":1}}],"ttl":"600s","request":{{"guarantee":{{"bandwidth":"250Mbit/s","burst":"15KB","delay":"1ms","burst_rate":"1Gbit/s"}}}}}}"#
        );
        let call = Call::of_service(Command::Reserve(
            serde_json::from_str(&reservation).unwrap(),
        ));
        self.runtime.block_on(self.service.call(call)).unwrap();
    }

    /// The same with any request, which may be refused.
    pub(crate) fn admits(&self, tenant: &str) -> bool {
        let call = Call::of_service(Command::Create(serde_json::from_str(tenant).unwrap()));
        self.runtime.block_on(self.service.call(call)).is_ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.server.stop();
        let served = self.serving.take().map(JoinHandle::join);
        assert!(
            std::thread::panicking() || matches!(served, Some(Ok(()))),
            "the server failed"
        );
    }
}
