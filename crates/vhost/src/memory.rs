//! A guest's memory, and the log of writes to it.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use tailbound_sys::guest_memory::{FirstTouches, MapError, Region};
use vm_memory::bitmap::{Bitmap, BitmapSlice, WithBitmapSlice};
use vm_memory::{
    GuestAddress, GuestMemoryBackend, GuestMemoryRegion, GuestRegionCollection, VolatileMemory,
};

/// Maximum of regions of a guest's memory.
pub(crate) const MOST_REGIONS: usize = 64;

/// Maximum size of a guest's regions together: an address space has room for many such guests.
const MOST_BYTES: u64 = 8 << 40;

/// Number of bytes per bit of the log (`VHOST_LOG_PAGE`).
const PAGE: u64 = 4096;

/// Reason why a guest's memory is unusable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    #[error(transparent)]
    Map(#[from] MapError),
    #[error("the memory has two regions with the same addresses")]
    Overlap,
    #[error("the memory has more than {MOST_REGIONS} regions")]
    Regions,
    #[error("the memory has {0} bytes, and may have {MOST_BYTES}")]
    TooLarge(u64),
    #[error("no region of the memory is at guest address {0:#x}")]
    Unknown(u64),
    #[error("the address {0:#x} is in none of the memory's regions")]
    Address(u64),
}

/// A region as the VMM declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// Address in the guest.
    pub(crate) guest: u64,
    /// Address in the VMM.
    pub(crate) monitor: u64,
    /// Its length in bytes.
    pub(crate) len: u64,
    /// Offset in its file.
    pub(crate) offset: u64,
}

/// A guest's memory.
#[derive(Debug, Clone)]
pub struct Memory {
    places: Vec<Place>,
    regions: GuestRegionCollection<Region<LogSlice>>,
}

impl Memory {
    /// The memory of `regions`; what is written to it is logged in `log`.
    pub(crate) fn map(
        regions: impl IntoIterator<Item = (Place, File)>,
        log: &Arc<Log>,
    ) -> Result<Self, MemoryError> {
        let mut memory = Self {
            places: Vec::new(),
            regions: GuestRegionCollection::default(),
        };
        for (place, file) in regions {
            memory = memory.with(place, file, log)?;
        }
        Ok(memory)
    }

    /// The same with one region more.
    pub(crate) fn with(
        &self,
        place: Place,
        file: File,
        log: &Arc<Log>,
    ) -> Result<Self, MemoryError> {
        if self.places.len() == MOST_REGIONS {
            return Err(MemoryError::Regions);
        }
        let known: u64 = self.places.iter().map(|place| place.len).sum();
        let total = known.saturating_add(place.len);
        if total > MOST_BYTES {
            return Err(MemoryError::TooLarge(total));
        }
        let slice = LogSlice {
            log: Arc::clone(log),
            base: place.guest,
        };
        let region = Region::map(file, place.offset, place.len as usize, place.guest, slice)?;
        let region = match &log.touches {
            Some(touches) => region.counting(Arc::clone(touches)),
            None => region,
        };
        let regions = self.regions.insert_region(Arc::new(region));
        let mut places = self.places.clone();
        places.push(place);
        Ok(Self {
            places,
            regions: regions.map_err(|_| MemoryError::Overlap)?,
        })
    }

    /// The same without the region at a guest's address.
    pub(crate) fn without(&self, guest: u64, len: u64) -> Result<Self, MemoryError> {
        let mut places = self.places.clone();
        places.retain(|place| place.guest != guest);
        if places.is_empty() {
            return Ok(Self {
                places,
                regions: GuestRegionCollection::default(),
            });
        }
        let removed = self.regions.remove_region(GuestAddress(guest), len);
        let (regions, _) = removed.map_err(|_| MemoryError::Unknown(guest))?;
        Ok(Self { places, regions })
    }

    /// The guest's address of what the monitor sees at `address`.
    pub(crate) fn guest_address(&self, address: u64) -> Result<u64, MemoryError> {
        let place = self
            .places
            .iter()
            .find(|place| address.wrapping_sub(place.monitor) < place.len);
        let place = place.ok_or(MemoryError::Address(address))?;
        Ok(place.guest + (address - place.monitor))
    }

