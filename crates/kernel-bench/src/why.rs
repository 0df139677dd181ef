//! One trial of `tailbound why`: a host with a victim, a neighbour and a peer outside, on which
//! one cause of delay is injected; the verdict is compared with it.
//!
//! `tailbound-kernel-bench why TOPOLOGY CAUSE`, in the machine of `scripts/kernel-bench`, with the program
//! `tailbound` beside it. Guests' programs are this same program, as [`roles`].

pub(crate) mod roles;

use crate::Outcome;
use crate::load::sleep_until;
use crate::network::{Guest, add_bridge, connect_by_flows, join, run as ip};
use roles::{SERVICE, SINK};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tailbound_units::Nanos;

const GROUPS: &str = "/sys/fs/cgroup";
const TAILBOUND: &str = "/bin/tailbound";
const WINDOW: &str = "2s";
/// The time from the begin of the load to the begin of the window.
const WARM_UP: Nanos = Nanos::from_millis(300);
/// A rate that a neighbour's bulk exceeds.
const RATE: &str = "20mbit burst 16kb latency 60ms";

/// A way in which guests are attached to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Topology {
    /// Containers with veths on a bridge.
    Veth,
    /// Containers with veths on the kernel's part of Open vSwitch.
    Ovs,
    /// Virtual machine monitors with TAPs that vhost-net holds, on a bridge.
    Vhost,
    /// Containers with netkit pairs, which the host routes to.
    Netkit,
}

impl Topology {
    const ALL: [(&str, Self); 4] = [
        ("veth", Self::Veth),
        ("ovs", Self::Ovs),
        ("vhost", Self::Vhost),
        ("netkit", Self::Netkit),
    ];
}

/// A cause of delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The victim's frames wait behind a neighbour's bulk.
    HostQueue,
    /// The neighbour has the CPU.
    NeighbourCpu,
    /// There is none.
    Nothing,
}

impl Cause {
    const ALL: [(&str, Self); 3] = [
        ("host-queue", Self::HostQueue),
        ("neighbour-cpu", Self::NeighbourCpu),
        ("nothing-slow", Self::Nothing),
    ];
}

/// A guest of a trial.
#[derive(Debug, Clone, Copy)]
struct Place {
    guest: Guest,
    /// The name by which `why` knows it; of a VMM, its beginning.
    name: &'static str,
    /// The first process.
    process: u32,
    group: &'static str,
}

