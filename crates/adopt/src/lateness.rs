//! The lateness J that a guarantee has to count with: frames leave after their departure times.

use tailbound_sys::edge::Lateness;
use tailbound_units::Nanos;

/// The frames after which a host is warmed up: the first ones after a boot are late.
pub const WARM: u64 = 10_000;
/// The least margin.
const MARGIN: Nanos = Nanos::from_micros(20);

/// Returns J: half above the longest time of a measurement, and at least 20 us above it. `None` until
/// [`WARM`] frames were counted.
pub fn bound(lateness: &Lateness) -> Option<Nanos> {
    let margin = Nanos(lateness.max.0 / 2).max(MARGIN);
    (lateness.frames() >= WARM).then(|| lateness.max.saturating_add(margin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_has_a_margin_and_waits_until_the_host_is_warm() {
        let of = |frames: u64, max: u64| {
            let mut buckets = [0; Lateness::BUCKETS];
            buckets[3] = frames;
            let max = Nanos(max);
            bound(&Lateness { buckets, max })
        };
        assert_eq!(of(WARM - 1, 12_000), None);
        assert_eq!(of(WARM, 12_000), Some(Nanos(32_000)));
        assert_eq!(of(WARM, 2_000_000), Some(Nanos(3_000_000)));
    }
}