    /// Its regions,
    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }

    /// and the file of each.
    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        let regions = self
            .places
            .iter()
            .filter_map(|place| self.regions.find_region(GuestAddress(place.guest)));
        regions.map(Region::file)
    }

    /// The number of pages that its files have by now. Pages that were given back are looked for
    /// again.
    pub(crate) fn recount(&self) -> u64 {
        let pages = self.regions.iter().map(Region::recount);
        pages.filter_map(Result::ok).fold(0, u64::saturating_add)
    }

    /// Returns whether the file was truncated.
    pub(crate) fn is_lost(&self) -> bool {
        self.regions.iter().any(Region::is_lost)
    }
}

impl GuestMemoryBackend for Memory {
    type R = Region<LogSlice>;

    fn num_regions(&self) -> usize {
        self.regions.num_regions()
    }

    #[inline]
    fn find_region(&self, addr: GuestAddress) -> Option<&Self::R> {
        self.regions.find_region(addr)
    }

    fn iter(&self) -> impl Iterator<Item = &Self::R> {
        self.regions.iter()
    }
}

/// Log of the written pages during a migration: one bit per page, the lowest bit of a byte first.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The guest wants it (`VHOST_F_LOG_ALL`).
    is_on: AtomicBool,
    pages: Mutex<Option<Region>>,
    /// Pages that this process was the first to touch, if they are counted.
    touches: Option<Arc<FirstTouches>>,
}

impl Log {
    /// A log that is nowhere yet, of a guest whose first touches `touches` counts.
    pub(crate) fn of(touches: Option<Arc<FirstTouches>>) -> Self {
        Self {
            touches,
            ..Self::default()
        }
    }

    /// Starts the log in `len` bytes of a file.
    pub(crate) fn begin(&self, file: File, offset: u64, len: usize) -> Result<(), MapError> {
        let pages = Region::map(file, offset, len, 0, ())?;
        let before = self.pages().replace(pages);
        // Unmapped without the lock, for which the packet loop may wait.
        drop(before);
        Ok(())
    }

    /// Has it nowhere.
    pub(crate) fn end(&self) {
        self.switch(false);
        let before = self.pages().take();
        drop(before);
    }

    /// The file that it is in, where in it it begins, and its length in bytes.
    pub(crate) fn place(&self) -> io::Result<Option<(File, u64, usize)>> {
        let pages = self.pages();
        let place = pages.as_ref().map(|pages| {
            let file = pages.file().try_clone()?;
            Ok((file, pages.offset(), pages.len() as usize))
        });
        place.transpose()
    }

    fn pages(&self) -> MutexGuard<'_, Option<Region>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins or ends.
    pub(crate) fn switch(&self, on: bool) {
        self.is_on.store(on, Ordering::Release);
    }

    /// True if its own memory is gone, as far as is known without waiting.
    pub(crate) fn is_lost(&self) -> bool {
        let pages = match self.pages.try_lock() {
            Ok(pages) => pages,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // It is being changed: it is looked at again with the next burst.
            Err(TryLockError::WouldBlock) => return false,
        };
        pages.as_ref().is_some_and(Region::is_lost)
    }

    /// Notes that `len` bytes at a guest's address were written.
    #[inline]
    fn note(&self, at: u64, len: usize) {
        if self.is_on.load(Ordering::Acquire) && len > 0 {
            self.note_pages(at, len);
        }
    }

    #[cold]
    fn note_pages(&self, at: u64, len: usize) {
        let pages = self.pages();
        let Some(Ok(slice)) = pages.as_ref().map(GuestMemoryRegion::as_volatile_slice) else {
            return;
        };
        let last = at.saturating_add(len as u64 - 1) / PAGE;
        for page in at / PAGE..=last {
            // The monitor takes them out meanwhile, and other back ends put theirs in.
            let Ok(byte) = slice.get_atomic_ref::<AtomicU8>((page / 8) as usize) else {
                // Beyond the log is memory that the monitor does not ask about.
                return;
            };
            byte.fetch_or(1 << (page % 8), Ordering::Relaxed);
        }
    }
}

/// The log from a guest's address on.
#[derive(Debug, Clone)]
pub struct LogSlice {
    log: Arc<Log>,
    base: u64,
}

/// [`LogSlice`] by reference: updating a reference count would double the cost of a write.
#[derive(Debug, Clone, Copy)]
pub struct LogView<'l> {
    log: &'l Log,
    base: u64,
}

impl<'l> WithBitmapSlice<'l> for LogSlice {
    type S = LogView<'l>;
}

impl Bitmap for LogSlice {
    fn mark_dirty(&self, offset: usize, len: usize) {
        self.log.note(self.base.wrapping_add(offset as u64), len);
    }