const PLACES: [(&str, &str); 2] = [
    (
        "aaaaaaaaaaaa",
        "docker/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ),
    (
        "bbbbbbbbbbbb",
        "docker/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    ),
];
const MONITOR: &str = "firecracker";
const MONITORS: [(&str, &str); 2] = [(MONITOR, "machines/first"), (MONITOR, "machines/second")];
const OUTSIDE_GROUP: &str = "outside";
/// The group of the program that is tried: beside guests that compute it needs a share of its own.
const HOST_GROUP: &str = "host";

/// Runs a trial, and returns whether the verdict is right.
pub(crate) fn run(topology: &str, cause: &str) -> Outcome<bool> {
    let known = |names: &[&str]| format!("use one of {}", names.join(", "));
    let found = Topology::ALL.iter().find(|it| it.0 == topology);
    let topology = found.ok_or_else(|| known(&Topology::ALL.map(|it| it.0)))?.1;
    let found = Cause::ALL.iter().find(|it| it.0 == cause);
    let (wanted, cause) = *found.ok_or_else(|| known(&Cause::ALL.map(|it| it.0)))?;
    let names = if topology == Topology::Vhost {
        MONITORS
    } else {
        PLACES
    };
    let place = |at: usize| Place {
        guest: Guest::numbered(at as u8 + 1),
        name: names[at].0,
        process: 0,
        group: names[at].1,
    };
    let mut trial = Trial {
        topology,
        victim: place(0),
        neighbour: place(1),
        outside: Guest::numbered(3),
        children: Vec::new(),
    };
    trial.build()?;
    trial.load(cause)?;
    sleep_until(crate::load::now().saturating_add(WARM_UP));
    let verdict = trial.ask()?;
    trial.end();
    println!("{verdict}");
    // The causes of parts of the delay come behind the sentence.
    let verdict = verdict.split("\"sentence\"").next().unwrap_or_default();
    let by = format!("\"by\": \"{}", trial.neighbour.known_name());
    Ok(match cause {
        Cause::Nothing => verdict.contains("\"finding\": \"nothing-slow\""),
        _ => verdict.contains(&format!("\"cause\": \"{wanted}\"")) && verdict.contains(&by),
    })
}

impl Place {
    fn known_name(self) -> String {
        if self.name == MONITOR {
            return format!("{}-{}", self.name, self.process);
        }
        self.name.to_owned()
    }
}

#[derive(Debug)]
struct Trial {
    topology: Topology,
    victim: Place,
    neighbour: Place,
    outside: Guest,
    children: Vec<Child>,
}

impl Trial {
    fn build(&mut self) -> Outcome<()> {
        for group in ["", "docker", "machines"] {
            let group = Path::new(GROUPS).join(group);
            std::fs::create_dir_all(&group)?;
            std::fs::write(group.join("cgroup.subtree_control"), "+cpu")?;
        }
        let own = [self.victim.group, self.neighbour.group];
        for group in own.into_iter().chain([OUTSIDE_GROUP, HOST_GROUP]) {
            std::fs::create_dir_all(Path::new(GROUPS).join(group))?;
        }
        // The peers outside would have a computer of their own.
        for group in ["docker", "machines", OUTSIDE_GROUP, HOST_GROUP] {
            std::fs::write(Path::new(GROUPS).join(group).join("cpu.weight"), "10000")?;
        }
        Guest::add(self.outside.number())?;
        match self.topology {
            Topology::Veth | Topology::Ovs => {
                for place in [self.victim, self.neighbour] {
                    Guest::add(place.guest.number())?;
                }
            }
            Topology::Vhost => self.add_machines()?,
            Topology::Netkit => return self.route(),
        }
        let all = [self.victim.guest, self.neighbour.guest, self.outside];
        for (at, guest) in all.iter().enumerate() {
            for other in &all[at + 1..] {
                guest.introduce(*other)?;
            }
        }
        if self.topology == Topology::Ovs {
            return connect_by_flows(&all);
        }
        add_bridge("switch")?;
        all.iter()
            .try_for_each(|guest| join("switch", &guest.port_name()))
    }

    /// A TAP on the host for each guest, and another one in a network namespace for its own kernel; the
    /// monitor carries frames between both.
    fn add_machines(&mut self) -> Outcome<()> {
        for place in [self.victim, self.neighbour] {
            let (space, port) = (place.guest.namespace_name(), place.guest.port_name());
            ip(&format!("ip netns add {space}"))?;
            tailbound_sys::netns::within(&place.guest.namespace(), crate::network::silence)??;
            ip(&format!("ip -n {space} tuntap add eth0 mode tap vnet_hdr"))?;
            ip(&format!(
                "ip -n {space} link set eth0 address {} up",
                place.guest.mac_text()
            ))?;
            let address = place.guest.address();
            ip(&format!("ip -n {space} addr add {address}/24 dev eth0"))?;
            ip(&format!("ip tuntap add {port} mode tap vnet_hdr"))?;
            ip(&format!("ip link set {port} up"))?;
        }
        Ok(())
    }

    /// A pair of netkits for each guest, without addresses of Ethernet.
    fn route(&mut self) -> Outcome<()> {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        let port = self.outside.port_name();
        ip(&format!("ip addr add 10.0.0.254/24 dev {port}"))?;
        let outside = self.outside.namespace_name();
        ip(&format!(
            "ip -n {outside} route add 10.1.0.0/24 via 10.0.0.254"
        ))?;
        for place in [self.victim, self.neighbour] {
            let (space, port) = (place.guest.namespace_name(), place.guest.port_name());
            ip(&format!("ip netns add {space}"))?;
            tailbound_sys::netns::within(&place.guest.namespace(), crate::network::silence)??;
            ip(&format!("ip link add {port} type netkit"))?;
            // The other end has the name that the kernel gave it.
            let other = netkit_peer()?;
            ip(&format!("ip link set {other} netns {space} name eth0"))?;
            ip(&format!("ip link set {port} up"))?;
            ip(&format!("ip -n {space} link set eth0 up"))?;
            let address = self.address(place);
            ip(&format!("ip -n {space} addr add {address}/32 dev eth0"))?;
            ip(&format!("ip -n {space} route add default dev eth0"))?;
            ip(&format!("ip route add {address}/32 dev {port}"))?;
        }
        Ok(())
    }

    fn address(&self, place: Place) -> String {
        match self.topology {
            Topology::Netkit => format!("10.1.0.{}", place.guest.number()),
            _ => place.guest.address(),
        }
    }

    fn load(&mut self, cause: Cause) -> Outcome<()> {
        let outside = self.outside.address();
        let (service, sink) = (SERVICE.to_string(), SINK.to_string());
        let mut neighbour = vec!["wait"];
        let mut work = "300";
        match cause {
            Cause::HostQueue => {
                let port = self.outside.port_name();
                ip(&format!("tc qdisc add dev {port} root tbf rate {RATE}"))?;
                self.beyond(&["sink", &sink])?;
                neighbour = vec!["bulk", &outside, &sink];
            }
            Cause::NeighbourCpu => {
                neighbour = vec!["compute"];
                // CFS (until Linux 6.5) spares a thread that sleeps as often and computes less.
                work = "2000";
                let group = Path::new(GROUPS).join(self.neighbour.group);
                std::fs::write(group.join("cpu.weight"), "1000")?;
            }
            Cause::Nothing => {}
        }
        self.victim.process = self.inside(self.victim, &["serve", &service, work])?;
        self.neighbour.process = self.inside(self.neighbour, &neighbour)?;
        // Its server has begun.
        sleep_until(crate::load::now().saturating_add(WARM_UP));
        let victim = self.address(self.victim);
        self.beyond(&["ask", &victim, &service])
    }

    /// Starts a role in a guest.
    fn inside(&mut self, place: Place, role: &[&str]) -> Outcome<u32> {
        let space = place.guest.namespace_name();
        let mut command = if self.topology == Topology::Vhost {
            // Its program has the name of one.
            let mut command = Command::new(monitor()?);
            command.args(["role", "monitor"]);
            command.args([&place.guest.port_name(), &space]);
            command
        } else {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &space, "/bin/program", "role"]);
            command
        };
        command.args(role);
        self.start(command, place.group)
    }

    fn beyond(&mut self, role: &[&str]) -> Outcome<()> {
        let mut command = Command::new("ip");
        let space = self.outside.namespace_name();
        command.args(["netns", "exec", &space, "/bin/program", "role"]);
        command.args(role);
        self.start(command, OUTSIDE_GROUP).map(|_| ())
    }

    /// Returns the number of the process.
    fn start(&mut self, mut command: Command, group: &str) -> Outcome<u32> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        enter(&child, group)?;
        let process = child.id();
        self.children.push(child);
        Ok(process)
    }

    /// Runs `why` for the victim.
    fn ask(&self) -> Outcome<String> {
        let victim = self.victim.known_name();
        let arguments = ["why", &victim, "--for", WINDOW, "--output", "json"];
        let mut command = Command::new(TAILBOUND);
        command.args(arguments).stdin(Stdio::null());
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        enter(&child, HOST_GROUP)?;
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if text.is_empty() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        Ok(text)
    }

    fn end(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Moves a process into a control group.
fn enter(child: &Child, group: &str) -> Outcome<()> {
    let file = Path::new(GROUPS).join(group).join("cgroup.procs");
    Ok(std::fs::write(file, child.id().to_string())?)
}

/// This program by the name of a VMM.
fn monitor() -> Outcome<PathBuf> {
    let path = Path::new("/tmp").join(MONITOR);
    if !path.exists() {
        std::fs::copy("/bin/program", &path)?;
    }
    Ok(path)
}

/// The end of a netkit pair that has no name of ours.
fn netkit_peer() -> Outcome<String> {
    let names = std::fs::read_dir("/sys/class/net")?.flatten();
    let mut names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let peer = names.find(|name| name.starts_with("nk"));
    Ok(peer.ok_or("the pair of netkits has one end")?)
}
