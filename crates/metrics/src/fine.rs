//! Counts of times in buckets that are fine enough for quantiles with an error of at most 2.2 %.

use crate::Histogram;
use tailbound_units::Nanos;

/// Counts of times in fixed buckets, 16 to each power of two from 60 ns to 32 s, as in
/// Prometheus's native histograms of schema 4. Each bucket lies in one of [`Histogram`]'s.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FineHistogram {
    /// Empty as long as no time was counted; the last one counts times above all bounds.
    counts: Vec<u64>,
    sum: u64,
    longest: u64,
}

impl FineHistogram {
    /// Buckets to a power of two, as a power of two (Prometheus, *Native Histograms*).
    pub const SCHEMA: i32 = 4;
    /// log2 of the lowest bound in seconds: 60 ns.
    const LOWEST: i32 = -24;
    /// log2 of the highest bound in seconds: 32 s.
    const HIGHEST: i32 = 5;
    /// Buckets to a power of two.
    const PARTS: usize = 1 << Self::SCHEMA;
    /// Number of bounds.
    pub const BOUNDS: usize = Self::PARTS * (Self::HIGHEST - Self::LOWEST) as usize + 1;
    /// Number of cells of [`Self::cells`]: 16 to each power of two that a `u64` has.
    pub const CELLS: usize = 16 * 64;
    /// Number of buckets in a [`Histogram`]'s bucket.
    const IN_ONE: usize = Self::PARTS >> Histogram::SCHEMA;
    /// Number of buckets in a [`Histogram`]'s first one.
    const IN_FIRST: usize = Self::PARTS * (-20 - Self::LOWEST) as usize;

    /// The longest time of each bucket that has a bound, in nanoseconds.
    pub const BUCKET_BOUNDS_NS: [u64; Self::BOUNDS] = longest();

    /// Adds counts, one for each bucket, of times that sum up to `sum` and are at most `longest`.
    ///
    /// # Panics
    /// The number of counts is not [`Self::BOUNDS`] + 1.
    pub fn add(&mut self, counts: impl ExactSizeIterator<Item = u64>, sum: Nanos, longest: Nanos) {
        assert_eq!(counts.len(), Self::BOUNDS + 1, "one for each bucket");
        for (to, more) in self.counts_mut().iter_mut().zip(counts) {
            *to += more;
        }
        self.sum = self.sum.saturating_add(sum.0);
        self.longest = self.longest.max(longest.0);
    }

