//! Random distributions, and percentiles of figures.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use tailbound_report::{Line, LineStyle};

/// Returns a random figure of an exponential distribution with this mean.
pub(crate) fn exponential(random: &mut Pcg64Mcg, mean: f64) -> f64 {
    // In (0, 1], so that the logarithm is finite.
    -(1.0 - random.random::<f64>()).ln() * mean
}

/// Returns the index of the weight that a ticket selects; tickets are numbers below the sum of the
/// weights.
pub(crate) fn drawn(mut ticket: u64, weights: impl IntoIterator<Item = u32>) -> Option<usize> {
    weights.into_iter().map(u64::from).position(|weight| {
        let wins = ticket < weight;
        ticket = ticket.saturating_sub(weight);
        wins
    })
}

/// Returns the figure that `percent` percent of the sorted figures do not exceed.
pub(crate) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = (last as f64 * percent / 100.0).round() as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

/// Returns the sorted figures.
pub(crate) fn sorted(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures
}

/// Returns the distribution of sorted parts of a bound, both axes in percent.
pub(crate) fn distribution(name: &str, figures: &[f64]) -> Line {
    let points = (0..=100).map(|percent| {
        let percent = f64::from(percent);
        (100.0 * percentile(figures, percent), percent)
    });
    Line::new(name, LineStyle::Measured, points)
}
