//! The guests of the host, with the station behind each of their devices.

use super::super::mac::Mac;
use super::super::world::{Guest, HostError, SeenStation};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;
use tailbound_agent::inventory::{self, Inventory};
use tailbound_agent::text::printable;
use tailbound_sys::network::{self, Device, Learned};
use tailbound_sys::veth::{self, Peer};

/// The directory of libvirt's state of running domains.
const LIBVIRT: &str = "/run/libvirt/qemu";

/// Returns all guests, and all TAPs, veths and netkits that belong to none.
pub(super) fn guests(devices: &[Device]) -> Result<Vec<Guest>, HostError> {
    let mut inventory = Inventory::new()?;
    inventory.look(Instant::now())?;
    let stations = Stations {
        domains: domains(Path::new(LIBVIRT)),
        learned: network::learned().unwrap_or_default(),
    };
    let mut guests: Vec<_> = inventory
        .guests()
        .iter()
        .map(|guest| {
            let indexes = guest.interfaces.iter().map(|interface| interface.index);
            let here = indexes.filter_map(|index| devices.iter().find(|it| it.index == index));
            Guest {
                key: guest.key.to_string(),
                name: guest.name.clone(),
                kind: guest.identity.kind().to_owned(),
                labels: inventory::labels(&guest.identity),
                is_plain: false,
                devices: here.map(|it| (it.index, stations.of(it))).collect(),
            }
        })
        .collect();
    let owned = guests.iter().flat_map(|guest| &guest.devices);
    let owned: BTreeSet<_> = owned.map(|(index, _)| *index).collect();
    let is_plain = |device: &&Device| {
        let is_end = matches!(device.kind.as_deref(), Some("veth" | "netkit" | "tun"));
        is_end && !owned.contains(&device.index)
    };
    guests.extend(devices.iter().filter(is_plain).map(|device| Guest {
        key: format!("device/{}", printable(&device.name)),
        name: printable(&device.name),
        kind: "device".to_owned(),
        labels: BTreeMap::new(),
        is_plain: true,
        devices: vec![(device.index, stations.of(device))],
    }));
    Ok(guests)
}

/// The sources of guests' addresses.
struct Stations {
    /// The MAC addresses in the definitions of libvirt's domains, by the name of the TAP.
    domains: BTreeMap<String, Mac>,
    /// The addresses that bridges learned.
    learned: Vec<Learned>,
}

impl Stations {
    fn of(&self, device: &Device) -> Option<SeenStation> {
        if matches!(device.kind.as_deref(), Some("veth" | "netkit")) {
            return behind(&device.name);
        }
        if let Some(mac) = self.domains.get(&device.name) {
            return Some(SeenStation {
                mac: *mac,
                ips: Vec::new(),
                source: "the definition of the domain",
            });
        }
        let here = self.learned.iter().filter(|it| it.port == device.index);
        let here: BTreeSet<_> = here.map(|it| it.mac).collect();
        // Of several stations none is the guest's for sure.
        let only = here.first().filter(|_| here.len() == 1)?;
        Some(SeenStation {
            mac: Mac(*only),
            ips: Vec::new(),
            source: "the bridge's table, so from the guest's own frames",
        })
    }
}

/// Returns the addresses of the other end of a pair.
fn behind(name: &str) -> Option<SeenStation> {
    let Peer::There((mac, mut ips)) = veth::at_peer(name, None, network::station).ok()? else {
        return None;
    };
    // Each guest may choose such addresses.
    ips.retain(|ip| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()));
    Some(SeenStation {
        mac: Mac(mac),
        ips,
        source: "the other end of its pair",
    })
}

/// Returns the MAC addresses of all running domains, by the names of their TAPs.
fn domains(directory: &Path) -> BTreeMap<String, Mac> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| {
        let path = file.path();
        let is_state = path.extension().is_some_and(|it| it == "xml");
        fs::read_to_string(path).ok().filter(|_| is_state)
    });
    texts.flat_map(|text| cards(&text)).collect()
}

/// Returns the TAP and the MAC address of each NIC in a domain's state.
fn cards(xml: &str) -> Vec<(String, Mac)> {
    let Ok(document) = roxmltree::Document::parse(xml) else {
        return Vec::new();
    };
    let all = document.descendants();
    let cards = all.filter(|node| {
        let parent = node.parent_element();
        node.has_tag_name("interface") && parent.is_some_and(|it| it.has_tag_name("devices"))
    });
    let read = cards.filter_map(|card| {
        let of = |tag: &str, attribute: &str| {
            let mut children = card.children().filter(|child| child.has_tag_name(tag));
            children.find_map(|child| child.attribute(attribute).map(str::to_owned))
        };
        Some((of("target", "dev")?, of("mac", "address")?.parse().ok()?))
    });
    read.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mac_address_of_a_domain_is_found_by_its_tap() {
        let xml = "<domstatus state='running'><domain type='kvm'><devices>\
             <interface type='bridge'><mac address='52:54:00:aa:bb:cc'/><source bridge='br0'/>\
             <target dev='vnet3'/></interface>\
             <interface type='vhostuser'><mac address='52:54:00:aa:bb:cd'/></interface>\
             </devices></domain><x><interface><mac address='52:54:00:00:00:01'/>\
             <target dev='forged'/></interface></x></domstatus>";
        let mac = "52:54:00:aa:bb:cc".parse().unwrap();
        assert_eq!(cards(xml), [("vnet3".to_owned(), mac)]);
        assert!(cards("<domstatus>").is_empty());
    }
}
