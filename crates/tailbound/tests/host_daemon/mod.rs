//! A daemon that is the program under test.

use crate::support::process::Process;
use crate::support::{command, plugged_in, until};
use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_tailbound");

/// Creates a veth whose ends are up, on which the kernel sends no frames of its own.
pub(crate) fn cable(one: &str, other: &str) {
    let link = ["link", "add", one, "type", "veth", "peer", "name", other];
    command("ip", &link);
    for end in [one, other] {
        let ipv6 = format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6");
        std::fs::write(ipv6, "1").unwrap();
        command("ip", &["link", "set", end, "up"]);
    }
    plugged_in(one, None);
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
