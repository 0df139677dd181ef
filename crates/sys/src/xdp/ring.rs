//! The rings that a socket shares with the kernel: one side produces entries, the other consumes
//! them, and each publishes an index that only it writes.
//!
//! An index is published with release and read with acquire ordering, so that a reader of the index
//! also sees the entries before it (and the bytes of a chunk that was handed over). Indices run on
//! and wrap; places are computed from them by the mask alone, so no index that the other side
//! writes leads to an access outside of the ring.

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Mapped memory, until it is dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<c_void>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to the thread that made it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a socket's ring at `offset`, shared with the kernel.
    pub(super) fn shared(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: without an address of ours the kernel picks one where nothing
        // else is mapped.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) }?;
        Self::of(base, len)
    }

    /// Maps `len` bytes of zeros, starting at a page.
    pub(super) fn anonymous(len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: as above.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, flags) }?;
        Self::of(base, len)
    }

    fn of(base: *mut c_void, len: usize) -> io::Result<Self> {
        let base = NonNull::new(base).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { base, len })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn base(&self) -> *mut u8 {
        self.base.as_ptr().cast()
    }

    /// Returns the place of `count` values of `T` at `offset`: `InvalidData` if they are not in the
    /// mapping, or not aligned.
    fn place<T>(&self, offset: u64, count: usize) -> io::Result<NonNull<T>> {
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        let offset = usize::try_from(offset).map_err(|_| wrong())?;
        let size = size_of::<T>().checked_mul(count).ok_or_else(wrong)?;
        let end = offset.checked_add(size).ok_or_else(wrong)?;
        if end > self.len || !offset.is_multiple_of(align_of::<T>()) {
            return Err(wrong());
        }
        // SAFETY: the place lies within the mapping, as was just checked, and a
        // mapping starts at a page, which is aligned for anything.
        Ok(unsafe { self.base.byte_add(offset) }.cast())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and whatever points into it is
        // private to this module's types, which own it. There is nothing to be
        // done about an error.
        let _ = unsafe { munmap(self.base.as_ptr(), self.len) };
    }
}

/// Offsets of the parts of a ring in its mapping, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offsets {
    pub(super) producer: u64,
    pub(super) consumer: u64,
    pub(super) entries: u64,
    /// Since Linux 5.4.
    pub(super) flags: Option<u64>,
}

/// The common part of both kinds of ring.
#[derive(Debug)]
struct Ring<T> {
    /// The owner of the memory behind the pointers.
    _mapping: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: Option<NonNull<AtomicU32>>,
    entries: NonNull<T>,
    /// Entries minus one; the number of entries is a power of two.
    mask: u32,
    /// This side's index.
    mine: u32,
    /// The other side's index at the last read.
    theirs: u32,
    _entries: PhantomData<T>,
}

