//! Service curves: convex lower bounds on service.

use crate::arrival::{ArrivalCurve, TokenBucket};
use crate::ratio::{Overflow, Ratio};
use std::cmp::Ordering;
use tailbound_units::{Bytes, Nanos, Rate};

/// A server with a latency and then a constant rate: it serves at least `rate · t - offset` in a
/// time `t` with a backlog.
///
/// The offset is the rate times the latency. In this form the service that is left over for others
/// stays a whole number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLatency {
    /// Bits a second, above zero.
    pub rate: Ratio,
    /// Nanobits, not below zero.
    pub offset: Ratio,
}

impl RateLatency {
    /// A server of this rate and latency.
    pub fn new(rate: Rate, latency: Nanos) -> Self {
        // A product of 64-bit numbers.
        Self {
            rate: rate.into(),
            offset: Ratio::whole(i128::from(rate.0) * i128::from(latency.0)),
        }
    }

    /// Returns the latency, in nanoseconds.
    pub fn latency(self) -> Result<Ratio, Overflow> {
        self.offset.over(self.rate)
    }

    fn at(self, time: Ratio) -> Result<Ratio, Overflow> {
        self.rate.times(time)?.minus(self.offset)
    }
}

/// Lower bound on the service of a nonempty queue in a time `t`: the maximum of zero and
/// rate-latency servers, hence convex and piecewise linear. Le Boudec and Thiran, 1.3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceCurve {
    /// Rates and offsets grow strictly, and each piece is the maximum somewhere. Empty without any
    /// guarantee.
    pieces: Vec<RateLatency>,
}

impl ServiceCurve {
    /// The curve without any guarantee.
    pub const NOTHING: Self = Self { pieces: Vec::new() };

    /// `rate · (t - latency)`, at least zero. A rate of zero is no guarantee.
    pub fn rate_latency(rate: Rate, latency: Nanos) -> Self {
        if rate == Rate(0) {
            return Self::NOTHING;
        }
        Self {
            pieces: vec![RateLatency::new(rate, latency)],
        }
    }

    /// Returns the maximum of rate-latency servers. Servers with a rate of zero are ignored.
    pub fn greatest(mut pieces: Vec<RateLatency>) -> Result<Self, Overflow> {
        pieces.retain(|piece| piece.rate > Ratio::ZERO);
        // Of equal rates the better one comes last.
        pieces.sort_by(|a, b| a.rate.cmp(&b.rate).then(b.offset.cmp(&a.offset)));
        // Zero is a piece like the others here: it decides where the first one
        // starts.
        let zero = RateLatency {
            rate: Ratio::ZERO,
            offset: Ratio::ZERO,
        };
        let mut kept = vec![zero];
        for mut next in pieces {
            next.offset = next.offset.max(Ratio::ZERO);
            while let [.., before, last] = kept.as_slice() {
                let hidden = next.offset <= last.offset
                    || compare_joints(*before, *last, *last, next)? != Ordering::Less;
                if !hidden {
                    break;
                }
                kept.pop();
            }
            kept.push(next);
        }
        kept.remove(0);
        Ok(Self { pieces: kept })
    }

    /// Returns the rate-latency servers of the maximum: rates and offsets grow.
    pub fn pieces(&self) -> &[RateLatency] {
        &self.pieces
    }

    /// Returns the piece that holds in the long run, which is below the whole curve. `None` without
    /// a guarantee.
    pub fn long_run(&self) -> Option<RateLatency> {
        self.pieces.last().copied()
    }

    /// Returns the least service in `time` (not below zero), in nanobits.
    pub fn at(&self, time: Ratio) -> Result<Ratio, Overflow> {
        let mut greatest = Ratio::ZERO;
        for piece in &self.pieces {
            greatest = greatest.max(piece.at(time)?);
        }
        Ok(greatest)
    }

    /// Returns the latest time at which `data` nanobits are served: the smallest `t` with
    /// `self(t) >= data`.
    ///
    /// Without data this is the end of the latency: the inverse of the curve is zero there, but the
    /// first bit waits that long. `None` without a guarantee.
    pub fn time_for(&self, data: Ratio) -> Result<Option<Ratio>, Overflow> {
        self.piece_at(data)?
            .map(|index| {
                let piece = self.pieces[index];
                data.plus(piece.offset)?.over(piece.rate)
            })
            .transpose()
    }

    /// Returns the piece that serves the bit after `data` nanobits.
    pub(crate) fn piece_at(&self, data: Ratio) -> Result<Option<usize>, Overflow> {
        let mut found = None;
        for index in 0..self.pieces.len() {
            if self.start_value(index)? > data {
                break;
            }
            found = Some(index);
        }
        Ok(found)
    }

    /// Returns the time from which piece `index` is the maximum.
    pub(crate) fn start_of(&self, index: usize) -> Result<Ratio, Overflow> {
        let piece = self.pieces[index];
        let Some(before) = index.checked_sub(1).map(|before| self.pieces[before]) else {
            return piece.latency();
        };
        let fall = piece.offset.minus(before.offset)?;
        fall.over(piece.rate.minus(before.rate)?)
    }

