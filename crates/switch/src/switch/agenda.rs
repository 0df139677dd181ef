//! Work by port: a turn visits only the ports that have work.
//!
//! A [`PortSet`] has the ports with work now, [`Deadlines`] those with work later.

use super::state::Interest;
use super::{Ports, Switch};
use crate::index::PortIndex;
use tailbound_units::Nanos;

/// Work by port.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    /// Ports to receive from, or with received frames that are not forwarded yet.
    pub(super) ready: PortSet,
    /// Ports with frames to all others that are being copied.
    pub(super) copying: PortSet,
    /// Guests' ports with frames on their way out, which may leave now.
    pub(super) sending: PortSet,
    /// The times at which the queued frames of guests' ports may leave, if that is later.
    pub(super) departures: Deadlines,
    /// The times at which guests' limits release the next frame.
    pub(super) releases: Deadlines,
    /// The times at which a guest's ingress retries.
    pub(super) retries: Deadlines,
    /// The times of ports' own timers.
    pub(super) timers: Deadlines,
    /// Ports of guests that may have arrived or left.
    pub(super) moved: PortSet,
    /// True if a guest arrived or left in this turn.
    pub(super) is_news: bool,
    /// Ports whose awaited events have changed.
    pub(super) changed: PortSet,
}

impl Agenda {
    fn sets(&mut self) -> [&mut PortSet; 5] {
        let Self {
            ready,
            copying,
            sending,
            moved,
            changed,
            ..
        } = self;
        [ready, copying, sending, moved, changed]
    }

    const fn deadlines(&mut self) -> [&mut Deadlines; 4] {
        [
            &mut self.departures,
            &mut self.releases,
            &mut self.retries,
            &mut self.timers,
        ]
    }

    /// Makes room for `ports` ports, all of which may have work.
    fn reset(&mut self, ports: usize) {
        for set in self.sets() {
            *set = PortSet::full(ports);
        }
        for deadlines in self.deadlines() {
            *deadlines = Deadlines::new(ports);
        }
    }

    /// Moves ports to other places; `before` has the former index of each. Their work goes with
    /// them, and new ones have none.
    pub(super) fn rearrange(&mut self, before: &[Option<PortIndex>]) {
        for set in self.sets() {
            let old = std::mem::replace(set, PortSet::new(before.len()));
            for (port, before) in before.iter().enumerate() {
                if before.is_some_and(|before| old.has(before)) {
                    set.set(PortIndex(port), true);
                }
            }
        }
        for deadlines in self.deadlines() {
            let old = std::mem::replace(deadlines, Deadlines::new(before.len()));
            for (port, before) in before.iter().enumerate() {
                deadlines.set(PortIndex(port), before.and_then(|before| old.get(before)));
            }
        }
    }
}

impl Switch {
    /// Updates a port's work: after each event and each turn that served the port.
    pub(super) fn note(&mut self, port: PortIndex, ports: &Ports) {
        let is_open = self.is_open(port);
        let is_read = is_open && self.reads && !self.is_drained(port);
        let is_full = self.table[port].full;
        let waits_for_room = is_full && !self.is_resting(port);
        let state = &mut self.table[port];
        let is_pending = state.has_received();
        let is_ready = is_open && (is_pending || (is_read && state.readable));
        self.agenda.ready.set(port, is_ready);
        let interest = Interest {
            receive: is_read,
            transmit: waits_for_room,
        };
        if std::mem::replace(&mut state.interest, interest) != interest {
            self.agenda.changed.set(port, true);
        }
        let timer = ports[port.0].as_ref().and_then(|port| {
            // What comes for a port that is not read wakes nobody.
            let receive = port.receive_at().filter(|_| is_read && !is_pending);
            port.flush_at().into_iter().chain(receive).min()
        });
        self.agenda.timers.set(port, timer);
        self.note_presence(port, ports);
        self.note_ingress(port);
    }

