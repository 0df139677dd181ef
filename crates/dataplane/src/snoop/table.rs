//! A bounded table of connections, with the ages of their last use.
//!
//! Entries are in a slab. A hash index under secret keys finds them, and a byte for each has its age
//! ([`Ages`]), so that a use touches no other's cache line. New and removed connections move no
//! entries and free no memory; memory that was never needed is never touched.

use super::ages::{Ages, GRAIN};
use super::frame::FlowId;
use std::cmp::Reverse;
use std::hint::black_box;
use tailbound_units::Nanos;

/// No slot; slots are numbered from 1.
const NIL: u32 = 0;
/// Bits of a time within one unit of an entry's clock: about a millisecond.
const UNIT: u32 = 20;
/// Entries of one step of [`Table::load`]: the CPU reads about that many in parallel.
const AT_ONCE: usize = 32;

/// The place of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place(u32);

impl Place {
    /// The index of the slot.
    #[inline]
    const fn index(self) -> usize {
        self.0 as usize - 1
    }
}

#[derive(Debug)]
pub(super) struct Slot<V> {
    key: FlowId,
    pub(super) value: V,
    /// Time of the last use, in units.
    last: u32,
    hash: u32,
    /// The next entry of its chain; in an unused slot, the next unused one.
    chain: u32,
}

/// An entry that was found, and is used if [`EntryMut::note`] is called.
pub(super) struct EntryMut<'t, V> {
    pub(super) place: Place,
    pub(super) slot: &'t mut Slot<V>,
    ages: &'t mut Ages,
}

impl<V> EntryMut<'_, V> {
    /// Records a use; returns `true` at the first one in a grain.
    #[inline]
    pub(super) fn note(&mut self, now: Nanos) -> bool {
        let units = units(now);
        let is_first = (self.slot.last ^ units) >> (GRAIN - UNIT) != 0;
        self.slot.last = units;
        if is_first {
            self.ages.note(now, self.place.index());
        }
        is_first
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
    ages: Ages,
    free: u32,
    len: usize,
    capacity: usize,
}

/// Bound of a connection's memory, with its age and its places in the index: up to two, because the
/// length of the index is a power of 2.
const _: () = assert!(size_of::<Slot<super::flow::Flow>>() + 1 + 2 * size_of::<u32>() <= 185);

impl<V> Table<V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            slots: Vec::with_capacity(capacity),
            // The system provides zero pages on first use.
            chains: vec![NIL; capacity.next_power_of_two()].into_boxed_slice(),
            ages: Ages::new(capacity),
            free: NIL,
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

    /// Finds an entry that may be used.
    #[inline]
    pub(super) fn find_mut(&mut self, key: &FlowId, hash: u32) -> Option<EntryMut<'_, V>> {
        let place = self.find(key, hash)?;
        Some(EntryMut {
            place,
            slot: self.slots.get_mut(place.index())?,
            ages: &mut self.ages,
        })
    }

    /// Reads the entries of these hashes, so that they are in the CPU's caches. `part` reads the
    /// value. No reading depends on another one's result, so the CPU does not wait for each.
    pub(super) fn load(&self, hashes: &[u32], part: impl Fn(&V) -> u32) {
        for hashes in hashes.chunks(AT_ONCE) {
            let mut heads = [NIL; AT_ONCE];
            for (head, hash) in heads.iter_mut().zip(hashes) {
                *head = self.chains[self.chain(*hash)];
            }
            let mut read = 0;
            for (mut index, hash) in heads.into_iter().zip(hashes) {
                while let Some(slot) = self.slots.get((index as usize).wrapping_sub(1)) {
                    read ^= slot.key.ports ^ part(&slot.value);
                    if slot.hash == *hash {
                        break;
                    }
                    index = slot.chain;
                }
            }
            black_box(read);
        }
    }

    #[inline]
    pub(super) fn get(&mut self, place: Place) -> &mut V {
        &mut self.slots[place.index()].value
    }

    /// An entry with its key and hash.
    #[inline]
    pub(super) fn entry(&mut self, place: Place) -> (&FlowId, u32, &mut V) {
        let slot = &mut self.slots[place.index()];
        (&slot.key, slot.hash, &mut slot.value)
    }

    #[inline]
    pub(super) fn peek(&self, place: Place) -> &V {
        &self.slots[place.index()].value
    }

    /// Key of an entry.
    #[inline]
    pub(super) fn key(&self, place: Place) -> FlowId {
        self.slots[place.index()].key
    }

    /// Records a use of an entry; returns `true` at its first use in a grain.
    pub(super) fn touch(&mut self, now: Nanos, place: Place) -> bool {
        let mut found = EntryMut {
            place,
            slot: &mut self.slots[place.index()],
            ages: &mut self.ages,
        };
        found.note(now)
    }

    /// Returns the entry that was idle for longest, and its idle time: to a grain, see [`Ages`].
    pub(super) fn oldest(&mut self, now: Nanos) -> Option<(Place, Nanos)> {
        let index = self.ages.oldest()?;
        let idle = units(now).wrapping_sub(self.slots[index].last);
        Some((Place(index as u32 + 1), Nanos(u64::from(idle) << UNIT)))
    }

    /// Counts the entry that was idle for longest as used now, and its idle time as before.
    pub(super) fn pass_over(&mut self, now: Nanos, place: Place) {
        self.ages.pass_over(now, place.index());
    }

    /// The hash of an entry's connection.
    pub(super) fn hash(&self, place: Place) -> u32 {
        self.slots[place.index()].hash
    }

    /// Returns all entries, in any order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Place, &FlowId, &V)> {
        self.ages.iter().map(|index| {
            let slot = &self.slots[index];
            (Place(index as u32 + 1), &slot.key, &slot.value)
        })
    }

    /// Returns all entries, the one idle for longest first.
    pub(super) fn by_idle_time(&self) -> impl Iterator<Item = (Place, &FlowId, &V)> {
        let mut all: Vec<_> = self.iter().collect();
        // The clock of entries wraps, and no use is later than this.
        let end = units(self.ages.end());
        all.sort_by_key(|(place, ..)| Reverse(end.wrapping_sub(self.slots[place.index()].last)));
        all.into_iter()
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
            chain: self.chains[chain],
        };
        let index = if self.free == NIL {
            self.slots.push(slot);
            self.slots.len() as u32
        } else {
            let index = self.free;
            let unused = &mut self.slots[index as usize - 1];
            self.free = unused.chain;
            *unused = slot;
            index
        };
        self.chains[chain] = index;
        self.ages.note(now, Place(index).index());
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
        self.ages.remove(place.index());
        self.slots[place.index()].chain = self.free;
        self.free = index;
        self.len -= 1;
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
        let order: Vec<_> = table.by_idle_time().map(|(_, _, port)| *port).collect();
        assert_eq!(order, [1, 2, 0]);
        for (port, seconds) in [(1, 19), (2, 19), (0, 10)] {
            let (place, idle) = table.oldest(Nanos::from_secs(30)).expect("there are some");
            assert_eq!(*table.peek(place), port);
            assert_eq!(idle.0.div_ceil(1 << 30), seconds, "to about a millisecond");
            table.remove(place);
        }
        assert!(table.oldest(Nanos::from_secs(30)).is_none());
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
