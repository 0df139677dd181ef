//! The lateness J that a guarantee has to count with: frames leave after their departure times.

use super::world::HostError;
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

/// Reason why a host keeps no guarantee.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    /// The kernel does not measure lateness.
    #[error(
        "this kernel does not measure how late frames leave, so no guarantee is kept here; request a \
         limit"
    )]
    Unmeasured,
    /// Frames leave later than the guarantee counts with.
    #[error(
        "frames leave this host up to {measured} late, and the guarantee counts with {counted}; use \
         another host, or remove the cause and release all guests, which starts the measurement anew"
    )]
    Late {
        /// J, with its margin.
        measured: Nanos,
        /// The lateness that the guarantee counts with.
        counted: Nanos,
    },
    /// The measurement failed.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Returns J of a host that was warmed up, or why it keeps no guarantee that counts with the lateness
/// `counted` (any without).
///
/// # Errors
/// [`NotReady::Unmeasured`], [`NotReady::Late`].
pub fn check(lateness: Option<&Lateness>, counted: Option<Nanos>) -> Result<Nanos, NotReady> {
    let measured = lateness.and_then(bound).ok_or(NotReady::Unmeasured)?;
    match counted {
        Some(counted) if measured > counted => Err(NotReady::Late { measured, counted }),
        _ => Ok(measured),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lateness(frames: u64, max: u64) -> Lateness {
        let mut buckets = [0; Lateness::BUCKETS];
        buckets[3] = frames;
        let max = Nanos(max);
        Lateness { buckets, max }
    }

    #[test]
    fn a_guarantee_requires_a_host_within_its_counted_lateness() {
        let warm = lateness(WARM, 12_000);
        for counted in [None, Some(Nanos(32_000)), Some(Nanos(50_000))] {
            assert!(matches!(check(Some(&warm), counted), Ok(Nanos(32_000))));
        }
        let late = check(Some(&warm), Some(Nanos(31_999)));
        let text = late.unwrap_err().to_string();
        assert!(
            text.starts_with("frames leave this host up to 32us late"),
            "{text}"
        );
        for unknown in [None, Some(&lateness(WARM - 1, 12_000))] {
            let unmeasured = check(unknown, None);
            assert!(matches!(unmeasured, Err(NotReady::Unmeasured)));
        }
    }

    #[test]
    fn a_bound_has_a_margin_and_waits_until_the_host_is_warm() {
        let of = |frames: u64, max: u64| bound(&lateness(frames, max));
        assert_eq!(of(WARM - 1, 12_000), None);
        assert_eq!(of(WARM, 12_000), Some(Nanos(32_000)));
        assert_eq!(of(WARM, 2_000_000), Some(Nanos(3_000_000)));
    }
}