    /// Updates the time at which a guest's ingress retries.
    pub(super) fn note_ingress(&mut self, index: PortIndex) {
        let retry = self.table.guest_mut(index).and_then(|guest| {
            let snoop = guest.snoop.as_ref().and_then(|snoop| snoop.poll_at());
            snoop.into_iter().chain(guest.ingress.poll_at()).min()
        });
        self.agenda.retries.set(index, retry);
    }

    /// Marks every port: the next turn visits all of them.
    pub(super) fn note_all(&mut self) {
        self.agenda.reset(self.table.len());
        for index in self.table.ports() {
            self.note_ingress(index);
            let is_limited = self
                .table
                .guest_mut(index)
                .is_some_and(|it| it.limited.is_some());
            let release = is_limited.then_some(Nanos::ZERO);
            self.agenda.releases.set(index, release);
        }
    }
}

/// A set of ports, in their order. An iteration costs a step for each port in it, and one for each
/// 4,096 others.
#[derive(Debug, Default, Clone)]
pub(super) struct PortSet {
    words: Vec<u64>,
    /// One bit for each word of `words` that is not zero.
    summary: Vec<u64>,
}

impl PortSet {
    /// Makes an empty set for `ports` ports.
    fn new(ports: usize) -> Self {
        let words = ports.div_ceil(64);
        Self {
            words: vec![0; words],
            summary: vec![0; words.div_ceil(64)],
        }
    }

    /// Makes a set of all `ports` ports.
    fn full(ports: usize) -> Self {
        let mut set = Self::new(ports);
        for port in 0..ports {
            set.set(PortIndex(port), true);
        }
        set
    }

    /// Adds a port, or removes it.
    pub(super) fn set(&mut self, port: PortIndex, is_in: bool) {
        let word = port.0 / 64;
        let (bit, summary) = (1 << (port.0 % 64), 1 << (word % 64));
        if is_in {
            self.words[word] |= bit;
            self.summary[word / 64] |= summary;
        } else {
            self.words[word] &= !bit;
            if self.words[word] == 0 {
                self.summary[word / 64] &= !summary;
            }
        }
    }

    /// Returns true if the agenda has the port.
    pub(super) fn has(&self, PortIndex(port): PortIndex) -> bool {
        let word = self.words.get(port / 64);
        word.is_some_and(|word| word >> (port % 64) & 1 != 0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.summary.iter().all(|word| *word == 0)
    }

    /// Returns the first port of the set at or after `from`.
    pub(super) fn next(&self, PortIndex(from): PortIndex) -> Option<PortIndex> {
        let first = from / 64;
        let here = self.words.get(first)? >> (from % 64);
        if here != 0 {
            return Some(PortIndex(from + here.trailing_zeros() as usize));
        }
        let word = next_bit(&self.summary, first + 1)?;
        let bit = self.words[word].trailing_zeros() as usize;
        Some(PortIndex(word * 64 + bit))
    }

    /// Removes and returns the first port.
    pub(super) fn pop(&mut self) -> Option<PortIndex> {
        let port = self.next(PortIndex::FIRST)?;
        self.set(port, false);
        Some(port)
    }
}

/// Returns the first set bit at or after `from`.
fn next_bit(words: &[u64], from: usize) -> Option<usize> {
    let mut index = from / 64;
    let mut word = words.get(index)? & (u64::MAX << (from % 64));
    while word == 0 {
        index += 1;
        word = *words.get(index)?;
    }
    Some(index * 64 + word.trailing_zeros() as usize)
}

/// One optional deadline per port: a tree in which each node has the earlier one of its children's,
/// so a change takes at most the tree's height.
#[derive(Debug, Default, Clone)]
pub(super) struct Deadlines {
    /// The root at 1, the leaves in the second half; a leaf without a deadline has
    /// [`NEVER`].
    tree: Vec<Nanos>,
}

const NEVER: Nanos = Nanos::MAX;

impl Deadlines {
    /// Makes deadlines for `ports` ports, none set.
    fn new(ports: usize) -> Self {
        Self {
            tree: vec![NEVER; 2 * ports.next_power_of_two()],
        }
    }

