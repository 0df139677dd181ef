//! How much of guests' memory may count as this process's: a page of it is charged to whoever
//! touches it first, and a guest can have the packet loop touch any.
//!
//! All cards together have a quarter of what the process may have (`MemoryMax`). While they are
//! above that, a card with more than its equal part of it is held, and a thread of its own asks
//! the system how much is charged in truth: pages that guests gave back are counted by nobody
//! else. If it is that much, the card's rings are broken, and its name is in the log. The loop
//! itself compares two numbers.

use crate::device::{Shared, State};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;
use tailbound_sys::guest_memory::{FirstTouches, PAGE};
use tailbound_units::Bytes;

/// The part of the process's limit that guests' memory may have.
const PART: u64 = 4;

/// How soon a limit that was changed is known.
const AGAIN: Duration = Duration::from_secs(10);

/// Pages that may be touched until the system is asked again, where less was charged than was
/// counted.
const STEP: u64 = 256;

/// What the system says of this process.
pub trait Charges: Send {
    /// The most memory that it may have; `None` for any.
    fn limit(&mut self) -> Option<Bytes>;

    /// What is charged to it of files in memory, guests' memory among them; `None` where that
    /// is not known.
    fn charged(&mut self) -> Option<Bytes>;
}

/// What all cards of a process may have.
#[derive(Clone)]
pub struct Allowance(Arc<Inner>);

struct Inner {
    /// Pages that were touched first here, of all guests.
    all: Arc<AtomicU64>,
    /// How many there may be.
    most: Arc<AtomicU64>,
    cards: AtomicU64,
    questions: Sender<Weak<Shared>>,
}

impl fmt::Debug for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { all, most, .. } = &*self.0;
        write!(f, "Allowance({all:?} of {most:?} pages)")
    }
}

/// A card's part of it, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Part {
    allowance: Option<Allowance>,
    pub(crate) touches: Arc<FirstTouches>,
}

impl Allowance {
    /// A quarter of what `charges` says that the process may have.
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

impl Part {
    /// That of a card that may have any.
    pub(crate) fn unlimited() -> Self {
        Self {
            allowance: None,
            touches: Arc::default(),
        }
    }

    /// Whether all cards are above what they may have, and this one above its equal part.
    pub(crate) fn is_exceeded(&self) -> bool {
        let Some(Allowance(inner)) = &self.allowance else {
            return false;
        };
        let most = inner.most.load(Ordering::Relaxed);
        let cards = inner.cards.load(Ordering::Relaxed).max(1);
        inner.all.load(Ordering::Relaxed) > most && self.touches.own() > most / cards
    }

    /// Has the system asked about a card.
    pub(crate) fn ask(&self, card: &Arc<Shared>) {
        if let Some(Allowance(inner)) = &self.allowance {
            // The thread ends with the last of these.
            let _ = inner.questions.send(Arc::downgrade(card));
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

/// The thread that asks the system.
struct Steward {
    all: Arc<AtomicU64>,
    most: Arc<AtomicU64>,
    asked: Receiver<Weak<Shared>>,
}

impl Steward {
    fn run(self, mut charges: impl Charges) {
        loop {
            let card = match self.asked.recv_timeout(AGAIN) {
                Ok(card) => card.upgrade(),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            self.most.store(part_of(charges.limit()), Ordering::Relaxed);
            if let Some(card) = card {
                self.judge(&card, charges.charged());
            }
        }
    }

    /// Breaks the rings of a card that has too much, if that is so.
    fn judge(&self, card: &Shared, charged: Option<Bytes>) {
        let touches = &card.part.touches;
        // A file has at most the pages that it has.
        let memory = card.change(|device| device.memory.clone());
        touches.limit_to(memory.map_or(0, |memory| memory.recount()));
        if let Some(charged) = charged.map(pages) {
            touches.limit_to(charged);
            let most = self.most.load(Ordering::Relaxed);
            if charged < most {
                let less = |all: u64| Some(all.min(charged).min(most.saturating_sub(STEP)));
                let _ = (self.all).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            }
        }
        let is_exceeded = card.part.is_exceeded();
        if is_exceeded {
            card.change(|device| {
                for index in 0..device.rings.len() {
                    if matches!(device.rings[index].state, State::Running(_)) {
                        device.fail(index);
                    }
                }
            });
        }
        card.judged(is_exceeded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process with a limit, to which so much is charged.
    struct Said(Option<u64>, u64);

    impl Charges for Said {
        fn limit(&mut self) -> Option<Bytes> {
            self.0.map(Bytes)
        }
        fn charged(&mut self) -> Option<Bytes> {
            Some(Bytes(self.1))
        }
    }

    #[test]
    fn a_process_without_a_limit_asks_for_nothing() {
        let allowance = Allowance::start(Said(None, 0)).expect("a thread");
        let part = allowance.part();
        allowance.0.all.store(u64::MAX - 1, Ordering::Relaxed);
        assert!(!part.is_exceeded());
        assert!(!Part::unlimited().is_exceeded());
    }

    #[test]
    fn cards_have_equal_parts_of_a_quarter() {
        let allowance = Allowance::start(Said(Some(64 << 20), 0)).expect("a thread");
        let parts = [allowance.part(), allowance.part()];
        assert_eq!(allowance.0.most.load(Ordering::Relaxed), 4096);
        assert_eq!(allowance.0.cards.load(Ordering::Relaxed), 2);
        drop(parts);
        assert_eq!(allowance.0.cards.load(Ordering::Relaxed), 0);
    }
}
