//! The free resources of nodes. Machines that were adopted where they run may use more than their
//! host has: the excess is recorded, and released first.

use crate::topology::{NodeId, Resources};
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};
use tailbound_units::Bytes;

/// The free resources of each node, by its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FreeResources {
    nodes: Vec<Resources>,
    /// Use beyond a host's resources. No entry is zero.
    excess: BTreeMap<NodeId, Excess>,
}

/// Use of a host beyond its resources.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Excess {
    slots: u128,
    cpu: u128,
    memory: u128,
}

/// The use of some machines: slots, thousandths of a CPU, bytes of memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Use {
    pub(super) slots: u32,
    pub(super) cpu: u128,
    pub(super) memory: u128,
}

impl FreeResources {
    pub(super) fn new(nodes: Vec<Resources>) -> Self {
        Self {
            nodes,
            excess: BTreeMap::new(),
        }
    }

    /// Returns the hosts with more use than resources, in ascending order.
    pub(super) fn overfull(&self) -> impl Iterator<Item = NodeId> {
        self.excess.keys().copied()
    }

    /// Subtracts a use from a host's free resources.
    pub(super) fn take(&mut self, host: NodeId, amount: Use) {
        let free = &mut self.nodes[host.index()];
        let had = self.excess.get(&host).copied().unwrap_or_default();
        let (slots, over) = difference_and_excess(free.slots.into(), amount.slots.into());
        free.slots = slots as u32;
        let mut excess = Excess {
            slots: had.slots + over,
            ..had
        };
        let (cpu, over) = difference_and_excess(free.cpu.into(), amount.cpu);
        free.cpu = cpu as u64;
        excess.cpu += over;
        let (memory, over) = difference_and_excess(free.memory.0.into(), amount.memory);
        free.memory = Bytes(memory as u64);
        excess.memory += over;
        self.set(host, excess);
    }

    /// Adds a use that [`Self::take`] subtracted.
    pub(super) fn give(&mut self, host: NodeId, amount: Use) {
        let had = self.excess.get(&host).copied().unwrap_or_default();
        let free = &mut self.nodes[host.index()];
        let (slots, more) = difference_and_excess(had.slots, amount.slots.into());
        free.slots += more as u32;
        let (cpu, more) = difference_and_excess(had.cpu, amount.cpu);
        free.cpu += more as u64;
        let (memory, more) = difference_and_excess(had.memory, amount.memory);
        free.memory += Bytes(more as u64);
        self.set(host, Excess { slots, cpu, memory });
    }

    fn set(&mut self, host: NodeId, excess: Excess) {
        if excess == Excess::default() {
            self.excess.remove(&host);
        } else {
            self.excess.insert(host, excess);
        }
    }
}

/// Returns the rest of `from`, and the part of `amount` that it does not cover.
fn difference_and_excess(from: u128, amount: u128) -> (u128, u128) {
    (from.saturating_sub(amount), amount.saturating_sub(from))
}

impl Index<usize> for FreeResources {
    type Output = Resources;

    #[inline]
    fn index(&self, node: usize) -> &Resources {
        &self.nodes[node]
    }
}

impl IndexMut<usize> for FreeResources {
    #[inline]
    fn index_mut(&mut self, node: usize) -> &mut Resources {
        &mut self.nodes[node]
    }
}
