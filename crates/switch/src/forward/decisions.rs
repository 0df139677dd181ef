//! Decisions that a table keeps for each port, found by the addresses of a frame.
//!
//! A decision is valid for one [`Generation`]. Strangers may choose addresses that displace one another's
//! decisions. Then a frame costs the look-ups.

use super::{Forwarding, Generation, PortIndex, Way};

/// Decisions of a guest's port, as a power of two: a guest has few addresses and neighbours.
const OF_GUEST: u32 = 4;

/// Decisions of the uplink's port: guests and routers.
const OF_UPLINK: u32 = 8;

/// The addresses that a decision depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) destination: u64,
    pub(crate) source: u64,
    /// The IP source; 0 without a filter.
    pub(crate) ip: u128,
}

impl Addresses {
    /// Returns a place among `1 << bits` decisions.
    #[inline]
    fn place(self, bits: u32) -> usize {
        /// The golden ratio: multiplicative hashing (Knuth, 6.4).
        const RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
        let Self {
            destination,
            source,
            ip,
        } = self;
        let mixed = destination ^ source.rotate_left(16) ^ ip as u64 ^ (ip >> 64) as u64;
        (mixed.wrapping_mul(RATIO) >> (u64::BITS - bits)) as usize
    }
}

/// A decision: frames of these addresses pass, and take this way.
#[derive(Debug, Clone, Copy)]
struct Decision {
    addresses: Addresses,
    generation: Generation,
    way: Way,
}

/// The decisions of a port.
#[derive(Debug, Default)]
struct PortDecisions {
    /// A power of two, or none before the first decision.
    decisions: Box<[Option<Decision>]>,
    bits: u32,
}

impl PortDecisions {
    #[inline]
    fn get(&self, addresses: Addresses, generation: Generation) -> Option<Way> {
        let decision = self.decisions.get(addresses.place(self.bits.max(1)))?;
        let decision = decision.as_ref()?;
        let is_known = decision.generation == generation && decision.addresses == addresses;
        is_known.then_some(decision.way)
    }

    fn keep(&mut self, decision: Decision, bits: u32) {
        if self.decisions.is_empty() {
            self.decisions = vec![None; 1 << bits].into();
            self.bits = bits;
        }
        let place = decision.addresses.place(self.bits);
        self.decisions[place] = Some(decision);
    }
}

/// The decisions of all ports, by [`PortIndex`].
#[derive(Debug, Default)]
pub(super) struct Decisions(Vec<PortDecisions>);

impl Forwarding {
    /// Returns the way that was kept for frames of these addresses in this generation.
    #[inline]
    pub(crate) fn kept(&self, from: PortIndex, addresses: Addresses) -> Option<Way> {
        let port = self.decisions.0.get(from.0)?;
        port.get(addresses, self.generation)
    }

    /// Keeps the way of frames of these addresses, for this generation.
    pub(crate) fn keep(&mut self, from: PortIndex, addresses: Addresses, way: Way) {
        let ports = &mut self.decisions.0;
        if ports.len() <= from.0 {
            ports.resize_with(from.0 + 1, PortDecisions::default);
        }
        let bits = if self.uplink == Some(from) {
            OF_UPLINK
        } else {
            OF_GUEST
        };
        let decision = Decision {
            addresses,
            generation: self.generation,
            way,
        };
        ports[from.0].keep(decision, bits);
    }
}
