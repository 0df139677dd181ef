//! Bounds on a share that is known from a count.

/// Returns the largest mean that a count of independent events still leaves likely: below it are
/// 95 % of the certainty (Poisson; Garwood, *Fiducial limits for the Poisson distribution*, 1936).
/// For no event this is 3.0, the rule of three.
pub fn most_likely(events: usize) -> f64 {
    // The mean for which so few events have the probability 0.05.
    let (mut low, mut high) = (
        events as f64,
        events as f64 + 10.0 + 4.0 * (events as f64).sqrt(),
    );
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if at_most(events, middle) > 0.05 {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// Returns the probability of at most `events` for a mean.
fn at_most(events: usize, mean: f64) -> f64 {
    // From the largest term down, relative to it, so that a large mean does not underflow.
    let (mut term, mut sum) = (1.0, 1.0);
    for number in (1..=events).rev() {
        term *= number as f64 / mean;
        sum += term;
        if term < 1e-17 * sum {
            break;
        }
    }
    let logarithm: f64 = (1..=events).map(|number| (number as f64).ln()).sum();
    (events as f64 * mean.ln() - mean - logarithm).exp() * sum
}

/// Returns the largest likely number of messages for `waits` of them in `episodes`. Messages of
/// one episode depend on each other, so each episode counts as one event of its average size.
pub(crate) fn most_waits(waits: usize, episodes: usize) -> f64 {
    debug_assert!(episodes <= waits, "an episode has a message");
    let size = waits.max(1) as f64 / episodes.max(1) as f64;
    most_likely(episodes) * size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_the_tables() {
        // Garwood's upper limits at 95 %.
        for (events, limit) in [
            (0, 2.996),
            (1, 4.744),
            (2, 6.296),
            (10, 16.962),
            (100, 118.08),
        ] {
            let bound = most_likely(events);
            assert!((bound - limit).abs() < 0.01, "{events}: {bound}");
        }
        assert!(
            (most_waits(40, 4) - 91.5).abs() < 0.1,
            "{}",
            most_waits(40, 4)
        );
        assert!((most_waits(0, 0) - 2.996).abs() < 0.01);
    }
}
