//! A bounded table whose entries are found by key and keep their place.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::{Index, IndexMut};

/// A table of at most `capacity` entries.
#[derive(Debug)]
pub(super) struct Table<K, V> {
    capacity: usize,
    places: HashMap<K, usize>,
    entries: Vec<Option<V>>,
    free: Vec<usize>,
}

impl<K: Eq + Hash, V> Table<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            places: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(super) fn find(&self, key: &K) -> Option<usize> {
        self.places.get(key).copied()
    }

    /// Adds an entry under a key that has none; `None` where there is no room.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<usize> {
        if self.places.len() >= self.capacity {
            return None;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        self.entries[place] = Some(value);
        self.places.insert(key, place);
        Some(place)
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.places.remove(key)?;
        self.free.push(place);
        self.entries[place].take()
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The places of all entries, in no order that means anything.
    pub(super) fn all(&self) -> Vec<usize> {
        let mut all: Vec<_> = self.places.values().copied().collect();
        all.sort_unstable();
        all
    }
}

impl<K, V> Index<usize> for Table<K, V> {
    type Output = V;

    fn index(&self, place: usize) -> &V {
        self.entries[place]
            .as_ref()
            .expect("a place is kept no longer than its entry")
    }
}

impl<K, V> IndexMut<usize> for Table<K, V> {
    fn index_mut(&mut self, place: usize) -> &mut V {
        self.entries[place]
            .as_mut()
            .expect("a place is kept no longer than its entry")
    }
}
