//! How much traffic may come to a port: sums of concave curves, kept as four
//! lines.

use tailbound_units::{Bytes, Nanos, Rate};

/// The times at which a sum of curves is exact, in nanoseconds; the first and
/// the last line touch it at zero and in the long run.
///
/// A burst of Silo's class A ends some 100 us after it began.
const TOUCHES: [u64; 2] = [32_768, 131_072];

/// How many lines a load has.
pub const LINES: usize = TOUCHES.len() + 2;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A token bucket in whole bits: at most `rate · t + burst` in any time `t`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Line {
    /// Bits a second.
    pub rate: u64,
    /// Bits.
    pub burst: u64,
}

impl Line {
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

    /// What has come by `time` later, as a line: bits that arrive up to `time`
    /// after they were sent may arrive together. Rounded up to whole bits.
    fn delayed(self, time: Nanos) -> Self {
        Self {
            rate: self.rate,
            burst: self.burst + bits_in(self.rate, time),
        }
    }
}

/// How many bits `rate` sends in `time`, rounded up.
fn bits_in(rate: u64, time: Nanos) -> u64 {
    // A division of 128 bits costs more than all the rest of a check.
    match rate.checked_mul(time.0) {
        Some(nanobits) => nanobits.div_ceil(NANOS_PER_SECOND),
        None => {
            (u128::from(rate) * u128::from(time.0)).div_ceil(u128::from(NANOS_PER_SECOND)) as u64
        }
    }
}

/// An upper bound on what may come to a port: the least of four lines.
///
/// A tenant's curve is the least of two lines: the burst rate and the average
/// (Silo 4.2.2, the curve A'). The exact sum of many such curves has a joint
/// for each. Here each curve is replaced, for each of four times, by its line
/// that is the lower one at this time; equal times are added up. Every sum of
/// lines bounds the sum of curves, and touches it at its time. So adding and
/// taking away are eight additions, exact in integers, in any order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Rates fall and bursts grow.
    lines: [Line; LINES],
}

impl Load {
    /// No traffic.
    pub const NONE: Self = Self {
        lines: [Line { rate: 0, burst: 0 }; LINES],
    };

    /// The least of a slow line and perhaps a fast one.
    fn least(slow: Line, fast: Option<Line>) -> Self {
        let Some(fast) = fast else {
            return Self {
                lines: [slow; LINES],
            };
        };
        let is_fast = touches_fast(slow, fast);
        Self {
            lines: is_fast.map(|is_fast| if is_fast { fast } else { slow }),
        }
    }

    /// The four lines: rates fall, bursts grow.
    pub fn lines(&self) -> &[Line; LINES] {
        &self.lines
    }

    /// What comes in the long run, in bits a second.
    pub fn rate(&self) -> u64 {
        self.lines[LINES - 1].rate
    }

    /// Whether nothing ever comes.
    pub fn is_none(&self) -> bool {
        // The burst of a machine is a frame at least.
        self.lines[LINES - 1].burst == 0
    }

    /// The sum of two loads.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            lines: std::array::from_fn(|index| self.lines[index].plus(other.lines[index])),
        }
    }

    /// What is left when `other`, a part of the sum, is taken away.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        Self {
            lines: std::array::from_fn(|index| self.lines[index].minus(other.lines[index])),
        }
    }

    /// A load that is nowhere above either: for bounds on many ports at once.
    #[must_use]
    pub fn lower(&self, other: &Self) -> Self {
        Self {
            lines: std::array::from_fn(|index| Line {
                rate: self.lines[index].rate.min(other.lines[index].rate),
                burst: self.lines[index].burst.min(other.lines[index].burst),
            }),
        }
    }

    /// The most bits that can be waiting at a port of `rate`, rounded up, if no
    /// more than `feed` comes over the links before it. None without a bound.
    pub fn backlog(&self, rate: u64, feed: Option<Line>) -> Option<u64> {
        let (slow, before) = self.around(rate)?;
        let crossing = |fast: Line| {
            if fast.rate <= rate {
                return fast.burst;
            }
            if fast.burst >= slow.burst {
                return slow.burst;
            }
            // The queue is longest where the lines cross, at
            // (S2 - S1) / (B1 - B2): S2 - (R - B2) times that.
            let drained = u128::from(rate - slow.rate) * u128::from(slow.burst - fast.burst)
                / u128::from(fast.rate - slow.rate);
            slow.burst - drained as u64
        };
        let fastest = [before, feed].into_iter().flatten().map(crossing).min();
        Some(fastest.unwrap_or(slow.burst).min(slow.burst))
    }

    /// Whether at most `room` bits can be waiting: [`Self::backlog`] by
    /// multiplications alone.
    pub(crate) fn is_within(&self, rate: u64, room: u64, feed: Option<Line>) -> bool {
        let Some((slow, before)) = self.around(rate) else {
            return false;
        };
        if slow.burst <= room {
            return true;
        }
        let crossing = |fast: Line| {
            if fast.rate <= rate {
                return fast.burst <= room;
            }
            fast.burst < slow.burst
                && u128::from(slow.burst - room) * u128::from(fast.rate - slow.rate)
                    <= u128::from(rate - slow.rate) * u128::from(slow.burst - fast.burst)
        };
        before.is_some_and(crossing) || feed.is_some_and(crossing)
    }

    /// The first line that a port of `rate` keeps up with, and the one before.
    fn around(&self, rate: u64) -> Option<(Line, Option<Line>)> {
        let index = self.lines.iter().position(|line| line.rate <= rate)?;
        let before = index.checked_sub(1).map(|before| self.lines[before]);
        Some((self.lines[index], before))
    }
}

