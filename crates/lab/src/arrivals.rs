//! Random moments that are the same whenever the seed is.

use rand::RngExt;
use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;
use tailbound_units::Nanos;

/// When something is to happen, and which of several peers it concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Counted from the start of the load.
    pub at: Nanos,
    /// The peer's place in its list.
    pub peer: usize,
}

/// A Poisson process over `span`: gaps are exponential with mean `mean_gap`,
/// peers are uniform over `peers`. Depends on nothing but its arguments, so
/// every variant of an experiment sees the same load.
pub fn poisson(seed: u64, mean_gap: Nanos, span: Nanos, peers: usize) -> Vec<Arrival> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut arrivals = Vec::new();
    let mut at = Nanos::ZERO;
    loop {
        let gap: f64 = Exp1.sample(&mut random);
        // At least 1 ns, so that the process ends.
        let gap = (gap * mean_gap.as_nanos() as f64).max(1.0);
        at = at.saturating_add(Nanos(gap as u64));
        if at >= span {
            return arrivals;
        }
        let peer = random.random_range(0..peers.max(1));
        arrivals.push(Arrival { at, peer });
    }
}

/// The seed of one load: different loads of a run must not be in step.
pub fn seed_for(seed: u64, load: &str) -> u64 {
    // FNV-1a: fixed for good, unlike the standard library's hasher.
    let start = 0xcbf2_9ce4_8422_2325 ^ seed;
    load.bytes().fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_seed_gives_the_same_arrivals_for_good() {
        let first: Vec<_> = poisson(7, Nanos::from_millis(5), Nanos::from_secs(1), 2)
            .into_iter()
            .map(|arrival| (arrival.at.as_nanos(), arrival.peer))
            .take(3)
            .collect();
        assert_eq!(first, GOLDEN);
    }

    const GOLDEN: [(u64, usize); 3] = [(0, 0), (0, 0), (0, 0)];

    #[test]
    fn the_mean_gap_is_what_was_asked_for() {
        let span = Nanos::from_secs(1000);
        let count = poisson(1, Nanos::from_millis(5), span, 1).len() as f64;
        // 200,000 expected, standard deviation 447.
        assert!((count - 200_000.0).abs() < 5.0 * 447.0, "{count}");
    }

    #[test]
    fn loads_of_one_run_are_not_in_step() {
        assert_ne!(seed_for(1, "small"), seed_for(1, "large"));
        assert_ne!(seed_for(1, "small"), seed_for(2, "small"));
    }

    proptest! {
        #[test]
        fn arrivals_are_in_order_in_the_span_and_of_known_peers(
            seed: u64, gap in 1_000u64..10_000_000, span in 0u64..10_000_000, peers in 1usize..5,
        ) {
            let arrivals = poisson(seed, Nanos(gap), Nanos(span), peers);
            prop_assert!(arrivals.is_sorted_by_key(|arrival| arrival.at));
            prop_assert!(arrivals.iter().all(|a| a.at < Nanos(span) && a.peer < peers));
        }
    }
}
