//! A bounded table of flows in the order of their last use.
//!
//! Entries are in a slab that is allocated once, a cache line each. A hash index finds them; a
//! doubly linked list orders them by their last use, and another one those of each guest. Every
//! operation is O(1), the hash index in expectation over its secret keys.
//!
//! Each guest has an equal share of the table, and may use more while there is room. If the table
//! is full, a guest at its share that adds a flow loses its own oldest flow; a guest below its
//! share replaces the oldest flow of a guest above its share. So no guest can evict flows of a
//! guest within its share.
//!
//! Time is divided into grains, and an entry moves to the new end of the list only at its first use
//! in a grain: other packets of a busy flow touch its own cache line and not its neighbours', and
//! the order is exact to within one grain. Idle entries are collected then, and whenever one is
//! added.

use crate::hash::{HashKeys, MultilinearHash, halves};
use crate::{FlowKey, GuestId};
use std::mem;
use tailbound_units::Nanos;

const NIL: u32 = u32::MAX;

/// `GRAIN_BITS`: bits of a time within one grain.
#[derive(Debug)]
pub(super) struct Table<V, const GRAIN_BITS: u32> {
    slots: Vec<Slot<V>>,
    /// The neighbours of each slot among the flows of its guest: separate, so that a slot is a
    /// cache line.
    own: Vec<Links>,
    capacity: usize,
    /// Idle time after which a flow is forgotten.
    idle: Nanos,
    /// Flows that were forgotten because they were idle.
    pub(super) collected: u64,
    /// Flows that were forgotten because another needed the room.
    pub(super) evicted: u64,
    /// First slot of each hash chain.
    chains: Box<[u32]>,
    hash: MultilinearHash,
    /// Unused slots, linked through `newer`.
    free: u32,
    order: Ends,
    len: usize,
    /// The flows of each guest, by its slot.
    owners: Vec<Owner>,
    /// Number of flows that each guest is guaranteed.
    share: usize,
    /// The first of the guests above their shares, linked through [`Owner::over`].
    over: u32,
}

/// The first and the last slot of a list in the order of last use.
#[derive(Debug, Clone, Copy)]
struct Ends {
    oldest: u32,
    newest: u32,
}

impl Ends {
    const EMPTY: Self = Self {
        oldest: NIL,
        newest: NIL,
    };
}

/// The neighbours in a list.
#[derive(Debug, Clone, Copy)]
struct Links {
    older: u32,
    newer: u32,
}

impl Links {
    const NONE: Self = Self {
        older: NIL,
        newer: NIL,
    };
}

/// The flows of a guest.
#[derive(Debug, Clone, Copy)]
struct Owner {
    flows: usize,
    order: Ends,
    /// The neighbours among the guests above their shares.
    over: Links,
}

#[derive(Debug)]
#[repr(align(64))]
struct Slot<V> {
    /// Upper and lower half: aligned as the other fields, so that the slot fits a cache line.
    destination: [u64; 2],
    value: V,
    last: Nanos,
    source: GuestId,
    /// Links among all flows; in an unused slot, `newer` is the next unused one.
    all: Links,
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

/// A flow that is used.
pub(super) struct Touched<'t, V> {
    pub(super) value: &'t mut V,
    /// The time since its last use; zero for a new flow.
    pub(super) since_last: Nanos,
    /// The slot, at its first use in a grain.
    pub(super) first: Option<u32>,
}

impl<V: Copy, const GRAIN_BITS: u32> Table<V, GRAIN_BITS> {
    pub(super) fn new(capacity: usize, idle: Nanos, keys: HashKeys) -> Self {
        let capacity = capacity.clamp(1, 1 << 24);
        Self {
            slots: Vec::with_capacity(capacity),
            own: Vec::with_capacity(capacity),
            capacity,
            idle,
            collected: 0,
            evicted: 0,
            chains: vec![NIL; (2 * capacity).next_power_of_two()].into_boxed_slice(),
            hash: MultilinearHash::new(keys),
            free: NIL,
            order: Ends::EMPTY,
            len: 0,
            owners: Vec::new(),
            share: capacity,
            over: NIL,
        }
    }

