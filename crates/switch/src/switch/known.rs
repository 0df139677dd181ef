//! Frames like those before them: what was decided for a frame is known for the next one with the
//! same addresses.
//!
//! A port keeps a few decisions, found by a frame's stations and, behind a filter, by its source
//! address: the frame passes, and its way through the forwarding table. A decision holds while the
//! table is of the same [`Generation`]; a reload, which may change filters, begins another. Frames
//! that claim anything are decided one by one, as are those from addresses that a guest chose: the
//! address book notes their use.
//!
//! Strangers may choose addresses that displace one another's decisions. Then a frame costs the
//! look-ups, as all did before.

use super::Switch;
use crate::filter::SpoofFilter;
use crate::forward::{Generation, PortIndex, Way};
use crate::mac::Mac;
use tailbound_dataplane::Packet;
use tailbound_units::Nanos;

/// Decisions of a guest's port, as a power of two: a guest has few addresses and neighbours.
const OF_GUEST: u32 = 4;

/// Decisions of the uplink's port: guests and routers.
const OF_UPLINK: u32 = 8;

/// The addresses that a decision depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Addresses {
    destination: u64,
    source: u64,
    /// The IP source; 0 without a filter.
    ip: u128,
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
pub(super) struct Decisions {
    /// A power of two, or none before the first decision.
    decisions: Box<[Option<Decision>]>,
    bits: u32,
}

impl Decisions {
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

impl Switch {
    /// Returns the addresses that a decision for a frame from a port depends on; `None` for frames
    /// that are decided one by one.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for every frame")]
    fn decided_by(&self, from: PortIndex, packet: &Packet) -> Option<Addresses> {
        if !packet.is_plain() {
            return None;
        }
        let guest = from.0.checked_sub(self.first_guest());
        let is_filtered = guest.is_some_and(|guest| self.guests[guest].filter.is_some());
        let (destination, source) = packet.stations();
        Some(Addresses {
            destination,
            source,
            ip: if is_filtered {
                packet.ip_source_number()
            } else {
                0
            },
        })
    }

    /// Returns the way of a frame, if it is known that the frame passes, and notes its sender as
    /// [`Switch::admit`] does.
    #[inline]
    pub(super) fn known_way(
        &mut self,
        now: Nanos,
        from: PortIndex,
        packet: &Packet,
    ) -> Option<Way> {
        let addresses = self.decided_by(from, packet)?;
        let generation = self.forwarding.generation();
        let way = self.states[from.0].decisions.get(addresses, generation)?;
        debug_assert_eq!(Some(way), self.decide(from, packet), "for {addresses:?}");
        self.forwarding.learn_again(now, way);
        Some(way)
    }

    /// Keeps what was decided for a frame that [`Switch::admit`] let pass.
    pub(super) fn keep_way(&mut self, from: PortIndex, packet: &Packet) {
        let Some(addresses) = self.decided_by(from, packet) else {
            return;
        };
        let Some(way) = self.decide(from, packet) else {
            return;
        };
        let is_uplink = from.0 < self.first_guest();
        let bits = if is_uplink { OF_UPLINK } else { OF_GUEST };
        let decision = Decision {
            addresses,
            generation: self.forwarding.generation(),
            way,
        };
        self.states[from.0].decisions.keep(decision, bits);
    }

    /// Decides for an admitted frame: its way, if that is the same for all frames of its addresses.
    fn decide(&self, from: PortIndex, packet: &Packet) -> Option<Way> {
        let guest = from.0.checked_sub(self.first_guest());
        let filter = guest.and_then(|guest| self.guests[guest].filter.as_ref());
        // Whether a frame without an address passes depends on more than its addresses.
        let is_own = |filter: &SpoofFilter| {
            let source = packet.ip_source();
            source.is_some_and(|source| !source.is_unspecified() && filter.owns(source))
        };
        if !filter.is_none_or(is_own) {
            return None;
        }
        let (source, destination) = (Mac(packet.source_mac()), Mac(packet.destination_mac()));
        self.forwarding.way(from, source, destination)
    }
}