    /// Returns the index of the first leaf.
    fn leaves(&self) -> usize {
        self.tree.len() / 2
    }

    /// Sets a port's deadline, or removes it.
    pub(super) fn set(&mut self, PortIndex(port): PortIndex, at: Option<Nanos>) {
        let at = at.unwrap_or(NEVER);
        let mut node = self.leaves() + port;
        if self.tree[node] == at {
            return;
        }
        self.tree[node] = at;
        while node > 1 {
            let earlier = self.tree[node].min(self.tree[node ^ 1]);
            node /= 2;
            if self.tree[node] == earlier {
                return;
            }
            self.tree[node] = earlier;
        }
    }

    /// Returns a port's deadline.
    pub(super) fn get(&self, PortIndex(port): PortIndex) -> Option<Nanos> {
        let at = self.tree.get(self.leaves() + port).copied();
        at.filter(|at| *at != NEVER)
    }

    /// Returns the earliest deadline.
    pub(super) fn first(&self) -> Option<Nanos> {
        let first = self.tree.get(1).copied();
        first.filter(|at| *at != NEVER)
    }

    /// Returns the first port at or after `from` whose deadline is not after `now`.
    pub(super) fn next_due(&self, PortIndex(from): PortIndex, now: Nanos) -> Option<PortIndex> {
        let leaves = self.leaves();
        if from >= leaves || self.tree[1] > now {
            return None;
        }
        let mut node = leaves + from;
        while self.tree[node] > now {
            // To the next subtree on the right.
            node >>= node.trailing_ones();
            if node == 0 {
                return None;
            }
            node += 1;
        }
        while node < leaves {
            node *= 2;
            if self.tree[node] > now {
                node += 1;
            }
        }
        Some(PortIndex(node - leaves))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    proptest! {
        #[test]
        fn a_set_has_what_was_put_in(
            ports in 1usize..10_000,
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..200),
            from in 0usize..12_000,
        ) {
            let mut set = PortSet::full(ports);
            let mut model: BTreeSet<_> = (0..ports).collect();
            // So that it is nearly empty, or nearly full.
            if changes.len() % 2 == 0 {
                model.clear();
                while set.pop().is_some() {}
            }
            for (port, is_in) in changes {
                let port = port.index(ports);
                set.set(PortIndex(port), is_in);
                if is_in { model.insert(port); } else { model.remove(&port); }
            }
            prop_assert_eq!(set.is_empty(), model.is_empty());
            prop_assert_eq!(set.next(PortIndex(from)), model.range(from..).next().copied().map(PortIndex));
            let popped: Vec<_> = std::iter::from_fn(|| set.pop()).map(|port| port.0).collect();
            prop_assert_eq!(popped, model.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn deadlines_are_found_in_the_order_of_ports(
            ports in 1usize..600,
            changes in prop::collection::vec(
                (any::<prop::sample::Index>(), prop::option::of(0u64..50)), 0..200),
            now in 0u64..60,
            from in 0usize..700,
        ) {
            let mut deadlines = Deadlines::new(ports);
            let mut model = BTreeMap::new();
            for (port, at) in changes {
                let port = port.index(ports);
                deadlines.set(PortIndex(port), at.map(Nanos));
                match at {
                    Some(at) => { model.insert(port, at); }
                    None => { model.remove(&port); }
                }
            }
            prop_assert_eq!(deadlines.first(), model.values().min().copied().map(Nanos));
            let due = model.range(from..).find(|(_, at)| **at <= now);
            let found = deadlines.next_due(PortIndex(from), Nanos(now));
            prop_assert_eq!(found, due.map(|(port, _)| PortIndex(*port)));
        }
    }
}
