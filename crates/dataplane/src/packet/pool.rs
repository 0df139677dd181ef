//! Reusable packet buffers, so that the packet path does not allocate memory after it has warmed
//! up.

use super::facts::Facts;
use crate::HashKeys;
use crate::hash::ConnectionHash;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use tailbound_units::Bytes;

/// Free lists of buffers in a few sizes ([`Pool::SIZES`]): small ones for a packet of one MTU, the
/// largest for a 64 KiB packet before segmentation.
///
/// A clone is another handle to the same lists. A dropped buffer returns to its list, and stays
/// there until [`Pool::give_back`] frees it, or the last handle is dropped. The limits of the queues
/// bound the memory at the peak. A pool belongs to one thread.
///
/// The pool holds the secret keys under which [`Connection`](crate::Connection)s of its packets are
/// hashed, so that the hashes are the same in every queue.
pub struct Pool {
    lists: Rc<Lists>,
    owner: Owner,
}

/// The owner of a reference to the lists. Unused buffers and their lists refer to each other, so the
/// last handle frees these buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Handle,
    Buffer,
}

struct Lists {
    hash: ConnectionHash,
    /// Number of handles. Without any, a dropped buffer is freed.
    handles: Cell<usize>,
    small: List,
    /// Free lists of the other sizes.
    larger: [List; Pool::SIZES.len() - 1],
    /// Bytes of all buffers, used and unused.
    held: Cell<u64>,
}

type List = RefCell<Vec<Rc<Storage>>>;

/// A buffer's bytes, and the facts of the packet in it. It has one owner, a [`Buffer`] or a list,
/// and moves between them without a copy; or several [`Buffer`]s share it, and none of them changes
/// it.
struct Storage {
    bytes: Box<[u8]>,
    /// The pool that the buffer returns to.
    pool: Pool,
    facts: Facts,
}

impl Pool {
    /// Capacity of a small buffer: a full Ethernet frame with room to spare.
    pub const SMALL: usize = 2 * 1024;
    /// Capacity of a large buffer: a 64 KiB packet, its Ethernet header, tags
    /// and headroom.
    pub const LARGE: usize = 68 * 1024;
    /// Capacities of buffers: a frame takes the next one that holds it.
    pub const SIZES: [usize; 4] = [Self::SMALL, 4 * 1024, 16 * 1024, Self::LARGE];
    /// Unused buffers of each size that are never freed, in bytes.
    pub const KEPT: usize = 512 * 1024;
    /// Unused buffers of each size that other sizes do not replace, in bytes: these bytes can
    /// change between large packets and their segments without an allocation.
    pub const SPARED: usize = 4 * 1024 * 1024;
    /// Maximum number of buffers of a size that one call frees, which takes about 10 us.
    const AT_ONCE: usize = 64;

    /// An empty pool, with keys that no guest knows.
    pub fn new() -> Self {
        Self::with_keys(HashKeys::random())
    }

    /// An empty pool with given keys.
    pub fn with_keys(keys: HashKeys) -> Self {
        Self {
            lists: Rc::new(Lists {
                hash: ConnectionHash::new(keys),
                handles: Cell::new(1),
                small: List::default(),
                larger: Default::default(),
                held: Cell::new(0),
            }),
            owner: Owner::Handle,
        }
    }

    #[inline]
    pub(super) fn hash(&self) -> &ConnectionHash {
        &self.lists.hash
    }

    /// Returns a buffer of at least `at_least` bytes. Its contents are those of its last use.
    /// Buffers larger than [`Pool::LARGE`] are freed when they are dropped.
    #[inline]
    pub fn buffer(&self, at_least: usize) -> Buffer {
        let held = self.take(at_least);
        Buffer(held.unwrap_or_else(|| self.fresh(at_least)))
    }

    /// Returns an unused buffer of at least `at_least` bytes, if there is one; does not allocate,
    /// which takes time.
    pub fn unused(&self, at_least: usize) -> Option<Buffer> {
        self.take(at_least).map(Buffer)
    }

