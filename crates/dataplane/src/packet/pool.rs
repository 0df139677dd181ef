//! Buffers that are used again and again, so that the packet path allocates
//! nothing once it is warm.

use crate::HashKeys;
use crate::hash::ConnectionHash;
use std::cell::RefCell;
use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// Free lists of buffers in two sizes: small ones for a packet of one MTU and
/// large ones for a packet that is yet to be segmented.
///
/// A clone is another handle on the same lists. A buffer goes back when it is
/// dropped. The lists keep what the busiest moment needed; the limits of the
/// queues bound that. One thread uses a pool.
///
/// It has the secret keys under which [`Connection`](crate::Connection)s of its packets
/// are hashed, so that they are the same in every queue.
#[derive(Clone)]
pub struct Pool(Rc<Lists>);

struct Lists {
    hash: ConnectionHash,
    small: RefCell<Vec<Box<[u8]>>>,
    large: RefCell<Vec<Box<[u8]>>>,
}

impl Pool {
    /// Capacity of a small buffer: a full Ethernet frame with room to spare.
    pub const SMALL: usize = 2 * 1024;
    /// Capacity of a large buffer: a 64 KiB packet, its Ethernet header, tags
    /// and headroom.
    pub const LARGE: usize = 68 * 1024;

    /// An empty pool, with keys that no guest knows.
    pub fn new() -> Self {
        Self::with_keys(HashKeys::random())
    }

    /// The same with given keys.
    pub fn with_keys(keys: HashKeys) -> Self {
        Self(Rc::new(Lists {
            hash: ConnectionHash::new(keys),
            small: RefCell::default(),
            large: RefCell::default(),
        }))
    }

    pub(super) fn hash(&self) -> &ConnectionHash {
        &self.0.hash
    }

    /// A buffer of at least `at_least` bytes. Its contents are whatever was
    /// there last. Sizes above [`Pool::LARGE`] are served, and freed on drop.
    #[inline]
    pub fn buffer(&self, at_least: usize) -> Buffer {
        let free = self
            .list_for(at_least)
            .and_then(|list| list.borrow_mut().pop());
        Buffer {
            bytes: free.unwrap_or_else(|| fresh(at_least)),
            pool: self.clone(),
        }
    }

    #[inline]
    fn list_for(&self, size: usize) -> Option<&RefCell<Vec<Box<[u8]>>>> {
        if size <= Self::SMALL {
            Some(&self.0.small)
        } else if size <= Self::LARGE {
            Some(&self.0.large)
        } else {
            None
        }
    }

    /// How many small and large buffers lie unused.
    pub fn free(&self) -> (usize, usize) {
        (self.0.small.borrow().len(), self.0.large.borrow().len())
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (small, large) = self.free();
        write!(f, "Pool({small} small and {large} large free)")
    }
}

#[cold]
fn fresh(at_least: usize) -> Box<[u8]> {
    let capacity = if at_least <= Pool::SMALL {
        Pool::SMALL
    } else {
        at_least.max(Pool::LARGE)
    };
    vec![0; capacity].into_boxed_slice()
}

/// A buffer from a [`Pool`]: all of its capacity as a slice.
pub struct Buffer {
    bytes: Box<[u8]>,
    pool: Pool,
}

impl Buffer {
    /// The pool it came from.
    #[inline]
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }
}

impl Deref for Buffer {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        let bytes = mem::take(&mut self.bytes);
        if let Some(list) = self.pool.list_for(bytes.len()) {
            list.borrow_mut().push(bytes);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_handed_out_again() {
        let pool = Pool::new();
        let mut buffer = pool.buffer(100);
        buffer[0] = 7;
        drop(buffer);
        assert_eq!(pool.free(), (1, 0));
        assert_eq!(pool.buffer(Pool::SMALL)[0], 7);
    }

    #[test]
    fn sizes_are_rounded_up_and_oversize_is_not_kept() {
        let pool = Pool::new();
        assert_eq!(pool.buffer(1).len(), Pool::SMALL);
        assert_eq!(pool.buffer(Pool::SMALL + 1).len(), Pool::LARGE);
        assert_eq!(pool.buffer(Pool::LARGE + 1).len(), Pool::LARGE + 1);
        assert_eq!(pool.free(), (1, 1));
    }

    #[test]
    fn a_buffer_outlives_the_last_handle_on_its_pool() {
        let pool = Pool::new();
        let buffer = pool.buffer(1);
        drop(pool);
        assert_eq!(buffer.pool().free(), (0, 0));
    }
}
