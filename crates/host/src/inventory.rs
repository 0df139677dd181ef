//! What is known of a configuration's ports beside their counters, for whoever shows them.
//! It is made where the configuration is read.

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
    /// By name.
    guests: HashMap<String, Item>,
}

/// A guest.
#[derive(Debug)]
pub(crate) struct Item {
    port: PortConfig,
    /// It came by the control socket.
    pub(crate) is_added: bool,
    /// Its machine's name at the placement service.
    pub(crate) vm: Option<String>,
    /// Its address.
    pub(crate) mac: [u8; 6],
    /// Its IP addresses that are whole ones.
    pub(crate) ips: Vec<IpAddr>,
}

impl Item {
    /// Its first IPv4 address.
    pub(crate) fn ipv4(&self) -> Option<Ipv4Addr> {
        self.ips.iter().find_map(|ip| match ip {
            IpAddr::V4(ip) => Some(*ip),
            IpAddr::V6(_) => None,
        })
    }
}

impl Inventory {
    /// Of a configuration that was read from `files`.
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

    /// The configuration's file.
    pub(crate) fn config(&self) -> &Path {
        &self.config
    }

    /// The file of guests that came by the control socket.
    pub(crate) fn added(&self) -> &Path {
        &self.added
    }

    /// A guest.
    pub(crate) fn guest(&self, name: &str) -> Option<&Item> {
        self.guests.get(name)
    }

    /// The port of a guest, or the uplink's.
    pub(crate) fn port(&self, name: &str) -> Option<&PortConfig> {
        match self.guests.get(name) {
            Some(guest) => Some(&guest.port),
            None => self.uplink.as_ref().filter(|_| name == UPLINK),
        }
    }

    /// How many frames the interface of a port has dropped that were sent to it, since it was
    /// made: what a packet socket is not told. `None` where the port is no packet socket, or
    /// the interface does not say.
    ///
    /// The kernel may have its lock on all interfaces for a while: not for the packet loop.
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
