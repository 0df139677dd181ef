//! A bounded table of connections, in the order of their last use.
//!
//! Entries are in a slab. A hash index under secret keys finds them, and a doubly linked list
//! orders them by their last use, exact to a grain of about a second, so that a busy connection
//! touches no other's cache line. New and removed connections move no entries and free no memory;
//! memory that was never needed is never touched.

use super::frame::FlowId;
use tailbound_units::Nanos;

/// No slot; slots are numbered from 1.
const NIL: u32 = 0;
/// Bits of a time within one unit of an entry's clock: about a millisecond.
const UNIT: u32 = 20;
/// Bits of that clock within one grain of the order.
const GRAIN: u32 = 10;

/// The place of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place(u32);

#[derive(Debug)]
pub(super) struct Slot<V> {
    key: FlowId,
    pub(super) value: V,
    /// Time of the last use, in units.
    last: u32,
    hash: u32,
    older: u32,
    /// In an unused slot, the next unused one.
    newer: u32,
    chain: u32,
}

impl<V> Slot<V> {
    /// Records a use of an entry whose place in the order stays ([`Table::recent`]).
    #[inline]
    pub(super) const fn note(&mut self, now: Nanos) {
        self.last = units(now);
    }
}

/// Converts a time to units of an entry's clock.
const fn units(at: Nanos) -> u32 {
    (at.0 >> UNIT) as u32
}

#[derive(Debug)]
pub(super) struct Table<V> {
    slots: Vec<Slot<V>>,
    chains: Box<[u32]>,
    free: u32,
    oldest: u32,
    newest: u32,
    len: usize,
    capacity: usize,
}

/// Bound of a connection's memory, with its places in the index: up to two, because the length of
/// the index is a power of 2.
const _: () = assert!(size_of::<Slot<super::flow::Flow>>() + 2 * size_of::<u32>() <= 192);

