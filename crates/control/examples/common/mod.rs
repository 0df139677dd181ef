//! The parts that benchmarks of the placement service share: a data centre, tenants, times, flags,
//! and a service that is a process of its own.

// Each benchmark uses its own part of this.
#![allow(dead_code)]

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use tailbound_api::{NewTenant, VmLimit};
use tailbound_control::ledger::Ledger;
use tailbound_control::server::{Authentication, Config, Metrics, Server};
use tailbound_control::service::{CommitReport, Service};
use tailbound_control::store::{Sqlite, Store as _};
use tailbound_placement::{Guarantee, Policy, Spec, Spread, Uniform, UplinkSpec};
use tailbound_units::{Bytes, Nanos, Rate};

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// Argument that starts a benchmark's program as the service.
pub(crate) const SERVE: &str = "--serve";

/// Makes a tenant of Silo's table 3 of exponential size, with at least `least` machines: in class A
/// all machines query one and receive short answers, class B moves data.
pub(crate) fn tenant(random: &mut Pcg64Mcg, name: &str, mean: f64, least: u32) -> NewTenant {
    let uniform: f64 = random.random();
    let vms = (-mean * (1.0 - uniform).ln()).ceil();
    let is_class_a = random.random();
    let (bandwidth, burst) = if is_class_a {
        (250, 15_000)
    } else {
        (2_000, 1_538)
    };
    NewTenant {
        name: name.to_owned(),
        owner: Some("acme".to_owned()),
        vms: (vms as u32).clamp(least, 1_000),
        guarantee: Some(Guarantee {
            bandwidth: Rate::from_mbit(bandwidth),
            burst: Bytes(burst),
            delay: is_class_a.then_some(Nanos::from_millis(1)),
            burst_rate: is_class_a.then_some(Rate::from_mbit(1_000)),
            bursts: None,
            burst_in: None,
            class: None,
        }),
        cpu: 0,
        memory: Bytes::ZERO,
        domains: None,
        cpu_reservation: None,
        message: None,
        limit: VmLimit::default(),
        placement: Vec::new(),
    }
}

/// Returns links of this sum of rates. Flows that stay on one link see a single link.
pub(crate) fn uplink(gbit: u64, links: u32, buffer_kb: u64, spread: Spread) -> UplinkSpec {
    let (gbit, links) = match spread {
        Spread::Flow => (gbit * u64::from(links), 1),
        Spread::Frame => (gbit, links),
    };
    UplinkSpec {
        rate: Rate::from_mbit(1_000 * gbit),
        links,
        spread,
        buffer: Bytes(1_000 * buffer_kb),
        up_buffer: None,
        shared_buffer: Bytes::ZERO,
    }
}

/// Racks of 40 hosts, pods of 25 racks, each five times oversubscribed.
pub(crate) fn spec(hosts: u32, spread: Spread) -> Spec {
    Uniform {
        pods: hosts.div_ceil(1_000),
        racks: 25,
        hosts: 40,
        slots: 4,
        host_link: UplinkSpec {
            up_buffer: Some(Bytes(62_500)),
            ..uplink(10, 1, 800, spread)
        },
        rack_link: uplink(40, 2, 500, spread),
        pod_link: uplink(100, 4, 500, spread),
        frame: Bytes(1_538),
    }
    .spec()
}

/// A file that is removed with all that belongs to it.
pub(crate) struct TempFile(pub(crate) PathBuf);

impl TempFile {
    pub(crate) fn new(dir: &Path, name: &str) -> Self {
        let id = std::process::id();
        Self(dir.join(format!("bench-{name}-{id}.sqlite")))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        for end in ["", "-wal", "-shm", "-head"] {
            let mut path = self.0.clone().into_os_string();
            path.push(end);
            // Not all of them need be there.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns the time below which a part of sorted times is.
pub(crate) fn at(sorted: &[Duration], part: f64) -> Duration {
    let index = (sorted.len() as f64 * part) as usize;
    let last = sorted.len().saturating_sub(1);
    sorted.get(index.min(last)).copied().unwrap_or_default()
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Returns the directory of this program.
pub(crate) fn beside() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()?;
    Ok(program.parent().unwrap_or(Path::new(".")).to_owned())
}

/// Reads the arguments: `set` takes the value of a flag, and returns false for an unknown one.
/// Returns the arguments that are no flags, with [`SERVE`] among them.
pub(crate) fn flags(
    mut set: impl FnMut(&str, &str) -> Result<bool, Failure>,
) -> Result<Option<String>, Failure> {
    let mut name = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == SERVE || !argument.starts_with("--") {
            name = Some(argument);
            continue;
        }
        let value = arguments.next();
        let value = value.ok_or_else(|| format!("{argument} needs a value"))?;
        if !set(&argument, &value)? {
            return Err(format!("{argument} is not known; see the top of the source").into());
        }
    }
    Ok(name)
}

/// Serves an empty data centre over an `SQLite` file in `dir` until standard input ends. Prints the
/// address first.
pub(crate) fn serve(
    spec: Spec,
    dir: &Path,
    authentication: Authentication,
    on_commit: impl Fn(&CommitReport) + Send + 'static,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let dir = tempfile::tempdir_in(dir)?;
    let mut store = Sqlite::open(&dir.path().join("place.db"))?;
    let (mut ledger, changes) = Ledger::new(spec, Policy::Silo)?;
    ledger.set_revision(store.commit(&changes)?);
    let service = Service::start(ledger, on_commit);
    runtime.block_on(service.lead(Box::new(store), Box::new(|error| eprintln!("{error}"))))?;
    let config = Config {
        authentication,
        tls: None,
        streams: 1,
        connections: 1_000,
        hose: None,
        collector: None,
    };
    let server = Server::new(config, service, None, Metrics::new())?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("http://{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    let running = server.clone();
    let running = runtime.spawn(async move { running.run(listener).await });
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.stop();
    runtime.block_on(running)??;
    Ok(())
}

/// The service as a process of its own: this program with [`SERVE`].
pub(crate) struct Running {
    pub(crate) process: Child,
    output: BufReader<ChildStdout>,
    pub(crate) url: String,
}

impl Running {
    pub(crate) fn start(hosts: u32, dir: &Path) -> Result<Self, Failure> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(SERVE)
            .args(["--hosts", &hosts.to_string(), "--dir"])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().ok_or("it has no output")?;
        let mut output = BufReader::new(output);
        let mut url = String::new();
        output.read_line(&mut url)?;
        Ok(Self {
            process,
            output,
            url: url.trim_end().to_owned(),
        })
    }

    /// Ends the service, and returns its last words.
    pub(crate) fn end(mut self) -> Result<String, Failure> {
        drop(self.process.stdin.take());
        let mut words = String::new();
        self.output.read_to_string(&mut words)?;
        self.process.wait()?;
        Ok(words)
    }
}

/// Returns a client that takes an error of the service for an answer.
pub(crate) fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    config.proxy(None).build().new_agent()
}
