//! A bounded table of flows in the order of their last use.
//!
//! Entries lie in a slab that is allocated once, a cache line each. A hash index
//! finds them; a doubly linked list keeps them in the order of their last use.
//! Every operation is O(1), the hash index in expectation over its secret keys.
//!
//! Time is cut into grains, and an entry moves to the new end of the list at its
//! first use in a grain only: the other packets of a busy flow then touch its own
//! cache line and not its neighbours', and the order is exact to within one grain.
//! Idle entries are collected then, and whenever one is added.

use crate::hash::{HashKeys, MultilinearHash, halves};
use crate::{FlowKey, GuestId};
use std::mem;
use tailbound_units::Nanos;

const NIL: u32 = u32::MAX;

/// `GRAIN_BITS`: bits of a time within one grain.
#[derive(Debug)]
pub(super) struct Table<V, const GRAIN_BITS: u32> {
    slots: Vec<Slot<V>>,
    capacity: usize,
    /// After what time without use a flow is forgotten.
    idle: Nanos,
    /// Flows forgotten since they were idle.
    pub(super) collected: u64,
    /// Flows forgotten since another needed the room.
    pub(super) evicted: u64,
    /// First slot of each hash chain.
    chains: Box<[u32]>,
    hash: MultilinearHash,
    /// Unused slots, linked through `newer`.
    free: u32,
    oldest: u32,
    newest: u32,
    len: usize,
}

#[derive(Debug)]
#[repr(align(64))]
struct Slot<V> {
    /// Upper and lower half: aligned as the rest is, so that all of it fits.
    destination: [u64; 2],
    value: V,
    last: Nanos,
    source: GuestId,
    older: u32,
    newer: u32,
    /// The next slot of the same hash chain.
    chain: u32,
}

impl<V> Slot<V> {
    #[inline]
    fn is(&self, key: FlowKey) -> bool {
        self.destination == halves(key.destination) && self.source == key.source
    }

    fn key(&self) -> FlowKey {
        let [upper, lower] = self.destination;
        FlowKey {
            source: self.source,
            destination: u128::from(upper) << 64 | u128::from(lower),
        }
    }
}

impl<V: Copy, const GRAIN_BITS: u32> Table<V, GRAIN_BITS> {
    pub(super) fn new(capacity: usize, idle: Nanos, keys: HashKeys) -> Self {
        let capacity = capacity.clamp(1, 1 << 24);
        Self {
            slots: Vec::with_capacity(capacity),
            capacity,
            idle,
            collected: 0,
            evicted: 0,
            chains: vec![NIL; (2 * capacity).next_power_of_two()].into_boxed_slice(),
            hash: MultilinearHash::new(keys),
            free: NIL,
            oldest: NIL,
            newest: NIL,
            len: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Finds `key`, or adds it with `fresh`, and lets `update` have its value and
    /// the time since its last use, which is zero when it is new.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "one caller, once for every packet")]
    pub(super) fn touch<R>(
        &mut self,
        now: Nanos,
        key: FlowKey,
        fresh: V,
        update: impl FnOnce(&mut V, Nanos) -> R,
    ) -> R {
        let chain = self.chain_of(key);
        let mut index = self.chains[chain];
        loop {
            let Some(slot) = self.slots.get_mut(index as usize) else {
                index = self.add(now, key, fresh, chain);
                continue;
            };
            if !slot.is(key) {
                index = slot.chain;
                continue;
            }
            let last = mem::replace(&mut slot.last, now);
            // A clock that goes back, which it must not, is taken for a long time.
            let result = update(&mut slot.value, Nanos(now.0.wrapping_sub(last.0)));
            if (last.0 ^ now.0) >> GRAIN_BITS != 0 {
                self.move_to_newest(index, now);
            }
            return result;
        }
    }

    /// Forgets the oldest flows that were idle for long enough: at most two, which
    /// is more than the one that may come with each call.
    fn collect(&mut self, now: Nanos) {
        for _ in 0..2 {
            match self.slots.get(self.oldest as usize) {
                Some(slot) if now.since(slot.last) >= self.idle => self.remove(self.oldest),
                _ => break,
            }
            self.collected += 1;
        }
    }

    /// Adds every flow to `other`, oldest first.
    pub(super) fn move_into(&self, other: &mut Self) {
        let mut index = self.oldest;
        while let Some(slot) = self.slots.get(index as usize) {
            other.touch(slot.last, slot.key(), slot.value, |_, _| ());
            index = slot.newer;
        }
    }

    pub(super) fn for_each(&mut self, mut each: impl FnMut(&mut V)) {
        for slot in &mut self.slots {
            each(&mut slot.value);
        }
    }

    #[inline]
    fn chain_of(&self, key: FlowKey) -> usize {
        self.hash.of(key) as usize & (self.chains.len() - 1)
    }

    #[cold]
    fn add(&mut self, now: Nanos, key: FlowKey, value: V, chain: usize) -> u32 {
        self.collect(now);
        if self.len == self.capacity {
            self.remove(self.oldest);
            self.evicted += 1;
        }
        let slot = Slot {
            destination: halves(key.destination),
            source: key.source,
            value,
            last: now,
            older: NIL,
            newer: NIL,
            chain: self.chains[chain],
        };
        let index = if self.free == NIL {
            self.slots.push(slot);
            self.slots.len() as u32 - 1
        } else {
            let index = self.free;
            self.free = self.slots[index as usize].newer;
            self.slots[index as usize] = slot;
            index
        };
        self.chains[chain] = index;
        self.link_newest(index);
        self.len += 1;
        index
    }

    fn remove(&mut self, index: u32) {
        let chain = self.chain_of(self.slots[index as usize].key());
        let after = self.slots[index as usize].chain;
        let mut at = self.chains[chain];
        if at == index {
            self.chains[chain] = after;
        } else {
            while self.slots[at as usize].chain != index {
                at = self.slots[at as usize].chain;
            }
            self.slots[at as usize].chain = after;
        }
        self.unlink(index);
        self.slots[index as usize].newer = self.free;
        self.free = index;
        self.len -= 1;
    }

    #[cold]
    fn move_to_newest(&mut self, index: u32, now: Nanos) {
        self.collect(now);
        if index != self.newest {
            self.unlink(index);
            self.link_newest(index);
        }
    }

    fn unlink(&mut self, index: u32) {
        let Slot { older, newer, .. } = self.slots[index as usize];
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
    }

    fn link_newest(&mut self, index: u32) {
        let newest = self.newest;
        let slot = &mut self.slots[index as usize];
        slot.older = newest;
        slot.newer = NIL;
        match self.slots.get_mut(newest as usize) {
            Some(slot) => slot.newer = index,
            None => self.oldest = index,
        }
        self.newest = index;
    }
}

#[cfg(test)]
mod tests;