    /// Adds all counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        if !other.counts.is_empty() {
            self.add(other.counts.iter().copied(), other.sum(), other.longest());
        }
    }

    /// Counts one time.
    pub fn record(&mut self, time: Nanos) {
        self.record_many(time, 1);
    }

    /// Counts `time` `count` times.
    pub fn record_many(&mut self, time: Nanos, count: u64) {
        self.counts_mut()[Self::bucket(time.0)] += count;
        self.sum = self.sum.saturating_add(time.0.saturating_mul(count));
        self.longest = self.longest.max(time.0);
    }

    fn counts_mut(&mut self) -> &mut [u64] {
        if self.counts.is_empty() {
            self.counts = vec![0; Self::BOUNDS + 1];
        }
        &mut self.counts
    }

    /// Returns the indices and counts of the buckets that have a count, ascending.
    pub fn used(&self) -> impl Iterator<Item = (usize, u64)> {
        let counts = self.counts.iter().copied().enumerate();
        counts.filter(|(_, count)| *count > 0)
    }

    /// Returns the bucket of a time: the first whose bound is not below it.
    pub fn bucket(nanos: u64) -> usize {
        Self::BUCKET_BOUNDS_NS.partition_point(|longest| *longest < nanos)
    }

    /// Returns the bucket of the shortest time of each cell. A cell has the times with the same
    /// highest bit and the same four bits after that. None of its times is more than two buckets
    /// further, so a program that cannot search reads this table and compares twice.
    pub fn cells() -> Box<[u32; Self::CELLS]> {
        let mut cells = Box::new([0; Self::CELLS]);
        for (cell, bucket) in cells.iter_mut().enumerate() {
            let (power, bits) = (cell / 16, cell as u128 % 16);
            let shortest = ((16 + bits) << power) >> 4;
            let shortest = u64::try_from(shortest).unwrap_or(u64::MAX);
            *bucket = Self::bucket(shortest) as u32;
        }
        cells
    }

    /// Returns the index in a native histogram: the upper bound of bucket `index` is `2^(exponent /
    /// 16)` s, inclusive.
    pub const fn exponent(index: usize) -> i32 {
        (index as u32).cast_signed() + (Self::LOWEST << Self::SCHEMA)
    }

    /// Returns the upper bound of bucket `index` in seconds, inclusive.
    pub fn bound(index: usize) -> f64 {
        (f64::from(Self::exponent(index)) / Self::PARTS as f64).exp2()
    }

    /// Returns the number of counted times.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all times.
    pub const fn sum(&self) -> Nanos {
        Nanos(self.sum)
    }

    /// Returns the longest time.
    pub const fn longest(&self) -> Nanos {
        Nanos(self.longest)
    }

    /// Returns the time that a share of all times, 0 to 1, does not exceed: the middle of its
    /// bucket, by ratio, and never more than the longest; `None` without times.
    pub fn quantile(&self, share: f64) -> Option<Nanos> {
        let total = self.count();
        let rank = ((share * total as f64).ceil() as u64).clamp(1, total.max(1));
        let mut below = 0;
        let bucket = self.counts.iter().position(|count| {
            below += count;
            total > 0 && below >= rank
        })?;
        // Above all bounds only the longest is known.
        let middle = if bucket == Self::BOUNDS {
            self.longest
        } else {
            let middle = Self::bound(bucket) * (-0.5 / Self::PARTS as f64).exp2();
            (middle * 1e9).round() as u64
        };
        Some(Nanos(middle.min(self.longest)))
    }

    /// Returns all counts in coarser buckets: no fine bucket overlaps two coarse ones.
    pub fn coarse(&self) -> Histogram {
        let mut counts = [0; Histogram::BUCKETS + 1];
        for (index, count) in self.counts.iter().enumerate() {
            let above = index.saturating_sub(Self::IN_FIRST);
            counts[above.div_ceil(Self::IN_ONE)] += count;
        }
        Histogram::of_counts(&counts, Nanos(self.sum))
    }
}

