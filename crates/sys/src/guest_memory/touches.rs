//! Pages of a guest's memory that this process was the first to touch. The kernel charges a
//! page of a file in memory to the process that touches it first, so these are charged to this
//! one (`MemoryMax`), though the guest uses them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Pages in a word of bits.
const WORD: usize = u64::BITS as usize;

/// The number of pages of one guest that this process touched first, and of all guests.
#[derive(Debug, Default)]
pub struct FirstTouches {
    own: AtomicU64,
    all: Arc<AtomicU64>,
}

impl FirstTouches {
    /// No pages of a guest yet; `all` counts the pages of all guests.
    pub fn among(all: Arc<AtomicU64>) -> Self {
        Self {
            own: AtomicU64::new(0),
            all,
        }
    }

    /// The number of pages of the guest.
    pub fn own(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }

    /// Counts pages that were touched, here or by the process before this one.
    pub fn add(&self, pages: u64) {
        self.own.fetch_add(pages, Ordering::Relaxed);
        self.all.fetch_add(pages, Ordering::Relaxed);
    }

    /// Corrects the number: pages that the guest gave back since are counted still.
    pub fn limit_to(&self, pages: u64) {
        let more = self.own().saturating_sub(pages);
        self.own.fetch_sub(more, Ordering::Relaxed);
        subtract(&self.all, more);
    }
}

impl Drop for FirstTouches {
    fn drop(&mut self) {
        subtract(&self.all, self.own());
    }
}

/// Subtracts `count`, and stops at zero.
fn subtract(all: &AtomicU64, count: u64) {
    let less = |all: u64| Some(all.saturating_sub(count));
    // An error is that nothing changes.
    let _ = all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// The pages of a mapping that are known to be there.
#[derive(Debug)]
pub(super) struct Pages {
    /// A bit a page.
    known: Box<[AtomicU64]>,
    touches: Arc<FirstTouches>,
}

impl Pages {
    /// The pages of a mapping of `len` bytes, none of which is known.
    pub(super) fn new(len: usize, touches: Arc<FirstTouches>) -> Self {
        let words = len.div_ceil(PAGE * WORD);
        // Memory that nobody has touched: a page for each 128 MiB that are used.
        let zeros = vec![0u64; words].into_boxed_slice();
        let known = Box::into_raw(zeros) as *mut [AtomicU64];
        // SAFETY: the box was made one line above, of numbers that have the size and the
        // alignment of atomic ones on each platform that this is built for.
        let known = unsafe { Box::from_raw(known) };
        Self { known, touches }
    }

    /// True unless all of `len` bytes at `offset` are on one page that is known to be there.
    #[inline]
    pub(super) fn is_news(&self, offset: usize, len: usize) -> bool {
        let page = offset / PAGE;
        let is_one = offset % PAGE + len <= PAGE;
        let word = self.known.get(page / WORD);
        let is_known =
            word.is_some_and(|word| word.load(Ordering::Relaxed) >> (page % WORD) & 1 == 1);
        !(is_one && is_known)
    }

    /// Records that `len` bytes at `offset` of the mapping at `start`, which has `total` bytes, are
    /// about to be touched.
    #[cold]
    pub(super) fn note(&self, start: *const u8, total: usize, offset: usize, len: usize) {
        if len == 0 {
            return;
        }
        for page in offset / PAGE..=(offset + len - 1) / PAGE {
            let word = self.known[page / WORD].load(Ordering::Relaxed);
            if word >> (page % WORD) & 1 == 0 {
                self.look(start, total, page, word);
            }
        }
    }

    /// Finds the present pages around one, and counts that page if it is missing.
    fn look(&self, start: *const u8, total: usize, page: usize, word: u64) {
        // All of the word's pages when the first of them is touched, one by one later.
        let (first, count) = if word == 0 {
            let first = page / WORD * WORD;
            (first, WORD.min(total.div_ceil(PAGE) - first))
        } else {
            (page, 1)
        };
        let mut there = [0u8; WORD];
        let len = (count * PAGE).min(total - first * PAGE);
        // SAFETY: `len` bytes from there on are of the mapping, and `there` has a byte for each
        // of their pages.
        let done = unsafe {
            let at = start.wrapping_add(first * PAGE).cast_mut().cast();
            libc::mincore(at, len, there.as_mut_ptr())
        };
        if done != 0 {
            // Unknown: it is counted by nobody.
            there = [1; WORD];
        }
        let there = there[..count].iter().enumerate();
        let there = there.filter(|(_, there)| *there & 1 == 1);
        let mut known = there.fold(0, |bits, (place, _)| bits | 1 << ((first + place) % WORD));
        let own = 1 << (page % WORD);
        if known & own == 0 {
            self.touches.add(1);
            known |= own;
        }
        self.known[page / WORD].fetch_or(known, Ordering::Relaxed);
    }

    /// Resets the known pages, as some may have been released since.
    pub(super) fn forget(&self) {
        for word in &self.known {
            // Those of which nothing is known are not written to.
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
    }
}
