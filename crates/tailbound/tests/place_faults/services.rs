//! Real processes of the service.

use crate::etcd::free_ports;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tailbound_control::ledger::Snapshot;
use tailbound_control::store::{Sqlite, Store, etcd};
use tempfile::TempDir;

/// Time limit for the start of a service, and for the election of a leader.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(30);

/// One service over `SQLite`, or three over etcd.
pub(crate) struct Services {
    dir: TempDir,
    store: String,
    ports: Vec<u16>,
    children: Vec<Option<Child>>,
}

impl Services {
    pub(crate) fn over_sqlite() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = format!("sqlite:{}", dir.path().join("store").display());
        Self::start(dir, store, 1)
    }

    pub(crate) fn over_etcd(location: &str) -> Self {
        Self::start(tempfile::tempdir().unwrap(), location.to_owned(), 3)
    }

    fn start(dir: TempDir, store: String, count: usize) -> Self {
        fs::write(dir.path().join("topology.toml"), topology()).unwrap();
        let mut services = Self {
            dir,
            store,
            ports: free_ports(count),
            children: (0..count).map(|_| None).collect(),
        };
        for service in 0..count {
            services.restart(service);
        }
        services.leader();
        services
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.ports
            .iter()
            .map(|port| format!("http://127.0.0.1:{port}"))
            .collect()
    }

    /// Waits for a leader and returns its index.
    pub(crate) fn leader(&self) -> usize {
        let end = Instant::now() + SERVICE_TIMEOUT;
        loop {
            let leads = |port: &u16| {
                get(*port, "/v1/status").is_some_and(|text| text.contains(r#""role":"leader""#))
            };
            if let Some(leader) = self.ports.iter().position(leads) {
                return leader;
            }
            assert!(Instant::now() < end, "nobody leads: {}", self.log());
            sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.ports.len()
    }

    pub(crate) fn pid(&self, service: usize) -> Option<u32> {
        self.children[service].as_ref().map(Child::id)
    }

    /// Kills one without a warning.
    pub(crate) fn kill(&mut self, service: usize) {
        if let Some(mut child) = self.children[service].take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts one that is not running; returns before it answers.
    pub(crate) fn restart(&mut self, service: usize) {
        let port = self.ports[service];
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("log"))
            .unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tailbound"));
        command
            .args(["place", "serve", "--insecure-loopback"])
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(["--store", &self.store])
            .arg("--topology")
            .arg(self.dir.path().join("topology.toml"))
            .stdout(Stdio::null())
            .stderr(log);
        if self.count() > 1 {
            command
                .args(["--advertise", &format!("http://127.0.0.1:{port}")])
                .args(["--lease", "1"]);
        }
        self.children[service] = Some(command.spawn().unwrap());
    }

    /// Waits until one answers that it is ready.
    pub(crate) fn wait_for(&self, service: usize) {
        let end = Instant::now() + SERVICE_TIMEOUT;
        while get(self.ports[service], "/readyz").is_none() {
            assert!(Instant::now() < end, "no answer: {}", self.log());
            sleep(Duration::from_millis(20));
        }
    }

    /// Kills all.
    pub(crate) fn stop(&mut self) {
        for service in 0..self.count() {
            self.kill(service);
        }
    }

    /// Returns the content of the store, read without a service.
    pub(crate) fn snapshot(&self) -> Snapshot {
        match self.store.strip_prefix("sqlite:") {
            Some(path) => Sqlite::open(&PathBuf::from(path)).unwrap().load().unwrap(),
            None => etcd::snapshot(&self.store.parse().unwrap()).unwrap(),
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        self.stop();
    }
}

/// 40 racks of 25 hosts with 8 slots: so tight that some tenants are refused.
fn topology() -> String {
    use std::fmt::Write as _;
    let mut text = String::from("frame = \"1538B\"\n");
    for rack in 0..40 {
        write!(
            text,
            r#"
[[group]]
name = "rack{rack}"
uplink = {{ rate = "40Gbit/s", buffer = "500KB" }}

[[host]]
name = "rack{rack}-host"
group = "rack{rack}"
count = 25
slots = 8
uplink = {{ rate = "10Gbit/s", buffer = "300KB" }}
"#
        )
        .unwrap();
    }
    text
}

/// The answer to a GET if it is a 200 and comes within a second.
fn get(port: u16, path: &str) -> Option<String> {
    let second = Duration::from_secs(1);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, second).ok()?;
    stream.set_read_timeout(Some(second)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200").then_some(answer)
}
