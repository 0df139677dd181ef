//! The summary of all hosts below a node, with which a search can skip the node, and its updates.

use super::Datacentre;
use crate::load::{Interval, Load};
use crate::topology::{NodeId, Resources};
use std::mem;
use std::ops::Range;
use std::sync::Arc;

/// Largest number of free slots of a host that the summary distinguishes.
pub(super) const STEPS: usize = 8;

/// Number of children, or of sums of children, in a sum: with 1,000 children the change of one
/// takes 80 steps.
const GROUP: usize = 64;

/// The summary of the hosts below a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Summary {
    /// Lower bound on the load at the ports of hosts below that have a free slot: up, down.
    pub(super) lightest: Option<[Load; 2]>,
    /// The most that any host below has free, each for itself.
    pub(super) largest: Resources,
    /// The free slots of all hosts below that have at least 1, 2, ... free.
    pub(super) by_least: [u32; STEPS],
}

impl Summary {
    /// Returns the free slots of all hosts that have at least `range.least` of them, with no more than
    /// `range.most` counted of any: an upper bound.
    pub(super) fn most_with(&self, range: Interval<u32>) -> u32 {
        let first = range.least.clamp(1, STEPS as u32);
        let slots = (first..=STEPS as u32).map(|free| {
            let of_these = self.by_least[free as usize - 1];
            let of_others = self.by_least.get(free as usize).copied().unwrap_or(0);
            // The last entry has all hosts with so many or more.
            let hosts = (of_these - of_others) / free;
            let is_last = free == STEPS as u32;
            let most = if is_last {
                range.most
            } else {
                range.most.min(free)
            };
            hosts.saturating_mul(most).min(of_these - of_others)
        });
        slots.sum()
    }
}

/// The free resources of the open hosts below some nodes, and their summary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) free: Resources,
    pub(super) summary: Summary,
}

impl Sum {
    /// Adds a host. Nothing is known of those without a free slot.
    fn add_host(&mut self, free: Resources, loads: &[Load; 2]) {
        if free.slots > 0 {
            for sum in self.summary.by_least.iter_mut().take(free.slots as usize) {
                *sum += free.slots;
            }
            self.add_bounds(free, free, Some(loads));
        }
    }

    /// Adds all hosts below another node.
    fn add(&mut self, free: Resources, summary: &Summary) {
        if free.slots > 0 {
            for (sum, slots) in self.summary.by_least.iter_mut().zip(summary.by_least) {
                *sum += slots;
            }
            self.add_bounds(free, summary.largest, summary.lightest.as_ref());
        }
    }

    fn add_bounds(&mut self, free: Resources, most: Resources, loads: Option<&[Load; 2]>) {
        self.free.slots += free.slots;
        self.free.cpu += free.cpu;
        self.free.memory += free.memory;
        let largest = &mut self.summary.largest;
        largest.slots = largest.slots.max(most.slots);
        largest.cpu = largest.cpu.max(most.cpu);
        largest.memory = largest.memory.max(most.memory);
        if let Some(loads) = loads {
            let had = self.summary.lightest.unwrap_or(*loads);
            self.summary.lightest = Some([had[0].lower(&loads[0]), had[1].lower(&loads[1])]);
        }
    }

    fn of(parts: &[Self]) -> Self {
        let mut sum = Self::default();
        for part in parts {
            sum.add(part.free, &part.summary);
        }
        sum
    }
}

/// Sums over up to [`GROUP`] children of a node each, sums over up to as many of these, and so on:
/// the change of one child of very many does not need a look at all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// Levels of sums; none if there are few children.
    levels: Vec<Vec<Sum>>,
}

impl Parts {
    /// Makes the sums for a number of children, all zero.
    pub(super) fn new(children: usize) -> Self {
        let mut levels = Vec::new();
        let mut count = children;
        while count > GROUP {
            count = count.div_ceil(GROUP);
            levels.push(vec![Sum::default(); count]);
        }
        Self { levels }
    }

