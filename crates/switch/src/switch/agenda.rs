//! Work by port: a turn visits only the ports that have work.
//!
//! The agenda has a set of ports for each kind of [`Work`], and a time per port for each
//! [`Timer`].

use crate::index::PortIndex;
use tailbound_units::Nanos;

/// Work that a port has now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// To receive from it, or to forward its received frames.
    Ready,
    /// To copy its frames to all others.
    Copying,
    /// To send frames to its guest, which may leave now.
    Sending,
    /// To look whether its guest has arrived or left.
    Moved,
    /// To report the events that are awaited at it.
    Changed,
}

impl Work {
    const COUNT: usize = Self::Changed as usize + 1;
}

/// Work that a port has at a known time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timer {
    /// The queued frames of a guest's port may leave.
    Departure,
    /// A guest's limit releases the next frame.
    Release,
    /// A guest's ingress retries.
    Retry,
    /// The port's own timer.
    Port,
}

impl Timer {
    const COUNT: usize = Self::Port as usize + 1;
}

/// Work by port.
#[derive(Debug)]
pub(super) struct Agenda {
    work: [PortSet; Work::COUNT],
    timers: [Deadlines; Timer::COUNT],
    /// The earliest time of all timers, or [`NEVER`].
    first: Nanos,
    /// True while the switch is drained: no port is read.
    is_draining: bool,
}

impl Default for Agenda {
    fn default() -> Self {
        Self {
            work: Default::default(),
            timers: Default::default(),
            first: NEVER,
            is_draining: false,
        }
    }
}

impl Agenda {
    /// Returns true if ports are read; false while the switch is drained.
    pub(super) const fn is_read(&self) -> bool {
        !self.is_draining
    }

    /// Sets whether ports are read; returns the former value.
    pub(super) const fn replace_read(&mut self, is_read: bool) -> bool {
        !std::mem::replace(&mut self.is_draining, !is_read)
    }

    /// Lets the limit of a guest release frames in the next turn.
    pub(super) fn release_soon(&mut self, port: PortIndex) {
        self.set_timer(Timer::Release, port, Some(Nanos::ZERO));
    }

    /// Adds work of a port, or removes it.
    #[inline]
    pub(super) fn set(&mut self, work: Work, port: PortIndex, is_in: bool) {
        self.work[work as usize].set(port, is_in);
    }

    /// Returns true if the port has the work.
    pub(super) fn has(&self, work: Work, port: PortIndex) -> bool {
        self.work[work as usize].has(port)
    }

    /// Returns the first port with the work at or behind `from`.
    #[inline]
    pub(super) fn next(&self, work: Work, from: PortIndex) -> Option<PortIndex> {
        self.work[work as usize].next(from)
    }

    /// Removes the work of the first port that has it; returns that port.
    #[inline]
    pub(super) fn pop(&mut self, work: Work) -> Option<PortIndex> {
        self.work[work as usize].pop()
    }

    /// Returns true if no port has the work.
    #[inline]
    pub(super) fn is_empty(&self, work: Work) -> bool {
        self.work[work as usize].is_empty()
    }

    /// Sets a timer of a port, or stops it.
    #[inline]
    pub(super) fn set_timer(&mut self, timer: Timer, port: PortIndex, at: Option<Nanos>) {
        let at = at.unwrap_or(NEVER);
        // Most timers stay.
        if !self.timers[timer as usize].is_set(port, at) {
            self.change_timer(timer, port, at);
        }
    }

    #[inline(never)]
    fn change_timer(&mut self, timer: Timer, port: PortIndex, at: Nanos) {
        self.timers[timer as usize].set(port, at);
        self.find_first();
    }

    /// Finds the earliest time of all timers.
    fn find_first(&mut self) {
        let firsts = self.timers.iter().map(Deadlines::first);
        self.first = firsts.min().unwrap_or(NEVER);
    }

    /// Returns true if any timer is due.
    #[inline]
    pub(super) fn has_due(&self, now: Nanos) -> bool {
        self.first <= now
    }

    /// Returns true if the timer of a port is due.
    pub(super) fn is_due(&self, timer: Timer, port: PortIndex, now: Nanos) -> bool {
        self.timers[timer as usize]
            .get(port)
            .is_some_and(|at| at <= now)
    }

