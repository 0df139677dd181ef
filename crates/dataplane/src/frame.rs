//! What a mechanism may know of a packet, and nothing more.

pub(crate) mod ipv4;

use ipv4::Ipv4Header;
use std::fmt;
use std::num::NonZeroU64;
use tailbound_classes::{Class, Mark};
use tailbound_units::Bytes;

/// A guest of this host: its slot, and which of the guests that had the slot it is.
///
/// Slots are dense: whoever knows guests by number can keep a table of them that is no
/// longer than the most guests there were at once. The generation tells a guest from
/// those that had its slot before, and their packets from its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestId(NonZeroU64);

impl GuestId {
    /// The first guest of a slot.
    pub const fn first(slot: u32) -> Self {
        // The generation is in the upper half.
        Self(NonZeroU64::MIN.saturating_add((1 << 32) - 1 + slot as u64))
    }

    /// The guest that gets this one's slot after it. After 2^32 of them generations
    /// begin again.
    #[must_use]
    pub const fn successor(self) -> Self {
        match NonZeroU64::new(self.0.get().wrapping_add(1 << 32)) {
            Some(id) if id.get() >> 32 != 0 => Self(id),
            _ => Self::first(self.slot() as u32),
        }
    }

    /// Its place in tables of guests.
    #[inline]
    pub const fn slot(self) -> usize {
        self.0.get() as u32 as usize
    }

    /// Slot and generation as one number, for whoever keeps it elsewhere.
    pub const fn get(self) -> NonZeroU64 {
        self.0
    }
}

impl From<NonZeroU64> for GuestId {
    /// The guest of a number that [`GuestId::get`] returned.
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

/// All packets from one guest to one destination, whatever their ports (Small is
/// Better, 4.3: a switch queue does not care how many connections fill it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The guest that sends.
    pub source: GuestId,
    /// The destination's address, IPv4 as an IPv4-mapped IPv6 address; or what
    /// [`FlowKey::station`] makes of a station.
    pub destination: u128,
}

impl FlowKey {
    /// The destination of all that goes to one station, whatever IP address it names:
    /// the station's MAC address in the prefix `100::/64`, where no machine can be (RFC
    /// 6666). A guest that names an address of that prefix is taken to mean the station.
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
/// A connection is protocol, addresses and ports; addresses and protocol where no ports
/// are to be found (fragments, ICMP); MAC addresses and type where it is not IP. Of what
/// comes from outside it is the sender alone: its address, or MAC address. Frames
/// of one connection have the same hash. Two connections have the same one with a
/// chance of 2^-32 over the keys, whatever they are: who does not know the keys cannot
/// choose connections that meet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Connection(pub u32);

/// A packet that carries no data, and for which something waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// The SYN of a TCP connection, or the answer to it.
    Opening,
    /// A TCP acknowledgement without data.
    Acknowledgement,
    /// A FIN or RST of TCP without data: it must not overtake that of its connection.
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
/// The host implements it for bytes from a port ([`crate::Packet`]), a
/// simulation for a record with a length: both run the same mechanisms.
#[expect(clippy::len_without_is_empty, reason = "no frame is empty")]
pub trait Frame: Sized {
    /// Bytes from the Ethernet header to the end of the payload, without FCS,
    /// preamble and gap. More than the MTU for a packet that is yet to be
    /// segmented; always less than 500 MB.
    fn len(&self) -> usize;

    /// The guest of this host that sent it; `None` for what came from outside.
    fn source(&self) -> Option<GuestId>;

    /// The flow it belongs to; `None` where it has no source here, or no destination is
    /// known, as it is not IP.
    fn flow(&self) -> Option<FlowKey>;

    /// The connection it belongs to, for flows within a guest. By default all frames
    /// belong to one.
    fn connection(&self) -> Connection {
        Connection::default()
    }

    /// What it is where it carries no data; `None` by default. Whoever asks judges by its
    /// length: a short one costs little.
    fn control(&self) -> Option<Control> {
        None
    }

    /// The memory of this host that it holds until it is gone: what queues bound, as
    /// Linux does with `sk_buff.truesize`. By default its length.
    fn truesize(&self) -> Bytes {
        Bytes(self.len() as u64)
    }

    /// The class it was given last.
    fn class(&self) -> Class;

    /// Gives it a class and writes the class's mark where switches read it (DSCP, and
    /// PCP where the frame has a VLAN tag), over whatever the guest wrote there.
    fn set_class(&mut self, class: Class, mark: Mark);

    /// Its IPv4 header, for whoever gives it a class by its flow: the same as
    /// [`Frame::flow`] and [`Frame::set_class`] with one look. `None` where it is anything
    /// but IPv4 without a VLAN tag, whose flow is by its address.
    #[inline]
    fn ipv4(&mut self) -> Option<Ipv4Header<'_>> {
        None
    }

    /// Marks it as one that met congestion (CE, RFC 3168), in place of dropping
    /// it. False where its sender does not take such marks: then it is dropped.
    fn mark_congestion(&mut self) -> bool {
        false
    }

    /// Whether its sender expects to be marked as soon as a queue builds up, and yields
    /// in proportion to the marks (ECT(1): L4S, RFC 9331).
    fn is_scalable(&self) -> bool {
        false
    }

    /// Whether it goes to another guest of this host, and so takes nothing of the wire.
    /// By default it does not.
    fn is_local(&self) -> bool {
        false
    }

    /// Whether it goes to a group of stations, broadcast included: switches on its way
    /// multiply it.
    fn is_multicast(&self) -> bool {
        false
    }

    /// Puts a priority tag with its class's mark (IEEE 802.1Q, 6.9) into it, where it
    /// has no VLAN tag yet: for switches that look at no DSCP. It is longer then, by four
    /// bytes, and so are its segments. A simulated frame may leave it out where nothing
    /// on its way reads tags.
    fn add_priority_tag(&mut self, mark: Mark) {
        let _ = mark;
    }

    /// How many packets of at most one MTU it will be; 1 where it is one
    /// already.
    fn segments(&self) -> usize;

    /// Bytes that a wire carries for it: those of all its segments, each with
    /// headers of its own.
    fn wire_len(&self) -> usize {
        self.len()
    }

    /// Cuts it into packets of at most one MTU and hands each to `sink` in
    /// order. What needs no cutting is handed over as it is.
    fn segment(self, sink: impl FnMut(Self));
}
