//! Ids of vCPUs, pCPUs and domains, and sets of pCPUs.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A virtual CPU, by its index in the [`Host`](crate::Host)'s list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VcpuId(pub u32);

/// A physical CPU, by its index in the [`Host`](crate::Host).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PcpuId(pub u32);

/// A domain (guest), by its index in the [`Host`](crate::Host)'s list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DomainId(pub u32);

impl VcpuId {
    /// Returns its index in a table with one row for each vCPU.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
impl PcpuId {
    /// Returns its index in a table with one row for each pCPU.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
impl DomainId {
    /// Returns its index in a table with one row for each domain.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

const WORDS: usize = 4;

/// A set of pCPUs: an affinity, the idlers, or those that must reschedule.
///
/// A fixed bitmap, so that sets are copied and joined without allocation.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct PcpuSet {
    words: [u64; WORDS],
}

impl PcpuSet {
    /// The largest number of pCPUs of a host, as in Xen on x86.
    pub const CAPACITY: u32 = 64 * WORDS as u32;

    /// The empty set.
    pub const fn new() -> Self {
        Self { words: [0; WORDS] }
    }

    /// Returns the pCPUs 0 to `count` - 1; at most [`PcpuSet::CAPACITY`].
    pub fn first(count: u32) -> Self {
        (0..count.min(Self::CAPACITY)).map(PcpuId).collect()
    }

    /// Adds `pcpu`. One beyond [`PcpuSet::CAPACITY`] is no member of any host
    /// and is left out.
    pub fn insert(&mut self, pcpu: PcpuId) {
        if let Some(word) = self.words.get_mut(pcpu.index() / 64) {
            *word |= 1 << (pcpu.0 % 64);
        }
    }

    /// Removes `pcpu`.
    pub fn remove(&mut self, pcpu: PcpuId) {
        if let Some(word) = self.words.get_mut(pcpu.index() / 64) {
            *word &= !(1 << (pcpu.0 % 64));
        }
    }

    /// Returns whether `pcpu` is in the set.
    pub fn contains(&self, pcpu: PcpuId) -> bool {
        let word = self.words.get(pcpu.index() / 64);
        word.is_some_and(|word| word >> (pcpu.0 % 64) & 1 == 1)
    }

    /// Returns whether the set has no member.
    pub fn is_empty(&self) -> bool {
        self.words == [0; WORDS]
    }

    /// Returns the number of members.
    pub fn len(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns the members of both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut words = self.words;
        for (word, other) in words.iter_mut().zip(other.words) {
            *word &= other;
        }
        Self { words }
    }

    /// Returns the members of either set.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let mut words = self.words;
        for (word, other) in words.iter_mut().zip(other.words) {
            *word |= other;
        }
        Self { words }
    }

    /// Returns the lowest member.
    pub fn lowest(&self) -> Option<PcpuId> {
        let at = self.words.iter().position(|&word| word != 0)?;
        Some(PcpuId(at as u32 * 64 + self.words[at].trailing_zeros()))
    }

    /// Removes the lowest member and returns it.
    pub fn pop(&mut self) -> Option<PcpuId> {
        let at = self.words.iter().position(|&word| word != 0)?;
        let bit = self.words[at].trailing_zeros();
        self.words[at] &= self.words[at] - 1;
        Some(PcpuId(at as u32 * 64 + bit))
    }

    /// Returns the member after `pcpu`, going round (Xen's `cpumask_cycle`): `pcpu`
    /// itself when it is the only one.
    pub fn next_after(&self, pcpu: PcpuId) -> Option<PcpuId> {
        let mut later = *self;
        for (at, word) in later.words.iter_mut().enumerate() {
            let first = at * 64;
            let keep_from = (pcpu.index() + 1).saturating_sub(first);
            *word &= u64::MAX.checked_shl(keep_from as u32).unwrap_or(0);
        }
        later.lowest().or_else(|| self.lowest())
    }

    /// Returns the members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = PcpuId> + use<> {
        let mut left = *self;
        std::iter::from_fn(move || left.pop())
    }
}

impl FromIterator<PcpuId> for PcpuSet {
    fn from_iter<I: IntoIterator<Item = PcpuId>>(members: I) -> Self {
        let mut set = Self::new();
        members.into_iter().for_each(|pcpu| set.insert(pcpu));
        set
    }
}

impl fmt::Debug for PcpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.iter().map(|pcpu| pcpu.0))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_set_of_pcpus_behaves_as_an_ordered_set(
            members in proptest::collection::btree_set(0_u32..PcpuSet::CAPACITY, 0..40),
            others in proptest::collection::btree_set(0_u32..PcpuSet::CAPACITY, 0..40),
            from in 0_u32..PcpuSet::CAPACITY,
        ) {
            let set: PcpuSet = members.iter().copied().map(PcpuId).collect();
            let other: PcpuSet = others.iter().copied().map(PcpuId).collect();
            let ids = |set: PcpuSet| set.iter().map(|pcpu| pcpu.0).collect::<BTreeSet<_>>();
            prop_assert_eq!(ids(set), members.clone());
            prop_assert_eq!(ids(set.and(&other)), &members & &others);
            prop_assert_eq!(ids(set.or(&other)), &members | &others);
            prop_assert_eq!(set.len() as usize, members.len());
            prop_assert_eq!(set.lowest().map(|pcpu| pcpu.0), members.first().copied());
            let next = members.range(from + 1..).next().or(members.first()).copied();
            prop_assert_eq!(set.next_after(PcpuId(from)).map(|pcpu| pcpu.0), next);
        }
    }
}
