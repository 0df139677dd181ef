//! A daemon that is the program under test.

use crate::support::until;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_tailbound");

/// Is killed at the end.
pub(crate) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn tailbound(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments)
        .env("NO_COLOR", "1")
        .current_dir(directory);
    command
}

/// Starts a daemon in `directory`. `named` are the flags for its name and the path of its socket.
pub(crate) fn start(directory: &Path, named: &[&str]) -> Process {
    let daemon = tailbound(directory, &[&["host"], named].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the daemon answers", || {
        let show = tailbound(directory, &[&["host", "show"], named].concat()).output();
        show.unwrap().status.success()
    });
    Process(daemon)
}
