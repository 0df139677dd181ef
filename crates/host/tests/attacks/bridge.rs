//! A Linux bridge with the ports of a daemon, as the control.

use crate::support::{Guest, Kind, command};

/// The bridge `br0`, and guests behind veths.
pub(crate) struct Bridge(Vec<Guest>);

impl Bridge {
    /// With guests of these numbers.
    pub(crate) fn new(guests: &[u8]) -> Self {
        let link = [
            "link",
            "add",
            "br0",
            "type",
            "bridge",
            "mcast_snooping",
            "0",
        ];
        command("ip", &link);
        // Of this namespace: netfilter would drop datagrams, whose headers have no checksum.
        let netfilter = "/proc/sys/net/bridge/bridge-nf-call-iptables";
        let _ = std::fs::write(netfilter, "0");
        command("ip", &["link", "set", "br0", "up"]);
        let guests = guests.iter().map(|&number| Guest::new(Kind::Veth, number));
        let guests: Vec<_> = guests.collect();
        for guest in &guests {
            add(&guest.name);
        }
        Self(guests)
    }

    pub(crate) fn guest(&self, number: u8) -> &Guest {
        let mut guests = self.0.iter();
        let found = guests.find(|guest| guest.mac[5] == number);
        found.expect("it has this guest")
    }
}

/// Adds an interface to the bridge.
pub(crate) fn add(interface: &str) {
    command("ip", &["link", "set", interface, "master", "br0"]);
}

/// Adds veths to the bridge whose other ends receive nothing.
pub(crate) fn add_silent(count: u8) {
    for number in 0..count {
        let [name, end] = [format!("quiet{number}"), format!("end{number}")];
        let link = ["link", "add", &name, "type", "veth", "peer", "name", &end];
        command("ip", &link);
        add(&name);
        for one in [&name, &end] {
            command("ip", &["link", "set", one, "up"]);
        }
    }
}