    /// Returns the service at the time from which piece `index` is the maximum.
    pub(crate) fn start_value(&self, index: usize) -> Result<Ratio, Overflow> {
        if index == 0 {
            return Ok(Ratio::ZERO);
        }
        self.pieces[index].at(self.start_of(index)?)
    }

    /// Returns the greatest deficit to a constant `rate` from the start: `sup_t rate · t -
    /// self(t)`, in nanobits. The rate is at most that of the long run.
    pub(crate) fn lag(&self, rate: Ratio) -> Result<Ratio, Overflow> {
        let faster = self.pieces.partition_point(|piece| piece.rate < rate);
        let Some(piece) = self.pieces.get(faster) else {
            return Err(Overflow);
        };
        // It falls behind until the first piece that is no slower takes over.
        let gained = piece.rate.minus(rate)?.times(self.start_of(faster)?)?;
        piece.offset.minus(gained)
    }

    /// Returns the curve with offsets rounded up to whole nanobits.
    ///
    /// The guarantee only shrinks, so results remain bounds, and its numbers stay short.
    pub fn rounded_up(&self) -> Result<Self, Overflow> {
        Self::greatest(
            self.pieces
                .iter()
                .map(|piece| RateLatency {
                    rate: piece.rate,
                    offset: Ratio::whole(piece.offset.ceil()),
                })
                .collect(),
        )
    }

    /// Returns the service after another `data`: the curve less `data`, at least zero.
    ///
    /// With the largest frame as `data` this is a server that delivers whole frames only (Le Boudec
    /// and Thiran, 1.7), or one on which a frame of lower priority has just begun.
    pub fn after(&self, data: Bytes) -> Result<Self, Overflow> {
        self.map(Ratio::ZERO, Ratio::from(data))
    }

    /// Returns the service of a class below `higher` classes, if one frame of a lower class, of at
    /// most `blocking`, may be on the wire: `self(t) - higher(t) - blocking`, at least zero.
    ///
    /// Without `blocking` this is also the remaining service under an unknown order of service. The
    /// server must be strict, as a link of constant rate is: it works whenever there is a backlog.
    /// Le Boudec and Thiran, 6.2.
    pub fn left_over_priority(
        &self,
        higher: &ArrivalCurve,
        blocking: Bytes,
    ) -> Result<Self, Overflow> {
        let blocking = Ratio::from(blocking);
        let mut pieces = Vec::new();
        for piece in &self.pieces {
            for bucket in higher.buckets() {
                let offset = piece.offset.plus(bucket.burst)?.plus(blocking)?;
                pieces.push(RateLatency {
                    rate: piece.rate.minus(bucket.rate)?,
                    offset,
                });
            }
        }
        Self::greatest(pieces)
    }

    /// Returns the service of a flow in a FIFO queue that it shares with `cross` traffic.
    ///
    /// Every θ >= 0 has such a curve: `self(t) - cross(t - θ)` for `t > θ` and zero before (Le
    /// Boudec and Thiran, 6.2). This function uses the time in which the burst of the cross traffic
    /// is served as θ, the largest θ whose curve does not jump. For a rate-latency server (R, T)
    /// and a token bucket (r, b) the rate R - r remains after T + b/R, instead of T + (R·T + b)/(R
    /// - r) under an unknown order of service.
    ///
    /// Of cross traffic with several buckets any one may be passed; the one of the long run leaves
    /// the highest rate.
    pub fn left_over_fifo(&self, cross: TokenBucket) -> Result<Self, Overflow> {
        match self.time_for(cross.burst)? {
            Some(theta) => {
                let ahead = cross.burst.minus(cross.rate.times(theta)?)?;
                self.map(cross.rate, ahead)
            }
            None => Ok(Self::NOTHING),
        }
    }

    /// Every piece slower by `rate` and later by `offset`.
    fn map(&self, rate: Ratio, offset: Ratio) -> Result<Self, Overflow> {
        let change = |piece: &RateLatency| {
            Ok(RateLatency {
                rate: piece.rate.minus(rate)?,
                offset: piece.offset.plus(offset)?,
            })
        };
        let changed: Result<Vec<_>, Overflow> = self.pieces.iter().map(change).collect();
        Self::greatest(changed?)
    }
}

/// Compares the intersection of `a` and `b` with that of `c` and `d`. In both pairs the second has
/// the higher rate.
fn compare_joints(
    a: RateLatency,
    b: RateLatency,
    c: RateLatency,
    d: RateLatency,
) -> Result<Ordering, Overflow> {
    Ratio::compare(
        b.offset.minus(a.offset)?,
        b.rate.minus(a.rate)?,
        d.offset.minus(c.offset)?,
        d.rate.minus(c.rate)?,
    )
}

#[cfg(test)]
mod tests;
