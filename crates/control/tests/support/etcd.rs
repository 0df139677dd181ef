//! An etcd cluster of this test's own, on free ports of the loopback.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tailbound_sys::probe::required::{Part, skipped};
use tempfile::TempDir;

/// Time limit for a cluster's start and elections.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(30);

/// Several members, killed when this is dropped.
pub(crate) struct Etcd {
    dir: TempDir,
    members: Vec<Member>,
    tls: Option<Tls>,
}

/// Files for TLS that members and clients share.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) ca: PathBuf,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

struct Member {
    client: u16,
    peer: u16,
    child: Option<Child>,
}

impl Etcd {
    /// Starts a cluster and waits until it has a leader. Prints a line and returns None if etcd is
    /// not installed.
    pub(crate) fn start(members: usize) -> Option<Self> {
        Self::start_with(members, None)
    }

    /// Starts a cluster whose members use TLS and require certificates of clients.
    pub(crate) fn start_with(members: usize, tls: Option<Tls>) -> Option<Self> {
        for tool in ["etcd", "etcdctl"] {
            let found = Command::new(tool)
                .arg(if tool == "etcd" {
                    "--version"
                } else {
                    "version"
                })
                .env("ETCDCTL_API", "3")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            if !found.is_ok_and(|status| status.success()) {
                let why = format!("{tool} is not installed (packages etcd-server, etcd-client)");
                skipped(Part::Etcd, why);
                return None;
            }
        }
        let ports = free_ports(2 * members);
        let mut etcd = Self {
            dir: tempfile::tempdir().unwrap(),
            members: ports
                .chunks(2)
                .map(|ports| Member {
                    client: ports[0],
                    peer: ports[1],
                    child: None,
                })
                .collect(),
            tls,
        };
        for member in 0..members {
            etcd.restart(member);
        }
        etcd.leader();
        Some(etcd)
    }

    /// The store in it under a prefix.
    pub(crate) fn location(&self, prefix: &str) -> String {
        let hosts: Vec<String> = self
            .members
            .iter()
            .map(|member| format!("127.0.0.1:{}", member.client))
            .collect();
        format!("etcd://{}/{prefix}", hosts.join(","))
    }

    /// Waits for a leader, and returns its index.
    pub(crate) fn leader(&self) -> usize {
        let end = Instant::now() + CLUSTER_TIMEOUT;
        loop {
            for member in 0..self.members.len() {
                let status = self.etcdctl(member, &["endpoint", "status", "-w", "json"]);
                let Ok(status) = serde_json::from_slice::<serde_json::Value>(&status) else {
                    continue;
                };
                let status = &status[0]["Status"];
                let id = &status["header"]["member_id"];
                if id.is_u64() && status["leader"] == *id {
                    return member;
                }
            }
            assert!(Instant::now() < end, "etcd has no leader: {}", self.log());
            sleep(Duration::from_millis(50));
        }
    }

    /// Kills a member without a warning.
    pub(crate) fn kill(&mut self, member: usize) {
        if let Some(mut child) = self.members[member].child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts a member that is not running.
    pub(crate) fn restart(&mut self, member: usize) {
        let cluster: Vec<String> = (0..)
            .zip(&self.members)
            .map(|(n, member)| format!("m{n}=http://127.0.0.1:{}", member.peer))
            .collect();
        let Member { client, peer, .. } = self.members[member];
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let (client, peer) = (
            format!("{scheme}://127.0.0.1:{client}"),
            format!("http://127.0.0.1:{peer}"),
        );
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("log"))
            .unwrap();
        let mut command = Command::new("etcd");
        if let Some(Tls { ca, cert, key }) = &self.tls {
            command.arg("--client-cert-auth");
            command.arg("--trusted-ca-file").arg(ca);
            command.arg("--cert-file").arg(cert);
            command.arg("--key-file").arg(key);
        }
        let child = command
            .args(["--name", &format!("m{member}")])
            .arg("--data-dir")
            .arg(self.dir.path().join(format!("m{member}")))
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &cluster.join(",")])
            // A tenth of the usual times: the members are on one machine.
            .args(["--heartbeat-interval", "20", "--election-timeout", "200"])
            .args(["--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.members[member].child = Some(child);
    }

    /// Runs etcdctl with one member and returns what it prints.
    pub(crate) fn etcdctl(&self, member: usize, arguments: &[&str]) -> Vec<u8> {
        let endpoint = format!("127.0.0.1:{}", self.members[member].client);
        let mut command = Command::new("etcdctl");
        if let Some(Tls { ca, cert, key }) = &self.tls {
            command.arg("--cacert").arg(ca);
            command.arg("--cert").arg(cert);
            command.arg("--key").arg(key);
        }
        command
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoint, "--command-timeout", "5s"])
            .args(arguments)
            .stderr(Stdio::null())
            .output()
            .unwrap()
            .stdout
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in 0..self.members.len() {
            self.kill(member);
        }
    }
}

/// Returns ports without a listener.
pub(crate) fn free_ports(count: usize) -> Vec<u16> {
    // All at once, so that they differ.
    let listeners: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    listeners
        .iter()
        .map(|listener| listener.local_addr().unwrap().port())
        .collect()
}
