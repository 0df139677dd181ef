//! The top of the chain: what a guest may send to one destination.

use super::bucket::Bucket;
use crate::meter::MultilinearHash;
use crate::{FlowKey, GuestId};

/// A limit of one flow.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) bucket: Bucket,
    /// When the last frame that waited for it was released.
    pub(super) last: u64,
    key: FlowKey,
    /// The next in its chain.
    next: u32,
}

/// No limit.
const NIL: u32 = u32::MAX;

/// All limits by flow, in chains by hash. The hash has secret keys: a guest cannot
/// choose destinations that collide.
#[derive(Debug)]
pub(super) struct Limits {
    hash: MultilinearHash,
    /// The first of each chain: a power of two of them, at least as many as limits.
    chains: Vec<u32>,
    all: Vec<Limit>,
}

impl Limits {
    pub(super) fn new() -> Self {
        Self {
            hash: MultilinearHash::new(),
            chains: vec![NIL],
            all: Vec::new(),
        }
    }

    #[inline]
    fn chain(&self, key: FlowKey) -> usize {
        self.hash.of(key) as usize & (self.chains.len() - 1)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: FlowKey) -> Option<&mut Limit> {
        let index = self.find(key)?;
        self.all.get_mut(index as usize)
    }

    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    fn find(&self, key: FlowKey) -> Option<u32> {
        let mut index = self.chains[self.chain(key)];
        loop {
            let limit = self.all.get(index as usize)?;
            if limit.key == key {
                return Some(index);
            }
            index = limit.next;
        }
    }

    /// Adds the limit of a flow that has none.
    pub(super) fn insert(&mut self, key: FlowKey, bucket: Bucket, last: u64) {
        let index = self.all.len() as u32;
        self.all.push(Limit {
            bucket,
            last,
            key,
            next: NIL,
        });
        if self.all.len() <= self.chains.len() {
            self.link(index);
            return;
        }
        let double = 2 * self.chains.len();
        self.chains.clear();
        self.chains.resize(double, NIL);
        for index in 0..=index {
            self.link(index);
        }
    }

    /// Puts a limit in front of its chain.
    fn link(&mut self, index: u32) {
        let chain = self.chain(self.all[index as usize].key);
        self.all[index as usize].next = std::mem::replace(&mut self.chains[chain], index);
    }

    pub(super) fn remove(&mut self, key: FlowKey) -> Option<Limit> {
        let index = self.find(key)?;
        Some(self.take(index))
    }

    /// Takes a limit out. The last one moves to its place.
    fn take(&mut self, index: u32) -> Limit {
        self.relink(index, self.all[index as usize].next);
        let last = self.all.len() as u32 - 1;
        if last != index {
            self.relink(last, index);
        }
        self.all.swap_remove(index as usize)
    }

    /// Has `new` stand in its chain where the limit `old` stands.
    fn relink(&mut self, old: u32, new: u32) {
        let chain = self.chain(self.all[old as usize].key);
        let mut link = &mut self.chains[chain];
        while *link != old {
            let before = *link as usize;
            link = &mut self.all[before].next;
        }
        *link = new;
    }

    /// Forgets all of a guest, and gives when the last of its frames that waited
    /// for any of them is released.
    pub(super) fn remove_all(&mut self, guest: GuestId) -> u64 {
        let mut last = 0;
        for index in (0..self.all.len() as u32).rev() {
            if self.all[index as usize].key.source == guest {
                last = last.max(self.take(index).last);
            }
        }
        last
    }
}

#[cfg(test)]
mod tests;
