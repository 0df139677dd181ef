//! Bounded table with lookup by key and stable places.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A place in a table: a number of its own type for each table.
pub(crate) trait Place: Copy + Debug {
    /// The place of this number.
    fn new(number: usize) -> Self;
    /// Returns its number.
    fn number(self) -> usize;
}

/// Declares a type of places.
macro_rules! place {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(usize);

        impl $crate::table::Place for $name {
            fn new(number: usize) -> Self {
                Self(number)
            }
            fn number(self) -> usize {
                self.0
            }
        }
    };
}
pub(crate) use place;

/// A table of at most `capacity` entries.
#[derive(Debug)]
pub(crate) struct Table<P, K, V> {
    capacity: usize,
    places: HashMap<K, usize>,
    entries: Vec<Option<V>>,
    free: Vec<usize>,
    place: PhantomData<P>,
}

impl<P: Place, K: Eq + Hash, V> Table<P, K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            places: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            place: PhantomData,
        }
    }

    pub(crate) fn find(&self, key: &K) -> Option<P> {
        self.places.get(key).copied().map(P::new)
    }

    /// Adds an entry under a key that has none. Returns its place; `None` where
    /// the table is full.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<P> {
        if self.places.len() >= self.capacity {
            return None;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        self.entries[place] = Some(value);
        let before = self.places.insert(key, place);
        debug_assert!(before.is_none(), "an entry is added once");
        Some(P::new(place))
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.places.remove(key)?;
        self.free.push(place);
        self.entries[place].take()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The first place of an entry from this number on.
    pub(crate) fn first_from(&self, number: usize) -> Option<P> {
        let entries = self.entries.get(number..)?;
        let ahead = entries.iter().position(Option::is_some)?;
        Some(P::new(number + ahead))
    }

    /// The places of all entries, ascending.
    pub(crate) fn places(&self) -> impl Iterator<Item = P> + '_ {
        let entries = self.entries.iter().enumerate();
        entries
            .filter(|(_, entry)| entry.is_some())
            .map(|(place, _)| P::new(place))
    }
}

impl<P: Place, K, V> Index<P> for Table<P, K, V> {
    type Output = V;

    fn index(&self, place: P) -> &V {
        self.entries[place.number()]
            .as_ref()
            .expect("a place is kept no longer than its entry")
    }
}

impl<P: Place, K, V> IndexMut<P> for Table<P, K, V> {
    fn index_mut(&mut self, place: P) -> &mut V {
        self.entries[place.number()]
            .as_mut()
            .expect("a place is kept no longer than its entry")
    }
}

/// Values beside the entries of a table with another owner: one value for each place, a default one
/// until it is written.
#[derive(Debug)]
pub(crate) struct Beside<P, V> {
    values: Vec<V>,
    place: PhantomData<P>,
}

impl<P, V> Default for Beside<P, V> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            place: PhantomData,
        }
    }
}

impl<P: Place, V: Default> Beside<P, V> {
    /// Sets the value at a place to the default.
    pub(crate) fn reset(&mut self, place: P) {
        let len = self.values.len().max(place.number() + 1);
        self.values.resize_with(len, V::default);
        self.values[place.number()] = V::default();
    }
}

impl<P: Place, V> Index<P> for Beside<P, V> {
    type Output = V;

    fn index(&self, place: P) -> &V {
        &self.values[place.number()]
    }
}

impl<P: Place, V> IndexMut<P> for Beside<P, V> {
    fn index_mut(&mut self, place: P) -> &mut V {
        &mut self.values[place.number()]
    }
}
