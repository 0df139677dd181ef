//! Three members of etcd and three replicas of the service, each in a namespace of its own.

use crate::network::Node;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Members of etcd.
pub(crate) const MEMBERS: [Node; 3] = [Node(11), Node(12), Node(13)];
/// Replicas of the service.
pub(crate) const REPLICAS: [Node; 3] = [Node(21), Node(22), Node(23)];

/// Debian's library that changes the clock of a process.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

/// The processes, which are killed when this is dropped.
pub(crate) struct Cluster {
    directory: TempDir,
    processes: Vec<(Node, Child)>,
}

impl Cluster {
    /// Starts all, and returns before they answer.
    pub(crate) fn start(topology: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("topology.toml"), topology).unwrap();
        certificates(directory.path());
        let mut cluster = Self {
            directory,
            processes: Vec::new(),
        };
        for node in MEMBERS.into_iter().chain(REPLICAS) {
            if REPLICAS.contains(&node) {
                cluster.set_clock(node, 0);
            }
            cluster.begin(node);
        }
        cluster
    }

    pub(crate) fn url(replica: Node) -> String {
        format!("https://{}:7443", replica.ip())
    }

    /// The file of the authority that signed the replicas' certificate.
    pub(crate) fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// The header of an operator's requests.
    pub(crate) fn authorization(&self) -> String {
        let token = fs::read_to_string(self.directory.path().join("token")).unwrap();
        format!("Bearer {}", token.trim())
    }

    /// The last lines of all processes' logs, without the audit's.
    pub(crate) fn log(&self) -> String {
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        let lines = log.lines().filter(|line| !line.contains(" INFO audit "));
        let lines: Vec<_> = lines.collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Sends a signal to the process of a node.
    pub(crate) fn signal(&self, node: Node, signal: &str) {
        let process = self.processes.iter().find(|(at, _)| *at == node);
        let pid = process.unwrap().1.id().to_string();
        let status = Command::new("kill").args([signal, &pid]).status();
        assert!(status.unwrap().success());
    }

    /// Kills the process of a node without a warning, and starts it again.
    pub(crate) fn restart(&mut self, node: Node) {
        let place = self.processes.iter().position(|(at, _)| *at == node);
        let (_, mut child) = self.processes.swap_remove(place.unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        self.begin(node);
    }

    /// Returns true if the clock of a replica can be changed.
    pub(crate) fn has_clocks() -> bool {
        Path::new(FAKETIME).exists()
    }

    /// Sets the clock of a replica this many seconds off.
    pub(crate) fn set_clock(&self, replica: Node, seconds: i64) {
        // At once, as the library may read it at any time.
        let new = self.directory.path().join("clock");
        fs::write(&new, format!("{seconds:+}s\n")).unwrap();
        fs::rename(new, self.clock(replica)).unwrap();
    }

    fn clock(&self, replica: Node) -> PathBuf {
        self.directory.path().join(format!("clock{}", replica.0))
    }

    fn begin(&mut self, node: Node) {
        let mut command = if MEMBERS.contains(&node) {
            self.member(node)
        } else {
            self.replica(node)
        };
        let log = self.directory.path().join("log");
        let log = File::options().create(true).append(true).open(log).unwrap();
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.processes.push((node, child));
    }

    fn member(&self, node: Node) -> Command {
        let name = |node: Node| format!("m{}", node.0);
        let client = format!("http://{}:2379", node.ip());
        let peer = |node: Node| format!("http://{}:2380", node.ip());
        let all = MEMBERS.map(|node| format!("{}={}", name(node), peer(node)));
        let mut command = node.command("etcd");
        command
            .args(["--name", &name(node)])
            .arg("--data-dir")
            .arg(self.directory.path().join(name(node)))
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args(["--listen-peer-urls", &peer(node)])
            .args(["--initial-advertise-peer-urls", &peer(node)])
            .args(["--initial-cluster", &all.join(",")])
            // Shorter than usual: the members are on one computer.
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .args(["--log-level", "error"]);
        command
    }

    fn replica(&self, node: Node) -> Command {
        let members = MEMBERS.map(|member| format!("{}:2379", member.ip()));
        let file = |name: &str| self.directory.path().join(name);
        let mut command = node.command(env!("CARGO_BIN_EXE_tailbound"));
        if Self::has_clocks() {
            command
                .env("LD_PRELOAD", FAKETIME)
                .env("FAKETIME_TIMESTAMP_FILE", self.clock(node))
                .env("FAKETIME_CACHE_DURATION", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        command
            .args(["place", "serve", "--lease", "1"])
            .args(["--listen", &format!("{}:7443", node.ip())])
            .args(["--advertise", &Self::url(node)])
            .args([
                "--store",
                &format!("etcd://{}/partitions", members.join(",")),
            ])
            .arg("--topology")
            .arg(file("topology.toml"))
            .arg("--tokens")
            .arg(file("tokens.toml"))
            .arg("--tls-cert")
            .arg(file("cert.pem"))
            .arg("--tls-key")
            .arg(file("key.pem"))
            .arg("--leader-ca")
            .arg(file("ca.pem"));
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (_, child) in &mut self.processes {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Makes an authority, one certificate for all replicas, and an operator's token.
fn certificates(directory: &Path) {
    let names = REPLICAS.map(|replica| format!("IP:{}", replica.ip()));
    let script = format!(
        r#"
        new='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
        openssl req -x509 $new -days 9 -subj /CN=authority -keyout ca.key -out ca.pem
        printf 'basicConstraints = CA:FALSE\nsubjectAltName = {}\n' > place.ext
        openssl req $new -subj /CN=place -keyout key.pem -out place.csr
        openssl x509 -req -in place.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 9 \
            -extfile place.ext -out cert.pem
        "$TAILBOUND" place token --role operator > tokens.toml 2> secret
        tail -n 1 secret > token
        "#,
        names.join(", ")
    );
    let output = Command::new("sh")
        .args(["-ec", &script])
        .env("TAILBOUND", env!("CARGO_BIN_EXE_tailbound"))
        .current_dir(directory)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
}
