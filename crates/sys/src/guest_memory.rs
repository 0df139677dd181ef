//! Memory that another process shares with this one: that of a VM.
//!
//! The pages belong to a file, and its owner may shrink it: an access behind its end causes SIGBUS,
//! which ends a process. Here a handler replaces the missing pages by empty ones, as libwayland
//! does with a client's buffers, and the region is [lost](Region::is_lost) from then on: data that
//! was read meanwhile is zeros. Sealing the file against shrinking (`F_SEAL_SHRINK`) is not
//! required, since neither DPDK nor a file in `/dev/shm` is sealed. A copy by a system call would
//! cost as much CPU time as a TAP.

use crate::guest_memory::registry::Watch;
use crate::guest_memory::touches::Pages;
use rustix::fs::{FileType, fstat, fstatfs};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use vm_memory::bitmap::{BS, Bitmap};
use vm_memory::mmap::{MmapRegionBuilder, MmapRegionError};
use vm_memory::{
    FileOffset, GuestAddress, GuestMemoryError, GuestMemoryRegion, GuestMemoryRegionBytes,
    GuestRegionMmap, GuestUsize, MemoryRegionAddress, VolatileSlice,
};

mod registry;
mod touches;

pub use touches::{FirstTouches, PAGE};

/// File systems whose pages are in memory, so that no access waits for another process.
const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;