    #[inline]
    fn take(&self, at_least: usize) -> Option<Rc<Storage>> {
        self.lists.of_size(at_least)?.borrow_mut().pop()
    }

    #[cold]
    fn fresh(&self, at_least: usize) -> Rc<Storage> {
        let capacity = Self::capacity_for(at_least);
        self.make_room(capacity);
        self.lists.note_allocated(capacity);
        Rc::new(Storage {
            bytes: vec![0; capacity].into_boxed_slice(),
            pool: Self {
                lists: Rc::clone(&self.lists),
                owner: Owner::Buffer,
            },
            facts: Facts::NONE,
        })
    }

    /// Frees unused buffers of other sizes, up to the capacity that is allocated next, if their
    /// lists exceed [`Pool::SPARED`]. Otherwise frames of one size after another would make each
    /// list as long as a queue.
    fn make_room(&self, capacity: usize) {
        let mut room = 0;
        for (size, list) in self.lists().filter(|(size, _)| *size != capacity) {
            let mut list = list.borrow_mut();
            let excess = list.len().saturating_sub(Self::SPARED / size);
            let freed = excess.min((capacity.saturating_sub(room)).div_ceil(size));
            let left = list.len() - freed;
            list.truncate(left);
            self.lists.note_freed(freed * size);
            room += freed * size;
        }
    }

    /// Returns the capacity of a buffer for this number of bytes.
    pub(super) fn capacity_for(bytes: usize) -> usize {
        let fitting = Self::SIZES.iter().find(|capacity| bytes <= **capacity);
        fitting.copied().unwrap_or(bytes)
    }

    /// Number of unused buffers of each size.
    pub fn free(&self) -> [usize; Self::SIZES.len()] {
        let mut free = self.lists().map(|(_, list)| list.borrow().len());
        std::array::from_fn(|_| free.next().unwrap_or_default())
    }

    /// Memory of all buffers, used and unused.
    pub fn held(&self) -> Bytes {
        Bytes(self.lists.held.get())
    }

    /// Checks whether [`Pool::give_back`] would free buffers.
    #[inline]
    pub fn has_excess(&self) -> bool {
        // Few buffers at all are an excess of none. This is called in each turn.
        if self.held() <= Bytes(Self::KEPT as u64) {
            return false;
        }
        let [small, larger @ ..] = Self::SIZES;
        let is_excess = |list: &List, size: usize| list.borrow().len() > Self::KEPT / size;
        let [a, b, c] = &self.lists.larger;
        is_excess(&self.lists.small, small)
            || is_excess(a, larger[0])
            || is_excess(b, larger[1])
            || is_excess(c, larger[2])
    }

    /// Frees a few unused buffers of each size. Call it periodically while [`Pool::has_excess`].
    pub fn give_back(&self) {
        for (capacity, list) in self.lists() {
            let mut list = list.borrow_mut();
            let excess = list.len().saturating_sub(Self::KEPT / capacity);
            let freed = excess.min(Self::AT_ONCE);
            let left = list.len() - freed;
            list.truncate(left);
            self.lists.note_freed(freed * capacity);
        }
    }

    fn lists(&self) -> impl Iterator<Item = (usize, &List)> {
        Self::SIZES.into_iter().zip(self.lists.all())
    }
}

impl Lists {
    /// Returns the list of the smallest buffers of at least `size` bytes; `None` beyond all lists.
    #[inline]
    fn of_size(&self, size: usize) -> Option<&List> {
        if size <= Pool::SMALL {
            return Some(&self.small);
        }
        let mut larger = Pool::SIZES[1..].iter().zip(&self.larger);
        larger
            .find(|(capacity, _)| size <= **capacity)
            .map(|(_, list)| list)
    }

    fn all(&self) -> impl Iterator<Item = &List> {
        std::iter::once(&self.small).chain(&self.larger)
    }

    fn note_allocated(&self, bytes: usize) {
        self.held.set(self.held.get() + bytes as u64);
    }

