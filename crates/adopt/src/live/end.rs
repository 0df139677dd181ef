//! The host's end of an interface that another program made for a guest.

use super::super::mac::Mac;
use super::super::world::{Guest, SeenStation};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use tailbound_sys::netns;
use tailbound_sys::network::{self, Device};
use tailbound_sys::veth::{self, Peer};

/// Reason why an interface has no end on this host that can be adopted.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// The network namespace cannot be entered.
    #[error("the network namespace {} cannot be entered: {source}", path.display())]
    Namespace {
        /// Its file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The namespace has no such interface.
    #[error("{} has no interface {interface}", path.display())]
    NoInterface {
        /// The namespace's file.
        path: PathBuf,
        /// The name that was looked for.
        interface: String,
    },
    /// The interface has no end on the host.
    #[error(
        "{interface} of the guest is a {kind}, whose frames pass no interface of the host's own; use \
         a veth or a netkit"
    )]
    Kind {
        /// Its name.
        interface: String,
        /// Its kind.
        kind: String,
    },
    /// The other end is somewhere else.
    #[error("the other end of {0} of the guest is not in this network namespace")]
    Elsewhere(String),
    /// The host's interfaces cannot be read.
    #[error("the host's interfaces cannot be read: {0}")]
    Host(#[from] io::Error),
}

/// The host's end of a guest's interface, and the station behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The index of the interface on the host.
    pub index: u32,
    /// The station behind it.
    pub station: SeenStation,
}

impl End {
    /// Returns the guest of this key and name whose only interface this is.
    pub fn guest(self, key: String, name: String, kind: &str) -> Guest {
        Guest {
            key,
            name,
            kind: kind.to_owned(),
            labels: BTreeMap::new(),
            is_plain: false,
            devices: vec![(self.index, Some(self.station))],
        }
    }
}

/// Returns the end here of `interface` in the network namespace of the file `path`: a veth or a
/// netkit. `ips` are the guest's addresses; without any those of the interface are taken.
///
/// # Errors
/// [`EndError`]
pub fn of_container(path: &Path, interface: &str, ips: &[IpAddr]) -> Result<End, EndError> {
    let failed = |source| EndError::Namespace {
        path: path.to_owned(),
        source,
    };
    let inside = netns::within(path, || {
        let devices = network::devices()?;
        let own = devices.into_iter().find(|it| it.name == interface);
        let own = own.map(|own| network::station(interface).map(|(_, ips)| (own, ips)));
        own.transpose()
    });
    let inside = inside.and_then(|inside| inside).map_err(failed)?;
    let (inside, own_ips) = inside.ok_or_else(|| EndError::NoInterface {
        path: path.to_owned(),
        interface: interface.to_owned(),
    })?;
    let kind = inside.kind.as_deref();
    if !matches!(kind, Some("veth" | "netkit")) {
        return Err(EndError::Kind {
            interface: interface.to_owned(),
            kind: kind.unwrap_or("physical device").to_owned(),
        });
    }
    let elsewhere = || EndError::Elsewhere(interface.to_owned());
    let devices = network::devices()?;
    let here = devices.iter().find(|here| are_ends(here, &inside));
    let here = here.ok_or_else(elsewhere)?;
    // A third namespace may have an interface of the same number.
    let peer = veth::at_peer(&here.name, None, network::station)?;
    if !matches!(peer, Peer::There((mac, _)) if Some(mac) == inside.mac) {
        return Err(elsewhere());
    }
    let mut known = ips.to_vec();
    if known.is_empty() {
        known = own_ips;
        // Each guest may choose such addresses.
        known.retain(|ip| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()));
    }
    Ok(End {
        index: here.index,
        station: SeenStation {
            mac: Mac(inside.mac.unwrap_or_default()),
            ips: known,
            source: "the container's interface",
        },
    })
}

/// Returns true if two devices of different namespaces are the ends of one pair.
fn are_ends(here: &Device, inside: &Device) -> bool {
    let is_pair = here.kind == inside.kind && here.is_other_elsewhere && inside.is_other_elsewhere;
    is_pair && here.other == Some(inside.index) && inside.other == Some(here.index)
}

/// Returns the interface of this name with the station of a VM behind it.
///
/// # Errors
/// [`EndError::NoInterface`], [`EndError::Host`].
pub fn of_machine(interface: &str, mac: Mac, ips: Vec<IpAddr>) -> Result<End, EndError> {
    let devices = network::devices()?;
    let here = devices.iter().find(|device| device.name == interface);
    let here = here.ok_or_else(|| EndError::NoInterface {
        path: PathBuf::from("this host"),
        interface: interface.to_owned(),
    })?;
    Ok(End {
        index: here.index,
        station: SeenStation {
            mac,
            ips,
            source: "the definition of the domain",
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(index: u32, kind: &str, other: u32, is_other_elsewhere: bool) -> Device {
        Device {
            index,
            name: "eth0".into(),
            kind: Some(kind.into()),
            master: None,
            other: Some(other),
            is_other_elsewhere,
            mac: None,
            is_up: true,
            is_loopback: false,
            xdp: None,
            queues: 1,
            queue_length: 0,
        }
    }

    #[test]
    fn the_ends_of_a_pair_name_each_other() {
        let inside = device(2, "veth", 7, true);
        assert!(are_ends(&device(7, "veth", 2, true), &inside));
        for other in [
            device(8, "veth", 2, true),
            device(7, "veth", 3, true),
            device(7, "netkit", 2, true),
            device(7, "veth", 2, false),
        ] {
            assert!(!are_ends(&other, &inside), "{other:?}");
        }
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let path = Path::new("/proc/self/ns/none");
        let text = of_container(path, "eth0", &[]).unwrap_err().to_string();
        assert!(text.contains("/proc/self/ns/none"), "{text}");
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let error = of_machine("tailbound-no", mac, Vec::new()).unwrap_err();
        assert!(matches!(error, EndError::NoInterface { .. }), "{error}");
    }
}
