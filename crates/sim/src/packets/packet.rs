//! A frame with a TCP segment, or with a datagram.

use super::line::{TIERS, Tier};
use crate::net::{Time, Travels};
use crate::tcp::{Ecn, Segment};
use serde::Deserialize;
use tailbound_units::{Bytes, Nanos};

/// What a frame takes of a wire beside the segment's data: preamble, gap, Ethernet with FCS,
/// IPv4, TCP with time stamps.
pub(super) const OVERHEAD: u64 = 20 + 18 + 20 + 32;
/// The same with UDP.
pub(super) const UDP_OVERHEAD: u64 = 20 + 18 + 20 + 8;
/// Of these, what the data path does not count.
const UNCOUNTED: usize = 24;
/// The shortest frame.
const SHORTEST: u64 = 84;

/// The class that switches serve first: small flows, guaranteed traffic,
pub(super) const FIRST: u8 = 0;
/// and that of all else.
pub(super) const LAST: u8 = 1;

/// What is above IP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// TCP, as the setting's transport has it.
    #[default]
    Tcp,
    /// UDP: a message goes at once, in as many datagrams as it needs, and what is lost stays lost.
    Udp,
}

/// This bit of a class has a frame wait for its host's pacer, which takes it away (HULL).
const PACED: u8 = 0x80;

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
    /// Of the connections that had this number, which it is for.
    pub(super) reused: u8,
    pub(super) segment: Segment,
    /// When TCP sent it, as [`stamp`] counts,
    pub(super) sent: u32,
    /// and how long it waited at each [`Tier`], in nanoseconds; while it waits, since when.
    pub(super) waited: [u32; TIERS],
}

// Millions of them wait at a time.
const _: () = assert!(size_of::<Packet>() <= 112);

/// A moment in nanoseconds, modulo 4.29 s: what is told apart is shorter.
pub(super) const fn stamp(now: Time) -> u32 {
    (now.0 / 1_000) as u32
}

impl Packet {
    /// One that an end sends.
    pub(super) fn new(
        now: Nanos,
        (protocol, segment): (Protocol, Segment),
        to: u32,
        next: u32,
    ) -> Self {
        Self {
            to,
            next,
            size: Self::size_of(protocol, &segment),
            class: FIRST,
            reused: 0,
            segment,
            sent: now.0 as u32,
            waited: [0; TIERS],
        }
    }

    /// Has it wait for its host's pacer.
    pub(super) const fn pace(&mut self) {
        self.class |= PACED;
    }

    /// The host's pacer takes it: returns whether it is to wait for that.
    pub(super) const fn take_paced(&mut self) -> bool {
        let is_paced = self.class & PACED != 0;
        self.class &= !PACED;
        is_paced
    }

    /// It begins to wait, beside what it has waited there before.
    pub(super) fn wait(&mut self, now: Time, tier: Tier) {
        let waited = &mut self.waited[tier as usize];
        *waited = stamp(now).wrapping_sub(*waited);
    }

    /// It has waited.
    pub(super) fn go_on(&mut self, now: Time, tier: Tier) {
        let waited = &mut self.waited[tier as usize];
        *waited = stamp(now).wrapping_sub(*waited);
    }

    /// A frame of a TCP packet, with this of its data.
    pub(super) fn part(&self, segment: Segment) -> Self {
        Self {
            size: Self::size_of(Protocol::Tcp, &segment),
            segment,
            ..*self
        }
    }

    /// What a segment or a datagram takes of a wire.
    fn size_of(protocol: Protocol, segment: &Segment) -> u16 {
        let len = u64::from(segment.len);
        let size = match protocol {
            Protocol::Tcp => Self::length(len + u64::from(segment.sack.options())),
            Protocol::Udp => (len + UDP_OVERHEAD).max(SHORTEST),
        };
        size as u16
    }

    /// What TCP's data and options take.
    pub(super) fn length(data: u64) -> u64 {
        (data + OVERHEAD).max(SHORTEST)
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::tcp::{Connection, TcpConfig};

    /// A frame of 1,500 B on its wire, which may be marked; `to` tells it from others.
    pub(in crate::packets) fn frame(class: u8, to: u32) -> Packet {
        let mut out = Vec::new();
        let mut connection = Connection::established(TcpConfig::RACK, Nanos::from_micros(100));
        connection.write(Nanos::ZERO, 1_410, &mut out);
        let mut segment = out[0];
        segment.ecn = Ecn::Able;
        Packet {
            size: 1_500,
            class,
            ..Packet::new(Nanos::ZERO, (Protocol::Tcp, segment), to, 0)
        }
    }
}