    fn note_freed(&self, bytes: usize) {
        self.held.set(self.held.get() - bytes as u64);
    }

    /// Frees all unused buffers, after the last handle was dropped.
    #[cold]
    fn close(&self) {
        for list in self.all() {
            let unused = list.take();
            let bytes = unused.iter().map(|held| held.bytes.len());
            self.note_freed(bytes.sum());
        }
    }
}

impl Clone for Pool {
    fn clone(&self) -> Self {
        self.lists.handles.set(self.lists.handles.get() + 1);
        Self {
            lists: Rc::clone(&self.lists),
            owner: Owner::Handle,
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.owner == Owner::Handle {
            let left = self.lists.handles.get() - 1;
            self.lists.handles.set(left);
            if left == 0 {
                self.lists.close();
            }
        }
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({:?} free of {:?})", self.free(), Self::SIZES)
    }
}

/// A buffer from a [`Pool`], as a slice of its full capacity. One word; the facts of the packet are
/// stored behind it. A shared buffer becomes a copy of its own before it changes.
pub struct Buffer(Rc<Storage>);

/// Returns mutable access to a buffer that has one owner.
#[inline(always)]
#[expect(clippy::inline_always, reason = "for each change of a frame")]
fn only(held: &mut Rc<Storage>) -> &mut Storage {
    Rc::get_mut(held).expect("a buffer has one owner")
}

impl Buffer {
    /// The pool that the buffer came from.
    #[inline]
    pub fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// Facts of the packet in the buffer.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "for each look at a frame")]
    pub(super) fn facts(&self) -> &Facts {
        &self.0.facts
    }

    /// The bytes, and the facts of the packet in the buffer.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "for each look at a frame")]
    pub(super) fn parts_mut(&mut self) -> (&mut [u8], &mut Facts) {
        if Rc::get_mut(&mut self.0).is_none() {
            self.copy();
        }
        let held = only(&mut self.0);
        (&mut held.bytes, &mut held.facts)
    }

    /// Returns the same packet again; its bytes are copied only when one of the two changes.
    #[inline]
    pub(super) fn share(&self) -> Self {
        Self(Rc::clone(&self.0))
    }

