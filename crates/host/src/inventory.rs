//! Facts about a configuration's ports beside their counters, for metrics and the control socket.
//! The inventory is made when the configuration is read.

use crate::config::{Config, Files, PortConfig};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use tailbound_switch::UPLINK;

/// The ports of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    config: PathBuf,
    added: PathBuf,
    uplink: Option<PortConfig>,
    /// The guests by name.
    guests: HashMap<String, Item>,
}

/// A guest.
#[derive(Debug)]
pub(crate) struct Item {
    port: PortConfig,
    /// True if the guest was added over the control socket.
    pub(crate) is_added: bool,
    /// The guest's VM in the placement service.
    pub(crate) vm: Option<String>,
    /// The guest's MAC address.
    pub(crate) mac: [u8; 6],
    /// The guest's IP addresses, without prefixes.
    pub(crate) ips: Vec<IpAddr>,
}

impl Item {
    /// Returns the guest's first IPv4 address.
    pub(crate) fn ipv4(&self) -> Option<Ipv4Addr> {
        self.ips.iter().find_map(|ip| match ip {
            IpAddr::V4(ip) => Some(*ip),
            IpAddr::V6(_) => None,
        })
    }
}

impl Inventory {
    /// Makes the inventory of a configuration that was read from `files`.
    pub(crate) fn new(files: &Files, config: &Config) -> Self {
        let added = files.added();
        let names: HashSet<_> = added.names().collect();
        let guests = config.guests.iter().map(|guest| {
            let item = Item {
                port: guest.port.clone(),
                is_added: names.contains(guest.name.as_str()),
                vm: guest.vm.as_ref().map(ToString::to_string),
                mac: guest.mac.0,
                ips: guest.ip.iter().filter_map(|ip| ip.single()).collect(),
            };
            (guest.name.clone(), item)
        });
        Self {
            config: files.path().to_owned(),
            added: added.path().to_owned(),
            uplink: config.uplink.as_ref().map(|uplink| uplink.port.clone()),
            guests: guests.collect(),
        }
    }

    /// Returns the path of the configuration's file.
    pub(crate) fn config(&self) -> &Path {
        &self.config
    }

    /// Returns the path of the file of added guests.
    pub(crate) fn added(&self) -> &Path {
        &self.added
    }

    /// Returns a guest.
    pub(crate) fn guest(&self, name: &str) -> Option<&Item> {
        self.guests.get(name)
    }

    /// Returns the port of a guest or of the uplink.
    pub(crate) fn port(&self, name: &str) -> Option<&PortConfig> {
        match self.guests.get(name) {
            Some(guest) => Some(&guest.port),
            None => self.uplink.as_ref().filter(|_| name == UPLINK),
        }
    }

    /// Returns the number of frames to the port that its interface has dropped since its creation.
    /// A packet socket does not receive that number. `None` if the port is no packet socket, or the
    /// number is unknown.
    ///
    /// The kernel's lock on all interfaces may block the call for milliseconds: do not call it in
    /// the packet loop.
    pub(crate) fn dropped_by_interface(&self, name: &str) -> Option<u64> {
        let PortConfig::AfPacket {
            interface, netns, ..
        } = self.port(name)?
        else {
            return None;
        };
        tailbound_sys::link::transmit_drops(interface, netns.as_deref()).ok()
    }
}
