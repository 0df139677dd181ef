//! A service on a free port of this machine, and its callers.

#![allow(dead_code, reason = "each test program uses a part of it")]

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::io::{BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;
use tailbound_control::ledger::{Ledger, Snapshot};
use tailbound_control::server::{Authentication, Config, HoseSecret, Metrics, Server, TlsFiles};
use tailbound_control::service::Service;
use tailbound_control::store::{Sqlite, Store};
use tailbound_placement::{Policy, Spec};
use tempfile::TempDir;

/// Two racks of two hosts with four places each.
pub(crate) const TREE: &str = r#"
    frame = "1538B"
    [[group]]
    name = "rack1"
    uplink = { rate = "40Gbit/s", buffer = "500KB" }
    [[group]]
    name = "rack2"
    uplink = { rate = "40Gbit/s", buffer = "500KB" }
    [[host]]
    name = "a"
    group = "rack1"
    count = 2
    slots = 4
    uplink = { rate = "10Gbit/s", buffer = "300KB", up_buffer = "62500B" }
    [[host]]
    name = "b"
    group = "rack2"
    count = 2
    slots = 4
    uplink = { rate = "10Gbit/s", buffer = "300KB", up_buffer = "62500B" }
"#;

/// The secrets of the tokens in the file.
pub(crate) const OPERATOR: &str = "operator-secret";
pub(crate) const ACME: &str = "acme-secret";
pub(crate) const GLOBEX: &str = "globex-secret";
pub(crate) const HOST: &str = "host-secret";

/// Secret from which the hosts' keys are derived.
pub(crate) const HOSE_SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Time limit for a line of a stream.
const STREAM_TIMEOUT: Duration = Duration::from_secs(20);

/// Configuration of a tested service.
pub(crate) struct Setup {
    pub(crate) tokens: bool,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) streams: usize,
    pub(crate) connections: usize,
    pub(crate) store: Option<Box<dyn Store>>,
    pub(crate) tree: Spec,
    /// The state of a ledger that was made before, which the store does not have.
    pub(crate) state: Option<Snapshot>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            tokens: true,
            tls: None,
            streams: 16,
            connections: 100,
            store: None,
            tree: Spec::from_toml(TREE).unwrap(),
            state: None,
        }
    }
}

/// A running service.
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) service: Service,
    pub(crate) server: Server,
    pub(crate) tokens: PathBuf,
    pub(crate) secret: PathBuf,
    agent: ureq::Agent,
    running: Option<JoinHandle<()>>,
    _dir: TempDir,
}

/// Answer of the service.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: ureq::http::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    /// The code and the detail of a problem, after its form is checked.
    pub(crate) fn problem(&self) -> (String, String) {
        assert_eq!(
            self.header("content-type"),
            "application/problem+json",
            "{self:?}"
        );
        let json = self.json();
        assert_eq!(json["status"], self.status, "{json}");
        let text = |name: &str| json[name].as_str().unwrap().to_owned();
        (text("code"), text("detail"))
    }
}

