//! Builds the data centre: executes the plans of [`crate::topology`] and [`crate::wire`] with
//! iproute2.

use crate::LabError;
use crate::experiment::LabExperiment;
use crate::tools::words;
use crate::topology::{GuestKind, PLACE, SWITCH, Topology, UPLINK, namespace_path, switch_port};
use crate::wire;
use serde::Deserialize;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tailbound_sys::process::program_path;
use tailbound_units::Bytes;

/// Kernel settings of every namespace.
pub(crate) const SETTINGS: [(&str, &str); 2] = [
    // Neighbour discovery and router solicitations would be traffic that no guest sends.
    ("net/ipv6/conf/all/disable_ipv6", "1"),
    ("net/ipv6/conf/default/disable_ipv6", "1"),
];

/// More kernel settings of guests.
const GUEST_SETTINGS: [(&str, &str); 1] = [
    // Path metrics of one variant must not affect the next.
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
        // A VM sets up its own links.
        if guest.kind == GuestKind::Namespace {
            batch("ip", Some(&guest.name), &topology.guest_links(guest))?;
        }
    }
    batch("ip", Some(PLACE), &topology.service_links())?;
    batch("ip", Some(SWITCH), &topology.switch_links())?;
    batch("bridge", Some(SWITCH), &topology.switch_stations())?;
    await_cables(topology)
}

/// Time limit for the kernel to detect the plugged-in cables, which takes less than 1 s.
const LINK_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of these checks.
const POLL: Duration = Duration::from_millis(20);

/// An interface in the output of `ip -j -d link`.
#[derive(Debug, Deserialize)]
struct Link {
    ifname: String,
    operstate: String,
    #[serde(default)]
    linkinfo: LinkInfo,
}

#[derive(Debug, Default, Deserialize)]
struct LinkInfo {
    info_slave_data: Option<BridgePort>,
}

#[derive(Debug, Deserialize)]
struct BridgePort {
    state: String,
}

/// Waits until the kernel has detected that all wires are plugged in. If both ends of a wire have
/// the same interface number in their namespaces, the kernel checks once a second only. Until then
/// the switch's port drops frames, also the only frames from which a host could learn the location
/// of a guest.
fn await_cables(topology: &Topology) -> Result<(), LabError> {
    let deadline = Instant::now() + LINK_TIMEOUT;
    let hosts = topology.hosts.iter().map(String::as_str);
    let service = topology.has_service.then_some(PLACE);
    for place in hosts.chain([SWITCH]).chain(service) {
        while let Some(interface) = unplugged(&links(place)?)? {
            if Instant::now() > deadline {
                return Err(LabError::Build {
                    command: format!("ip -n {place} link show {interface}"),
                    message: format!(
                        "it is not up {} s after it was set so",
                        LINK_TIMEOUT.as_secs()
                    ),
                });
            }
            std::thread::sleep(POLL);
        }
    }
    Ok(())
}

/// Returns the wires that end in a namespace, as JSON.
fn links(namespace: &str) -> Result<Vec<u8>, LabError> {
    let mut command = Command::new(program_path("ip"));
    command.args(["-n", namespace, "-j", "-d", "link", "show", "type", "veth"]);
    let output = command.output().map_err(LabError::io("ip"))?;
    Ok(output.stdout)
}

/// Returns the first of these wires that does not carry frames yet.
fn unplugged(links: &[u8]) -> Result<Option<String>, LabError> {
    let links: Vec<Link> = serde_json::from_slice(links)
        .map_err(|error| LabError::io("reading the output of ip -j link")(error.into()))?;
    let carries = |link: &Link| {
        let port = link.linkinfo.info_slave_data.as_ref();
        link.operstate == "UP" && port.is_none_or(|port| port.state == "forwarding")
    };
    let mut dark = links.into_iter().filter(|link| !carries(link));
    Ok(dark.next().map(|link| link.ifname))
}

/// Makes the namespaces only: sufficient if the variant does not use the network.
pub(crate) fn namespaces(topology: &Topology) -> Result<(), LabError> {
    let add = |name| format!("netns add {name}\n");
    let commands: String = topology.namespaces().map(add).collect();
    batch("ip", None, &commands)
}

/// Configures the wires and the switch's ports for a variant.
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

/// Removes the setup of the previous variant, if there is any.
fn clear(namespace: &str, interface: &str) -> Result<(), LabError> {
    let mut command = Command::new(program_path("tc"));
    command.args(["-n", namespace, "qdisc", "del", "dev", interface, "root"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(_) => Ok(()),
        Err(error) => Err(LabError::io("tc")(error)),
    }
}

pub(crate) fn configure(namespace: &str, settings: &[(&str, &str)]) -> Result<(), LabError> {
    let written = tailbound_sys::netns::within(&namespace_path(namespace), || {
        settings.iter().try_for_each(|(name, value)| {
            let path = format!("/proc/sys/{name}");
            match std::fs::write(&path, value) {
                // A kernel without IPv6 needs no setting.
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
        // A program that stops reading reports the reason on its standard error.
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

/// Returns the line number in iproute2's message, which ends with `Command failed -:LINE`.
fn failed_line(message: &str) -> Option<usize> {
    let (_, line) = message.trim().rsplit_once("-:")?;
    line.trim().parse().ok().filter(|line| *line > 0)
}

/// Runs a program that ends by itself.
pub(crate) fn tool(program: &'static str, line: &str) -> Result<(), LabError> {
    let output = Command::new(program_path(program))
        .args(words(line))
        .output();
    let output = output.map_err(LabError::io(format!("running {program}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(LabError::Build {
        command: format!("{program} {line}"),
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of iproute2 6.1, without unused keys.
    #[test]
    fn a_wire_is_ready_when_both_ends_are_up_and_forwarding() {
        let links = |state: &str, forwards: &str| {
            format!(
                r#"[{{"ifindex":2,"ifname":"port-A","operstate":"UP","linkinfo":{{
                    "info_kind":"veth","info_slave_kind":"bridge",
                    "info_slave_data":{{"state":"forwarding","priority":32}}}}}},
                   {{"ifindex":3,"ifname":"port-B","operstate":"{state}","linkinfo":{{
                    "info_kind":"veth","info_slave_kind":"bridge",
                    "info_slave_data":{{"state":"{forwards}","priority":32}}}}}},
                   {{"ifindex":4,"ifname":"uplink","operstate":"UP",
                    "linkinfo":{{"info_kind":"veth"}}}}]"#
            )
        };
        for (state, forwards, dark) in [
            ("DOWN", "disabled", Some("port-B")),
            ("UP", "disabled", Some("port-B")),
            ("UP", "learning", Some("port-B")),
            ("UP", "forwarding", None),
        ] {
            let found = unplugged(links(state, forwards).as_bytes()).unwrap();
            assert_eq!(found.as_deref(), dark, "{state}, {forwards}");
        }
        assert_eq!(unplugged(b"[]").unwrap(), None);
        assert!(unplugged(b"").is_err());
    }

    #[test]
    fn the_failing_command_is_found_in_the_message() {
        assert_eq!(failed_line("Error: x.\nCommand failed -:3\n"), Some(3));
        assert_eq!(failed_line("Command failed -:0"), None);
        assert_eq!(failed_line("something else"), None);
    }
}
