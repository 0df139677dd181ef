//! Buffers that are used again and again, so that the packet path allocates
//! nothing once it is warm.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// Free lists of buffers in two sizes: small ones for a packet of one MTU and
/// large ones for a packet that is yet to be segmented.
///
/// A clone is another handle on the same lists. A buffer goes back when it is
/// dropped. The lists keep what the busiest moment needed; the limits of the
/// queues bound that. One thread uses a pool.
#[derive(Clone, Default)]
pub struct Pool(Rc<Lists>);

#[derive(Default)]
struct Lists {
    small: RefCell<Vec<Box<Block>>>,
    large: RefCell<Vec<Box<Block>>>,
}

struct Block {
    bytes: Box<[u8]>,
    /// The pool to return to; none while the block lies there, so that a pool
    /// whose handles are gone is freed.
    home: Option<Pool>,
}

impl Pool {
    /// Capacity of a small buffer: a full Ethernet frame with room to spare.
    pub const SMALL: usize = 2 * 1024;
    /// Capacity of a large buffer: a 64 KiB packet, its Ethernet header, tags
    /// and headroom.
    pub const LARGE: usize = 68 * 1024;

    /// An empty pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// A buffer of at least `at_least` bytes. Its contents are whatever was
    /// there last. Sizes above [`Pool::LARGE`] are served, and freed on drop.
    pub fn buffer(&self, at_least: usize) -> Buffer {
        let free = match at_least {
            ..=Self::SMALL => self.0.small.borrow_mut().pop(),
            ..=Self::LARGE => self.0.large.borrow_mut().pop(),
            _ => None,
        };
        let mut block = free.unwrap_or_else(|| Block::new(at_least));
        block.home = Some(self.clone());
        Buffer(Some(block))
    }

    /// How many small and large buffers lie unused.
    pub fn free(&self) -> (usize, usize) {
        (self.0.small.borrow().len(), self.0.large.borrow().len())
    }

    fn take_back(&self, block: Box<Block>) {
        match block.bytes.len() {
            Self::SMALL => self.0.small.borrow_mut().push(block),
            Self::LARGE => self.0.large.borrow_mut().push(block),
            _ => {}
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (small, large) = self.free();
        write!(f, "Pool({small} small and {large} large free)")
    }
}

impl Block {
    #[cold]
    fn new(at_least: usize) -> Box<Self> {
        let capacity = match at_least {
            ..=Pool::SMALL => Pool::SMALL,
            ..=Pool::LARGE => Pool::LARGE,
            more => more,
        };
        Box::new(Self {
            bytes: vec![0; capacity].into_boxed_slice(),
            home: None,
        })
    }
}

/// A buffer from a [`Pool`]: all of its capacity as a slice. One pointer wide.
pub struct Buffer(Option<Box<Block>>);

impl Buffer {
    /// The pool it came from.
    pub fn pool(&self) -> Pool {
        self.block().home.clone().unwrap_or_default()
    }

    /// Another buffer from the same pool.
    pub(crate) fn sibling(&self, at_least: usize) -> Self {
        match &self.block().home {
            Some(pool) => pool.buffer(at_least),
            None => Pool::new().buffer(at_least),
        }
    }

    fn block(&self) -> &Block {
        self.0.as_deref().expect("taken only on drop")
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.block().bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0.as_deref_mut().expect("taken only on drop").bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(mut block) = self.0.take()
            && let Some(pool) = block.home.take()
        {
            pool.take_back(block);
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
