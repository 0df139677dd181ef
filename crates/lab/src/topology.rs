//! The plan of the data centre: its namespaces, their interfaces, and all addresses. Pure: `build`
//! executes the plan.
//!
//! Each host, each guest and the switch is a network namespace of its own. A host's `uplink` is a
//! veth pair whose other end is a port of the switch's bridge. A guest's `eth0` is the kernel side
//! of a TAP whose other side the host's daemon holds, or one end of a veth pair if TAPs are
//! unavailable.

use crate::experiment::LabExperiment;
use crate::guest::GUEST_INTERFACE;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

/// The namespace of the switch.
pub(crate) const SWITCH: &str = "switch";
/// The interface of a host towards the switch.
pub(crate) const UPLINK: &str = "uplink";
/// The namespace of the placement service.
pub(crate) const PLACE: &str = "place";
/// The interface of a host towards the placement service.
const MANAGE: &str = "manage";
/// Address of the placement service for hosts.
pub(crate) const SERVICE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 79, 255, 254), 7070);
/// Size limit of frames: Ethernet's MTU.
pub(crate) const MTU: u32 = 1500;

/// Connection of guests to their host's daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuestPort {
    /// A TAP, as for a VM.
    Tap,
    /// A veth pair, as for a container, with the daemon's end through `AF_PACKET`.
    Veth,
}

impl GuestPort {
    /// Returns its word in a report.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tap => "tap",
            Self::Veth => "veth",
        }
    }
}

/// Kind of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuestKind {
    /// A network namespace.
    Namespace,
    /// A virtual machine in the namespace, which has links of its own.
    Machine,
}

/// A guest and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Guest {
    /// Its name, and its namespace's.
    pub(crate) name: String,
    /// Its host's name.
    pub(crate) host: String,
    /// Its address, in 10.77.0.0/16.
    pub(crate) ip: Ipv4Addr,
    /// Its MAC address, locally administered.
    pub(crate) mac: [u8; 6],
    /// Kind of the guest.
    pub(crate) kind: GuestKind,
}

impl Guest {
    /// Plans the guest `number` of a plan without hosts.
    pub(crate) fn alone(number: u8) -> Self {
        Self {
            name: format!("guest{number}"),
            host: String::new(),
            ip: Ipv4Addr::new(10, 77, 0, number),
            mac: [2, 0, 0, 0, 0, number],
            kind: GuestKind::Namespace,
        }
    }

    /// The MAC address as text.
    pub(crate) fn mac_text(&self) -> String {
        mac_text(self.mac)
    }

    fn is_namespace(&self) -> bool {
        self.kind == GuestKind::Namespace
    }

    /// Returns the host's end of the veth pair, if there is one.
    pub(crate) fn host_interface(&self) -> String {
        format!("guest-{}", self.name)
    }
}

/// All hosts and guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Topology {
    /// The hosts' names, which are also their namespaces' names.
    pub(crate) hosts: Vec<String>,
    /// The guests, in the order of their hosts.
    pub(crate) guests: Vec<Guest>,
    /// Connection of guests.
    pub(crate) guest_port: GuestPort,
    /// True if hosts exchange rates: then they have addresses of their own on the wire, in
    /// 10.78.0.0/16.
    pub(crate) hosts_talk: bool,
    /// True if there is a placement service: then hosts have a network of their own to reach it,
    /// 10.79.0.0/16, like an operator's network beside the guests' wire.
    pub(crate) has_service: bool,
}

