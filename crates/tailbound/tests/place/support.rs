//! A real service for the command line to talk to.

#[path = "../program/mod.rs"]
mod program;

pub(crate) use program::*;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Time limit for any step on a busy computer.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Two racks of three hosts with four slots.
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
count = 3
slots = 4
uplink = { rate = "10Gbit/s", buffer = "300KB", up_buffer = "62500B" }
[[host]]
name = "b"
group = "rack2"
count = 3
slots = 4
uplink = { rate = "10Gbit/s", buffer = "300KB", up_buffer = "62500B" }
"#;

pub(crate) struct Service {
    child: Child,
    pub(crate) url: String,
}

impl Service {
    /// Starts a service that stores its decisions in `directory` and admits the clients that
    /// `flags` permit.
    pub(crate) fn start(directory: &Path, listen: &str, flags: &str) -> Self {
        let topology = directory.join("tree.toml");
        if !topology.exists() {
            std::fs::write(&topology, TREE).unwrap();
        }
        let mut child = tailbound()
            .args(["place", "serve", "--listen", listen])
            .args(["--store", "sqlite:place.db"])
            .args(words(flags))
            .arg("--topology")
            .arg(topology)
            .current_dir(directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let url = line
            .strip_prefix("serving on ")
            .unwrap_or_else(|| panic!("no service: {line:?} {:?}", child.wait()));
        Self {
            url: url.trim().to_owned(),
            child,
        }
    }

    /// Starts a service without authentication: all local users may do everything.
    pub(crate) fn open(directory: &Path) -> Self {
        Self::start(directory, "127.0.0.1:0", "--insecure-loopback")
    }

    /// Kills the service, as by `kill -9`.
    #[allow(dead_code, reason = "not every test program kills it")]
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Runs a command line of `tailbound place`.
    pub(crate) fn place(&self, line: &str) -> CommandOutput {
        place(&self.url, line, None)
    }

    /// Runs a command line of `tailbound place` with a token's file.
    pub(crate) fn place_as(&self, token: &Path, line: &str) -> CommandOutput {
        place(&self.url, line, Some(token))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn place(url: &str, line: &str, token: Option<&Path>) -> CommandOutput {
    let mut command = tailbound();
    command
        .arg("place")
        .args(words(line))
        .env("TAILBOUND_URL", url);
    if let Some(token) = token {
        command.env("TAILBOUND_TOKEN_FILE", token);
    }
    CommandOutput::new(command.output().unwrap())
}

pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(
            start.elapsed() < STEP_TIMEOUT,
            "{what}: not after {STEP_TIMEOUT:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