/// Reason why memory cannot be shared.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// An access could wait for a page, as long as the file's owner likes.
    #[error(
        "the memory is a file that is not in memory (file system type {kind:#x}): share a memfd, \
         a file in /dev/shm or one of hugetlbfs"
    )]
    FileSystem {
        /// `f_type` of `statfs(2)`.
        kind: u64,
    },
    /// The descriptor is no plain file.
    #[error("the memory is no plain file: share a memfd, a file in /dev/shm or one of hugetlbfs")]
    Kind,
    /// The file is shorter.
    #[error("{len} bytes at {offset} are not in the file, which has {size}")]
    Short {
        /// The first byte of the region.
        offset: u64,
        /// The length of the region in bytes.
        len: usize,
        /// The file's length in bytes.
        size: u64,
    },
    /// The region would end beyond the address space.
    #[error("{len} bytes at guest address {base:#x} are beyond all addresses")]
    Address {
        /// The region's first address.
        base: u64,
        /// Its length in bytes.
        len: usize,
    },
    /// The number of watched regions is at its limit.
    #[error(
        "this process shares {} regions of memory already, and no more",
        registry::SLOTS
    )]
    Many,
    /// The system refused.
    #[error("cannot {step}: {source}")]
    System {
        /// The step that failed.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

fn system(step: &'static str) -> impl Fn(io::Error) -> MapError {
    move |source| MapError::System { step, source }
}

/// A part of a file in memory, mapped for reading and writing, at a guest's addresses.
#[derive(Debug)]
pub struct Region<B: Bitmap = ()> {
    // Before the mapping: it is watched no more when that ends.
    watch: Watch,
    mapping: GuestRegionMmap<B>,
    /// The pages that were touched here first, if they are counted.
    pages: Option<Pages>,
}

impl<B: Bitmap> Region<B> {
    /// Maps `len` bytes of `file` from `offset` on, which are a guest's from `base` on; `bitmap`
    /// records writes.
    ///
    /// # Errors
    /// The file is shorter, or not in memory, or the system refused.
    pub fn map(
        file: File,
        offset: u64,
        len: usize,
        base: u64,
        bitmap: B,
    ) -> Result<Self, MapError> {
        check(&file, offset, len)?;
        registry::install().map_err(system("handle SIGBUS"))?;
        let mapping = MmapRegionBuilder::new_with_bitmap(len, bitmap)
            .with_file_offset(FileOffset::new(file, offset))
            .with_mmap_prot(libc::PROT_READ | libc::PROT_WRITE)
            .with_mmap_flags(libc::MAP_SHARED | libc::MAP_NORESERVE)
            .build()
            .map_err(|error| MapError::System {
                step: "map the memory",
                source: match error {
                    MmapRegionError::Mmap(source) => source,
                    other => io::Error::other(other),
                },
            })?;
        let start = mapping.as_ptr() as usize;
        let mapping = GuestRegionMmap::new(mapping, GuestAddress(base))
            .ok_or(MapError::Address { base, len })?;
        // SAFETY: the mapping is of `len` bytes from `start` on, and lives longer than the
        // watch: fields are dropped in the order of their declaration. Its bytes are
        // another process's to change at any time, so nothing relies on what is in them.
        let watch = unsafe { Watch::new(start, len) }.ok_or(MapError::Many)?;
        Ok(Self {
            watch,
            mapping,
            pages: None,
        })
    }

    /// Counts the pages that are touched here first, and that no other process had put into the
    /// file. Huge pages are charged to no control group's memory, and not counted.
    #[must_use]
    pub fn counting(mut self, touches: Arc<FirstTouches>) -> Self {
        let is_tmpfs =
            fstatfs(self.file().as_fd()).is_ok_and(|system| system.f_type.cast_unsigned() == TMPFS);
        if is_tmpfs {
            self.pages = Some(Pages::new(self.mapping.len() as usize, touches));
        }
        self
    }

    /// Returns the number of pages in the file by now. Pages that were released are checked again
    /// when they are touched.
    ///
    /// # Errors
    /// The file cannot be queried.
    pub fn recount(&self) -> io::Result<u64> {
        /// Bytes of a block, on every file system.
        const BLOCK: u64 = 512;
        if let Some(pages) = &self.pages {
            pages.forget();
        }
        let stat = fstat(self.file().as_fd())?;
        Ok(stat.st_blocks.cast_unsigned() * BLOCK / PAGE as u64)
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        self.place().file()
    }

    /// Returns the offset of the region in the file, in bytes.
    pub fn offset(&self) -> u64 {
        self.place().start()
    }

    fn place(&self) -> &FileOffset {
        let place = self.mapping.file_offset();
        place.unwrap_or_else(|| unreachable!("it was mapped from a file"))
    }

    /// Returns `count` bytes at `offset`, which must be in the mapping. `vm_memory`'s own method
    /// costs twice the instructions from here.
    #[inline]
    fn slice(&self, offset: usize, count: usize) -> VolatileSlice<'_, BS<'_, B>> {
        debug_assert!(offset + count <= self.mapping.size());
        let bitmap = GuestMemoryRegion::bitmap(&self.mapping).slice_at(offset);
        let start = self.mapping.as_ptr().wrapping_add(offset);
        // SAFETY: the bytes are of the mapping, which both callers have checked; it lives as long
        // as the slice, and is accessed by such slices alone.
        unsafe { VolatileSlice::with_bitmap(start, count, bitmap, None) }
    }

    /// Returns such bytes in a page that may be touched for the first time.
    #[cold]
    #[inline(never)]
    fn noted(&self, pages: &Pages, offset: usize, count: usize) -> VolatileSlice<'_, BS<'_, B>> {
        pages.note(self.mapping.as_ptr(), self.mapping.size(), offset, count);
        self.slice(offset, count)
    }

    /// Returns true if the file no longer contains the whole region: data read from then on is
    /// unusable.
    pub fn is_lost(&self) -> bool {
        self.watch.is_lost()
    }
}

/// Checks that a file can be mapped, as far as that is known before.
fn check(file: &File, offset: u64, len: usize) -> Result<(), MapError> {
    let stat = fstat(file.as_fd()).map_err(io::Error::from);
    let stat = stat.map_err(system("see the memory's file"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(MapError::Kind);
    }
    let system_type = fstatfs(file.as_fd()).map_err(io::Error::from);
    let system_type = system_type.map_err(system("see the memory's file system"))?;
    let kind = system_type.f_type.cast_unsigned();
    if kind != TMPFS && kind != HUGETLBFS {
        return Err(MapError::FileSystem { kind });
    }
    let size = stat.st_size.cast_unsigned();
    let end = offset.checked_add(len as u64);
    if end.is_none_or(|end| end > size) {
        return Err(MapError::Short { offset, len, size });
    }
    Ok(())
}

impl<B: Bitmap> GuestMemoryRegion for Region<B> {
    type B = B;

    fn len(&self) -> GuestUsize {
        self.mapping.len()
    }

    fn start_addr(&self) -> GuestAddress {
        self.mapping.start_addr()
    }

    fn bitmap(&self) -> BS<'_, B> {
        GuestMemoryRegion::bitmap(&self.mapping)
    }

    #[inline]
    fn get_slice(
        &self,
        offset: MemoryRegionAddress,
        count: usize,
    ) -> Result<VolatileSlice<'_, BS<'_, B>>, GuestMemoryError> {
        let offset = offset.0 as usize;
        let total = self.mapping.size();
        if offset > total || count > total - offset {
            return Err(GuestMemoryError::InvalidBackendAddress);
        }
        match &self.pages {
            Some(pages) if pages.is_news(offset, count) => Ok(self.noted(pages, offset, count)),
            Some(_) | None => Ok(self.slice(offset, count)),
        }
    }
}

impl<B: Bitmap> GuestMemoryRegionBytes for Region<B> {}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::sync::atomic::{AtomicU64, Ordering};
    use vm_memory::{Bytes, GuestMemoryBackend, GuestRegionCollection};

    fn memfd(len: u64) -> File {
        let fd = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, len).unwrap();
        File::from(fd)
    }

    #[test]
    fn writes_to_a_mapped_region_reach_its_file() {
        let file = memfd(8192);
        let region = Region::map(file.try_clone().unwrap(), 4096, 4096, 0x10_000, ()).unwrap();
        let memory = GuestRegionCollection::from_regions(vec![region]).unwrap();
        memory
            .write_slice(b"hello", GuestAddress(0x10_010))
            .unwrap();
        let mut bytes = [0; 5];
        rustix::io::pread(&file, &mut bytes, 4096 + 16).unwrap();
        assert_eq!(&bytes, b"hello");
        assert!(
            memory
                .read_slice(&mut bytes, GuestAddress(0x10_ffc))
                .is_err()
        );
    }

    #[test]
    fn a_file_that_shrinks_costs_its_region_and_nothing_else() {
        let file = memfd(16 * 4096);
        let lost = Region::map(file.try_clone().unwrap(), 0, 16 * 4096, 0, ()).unwrap();
        let kept = Region::map(memfd(4096), 0, 4096, 1 << 20, ()).unwrap();
        let memory = GuestRegionCollection::from_regions(vec![lost, kept]).unwrap();
        memory.write_slice(&[7; 4096], GuestAddress(8192)).unwrap();
        memory.write_slice(&[7; 16], GuestAddress(1 << 20)).unwrap();
        let is_lost = || -> Vec<_> { memory.iter().map(Region::is_lost).collect() };
        ftruncate(&file, 4096).unwrap();
        assert_eq!(is_lost(), [false, false]);
        let mut bytes = [1; 32];
        memory.read_slice(&mut bytes, GuestAddress(8192)).unwrap();
        assert_eq!((bytes, is_lost()), ([0; 32], vec![true, false]));
        // Writes too, and in the part that was left.
        memory.write_slice(&[9; 64], GuestAddress(12_288)).unwrap();
        memory.write_slice(&[9; 64], GuestAddress(0)).unwrap();
        memory
            .read_slice(&mut bytes[..16], GuestAddress(1 << 20))
            .unwrap();
        assert_eq!(bytes[..16], [7; 16]);
    }

    #[test]
    fn another_threads_access_is_mended_as_well() {
        let file = memfd(4096);
        let region = Region::map(file.try_clone().unwrap(), 0, 4096, 0, ()).unwrap();
        ftruncate(&file, 0).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| region.read_obj::<u64>(MemoryRegionAddress(64)).unwrap());
            }
        });
        assert!(region.is_lost());
    }

    #[test]
    fn first_touches_of_absent_pages_are_counted_once() {
        const PAGES: usize = 300;
        let file = memfd((PAGES * PAGE) as u64);
        // The guest has each third.
        for page in (0..PAGES).step_by(3) {
            rustix::io::pwrite(&file, &[1], (page * PAGE) as u64).unwrap();
        }
        let all = Arc::new(AtomicU64::new(7));
        let touches = Arc::new(FirstTouches::among(Arc::clone(&all)));
        let region = Region::map(file.try_clone().unwrap(), 0, PAGES * PAGE, 0, ()).unwrap();
        let region = region.counting(Arc::clone(&touches));
        let touch = |page: usize, len: usize| {
            let at = MemoryRegionAddress((page * PAGE) as u64);
            region
                .get_slice(at, len)
                .unwrap()
                .write_slice(&vec![1; len], 0)
                .unwrap();
        };
        touch(0, PAGE);
        assert_eq!(touches.own(), 0, "the guest's");
        touch(1, 1);
        touch(1, PAGE);
        assert_eq!(touches.own(), 1);
        // Reading is touching as well.
        let at = MemoryRegionAddress((2 * PAGE) as u64);
        let mut bytes = [0; 8];
        region
            .get_slice(at, 8)
            .unwrap()
            .read_slice(&mut bytes, 0)
            .unwrap();
        assert_eq!(touches.own(), 2);
        touch(4, 2 * PAGE);
        assert_eq!(touches.own(), 4);
        // The guest was there before, though later than others of that word.
        rustix::io::pwrite(&file, &[1], (7 * PAGE) as u64).unwrap();
        touch(7, 1);
        assert_eq!(touches.own(), 4);
        (0..PAGES).for_each(|page| touch(page, 1));
        assert_eq!(touches.own(), PAGES as u64 * 2 / 3 - 1);
        assert_eq!(all.load(Ordering::Relaxed), 7 + touches.own());
        // What it gives back is looked for again.
        rustix::fs::fallocate(
            &file,
            rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE,
            0,
            (100 * PAGE) as u64,
        )
        .unwrap();
        touches.limit_to(region.recount().unwrap());
        let left = touches.own();
        assert!(left <= 200, "{left}");
        touch(50, 1);
        assert_eq!(touches.own(), left + 1);
        drop(region);
        drop(touches);
        assert_eq!(all.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn files_not_in_memory_or_too_short_are_not_mapped() {
        let short = Region::map(memfd(4096), 0, 8192, 0, ());
        assert!(
            matches!(short, Err(MapError::Short { size: 4096, .. })),
            "{short:?}"
        );
        let beyond = Region::map(memfd(4096), u64::MAX, 4096, 0, ());
        assert!(matches!(beyond, Err(MapError::Short { .. })), "{beyond:?}");
        let beyond = Region::map(memfd(4096), 0, 4096, u64::MAX - 1, ());
        assert!(
            matches!(beyond, Err(MapError::Address { .. })),
            "{beyond:?}"
        );
        let device = Region::map(File::open("/dev/zero").unwrap(), 0, 4096, 0, ());
        assert!(matches!(device, Err(MapError::Kind)), "{device:?}");
        let disk = Region::map(File::open("/proc/self/status").unwrap(), 0, 1, 0, ());
        assert!(matches!(disk, Err(MapError::FileSystem { .. })), "{disk:?}");
    }
}
