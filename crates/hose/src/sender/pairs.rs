//! All pairs that send from this host, and their lists.

use super::pair::{Pair, State};
use crate::config::MAX_PAIRS;
use crate::ids::{MachineId, PairId, PairKey, PeerIndex, SequenceNumber};
use crate::machines::LocalIndex;
use crate::table::{Beside, Table, place};
use crate::wire::Entry;
use std::collections::BTreeMap;
use std::iter;
use std::mem;
use std::ops::{Index, IndexMut};
use tailbound_units::{Bytes, Nanos, Rate};

place! {
    /// A pair that sends from here, as a place in the table of them.
    PairIndex
}

/// Limit of the traffic to the VMs of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Regime {
    /// Grants only, as pledged.
    Grants {
        /// End of the pledge.
        pledged: Nanos,
    },
    /// The static share of each VM, without a pledge.
    StaticShares,
}

/// A grant for a pair that is not here.
#[derive(Debug, Clone, Copy)]
struct StrayGrant {
    pair: PairId,
    /// The datagram that it came in.
    sequence: SequenceNumber,
}

/// Limit on grants for unknown pairs that wait to be returned; further ones are returned with the
/// next grant.
const MAX_STRAYS: usize = 64;

/// A peer, or this host, as what is sent to its machines.
#[derive(Debug)]
struct Destination {
    regime: Regime,
    /// The time until which it is sent no datagram.
    quiet_until: Nanos,
    /// Every pair that sends to its machines.
    pairs: Vec<PairIndex>,
    /// Pairs in use.
    open: Vec<PairIndex>,
    /// Pairs that gave their grants back, which the peer does not know yet.
    returned: Vec<PairIndex>,
    /// Grants that are given back for the same reason.
    strays: Vec<StrayGrant>,
}

/// A machine here, as what it sends.
#[derive(Debug, Default)]
struct Source {
    /// Its pairs by the hosts and machines of their receivers.
    pairs: BTreeMap<(PeerIndex, MachineId), PairIndex>,
    /// Its pairs in use.
    open: Vec<PairIndex>,
    /// Its pairs, in use or not, to hosts in the regime of static shares.
    unpledged: Vec<PairIndex>,
}

/// The pairs by place, by machine here and by peer.
#[derive(Debug)]
pub(super) struct Pairs {
    table: Table<PairIndex, PairKey, Pair>,
    sources: Beside<LocalIndex, Source>,
    /// Destinations by [`PeerIndex`].
    destinations: Vec<Destination>,
    /// Number of active pairs.
    open: usize,
}

impl Pairs {
    /// Makes an empty set of pairs, with a pledge to each peer up to `pledged`, and an endless one
    /// to this host itself.
    pub(super) fn new(peers: usize, pledged: Nanos) -> Self {
        let destination = |pledged| Destination {
            regime: Regime::Grants { pledged },
            quiet_until: Nanos::ZERO,
            pairs: Vec::new(),
            open: Vec::new(),
            returned: Vec::new(),
            strays: Vec::new(),
        };
        Self {
            table: Table::new(2 * MAX_PAIRS),
            sources: Beside::default(),
            destinations: iter::repeat_n(pledged, peers)
                .chain([Nanos(u64::MAX)])
                .map(destination)
                .collect(),
            open: 0,
        }
    }

    pub(super) fn add_local(&mut self, local: LocalIndex) {
        self.sources.reset(local);
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the number of active pairs.
    pub(super) const fn open(&self) -> usize {
        self.open
    }

    pub(super) fn find(&self, key: &PairKey) -> Option<PairIndex> {
        self.table.find(key)
    }

    /// Every pair of a machine here, in the order of their places.
    pub(super) fn all_of(&self, local: LocalIndex) -> Vec<PairIndex> {
        let mut all: Vec<_> = self.sources[local].pairs.values().copied().collect();
        all.sort_unstable();
        all
    }

    /// The pairs of a machine here to those on a peer, by their receivers.
    pub(super) fn of(
        &self,
        local: LocalIndex,
        peer: PeerIndex,
    ) -> impl Iterator<Item = PairIndex> + '_ {
        let ids = (peer, MachineId(0))..=(peer, MachineId(u32::MAX));
        self.sources[local].pairs.range(ids).map(|(_, pair)| *pair)
    }

    /// The pairs of a machine here that are in use, the first opened first.
    pub(super) fn open_of(&self, local: LocalIndex) -> &[PairIndex] {
        &self.sources[local].open
    }

