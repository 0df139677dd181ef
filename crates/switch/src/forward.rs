//! Where a frame goes: forwarding by destination MAC address.
//!
//! A guest's address is in the configuration and pinned to the guest's port:
//! a move to another port (a MAC move) is counted and not followed. Other addresses are
//! learned from the source address of what they send, as an 802.1D bridge does
//! (IEEE 802.1Q, 8.7), from the uplink and from guests that may send with
//! several addresses (`anti_spoofing = false`).
//!
//! Unlike a bridge, a host knows where strangers are: behind the uplink. So an
//! unknown unicast address is never flooded. From a guest it goes to the uplink
//! alone; from the uplink it is dropped.

use crate::mac::Mac;
use std::collections::HashMap;
use std::collections::hash_map;
use tailbound_units::Nanos;

/// A port's place in the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortIndex(pub usize);

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// To this port, which is not the one it came from.
    To(PortIndex),
    /// To the uplink, since nobody is known to have its destination: whoever is behind
    /// it may have to ask everybody.
    Unknown(PortIndex),
    /// To every port but the one it came from.
    Flood,
    /// Nowhere.
    Drop(NoRoute),
}

/// Why a frame goes nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoute {
    /// The address is reserved for the link itself (IEEE 802.1Q, 8.6.3).
    LinkLocal,
    /// The destination is behind the port that the frame came from.
    SamePort,
    /// Nobody here has that address, and there is no uplink to try.
    Unknown,
}

/// What [`Forwarding::learn`] made of a source address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learned {
    /// It is known to be there, now if not before.
    Accepted,
    /// It is pinned to another port, as it is a guest's: a MAC move that is not
    /// allowed. The frame must be dropped.
    ForbiddenMove,
    /// It is no station's address (a group's, or all zeros). The frame must be
    /// dropped.
    Invalid,
    /// It was not entered, since the port has as many entries as it may have.
    /// The frame is none the worse for it.
    Full,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    port: PortIndex,
    seen: Nanos,
}

/// The forwarding table (FDB).
#[derive(Debug)]
pub struct Forwarding {
    uplink: Option<PortIndex>,
    guests: HashMap<Mac, PortIndex>,
    entries: HashMap<Mac, Entry>,
    /// How many entries each port has, by [`PortIndex`].
    per_port: Vec<usize>,
    /// When aged entries were last looked for, so that a full table costs a
    /// walk at most once a second.
    swept: Nanos,
}

impl Forwarding {
    /// An entry that was not refreshed for this long is removed
    /// (IEEE 802.1Q, table 8-6).
    pub const AGEING: Nanos = Nanos::from_secs(300);
    /// Most addresses learned from one port. A port's share is its own, so that
    /// no port can crowd out another's entries.
    pub const ENTRIES_PER_PORT: usize = 1024;

    /// A table for `ports` ports, with the guests' addresses pinned.
    pub fn new(
        ports: usize,
        uplink: Option<PortIndex>,
        guests: impl IntoIterator<Item = (Mac, PortIndex)>,
    ) -> Self {
        Self {
            uplink,
            guests: guests.into_iter().collect(),
            entries: HashMap::new(),
            per_port: vec![0; ports],
            swept: Nanos::ZERO,
        }
    }

    /// Takes over what `old` has learned; `moved` says where an old port is now.
    pub fn inherit(&mut self, old: &Self, moved: impl Fn(PortIndex) -> Option<PortIndex>) {
        for (mac, entry) in &old.entries {
            let Some(port) = moved(entry.port) else {
                continue;
            };
            let Some(count) = self.per_port.get_mut(port.0) else {
                continue;
            };
            if !self.guests.contains_key(mac) {
                *count += 1;
                self.entries.insert(*mac, Entry { port, ..*entry });
            }
        }
        self.swept = old.swept;
        debug_assert_eq!(self.per_port.iter().sum::<usize>(), self.entries.len());
    }

    /// Notes that `source` has sent from `port`.
    pub fn learn(&mut self, now: Nanos, port: PortIndex, source: Mac) -> Learned {
        if source.is_multicast() || source.0 == [0; 6] {
            return Learned::Invalid;
        }
        if let Some(home) = self.guests.get(&source) {
            return if *home == port {
                Learned::Accepted
            } else {
                Learned::ForbiddenMove
            };
        }
        let Some(count) = self.per_port.get(port.0).copied() else {
            return Learned::Full;
        };
        match self.entries.entry(source) {
            hash_map::Entry::Occupied(mut known) => {
                let entry = known.get_mut();
                if entry.port == port {
                    entry.seen = now;
                    return Learned::Accepted;
                }
                if count < Self::ENTRIES_PER_PORT {
                    self.per_port[entry.port.0] -= 1;
                    self.per_port[port.0] += 1;
                    *entry = Entry { port, seen: now };
                    return Learned::Accepted;
                }
            }
            hash_map::Entry::Vacant(place) => {
                if count < Self::ENTRIES_PER_PORT {
                    place.insert(Entry { port, seen: now });
                    self.per_port[port.0] += 1;
                    return Learned::Accepted;
                }
            }
        }
        self.sweep(now);
        Learned::Full
    }