    /// Divides the table among this number of guests from now on.
    pub(super) fn share_among(&mut self, guests: usize) {
        self.share = (self.capacity / guests.max(1)).max(1);
        self.over = NIL;
        for index in 0..self.owners.len() as u32 {
            self.owners[index as usize].over = Links::NONE;
            if self.owners[index as usize].flows > self.share {
                self.link_over(index);
            }
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Finds `key`, or adds it with `fresh`. The caller then calls [`Table::touched`] with the
    /// entry's `first`.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "one caller, once for every packet")]
    pub(super) fn touch(
        &mut self,
        now: Nanos,
        key: FlowKey,
        fresh: impl FnOnce() -> V,
    ) -> Touched<'_, V> {
        let chain = self.chain_of(key);
        let mut index = self.chains[chain];
        loop {
            match self.slots.get(index as usize) {
                Some(slot) if slot.is(key) => break,
                Some(slot) => index = slot.chain,
                None => {
                    let [upper, lower] = halves(key.destination);
                    return self.add_and_touch(now, key.source, upper, lower, fresh(), chain);
                }
            }
        }
        let slot = &mut self.slots[index as usize];
        let last = mem::replace(&mut slot.last, now);
        Touched {
            value: &mut slot.value,
            // A clock that goes back, which is forbidden, counts as a long time.
            since_last: Nanos(now.0.wrapping_sub(last.0)),
            first: ((last.0 ^ now.0) >> GRAIN_BITS != 0).then_some(index),
        }
    }

    /// Completes [`Table::touch`]: at the first use in a grain, the flow becomes the newest.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "one caller, once for every packet")]
    pub(super) fn touched(&mut self, now: Nanos, first: Option<u32>) {
        if let Some(index) = first {
            self.move_to_newest(index, now);
        }
    }

    /// Adds a flow by the parts of its key, which are computed only here.
    #[cold]
    #[inline(never)]
    fn add_and_touch(
        &mut self,
        now: Nanos,
        source: GuestId,
        upper: u64,
        lower: u64,
        fresh: V,
        chain: usize,
    ) -> Touched<'_, V> {
        let destination = u128::from(upper) << 64 | u128::from(lower);
        let key = FlowKey {
            source,
            destination,
        };
        let index = self.add(now, key, fresh, chain);
        Touched {
            value: &mut self.slots[index as usize].value,
            since_last: Nanos::ZERO,
            first: None,
        }
    }

    /// Forgets the oldest flows that are idle: at most two, which is more than the one that each
    /// call may add.
    fn collect(&mut self, now: Nanos) {
        for _ in 0..2 {
            let oldest = self.order.oldest;
            match self.slots.get(oldest as usize) {
                Some(slot) if now.since(slot.last) >= self.idle => self.remove(oldest),
                _ => break,
            }
            self.collected += 1;
        }
    }

