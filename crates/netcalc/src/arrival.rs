//! Arrival curves: concave upper bounds on traffic.

use crate::bound::Bound;
use crate::ratio::{Overflow, Ratio};
use std::cmp::Ordering;
use tailbound_units::{Bytes, Nanos, Rate};

/// A token bucket: at most `rate · t + burst` in any time `t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    /// Rate, in bit/s.
    pub rate: Ratio,
    /// Burst, in nanobits.
    pub burst: Ratio,
}

impl TokenBucket {
    /// The token bucket without traffic.
    pub const NONE: Self = Self {
        rate: Ratio::ZERO,
        burst: Ratio::ZERO,
    };

    /// A token bucket of this rate and size.
    pub fn new(rate: Rate, burst: Bytes) -> Self {
        Self {
            rate: rate.into(),
            burst: burst.into(),
        }
    }

    /// Returns the sum of both buckets.
    pub fn sum(self, other: Self) -> Result<Self, Overflow> {
        Ok(Self {
            rate: self.rate.plus(other.rate)?,
            burst: self.burst.plus(other.burst)?,
        })
    }

    /// Returns this sum without `other`.
    pub fn without(self, other: Self) -> Result<Self, Overflow> {
        Ok(Self {
            rate: self.rate.minus(other.rate)?,
            burst: self.burst.minus(other.burst)?,
        })
    }

    fn at(self, time: Ratio) -> Result<Ratio, Overflow> {
        self.rate.times(time)?.plus(self.burst)
    }
}

/// Upper bound on the traffic in any time `t`: the minimum of token buckets, hence concave and
/// piecewise linear.
///
/// The value at zero is the burst that may arrive instantly (the limit from the right). Le Boudec
/// and Thiran, 1.2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrivalCurve {
    /// Rates fall and bursts grow strictly, and each bucket is the minimum somewhere. Never empty.
    buckets: Vec<TokenBucket>,
}

impl ArrivalCurve {
    /// No traffic at all.
    pub fn none() -> Self {
        TokenBucket::NONE.into()
    }

    /// `rate · t + burst`.
    pub fn token_bucket(rate: Rate, burst: Bytes) -> Self {
        TokenBucket::new(rate, burst).into()
    }

    /// A sender with an average rate and a burst that it sends at `burst_rate`:
    /// `min(burst_rate · t + frame, rate · t + burst)`, the curve A' of Silo's figure 6. A frame arrives instantly.
    pub fn burst_limited(
        rate: Rate,
        burst: Bytes,
        burst_rate: Rate,
        frame: Bytes,
    ) -> Result<Self, Overflow> {
        Self::least(vec![
            TokenBucket::new(burst_rate, frame),
            TokenBucket::new(rate, burst),
        ])
    }

    /// Returns the minimum of token buckets; without buckets, the curve without traffic.
    pub fn least(mut buckets: Vec<TokenBucket>) -> Result<Self, Overflow> {
        buckets.sort_by(|a, b| b.rate.cmp(&a.rate).then(b.burst.cmp(&a.burst)));
        let mut kept: Vec<TokenBucket> = Vec::with_capacity(buckets.len());
        for next in buckets {
            while let Some(last) = kept.last() {
                // The next one is nowhere faster than the last.
                let hidden = next.burst <= last.burst
                    || match kept.len().checked_sub(2).map(|before| kept[before]) {
                        Some(before) => {
                            compare_knees(before, *last, *last, next)? != Ordering::Less
                        }
                        None => false,
                    };
                if !hidden {
                    break;
                }
                kept.pop();
            }
            kept.push(next);
        }
        if kept.is_empty() {
            return Ok(Self::none());
        }
        Ok(Self { buckets: kept })
    }

    /// Returns the token buckets of the minimum: rates fall, bursts grow.
    pub fn buckets(&self) -> &[TokenBucket] {
        &self.buckets
    }

    /// The bucket that holds in the long run, which bounds the whole curve.
    pub fn long_run(&self) -> TokenBucket {
        self.buckets[self.buckets.len() - 1]
    }

