//! The distributions of Facebook's ETC pool (Atikoglu et al., "Workload Analysis of
//! a Large-Scale Key-Value Store", SIGMETRICS 2012, section 5).

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use tailbound_units::Nanos;

/// Key sizes: generalised extreme value distribution, bytes.
const KEY: [f64; 3] = [30.7984, 8.20449, 0.078_688];
/// Value sizes: generalised Pareto distribution, bytes. The paper has a table for the sizes below
/// 15 B, which are rare; this distribution starts at 15 B.
const VALUE: [f64; 3] = [15.0, 214.476, 0.348_238];
/// The shape of the times between requests: generalised Pareto from 0. The experiment scales their
/// mean; in the paper it is 19 us for a whole server.
const GAP_SHAPE: f64 = 0.154_971;

/// Longest key of the protocol, in bytes.
const LONGEST_KEY: f64 = 250.0;
/// Bytes for the unique part of a key.
const SHORTEST_KEY: f64 = 16.0;

/// Draws the size of a key.
pub(super) fn key(random: &mut Pcg64Mcg) -> usize {
    let [location, scale, shape] = KEY;
    let exponential = -uniform(random).ln();
    let size = location + scale * (exponential.powf(-shape) - 1.0) / shape;
    size.clamp(SHORTEST_KEY, LONGEST_KEY) as usize
}

/// Draws the size of a value, `largest` at most.
pub(super) fn value(random: &mut Pcg64Mcg, largest: u64) -> u64 {
    let [location, scale, shape] = VALUE;
    let size = location + pareto(random, scale, shape);
    (size as u64).clamp(1, largest)
}

/// Draws the time to the next request.
pub(super) fn gap(random: &mut Pcg64Mcg, mean: Nanos) -> Nanos {
    let scale = mean.as_nanos() as f64 * (1.0 - GAP_SHAPE);
    Nanos(pareto(random, scale, GAP_SHAPE) as u64)
}

fn pareto(random: &mut Pcg64Mcg, scale: f64, shape: f64) -> f64 {
    scale * (uniform(random).powf(-shape) - 1.0) / shape
}

/// Draws a number above 0 and at most 1: its logarithm is finite.
fn uniform(random: &mut Pcg64Mcg) -> f64 {
    1.0 - random.random::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    const DRAWS: u32 = 200_000;

    fn mean(mut draw: impl FnMut(&mut Pcg64Mcg) -> f64) -> f64 {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        (0..DRAWS).map(|_| draw(&mut random)).sum::<f64>() / f64::from(DRAWS)
    }

    #[test]
    fn values_of_at_most_1_kb_have_the_mean_that_silo_states() {
        // Silo, 6.1: "the average value size is 300 B; the maximum is 1 KB".
        let mean = mean(|random| value(random, 1000) as f64);
        assert!((280.0..300.0).contains(&mean), "{mean}");
    }

    #[test]
    fn keys_have_the_mean_of_their_distribution() {
        // mu + sigma (gamma(1 - xi) - 1) / xi = 36.2 B, cut to whole bytes.
        let mean = mean(|random| key(random) as f64);
        assert!((35.3..36.3).contains(&mean), "{mean}");
    }

    #[test]
    fn gaps_have_the_mean_asked_for_and_the_tail_of_their_shape() {
        let asked = Nanos::from_millis(20);
        let found = mean(|random| gap(random, asked).as_nanos() as f64);
        assert!((found / 20e6 - 1.0).abs() < 0.01, "{found}");
        // (1 + xi x / sigma)^(-1 / xi) at x = 5 means: 0.0150; an exponential has 0.0067.
        let long = mean(|random| f64::from(gap(random, asked) > Nanos::from_millis(100)));
        assert!((0.0140..0.0160).contains(&long), "{long}");
    }
}