    /// Returns the first port at or behind `from` whose timer is due.
    #[inline]
    pub(super) fn next_due(&self, timer: Timer, from: PortIndex, now: Nanos) -> Option<PortIndex> {
        self.timers[timer as usize].next_due(from, now)
    }

    /// Returns the time of the next work that no event announces.
    #[inline]
    pub(super) fn poll_at(&self) -> Option<Nanos> {
        if !self.is_empty(Work::Sending) || !self.is_empty(Work::Moved) {
            return Some(Nanos::ZERO);
        }
        (self.first != NEVER).then_some(self.first)
    }

    /// Sets the time at which the next queued frame of a guest's port may leave: now, later, or not
    /// before another event.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "for each port that sends")]
    pub(super) fn set_departure(&mut self, now: Nanos, port: PortIndex, at: Option<Nanos>) {
        self.set(Work::Sending, port, at.is_some_and(|at| at <= now));
        self.set_timer(Timer::Departure, port, at.filter(|at| *at > now));
    }

    /// Adds the work of sending for all ports whose next frame may leave by now.
    #[inline]
    pub(super) fn begin_departures(&mut self, now: Nanos) {
        if self.has_due(now) {
            self.add_departures(now);
        }
    }

    fn add_departures(&mut self, now: Nanos) {
        let mut next = PortIndex::FIRST;
        while let Some(due) = self.next_due(Timer::Departure, next, now) {
            next = due.next();
            self.set_departure(now, due, Some(Nanos::ZERO));
        }
    }

    /// Makes room for the ports before `end`, all of which may have work.
    pub(super) fn reset(&mut self, PortIndex(ports): PortIndex) {
        self.work = std::array::from_fn(|_| PortSet::full(ports));
        self.timers = std::array::from_fn(|_| Deadlines::new(ports));
        self.find_first();
    }

    /// Moves ports to other places; `before` has the former index of each. Their work goes with
    /// them, and new ones have none.
    pub(super) fn rearrange(&mut self, before: &[Option<PortIndex>]) {
        for set in &mut self.work {
            let old = std::mem::replace(set, PortSet::new(before.len()));
            for (port, before) in before.iter().enumerate() {
                if before.is_some_and(|before| old.has(before)) {
                    set.set(PortIndex(port), true);
                }
            }
        }
        for deadlines in &mut self.timers {
            let old = std::mem::replace(deadlines, Deadlines::new(before.len()));
            for (port, before) in before.iter().enumerate() {
                let at = before.and_then(|before| old.get(before));
                deadlines.set(PortIndex(port), at.unwrap_or(NEVER));
            }
        }
        self.find_first();
    }
}

