//! A frame with a TCP segment, or with a datagram.

use super::line::{TIERS, Tier};
use crate::net::{Time, Travels};
use crate::tcp::{Ecn, Segment};
use serde::Deserialize;
use tailbound_units::{Bytes, Nanos};

/// Bytes of a frame on a wire besides the segment's data: preamble, gap, Ethernet with FCS, IPv4,
/// TCP with time stamps.
pub(super) const OVERHEAD: u64 = 20 + 18 + 20 + 32;
/// The equivalent of [`OVERHEAD`] with UDP, in bytes.
pub(super) const UDP_OVERHEAD: u64 = 20 + 18 + 20 + 8;
/// Part of these bytes that the data path does not count: preamble, gap and FCS.
const UNCOUNTED: usize = 24;
/// Length of the shortest frame on a wire, in bytes.
const SHORTEST: u64 = 84;

/// The class that switches serve first: small flows, guaranteed traffic.
pub(super) const FIRST: u8 = 0;
/// The class of all other traffic.
pub(super) const LAST: u8 = 1;

/// Transport protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// TCP, with the setting's transport.
    #[default]
    Tcp,
    /// UDP: a message is sent immediately, in as many datagrams as it needs, without
    /// retransmission.
    Udp,
}

/// Position of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GuestSeat {
    pub(super) host: u32,
    /// Its number on the host, from 1.
    pub(super) guest: u32,
}

/// Bit of a class for a frame that must wait for its host's pacer, which clears it (HULL).
const PACED: u8 = 0x80;

/// A frame in flight.
#[derive(Debug, Clone, Copy)]
pub struct Packet {
    /// The end of a connection that receives it.
    pub(super) to: u32,
    /// The next node, as a position in the simulation's routes.
    pub(super) next: u32,
    /// Length on a wire, in bytes.
    pub(super) size: u16,
    /// Queue at a switch; 0 is served first. In a host that paces, the PCP of its mark.
    pub(super) class: u8,
    /// Number of earlier connections with the number of its connection.
    pub(super) reused: u8,
    pub(super) segment: Segment,
    /// Time at which TCP sent it, as a [`stamp`].
    pub(super) sent: u32,
    /// Waiting time at each [`Tier`], in nanoseconds; while it waits, the start of the wait.
    pub(super) waited: [u32; TIERS],
}

// Millions of them are queued in a simulation.
const _: () = assert!(size_of::<Packet>() <= 112);

/// Returns a time in nanoseconds, modulo 4.29 s: all compared intervals are shorter.
pub(super) const fn stamp(now: Time) -> u32 {
    (now.0 / 1_000) as u32
}

impl Packet {
    /// Returns a packet that an end sends.
    pub(super) fn new(
        now: Nanos,
        protocol: Protocol,
        segment: Segment,
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

    /// Marks the packet as one that waits for its host's pacer.
    pub(super) const fn pace(&mut self) {
        self.class |= PACED;
    }

    /// Clears the mark of [`Self::pace`]; returns true if it was set.
    pub(super) const fn take_paced(&mut self) -> bool {
        let is_paced = self.class & PACED != 0;
        self.class &= !PACED;
        is_paced
    }

    /// Starts a wait at a tier, in addition to its earlier waits there.
    pub(super) fn wait(&mut self, now: Time, tier: Tier) {
        let waited = &mut self.waited[tier as usize];
        *waited = stamp(now).wrapping_sub(*waited);
    }

    /// Ends a wait at a tier.
    pub(super) fn go_on(&mut self, now: Time, tier: Tier) {
        let waited = &mut self.waited[tier as usize];
        *waited = stamp(now).wrapping_sub(*waited);
    }

    /// Returns a frame of a TCP packet, with this part of its data.
    pub(super) fn part(&self, segment: Segment) -> Self {
        Self {
            size: Self::size_of(Protocol::Tcp, &segment),
            segment,
            ..*self
        }
    }

    /// Length of a segment or a datagram on a wire, in bytes.
    fn size_of(protocol: Protocol, segment: &Segment) -> u16 {
        let len = u64::from(segment.len);
        let size = match protocol {
            Protocol::Tcp => Self::length(len + u64::from(segment.sack.options())),
            Protocol::Udp => (len + UDP_OVERHEAD).max(SHORTEST),
        };
        size as u16
    }

    /// Length of a frame with TCP's data and options on a wire, in bytes.
    pub(super) fn length(data: u64) -> u64 {
        (data + OVERHEAD).max(SHORTEST)
    }

    /// Length as the data path counts it: with Ethernet's header, without FCS.
    pub(super) fn len(&self) -> usize {
        usize::from(self.size) - UNCOUNTED
    }

    pub(super) const fn bytes(&self) -> Bytes {
        Bytes(self.size as u64)
    }

    /// Marks the packet at a switch. Returns true if its sender supports marks.
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

    /// Returns a frame of 1,500 B on its wire, which may be marked; `to` identifies it.
    pub(in crate::packets) fn frame(class: u8, to: u32) -> Packet {
        let mut out = Vec::new();
        let mut connection = Connection::established(TcpConfig::RACK, Nanos::from_micros(100));
        connection.write(Nanos::ZERO, 1_410, &mut out);
        let mut segment = out[0];
        segment.ecn = Ecn::Able;
        Packet {
            size: 1_500,
            class,
            ..Packet::new(Nanos::ZERO, Protocol::Tcp, segment, to, 0)
        }
    }
}