    /// Adds every flow to `other`, oldest first.
    pub(super) fn move_into(&self, other: &mut Self) {
        let mut index = self.order.oldest;
        while let Some(slot) = self.slots.get(index as usize) {
            other.touch(slot.last, slot.key(), || slot.value);
            index = slot.all.newer;
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

    fn add(&mut self, now: Nanos, key: FlowKey, value: V, chain: usize) -> u32 {
        self.collect(now);
        let owner = self.owner(key.source);
        if self.len == self.capacity {
            self.remove(self.victim(owner));
            self.evicted += 1;
        }
        let slot = Slot {
            destination: halves(key.destination),
            source: key.source,
            value,
            last: now,
            all: Links::NONE,
            chain: self.chains[chain],
        };
        let index = if self.free == NIL {
            self.slots.push(slot);
            self.own.push(Links::NONE);
            self.slots.len() as u32 - 1
        } else {
            let index = self.free;
            self.free = self.slots[index as usize].all.newer;
            self.slots[index as usize] = slot;
            index
        };
        self.chains[chain] = index;
        self.link_newest(index);
        self.len += 1;
        self.owners[owner as usize].flows += 1;
        if self.owners[owner as usize].flows == self.share + 1 {
            self.link_over(owner);
        }
        index
    }

    /// Returns the index of a guest among the owners, and adds it if it is new.
    fn owner(&mut self, guest: GuestId) -> u32 {
        while self.owners.len() <= guest.slot() {
            self.owners.push(Owner {
                flows: 0,
                order: Ends::EMPTY,
                over: Links::NONE,
            });
        }
        guest.slot() as u32
    }

    /// Returns the flow that a full table forgets for a flow of `owner`.
    fn victim(&self, owner: u32) -> u32 {
        let Owner { flows, order, .. } = self.owners[owner as usize];
        if flows >= self.share {
            return order.oldest;
        }
        // Without a guest above its share, flows of removed guests remain.
        let over = self.owners.get(self.over as usize);
        over.map_or(self.order.oldest, |over| over.order.oldest)
    }

    fn link_over(&mut self, owner: u32) {
        let next = mem::replace(&mut self.over, owner);
        self.owners[owner as usize].over = Links {
            older: NIL,
            newer: next,
        };
        if let Some(next) = self.owners.get_mut(next as usize) {
            next.over.older = owner;
        }
    }

    fn unlink_over(&mut self, owner: u32) {
        let Links { older, newer } = self.owners[owner as usize].over;
        match self.owners.get_mut(older as usize) {
            Some(before) => before.over.newer = newer,
            None => self.over = newer,
        }
        if let Some(after) = self.owners.get_mut(newer as usize) {
            after.over.older = older;
        }
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
        let slot = &mut self.slots[index as usize];
        slot.all.newer = self.free;
        self.free = index;
        self.len -= 1;
        let owner = slot.source.slot();
        if self.owners[owner].flows == self.share + 1 {
            self.unlink_over(owner as u32);
        }
        self.owners[owner].flows -= 1;
    }

    #[cold]
    #[inline(never)]
    fn move_to_newest(&mut self, index: u32, now: Nanos) {
        self.collect(now);
        if index != self.order.newest {
            self.unlink(index);
            self.link_newest(index);
        }
    }

    fn unlink(&mut self, index: u32) {
        let Slot { all, source, .. } = self.slots[index as usize];
        let own = self.own[index as usize];
        let owner = &mut self.owners[source.slot()].order;
        unlink(&mut self.slots, &mut self.order, all, |slot| &mut slot.all);
        unlink(&mut self.own, owner, own, |links| links);
    }

    fn link_newest(&mut self, index: u32) {
        let owner = self.slots[index as usize].source.slot();
        let owner = &mut self.owners[owner].order;
        link_newest(&mut self.slots, &mut self.order, index, |slot| {
            &mut slot.all
        });
        link_newest(&mut self.own, owner, index, |links| links);
    }
}

/// Takes an entry with these neighbours out of the list of `ends`.
fn unlink<E>(
    entries: &mut [E],
    ends: &mut Ends,
    Links { older, newer }: Links,
    of: impl Fn(&mut E) -> &mut Links,
) {
    match entries.get_mut(older as usize) {
        Some(entry) => of(entry).newer = newer,
        None => ends.oldest = newer,
    }
    match entries.get_mut(newer as usize) {
        Some(entry) => of(entry).older = older,
        None => ends.newest = older,
    }
}

/// Puts an entry at the new end of the list of `ends`.
fn link_newest<E>(
    entries: &mut [E],
    ends: &mut Ends,
    index: u32,
    of: impl Fn(&mut E) -> &mut Links,
) {
    let newest = mem::replace(&mut ends.newest, index);
    *of(&mut entries[index as usize]) = Links {
        older: newest,
        newer: NIL,
    };
    match entries.get_mut(newest as usize) {
        Some(entry) => of(entry).newer = index,
        None => ends.oldest = index,
    }
}

#[cfg(test)]
mod tests;
