//! Schedule of a host.

use crate::ids::PeerIndex;
use std::collections::BTreeSet;
use tailbound_units::{Nanos, Rate};

/// Recomputations of changed allocations in an interval, in the long run.
const RECOMPUTATIONS: u64 = 8;

/// Datagrams to one peer in an interval, in the long run.
const DATAGRAMS: u64 = 4;

/// Largest number of recomputations, and of datagrams to a peer, without a gap. A new sender needs
/// three at one host: its request, another sender's confirmation, and the grant.
const AT_ONCE: u64 = 4;

/// Rate limit with a burst of `AT_ONCE`: the virtual scheduling algorithm (ATM Forum, 1996).
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Time between two occurrences in the long run.
    gap: Nanos,
    /// Time of the next occurrence if all of them had kept the gap.
    next: Nanos,
}

impl Pace {
    const fn new(gap: Nanos) -> Self {
        Self {
            gap,
            next: Nanos::ZERO,
        }
    }

    /// Returns the first moment, from `now` on, at which it may be done.
    fn earliest(&self, now: Nanos) -> Nanos {
        let ahead = Nanos(self.gap.0 * (AT_ONCE - 1));
        now.max(self.next.saturating_sub(ahead))
    }

    /// Records that it was done.
    fn record(&mut self, now: Nanos) {
        self.next = self.next.max(now) + self.gap;
    }
}

/// Returns whether a rate deserves a datagram of its own if `before` was sent last: if it is more
/// than 1/32 higher, or more than 1/128 lower, since another sender may wait for what falls.
pub(crate) const fn is_worth_a_datagram(rate: Rate, before: Rate) -> bool {
    let part = if rate.0 < before.0 { 128 } else { 32 };
    rate.0.abs_diff(before.0) > before.0 / part
}

/// Set of allocations that are recomputed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Allocations of every machine that takes part in any pair.
    All,
    /// Changed allocations.
    Changed,
}

/// Time of the next datagram to a peer, and how soon it may be.
#[derive(Debug)]
struct Peer {
    due: Nanos,
    pace: Pace,
}

/// The timers of a host.
#[derive(Debug)]
pub(crate) struct Schedule {
    interval: Nanos,
    peers: Vec<Peer>,
    /// Every peer, by when it is sent a datagram next.
    datagrams: BTreeSet<(Nanos, PeerIndex)>,
    /// Time of the next recomputation of all allocations.
    tick: Nanos,
    /// Time of the next recomputation of changed allocations, if any.
    recompute: Option<Nanos>,
    recomputations: Pace,
}

impl Schedule {
    /// Makes a schedule in which everything is due now.
    pub(crate) fn new(now: Nanos, interval: Nanos, peers: usize) -> Self {
        let datagrams = (0..peers).map(|peer| (now, PeerIndex(peer)));
        let peer = || Peer {
            due: now,
            pace: Pace::new(Nanos(interval.0 / DATAGRAMS)),
        };
        Self {
            interval,
            peers: std::iter::repeat_with(peer).take(peers).collect(),
            datagrams: datagrams.collect(),
            tick: now,
            recompute: None,
            recomputations: Pace::new(Nanos(interval.0 / RECOMPUTATIONS)),
        }
    }

    /// Schedules a recomputation of changed allocations: immediately, if few were in the last
    /// interval.
    pub(crate) fn recompute_soon(&mut self, now: Nanos) {
        let at = self.recomputations.earliest(now);
        self.recompute = Some(self.recompute.map_or(at, |before| before.min(at)));
    }

    /// Expedites the next datagram to a peer.
    pub(crate) fn expedite_datagram(&mut self, now: Nanos, peer: PeerIndex) {
        let Peer { due, pace } = &self.peers[peer.0];
        let at = pace.earliest(now);
        if at < *due {
            self.set_datagram(at, peer);
        }
    }

    /// Sets when the next datagram goes to a peer.
    pub(crate) fn set_datagram(&mut self, at: Nanos, peer: PeerIndex) {
        let before = std::mem::replace(&mut self.peers[peer.0].due, at);
        let had = self.datagrams.remove(&(before, peer));
        debug_assert!(had, "every peer has a timer");
        self.datagrams.insert((at, peer));
    }

    /// Records that a datagram was sent to a peer.
    pub(crate) fn datagram_sent(&mut self, now: Nanos, peer: PeerIndex) {
        self.peers[peer.0].pace.record(now);
    }

    /// Returns a peer to which a datagram is due.
    pub(crate) fn datagram_due(&self, now: Nanos) -> Option<PeerIndex> {
        let (at, peer) = self.datagrams.first()?;
        (*at <= now).then_some(*peer)
    }

    /// Returns the set of allocations whose recomputation is due, and marks it as done.
    pub(crate) fn take_recomputation(&mut self, now: Nanos) -> Option<Scope> {
        if self.tick <= now {
            self.tick = now + self.interval;
            self.recompute = None;
            Some(Scope::All)
        } else if self.recompute.is_some_and(|at| at <= now) {
            self.recompute = None;
            self.recomputations.record(now);
            Some(Scope::Changed)
        } else {
            None
        }
    }

    /// Records that all changed allocations were recomputed.
    pub(crate) fn recomputed(&mut self) {
        self.recompute = None;
    }

    /// Returns the next time at which anything is due. All allocations are recomputed each interval
    /// only while some pair is `active`.
    pub(crate) fn poll_at(&self, active: bool) -> Option<Nanos> {
        let datagram = self.datagrams.first().map(|(at, _)| *at);
        let tick = active.then_some(self.tick);
        [datagram, tick, self.recompute].into_iter().flatten().min()
    }
}
