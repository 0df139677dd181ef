//! Sojourn times, counted in buckets: a record is a shift and an addition.

use tailbound_units::Nanos;

/// Counts of times in fixed buckets, two to each power of two from 1 us to 34 s:
/// a bound is at most 1.5 times the one below it.
#[derive(Debug, Clone)]
pub struct Histogram {
    /// The last one takes whatever is beyond all bounds.
    counts: [u64; Self::BUCKETS + 1],
    /// Sum of all times, in nanoseconds.
    sum: u64,
}

impl Histogram {
    /// log2 of the lowest bound: 1024 ns.
    const LOWEST: u32 = 10;
    /// log2 of the highest bound: 34.4 s.
    const HIGHEST: u32 = 35;
    /// How many bounds there are.
    pub const BUCKETS: usize = 2 * (Self::HIGHEST - Self::LOWEST) as usize + 1;

    /// Counts one time.
    pub fn record(&mut self, time: Nanos) {
        self.record_many(time, 1);
    }

    /// Counts `time` as often as `count` says.
    pub fn record_many(&mut self, time: Nanos, count: u64) {
        self.counts[Self::bucket(time.0)] += count;
        self.sum = self.sum.saturating_add(time.0.saturating_mul(count));
    }

    /// The bucket of a time: the first whose bound is not below it.
    fn bucket(nanos: u64) -> usize {
        // Bounds are inclusive: one less falls into the bucket's own interval.
        let below = nanos.saturating_sub(1);
        if below >> Self::LOWEST == 0 {
            return 0;
        }
        let octave = below.ilog2();
        let upper_half = (below >> (octave - 1)) & 1;
        let bucket = 2 * (octave - Self::LOWEST) as usize + upper_half as usize + 1;
        bucket.min(Self::BUCKETS)
    }

    /// The upper bound of bucket `index`, inclusive.
    pub const fn bound(index: usize) -> Nanos {
        let power = 1 << (Self::LOWEST as usize + index / 2);
        Nanos(if index.is_multiple_of(2) {
            power
        } else {
            power + power / 2
        })
    }

    /// The counts: of each bucket by itself, then of what is beyond them.
    pub const fn counts(&self) -> &[u64; Self::BUCKETS + 1] {
        &self.counts
    }

    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all times.
    pub const fn sum(&self) -> Nanos {
        Nanos(self.sum)
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: [0; Self::BUCKETS + 1],
            sum: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_falls_between_its_buckets_bounds() {
        let around = (0..40).flat_map(|power| {
            let at = 1u64 << power;
            [at - 1, at, at + 1, at + at / 2, at + at / 2 + 1]
        });
        for nanos in around.chain([0, u64::MAX]) {
            let bucket = Histogram::bucket(nanos);
            if bucket < Histogram::BUCKETS {
                assert!(nanos <= Histogram::bound(bucket).0, "{nanos} in {bucket}");
            }
            if bucket > 0 {
                assert!(
                    nanos > Histogram::bound(bucket - 1).0,
                    "{nanos} in {bucket}"
                );
            }
        }
    }

    #[test]
    fn count_and_sum_are_of_all_that_was_recorded() {
        let mut histogram = Histogram::default();
        for millis in [0, 1, 50, 100_000] {
            histogram.record(Nanos::from_millis(millis));
        }
        assert_eq!(histogram.count(), 4);
        assert_eq!(histogram.sum(), Nanos::from_millis(100_051));
        assert_eq!(histogram.counts()[Histogram::BUCKETS], 1);
    }
}