    /// Removes aged entries, at most once a second.
    fn sweep(&mut self, now: Nanos) {
        if now.since(self.swept) < Nanos::from_secs(1) {
            return;
        }
        self.swept = now;
        let per_port = &mut self.per_port;
        self.entries.retain(|_, entry| {
            let keep = now.since(entry.seen) < Self::AGEING;
            if !keep {
                per_port[entry.port.0] -= 1;
            }
            keep
        });
    }

    /// Where a frame from `from` to `destination` goes.
    ///
    /// What stands behind the uplink stays known while it is sent to: a router may
    /// answer with another address than the one that it is reached by.
    pub fn route(&mut self, now: Nanos, from: PortIndex, destination: Mac) -> Verdict {
        if destination.is_multicast() {
            return if destination.is_link_local_group() {
                Verdict::Drop(NoRoute::LinkLocal)
            } else {
                Verdict::Flood
            };
        }
        if let Some(port) = self.known(now, from, destination) {
            return if port == from {
                Verdict::Drop(NoRoute::SamePort)
            } else {
                Verdict::To(port)
            };
        }
        match self.uplink {
            Some(uplink) if uplink == from => Verdict::Drop(NoRoute::SamePort),
            // It may be one of those that there was no room for.
            Some(uplink) if self.is_full(uplink) => Verdict::To(uplink),
            Some(uplink) => Verdict::Unknown(uplink),
            None => Verdict::Drop(NoRoute::Unknown),
        }
    }

    /// The port behind which the destination of a frame from `from` is known to be.
    fn known(&mut self, now: Nanos, from: PortIndex, destination: Mac) -> Option<PortIndex> {
        if let Some(port) = self.guests.get(&destination) {
            return Some(*port);
        }
        let entry = self.entries.get_mut(&destination)?;
        if now.since(entry.seen) >= Self::AGEING {
            return None;
        }
        if Some(entry.port) == self.uplink && from != entry.port {
            entry.seen = now;
        }
        Some(entry.port)
    }

    fn is_full(&self, port: PortIndex) -> bool {
        let entries = self.per_port.get(port.0);
        entries.is_some_and(|entries| *entries >= Self::ENTRIES_PER_PORT)
    }

    /// The port that a station was last seen at, or that a guest's address is pinned to.
    pub fn port_of(&self, mac: Mac) -> Option<PortIndex> {
        let learned = || self.entries.get(&mac).map(|entry| entry.port);
        self.guests.get(&mac).copied().or_else(learned)
    }

    /// The port behind which strangers are.
    pub const fn uplink(&self) -> Option<PortIndex> {
        self.uplink
    }

    /// The addresses that were learned, and where.
    pub fn learned(&self) -> impl Iterator<Item = (Mac, PortIndex)> {
        let entries = self.entries.iter();
        entries.map(|(mac, entry)| (*mac, entry.port))
    }

    /// How many addresses were learned: the guests' own are not.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UPLINK: PortIndex = PortIndex(0);
    const A: PortIndex = PortIndex(1);
    const B: PortIndex = PortIndex(2);
    const MAC_A: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const MAC_B: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const NOW: Nanos = Nanos::from_secs(1000);

    fn table() -> Forwarding {
        Forwarding::new(3, Some(UPLINK), [(MAC_A, A), (MAC_B, B)])
    }

    fn stranger(n: u16) -> Mac {
        let [high, low] = n.to_be_bytes();
        Mac([2, 1, 0, 0, high, low])
    }

    #[test]
    fn local_guests_reach_each_other_without_the_uplink() {
        assert_eq!(table().route(NOW, A, MAC_B), Verdict::To(B));
    }

    #[test]
    fn an_unknown_address_goes_to_the_uplink_alone_and_never_back() {
        let mut table = table();
        assert_eq!(table.route(NOW, A, stranger(1)), Verdict::Unknown(UPLINK));
        assert_eq!(
            table.route(NOW, UPLINK, stranger(1)),
            Verdict::Drop(NoRoute::SamePort)
        );
        let mut isolated = Forwarding::new(2, None, [(MAC_A, PortIndex(0)), (MAC_B, PortIndex(1))]);
        assert_eq!(
            isolated.route(NOW, PortIndex(0), stranger(1)),
            Verdict::Drop(NoRoute::Unknown)
        );
    }

    #[test]
    fn broadcast_and_multicast_flood_and_link_local_groups_do_not() {
        let mut table = table();
        assert_eq!(table.route(NOW, A, Mac::BROADCAST), Verdict::Flood);
        assert_eq!(
            table.route(NOW, UPLINK, Mac([0x33, 0x33, 0, 0, 0, 1])),
            Verdict::Flood
        );
        assert_eq!(
            table.route(NOW, A, Mac([0x01, 0x80, 0xc2, 0, 0, 0x0e])),
            Verdict::Drop(NoRoute::LinkLocal)
        );
        assert_eq!(
            table.route(NOW, A, Mac([0x01, 0x80, 0xc2, 0, 0, 0x10])),
            Verdict::Flood
        );
    }

