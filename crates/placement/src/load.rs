//! How much traffic may come to a port: sums of concave arrival curves, kept as four affine ones.

use tailbound_units::{Bytes, Nanos, Rate};

/// The times in nanoseconds at which a sum of curves is exact. The first and the last affine curve
/// touch it at zero and in the long run.
///
/// A burst of Silo's class A ends some 100 us after it began.
const TOUCHES: [u64; 2] = [32_768, 131_072];

/// The number of affine curves of a load.
pub const CURVES: usize = TOUCHES.len() + 2;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// An affine arrival curve in whole bits, as a token bucket has it: at most `rate · t + burst` in
/// any time `t`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AffineCurve {
    /// Bits a second.
    pub rate: u64,
    /// Bits.
    pub burst: u64,
}

impl AffineCurve {
    fn plus(self, other: Self) -> Self {
        Self {
            rate: self.rate + other.rate,
            burst: self.burst + other.burst,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            rate: self.rate - other.rate,
            burst: self.burst - other.burst,
        }
    }

    /// Returns the curve behind a queue in which a bit waits up to `time`: bits that were sent
    /// during that time may arrive together. Rounded up to whole bits.
    fn delayed(self, time: Nanos) -> Self {
        Self {
            rate: self.rate,
            burst: self.burst + bits_in(self.rate, time),
        }
    }
}

/// Returns how many bits `rate` sends in `time`, rounded up.
fn bits_in(rate: u64, time: Nanos) -> u64 {
    // A division of 128 bits costs more than all the rest of a check.
    match rate.checked_mul(time.0) {
        Some(nanobits) => nanobits.div_ceil(NANOS_PER_SECOND),
        None => {
            (u128::from(rate) * u128::from(time.0)).div_ceil(u128::from(NANOS_PER_SECOND)) as u64
        }
    }
}

/// An upper bound on what may come to a port: the least of four affine curves.
///
/// A tenant's curve is the least of two affine ones: the burst rate and the average (Silo 4.2.2, the
/// curve A'). The exact sum of many such curves has a knee for each. Here each curve is replaced,
/// for each of four times, by the affine curve that is lower at that time, and these are added up
/// for each time. Each of the four sums bounds the exact sum and touches it at its time. So adding
/// and subtracting a tenant takes eight additions, exact in integers, in any order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Rates fall and bursts grow.
    curves: [AffineCurve; CURVES],
}

impl Load {
    /// No traffic.
    pub const NONE: Self = Self {
        curves: [AffineCurve { rate: 0, burst: 0 }; CURVES],
    };

    /// Returns the load whose curve is the least of `slow` and, if there is one, `fast`.
    fn least(slow: AffineCurve, fast: Option<AffineCurve>) -> Self {
        let Some(fast) = fast else {
            return Self {
                curves: [slow; CURVES],
            };
        };
        let is_fast = touches_fast(slow, fast);
        Self {
            curves: is_fast.map(|is_fast| if is_fast { fast } else { slow }),
        }
    }

    /// Returns the four affine curves: rates fall, bursts grow.
    pub fn curves(&self) -> &[AffineCurve; CURVES] {
        &self.curves
    }

    /// Returns the rate in the long run, in bits a second.
    pub fn rate(&self) -> u64 {
        self.curves[CURVES - 1].rate
    }

    /// Returns whether nothing ever comes.
    pub fn is_none(&self) -> bool {
        // A machine's burst is at least a frame.
        self.curves[CURVES - 1].burst == 0
    }

    /// Returns the sum of two loads.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            curves: std::array::from_fn(|index| self.curves[index].plus(other.curves[index])),
        }
    }

    /// Returns what is left when `other`, a part of the sum, is subtracted.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        Self {
            curves: std::array::from_fn(|index| self.curves[index].minus(other.curves[index])),
        }
    }

    /// Returns a load that is nowhere above either, for bounds on many ports at once.
    #[must_use]
    pub fn lower(&self, other: &Self) -> Self {
        Self {
            curves: std::array::from_fn(|index| AffineCurve {
                rate: self.curves[index].rate.min(other.curves[index].rate),
                burst: self.curves[index].burst.min(other.curves[index].burst),
            }),
        }
    }

    /// Returns the most bits that can be waiting at a port of `rate`, rounded up, if no more than
    /// `feed` comes over the links before it. Returns None if there is no bound.
    pub fn backlog(&self, rate: u64, feed: Option<AffineCurve>) -> Option<u64> {
        let (slow, before) = self.around(rate)?;
        let crossing = |fast: AffineCurve| {
            if fast.rate <= rate {
                return fast.burst;
            }
            if fast.burst >= slow.burst {
                return slow.burst;
            }
            // The queue is longest where the curves cross, at
            // (S2 - S1) / (B1 - B2): S2 - (R - B2) times that.
            let drained = u128::from(rate - slow.rate) * u128::from(slow.burst - fast.burst)
                / u128::from(fast.rate - slow.rate);
            slow.burst - drained as u64
        };
        let fastest = [before, feed].into_iter().flatten().map(crossing).min();
        Some(fastest.unwrap_or(slow.burst).min(slow.burst))
    }

    /// Returns whether at most `limit` bits can be waiting: [`Self::backlog`] by multiplications
    /// alone.
    pub(crate) fn is_within(&self, rate: u64, limit: u64, feed: Option<AffineCurve>) -> bool {
        let Some((slow, before)) = self.around(rate) else {
            return false;
        };
        if slow.burst <= limit {
            return true;
        }
        let crossing = |fast: AffineCurve| {
            if fast.rate <= rate {
                return fast.burst <= limit;
            }
            fast.burst < slow.burst
                && u128::from(slow.burst - limit) * u128::from(fast.rate - slow.rate)
                    <= u128::from(rate - slow.rate) * u128::from(slow.burst - fast.burst)
        };
        before.is_some_and(crossing) || feed.is_some_and(crossing)
    }

    /// Returns the first affine curve that a port of `rate` keeps up with, and the one before it.
    fn around(&self, rate: u64) -> Option<(AffineCurve, Option<AffineCurve>)> {
        let index = self.curves.iter().position(|curve| curve.rate <= rate)?;
        let before = index.checked_sub(1).map(|before| self.curves[before]);
        Some((self.curves[index], before))
    }
}

