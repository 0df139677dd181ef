//! The view of a packet that the mechanisms have, as a trait.

pub(crate) mod ipv4;

use ipv4::Ipv4Header;
use std::fmt;
use std::num::NonZeroU64;
use tailbound_classes::{Class, Mark};
use tailbound_units::Bytes;

/// A guest of this host: its slot, and its generation among the guests that had the slot.
///
/// Slots are dense: a table indexed by slot is at most as long as the highest number of guests that
/// existed at the same time. The generation distinguishes a guest and its packets from earlier
/// guests of its slot and theirs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestId(NonZeroU64);

impl GuestId {
    /// The first guest of a slot.
    pub const fn first(slot: u32) -> Self {
        // The generation is in the upper half.
        Self(NonZeroU64::MIN.saturating_add((1 << 32) - 1 + slot as u64))
    }

    /// Returns the guest that receives this guest's slot after it. Generations repeat after 2^32
    /// guests.
    #[must_use]
    pub const fn successor(self) -> Self {
        match NonZeroU64::new(self.0.get().wrapping_add(1 << 32)) {
            Some(id) if id.get() >> 32 != 0 => Self(id),
            _ => Self::first(self.slot() as u32),
        }
    }

    /// Index of the guest in tables of guests.
    #[inline]
    pub const fn slot(self) -> usize {
        self.0.get() as u32 as usize
    }

    /// Slot and generation as one number, for storage elsewhere.
    pub const fn get(self) -> NonZeroU64 {
        self.0
    }
}

impl From<NonZeroU64> for GuestId {
    /// Returns the guest whose [`GuestId::get`] returned this number.
    fn from(number: NonZeroU64) -> Self {
        Self(number)
    }
}

impl fmt::Display for GuestId {
    /// Slot and generation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot(), self.0.get() >> 32)
    }
}

impl fmt::Debug for GuestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GuestId({self})")
    }
}

/// All packets from one guest to one destination, of any ports (Small is Better, 4.3: the delay in
/// a switch queue does not depend on the number of connections that fill it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The guest that sends.
    pub source: GuestId,
    /// The destination's address, with IPv4 as an IPv4-mapped IPv6 address; or the result of
    /// [`FlowKey::station`] for a station.
    pub destination: u128,
}

impl FlowKey {
    /// Returns the destination of all packets to one station, for any IP address: the station's MAC
    /// address in the prefix `100::/64`, which no VM or host can have (RFC 6666). A guest's packets
    /// to an address of that prefix count for the station.
    pub const fn station(mac: [u8; 6]) -> u128 {
        let mut address = [0; 16];
        address[0] = 0x01;
        let (_, station) = address.split_at_mut(10);
        station.copy_from_slice(&mac);
        u128::from_be_bytes(address)
    }
}

/// The hash of a frame's connection under secret keys.
///
/// A connection is protocol, addresses and ports. Frames without ports (fragments, ICMP) are hashed
/// by addresses and protocol, frames without IP by MAC addresses and type. Frames from outside are
/// hashed by their sender only: its IP address or MAC address. Frames of one connection have the
/// same hash. Any two connections collide with a probability of 2^-32 over the keys, so a guest
/// that does not know the keys cannot choose connections that collide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Connection(pub u32);

/// A short packet without data whose delay delays others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// The SYN of a TCP connection, or the answer to it.
    Opening,
    /// A TCP acknowledgement without data.
    Acknowledgement,
    /// A FIN or RST of TCP without data: it must not overtake its connection's data.
    Closing,
    /// ARP, or the neighbour discovery of IPv6 (RFC 4861).
    Neighbour,
    /// An ICMP echo, or the answer to one.
    Echo,
    /// A request for a name over UDP, or the answer to one (DNS).
    Name,
}

/// A packet as the mechanisms see it.
///
/// The host implements this trait for bytes from a port ([`crate::Packet`]), a simulation for a
/// record with a length: both run the same mechanisms.
#[expect(clippy::len_without_is_empty, reason = "no frame is empty")]
pub trait Frame: Sized {
    /// Bytes from the Ethernet header to the end of the payload, without FCS, preamble and gap.
    /// Longer than the MTU for a packet that needs segmentation; always less than 500 MB.
    fn len(&self) -> usize;

    /// The guest of this host that sent the packet; `None`, the default, for a packet from outside.
    fn source(&self) -> Option<GuestId> {
        None
    }

    /// The flow of the packet; `None` if its source is not a guest of this host, or its destination
    /// is unknown because the packet is not IP. `None` by default.
    fn flow(&self) -> Option<FlowKey> {
        None
    }

    /// The connection of the packet, which divides flows of a guest. By default all frames belong
    /// to one connection.
    fn connection(&self) -> Connection {
        Connection::default()
    }

    /// Kind of a packet without data; `None` by default. The caller checks the packet's length.
    fn control(&self) -> Option<Control> {
        None
    }

    /// Memory of this host that the packet holds until it is dropped. Queues bound it, as Linux
    /// does with `sk_buff.truesize`. By default the packet's length.
    fn truesize(&self) -> Bytes {
        Bytes(self.len() as u64)
    }

    /// The class that was assigned last. By default packets have no class.
    fn class(&self) -> Class {
        Class::Lowest
    }

    /// Assigns a class, and writes the class's mark into the fields that switches read (DSCP, and
    /// PCP if the frame has a VLAN tag), over the guest's values. Ignored by default.
    fn set_class(&mut self, class: Class, mark: Mark) {
        let _ = (class, mark);
    }

    /// Returns the IPv4 header, to assign a class by flow: the same as [`Frame::flow`] and
    /// [`Frame::set_class`] with a single access. `None` unless the packet is IPv4 without a VLAN
    /// tag and its flow is by its IP address.
    #[inline]
    fn ipv4(&mut self) -> Option<Ipv4Header<'_>> {
        None
    }

    /// Marks the packet as one that met congestion (CE, RFC 3168) instead of dropping it. Returns
    /// false if its sender does not accept such marks: then the caller drops it.
    fn mark_congestion(&mut self) -> bool {
        false
    }

    /// Checks whether the sender expects marks as soon as a queue builds up, and yields in
    /// proportion to the marks (ECT(1): L4S, RFC 9331).
    fn is_scalable(&self) -> bool {
        false
    }

    /// Checks whether the packet goes to another guest of this host, and so uses nothing of the
    /// wire. False by default.
    fn is_local(&self) -> bool {
        false
    }

    /// Checks whether the packet goes to a group of stations, broadcast included: switches on its
    /// path multiply it.
    fn is_multicast(&self) -> bool {
        false
    }

    /// Inserts a priority tag with its class's mark (IEEE 802.1Q, 6.9) unless the packet has a VLAN
    /// tag, for switches that do not read DSCP. The packet and its segments become four bytes
    /// longer. A simulated frame may ignore the call if nothing on its path reads tags.
    fn add_priority_tag(&mut self, mark: Mark) {
        let _ = mark;
    }

    /// Number of packets of at most one MTU that segmentation will make of this one; at least 1,
    /// the default.
    fn segments(&self) -> usize {
        1
    }

    /// Bytes that the packet needs on a wire: the sum of all its segments, each with its own
    /// headers.
    fn wire_len(&self) -> usize {
        self.len()
    }

    /// Cuts the packet into packets of at most one MTU and passes each to `sink` in order. A packet
    /// that needs no segmentation, by default each, is passed unchanged.
    fn segment(self, mut sink: impl FnMut(Self)) {
        sink(self);
    }
}