    #[test]
    fn nobody_can_claim_a_guests_address() {
        let mut table = table();
        assert_eq!(table.learn(NOW, UPLINK, MAC_A), Learned::ForbiddenMove);
        assert_eq!(table.learn(NOW, B, MAC_A), Learned::ForbiddenMove);
        assert_eq!(table.learn(NOW, A, MAC_A), Learned::Accepted);
        assert_eq!(table.route(NOW, B, MAC_A), Verdict::To(A));
        assert_eq!(table.entries(), 0);
    }

    #[test]
    fn a_station_is_learned_moves_and_is_forgotten_after_five_minutes() {
        let mut table = table();
        table.learn(NOW, A, stranger(1));
        assert_eq!(table.route(NOW, B, stranger(1)), Verdict::To(A));
        table.learn(NOW, B, stranger(1));
        assert_eq!(table.route(NOW, A, stranger(1)), Verdict::To(B));
        let last = NOW + Forwarding::AGEING - Nanos(1);
        assert_eq!(table.route(last, A, stranger(1)), Verdict::To(B));
        let late = NOW + Forwarding::AGEING;
        assert_eq!(table.route(late, A, stranger(1)), Verdict::Unknown(UPLINK));
    }

    #[test]
    fn a_router_that_never_sends_with_its_own_address_stays_known_while_it_is_used() {
        let mut table = table();
        table.learn(NOW, UPLINK, stranger(1));
        let mut now = NOW;
        for _ in 0..10 {
            now += Forwarding::AGEING - Nanos(1);
            assert_eq!(table.route(now, A, stranger(1)), Verdict::To(UPLINK));
        }
        // From outside alone it does not.
        now += Forwarding::AGEING;
        assert_eq!(table.route(now, A, stranger(1)), Verdict::Unknown(UPLINK));
    }

    #[test]
    fn nobody_is_unknown_where_not_all_of_the_outside_could_be_learned() {
        let mut table = table();
        for n in 0..=1024 {
            table.learn(NOW, UPLINK, stranger(n));
        }
        assert_eq!(table.route(NOW, A, stranger(2000)), Verdict::To(UPLINK));
    }

    #[test]
    fn one_ports_stations_cannot_crowd_out_anothers_and_aged_ones_make_room() {
        let mut table = table();
        for n in 0..2000 {
            table.learn(NOW, UPLINK, stranger(n));
        }
        assert_eq!(table.entries(), Forwarding::ENTRIES_PER_PORT);
        assert_eq!(table.learn(NOW, A, stranger(3000)), Learned::Accepted);
        let late = NOW + Forwarding::AGEING;
        assert_eq!(table.learn(late, UPLINK, stranger(5000)), Learned::Full);
        assert_eq!(table.entries(), 0);
        assert_eq!(table.learn(late, UPLINK, stranger(5000)), Learned::Accepted);
    }

    #[test]
    fn what_was_learned_survives_a_change_of_ports() {
        let mut old = table();
        old.learn(NOW, A, stranger(1));
        old.learn(NOW, B, stranger(2));
        old.learn(NOW, UPLINK, stranger(3));
        // Guest A leaves, and stranger 3 becomes a guest.
        let mut new = Forwarding::new(3, Some(UPLINK), [(MAC_B, A), (stranger(3), B)]);
        new.inherit(&old, |port| match port {
            UPLINK => Some(UPLINK),
            B => Some(A),
            _ => None,
        });
        assert_eq!(new.entries(), 1);
        assert_eq!(new.route(NOW, UPLINK, stranger(2)), Verdict::To(A));
        assert_eq!(new.route(NOW, UPLINK, stranger(3)), Verdict::To(B));
    }

    proptest! {
        #[test]
        fn no_frame_goes_back_and_every_count_holds(
            events in prop::collection::vec((0usize..3, any::<[u8; 6]>(), any::<[u8; 6]>(), 0u64..400), 1..300)
        ) {
            let mut table = table();
            let mut now = NOW;
            for (port, source, destination, seconds) in events {
                // A small set of addresses, so that they meet again.
                let source = Mac([source[0] & 3, 0, 0, 0, 0, source[5] & 7]);
                let destination = Mac([destination[0] & 3, 0, 0, 0, 0, destination[5] & 7]);
                now += Nanos::from_secs(seconds);
                let learned = table.learn(now, PortIndex(port), source);
                if source == MAC_A && port != A.0 {
                    prop_assert_eq!(learned, Learned::ForbiddenMove);
                }
                if let Verdict::To(to) = table.route(now, PortIndex(port), destination) {
                    prop_assert_ne!(to, PortIndex(port));
                }
                if port != A.0 {
                    prop_assert_eq!(table.route(now, PortIndex(port), MAC_A), Verdict::To(A));
                }
                prop_assert_eq!(table.per_port.iter().sum::<usize>(), table.entries.len());
            }
        }
    }
}
