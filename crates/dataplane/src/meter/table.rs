//! A bounded table of flows in the order of their last use.
//!
//! Entries lie in a slab that is allocated once, a cache line each. A hash index
//! finds them; a doubly linked list keeps them in the order of their last use.
//! Every operation is O(1), the hash index in expectation over its secret keys.
//!
//! Time is cut into grains, and an entry moves to the new end of the list at its
//! first use in a grain only: the other packets of a busy flow then touch its own
//! cache line and not its neighbours', and the order is exact to within one grain.

use crate::{FlowKey, GuestId};
use std::hash::{BuildHasher, RandomState};
use tailbound_units::Nanos;

const NIL: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Table<V> {
    slots: Vec<Slot<V>>,
    capacity: usize,
    /// Bits of a time within one grain.
    grain_bits: u32,
    /// No flow is idle before then, but for one grain.
    collect_at: Nanos,
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
    source: u32,
    older: u32,
    newer: u32,
    /// The next slot of the same hash chain.
    chain: u32,
}

impl<V> Slot<V> {
    #[inline]
    fn is(&self, key: FlowKey) -> bool {
        self.destination == halves(key.destination) && self.source == key.source.0
    }

    fn key(&self) -> FlowKey {
        let [upper, lower] = self.destination;
        FlowKey {
            source: GuestId(self.source),
            destination: u128::from(upper) << 64 | u128::from(lower),
        }
    }
}

const fn halves(destination: u128) -> [u64; 2] {
    [(destination >> 64) as u64, destination as u64]
}

impl<V: Copy> Table<V> {
    pub(super) fn new(capacity: usize, grain_bits: u32) -> Self {
        let capacity = capacity.clamp(1, 1 << 24);
        Self {
            slots: Vec::with_capacity(capacity),
            capacity,
            grain_bits,
            collect_at: Nanos::ZERO,
            collected: 0,
            evicted: 0,
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

    /// Finds `key`, or adds it with `fresh`. Its value, and the time since its last
    /// use, which is zero when it is new.
    #[inline]
    pub(super) fn touch(&mut self, now: Nanos, key: FlowKey, fresh: V) -> (&mut V, Nanos) {
        let chain = self.chain_of(key);
        let mut index = self.chains[chain];
        while let Some(slot) = self.slots.get(index as usize) {
            if slot.is(key) {
                if (slot.last.0 ^ now.0) >> self.grain_bits != 0 {
                    self.move_to_newest(index);
                }
                break;
            }
            index = slot.chain;
        }
        if index == NIL {
            index = self.add(now, key, fresh, chain);
        }
        let slot = &mut self.slots[index as usize];
        let since_last = now.since(slot.last);
        slot.last = now;
        (&mut slot.value, since_last)
    }

    /// Forgets the oldest flows that were idle for `idle`, at most `at_most` of
    /// them.
    #[inline]
    pub(super) fn collect(&mut self, now: Nanos, idle: Nanos, at_most: usize) {
        if now >= self.collect_at {
            self.collect_now(now, idle, at_most);
        }
    }

    #[cold]
    fn collect_now(&mut self, now: Nanos, idle: Nanos, at_most: usize) {
        for _ in 0..at_most {
            match self.slots.get(self.oldest as usize) {
                Some(slot) if now.since(slot.last) >= idle => self.remove(self.oldest),
                _ => break,
            }
            self.collected += 1;
        }
        let oldest = self.slots.get(self.oldest as usize);
        self.collect_at = oldest.map_or(now, |slot| slot.last).saturating_add(idle);
    }

    /// Adds every flow to `other`, oldest first.
    pub(super) fn move_into(&self, other: &mut Self) {
        let mut index = self.oldest;
        while let Some(slot) = self.slots.get(index as usize) {
            other.touch(slot.last, slot.key(), slot.value);
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
        if self.len == self.capacity {
            self.remove(self.oldest);
            self.evicted += 1;
        }
        let slot = Slot {
            destination: halves(key.destination),
            source: key.source.0,
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
    fn move_to_newest(&mut self, index: u32) {
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

/// Multilinear hashing (Lemire and Kaser, "Strongly universal string hashing is
/// fast", 2014; the form with half the multiplications): sums of 32-bit pieces and
/// 64-bit secret keys are multiplied in pairs; the upper half of the total.
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

    #[inline]
    fn of(&self, key: FlowKey) -> u32 {
        let [whole, source, pairs @ ..] = &self.keys;
        let pair = |half: u64, keys: [u64; 2]| {
            let upper = keys[0].wrapping_add(half >> 32);
            let lower = keys[1].wrapping_add(half & 0xffff_ffff);
            upper.wrapping_mul(lower)
        };
        let [upper, lower] = halves(key.destination);
        let total = whole
            .wrapping_add(source.wrapping_mul(u64::from(key.source.0)))
            .wrapping_add(pair(upper, [pairs[0], pairs[1]]))
            .wrapping_add(pair(lower, [pairs[2], pairs[3]]));
        (total >> 32) as u32
    }
}

#[cfg(test)]
mod tests;
