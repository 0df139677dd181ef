//! The event queue: who acts next.

use super::Time;

/// A node of a [`super::Simulation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Its place among the nodes.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// When each node acts next, and who is first.
///
/// A node has one time or none, so that an event is a pair (time, node) and no
/// two are equal: **of equal times the lower node is first**, whatever the order
/// in which they were set. Time is free to go back and forth; nothing is ever
/// left in the queue that must be skipped.
///
/// A tournament of all nodes: leaves are their times, every inner node the
/// earlier one of the two below it. To set a time is to play its matches again,
/// log2(n) of them, without a branch that could be guessed wrong. Measured
/// against a binary heap, heaps of 4 and of 8 and a calendar it is the fastest
/// up to some thousand nodes, and needs no setting; `examples/events.rs`.
#[derive(Debug, Clone)]
pub struct TournamentQueue {
    /// From place 1 on, the children of `i` being `2i` and `2i + 1`; the second
    /// half are the leaves.
    matches: Vec<(Time, u32)>,
}

impl TournamentQueue {
    /// For `nodes` nodes, none of which has a time.
    pub fn new(nodes: usize) -> Self {
        let leaves = nodes.next_power_of_two();
        let mut matches = vec![(Time::NEVER, 0); 2 * leaves];
        for (index, leaf) in matches[leaves..].iter_mut().enumerate() {
            leaf.1 = index as u32;
        }
        for index in (1..leaves).rev() {
            matches[index] = matches[2 * index];
        }
        Self { matches }
    }

    /// When the node acts; [`Time::NEVER`] if it does not.
    pub fn time_of(&self, node: NodeId) -> Time {
        self.matches[self.matches.len() / 2 + node.index()].0
    }

    /// Sets when the node acts, in place of what was set before.
    pub fn set(&mut self, node: NodeId, time: Time) {
        let mut place = self.matches.len() / 2 + node.index();
        self.matches[place].0 = time;
        while place > 1 {
            place /= 2;
            let (left, right) = (self.matches[2 * place], self.matches[2 * place + 1]);
            // Nodes on the left are lower.
            self.matches[place] = if right.0 < left.0 { right } else { left };
        }
    }

    /// The next time, and the node that acts then; [`Time::NEVER`] if none does.
    pub fn first(&self) -> (Time, NodeId) {
        let (time, node) = self.matches[1];
        (time, NodeId(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_is_the_earliest_and_of_equals_the_lowest(
            nodes in 1..40_usize, sets in prop::collection::vec((any::<prop::sample::Index>(), 0..9_u64), 0..200),
        ) {
            let mut queue = TournamentQueue::new(nodes);
            let mut times = vec![Time::NEVER; nodes];
            for (node, time) in sets {
                let node = node.index(nodes);
                // One in nine is to do nothing any more.
                times[node] = if time == 8 { Time::NEVER } else { Time(time) };
                queue.set(NodeId(node as u32), times[node]);
                let first = times.iter().enumerate().map(|(node, time)| (*time, node)).min().unwrap();
                let (time, found) = queue.first();
                prop_assert_eq!(time, first.0);
                prop_assert!(time == Time::NEVER || found.index() == first.1);
                prop_assert_eq!(queue.time_of(NodeId(node as u32)), times[node]);
            }
        }
    }
}
