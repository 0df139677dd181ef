//! Sojourn times in buckets: recording a time takes a logarithm and at most three comparisons.

use tailbound_units::Nanos;

/// Counts of times in fixed buckets, two to each power of two from 1 us to 32 s: a bound
/// is `sqrt(2)` times the one below it, as in Prometheus's native histograms of schema
/// [`Histogram::SCHEMA`].
#[derive(Debug, Clone)]
pub struct Histogram {
    /// The last one counts times above all bounds.
    counts: [u64; Self::BUCKETS + 1],
    /// Sum of all times, in nanoseconds.
    sum: u64,
}

impl Histogram {
    /// Buckets to a power of two, as a power of two (Prometheus, *Native Histograms*).
    pub const SCHEMA: i32 = 1;
    /// log2 of the lowest bound in seconds: 0.95 us.
    const LOWEST: i32 = -20;
    /// log2 of the highest bound in seconds: 32 s.
    const HIGHEST: i32 = 5;
    /// Number of bounds.
    pub const BUCKETS: usize = 2 * (Self::HIGHEST - Self::LOWEST) as usize + 1;

    /// The longest time of each bucket that has a bound, in nanoseconds.
    const BUCKET_BOUNDS_NS: [u64; Self::BUCKETS] = {
        let mut longest = [0; Self::BUCKETS];
        let mut index = 0;
        while index < Self::BUCKETS {
            // The square of the bound: half powers of two are no whole numbers.
            let square = 1_000_000_000_000_000_000_u128;
            let power = Self::exponent(index);
            let square = if power < 0 {
                square >> -power
            } else {
                square << power
            };
            longest[index] = square.isqrt() as u64;
            index += 1;
        }
        longest
    };

    /// Counts one time.
    pub fn record(&mut self, time: Nanos) {
        self.record_many(time, 1);
    }

    /// Counts `time` `count` times.
    pub fn record_many(&mut self, time: Nanos, count: u64) {
        self.counts[Self::bucket(time.0)] += count;
        self.sum = self.sum.saturating_add(time.0.saturating_mul(count));
    }

    /// Returns the bucket of a time: the first whose bound is not below it.
    fn bucket(nanos: u64) -> usize {
        // Bucket b has the bound 2^(b / 2 - 20) s, or 2^(b / 2 + 9.9) ns: up to b = 2k - 20 it is below
        // 2^k ns, and `nanos` is at least that.
        let from = (2 * nanos.max(1).ilog2() + 1).saturating_sub(20);
        let mut bucket = (from as usize).min(Self::BUCKETS);
        while bucket < Self::BUCKETS && Self::BUCKET_BOUNDS_NS[bucket] < nanos {
            bucket += 1;
        }
        bucket
    }

    /// Returns a histogram with these counts, of times that sum up to `sum`.
    pub(crate) const fn of_counts(counts: &[u64; Self::BUCKETS + 1], sum: Nanos) -> Self {
        Self {
            counts: *counts,
            sum: sum.0,
        }
    }

    /// Returns the longest time of bucket `index`, in nanoseconds.
    #[cfg(test)]
    pub(crate) const fn longest(index: usize) -> u64 {
        Self::BUCKET_BOUNDS_NS[index]
    }

    /// Returns the index in a native histogram: the upper bound of bucket `index` is `2^(exponent /
    /// 2)` s, inclusive.
    pub const fn exponent(index: usize) -> i32 {
        (index as u32).cast_signed() + 2 * Self::LOWEST
    }

    /// Returns the upper bound of bucket `index` in seconds, inclusive.
    pub fn bound(index: usize) -> f64 {
        2_f64.powf(f64::from(Self::exponent(index)) / 2.0)
    }

    /// Returns the counts of the buckets, then of times above them.
    pub const fn counts(&self) -> &[u64; Self::BUCKETS + 1] {
        &self.counts
    }

    /// Returns the number of counted times.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all times.
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
        let bounds = Histogram::BUCKET_BOUNDS_NS;
        let bounds = bounds.into_iter().flat_map(|at| [at - 1, at, at + 1]);
        for nanos in around.chain(bounds).chain([0, u64::MAX]) {
            let bucket = Histogram::bucket(nanos);
            let longest = |bucket: usize| Histogram::BUCKET_BOUNDS_NS[bucket];
            if bucket < Histogram::BUCKETS {
                assert!(nanos <= longest(bucket), "{nanos} in {bucket}");
            }
            if bucket > 0 {
                assert!(nanos > longest(bucket - 1), "{nanos} in {bucket}");
            }
        }
    }

    #[test]
    fn bounds_are_those_of_a_native_histogram() {
        for (bucket, longest) in Histogram::BUCKET_BOUNDS_NS.into_iter().enumerate() {
            let bound = Histogram::bound(bucket) * 1e9;
            let longest = longest as f64;
            assert!((longest..longest + 1.0001).contains(&bound), "{bound} ns");
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