pub(crate) fn sha256(secret: &str) -> String {
    let digest = Sha256::digest(secret);
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn tokens_file() -> String {
    let mut text = String::new();
    for (name, rest, secret) in [
        ("ops", "role = \"operator\"", OPERATOR),
        ("acme", "role = \"tenant\"\nowner = \"acme\"", ACME),
        ("globex", "role = \"tenant\"\nowner = \"globex\"", GLOBEX),
        ("a-1", "role = \"host\"\nhost = \"a-1\"", HOST),
    ] {
        let hash = sha256(secret);
        let _ = write!(
            text,
            "[[token]]\nname = \"{name}\"\n{rest}\nsha256 = \"{hash}\"\n"
        );
    }
    text
}

impl Place {
    pub(crate) fn start() -> Self {
        Self::with(Setup::default())
    }

    /// A service that begins with a state.
    pub(crate) fn of(state: Snapshot) -> Self {
        Self::with(Setup {
            state: Some(state),
            ..Setup::default()
        })
    }

    pub(crate) fn with(setup: Setup) -> Self {
        let dir = TempDir::new().unwrap();
        let tokens = dir.path().join("tokens.toml");
        std::fs::write(&tokens, tokens_file()).unwrap();
        let secret = dir.path().join("hose.key");
        std::fs::write(&secret, HOSE_SECRET).unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o400)).unwrap();
        let mut store = setup
            .store
            .unwrap_or_else(|| Box::new(Sqlite::open(&dir.path().join("place.db")).unwrap()));
        let mut ledger = if let Some(state) = setup.state {
            Ledger::load(state).unwrap()
        } else {
            let (ledger, changes) = Ledger::new(setup.tree, Policy::Silo).unwrap();
            store.commit(&changes).unwrap();
            ledger
        };
        ledger.set_revision(store.load().unwrap().revision);

        let scheme = if setup.tls.is_some() { "https" } else { "http" };
        let config = Config {
            authentication: if setup.tokens {
                Authentication::Tokens(tokens.clone())
            } else {
                Authentication::InsecureLoopback
            },
            tls: setup.tls,
            streams: setup.streams,
            connections: setup.connections,
            collector: None,
            hose: Some(HoseSecret {
                file: secret.clone(),
                period: Duration::from_hours(1),
            }),
        };
        let metrics = Metrics::new();
        let service = Service::start(ledger, metrics.observer());
        let server = Server::new(config, service.clone(), None, metrics).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime
            .block_on(service.lead(store, Box::new(|_| {})))
            .unwrap();
        let running = server.clone();
        let running = std::thread::spawn(move || {
            runtime.block_on(running.run(listener)).unwrap();
            runtime.shutdown_background();
        });
        Self {
            url,
            service,
            server,
            tokens,
            secret,
            agent: agent(ureq::tls::TlsConfig::default()),
            running: Some(running),
            _dir: dir,
        }
    }

    /// Sends a request; `body` with the type of JSON, unless there is one among
    /// the headers.
    pub(crate) fn send(
        &self,
        token: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> Answer {
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url));
        if !token.is_empty() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let typed = headers.iter().any(|(name, _)| *name == "content-type");
        if body.is_some() && !typed {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        let answer = match body {
            Some(body) => self.agent.run(request.body(body).unwrap()),
            None => self.agent.run(request.body(()).unwrap()),
        };
        let mut answer = answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        Answer {
            status: answer.status().as_u16(),
            headers: answer.headers().clone(),
            body: answer
                .body_mut()
                .with_config()
                .limit(1 << 30)
                .read_to_vec()
                .unwrap(),
        }
    }

    pub(crate) fn get(&self, token: &str, path: &str) -> Answer {
        self.send(token, "GET", path, &[], None)
    }

    pub(crate) fn post(&self, token: &str, path: &str, body: &str) -> Answer {
        self.send(token, "POST", path, &[], Some(body.as_bytes()))
    }

    /// Opens a stream with a token.
    pub(crate) fn stream(&self, token: &str, path: &str) -> BufReader<TcpStream> {
        let address = self.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(STREAM_TIMEOUT)).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}");
        write!(stream, "{head}\r\n\r\n").unwrap();
        BufReader::new(stream)
    }

    /// Admits a tenant of acme with `vms` machines.
    pub(crate) fn admit(&self, name: &str, vms: u32) -> u64 {
        let body = format!(r#"{{"name": "{name}", "vms": {vms}}}"#);
        let answer = self.post(ACME, "/v1/tenants", &body);
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["id"].as_u64().unwrap()
    }

    /// All that the service knows.
    pub(crate) fn state(&self) -> Snapshot {
        self.service.read(Ledger::snapshot)
    }

    /// The same without the audit, in which refused requests have entries some time later.
    pub(crate) fn content(&self) -> Snapshot {
        Snapshot {
            revision: 0,
            audit: std::collections::BTreeMap::new(),
            ..self.state()
        }
    }

    /// Ends the service, and waits until it has.
    pub(crate) fn stop(&mut self) {
        self.server.stop();
        if let Some(running) = self.running.take() {
            running.join().unwrap();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.server.stop();
        if let Some(running) = self.running.take() {
            let _ = running.join();
        }
    }
}

pub(crate) fn agent(tls: ureq::tls::TlsConfig) -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .allow_non_standard_methods(true)
        .max_redirects(0)
        .proxy(None)
        .timeout_global(Some(Duration::from_secs(20)))
        .tls_config(tls)
        .build()
        .new_agent()
}
