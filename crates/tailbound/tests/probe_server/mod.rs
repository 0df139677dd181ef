//! A node that answers calls on loopback.

// Each test file uses its own part of this.
#![allow(dead_code)]

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A server of the network test; it ends with this.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    // Kept open: a server whose output is gone is another test.
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tailbound"))
            .args(["probe", "serve", "--listen", "127.0.0.1:0"])
            .args(["--connections", "2"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let address = line.strip_prefix("serving on ").unwrap().trim().to_owned();
        Self {
            child,
            address,
            _stdout: stdout,
        }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