    /// Returns the sum of all children, after some of them have `changed`, which are in ascending
    /// order. `sum_of` adds up a range of them.
    fn update(
        &mut self,
        children: usize,
        changed: impl Iterator<Item = usize>,
        sum_of: impl Fn(Range<usize>) -> Sum,
    ) -> Sum {
        if self.levels.is_empty() {
            return sum_of(0..children);
        }
        let mut changed: Vec<usize> = changed.collect();
        let mut count = children;
        for level in 0..self.levels.len() {
            for index in &mut changed {
                *index /= GROUP;
            }
            changed.dedup();
            let (below, above) = self.levels.split_at_mut(level);
            for &group in &changed {
                let range = group * GROUP..count.min((group + 1) * GROUP);
                above[0][group] = match below.last() {
                    None => sum_of(range),
                    Some(parts) => Sum::of(&parts[range]),
                };
            }
            count = above[0].len();
        }
        self.levels
            .last()
            .map_or_else(Sum::default, |parts| Sum::of(parts))
    }
}

impl Datacentre {
    /// Updates the summaries of all nodes above these, which have changed. They are in ascending
    /// order, each once.
    pub(super) fn refresh(&mut self, mut nodes: Vec<NodeId>) {
        while !nodes.is_empty() {
            for &node in &nodes {
                let height = usize::from(self.topology.height(node));
                let slots = self.free(node).slots;
                let is_untouched = slots == self.topology.resources(node).slots;
                let rank = self.rank[node.index()] as usize;
                self.slots[height].set(rank, slots, is_untouched);
            }
            let mut parents = Vec::new();
            // Children lie next to each other, in the order of their parents.
            let topology = Arc::clone(&self.topology);
            for siblings in nodes.chunk_by(|a, b| topology.parent(*a) == topology.parent(*b)) {
                if let Some(parent) = topology.parent(siblings[0]) {
                    self.summarise(parent, siblings);
                    parents.push(parent);
                }
            }
            // One that is above another one comes later again.
            nodes = parents;
        }
    }

    /// Updates the summary of a node, some of whose children have changed.
    fn summarise(&mut self, node: NodeId, changed: &[NodeId]) {
        let height = usize::from(self.topology.height(node)) - 1;
        let rank = self.rank[node.index()] as usize;
        let children = self.topology.child_range(node);
        let first = children.start as usize;
        // Taken out while this is read for it.
        let mut parts = mem::take(&mut self.parts[height][rank]);
        let changed = changed.iter().map(|child| child.index() - first);
        let sum = parts.update(children.len(), changed, |range| {
            self.sum_of(first + range.start..first + range.end)
        });
        self.parts[height][rank] = parts;
        self.free[node.index()] = sum.free;
        self.summaries[height][rank] = sum.summary;
    }

    /// Returns the sum of some nodes.
    pub(super) fn sum_of(&self, nodes: Range<usize>) -> Sum {
        let mut sum = Sum::default();
        for index in nodes {
            let node = NodeId(index as u32);
            match self.summary(node) {
                Some(summary) => sum.add(self.free[index], summary),
                None => sum.add_host(self.free(node), &self.loads.ordinary[index]),
            }
        }
        sum
    }

    /// Returns the summary of a node; None for a host.
    pub(super) fn summary(&self, node: NodeId) -> Option<&Summary> {
        let height = usize::from(self.topology.height(node)).checked_sub(1)?;
        Some(&self.summaries[height][self.rank[node.index()] as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A free slot of one of 1,000 children counts in the sum after a look at its group.
    #[test]
    fn a_change_of_one_of_very_many_children_reads_its_group_only() {
        let (slots, looks) = (Cell::new(2), Cell::new(0));
        let sum_of = |range: Range<usize>| {
            looks.set(looks.get() + range.len());
            let mut sum = Sum::default();
            sum.free.slots = range
                .map(|child| 1 + slots.get() * u32::from(child == 999))
                .sum();
            sum
        };
        let mut parts = Parts::new(1_000);
        let all = parts.update(1_000, 0..1_000, sum_of);
        assert_eq!((all.free.slots, looks.take()), (1_002, 1_000));
        slots.set(7);
        let all = parts.update(1_000, 999..1_000, sum_of);
        assert_eq!((all.free.slots, looks.take()), (1_007, 1_000 % GROUP));
    }
}
