//! The Linux bridge of an interface, and whether frames may pass it directly.

use super::{EdgeError, name_of};
use crate::rtnetlink::{Netlink, find, number, text};

/// Returns the bridge of a port whose frames may pass it directly.
pub(super) fn passable(ifindex: u32) -> Result<u32, EdgeError> {
    let name = name_of(ifindex)?;
    let refused = |why: &str| EdgeError::Rule(format!("{name} cannot pass its bridge: {why}"));
    let bridge = Bridge::of(ifindex).ok_or_else(|| refused("it is the port of no Linux bridge"))?;
    if bridge.filters_vlans {
        return Err(refused("the bridge filters VLANs"));
    }
    let is_called = |table: &str| {
        let setting = format!("/proc/sys/net/bridge/bridge-nf-call-{table}");
        std::fs::read_to_string(setting).is_ok_and(|text| text.trim() != "0")
    };
    let is_shown = ["iptables", "ip6tables", "arptables"]
        .into_iter()
        .any(is_called);
    if is_shown || bridge.calls_tables {
        return Err(refused(
            "br_netfilter shows the bridge's frames to iptables",
        ));
    }
    Ok(bridge.index)
}

/// A Linux bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bridge {
    pub(super) index: u32,
    filters_vlans: bool,
    /// True if the bridge shows frames to iptables by a setting of its own.
    calls_tables: bool,
}

impl Bridge {
    /// The bridge of which an interface is a port.
    pub(super) fn of(ifindex: u32) -> Option<Self> {
        /// `IFLA_MASTER`, `IFLA_LINKINFO` and what is in it.
        const MASTER: u16 = 10;
        const INFO: u16 = 18;
        const KIND: u16 = 1;
        const DATA: u16 = 2;
        /// `IFLA_BR_VLAN_FILTERING`, and `IFLA_BR_NF_CALL_IPTABLES` and the next two.
        const VLAN_FILTERING: u16 = 7;
        const CALLS: [u16; 3] = [36, 37, 38];
        let netlink = Netlink::open().ok()?;
        let port = netlink.link(ifindex).ok()?;
        let index = number(find(&port, MASTER)?, 0)?;
        let master = netlink.link(index).ok()?;
        let info = find(&master, INFO)?;
        if text(find(info, KIND)?) != "bridge" {
            return None;
        }
        let data = find(info, DATA)?;
        // A kernel that lacks a setting never does it.
        let is_on = |setting| find(data, setting).is_some_and(|value| value != [0]);
        Some(Self {
            index,
            filters_vlans: is_on(VLAN_FILTERING),
            calls_tables: CALLS.into_iter().any(is_on),
        })
    }
}
