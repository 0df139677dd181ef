//! Index types: numbers of guests, lines, frames and flows, which do not mix.
//!
//! A number has four bytes, and one value of it, `NONE`, refers to nothing: records that are read
//! for each frame stay short. A [`Table`] is indexed by the numbers of its own entries only.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops;

/// Number of an entry in a table.
pub(in crate::pacer) trait Index: Copy + Eq + Ord + Debug {
    /// No entry.
    const NONE: Self;

    /// The entry of this number.
    fn new(number: usize) -> Self;

    /// The number.
    fn number(self) -> usize;
}

macro_rules! index_types {
    ($($(#[$documentation:meta])* $name:ident)*) => {$(
        $(#[$documentation])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(in crate::pacer) struct $name(u32);

        impl $name {
            /// No entry.
            pub(in crate::pacer) const NONE: Self = Self(u32::MAX);

            /// The entry of this number.
            #[inline(always)]
            pub(in crate::pacer) const fn new(number: usize) -> Self {
                debug_assert!(number <= u32::MAX as usize, "a table is far shorter");
                Self(number as u32)
            }

            /// The number.
            #[inline(always)]
            pub(in crate::pacer) const fn number(self) -> usize {
                self.0 as usize
            }

            /// Checks whether the number refers to no entry.
            #[inline(always)]
            pub(in crate::pacer) const fn is_none(self) -> bool {
                self.0 == u32::MAX
            }

            /// Checks whether the number refers to an entry.
            #[allow(dead_code, reason = "each type has the same methods")]
            #[inline(always)]
            pub(in crate::pacer) const fn is_some(self) -> bool {
                !self.is_none()
            }
        }

        impl Index for $name {
            const NONE: Self = Self::NONE;

            #[inline(always)]
            fn new(number: usize) -> Self {
                Self::new(number)
            }

            #[inline(always)]
            fn number(self) -> usize {
                self.number()
            }
        }
    )*};
}

index_types! {
    /// A guest: the slot of its [`crate::GuestId`].
    GuestIndex
    /// A line of a guest's frames.
    LineIndex
    /// A waiting frame: its place in the store.
    FrameIndex
    /// The queues by flow of a line.
    QueuesIndex
    /// The elastic flows of a guest.
    FlowsIndex
    /// One of a guest's elastic flows.
    FlowIndex
    /// A limit in the list of used limits.
    UsedIndex
    /// A node of a guest's tree of shared buckets.
    NodeIndex
    /// A member of the rounds of such a tree: a node, or a leaf.
    EntryIndex
}

/// A vector whose entries are indexed by one index type.
#[derive(Debug)]
pub(in crate::pacer) struct Table<I, T> {
    entries: Vec<T>,
    index: PhantomData<fn(I) -> I>,
}

impl<I, T> Default for Table<I, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I, T> Table<I, T> {
    /// Creates an empty table.
    pub(in crate::pacer) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            index: PhantomData,
        }
    }

    /// Creates an empty table with room for this number of entries.
    pub(in crate::pacer) fn with_capacity(capacity: usize) -> Self {
        Self {
            entries: Vec::with_capacity(capacity),
            index: PhantomData,
        }
    }

    /// Number of entries.
    #[inline(always)]
    pub(in crate::pacer) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Checks that the table has no entries.
    #[inline(always)]
    pub(in crate::pacer) const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The vector, for changes of its length.
    pub(in crate::pacer) const fn entries_mut(&mut self) -> &mut Vec<T> {
        &mut self.entries
    }

    /// All entries in order.
    pub(in crate::pacer) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.entries.iter()
    }

    /// All entries in order, for changes.
    pub(in crate::pacer) fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.entries.iter_mut()
    }
}

impl<I: Index, T> Table<I, T> {
    /// The entry of a number; `None` beyond the last one.
    #[inline(always)]
    pub(in crate::pacer) fn get(&self, index: I) -> Option<&T> {
        self.entries.get(index.number())
    }

    /// The same for changes.
    #[inline(always)]
    pub(in crate::pacer) fn get_mut(&mut self, index: I) -> Option<&mut T> {
        self.entries.get_mut(index.number())
    }

    /// Two different entries for changes.
    pub(in crate::pacer) fn two_mut(&mut self, one: I, other: I) -> Option<(&mut T, &mut T)> {
        let both = [one.number(), other.number()];
        let [one, other] = self.entries.get_disjoint_mut(both).ok()?;
        Some((one, other))
    }

    /// Adds an entry, and returns its number.
    pub(in crate::pacer) fn push(&mut self, entry: T) -> I {
        self.entries.push(entry);
        I::new(self.entries.len() - 1)
    }

    /// Removes an entry; the last one receives its number.
    pub(in crate::pacer) fn swap_remove(&mut self, index: I) -> T {
        self.entries.swap_remove(index.number())
    }

    /// Adds entries up to `count` of them.
    pub(in crate::pacer) fn reserve(&mut self, count: usize, entry: T)
    where
        T: Clone,
    {
        if self.entries.len() < count {
            self.entries.resize(count, entry);
        }
    }

    /// The numbers of all entries.
    pub(in crate::pacer) fn indices(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.entries.len()).map(I::new)
    }
}

impl<I: Index, T> ops::Index<I> for Table<I, T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, index: I) -> &T {
        &self.entries[index.number()]
    }
}

impl<I: Index, T> ops::IndexMut<I> for Table<I, T> {
    #[inline(always)]
    fn index_mut(&mut self, index: I) -> &mut T {
        &mut self.entries[index.number()]
    }
}
