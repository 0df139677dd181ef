//! What is known of a packet beside its bytes.

use super::Offload;
use super::wire::{ETHERNET, Headers, Network};
use crate::{Connection, GuestId};
use tailbound_classes::Class;

/// What says where a packet goes, for whoever limits flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    /// The IP address that it is sent to.
    Ip,
    /// The same of an IPv4 packet without a VLAN tag: what most are, found by one look.
    PlainIpv4,
    /// The station that it is delivered to, by Ethernet.
    Station,
    /// The IP address, and it goes to another guest of this host.
    IpHere,
    /// The station, which is another guest of this host.
    StationHere,
    /// A group of stations, which no limit is for: its IP address.
    Group,
}

impl Destination {
    /// That of a frame with these headers, to a group or not.
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

/// What [`super::Packet::new`] found, and what is still to be done. It lies beside the
/// buffer's bytes, so that a packet is one word wherever it waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    pub(super) source: Option<GuestId>,
    pub(super) len: u32,
    /// Where the frame starts in the buffer, and the header behind Ethernet.
    pub(super) start: u16,
    pub(super) network_start: u16,
    pub(super) headers: Headers,
    pub(super) class: Class,
    pub(super) destination: Destination,
    /// The destination of its flow ([`crate::FlowKey`]), where it has one.
    pub(super) has_flow: bool,
    pub(super) flow: u128,
    pub(super) offload: Offload,
    pub(super) connection: Connection,
}

const _: () = assert!(size_of::<Facts>() == 64, "a cache line");

impl Facts {
    /// Those of a buffer in which there is no packet yet.
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
        flow: 0,
        offload: Offload::NONE,
        connection: Connection(0),
    };
}