impl<V> Table<V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            slots: Vec::with_capacity(capacity),
            // The system provides zero pages on first use.
            chains: vec![NIL; capacity.next_power_of_two()].into_boxed_slice(),
            free: NIL,
            oldest: NIL,
            newest: NIL,
            len: 0,
            capacity,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    const fn chain(&self, hash: u32) -> usize {
        hash as usize & (self.chains.len() - 1)
    }

    /// Finds an entry without using it.
    #[inline]
    pub(super) fn find(&self, key: &FlowId, hash: u32) -> Option<Place> {
        let mut index = self.chains[self.chain(hash)];
        while index != NIL {
            let slot = &self.slots[index as usize - 1];
            if slot.hash == hash && slot.key == *key {
                return Some(Place(index));
            }
            index = slot.chain;
        }
        None
    }

    /// Finds an entry that was used in the same grain, so that its place in the order stays.
    #[inline]
    pub(super) fn recent(
        &mut self,
        now: Nanos,
        key: &FlowId,
        hash: u32,
    ) -> Option<(Place, &mut Slot<V>)> {
        let place = self.find(key, hash)?;
        let slot = self.slots.get_mut(place.0 as usize - 1)?;
        ((slot.last ^ units(now)) >> GRAIN == 0).then_some((place, slot))
    }

    #[inline]
    pub(super) fn get(&mut self, place: Place) -> &mut V {
        &mut self.slots[place.0 as usize - 1].value
    }

    /// An entry with its key and hash.
    #[inline]
    pub(super) fn entry(&mut self, place: Place) -> (&FlowId, u32, &mut V) {
        let slot = &mut self.slots[place.0 as usize - 1];
        (&slot.key, slot.hash, &mut slot.value)
    }

    #[inline]
    pub(super) fn peek(&self, place: Place) -> &V {
        &self.slots[place.0 as usize - 1].value
    }

    /// Key of an entry.
    #[inline]
    pub(super) fn key(&self, place: Place) -> FlowId {
        self.slots[place.0 as usize - 1].key
    }

    /// Records a use of an entry; returns `true` at its first use in a grain.
    #[inline]
    pub(super) fn touch(&mut self, now: Nanos, place: Place) -> bool {
        let units = units(now);
        let slot = &mut self.slots[place.0 as usize - 1];
        let moves = (slot.last ^ units) >> GRAIN != 0;
        slot.last = units;
        if moves {
            self.renew(place.0);
        }
        moves
    }

    #[cold]
    fn renew(&mut self, index: u32) {
        if self.newest != index {
            self.unlink(index);
            self.link(index);
        }
    }

    /// Returns the entries, the one idle for longest first, with their idle times.
    pub(super) fn oldest(&self, now: Nanos) -> impl Iterator<Item = (Place, Nanos)> + '_ {
        let units = units(now);
        let mut index = self.oldest;
        std::iter::from_fn(move || {
            let slot = self.slots.get((index as usize).checked_sub(1)?)?;
            let place = Place(index);
            index = slot.newer;
            let idle = u64::from(units.wrapping_sub(slot.last)) << UNIT;
            Some((place, Nanos(idle)))
        })
    }

    /// The hash of an entry's connection.
    pub(super) fn hash(&self, place: Place) -> u32 {
        self.slots[place.0 as usize - 1].hash
    }

    /// Returns all entries, the one idle for longest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Place, &FlowId, &V)> + '_ {
        self.oldest(Nanos::ZERO).map(|(place, _)| {
            let slot = &self.slots[place.0 as usize - 1];
            (place, &slot.key, &slot.value)
        })
    }

    /// Adds an entry with a new key to a table with room for it.
    pub(super) fn add(&mut self, now: Nanos, key: FlowId, hash: u32, value: V) -> Place {
        debug_assert!(!self.is_full(), "one was removed before");
        let chain = self.chain(hash);
        let slot = Slot {
            key,
            value,
            last: units(now),
            hash,
            older: NIL,
            newer: NIL,
            chain: self.chains[chain],
        };
        let index = if self.free == NIL {
            self.slots.push(slot);
            self.slots.len() as u32
        } else {
            let index = self.free;
            let unused = &mut self.slots[index as usize - 1];
            self.free = unused.newer;
            *unused = slot;
            index
        };
        self.chains[chain] = index;
        self.link(index);
        self.len += 1;
        Place(index)
    }

    pub(super) fn remove(&mut self, place: Place) {
        let index = place.0;
        let chain = self.chain(self.slots[index as usize - 1].hash);
        let after = self.slots[index as usize - 1].chain;
        let mut at = self.chains[chain];
        if at == index {
            self.chains[chain] = after;
        } else {
            while self.slots[at as usize - 1].chain != index {
                at = self.slots[at as usize - 1].chain;
            }
            self.slots[at as usize - 1].chain = after;
        }
        self.unlink(index);
        self.slots[index as usize - 1].newer = self.free;
        self.free = index;
        self.len -= 1;
    }

    fn unlink(&mut self, index: u32) {
        let Slot { older, newer, .. } = self.slots[index as usize - 1];
        match (older as usize).checked_sub(1) {
            Some(before) => self.slots[before].newer = newer,
            None => self.oldest = newer,
        }
        match (newer as usize).checked_sub(1) {
            Some(after) => self.slots[after].older = older,
            None => self.newest = older,
        }
    }

    fn link(&mut self, index: u32) {
        let before = std::mem::replace(&mut self.newest, index);
        let slot = &mut self.slots[index as usize - 1];
        (slot.older, slot.newer) = (before, NIL);
        match (before as usize).checked_sub(1) {
            Some(before) => self.slots[before].newer = index,
            None => self.oldest = index,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(port: u32) -> FlowId {
        FlowId {
            guest: [0, 1],
            peer: [0, 2],
            ports: port,
            v6: false,
        }
    }

    #[test]
    fn the_one_idle_for_longest_is_the_oldest() {
        let mut table = Table::new(3);
        for port in 0..3 {
            table.add(Nanos::from_secs(10), key(port), port, port);
        }
        let first = table.find(&key(0), 0).expect("it is there");
        table.touch(Nanos::from_secs(20), first);
        let order: Vec<_> = table.iter().map(|(_, _, port)| *port).collect();
        assert_eq!(order, [1, 2, 0]);
        let now = Nanos::from_secs(30);
        let idle = table.oldest(now).map(|(_, idle)| idle.0.div_ceil(1 << 30));
        assert!(idle.eq([19, 19, 10]), "to about a millisecond");
    }

    proptest! {
        #[test]
        fn the_connection_table_behaves_as_a_map(
            steps in prop::collection::vec((0u32..40, any::<bool>(), 0u64..9), 0..300),
        ) {
            let mut table = Table::new(16);
            let mut model = BTreeMap::new();
            let mut now = Nanos::ZERO;
            for (port, adds, seconds) in steps {
                now += Nanos::from_secs(seconds);
                // Three chains only.
                let hash = port % 3;
                match (table.find(&key(port), hash), adds) {
                    (Some(place), true) => drop(table.touch(now, place)),
                    (Some(place), false) => {
                        table.remove(place);
                        model.remove(&port);
                    }
                    (None, true) if !table.is_full() => {
                        table.add(now, key(port), hash, port);
                        model.insert(port, port);
                    }
                    (None, _) => {}
                }
                prop_assert_eq!(table.len(), model.len());
                let mut all: Vec<_> = table.iter().map(|(_, _, port)| *port).collect();
                all.sort_unstable();
                prop_assert!(all.iter().eq(model.keys()));
            }
        }
    }
}