    /// The idle pairs of a machine here that may send unasked.
    pub(super) fn idle_unpledged_of(
        &self,
        local: LocalIndex,
    ) -> impl Iterator<Item = PairIndex> + '_ {
        let unpledged = self.sources[local].unpledged.iter().copied();
        unpledged.filter(|pair| !self.table[*pair].state.is_open())
    }

    /// Every pair to a peer, the first added first.
    pub(super) fn to(&self, peer: PeerIndex) -> &[PairIndex] {
        &self.destinations[peer.0].pairs
    }

    /// Returns whether a pair to a peer is active.
    pub(super) fn is_used(&self, peer: PeerIndex) -> bool {
        !self.destinations[peer.0].open.is_empty()
    }

    /// Returns whether a peer must receive requests or returned grants.
    pub(super) fn has_requests(&self, peer: PeerIndex) -> bool {
        let Destination {
            open,
            returned,
            strays,
            ..
        } = &self.destinations[peer.0];
        !(open.is_empty() && returned.is_empty() && strays.is_empty())
    }

    pub(super) fn regime(&self, peer: PeerIndex) -> Regime {
        self.destinations[peer.0].regime
    }

    /// Adds an idle pair. Returns `None` if the table is full.
    pub(super) fn insert(&mut self, pair: Pair) -> Option<PairIndex> {
        debug_assert!(!pair.state.is_open(), "a pair begins idle");
        let Pair { key, local, .. } = pair;
        if !self.has_room(key.peer) {
            return None;
        }
        let index = self.table.insert(key, pair)?;
        let destination = &mut self.destinations[key.peer.0];
        destination.pairs.push(index);
        let source = &mut self.sources[local];
        source.pairs.insert((key.peer, key.pair.receiver), index);
        if destination.regime == Regime::StaticShares {
            source.unpledged.push(index);
        }
        Some(index)
    }

    /// Returns whether the table has room for another pair. Local pairs have a table of their own.
    fn has_room(&self, peer: PeerIndex) -> bool {
        let here = self.destinations.last().map_or(0, |here| here.pairs.len());
        let taken = if peer.0 + 1 == self.destinations.len() {
            here
        } else {
            self.table.len() - here
        };
        taken < MAX_PAIRS
    }

    pub(super) fn remove(&mut self, index: PairIndex) {
        self.set_state(index, State::Idle);
        let Pair { key, local, .. } = self.table[index];
        let source = &mut self.sources[local];
        source.pairs.remove(&(key.peer, key.pair.receiver));
        remove(&mut source.unpledged, index);
        let destination = &mut self.destinations[key.peer.0];
        remove(&mut destination.pairs, index);
        remove(&mut destination.returned, index);
        self.table.remove(&key);
    }

    /// Changes a pair's state, and all that follows from whether it is in use: its
    /// demand and request, and on which lists it is. Nothing else opens or closes
    /// one. Returns whether it was closed.
    pub(super) fn set_state(&mut self, index: PairIndex, next: State) -> bool {
        let pair = &mut self.table[index];
        let before = mem::replace(&mut pair.state, next);
        let destination = &mut self.destinations[pair.key.peer.0];
        let source = &mut self.sources[pair.local];
        match next {
            State::Idle => pair.loan.give_back(),
            // Nothing is lent without a lease.
            State::Requesting | State::FellBack { .. } => pair.loan.lapse(),
            State::Granted { .. } => {}
        }
        match (before.is_open(), next.is_open()) {
            (false, true) => {
                self.open += 1;
                destination.open.push(index);
                source.open.push(index);
                remove(&mut destination.returned, index);
                false
            }
            (true, false) => {
                self.open -= 1;
                remove(&mut destination.open, index);
                remove(&mut source.open, index);
                pair.demand = Rate::ZERO;
                pair.request = Rate::ZERO;
                true
            }
            _ => false,
        }
    }

    /// Returns the time until which a peer is sent no datagram.
    pub(super) fn quiet_until(&self, peer: PeerIndex) -> Nanos {
        self.destinations[peer.0].quiet_until
    }

    /// Sends a peer no datagram until a time.
    pub(super) fn quieten(&mut self, peer: PeerIndex, until: Nanos) {
        let quiet_until = &mut self.destinations[peer.0].quiet_until;
        *quiet_until = until.max(*quiet_until);
    }

    /// Sets the limit of the traffic to the VMs of a peer.
    pub(super) fn set_regime(&mut self, peer: PeerIndex, next: Regime) {
        let Destination { regime, pairs, .. } = &mut self.destinations[peer.0];
        let before = mem::replace(regime, next);
        match (before, next) {
            (Regime::Grants { .. }, Regime::StaticShares) => {
                for pair in pairs {
                    let local = self.table[*pair].local;
                    self.sources[local].unpledged.push(*pair);
                }
            }
            (Regime::StaticShares, Regime::Grants { .. }) => {
                for pair in pairs {
                    let local = self.table[*pair].local;
                    remove(&mut self.sources[local].unpledged, *pair);
                }
            }
            _ => {}
        }
    }

    /// Returns the grant of an idle pair to the peer, with a datagram soon.
    pub(super) fn give_back(&mut self, index: PairIndex) {
        let Pair { key, state, .. } = self.table[index];
        debug_assert!(!state.is_open(), "an open pair is not released");
        let returned = &mut self.destinations[key.peer.0].returned;
        if !returned.contains(&index) {
            returned.push(index);
        }
    }

    /// Returns a peer's grant for a pair that does not exist here.
    pub(super) fn give_back_stray(&mut self, key: PairKey, sequence: SequenceNumber) {
        let strays = &mut self.destinations[key.peer.0].strays;
        if strays.len() < MAX_STRAYS {
            let pair = key.pair;
            strays.push(StrayGrant { pair, sequence });
        }
    }

    /// Adds requests and returned grants for a peer to the entries. Returned grants are sent once, and those
    /// by which frames may leave later.
    pub(super) fn take_requests(
        &mut self,
        now: Nanos,
        commitment: Nanos,
        peer: PeerIndex,
        entries: &mut Vec<Entry>,
    ) {
        let destination = &mut self.destinations[peer.0];
        for index in destination.open.iter().chain(&destination.returned) {
            let pair = &mut self.table[*index];
            let confirms = match pair.state {
                State::Idle if now < pair.returns_at => continue,
                // Frames leave by none of its grants.
                State::Idle => pair.confirmation.latest(),
                _ => pair.confirmation.due(now, commitment),
            };
            let (demand, wanted) = match pair.state {
                State::Idle => (Rate::ZERO, pair.loan.receipt()),
                // 0 would say that it was given back.
                _ => (pair.request.max(Rate(1)), pair.loan.request()),
            };
            entries.push(Entry::Request {
                pair: pair.key.pair,
                demand,
                confirms,
                wanted,
            });
        }
        for stray in &destination.strays {
            entries.push(Entry::Request {
                pair: stray.pair,
                demand: Rate::ZERO,
                confirms: stray.sequence,
                wanted: Bytes::ZERO,
            });
        }
        let table = &self.table;
        let returned = &mut destination.returned;
        returned.retain(|index| now < table[*index].returns_at);
        destination.strays.clear();
    }

    /// Returns whether each pair is on exactly the lists for its state and its receiver's host, and
    /// holds only permitted grants.
    pub(super) fn is_consistent(&self) -> bool {
        let each = self.table.places().all(|index| {
            let pair = &self.table[index];
            let open = pair.state.is_open();
            let destination = &self.destinations[pair.key.peer.0];
            let source = &self.sources[pair.local];
            let unpledged = destination.regime == Regime::StaticShares;
            let receiver = (pair.key.peer, pair.key.pair.receiver);
            source.pairs.get(&receiver) == Some(&index)
                && is_listed(&destination.pairs, index, true)
                && is_listed(&destination.open, index, open)
                && is_listed(&source.open, index, open)
                && is_listed(&source.unpledged, index, unpledged)
                && !(open && destination.returned.contains(&index))
                && (open || pair.demand == Rate::ZERO && pair.request == Rate::ZERO)
                && !(unpledged && pair.state.granted() > Rate::ZERO)
        });
        let open = self.destinations.iter().map(|peer| peer.open.len());
        each && open.sum::<usize>() == self.open
    }
}

/// Removes a pair from a list that contains it at most once; the others stay in order.
fn remove(list: &mut Vec<PairIndex>, index: PairIndex) {
    if let Some(place) = list.iter().position(|other| *other == index) {
        list.remove(place);
    }
}

/// Returns whether a pair is on a list once, or not at all unless it is `expected` there.
fn is_listed(list: &[PairIndex], index: PairIndex, expected: bool) -> bool {
    let times = list.iter().filter(|other| **other == index).count();
    times == usize::from(expected)
}

impl Index<PairIndex> for Pairs {
    type Output = Pair;

    fn index(&self, index: PairIndex) -> &Pair {
        &self.table[index]
    }
}

impl IndexMut<PairIndex> for Pairs {
    fn index_mut(&mut self, index: PairIndex) -> &mut Pair {
        &mut self.table[index]
    }
}
