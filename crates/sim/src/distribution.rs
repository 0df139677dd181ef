//! How figures are distributed.

use tailbound_report::{Line, LineStyle, Point};

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
        Point(100.0 * percentile(figures, percent), percent)
    });
    Line {
        name: name.to_owned(),
        style: LineStyle::Measured,
        points: points.collect(),
    }
}
