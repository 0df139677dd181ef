//! Interfaces, namespaces and queueing disciplines of the machine, by iproute2.

use crate::Outcome;
use std::path::PathBuf;
use std::process::Command;
use tailbound_sys::netns;

/// Runs a command of iproute2, such as `ip link add …`; words have no spaces.
pub(crate) fn run(command: &str) -> Outcome<()> {
    let mut words = command.split_ascii_whitespace();
    let program = words.next().ok_or("no command")?;
    let output = Command::new(program).args(words).output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command}: {}", error.trim()).into());
    }
    Ok(())
}

/// Turns IPv6 off for all interfaces of this network namespace, so that only frames of the experiment
/// are sent.
pub(crate) fn silence() -> Outcome<()> {
    for scope in ["all", "default"] {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1")?;
    }
    Ok(())
}

/// A guest's end of a veth, in a network namespace of its own: `guest` with the address
/// 10.0.0.NUMBER and the interface `eth0`. The host's end is `port-NUMBER`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guest {
    number: u8,
}

impl Guest {
    /// Adds a guest. The index of its `eth0` is [`Self::inner`] and that of its port
    /// [`Self::port`], so that no two interfaces of the machine have the same one.
    pub(crate) fn add(number: u8) -> Outcome<Self> {
        let guest = Self::numbered(number);
        let (inner, port, mac) = (guest.inner(), guest.port(), guest.mac_text());
        let name = guest.namespace_name();
        run(&format!("ip netns add {name}"))?;
        netns::within(&guest.namespace(), silence)??;
        run(&format!(
            "ip link add {} index {port} type veth peer name eth0 index {inner} address {mac} netns {name}",
            guest.port_name()
        ))?;
        run(&format!(
            "ip -n {name} addr add {}/24 dev eth0",
            guest.address()
        ))?;
        run(&format!("ip -n {name} link set lo up"))?;
        run(&format!("ip -n {name} link set eth0 up"))?;
        run(&format!("ip link set {} up", guest.port_name()))?;
        Ok(guest)
    }

    /// The guest of this number, whether it is there or not.
    pub(crate) const fn numbered(number: u8) -> Self {
        Self { number }
    }

    /// Enters into this guest's table the MAC address of another one, so that no ARP is measured.
    pub(crate) fn knows(self, address: &str, mac: &str) -> Outcome<()> {
        run(&format!(
            "ip -n {} neigh replace {address} lladdr {mac} dev eth0",
            self.namespace_name()
        ))
    }

    /// Introduces two guests to each other.
    pub(crate) fn introduce(self, other: Self) -> Outcome<()> {
        self.knows(&other.address(), &other.mac_text())?;
        other.knows(&self.address(), &self.mac_text())
    }

    pub(crate) const fn number(self) -> u8 {
        self.number
    }

    pub(crate) fn address(self) -> String {
        self.octets().map(|byte| byte.to_string()).join(".")
    }

    pub(crate) fn octets(self) -> [u8; 4] {
        [10, 0, 0, self.number]
    }

    pub(crate) fn mac(self) -> [u8; 6] {
        [2, 0, 0, 0, 0, self.number]
    }

    pub(crate) fn mac_text(self) -> String {
        mac_text(self.mac())
    }

    /// Index of `eth0`.
    pub(crate) fn inner(self) -> u32 {
        u32::from(self.number) + 100
    }

    /// Index of the host's end.
    pub(crate) fn port(self) -> u32 {
        u32::from(self.number) + 200
    }

    pub(crate) fn port_name(self) -> String {
        format!("port-{}", self.number)
    }

    pub(crate) fn namespace_name(self) -> String {
        format!("guest-{}", self.number)
    }

    pub(crate) fn namespace(self) -> PathBuf {
        PathBuf::from("/run/netns").join(self.namespace_name())
    }
}

/// Text form of a MAC address.
pub(crate) fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Adds a bridge that forwards from the start, without a spanning tree or snooping.
pub(crate) fn add_bridge(name: &str) -> Outcome<()> {
    run(&format!(
        "ip link add {name} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
    ))?;
    run(&format!("ip link set {name} up"))
}

/// Makes an interface a port of a bridge.
pub(crate) fn join(bridge: &str, port: &str) -> Outcome<()> {
    run(&format!("ip link set {port} master {bridge}"))
}

/// Connects ports by flows in the kernel's part of Open vSwitch, whose daemon does not run.
pub(crate) fn connect_by_flows(guests: &[Guest]) -> Outcome<()> {
    run("ovs-dpctl add-dp dp0")?;
    for guest in guests {
        // Port 0 is the switch itself.
        let (port, number) = (guest.port_name(), guest.number());
        run(&format!("ovs-dpctl add-if dp0 {port},port_no={number}"))?;
    }
    for from in guests {
        for to in guests.iter().filter(|to| to.number() != from.number()) {
            let key = format!(
                "in_port({}),eth(dst={}),eth_type(0x0800),ipv4(frag=no)",
                from.number(),
                to.mac_text()
            );
            run(&format!("ovs-dpctl add-flow dp0 {key} {}", to.number()))?;
        }
    }
    Ok(())
}

/// Reads the index of an interface of this network namespace.
pub(crate) fn index(interface: &str) -> Outcome<u32> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/ifindex"))?;
    Ok(text.trim().parse()?)
}
