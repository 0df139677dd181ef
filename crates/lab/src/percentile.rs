//! Percentiles of sets of figures that fit into memory.

/// Returns the figure at this percentile; NaN for an empty set.
pub(crate) fn percentile(figures: &[f64], percent: f64) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let place = (percent / 100.0 * last as f64).round() as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_figures() {
        let figures = [5.0, 1.0, 4.0, 2.0, 3.0];
        for (percent, figure) in [(0.0, 1.0), (50.0, 3.0), (99.0, 5.0), (100.0, 5.0)] {
            assert_eq!(
                percentile(&figures, percent).to_bits(),
                f64::to_bits(figure)
            );
        }
        assert!(percentile(&[], 50.0).is_nan());
    }
}
