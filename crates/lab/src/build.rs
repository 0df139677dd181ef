//! Builds the data centre: carries out what [`crate::topology`] and
//! [`crate::wire`] plan, with iproute2.

use crate::LabError;
use crate::experiment::LabExperiment;
use crate::topology::{GuestKind, PLACE, SWITCH, Topology, UPLINK, namespace_path, switch_port};
use crate::wire;
use std::io::Write;
use std::process::{Command, Stdio};
use tailbound_sys::process::program_path;
use tailbound_units::Bytes;

/// What every namespace is told.
const SETTINGS: [(&str, &str); 2] = [
    // Neighbour discovery and router solicitations would be traffic of nobody's.
    ("net/ipv6/conf/all/disable_ipv6", "1"),
    ("net/ipv6/conf/default/disable_ipv6", "1"),
];

/// What guests are told besides.
const GUEST_SETTINGS: [(&str, &str); 1] = [
    // What one variant learned about a path must not help the next.
    ("net/ipv4/tcp_no_metrics_save", "1"),
];

/// Makes namespaces, links, addresses and the switch.
pub(crate) fn build(topology: &Topology) -> Result<(), LabError> {
    namespaces(topology)?;
    for name in topology.namespaces() {
        configure(name, &SETTINGS)?;
    }
    for guest in &topology.guests {
        configure(&guest.name, &GUEST_SETTINGS)?;
    }
    batch("ip", None, &topology.links())?;
    for host in &topology.hosts {
        batch("ip", Some(host), &topology.host_links(host))?;
    }
    for guest in &topology.guests {
        // A machine sets up its own.
        if guest.kind == GuestKind::Namespace {
            batch("ip", Some(&guest.name), &topology.guest_links(guest))?;
        }
    }
    batch("ip", Some(PLACE), &topology.service_links())?;
    batch("ip", Some(SWITCH), &topology.switch_links())?;
    batch("bridge", Some(SWITCH), &topology.switch_stations())
}

/// Makes the namespaces alone: enough where nobody uses the network.
pub(crate) fn namespaces(topology: &Topology) -> Result<(), LabError> {
    let add = |name| format!("netns add {name}\n");
    let commands: String = topology.namespaces().map(add).collect();
    batch("ip", None, &commands)
}

/// Makes the wires and the switch's ports what a variant asks for.
pub(crate) fn shape(
    topology: &Topology,
    experiment: &LabExperiment,
    mode: crate::experiment::SwitchMode,
    nic_queue: Bytes,
) -> Result<(), LabError> {
    let (link, buffer) = (experiment.link_rate, experiment.switch_buffer);
    let counting = experiment.wire;
    for host in &topology.hosts {
        clear(host, UPLINK)?;
        batch(
            "tc",
            Some(host),
            &wire::wire(UPLINK, link, counting, nic_queue),
        )?;
    }
    let ports = topology.hosts.iter().map(|host| switch_port(host));
    let mut commands = String::new();
    for port in ports {
        clear(SWITCH, &port)?;
        commands += &wire::switch_port(&port, link, counting, buffer, mode);
    }
    batch("tc", Some(SWITCH), &commands)
}

/// Takes away what the variant before set up; there may be nothing.
fn clear(namespace: &str, interface: &str) -> Result<(), LabError> {
    let mut command = Command::new(program_path("tc"));
    command.args(["-n", namespace, "qdisc", "del", "dev", interface, "root"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(_) => Ok(()),
        Err(error) => Err(LabError::io("tc")(error)),
    }
}

fn configure(namespace: &str, settings: &[(&str, &str)]) -> Result<(), LabError> {
    let written = tailbound_sys::netns::within(&namespace_path(namespace), || {
        settings.iter().try_for_each(|(name, value)| {
            let path = format!("/proc/sys/{name}");
            match std::fs::write(&path, value) {
                // A kernel without IPv6 needs no telling.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                result => result.map_err(LabError::io(format!("writing {value} to {path}"))),
            }
        })
    });
    written.map_err(LabError::io(format!("entering namespace {namespace}")))?
}

/// Runs `ip`, `bridge` or `tc` on a list of commands.
pub(crate) fn batch(
    program: &'static str,
    namespace: Option<&str>,
    commands: &str,
) -> Result<(), LabError> {
    if commands.is_empty() {
        return Ok(());
    }
    let mut command = Command::new(program_path(program));
    if let Some(namespace) = namespace {
        command.args(["-n", namespace]);
    }
    command
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => LabError::Missing {
            program,
            package: "iproute2",
        },
        _ => LabError::io(program)(error),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that stops reading says why on its standard error.
        let _ = stdin.write_all(commands.as_bytes());
    }
    let output = child.wait_with_output().map_err(LabError::io(program))?;
    if output.status.success() {
        return Ok(());
    }
    let place = namespace.map_or(String::new(), |name| format!(" -n {name}"));
    let message = String::from_utf8_lossy(&output.stderr);
    let line = failed_line(&message).and_then(|line| commands.lines().nth(line - 1));
    Err(LabError::Build {
        command: format!("{program}{place} {}", line.unwrap_or("-batch")),
        message: message.trim().to_owned(),
    })
}

/// iproute2 ends its message with `Command failed -:LINE`.
fn failed_line(message: &str) -> Option<usize> {
    let (_, line) = message.trim().rsplit_once("-:")?;
    line.trim().parse().ok().filter(|line| *line > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failing_command_is_found_in_the_message() {
        assert_eq!(failed_line("Error: x.\nCommand failed -:3\n"), Some(3));
        assert_eq!(failed_line("Command failed -:0"), None);
        assert_eq!(failed_line("something else"), None);
    }
}
