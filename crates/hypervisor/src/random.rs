//! Random times that are the same on every machine.

use rand::RngExt;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use tailbound_units::Nanos;

/// The random source of one simulation. Integers throughout: no result depends
/// on a mathematical library.
#[derive(Debug, Clone)]
pub(crate) struct Random(Pcg64Mcg);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// Returns a time that is uniform over 0 to `most`, both included.
    pub(crate) fn up_to(&mut self, most: Nanos) -> Nanos {
        Nanos(self.0.random_range(0..=most.0))
    }

    /// Returns a whole number that is uniform below `count`, which is not 0.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        self.0.random_range(0..count)
    }

    /// Returns an exponential time with the given mean, by von Neumann's method: only uniform
    /// numbers are compared (Knuth, The Art of Computer Programming, 3.4.1).
    pub(crate) fn exponential(&mut self, mean: Nanos) -> Nanos {
        let mut whole = 0_u64;
        loop {
            let first: u64 = self.0.random();
            let mut last = first;
            let mut run = 1_u32;
            loop {
                let next: u64 = self.0.random();
                if next > last {
                    break;
                }
                last = next;
                run += 1;
            }
            if run % 2 == 1 {
                let part = (u128::from(first) * u128::from(mean.0)) >> 64;
                return Nanos(whole.saturating_mul(mean.0).saturating_add(part as u64));
            }
            whole += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_gaps_have_the_mean_and_the_tail_of_an_exponential() {
        let mut random = Random::new(1);
        let mean = Nanos::from_millis(1);
        let count = 100_000;
        let mut sum = 0_u64;
        let mut beyond_two = 0_u32;
        for _ in 0..count {
            let gap = random.exponential(mean);
            sum += gap.0;
            beyond_two += u32::from(gap.0 > 2 * mean.0);
        }
        let measured = sum / count;
        assert!(measured.abs_diff(mean.0) < mean.0 / 100, "mean {measured}");
        // e^-2 = 0.1353
        assert!((13_200..13_900).contains(&beyond_two), "{beyond_two}");
    }
}
