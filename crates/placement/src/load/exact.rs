//! The exact sum of tenants' curves, to check whether a port is refused by the six approximating
//! curves only.

use super::{AffineCurve, Load, NANOS_PER_SECOND, Source, Wait};
use std::cmp::Ordering;
use tailbound_units::Nanos;

/// The last nanosecond that is looked at: after 13 days. No queue of finite length grows for
/// longer.
const LAST: i128 = 1 << 50;
const NANOBITS: i128 = NANOS_PER_SECOND as i128;

/// The exact curve of a tenant: at each time the least of its affine ones.
#[derive(Debug, Clone)]
pub(crate) struct Exact {
    lines: Vec<Line>,
}

/// An affine curve.
#[derive(Debug, Clone, Copy)]
struct Line {
    /// Bits a second, or billionths of a bit a nanosecond.
    rate: i128,
    /// Billionths of a bit.
    burst: i128,
}

impl Exact {
    /// Returns how many billionths of a bit come within some nanoseconds.
    fn within(&self, time: i128) -> i128 {
        let lines = self.lines.iter();
        let all = lines.map(|line| line.rate * time + line.burst);
        all.min().unwrap_or(0)
    }
}

impl Source {
    /// Returns the exact curve of which [`Self::across`] is the load.
    pub(crate) fn exactly(
        &self,
        senders: u32,
        vms: u32,
        wait: impl Into<Wait>,
        parts: u32,
    ) -> Exact {
        let Wait { time: delay, late } = wait.into();
        if senders == 0 || senders >= vms {
            return Exact { lines: Vec::new() };
        }
        // Behind no queue nothing is rounded.
        let undelayed = Wait {
            time: Nanos::ZERO,
            late,
        };
        let lines = self.lines(senders, vms, undelayed, parts);
        let all = [lines.peak, Some(lines.senders), lines.pairs];
        let delayed = |line: AffineCurve| {
            let rate = i128::from(line.rate);
            let burst = i128::from(line.burst) * NANOBITS + rate * i128::from(delay.0);
            Line { rate, burst }
        };
        Exact {
            lines: all.into_iter().flatten().map(delayed).collect(),
        }
    }
}

impl Load {
    /// Returns a load that the exact sum is nowhere below: what comes in the long run, without a
    /// burst.
    pub(crate) fn in_the_long_run(&self) -> Self {
        let rate = self.rate();
        Self {
            curves: [AffineCurve { rate, burst: 0 }; super::CURVES],
        }
    }

    /// Returns whether more than `limit` bits may wait at a port of `rate` by the exact sum of the
    /// curves of which this is the load, if no more than `feed` comes over the links before.
    ///
    /// The function computes in whole nanoseconds, so that it may miss a few bits. It therefore
    /// compares with one bit more than `limit`, which is rounded down. The result true is correct
    /// despite rounding.
    pub(crate) fn is_exactly_over(
        &self,
        curves: &[&Exact],
        rate: u64,
        limit: u64,
        feed: Option<AffineCurve>,
    ) -> bool {
        let limit = (i128::from(limit) + 1) * NANOBITS;
        let Some((mut soonest, mut latest)) = self.times_over(rate, limit, feed) else {
            return false;
        };
        let waiting = |time: i128| {
            let come: i128 = curves.iter().map(|curve| curve.within(time)).sum();
            come - i128::from(rate) * time
        };
        // A sum of concave curves grows up to one time and falls behind it.
        while soonest <= latest {
            let middle = soonest + (latest - soonest) / 2;
            let here = waiting(middle);
            if here >= limit {
                return true;
            }
            if waiting(middle + 1) > here {
                soonest = middle + 1;
            } else {
                latest = middle - 1;
            }
        }
        false
    }

    /// Returns the first and the last nanosecond at which at least `limit` billionths of a bit may
    /// wait by the six curves and the links before; at no other time can they by the exact sum.
    /// None if there is none.
    fn times_over(
        &self,
        rate: u64,
        limit: i128,
        feed: Option<AffineCurve>,
    ) -> Option<(i128, i128)> {
        let (mut soonest, mut latest) = (0, LAST);
        for curve in self.curves.iter().chain(feed.as_ref()) {
            let gained = i128::from(curve.rate) - i128::from(rate);
            let lacks = limit - i128::from(curve.burst) * NANOBITS;
            match gained.cmp(&0) {
                Ordering::Greater => soonest = soonest.max(-(-lacks).div_euclid(gained)),
                Ordering::Less => latest = latest.min((-lacks).div_euclid(-gained)),
                Ordering::Equal if lacks > 0 => return None,
                Ordering::Equal => {}
            }
        }
        (soonest <= latest).then_some((soonest, latest))
    }
}