impl Topology {
    /// Plans the addresses of all hosts and guests.
    pub(crate) fn new(experiment: &LabExperiment, guest_port: GuestPort) -> Self {
        let hosts: Vec<String> = experiment.hosts.keys().cloned().collect();
        let guest = |(index, (host, name)): (usize, (&str, &str))| {
            // The experiment's checks allow at most 200 guests.
            let number = index as u8 + 1;
            let host_number = hosts.iter().position(|h| h == host).unwrap_or(0) as u8 + 1;
            Guest {
                name: name.to_owned(),
                host: host.to_owned(),
                ip: Ipv4Addr::new(10, 77, host_number, number),
                mac: [2, 0, 0, 0, host_number, number],
                kind: if experiment.is_machine(name) {
                    GuestKind::Machine
                } else {
                    GuestKind::Namespace
                },
            }
        };
        let guests = experiment.guests().enumerate().map(guest).collect();
        Self {
            hosts,
            guests,
            guest_port,
            hosts_talk: experiment.agrees_on_rates(),
            has_service: experiment.has_service(),
        }
    }

    /// Returns a plan of these guests, without hosts.
    pub(crate) const fn without_hosts(guests: Vec<Guest>, guest_port: GuestPort) -> Self {
        Self {
            hosts: Vec::new(),
            guests,
            guest_port,
            hosts_talk: false,
            has_service: false,
        }
    }

    /// Returns a host's own address and MAC address on the wire.
    pub(crate) fn station(&self, host: &str) -> (Ipv4Addr, [u8; 6]) {
        let number = self.number(host);
        (Ipv4Addr::new(10, 78, 0, number), [2, 0, 0, 1, number, 0])
    }

    /// Returns a host's number among the hosts, from 1.
    fn number(&self, host: &str) -> u8 {
        // The experiment's checks allow at most 200 guests, and therefore hosts.
        self.hosts.iter().position(|h| h == host).unwrap_or(0) as u8 + 1
    }

    /// Returns the guest of that name; the experiment's checks have verified names.
    pub(crate) fn guest(&self, name: &str) -> Option<&Guest> {
        self.guests.iter().find(|guest| guest.name == name)
    }

    /// Returns the guests of a host.
    pub(crate) fn guests_of<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a Guest> {
        self.guests.iter().filter(move |guest| guest.host == host)
    }

