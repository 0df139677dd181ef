//! A queue for each payer, served by the time that their work takes.
//!
//! Start-time fair queueing with equal weights: the payer who used least time is served next, and a
//! payer who was idle begins at the least time of the waiting payers. So a payer waits for at
//! most one piece of work of each other payer between two of its own, however much they send.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

/// The payer of a piece of work: it takes a part of this payer's share of the time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Payer {
    /// All operators.
    Operators,
    /// All hosts.
    Hosts,
    /// One owner.
    Owner(String),
}

impl Payer {
    pub(crate) const fn is_owner(&self) -> bool {
        matches!(self, Self::Owner(_))
    }
}

impl fmt::Display for Payer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operators => formatter.write_str("operators"),
            Self::Hosts => formatter.write_str("hosts"),
            Self::Owner(owner) => write!(formatter, "the owner {owner:?}"),
        }
    }
}

/// Work of several payers. Work of one payer stays in its order.
#[derive(Debug)]
pub(crate) struct FairQueue<P, T> {
    payers: HashMap<P, Account<T>>,
    /// Payers whose work waits, by the time that they used.
    waiting: BTreeSet<(Duration, P)>,
    /// The time of the payer who was served last.
    floor: Duration,
    len: usize,
}

#[derive(Debug)]
struct Account<T> {
    used: Duration,
    work: VecDeque<T>,
}

impl<P, T> Default for FairQueue<P, T> {
    fn default() -> Self {
        Self {
            payers: HashMap::new(),
            waiting: BTreeSet::new(),
            floor: Duration::ZERO,
            len: 0,
        }
    }
}

impl<P: Hash + Ord + Clone, T> FairQueue<P, T> {
    /// Adds a piece of work behind the others of its payer.
    pub(crate) fn push(&mut self, payer: P, work: T) {
        let floor = self.floor;
        let account = self.payers.entry(payer.clone()).or_insert_with(|| Account {
            used: floor,
            work: VecDeque::new(),
        });
        if account.work.is_empty() {
            account.used = account.used.max(floor);
            self.waiting.insert((account.used, payer));
        }
        account.work.push_back(work);
        self.len += 1;
    }

    /// Removes the next piece of work. The caller reports by [`Self::charge`] how long it took.
    pub(crate) fn pop(&mut self) -> Option<(P, T)> {
        let (used, payer) = self.waiting.pop_first()?;
        self.floor = self.floor.max(used);
        let account = self.payers.get_mut(&payer).expect("it waits");
        let work = account.work.pop_front().expect("it waits with work");
        if !account.work.is_empty() {
            self.waiting.insert((used, payer.clone()));
        }
        self.len -= 1;
        Some((payer, work))
    }

    /// Adds the time that a piece of work took.
    pub(crate) fn charge(&mut self, payer: &P, took: Duration) {
        let Some(account) = self.payers.get_mut(payer) else {
            return;
        };
        if !account.work.is_empty() {
            self.waiting.remove(&(account.used, payer.clone()));
            self.waiting.insert((account.used + took, payer.clone()));
        }
        account.used += took;
        // A payer who worked while no other one waited owes nothing.
        if self.len == 0 {
            self.floor = self.floor.max(account.used);
        }
        // A payer with no more than an idle one begins with needs no entry.
        let floor = self.floor;
        if self.payers.len() > 2 * self.waiting.len() + FORGETTING {
            self.payers
                .retain(|_, payer| !payer.work.is_empty() || payer.used > floor);
        }
    }

    /// Returns the amount of work that waits, of a payer.
    pub(crate) fn of(&self, payer: &P) -> usize {
        self.payers.get(payer).map_or(0, |payer| payer.work.len())
    }

    /// Returns the amount of work that waits.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }
}

/// Idle payers that are remembered at least.
const FORGETTING: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_payer_with_long_work_leaves_others_half_of_the_time() {
        let mut queue = FairQueue::default();
        for number in 0..100 {
            queue.push("long", number);
            queue.push("short", number);
        }
        let (mut long, mut short) = (0, 0);
        while short < 50 {
            let (payer, _) = queue.pop().unwrap();
            let is_long = payer == "long";
            queue.charge(&payer, if is_long { 10 * MS } else { MS });
            if is_long { long += 1 } else { short += 1 }
        }
        assert!((5..=6).contains(&long), "{long}");
    }

    #[test]
    fn idleness_saves_no_time() {
        let mut queue = FairQueue::default();
        queue.push("busy", 0);
        for _ in 0..1000 {
            let (payer, _) = queue.pop().unwrap();
            queue.push(payer, 0);
            queue.charge(&payer, MS);
        }
        for number in 0..10 {
            queue.push("idle", number);
        }
        let next = (0..8).map(|_| {
            let (payer, _) = queue.pop().unwrap();
            queue.push(payer, 0);
            queue.charge(&payer, MS);
            payer
        });
        assert_eq!(next.filter(|payer| *payer == "busy").count(), 4);
    }

    proptest! {
        /// Between two pieces of work of a payer that waits, every other payer has at most one more
        /// than its share.
        #[test]
        fn shares_differ_by_one_piece_at_most(works in proptest::collection::vec((0_u8..4, 1_u32..50), 1..300)) {
            let mut queue = FairQueue::default();
            for (payer, took) in &works {
                queue.push(*payer, *took);
            }
            let mut used = [Duration::ZERO; 4];
            let mut order: [Vec<u32>; 4] = Default::default();
            while queue.len() > 0 {
                let waiting: Vec<u8> = (0..4).filter(|it| queue.of(it) > 0).collect();
                let (payer, took) = queue.pop().unwrap();
                queue.charge(&payer, took * MS);
                let longest = 50 * MS;
                for other in waiting {
                    let (one, two) = (used[usize::from(payer)], used[usize::from(other)]);
                    prop_assert!(one <= two + longest);
                }
                used[usize::from(payer)] += took * MS;
                order[usize::from(payer)].push(took);
            }
            for (payer, order) in (0..4).zip(order) {
                let sent: Vec<u32> = works.iter().filter(|it| it.0 == payer).map(|it| it.1).collect();
                prop_assert_eq!(order, sent);
            }
        }

        #[test]
        fn idle_payers_are_forgotten(payers in 5_000_u32..9_000) {
            let mut queue = FairQueue::default();
            for payer in 0..payers {
                queue.push(payer, ());
                queue.pop();
                queue.charge(&payer, MS);
            }
            prop_assert!(queue.payers.len() <= 2 * FORGETTING, "{}", queue.payers.len());
        }
    }
}
