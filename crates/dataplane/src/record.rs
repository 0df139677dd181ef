//! A packet without bytes, for simulations, tests and benchmarks.

use crate::pacer::void;
use crate::{Class, Connection, Control, FlowKey, Frame, GuestId, Mark};
use tailbound_units::{Nanos, WireBytes};

/// A packet without bytes: a frame, or a large packet that TCP passes to its NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketRecord {
    /// Number of the packet, counted by its sender.
    pub id: u64,
    /// Time at which its guest sends the packet; no mechanism reads it.
    pub came: Nanos,
    /// Slot of the guest that sends the packet.
    pub guest: u32,
    /// Bytes without FCS.
    pub len: usize,
    /// Destination address.
    pub destination: u128,
    /// Destination port, which distinguishes connections to one address.
    pub port: u16,
    /// Location of the destination.
    pub reach: Reach,
    /// Kind of a packet without data; `None` for data.
    pub control: Option<Control>,
    /// Permission to segment the packet.
    pub cut: bool,
    /// True if the sender accepts marks of congestion.
    pub takes_marks: bool,
    /// True if the packet has such a mark.
    pub marked: bool,
    /// The class that was assigned last.
    pub class: Class,
}

/// Location of a packet's destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Another guest of its host.
    Here,
    /// A VM or host on the other side of the wire.
    Beyond,
}

/// The longest frame without FCS, and the headers of each segment of a longer
/// packet: Ethernet, IPv4, TCP with timestamps.
const FULL: usize = 1514;
const HEADERS: usize = 66;

impl PacketRecord {
    /// A packet of `len` bytes from guest 0 that may be segmented.
    pub const fn new(len: usize) -> Self {
        Self {
            id: 0,
            came: Nanos::ZERO,
            guest: 0,
            len,
            destination: 0,
            port: 0,
            reach: Reach::Beyond,
            control: None,
            cut: true,
            takes_marks: false,
            marked: false,
            class: Class::Lowest,
        }
    }

    /// The same for a frame that takes `wire` bytes on the wire.
    pub const fn on_wire(wire: u64) -> Self {
        Self::new((wire - void::OVERHEAD.0) as usize)
    }

    /// Length on the wire, unsegmented.
    pub fn wire(&self) -> WireBytes {
        void::on_the_wire(self.len)
    }
}

impl Frame for PacketRecord {
    fn len(&self) -> usize {
        self.len
    }
    fn source(&self) -> Option<GuestId> {
        Some(GuestId::first(self.guest))
    }
    fn flow(&self) -> Option<FlowKey> {
        Some(FlowKey {
            source: GuestId::first(self.guest),
            destination: self.destination,
        })
    }
    /// Packets to one port of one destination are one connection.
    fn connection(&self) -> Connection {
        let Self {
            destination, port, ..
        } = *self;
        let folded = (destination >> 64) as u64 ^ destination as u64 ^ u64::from(port) << 48;
        // Fibonacci hashing (Knuth, The Art of Computer Programming, 6.4).
        Connection((folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32)
    }
    fn control(&self) -> Option<Control> {
        self.control
    }
    fn class(&self) -> Class {
        self.class
    }
    fn set_class(&mut self, class: Class, _: Mark) {
        self.class = class;
    }
    fn mark_congestion(&mut self) -> bool {
        self.marked = self.takes_marks;
        self.takes_marks
    }
    fn is_local(&self) -> bool {
        self.reach == Reach::Here
    }
    fn segments(&self) -> usize {
        if self.cut && self.len > FULL {
            (self.len - HEADERS).div_ceil(FULL - HEADERS)
        } else {
            1
        }
    }
    fn segment(self, mut sink: impl FnMut(Self)) {
        if self.segments() == 1 {
            return sink(self);
        }
        let mut left = self.len - HEADERS;
        while left > 0 {
            let payload = left.min(FULL - HEADERS);
            sink(Self {
                len: HEADERS + payload,
                ..self
            });
            left -= payload;
        }
    }
}
