//! A bounded table of flows in the order of their last use.
//!
//! Entries lie in a slab that is allocated once. A hash index finds them; a
//! doubly linked list keeps them in the order of their last use. Every operation
//! is O(1), the hash index in expectation over its secret keys.

use crate::FlowKey;
use std::hash::{BuildHasher, RandomState};
use tailbound_units::Nanos;

const NIL: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Table<V> {
    slots: Vec<Slot<V>>,
    capacity: usize,
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
struct Slot<V> {
    key: FlowKey,
    value: V,
    last: Nanos,
    older: u32,
    newer: u32,
    /// The next slot of the same hash chain.
    chain: u32,
}

/// A flow that was just used.
pub(super) struct Touched<'a, V> {
    pub(super) value: &'a mut V,
    /// Time since its last use; zero when it is new.
    pub(super) since_last: Nanos,
    /// Whether another had to go for it.
    pub(super) evicted: bool,
}

impl<V: Copy> Table<V> {
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, 1 << 24);
        Self {
            slots: Vec::with_capacity(capacity),
            capacity,
            chains: vec![NIL; (2 * capacity).next_power_of_two()].into_boxed_slice(),
            hash: MultilinearHash::new(),
            free: NIL,
            oldest: NIL,
            newest: NIL,
            len: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Finds `key`, or adds it with `fresh`, and makes it the newest.
    pub(super) fn touch(&mut self, now: Nanos, key: FlowKey, fresh: V) -> Touched<'_, V> {
        let chain = self.chain_of(key);
        let mut index = self.chains[chain];
        while index != NIL {
            let slot = &self.slots[index as usize];
            if slot.key == key {
                break;
            }
            index = slot.chain;
        }
        let mut evicted = false;
        let since_last = if index == NIL {
            if self.len == self.capacity {
                self.remove(self.oldest);
                evicted = true;
            }
            index = self.add(now, key, fresh, chain);
            Nanos::ZERO
        } else {
            let since_last = now.since(self.slots[index as usize].last);
            if index != self.newest {
                self.unlink(index);
                self.link_newest(index);
            }
            since_last
        };
        let slot = &mut self.slots[index as usize];
        slot.last = slot.last.max(now);
        Touched {
            value: &mut slot.value,
            since_last,
            evicted,
        }
    }

    /// Forgets the oldest flows that were idle for `idle`, at most `at_most` of
    /// them, and says how many.
    pub(super) fn collect(&mut self, now: Nanos, idle: Nanos, at_most: usize) -> u64 {
        let mut collected = 0;
        for _ in 0..at_most {
            match self.slots.get(self.oldest as usize) {
                Some(slot) if now.since(slot.last) >= idle => self.remove(self.oldest),
                _ => break,
            }
            collected += 1;
        }
        collected
    }

    /// Adds every flow to `other`, oldest first.
    pub(super) fn move_into(&self, other: &mut Self) {
        let mut index = self.oldest;
        while let Some(slot) = self.slots.get(index as usize) {
            other.touch(slot.last, slot.key, slot.value);
            index = slot.newer;
        }
    }

    pub(super) fn for_each(&mut self, mut each: impl FnMut(&mut V)) {
        for slot in &mut self.slots {
            each(&mut slot.value);
        }
    }

    fn chain_of(&self, key: FlowKey) -> usize {
        self.hash.of(key) as usize & (self.chains.len() - 1)
    }

    fn add(&mut self, now: Nanos, key: FlowKey, value: V, chain: usize) -> u32 {
        let slot = Slot {
            key,
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
        let chain = self.chain_of(self.slots[index as usize].key);
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

/// Multilinear hashing (Lemire and Kaser, "Strongly universal string hashing is
/// fast", 2014): a sum of 32-bit pieces times 64-bit secret keys, upper half.
///
/// For any two different flows the chance that they meet in a chain, over the
/// keys, is that of a random function; a guest that does not know the keys cannot
/// choose destinations that meet. The keys come from the standard library's
/// random state. They change nothing but the order inside the chains, so results
/// do not depend on them.
#[derive(Debug)]
struct MultilinearHash {
    keys: [u64; 6],
}

impl MultilinearHash {
    fn new() -> Self {
        let random = RandomState::new();
        Self {
            keys: std::array::from_fn(|i| random.hash_one(i)),
        }
    }

    fn of(&self, key: FlowKey) -> u32 {
        let destination = key.destination;
        let pieces = [
            u64::from(key.source.0),
            (destination & 0xffff_ffff) as u64,
            (destination >> 32 & 0xffff_ffff) as u64,
            (destination >> 64 & 0xffff_ffff) as u64,
            (destination >> 96) as u64,
        ];
        let [first, rest @ ..] = &self.keys;
        let mut total = *first;
        for (piece, key) in pieces.into_iter().zip(rest) {
            total = total.wrapping_add(piece.wrapping_mul(*key));
        }
        (total >> 32) as u32
    }
}

#[cfg(test)]
mod tests;
