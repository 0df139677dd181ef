//! Limit of the guests' memory that is charged to this process. The kernel charges a page to the
//! process that touches it first, and a guest can make the packet loop touch any page.
//!
//! All NICs together may use a quarter of the process's limit (`MemoryMax`). Above it, a NIC with
//! more than its equal share is held, and a thread reads the charge from the system, because pages
//! that guests returned are still counted here. If the charge also exceeds the quarter, the NIC's
//! rings are broken, and the log has its name. The packet loop only compares two numbers.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;
use tailbound_sys::guest_memory::{FirstTouches, PAGE};
use tailbound_units::Bytes;

/// Divisor of the process's limit: the guests' memory may use this fraction.
const PART: u64 = 4;

/// Interval between two readings of the limit.
const REFRESH: Duration = Duration::from_secs(10);

/// Number of pages after which the system is queried again, if less was charged than counted.
const STEP: u64 = 256;

/// Pages that a burst of one ring may touch first. The kernel takes about 3 us to allocate and clear
/// one, so other ports wait for 12 us of that in a turn and not for a whole burst.
const MOST_FRESH: u64 = 4;

/// Descriptors that a first touch is charged as, at 50 ns each.
const FRESH_PIECES: u64 = 64;

/// Account of a NIC.
pub(crate) trait Card: Send + Sync {
    /// Its part of the allowance.
    fn part(&self) -> &Part;

    /// Returns the number of pages of the memory.
    fn pages(&self) -> u64;

    /// Breaks its rings if it has more than its part; either way it was judged.
    fn judged(&self, is_exceeded: bool);
}

/// The system's account of this process.
pub trait Charges: Send {
    /// The most memory that it may have; `None` for any.
    fn limit(&mut self) -> Option<Bytes>;

    /// The charge for files in memory, guests' memory among them; `None` if it is unknown.
    fn charged(&mut self) -> Option<Bytes>;
}

/// Allowance of all NICs of a process.
#[derive(Clone)]
pub struct Allowance(Arc<Inner>);

struct Inner {
    /// Pages that were touched first here, of all guests.
    all: Arc<AtomicU64>,
    /// The limit of `all`.
    most: Arc<AtomicU64>,
    cards: AtomicU64,
    questions: Sender<Weak<dyn Card>>,
}

impl fmt::Debug for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { all, most, .. } = &*self.0;
        write!(f, "Allowance({all:?} of {most:?} pages)")
    }
}

/// A NIC's share of the allowance, until it is dropped.
#[derive(Debug)]
pub(crate) struct Part {
    allowance: Option<Allowance>,
    pub(crate) touches: Arc<FirstTouches>,
}

impl Allowance {
    /// A quarter of the limit that `charges` reports.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(mut charges: impl Charges + 'static) -> io::Result<Self> {
        let most = Arc::new(AtomicU64::new(part_of(charges.limit())));
        let (questions, asked) = channel();
        let all = Arc::new(AtomicU64::new(0));
        let steward = Steward {
            all: Arc::clone(&all),
            most: Arc::clone(&most),
            asked,
        };
        let thread = thread::Builder::new().name("guest-memory".to_owned());
        thread.spawn(move || steward.run(charges))?;
        Ok(Self(Arc::new(Inner {
            all,
            most,
            cards: AtomicU64::new(0),
            questions,
        })))
    }

    /// The part of one card more.
    pub(crate) fn part(&self) -> Part {
        self.0.cards.fetch_add(1, Ordering::Relaxed);
        Part {
            touches: Arc::new(FirstTouches::among(Arc::clone(&self.0.all))),
            allowance: Some(self.clone()),
        }
    }
}

/// The first touches of pages in a burst.
pub(crate) struct Fresh<'p> {
    /// `None` if they are not counted.
    touches: Option<&'p FirstTouches>,
    before: u64,
}

impl Fresh<'_> {
    /// The number of pages.
    fn pages(&self) -> u64 {
        let pages = |touches: &FirstTouches| touches.own().saturating_sub(self.before);
        self.touches.map_or(0, pages)
    }

    /// True if the burst shall end.
    pub(crate) fn is_enough(&self) -> bool {
        self.pages() >= MOST_FRESH
    }

    /// The number of descriptors that they are charged as.
    pub(crate) fn pieces(&self) -> usize {
        (self.pages() * FRESH_PIECES) as usize
    }
}

