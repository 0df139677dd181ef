//! Guarantees that a host keeps by departure times, which its timers meet with a delay.

use crate::arrival::ArrivalCurve;
use crate::guarantee::Guarantee;
use crate::ratio::{Overflow, Ratio};
use tailbound_units::{Bytes, Nanos, Rate};

impl Guarantee {
    /// Returns the curve of one VM whose frames leave at most `lateness` (J) after their departure
    /// times: `min(Bmax · (t + J) + frame, B · (t + J) + S + frame)`.
    ///
    /// Frames that leave within t were due within t + J. The frame is the one that the kernel releases when
    /// the bucket is empty.
    ///
    /// # Errors
    /// [`Overflow`]
    pub fn late(self, lateness: Nanos, frame: Bytes) -> Result<ArrivalCurve, Overflow> {
        let burst = Bytes(self.burst.0.saturating_add(frame.0));
        let exact = ArrivalCurve::burst_limited(self.bandwidth, burst, self.burst_rate, frame)?;
        exact.delayed(Ratio::from(lateness))
    }
}

/// Returns the curve of all VMs of a host together. After a stall of J the frames of all of them may be
/// due, so only the `line` bounds them: `min(sum of late curves, line · t + frame)`.
///
/// # Errors
/// [`Overflow`]
pub fn late_host(
    guarantees: &[Guarantee],
    lateness: Nanos,
    line: Rate,
    frame: Bytes,
) -> Result<ArrivalCurve, Overflow> {
    let curves = guarantees.iter().map(|it| it.late(lateness, frame));
    let curves = curves.collect::<Result<Vec<_>, _>>()?;
    ArrivalCurve::total(&curves)?.over_links(Ratio::from(line), 1, frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_units::Bursts;

    const FRAME: Bytes = Bytes(1_538);
    const J: Nanos = Nanos::from_micros(5);

    fn guarantee() -> Guarantee {
        Guarantee {
            bandwidth: Rate(1_000_000_000),
            burst: Bytes(15_000),
            burst_rate: Rate(10_000_000_000),
            bursts: Bursts::PerReceiver,
            burst_in: None,
        }
    }

    /// The bytes of a curve's buckets at the time 0, the fastest first.
    fn bursts(curve: &ArrivalCurve) -> Vec<u64> {
        let buckets = curve.buckets().iter();
        let bytes = buckets.map(|bucket| bucket.burst.to_bytes().expect("it is small").0);
        bytes.collect()
    }

    #[test]
    fn lateness_adds_the_bytes_of_each_rate_to_its_burst() {
        // 5 us are 625 bytes at 1 Gbit/s, and 6,250 at 10 Gbit/s.
        let late = bursts(&guarantee().late(J, FRAME).unwrap());
        assert_eq!(late, [1_538 + 6_250, 15_000 + 1_538 + 625]);
        let exact = bursts(&guarantee().late(Nanos(0), FRAME).unwrap());
        assert_eq!(exact, [1_538, 16_538]);
    }

    #[test]
    fn all_guests_of_a_host_leave_together_and_no_faster_than_the_line() {
        let all = [guarantee(); 8];
        let line = Rate(10_000_000_000);
        let together = late_host(&all, J, line, FRAME).unwrap();
        let at = |curve: &ArrivalCurve, nanos: u64| curve.at(Ratio::from(Nanos(nanos))).unwrap();
        let one = guarantee().late(J, FRAME).unwrap();
        for nanos in [0, 1_000, 100_000, 10_000_000] {
            let sum = one.times(8).unwrap();
            let least = at(&sum, nanos).min(
                Ratio::from(line)
                    .times(Ratio::from(Nanos(nanos)))
                    .unwrap()
                    .plus(Ratio::from(FRAME))
                    .unwrap(),
            );
            assert_eq!(at(&together, nanos), least, "{nanos}");
        }
    }
}