/// For each time whether the curve, the least of two lines, touches the fast one
/// there.
fn touches_fast(slow: Line, fast: Line) -> [bool; LINES] {
    if fast.burst >= slow.burst {
        return [false; LINES];
    }
    if fast.rate <= slow.rate {
        return [true; LINES];
    }
    let mut is_fast = [false; LINES];
    is_fast[0] = true;
    for (is_fast, touch) in is_fast[1..].iter_mut().zip(TOUCHES) {
        let gained = u128::from(fast.rate - slow.rate) * u128::from(touch);
        let ahead = u128::from(slow.burst - fast.burst) * u128::from(NANOS_PER_SECOND);
        *is_fast = gained < ahead;
    }
    is_fast
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
    /// Rates in bits a second, sizes in bits. A machine may send a frame at
    /// least, whatever its burst.
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

    /// What `senders` machines of `vms` may send to the others, up to `delay`
    /// after it was sent: {min(m, N - m)·B, m·S} at m·Bmax at most, and as it is
    /// after queues of `delay` in all (Silo 4.2.2).
    ///
    /// `parts` is over how many links each machine's frames are spread, whose
    /// sum this is: a link may get more than its share by a frame at either end.
    pub(crate) fn across(&self, senders: u32, vms: u32, delay: Nanos, parts: u32) -> Load {
        if senders == 0 || senders >= vms {
            return Load::NONE;
        }
        let (slow, fast) = self.lines(senders, vms, delay, parts);
        Load::least(slow, fast)
    }

    /// The average and the burst rate of so many senders.
    fn lines(&self, senders: u32, vms: u32, delay: Nanos, parts: u32) -> (Line, Option<Line>) {
        // Links whose totals differ by a frame at most may differ by two over
        // some time.
        let spread = 2 * u64::from(parts - 1) * self.frame;
        let count = u64::from(senders);
        let slow = Line {
            rate: u64::from(senders.min(vms - senders)) * self.bandwidth,
            burst: count * (self.burst + spread),
        };
        let fast = self.burst_rate.map(|rate| Line {
            rate: count * rate,
            burst: count * (self.frame + spread),
        });
        (slow.delayed(delay), fast.map(|fast| fast.delayed(delay)))
    }

    /// A load that is nowhere above [`Self::across`] of any number of senders
    /// and any delay between two each, line by line.
    pub(crate) fn at_least(
        &self,
        (fewest, most): (u32, u32),
        vms: u32,
        (soonest, latest): (Nanos, Nanos),
        parts: u32,
    ) -> Load {
        if fewest == 0 || most >= vms {
            return Load::NONE;
        }
        let (first_slow, fast) = self.lines(fewest, vms, soonest, parts);
        let (other_slow, other_fast) = self.lines(most, vms, latest, parts);
        let mut slow = first_slow;
        if other_slow.rate < slow.rate {
            // The more senders, the fewer receivers are left.
            let rate = other_slow.rate;
            slow.burst -= bits_in(slow.rate, soonest) - bits_in(rate, soonest);
            slow.rate = rate;
        }
        let (Some(fast), Some(other_fast)) = (fast, other_fast) else {
            return Load::least(slow, None);
        };
        let one = touches_fast(first_slow, fast);
        let other = touches_fast(other_slow, other_fast);
        // With more senders and more delay the slow line is touched at more of
        // the times, so that what both ends touch all between them do.
        let below_both = Line {
            rate: slow.rate.min(fast.rate),
            burst: slow.burst.min(fast.burst),
        };
        Load {
            lines: std::array::from_fn(|index| match (one[index], other[index]) {
                (true, true) => fast,
                (false, false) => slow,
                _ => below_both,
            }),
        }
    }
}

#[cfg(test)]
mod tests;