/// Returns the earlier one of two times.
#[inline]
pub(super) fn earlier(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// A set of ports, in their order. An iteration costs a step for each port in it, and one for each
/// 4,096 others.
#[derive(Debug, Default, Clone)]
struct PortSet {
    words: Vec<u64>,
    /// One bit for each word of `words` that is not zero.
    summary: Vec<u64>,
    /// The number of ports in the set.
    len: usize,
}

impl PortSet {
    /// Makes an empty set for `ports` ports.
    fn new(ports: usize) -> Self {
        let words = ports.div_ceil(64);
        Self {
            words: vec![0; words],
            summary: vec![0; words.div_ceil(64)],
            len: 0,
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
    #[inline]
    fn set(&mut self, port: PortIndex, is_in: bool) {
        // Most ports have the work that they had.
        if self.has(port) != is_in {
            self.change(port, is_in);
        }
    }

    fn change(&mut self, PortIndex(port): PortIndex, is_in: bool) {
        let word = port / 64;
        self.words[word] ^= 1 << (port % 64);
        self.len = if is_in { self.len + 1 } else { self.len - 1 };
        let summary = 1 << (word % 64);
        if is_in {
            self.summary[word / 64] |= summary;
        } else if self.words[word] == 0 {
            self.summary[word / 64] &= !summary;
        }
    }

    /// Returns true if the agenda has the port.
    #[inline]
    fn has(&self, PortIndex(port): PortIndex) -> bool {
        let word = self.words.get(port / 64);
        word.is_some_and(|word| word >> (port % 64) & 1 != 0)
    }

    #[inline]
    const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the first port of the set at or after `from`.
    #[inline]
    fn next(&self, from: PortIndex) -> Option<PortIndex> {
        if self.is_empty() {
            return None;
        }
        self.find(from)
    }

    /// Does the same for a set that is not empty.
    fn find(&self, PortIndex(from): PortIndex) -> Option<PortIndex> {
        let first = from / 64;
        let here = self.words.get(first)? >> (from % 64);
        if here != 0 {
            return Some(PortIndex(from + here.trailing_zeros() as usize));
        }
        if first + 1 >= self.words.len() {
            return None;
        }
        let word = next_bit(&self.summary, first + 1)?;
        let bit = self.words[word].trailing_zeros() as usize;
        Some(PortIndex(word * 64 + bit))
    }

    /// Removes and returns the first port.
    #[inline]
    fn pop(&mut self) -> Option<PortIndex> {
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
struct Deadlines {
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

    /// Returns true if a port has this deadline, which may be [`NEVER`].
    #[inline]
    fn is_set(&self, PortIndex(port): PortIndex, at: Nanos) -> bool {
        self.tree[self.leaves() + port] == at
    }

    /// Sets a port's deadline; [`NEVER`] removes it.
    fn set(&mut self, PortIndex(port): PortIndex, at: Nanos) {
        let mut node = self.leaves() + port;
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
    fn get(&self, PortIndex(port): PortIndex) -> Option<Nanos> {
        let at = self.tree.get(self.leaves() + port).copied();
        at.filter(|at| *at != NEVER)
    }

    /// Returns the earliest deadline; [`NEVER`] without one.
    fn first(&self) -> Nanos {
        self.tree.get(1).copied().unwrap_or(NEVER)
    }

    /// Returns the first port at or after `from` whose deadline is not after `now`.
    #[inline]
    fn next_due(&self, from: PortIndex, now: Nanos) -> Option<PortIndex> {
        let first = self.tree.get(1)?;
        if *first > now {
            return None;
        }
        self.find_due(from, now)
    }

    fn find_due(&self, PortIndex(from): PortIndex, now: Nanos) -> Option<PortIndex> {
        let leaves = self.leaves();
        if from >= leaves {
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
        fn the_port_set_behaves_as_an_ordered_set(
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
                deadlines.set(PortIndex(port), at.map_or(NEVER, Nanos));
                match at {
                    Some(at) => { model.insert(port, at); }
                    None => { model.remove(&port); }
                }
            }
            let first = model.values().min().copied();
            prop_assert_eq!(deadlines.first(), first.map_or(NEVER, Nanos));
            let due = model.range(from..).find(|(_, at)| **at <= now);
            let found = deadlines.next_due(PortIndex(from), Nanos(now));
            prop_assert_eq!(found, due.map(|(port, _)| PortIndex(*port)));
        }

        #[test]
        fn the_earliest_timer_of_all_kinds_is_known(
            ports in 1usize..100,
            changes in prop::collection::vec(
                (0usize..Timer::COUNT, any::<prop::sample::Index>(), prop::option::of(1u64..50)), 0..100),
        ) {
            const TIMERS: [Timer; Timer::COUNT] =
                [Timer::Departure, Timer::Release, Timer::Retry, Timer::Port];
            let mut agenda = Agenda::default();
            agenda.reset(PortIndex(ports));
            for work in [Work::Sending, Work::Moved] {
                while agenda.pop(work).is_some() {}
            }
            let mut model = BTreeMap::new();
            for (timer, port, at) in changes {
                let port = port.index(ports);
                agenda.set_timer(TIMERS[timer], PortIndex(port), at.map(Nanos));
                match at {
                    Some(at) => { model.insert((timer, port), at); }
                    None => { model.remove(&(timer, port)); }
                }
                let first = model.values().min().copied().map(Nanos);
                prop_assert_eq!(agenda.poll_at(), first);
                prop_assert_eq!(agenda.has_due(Nanos(25)), first.is_some_and(|at| at.0 <= 25));
            }
        }
    }
}