/// Returns for each time whether the least of the two curves is the fast one there.
fn touches_fast(slow: AffineCurve, fast: AffineCurve) -> [bool; CURVES] {
    if fast.burst >= slow.burst {
        return [false; CURVES];
    }
    if fast.rate <= slow.rate {
        return [true; CURVES];
    }
    let mut is_fast = [false; CURVES];
    is_fast[0] = true;
    for (is_fast, touch) in is_fast[1..].iter_mut().zip(TOUCHES) {
        let gained = u128::from(fast.rate - slow.rate) * u128::from(touch);
        let ahead = u128::from(slow.burst - fast.burst) * u128::from(NANOS_PER_SECOND);
        *is_fast = gained < ahead;
    }
    is_fast
}

/// The lower and the upper end of a range, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval<T> {
    pub(crate) least: T,
    pub(crate) most: T,
}

impl<T: Copy + Ord> Interval<T> {
    /// Returns the interval of one number.
    pub(crate) const fn point(value: T) -> Self {
        Self {
            least: value,
            most: value,
        }
    }

    /// Returns the smallest interval with all of both.
    pub(crate) fn hull(self, other: Self) -> Self {
        Self {
            least: self.least.min(other.least),
            most: self.most.max(other.most),
        }
    }
}

/// What each machine of a tenant may send, in bits: {B, S, Bmax}.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) bandwidth: u64,
    pub(crate) burst: u64,
    pub(crate) burst_rate: Option<u64>,
    /// The longest frame.
    pub(crate) frame: u64,
}

impl Source {
    /// Makes a source. A machine may always send one frame, whatever its burst.
    pub(crate) fn new(
        bandwidth: Rate,
        burst: Bytes,
        burst_rate: Option<Rate>,
        frame: Bytes,
    ) -> Self {
        Self {
            bandwidth: bandwidth.0,
            burst: burst.max(frame).0 * 8,
            burst_rate: burst_rate.map(|rate| rate.0),
            frame: frame.0 * 8,
        }
    }

    /// Returns the load of `senders` of a tenant's `vms` machines that send to the others:
    /// {min(m, N - m)·B, m·S} at m·Bmax at most, behind queues of `delay` in all (Silo 4.2.2).
    ///
    /// `parts` is the number of links over which each machine's frames are spread; the load is the
    /// sum over them. A link may get more than its share by a frame at either end.
    pub(crate) fn across(&self, senders: u32, vms: u32, delay: Nanos, parts: u32) -> Load {
        if senders == 0 || senders >= vms {
            return Load::NONE;
        }
        let (slow, fast) = self.affine_curves(senders, vms, delay, parts);
        Load::least(slow, fast)
    }

    /// Returns the affine curves of the average rate and of the burst rate of `senders` machines.
    fn affine_curves(
        &self,
        senders: u32,
        vms: u32,
        delay: Nanos,
        parts: u32,
    ) -> (AffineCurve, Option<AffineCurve>) {
        // Links whose totals differ by a frame at most may differ by two over
        // some time.
        let spread = 2 * u64::from(parts - 1) * self.frame;
        let count = u64::from(senders);
        let slow = AffineCurve {
            rate: u64::from(senders.min(vms - senders)) * self.bandwidth,
            burst: count * (self.burst + spread),
        };
        let fast = self.burst_rate.map(|rate| AffineCurve {
            rate: count * rate,
            burst: count * (self.frame + spread),
        });
        (slow.delayed(delay), fast.map(|fast| fast.delayed(delay)))
    }

    /// Returns a load that is nowhere above [`Self::across`] for any number of senders and any
    /// delay within these intervals, affine curve by affine curve.
    pub(crate) fn at_least(
        &self,
        senders: Interval<u32>,
        vms: u32,
        delays: Interval<Nanos>,
        parts: u32,
    ) -> Load {
        if senders.least == 0 || senders.most >= vms {
            return Load::NONE;
        }
        let (first_slow, fast) = self.affine_curves(senders.least, vms, delays.least, parts);
        let (other_slow, other_fast) = self.affine_curves(senders.most, vms, delays.most, parts);
        let mut slow = first_slow;
        if other_slow.rate < slow.rate {
            // The more senders, the fewer receivers are left.
            let rate = other_slow.rate;
            slow.burst -= bits_in(slow.rate, delays.least) - bits_in(rate, delays.least);
            slow.rate = rate;
        }
        let (Some(fast), Some(other_fast)) = (fast, other_fast) else {
            return Load::least(slow, None);
        };
        let one = touches_fast(first_slow, fast);
        let other = touches_fast(other_slow, other_fast);
        // With more senders and more delay the slow curve is the lower one at more of the times,
        // so what holds at both ends of the intervals holds between them.
        let below_both = AffineCurve {
            rate: slow.rate.min(fast.rate),
            burst: slow.burst.min(fast.burst),
        };
        Load {
            curves: std::array::from_fn(|index| match (one[index], other[index]) {
                (true, true) => fast,
                (false, false) => slow,
                _ => below_both,
            }),
        }
    }
}

#[cfg(test)]
mod tests;
