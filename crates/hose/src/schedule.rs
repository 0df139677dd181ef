//! Schedule of a host.

use crate::ids::PeerIndex;
use std::collections::BTreeSet;
use tailbound_units::{Nanos, Rate};

/// Largest number of recomputations of changed allocations in an interval.
const RECOMPUTATIONS: u64 = 8;

/// Largest number of datagrams to one peer in an interval.
const DATAGRAMS: u64 = 4;

/// Returns whether a rate deserves a datagram of its own if `before` was sent last: if it is more
/// than 1/32 away.
pub(crate) const fn is_worth_a_datagram(rate: Rate, before: Rate) -> bool {
    rate.0.abs_diff(before.0) > before.0 / 32
}

/// Set of allocations that are recomputed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Allocations of every machine that takes part in any pair.
    All,
    /// Changed allocations.
    Changed,
}

/// Times of the next and the last datagram to a peer.
#[derive(Debug)]
struct Peer {
    due: Nanos,
    last_sent: Option<Nanos>,
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
}

impl Schedule {
    /// Makes a schedule in which everything is due now.
    pub(crate) fn new(now: Nanos, interval: Nanos, peers: usize) -> Self {
        let datagrams = (0..peers).map(|peer| (now, PeerIndex(peer)));
        let peer = || Peer {
            due: now,
            last_sent: None,
        };
        Self {
            interval,
            peers: std::iter::repeat_with(peer).take(peers).collect(),
            datagrams: datagrams.collect(),
            tick: now,
            recompute: None,
        }
    }

    /// Schedules a recomputation of what has changed: soon, so that changes that
    /// come together are computed together.
    pub(crate) fn recompute_soon(&mut self, now: Nanos) {
        let last = self.tick.saturating_sub(self.interval);
        let slice = self.interval.0 / RECOMPUTATIONS;
        let since = now.since(last);
        let at = if since >= self.interval || slice == 0 {
            now
        } else {
            last + Nanos(since.0.div_ceil(slice) * slice)
        };
        self.recompute = Some(self.recompute.map_or(at, |before| before.min(at)));
    }

    /// Expedites the next datagram to a peer.
    pub(crate) fn expedite_datagram(&mut self, now: Nanos, peer: PeerIndex) {
        let gap = Nanos(self.interval.0 / DATAGRAMS);
        let Peer { due, last_sent } = self.peers[peer.0];
        let at = last_sent.map_or(now, |last| now.max(last + gap));
        if at < due {
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
        self.peers[peer.0].last_sent = Some(now);
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
