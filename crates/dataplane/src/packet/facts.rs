//! Facts of a packet in addition to its bytes.

use super::Offload;
use super::wire::{ETHERNET, Headers, Network};
use crate::{Connection, GuestId};
use tailbound_classes::Class;

/// The destination that limits of flows distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    /// The IP address of the destination.
    Ip,
    /// The IP address of an IPv4 packet without a VLAN tag: most packets, detected by one
    /// comparison.
    PlainIpv4,
    /// The Ethernet destination.
    Station,
    /// The IP address of another guest of this host.
    IpHere,
    /// The Ethernet address of another guest of this host.
    StationHere,
    /// The IP address of a group of stations, which limits do not apply to.
    Group,
}

impl Destination {
    /// Returns the destination of a frame with these headers, to a group or not.
    pub(super) fn of(headers: Headers, is_group: bool) -> Self {
        if is_group {
            Self::Group
        } else if headers.network_kind == Network::Ipv4 && usize::from(headers.network) == ETHERNET
        {
            Self::PlainIpv4
        } else {
            Self::Ip
        }
    }

    pub(super) const fn is_here(self) -> bool {
        matches!(self, Self::IpHere | Self::StationHere)
    }
}

/// Results of [`super::Packet::new`], and the remaining work. They are stored beside the buffer's
/// bytes, so that a packet is one word in every queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    pub(super) source: Option<GuestId>,
    pub(super) len: u32,
    /// Offsets in the buffer of the frame, and of the header behind Ethernet.
    pub(super) start: u16,
    pub(super) network_start: u16,
    pub(super) headers: Headers,
    pub(super) class: Class,
    pub(super) destination: Destination,
    /// Destination of the flow ([`crate::FlowKey`]), if `has_flow`.
    pub(super) has_flow: bool,
    /// See [`super::Packet::as_plain`].
    pub(super) is_plain: bool,
    pub(super) flow: u128,
    pub(super) offload: Offload,
    pub(super) connection: Connection,
}

const _: () = assert!(size_of::<Facts>() == 64, "a cache line");

impl Facts {
    /// Facts of a buffer without a packet.
    pub(super) const NONE: Self = Self {
        source: None,
        len: 0,
        start: 0,
        network_start: 0,
        headers: Headers {
            protocol: 0,
            network_kind: Network::Other,
            network: 0,
            vouched: false,
            transport: 0,
        },
        class: Class::Lowest,
        destination: Destination::Ip,
        has_flow: false,
        is_plain: false,
        flow: 0,
        offload: Offload::NONE,
        connection: Connection(0),
    };
}
