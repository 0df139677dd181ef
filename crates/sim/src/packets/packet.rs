//! A frame with a TCP segment.

use crate::net::Travels;
use crate::tcp::{Ecn, Segment};
use tailbound_units::Bytes;

/// What a frame takes of a wire beside the segment's data: preamble, gap, Ethernet with FCS,
/// IPv4, TCP with time stamps.
pub(super) const OVERHEAD: u64 = 20 + 18 + 20 + 32;
/// Of these, what the data path does not count.
const UNCOUNTED: usize = 24;
/// The shortest frame.
const SHORTEST: u64 = 84;

/// A frame on its way.
#[derive(Debug, Clone, Copy)]
pub struct Packet {
    /// The end of a connection that it goes to.
    pub(super) to: u32,
    /// The next node, as a place in the simulation's routes.
    pub(super) next: u32,
    /// What it takes of a wire.
    pub(super) size: u16,
    /// 0 is served first.
    pub(super) class: u8,
    pub(super) segment: Segment,
}

impl Packet {
    /// What a segment takes of a wire.
    pub(super) fn size_of(segment: &Segment) -> u16 {
        let size = u64::from(segment.len) + OVERHEAD + u64::from(segment.sack.options());
        size.max(SHORTEST) as u16
    }

    /// Its length as the data path counts it: with Ethernet's header, without FCS.
    pub(super) fn len(&self) -> usize {
        usize::from(self.size) - UNCOUNTED
    }

    pub(super) const fn bytes(&self) -> Bytes {
        Bytes(self.size as u64)
    }

    /// A switch marks it. Returns whether its sender takes marks.
    pub(super) fn mark(&mut self) -> bool {
        let is_able = self.segment.ecn != Ecn::Unable;
        if is_able {
            self.segment.ecn = Ecn::Marked;
        }
        is_able
    }
}

impl Travels for Packet {
    fn step(&mut self) -> usize {
        self.next += 1;
        self.next as usize - 1
    }
}
