//! The top of the chain: what a guest may send to one destination.

use super::bucket::Bucket;
use crate::meter::MultilinearHash;
use crate::{FlowKey, GuestId};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A limit of one flow.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) bucket: Bucket,
    /// When the last frame that waited for it was released.
    pub(super) last: u64,
}

/// All limits by flow. The hash has secret keys: a guest cannot choose
/// destinations that collide.
#[derive(Debug)]
pub(super) struct Limits {
    hash: MultilinearHash,
    limits: HashMap<Hashed, Limit, BuildHasherDefault<Known>>,
}

impl Limits {
    pub(super) fn new() -> Self {
        Self {
            hash: MultilinearHash::new(),
            limits: HashMap::default(),
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: FlowKey) -> Option<&mut Limit> {
        self.limits.get_mut(&Hashed::new(&self.hash, key))
    }

    pub(super) fn insert(&mut self, key: FlowKey, limit: Limit) {
        self.limits.insert(Hashed::new(&self.hash, key), limit);
    }

    pub(super) fn remove(&mut self, key: FlowKey) -> Option<Limit> {
        self.limits.remove(&Hashed::new(&self.hash, key))
    }

    /// Forgets all of a guest, and gives when the last of its frames that waited
    /// for any of them is released.
    pub(super) fn remove_all(&mut self, guest: GuestId) -> u64 {
        let gone = self.limits.extract_if(|flow, _| flow.key.source == guest);
        gone.map(|(_, limit)| limit.last).max().unwrap_or(0)
    }
}

/// A flow with its hash.
#[derive(Debug, PartialEq, Eq)]
struct Hashed {
    hash: u32,
    key: FlowKey,
}

impl Hashed {
    #[inline]
    fn new(hash: &MultilinearHash, key: FlowKey) -> Self {
        Self {
            hash: hash.of(key),
            key,
        }
    }
}

impl Hash for Hashed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.hash);
    }
}

/// Passes on a hash that is known.
#[derive(Debug, Default)]
struct Known(u64);

impl Hasher for Known {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }

    /// The table takes its slot from the low bits and a tag from the high ones.
    #[inline]
    fn write_u32(&mut self, hash: u32) {
        self.0 = u64::from(hash) << 32 | u64::from(hash);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