    /// Returns whether the curve has no traffic.
    pub fn is_none(&self) -> bool {
        self.buckets[0] == TokenBucket::NONE
    }

    /// Returns the greatest amount of traffic in `time` (not below zero), in nanobits.
    pub fn at(&self, time: Ratio) -> Result<Ratio, Overflow> {
        let mut least = self.buckets[0].at(time)?;
        for bucket in &self.buckets[1..] {
            least = least.min(bucket.at(time)?);
        }
        Ok(least)
    }

    /// Returns the time from which the bucket after `index` is the minimum; `None` for the last.
    pub(crate) fn knee(&self, index: usize) -> Result<Option<Ratio>, Overflow> {
        let (Some(here), Some(next)) = (self.buckets.get(index), self.buckets.get(index + 1))
        else {
            return Ok(None);
        };
        let rise = next.burst.minus(here.burst)?;
        rise.over(here.rate.minus(next.rate)?).map(Some)
    }

    /// Returns the curve of traffic that conforms to both: `min(self, other)`.
    pub fn min(&self, other: &Self) -> Result<Self, Overflow> {
        Self::least([self.buckets.as_slice(), &other.buckets].concat())
    }

    /// Returns the curve of both sources together: the sum (Silo 4.2.2, "Adding arrival curves").
    pub fn sum(&self, other: &Self) -> Result<Self, Overflow> {
        let (ours, theirs) = (&self.buckets, &other.buckets);
        let (mut i, mut j) = (0, 0);
        let mut buckets = Vec::with_capacity(ours.len() + theirs.len() - 1);
        loop {
            buckets.push(ours[i].sum(theirs[j])?);
            let order = match (ours.get(i + 1), theirs.get(j + 1)) {
                (None, None) => return Ok(Self { buckets }),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(next), Some(other)) => compare_knees(ours[i], *next, theirs[j], *other)?,
            };
            i += usize::from(order.is_le());
            j += usize::from(order.is_ge());
        }
    }

    /// Returns the curve of all sources together.
    pub fn total<'a>(curves: impl IntoIterator<Item = &'a Self>) -> Result<Self, Overflow> {
        let mut sums: Vec<Self> = curves.into_iter().cloned().collect();
        // In pairs, so that long curves are not copied for each short one.
        while sums.len() > 1 {
            sums = sums
                .chunks(2)
                .map(|pair| match pair {
                    [one, other] => one.sum(other),
                    rest => Ok(rest[0].clone()),
                })
                .collect::<Result<_, _>>()?;
        }
        Ok(sums.pop().unwrap_or_else(Self::none))
    }

    /// Returns the curve of `count` such sources together.
    pub fn times(&self, count: u64) -> Result<Self, Overflow> {
        if count == 0 {
            return Ok(Self::none());
        }
        let count = Ratio::whole(i128::from(count));
        self.map(|bucket| {
            Ok(TokenBucket {
                rate: bucket.rate.times(count)?,
                burst: bucket.burst.times(count)?,
            })
        })
    }

    /// Returns the curve of the traffic behind a queue with a delay of at most `longest`: arrivals
    /// of `t + longest` may leave within `t`.
    ///
    /// A token bucket {B, S} becomes {B, S + B·c}: with `longest` the queue capacity `c` this is
    /// Silo's curve of egress traffic (4.2.2, "Propagating arrival curves"), which depends on no
    /// other flow. [`Self::output`] is tighter if the service is known.
    pub fn delayed(&self, longest: Ratio) -> Result<Self, Overflow> {
        self.map(|bucket| {
            Ok(TokenBucket {
                rate: bucket.rate,
                burst: bucket.at(longest)?,
            })
        })
    }

    /// Returns the curve of the traffic over links of `rate` together, each of which delivers a
    /// whole `frame` instantly: `min(self, rate · t + frames · frame)`.
    ///
    /// Silo's example in 4.2.1 needs it: bursts of eight hosts arrive over two links, hence at
    /// twice a link's rate.
    pub fn over_links(&self, rate: Ratio, frames: u64, frame: Bytes) -> Result<Self, Overflow> {
        let burst = Ratio::from(frame).times(Ratio::whole(i128::from(frames)))?;
        self.min(&TokenBucket { rate, burst }.into())
    }

    /// Returns the greatest excess over a constant `rate` from the start: `sup_t self(t) - rate ·
    /// t`, in nanobits.
    ///
    /// The excess is the backlog of a server without latency, and divided by the rate its delay.
    /// {`rate`, excess} is the smallest token bucket of that rate that bounds the curve.
    pub fn excess(&self, rate: Ratio) -> Result<Bound, Overflow> {
        let slower = self.buckets.partition_point(|bucket| bucket.rate > rate);
        let Some(bucket) = self.buckets.get(slower) else {
            return Ok(Bound::Unbounded);
        };
        let Some(before) = slower.checked_sub(1) else {
            return Ok(Bound::Finite(bucket.burst));
        };
        let knee = self.knee(before)?.unwrap_or(Ratio::ZERO);
        let lost = rate.minus(bucket.rate)?.times(knee)?;
        bucket.burst.minus(lost).map(Bound::Finite)
    }

    /// Returns the curve with bursts rounded up to whole nanobits.
    ///
    /// The curve only grows, so results remain bounds, and its numbers stay short on long paths.
    pub fn rounded_up(&self) -> Result<Self, Overflow> {
        Self::least(
            self.buckets
                .iter()
                .map(|bucket| TokenBucket {
                    rate: bucket.rate,
                    burst: Ratio::whole(bucket.burst.ceil()),
                })
                .collect(),
        )
    }

    /// Returns whether each bit leaves a server of `rate` and `latency` within `limit`: `delay <=
    /// limit` by multiplications only, for checks of many ports.
    pub fn is_served_within(
        &self,
        rate: Rate,
        latency: Nanos,
        limit: Nanos,
    ) -> Result<bool, Overflow> {
        let rate = Ratio::from(rate);
        let slower = self.buckets.partition_point(|bucket| bucket.rate > rate);
        let Some(bucket) = self.buckets.get(slower) else {
            return Ok(false);
        };
        if limit < latency {
            return Ok(self.is_none());
        }
        // What the server works off between its latency and the limit.
        let room = rate.times(Ratio::from(limit).minus(latency.into())?)?;
        let over = bucket.burst.minus(room)?;
        let Some(before) = slower.checked_sub(1).map(|index| self.buckets[index]) else {
            return Ok(over <= Ratio::ZERO);
        };
        if rate == bucket.rate {
            return Ok(over <= Ratio::ZERO);
        }
        // At the knee k = (S2 - S1) / (B1 - B2) between the buckets on both
        // sides of the rate R the queue is longest: S2 - (R - B2)·k <= room.
        let order = Ratio::compare(
            over,
            rate.minus(bucket.rate)?,
            bucket.burst.minus(before.burst)?,
            before.rate.minus(bucket.rate)?,
        )?;
        Ok(order.is_le())
    }

    fn map(
        &self,
        change: impl Fn(TokenBucket) -> Result<TokenBucket, Overflow>,
    ) -> Result<Self, Overflow> {
        let changed: Result<Vec<_>, _> = self.buckets.iter().copied().map(change).collect();
        Self::least(changed?)
    }
}

impl From<TokenBucket> for ArrivalCurve {
    fn from(bucket: TokenBucket) -> Self {
        Self {
            buckets: vec![bucket],
        }
    }
}

/// Compares the intersection of `a` and `b` with that of `c` and `d`. In both pairs the first has
/// the higher rate.
fn compare_knees(
    a: TokenBucket,
    b: TokenBucket,
    c: TokenBucket,
    d: TokenBucket,
) -> Result<Ordering, Overflow> {
    Ratio::compare(
        b.burst.minus(a.burst)?,
        a.rate.minus(b.rate)?,
        d.burst.minus(c.burst)?,
        c.rate.minus(d.rate)?,
    )
}

#[cfg(test)]
mod tests;
