//! How figures are distributed.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use tailbound_report::{Line, LineStyle};

/// A random figure of an exponential distribution with this mean.
pub(crate) fn exponential(random: &mut Pcg64Mcg, mean: f64) -> f64 {
    // In (0, 1], so that the logarithm is finite.
    -(1.0 - random.random::<f64>()).ln() * mean
}

/// Which of those with these weights has the ticket, of as many as all weigh together.
pub(crate) fn drawn(mut ticket: u64, weights: impl IntoIterator<Item = u32>) -> Option<usize> {
    weights.into_iter().map(u64::from).position(|weight| {
        let wins = ticket < weight;
        ticket = ticket.saturating_sub(weight);
        wins
    })
}

/// The figure that so many percent of the sorted ones do not exceed.
pub(crate) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = (last as f64 * percent / 100.0).round() as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

/// The figures in their order.
pub(crate) fn sorted(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures
}

/// The distribution of sorted parts of a bound, both axes in percent.
pub(crate) fn distribution(name: &str, figures: &[f64]) -> Line {
    let points = (0..=100).map(|percent| {
        let percent = f64::from(percent);
        (100.0 * percentile(figures, percent), percent)
    });
    Line::new(name, LineStyle::Measured, points)
}
