//! Refuses interfaces whose frames the kernel forwards or answers, too: each would be forwarded
//! twice, and frames that the daemon drops would still arrive.

use super::Side;
use crate::config::PortConfig;
use std::fmt;
use std::net::IpAddr;
use tailbound_sys::network::{Forwarding, forwarding};

/// Reason why the kernel forwards an interface's frames.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Forwarder {
    /// The bridge, bond or switch of which it is a port.
    Master(String),
    /// The host has this address on it.
    Address(IpAddr),
    /// The number of an XDP program.
    Xdp(u32),
    /// A classifier or program that may redirect frames.
    Redirect(String),
}

/// The kernel forwards or answers an interface's frames.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ForwardedBy {
    interface: String,
    forwarder: Forwarder,
    side: Side,
}

impl fmt::Display for ForwardedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            interface, side, ..
        } = self;
        let (fact, removal) = match &self.forwarder {
            Forwarder::Master(master) => (
                format!("is a port of {master}"),
                format!("ip link set {interface} nomaster"),
            ),
            Forwarder::Address(ip) => (
                format!("has the host's address {ip}"),
                format!("ip address flush dev {interface}"),
            ),
            Forwarder::Xdp(program) => (
                format!("has an XDP program (number {program})"),
                format!("ip link set dev {interface} xdp off"),
            ),
            Forwarder::Redirect(kind) => (
                format!("has a {kind} at its ingress"),
                format!("tc filter show dev {interface} ingress"),
            ),
        };
        write!(
            f,
            "{interface:?} {fact}, which forwards its frames, too, so that each would arrive twice; "
        )?;
        match side {
            Side::Guest(_) => write!(
                f,
                "protect the guest in its network by `tailbound adopt`, or leave the interface to the \
                 daemon alone (`{removal}`)"
            ),
            Side::Uplink => write!(f, "leave the interface to the daemon alone (`{removal}`)"),
        }
    }
}

/// Checks that the daemon alone forwards the frames of a port. An uplink may have an address: the
/// host's stack takes no frames of guests. So may a TAP: its address is that of the guest, which is
/// the stack behind it.
pub(super) fn check(config: &PortConfig, side: Side) -> Result<(), ForwardedBy> {
    let (PortConfig::Tap { interface, netns }
    | PortConfig::AfPacket {
        interface, netns, ..
    }
    | PortConfig::AfXdp {
        interface, netns, ..
    }) = config
    else {
        return Ok(());
    };
    // An interface that cannot be examined or is missing has an error of its own.
    let Ok(Some(state)) = forwarding(interface, netns.as_deref()) else {
        return Ok(());
    };
    let Forwarding {
        master,
        address,
        xdp,
        redirect,
    } = state;
    let is_guests_own = matches!(config, PortConfig::Tap { .. });
    // AF_XDP has an error of its own for another program, and its own ends with its process.
    let is_xdp_its_own = matches!(config, PortConfig::AfXdp { .. });
    let forwarder = master
        .map(Forwarder::Master)
        .or_else(|| {
            let address = address.filter(|_| side != Side::Uplink && !is_guests_own);
            address.map(Forwarder::Address)
        })
        .or_else(|| xdp.filter(|_| !is_xdp_its_own).map(Forwarder::Xdp))
        .or_else(|| redirect.map(Forwarder::Redirect));
    match forwarder {
        None => Ok(()),
        Some(forwarder) => Err(ForwardedBy {
            interface: interface.clone(),
            forwarder,
            side,
        }),
    }
}