// SAFETY: the pointers lead into the mapping, which the ring owns and which any
// thread may use; `T` is plain data.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    fn new(mapping: Mapping, offsets: &Offsets, size: u32) -> io::Result<Self> {
        if !size.is_power_of_two() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self {
            producer: mapping.place(offsets.producer, 1)?,
            consumer: mapping.place(offsets.consumer, 1)?,
            flags: offsets.flags.map(|at| mapping.place(at, 1)).transpose()?,
            entries: mapping.place(offsets.entries, size as usize)?,
            mask: size - 1,
            mine: 0,
            theirs: 0,
            _entries: PhantomData,
            _mapping: mapping,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: `place` checked that it lies aligned in the mapping, which
        // lives as long as the ring; both sides access it as an atomic only.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.consumer.as_ref() }
    }

    /// Returns the place of entry number `index`.
    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: the mask keeps the place below the number of entries, and
        // `place` checked that those lie in the mapping.
        unsafe { self.entries.add((index & self.mask) as usize) }
    }

    /// Returns true if the kernel needs a wake-up to continue (`XDP_RING_NEED_WAKEUP`).
    fn needs_wakeup(&self) -> bool {
        let Some(flags) = self.flags else {
            return true;
        };
        // The kernel sets the flag and looks at the index again; this side wrote
        // the index and looks at the flag. A full fence on both sides makes sure
        // that one of them sees the other's.
        fence(Ordering::SeqCst);
        // SAFETY: as for `producer`.
        let flags = unsafe { flags.as_ref() }.load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that this side fills: chunks to receive into, frames to send.
#[derive(Debug)]
pub(super) struct Producer<T>(Ring<T>);

impl<T: Copy> Producer<T> {
    pub(super) fn new(mapping: Mapping, offsets: &Offsets, size: u32) -> io::Result<Self> {
        let mut ring = Ring::new(mapping, offsets, size)?;
        ring.mine = ring.producer().load(Ordering::Relaxed);
        ring.theirs = ring.consumer().load(Ordering::Acquire);
        Ok(Self(ring))
    }

    /// Returns the number of entries that the other side has not taken.
    pub(super) fn pending(&mut self) -> u32 {
        let ring = &mut self.0;
        ring.theirs = ring.consumer().load(Ordering::Acquire);
        ring.mine.wrapping_sub(ring.theirs).min(ring.mask + 1)
    }

    /// Returns true if there is room for one more entry.
    pub(super) fn has_room(&mut self) -> bool {
        let ring = &self.0;
        // The index read last is never more than the true one.
        ring.mine.wrapping_sub(ring.theirs) <= ring.mask || self.pending() <= self.0.mask
    }

    /// Adds an entry, which the other side sees once it is published; `false` if there is no room.
    pub(super) fn push(&mut self, entry: T) -> bool {
        if !self.has_room() {
            return false;
        }
        let ring = &mut self.0;
        // SAFETY: the entry lies in the ring, and it is this side's until the
        // index that includes it is published.
        unsafe { ring.entry(ring.mine).write(entry) };
        ring.mine = ring.mine.wrapping_add(1);
        true
    }

    /// Publishes the added entries to the other side.
    pub(super) fn publish(&mut self) {
        self.0.producer().store(self.0.mine, Ordering::Release);
    }

    /// Returns true if the kernel reports when it needs a wake-up.
    pub(super) fn has_flags(&self) -> bool {
        self.0.flags.is_some()
    }

    /// See [`Ring::needs_wakeup`].
    pub(super) fn needs_wakeup(&self) -> bool {
        self.0.needs_wakeup()
    }
}

/// A ring that the kernel fills: received frames, sent chunks.
#[derive(Debug)]
pub(super) struct Consumer<T>(Ring<T>);

impl<T: Copy> Consumer<T> {
    pub(super) fn new(mapping: Mapping, offsets: &Offsets, size: u32) -> io::Result<Self> {
        let mut ring = Ring::new(mapping, offsets, size)?;
        ring.mine = ring.consumer().load(Ordering::Relaxed);
        ring.theirs = ring.mine;
        Ok(Self(ring))
    }

    /// Takes the next entry, if there is one. Its place is the other side's again once it is
    /// released.
    pub(super) fn pop(&mut self) -> Option<T> {
        let ring = &mut self.0;
        if ring.mine == ring.theirs {
            ring.theirs = ring.producer().load(Ordering::Acquire);
            if ring.mine == ring.theirs {
                return None;
            }
        }
        // SAFETY: the entry lies in the ring; the other side published it before
        // the index that was read with acquire ordering, and leaves it alone
        // until it is released. Were its index wrong, an old entry would be
        // read: any bits are a value of the integers that entries are made of.
        let entry = unsafe { ring.entry(ring.mine).read() };
        ring.mine = ring.mine.wrapping_add(1);
        Some(entry)
    }

    /// Returns the places of the taken entries to the other side.
    pub(super) fn release(&mut self) {
        self.0.consumer().store(self.0.mine, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const OFFSETS: Offsets = Offsets {
        producer: 0,
        consumer: 64,
        entries: 128,
        flags: Some(192 + 64 * 8),
    };
    const SIZE: u32 = 8;

    /// Makes the memory of a ring; the test plays the kernel through the second handle.
    fn memory() -> (Mapping, NonNull<AtomicU32>, NonNull<AtomicU32>) {
        let mapping = Mapping::anonymous(4096).expect("a page");
        let producer = mapping.place(OFFSETS.producer, 1).expect("inside");
        let consumer = mapping.place(OFFSETS.consumer, 1).expect("inside");
        (mapping, producer, consumer)
    }

    fn set(index: NonNull<AtomicU32>, value: u32) {
        // SAFETY: the ring that owns the mapping is alive in every test.
        unsafe { index.as_ref() }.store(value, Ordering::Release);
    }

    fn get(index: NonNull<AtomicU32>) -> u32 {
        // SAFETY: as above.
        unsafe { index.as_ref() }.load(Ordering::Acquire)
    }

    #[test]
    fn parts_that_do_not_lie_in_the_mapping_are_refused() {
        for (offsets, size) in [
            (
                Offsets {
                    producer: 4096,
                    ..OFFSETS
                },
                SIZE,
            ),
            (
                Offsets {
                    consumer: u64::MAX,
                    ..OFFSETS
                },
                SIZE,
            ),
            (
                Offsets {
                    producer: 2,
                    ..OFFSETS
                },
                SIZE,
            ),
            (OFFSETS, 1024),
            (OFFSETS, 7),
        ] {
            let (mapping, ..) = memory();
            assert!(Producer::<u64>::new(mapping, &offsets, size).is_err());
        }
    }

    #[test]
    fn an_entry_is_seen_only_once_it_is_published() {
        let (mapping, producer, _) = memory();
        let mut ring = Producer::<u64>::new(mapping, &OFFSETS, SIZE).expect("a ring");
        assert!(ring.push(7));
        assert_eq!(get(producer), 0);
        ring.publish();
        assert_eq!(get(producer), 1);
    }

    proptest! {
        /// Compares with a queue, with indices that wrap in the middle.
        #[test]
        fn pushed_entries_reach_the_other_side_in_order(
            start in prop_oneof![Just(0), Just(u32::MAX - 3), any::<u32>()],
            steps in prop::collection::vec(any::<bool>(), 1..200),
        ) {
            let (mapping, producer, consumer) = memory();
            set(producer, start);
            set(consumer, start);
            let entries: NonNull<u64> = mapping.place(OFFSETS.entries, SIZE as usize).expect("inside");
            let mut ring = Producer::<u64>::new(mapping, &OFFSETS, SIZE).expect("a ring");
            let mut model = VecDeque::new();
            for (n, push) in (0..).zip(steps) {
                if push {
                    prop_assert_eq!(ring.push(n), model.len() < SIZE as usize);
                    if model.len() < SIZE as usize {
                        model.push_back(n);
                    }
                    ring.publish();
                } else if let Some(expected) = model.pop_front() {
                    let at = get(consumer);
                    // SAFETY: the mask keeps the place in the ring.
                    let seen = unsafe { entries.add((at % SIZE) as usize).read() };
                    prop_assert_eq!(seen, expected);
                    set(consumer, at.wrapping_add(1));
                }
                prop_assert_eq!(ring.pending() as usize, model.len());
            }
        }

        /// Indices that no kernel would write: no access leaves the ring, and nothing panics.
        #[test]
        fn wrong_indices_of_the_other_side_do_no_harm(
            indices in prop::collection::vec(any::<u32>(), 1..50),
        ) {
            let (mapping, producer, _) = memory();
            let mut consuming = Consumer::<u64>::new(mapping, &OFFSETS, SIZE).expect("a ring");
            let (mapping, _, consumer) = memory();
            let mut producing = Producer::<u64>::new(mapping, &OFFSETS, SIZE).expect("a ring");
            for index in indices {
                set(producer, index);
                for _ in 0..20 {
                    consuming.pop();
                }
                consuming.release();
                set(consumer, index);
                prop_assert!(producing.pending() <= SIZE);
                producing.push(1);
                producing.publish();
            }
        }
    }
}