    /// Replaces the buffer by a copy up to the end of the packet.
    #[cold]
    fn copy(&mut self) {
        let facts = *self.facts();
        let end = usize::from(facts.start) + facts.len as usize;
        let mut copy = self.pool().buffer(self.len());
        let held = only(&mut copy.0);
        held.bytes[..end].copy_from_slice(&self[..end]);
        held.facts = facts;
        *self = copy;
    }
}

impl Deref for Buffer {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.parts_mut().0
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        // Nothing refers to a buffer weakly.
        if Rc::strong_count(&self.0) > 1 {
            return;
        }
        let lists = &self.0.pool.lists;
        let len = self.0.bytes.len();
        match lists.of_size(len) {
            Some(list) if lists.handles.get() > 0 => list.borrow_mut().push(Rc::clone(&self.0)),
            _ => lists.note_freed(len),
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
    fn an_unused_buffer_is_one_that_was_dropped() {
        let pool = Pool::new();
        assert!(pool.unused(Pool::LARGE).is_none());
        drop(pool.buffer(Pool::LARGE));
        assert!(pool.unused(Pool::SMALL).is_none());
        let again = pool.unused(Pool::LARGE).expect("one was dropped");
        assert_eq!(again.len(), Pool::LARGE);
        assert!(pool.unused(Pool::LARGE).is_none());
    }

    #[test]
    fn a_dropped_buffer_is_handed_out_again() {
        let pool = Pool::new();
        let mut buffer = pool.buffer(100);
        buffer[0] = 7;
        drop(buffer);
        assert_eq!(pool.free(), [1, 0, 0, 0]);
        assert_eq!(pool.buffer(Pool::SMALL)[0], 7);
    }

    #[test]
    fn a_shared_buffer_is_copied_on_write() {
        let pool = Pool::new();
        let mut first = pool.buffer(100);
        let (bytes, facts) = first.parts_mut();
        bytes[..3].copy_from_slice(&[1, 2, 3]);
        (facts.start, facts.len) = (1, 2);
        let second = first.share();
        assert_eq!(pool.held().0, Pool::SMALL as u64);
        first[1] = 9;
        assert_eq!((first[1], first[2], first.facts().len), (9, 3, 2));
        assert_eq!(second[..3], [1, 2, 3]);
        let third = second.share();
        drop(second);
        assert_eq!((third[1], pool.free()[0]), (2, 0));
        drop(third);
        drop(first);
        assert_eq!(pool.free()[0], 2);
    }

    #[test]
    fn sizes_are_rounded_up_and_oversize_is_not_kept() {
        let pool = Pool::new();
        assert_eq!(pool.buffer(1).len(), Pool::SMALL);
        for [below, above] in Pool::SIZES.array_windows() {
            assert_eq!(pool.buffer(below + 1).len(), *above);
            assert_eq!(pool.buffer(*above).len(), *above);
        }
        assert_eq!(pool.buffer(Pool::LARGE + 1).len(), Pool::LARGE + 1);
        assert_eq!(pool.free(), [1, 1, 1, 1]);
        assert_eq!(pool.held().0, Pool::SIZES.iter().sum::<usize>() as u64);
    }

    #[test]
    fn one_size_makes_room_for_another() {
        let pool = Pool::new();
        let bytes = 8 * Pool::SPARED;
        for size in [Pool::SMALL, 4 * 1024, 16 * 1024, Pool::LARGE, Pool::SMALL] {
            drop(
                (0..bytes / size)
                    .map(|_| pool.buffer(size))
                    .collect::<Vec<_>>(),
            );
            let held = pool.held().0 as usize;
            assert!(
                held <= bytes + 4 * Pool::SPARED + Pool::LARGE,
                "{held} at {size}"
            );
        }
    }

    #[test]
    fn unused_buffers_are_freed_except_for_a_reserve() {
        let pool = Pool::new();
        let used: Vec<_> = (0..4000).map(|n| pool.buffer(Pool::SIZES[n % 4])).collect();
        assert!(!pool.has_excess());
        let busy = pool.held();
        drop(used);
        assert_eq!(pool.held(), busy);
        let mut steps = 0;
        while pool.has_excess() {
            pool.give_back();
            steps += 1;
        }
        assert_eq!(steps, 1000_usize.div_ceil(64));
        let kept = (4 * Pool::KEPT) as u64;
        assert!((kept - Pool::LARGE as u64..=kept).contains(&pool.held().0));
        pool.give_back();
        let kept = pool.free();
        assert_eq!(kept, Pool::SIZES.map(|size| Pool::KEPT / size));
    }

    #[test]
    fn a_buffer_outlives_the_last_handle_on_its_pool() {
        let pool = Pool::new();
        let buffer = pool.buffer(1);
        drop(pool);
        assert_eq!(buffer.pool().free(), [0; 4]);
        let again = buffer.pool().clone();
        drop(again.buffer(1));
        assert_eq!(again.free(), [1, 0, 0, 0]);
    }

    #[test]
    fn a_pool_is_freed_with_its_last_handle_and_its_last_buffer() {
        let pool = Pool::new();
        let lists = Rc::downgrade(&pool.lists);
        let (used, last) = (pool.buffer(1), pool.buffer(Pool::LARGE));
        drop(pool.buffer(1));
        drop((pool.clone(), pool));
        assert_eq!(used.pool().free(), [0; 4]);
        let held = (Pool::SMALL + Pool::LARGE) as u64;
        assert_eq!(used.pool().held().0, held);
        drop(used);
        assert_eq!(last.pool().held().0, Pool::LARGE as u64);
        assert!(lists.upgrade().is_some());
        drop(last);
        assert!(lists.upgrade().is_none(), "no cycle is left");
    }
}
