//! Budgets for a guest's multiplied frames, which cost other ports than the receiver's.

use serde::Deserialize;
use tailbound_units::exact::Work;
use tailbound_units::{Bytes, Nanos, Rate};

/// A token bucket. It charges a frame's length on the wire (with preamble, FCS and gap) for each
/// port that receives a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetConfig {
    /// Rate; 10 Mbit/s, or 14,880 of the shortest frames a second.
    pub rate: Rate,
    /// Depth; 1.25 MB.
    pub burst: Bytes,
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self {
            rate: Rate::from_mbit(10),
            burst: Bytes(1_250_000),
        }
    }
}

/// The spent part of a guest's [`BudgetConfig`]: a leaky bucket.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    config: BudgetConfig,
    /// The spent part at `at`.
    spent: Work,
    at: Nanos,
}

impl Budget {
    /// Makes a budget of which nothing is spent.
    pub(crate) const fn new(config: BudgetConfig) -> Self {
        Self {
            config,
            spent: Work::ZERO,
            at: Nanos::ZERO,
        }
    }

    /// Changes the configuration, and keeps the spent part.
    pub(crate) const fn reconfigure(&mut self, config: BudgetConfig) {
        self.config = config;
    }

    /// Returns the spent part at `now`.
    pub(crate) const fn spent(&self, now: Nanos) -> Bytes {
        let back = Work::done(self.config.rate, now.since(self.at));
        self.spent.less(back).bytes()
    }

    /// Adds bytes that were spent elsewhere until `now`.
    pub(crate) fn note_spent(&mut self, now: Nanos, bytes: Bytes) {
        let spent = self.spent(now).0.saturating_add(bytes.0);
        self.spent = Work::of(Bytes(spent));
        self.at = now;
    }

    /// Spends `cost` if less than the burst is spent, and returns true if so. The burst is exceeded
    /// by at most one frame, for which later ones wait.
    pub(crate) fn spend(&mut self, now: Nanos, cost: Bytes) -> bool {
        let back = Work::done(self.config.rate, now.since(self.at));
        self.spent = self.spent.less(back);
        self.at = now;
        let is_left = self.spent < Work::of(self.config.burst);
        if is_left {
            self.spent = self.spent.plus(Work::of(cost));
        }
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// In every interval at most the rate's share of it, the burst, and one frame are spent.
        #[test]
        fn no_interval_has_more_than_its_share(
            frames in prop::collection::vec((0u64..2_000_000, 84u64..100_000), 1..200),
            rate in 1u64..1_000_000_000, burst in 1u64..200_000,
        ) {
            let config = BudgetConfig { rate: Rate(rate), burst: Bytes(burst) };
            let mut budget = Budget::new(config);
            let mut now = Nanos::from_secs(1);
            let mut passed = Vec::new();
            for (gap, cost) in frames {
                now += Nanos(gap);
                if budget.spend(now, Bytes(cost)) {
                    passed.push((now, cost));
                }
            }
            for (first, (from, _)) in passed.iter().enumerate() {
                let mut sum = 0;
                for (to, cost) in &passed[first..] {
                    let share = config.rate.bytes_in(to.since(*from)).0 + 1;
                    prop_assert!(sum < share + burst, "before the frame at {to}");
                    sum += cost;
                }
            }
        }
    }

    #[test]
    fn a_spent_budget_refills_at_its_rate() {
        let config = BudgetConfig {
            rate: Rate(8_000),
            burst: Bytes(1_000),
        };
        let mut budget = Budget::new(config);
        let at = |millis| Nanos::from_millis(millis);
        assert!(budget.spend(at(0), Bytes(1_000)));
        assert!(!budget.spend(at(0), Bytes(1)));
        assert!(budget.spend(at(1), Bytes(2_000)), "a byte is back");
        assert!(!budget.spend(at(1_999), Bytes(1)), "it went into debt");
        assert!(budget.spend(at(2_002), Bytes(1)));
    }
}