    fn dirty_at(&self, _offset: usize) -> bool {
        // Nobody here asks: the log is the monitor's.
        false
    }

    fn slice_at(&self, offset: usize) -> LogView<'_> {
        LogView {
            log: &self.log,
            base: self.base.wrapping_add(offset as u64),
        }
    }
}

impl WithBitmapSlice<'_> for LogView<'_> {
    type S = Self;
}

impl BitmapSlice for LogView<'_> {}

impl Bitmap for LogView<'_> {
    fn mark_dirty(&self, offset: usize, len: usize) {
        self.log.note(self.base.wrapping_add(offset as u64), len);
    }

    fn dirty_at(&self, _offset: usize) -> bool {
        false
    }

    fn slice_at(&self, offset: usize) -> Self {
        Self {
            base: self.base.wrapping_add(offset as u64),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use vm_memory::Bytes;

    fn memfd(len: u64) -> File {
        let fd = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, len).unwrap();
        File::from(fd)
    }

    fn place(guest: u64, monitor: u64, len: u64) -> Place {
        Place {
            guest,
            monitor,
            len,
            offset: 0,
        }
    }

    #[test]
    fn writes_are_logged_while_that_is_on() {
        let log = Arc::new(Log::default());
        let region = (place(1 << 20, 0, 16 * PAGE), memfd(16 * PAGE));
        let memory = Memory::map([region], &log).unwrap();
        let file = memfd(PAGE);
        log.begin(file.try_clone().unwrap(), 0, 64).unwrap();
        let write = |page: u64, len| {
            let at = GuestAddress((1 << 20) + page * PAGE);
            memory.write_slice(&vec![1; len], at).unwrap();
        };
        let logged = || {
            let mut bytes = [0; 64];
            rustix::io::pread(&file, &mut bytes, 0).unwrap();
            let bits = (0..512).filter(|bit| bytes[bit / 8] >> (bit % 8) & 1 == 1);
            bits.map(|page| page - 256).collect::<Vec<_>>()
        };
        write(0, 1);
        assert_eq!(logged(), [0usize; 0]);
        log.switch(true);
        write(1, 1);
        write(3, 2 * PAGE as usize);
        memory
            .store(7u16, GuestAddress((1 << 20) + 9 * PAGE), Ordering::Release)
            .unwrap();
        assert_eq!(logged(), [1, 3, 4, 9]);
        log.switch(false);
        write(12, 1);
        assert_eq!(logged(), [1, 3, 4, 9]);
    }

    #[test]
    fn writes_beyond_the_dirty_log_succeed_unlogged() {
        let log = Arc::new(Log::default());
        let memory = Memory::map([(place(0, 0, 16 * PAGE), memfd(16 * PAGE))], &log).unwrap();
        log.switch(true);
        memory.write_slice(&[1], GuestAddress(0)).unwrap();
        log.begin(memfd(PAGE), 0, 1).unwrap();
        memory
            .write_slice(&vec![1; 9 * 4096], GuestAddress(0))
            .unwrap();
    }

    #[test]
    fn an_address_of_the_monitor_is_one_of_the_guest() {
        let log = Arc::default();
        let regions = [
            (place(0, 0x7000_0000, PAGE), memfd(PAGE)),
            (place(1 << 32, 0x1000_0000, PAGE), memfd(PAGE)),
        ];
        let memory = Memory::map(regions, &log).unwrap();
        assert_eq!(
            memory.guest_address(0x1000_0ffe).unwrap(),
            (1 << 32) + 0xffe
        );
        assert_eq!(memory.guest_address(0x7000_0000).unwrap(), 0);
        assert!(memory.guest_address(0x7000_1000).is_err());
        let without = memory.without(0, PAGE).unwrap();
        assert!(without.guest_address(0x7000_0000).is_err());
        assert!(without.without(5, PAGE).is_err());
    }

    #[test]
    fn regions_with_the_same_addresses_are_refused() {
        let log = Arc::default();
        let regions = [0, PAGE / 2].map(|at| (place(at, at, PAGE), memfd(PAGE)));
        let error = Memory::map(regions, &log).unwrap_err();
        assert!(matches!(error, MemoryError::Overlap), "{error}");
        let huge = Memory::map([(place(0, 0, 9 << 40), memfd(9 << 40))], &log);
        assert!(matches!(huge, Err(MemoryError::TooLarge(_))));
    }
}
