//! Memory that a driver shares with vhost's thread.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// A mapping of its own; all offsets into it are in bytes.
#[derive(Debug)]
pub(super) struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, and no thread's state is in it.
unsafe impl Send for Memory {}

impl Memory {
    /// Maps `len` bytes of zeros, all of them present.
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let (protection, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::POPULATE,
        );
        // SAFETY: the kernel selects the place, so that no other mapping is replaced.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, flags) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The address of an offset, as vhost takes it.
    pub(super) fn address(&self, offset: usize) -> u64 {
        self.at(offset, 0).as_ptr() as u64
    }

    /// The place of `len` bytes at `offset`.
    fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        let end = offset.checked_add(len).expect("an offset into the rings");
        assert!(end <= self.len, "{offset} + {len} of {}", self.len);
        // SAFETY: it is within the mapping.
        unsafe { self.start.add(offset) }
    }

    pub(super) fn word16(&self, offset: usize) -> &AtomicU16 {
        let place = self.at(offset, 2).cast::<AtomicU16>();
        assert!(place.is_aligned());
        // SAFETY: it is within the mapping, aligned, and any bits are a number; all sides access
        // it as a whole.
        unsafe { place.as_ref() }
    }

    pub(super) fn word32(&self, offset: usize) -> &AtomicU32 {
        let place = self.at(offset, 4).cast::<AtomicU32>();
        assert!(place.is_aligned());
        // SAFETY: as in `word16`.
        unsafe { place.as_ref() }
    }

    pub(super) fn word64(&self, offset: usize) -> &AtomicU64 {
        let place = self.at(offset, 8).cast::<AtomicU64>();
        assert!(place.is_aligned());
        // SAFETY: as in `word16`.
        unsafe { place.as_ref() }
    }

    /// Copies `bytes` to `offset`. The caller has the ring's word that vhost is not using them; a
    /// kernel that does all the same makes a wrong frame and nothing else.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        let place = self.at(offset, bytes.len());
        // SAFETY: the place has as many bytes, and is not of `bytes`, as it is borrowed mutably.
        unsafe { place.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    /// Copies from `offset` on, as [`Self::write`].
    pub(super) fn read(&self, offset: usize, bytes: &mut [u8]) {
        let place = self.at(offset, bytes.len());
        // SAFETY: the place has as many bytes, and is not of `bytes`, which are borrowed mutably.
        unsafe { place.copy_to_nonoverlapping(NonNull::from(&mut *bytes).cast(), bytes.len()) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `start` and `len` are of a mapping that this value owns; references to it do not
        // outlive the value.
        let _ = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.len) };
    }
}
