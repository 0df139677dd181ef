//! A fixed number of timers, of which the earliest is known.

use tailbound_units::Nanos;

/// Timers, one for each slot, in a tournament tree: setting one costs a comparison for each level,
/// and reading the earliest costs nothing. At equal times the lowest slot is first.
#[derive(Debug, Clone)]
pub(crate) struct Timers {
    /// The tree with its root at 1 and the slots' times from `leaves` on; each
    /// inner node names the slot that is earliest below it.
    winners: Vec<u32>,
    times: Vec<Nanos>,
    leaves: usize,
}

impl Timers {
    pub(crate) fn new(slots: usize) -> Self {
        let leaves = slots.next_power_of_two().max(2);
        let mut winners = vec![0; leaves];
        for node in (1..leaves).rev() {
            let left = 2 * node;
            winners[node] = if left >= leaves {
                (left - leaves) as u32
            } else {
                winners[left]
            };
        }
        Self {
            winners,
            times: vec![Nanos::MAX; leaves],
            leaves,
        }
    }

    /// Sets `slot` to `at`; [`Nanos::MAX`] stops it.
    pub(crate) fn set(&mut self, slot: usize, at: Nanos) {
        if self.times[slot] == at {
            return;
        }
        self.times[slot] = at;
        let mut node = (self.leaves | slot) >> 1;
        let first = slot & !1;
        let mut winner = first + usize::from(self.times[first + 1] < self.times[first]);
        self.winners[node] = winner as u32;
        while node > 1 {
            let rival = self.winners[node ^ 1] as usize;
            let (low, high) = (winner.min(rival), winner.max(rival));
            winner = if self.times[high] < self.times[low] {
                high
            } else {
                low
            };
            node /= 2;
            self.winners[node] = winner as u32;
        }
    }

    /// Returns when `slot` is due, [`Nanos::MAX`] when it is stopped.
    pub(crate) fn at(&self, slot: usize) -> Nanos {
        self.times[slot]
    }

    /// Returns the earliest time, [`Nanos::MAX`] when all are stopped.
    pub(crate) fn earliest(&self) -> Nanos {
        self.times[self.winners[1] as usize]
    }

    /// Stops the first slot that is due by `now` and returns it.
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<usize> {
        let slot = self.winners[1] as usize;
        if self.times[slot] > now {
            return None;
        }
        self.set(slot, Nanos::MAX);
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn timers_come_out_by_time_then_by_slot(
            slots in 1_usize..40,
            sets in proptest::collection::vec((0_usize..40, 0_u64..50), 0..200),
        ) {
            let mut timers = Timers::new(slots);
            let mut model = vec![Nanos::MAX; slots];
            for (slot, at) in sets {
                timers.set(slot % slots, Nanos(at));
                model[slot % slots] = Nanos(at);
                prop_assert_eq!(Some(&timers.earliest()), model.iter().min());
            }
            let mut expected: Vec<_> = (0..slots).filter(|&slot| model[slot] < Nanos(25)).collect();
            expected.sort_by_key(|&slot| (model[slot], slot));
            let popped: Vec<_> = std::iter::from_fn(|| timers.pop(Nanos(24))).collect();
            prop_assert_eq!(popped, expected);
        }
    }
}
