//! Random arrivals that depend on the seed only.

use rand::RngExt;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use tailbound_units::Nanos;

/// The arrival of one event, and the peer that it concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Time since the start of the load.
    pub(crate) at: Nanos,
    /// The peer's position in its list.
    pub(crate) peer: usize,
}

/// Returns the arrivals of a Poisson process over `span` with a mean gap of `mean_gap`, under the
/// condition that exactly the expected number of arrivals happens: they are then independent and
/// uniform. The offered load is therefore exact, even if only a few large requests fit into a run.
/// Peers are uniform over `peers`.
///
/// The result depends on the arguments only, so that every variant of an experiment has the same
/// load.
pub(crate) fn poisson(seed: u64, mean_gap: Nanos, span: Nanos, peers: usize) -> Vec<Arrival> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let gap = mean_gap.as_nanos().max(1);
    let count = span.as_nanos().saturating_add(gap / 2) / gap;
    let mut arrival = |_| Arrival {
        at: Nanos(random.random_range(0..span.as_nanos())),
        peer: random.random_range(0..peers.max(1)),
    };
    // With arrivals at all the span is not empty.
    let mut arrivals: Vec<_> = (0..count).map(&mut arrival).collect();
    arrivals.sort_unstable_by_key(|arrival| arrival.at);
    arrivals
}

/// Returns the seed of one load: different loads of a run must not be in step.
pub(crate) fn seed_for(seed: u64, load: &str) -> u64 {
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

    const GOLDEN: [(u64, usize); 3] = [(1_163_693, 1), (8_296_379, 0), (20_531_243, 1)];

    #[test]
    fn the_number_of_arrivals_matches_the_requested_load() {
        let count = |span| poisson(1, Nanos::from_secs(2), span, 1).len();
        assert_eq!(count(Nanos::from_secs(16)), 8);
        assert_eq!(count(Nanos::from_millis(999)), 0);
        assert_eq!(count(Nanos::ZERO), 0);
    }

    #[test]
    fn gaps_are_those_of_a_poisson_process() {
        let arrivals = poisson(1, Nanos::from_millis(5), Nanos::from_secs(1000), 1);
        let gaps = arrivals.windows(2).map(|pair| pair[1].at.since(pair[0].at));
        let long = gaps.filter(|gap| *gap > Nanos::from_millis(5)).count();
        // exp(-1) of 200,000, standard deviation 216.
        assert!((long as f64 - 73_576.0).abs() < 5.0 * 216.0, "{long}");
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
