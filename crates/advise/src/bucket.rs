//! The leaky bucket of one machine and direction.

use tailbound_units::exact::BYTE_IN_NANOS;
use tailbound_units::{Bytes, Nanos, Rate};

/// A leaky bucket that drains at a rate: the bytes that are above this rate, exactly (the
/// continuous-state leaky bucket of ITU-T I.371).
///
/// A sender with the guarantee {B, S} waits for tokens after a message if and only if the level of
/// a bucket of rate B is above S.
#[derive(Debug, Clone)]
pub struct LeakyBucket {
    rate: Rate,
    /// Level in bits times nanoseconds a second.
    level: u128,
    at: Nanos,
}

impl LeakyBucket {
    /// Returns an empty bucket, which drains at `rate`.
    pub const fn new(rate: Rate) -> Self {
        Self {
            rate,
            level: 0,
            at: Nanos::ZERO,
        }
    }

    /// Sets the rate from the time of the last message on.
    pub(crate) const fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// Adds bytes at a time, not before the last one, and returns the level after them, rounded up.
    pub fn add(&mut self, at: Nanos, bytes: Bytes) -> Bytes {
        debug_assert!(at >= self.at, "messages are in the order of their times");
        let drained = u128::from(self.rate.0) * u128::from(at.since(self.at).0);
        let added = u128::from(bytes.0) * u128::from(BYTE_IN_NANOS);
        self.level = self.level.saturating_sub(drained) + added;
        self.at = at;
        let level = self.level.div_ceil(u128::from(BYTE_IN_NANOS));
        Bytes(u64::try_from(level).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_bucket_drains_at_its_rate() {
        let mut bucket = LeakyBucket::new(Rate(8_000));
        assert_eq!(bucket.add(Nanos::ZERO, Bytes(10)), Bytes(10));
        assert_eq!(bucket.add(Nanos::from_millis(4), Bytes(2)), Bytes(8));
        assert_eq!(bucket.add(Nanos::from_secs(1), Bytes(1)), Bytes(1));
    }

    proptest! {
        /// The level is the largest excess of any interval that ends at the message.
        #[test]
        fn the_level_is_the_largest_excess_of_an_interval(
            rate in 1_u64..100_000,
            steps in prop::collection::vec((0_u64..10_000_000, 0_u64..5_000), 1..40),
        ) {
            let mut bucket = LeakyBucket::new(Rate(rate));
            let (mut at, mut sent) = (0, Vec::new());
            for (pause, bytes) in steps {
                at += pause;
                sent.push((at, bytes));
                let level = bucket.add(Nanos(at), Bytes(bytes)).0;
                let excess = (0..sent.len()).map(|first| {
                    let bytes: u64 = sent[first..].iter().map(|(_, bytes)| bytes).sum();
                    let drained = u128::from(rate) * u128::from(at - sent[first].0);
                    (u128::from(bytes) * 8_000_000_000).saturating_sub(drained)
                });
                let most = excess.max().unwrap_or(0).div_ceil(8_000_000_000);
                prop_assert_eq!(u128::from(level), most);
            }
        }
    }
}