const fn longest() -> [u64; FineHistogram::BOUNDS] {
    const BITS: u32 = 60;
    // 2^(1/2), 2^(1/4), 2^(1/8), 2^(1/16), with 60 bits after the point.
    let mut roots = [0_u128; 4];
    let mut root: u128 = 2 << BITS;
    let mut at = 0;
    while at < roots.len() {
        root = (root << BITS).isqrt();
        roots[at] = root;
        at += 1;
    }
    let mut longest = [0; FineHistogram::BOUNDS];
    let mut index = 0;
    while index < longest.len() {
        let part = index % FineHistogram::PARTS;
        let mut factor: u128 = 1 << BITS;
        let mut at = 0;
        while at < roots.len() {
            if part & (FineHistogram::PARTS >> (at + 1)) != 0 {
                factor = (factor * roots[at]) >> BITS;
            }
            at += 1;
        }
        // Half powers equal those of the coarser histogram, to the last digit.
        let power = (index / FineHistogram::PARTS) as u32;
        let scale = BITS + FineHistogram::LOWEST.unsigned_abs();
        longest[index] = (((1_000_000_000 * factor) << power) >> scale) as u64;
        index += 1;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_bound_of_the_coarser_one_is_one_of_these() {
        let first = FineHistogram::IN_FIRST;
        for index in 0..Histogram::BUCKETS {
            let fine = FineHistogram::BUCKET_BOUNDS_NS[first + index * FineHistogram::IN_ONE];
            assert_eq!(fine, Histogram::longest(index), "{index}");
        }
        assert_eq!(
            first + (Histogram::BUCKETS - 1) * FineHistogram::IN_ONE,
            FineHistogram::BOUNDS - 1
        );
    }

    #[test]
    fn bounds_grow_by_the_sixteenth_root_of_two() {
        for (index, longest) in FineHistogram::BUCKET_BOUNDS_NS.into_iter().enumerate() {
            let bound = FineHistogram::bound(index) * 1e9;
            let longest = longest as f64;
            assert!((longest..longest + 1.0001).contains(&bound), "{bound} ns");
        }
    }

    /// As `bucket` in `crates/sys/src/waits/waits.bpf.c`.
    fn by_cell(cells: &[u32; FineHistogram::CELLS], nanos: u64) -> usize {
        let power = nanos.max(1).ilog2();
        let bits = ((u128::from(nanos) << 4) >> power) & 15;
        let mut bucket = cells[(power as usize) << 4 | bits as usize] as usize;
        for _ in 0..2 {
            if bucket < FineHistogram::BOUNDS && nanos > FineHistogram::BUCKET_BOUNDS_NS[bucket] {
                bucket += 1;
            }
        }
        bucket
    }

    #[test]
    fn a_cell_and_two_comparisons_find_every_bounds_bucket() {
        let cells = FineHistogram::cells();
        let powers = (0..64).map(|power| 1_u64 << power);
        let at = FineHistogram::BUCKET_BOUNDS_NS.into_iter().chain(powers);
        let around = at.flat_map(|at| [at - 1, at, at.saturating_add(1)]);
        for nanos in around.chain([0, u64::MAX]) {
            assert_eq!(
                by_cell(&cells, nanos),
                FineHistogram::bucket(nanos),
                "{nanos}"
            );
        }
    }

    /// Times of all magnitudes.
    fn times() -> impl Strategy<Value = Vec<u64>> {
        let time = (0..64_u32, any::<u64>()).prop_map(|(shift, bits)| bits >> shift);
        proptest::collection::vec(time, 1..200)
    }

    proptest! {
        #[test]
        fn a_cell_and_two_comparisons_find_every_times_bucket(times in times()) {
            let cells = FineHistogram::cells();
            for nanos in times {
                prop_assert_eq!(by_cell(&cells, nanos), FineHistogram::bucket(nanos));
            }
        }

        #[test]
        fn a_folded_fine_histogram_equals_the_coarse_one(times in times()) {
            let (mut fine, mut coarse) = (FineHistogram::default(), Histogram::default());
            for nanos in times {
                fine.record(Nanos(nanos));
                coarse.record(Nanos(nanos));
            }
            let folded = fine.coarse();
            prop_assert_eq!(folded.counts(), coarse.counts());
            prop_assert_eq!(folded.sum(), coarse.sum());
        }

        #[test]
        fn merged_histograms_equal_one_of_all_samples(first in times(), second in times()) {
            let of = |times: &[u64]| {
                let mut histogram = FineHistogram::default();
                for nanos in times {
                    histogram.record(Nanos(*nanos));
                }
                histogram
            };
            let (mut sum, more) = (of(&first), of(&second));
            sum.merge(&more);
            prop_assert_eq!(sum, of(&[first, second].concat()));
        }

        #[test]
        fn a_quantile_is_less_than_3_percent_off(
            mut times in proptest::collection::vec(100..30_000_000_000_u64, 1..300),
            share in 0.0..=1.0_f64,
        ) {
            let mut histogram = FineHistogram::default();
            for nanos in &times {
                histogram.record(Nanos(*nanos));
            }
            times.sort_unstable();
            let rank = (share * times.len() as f64).ceil() as usize;
            let exact = times[rank.max(1) - 1] as f64;
            let told = histogram.quantile(share).unwrap().0 as f64;
            // Half a bucket: 2^(1/32); and whole nanoseconds.
            prop_assert!((told / exact - 1.0).abs() < 0.022 + 1.0 / exact, "{told} of {exact}");
            prop_assert_eq!(histogram.quantile(1.0).unwrap().0 <= *times.last().unwrap(), true);
        }
    }
}