    /// Returns all namespaces.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &str> {
        let hosts = self.hosts.iter().map(String::as_str);
        let guests = self.guests.iter().map(|guest| guest.name.as_str());
        let service = self.has_service.then_some(PLACE);
        hosts.chain(guests).chain([SWITCH]).chain(service)
    }

    /// Returns the `ip` commands that make all links except those inside guests, for the lab's own
    /// namespace.
    pub(crate) fn links(&self) -> String {
        let mut batch = Vec::new();
        for host in &self.hosts {
            batch.push(format!(
                "link add {UPLINK} netns {host} mtu {MTU} type veth peer name {} netns {SWITCH} mtu {MTU}\n",
                switch_port(host)
            ));
            if self.has_service {
                batch.push(format!(
                    "link add {MANAGE} netns {host} type veth peer name {} netns {PLACE}\n",
                    switch_port(host)
                ));
            }
        }
        if self.guest_port == GuestPort::Veth {
            for guest in self.guests.iter().filter(|guest| guest.is_namespace()) {
                batch.push(format!(
                    "link add {GUEST_INTERFACE} netns {} mtu {MTU} type veth peer name {} netns {} mtu {MTU}\n",
                    guest.name,
                    guest.host_interface(),
                    guest.host
                ));
            }
        }
        batch.concat()
    }

    /// Returns the `ip` commands inside a host.
    pub(crate) fn host_links(&self, host: &str) -> String {
        let mut batch = vec![format!("link set {UPLINK} up\n")];
        if self.hosts_talk {
            let (ip, mac) = self.station(host);
            batch.push(format!(
                "link set {UPLINK} address {}\naddress add {ip}/16 dev {UPLINK}\n",
                mac_text(mac)
            ));
            for other in self.hosts.iter().filter(|other| *other != host) {
                let (ip, mac) = self.station(other);
                batch.push(format!(
                    "neighbour add {ip} lladdr {} dev {UPLINK} nud permanent\n",
                    mac_text(mac)
                ));
            }
        }
        if self.has_service {
            batch.push(format!(
                "link set {MANAGE} up\naddress add 10.79.0.{}/16 dev {MANAGE}\n",
                self.number(host)
            ));
        }
        if self.guest_port == GuestPort::Veth {
            for guest in self.guests_of(host).filter(|guest| guest.is_namespace()) {
                batch.push(format!("link set {} up\n", guest.host_interface()));
            }
        }
        batch.concat()
    }

    /// Returns the `ip` commands inside a guest. It has static entries for all MAC addresses, so
    /// that no address resolution disturbs a tail.
    pub(crate) fn guest_links(&self, guest: &Guest) -> String {
        let mut batch = vec!["link set lo up\n".to_owned()];
        if self.guest_port == GuestPort::Tap && guest.kind == GuestKind::Namespace {
            batch.push(format!(
                "tuntap add dev {GUEST_INTERFACE} mode tap vnet_hdr\n"
            ));
        }
        batch.push(format!(
            "link set {GUEST_INTERFACE} address {} mtu {MTU} up\n\
             address add {}/16 dev {GUEST_INTERFACE}\n",
            guest.mac_text(),
            guest.ip
        ));
        for other in self.guests.iter().filter(|other| *other != guest) {
            batch.push(format!(
                "neighbour add {} lladdr {} dev {GUEST_INTERFACE} nud permanent\n",
                other.ip,
                other.mac_text()
            ));
        }
        batch.concat()
    }

    /// Returns the `ip` commands inside the switch.
    pub(crate) fn switch_links(&self) -> String {
        let mut batch = vec![
            "link add bridge type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n".to_owned(),
        ];
        for host in &self.hosts {
            batch.push(format!("link set {} master bridge up\n", switch_port(host)));
        }
        batch.push("link set bridge up\n".to_owned());
        batch.concat()
    }

    /// Returns the `ip` commands of the placement service's namespace, if the service is used: a
    /// switch that is also a station.
    pub(crate) fn service_links(&self) -> String {
        if !self.has_service {
            return String::new();
        }
        // Requests from this namespace use the loopback interface.
        let more = format!(
            "address add {}/16 dev bridge\nlink set lo up\n",
            SERVICE.ip()
        );
        self.switch_links() + &more
    }

    /// Returns the `bridge` commands inside the switch: the ports of all guests, and of all hosts
    /// with an address.
    pub(crate) fn switch_stations(&self) -> String {
        let at = |mac, host: &str| {
            let port = switch_port(host);
            format!("fdb add {} dev {port} master static\n", mac_text(mac))
        };
        let guests = self.guests.iter().map(|guest| at(guest.mac, &guest.host));
        let talking = self.hosts.iter().filter(|_| self.hosts_talk);
        let hosts = talking.map(|host| at(self.station(host).1, host));
        guests.chain(hosts).collect()
    }
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Returns the switch's port to a host.
pub(crate) fn switch_port(host: &str) -> String {
    format!("port-{host}")
}

/// Returns the path of the namespace `name` for `ip netns`.
pub(crate) fn namespace_path(name: &str) -> PathBuf {
    PathBuf::from("/run/netns").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::testing::all;
    use std::collections::BTreeSet;

    #[test]
    fn every_guest_has_an_address_of_its_own() {
        for experiment in all() {
            let topology = Topology::new(&experiment, GuestPort::Tap);
            let ips: BTreeSet<_> = topology.guests.iter().map(|guest| guest.ip).collect();
            let macs: BTreeSet<_> = topology.guests.iter().map(|guest| guest.mac).collect();
            assert_eq!(ips.len(), topology.guests.len());
            assert_eq!(macs.len(), topology.guests.len());
        }
    }

    #[test]
    fn interface_names_fit_the_kernel() {
        // The experiment's checks allow names of at most 8 characters.
        let longest = format!("guest-{}", "x".repeat(8));
        assert!(longest.len() < 16);
        assert!(switch_port(&"x".repeat(8)).len() < 16);
    }
}