impl Part {
    /// Begins to count first touches for a burst.
    pub(crate) fn begin_burst(&self) -> Fresh<'_> {
        let touches = self.allowance.as_ref().map(|_| &*self.touches);
        Fresh {
            touches,
            before: touches.map_or(0, FirstTouches::own),
        }
    }

    /// The part of a card without a limit.
    pub(crate) fn unlimited() -> Self {
        Self {
            allowance: None,
            touches: Arc::default(),
        }
    }

    /// Returns the counter of pages that are touched first; `None` without a limit, as each access to the
    /// guest's memory then takes a tenth fewer instructions.
    pub(crate) fn counted(&self) -> Option<Arc<FirstTouches>> {
        self.allowance.as_ref()?;
        Some(Arc::clone(&self.touches))
    }

    /// True if all cards are above their allowance, and this one above its equal part.
    pub(crate) fn is_exceeded(&self) -> bool {
        let Some(Allowance(inner)) = &self.allowance else {
            return false;
        };
        let most = inner.most.load(Ordering::Relaxed);
        let cards = inner.cards.load(Ordering::Relaxed).max(1);
        inner.all.load(Ordering::Relaxed) > most && self.touches.own() > most / cards
    }

    /// Requests a judgement of a card.
    pub(crate) fn ask(&self, card: Weak<dyn Card>) {
        if let Some(Allowance(inner)) = &self.allowance {
            // The thread ends with the last of these.
            let _ = inner.questions.send(card);
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(Allowance(inner)) = &self.allowance {
            inner.cards.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn part_of(limit: Option<Bytes>) -> u64 {
    limit.map_or(u64::MAX, |limit| pages(limit) / PART)
}

const fn pages(bytes: Bytes) -> u64 {
    bytes.0 / PAGE as u64
}

/// The thread that reads the true charge.
struct Steward {
    all: Arc<AtomicU64>,
    most: Arc<AtomicU64>,
    asked: Receiver<Weak<dyn Card>>,
}

impl Steward {
    fn run(self, mut charges: impl Charges) {
        loop {
            let card = match self.asked.recv_timeout(REFRESH) {
                Ok(card) => card.upgrade(),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            self.most.store(part_of(charges.limit()), Ordering::Relaxed);
            if let Some(card) = card {
                self.judge(&*card, charges.charged());
            }
        }
    }

    /// Has a card judged by what the system charges.
    fn judge(&self, card: &dyn Card, charged: Option<Bytes>) {
        let touches = &card.part().touches;
        // A file has at most the pages that it has.
        touches.limit_to(card.pages());
        if let Some(charged) = charged.map(pages) {
            touches.limit_to(charged);
            let most = self.most.load(Ordering::Relaxed);
            if charged < most {
                let less = |all: u64| Some(all.min(charged).min(most.saturating_sub(STEP)));
                let _ = (self.all).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            }
        }
        card.judged(card.part().is_exceeded());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit of a process, and its charge.
    struct Account(Option<u64>, u64);

    impl Charges for Account {
        fn limit(&mut self) -> Option<Bytes> {
            self.0.map(Bytes)
        }
        fn charged(&mut self) -> Option<Bytes> {
            Some(Bytes(self.1))
        }
    }

    #[test]
    fn a_process_without_a_limit_holds_no_card() {
        let allowance = Allowance::start(Account(None, 0)).expect("a thread");
        let part = allowance.part();
        allowance.0.all.store(u64::MAX - 1, Ordering::Relaxed);
        assert!(!part.is_exceeded());
        assert!(!Part::unlimited().is_exceeded());
    }

    #[test]
    fn cards_have_equal_parts_of_a_quarter() {
        let allowance = Allowance::start(Account(Some(64 << 20), 0)).expect("a thread");
        let parts = [allowance.part(), allowance.part()];
        assert_eq!(allowance.0.most.load(Ordering::Relaxed), 4096);
        assert_eq!(allowance.0.cards.load(Ordering::Relaxed), 2);
        drop(parts);
        assert_eq!(allowance.0.cards.load(Ordering::Relaxed), 0);
    }
}
