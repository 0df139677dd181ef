//! How much is served at least: convex service curves.

use crate::arrival::{ArrivalCurve, TokenBucket};
use crate::ratio::{Overflow, Ratio};
use std::cmp::Ordering;
use tailbound_units::{Bytes, Nanos, Rate};

/// A server that is idle at first and then has a constant rate: it serves at
/// least `rate · t - offset` in a time `t` with a backlog.
///
/// The offset is the rate times the latency; kept in this form, what is left
/// over for others stays whole.
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

    /// How long it may be idle, in nanoseconds.
    pub fn latency(self) -> Result<Ratio, Overflow> {
        self.offset.over(self.rate)
    }

    fn at(self, time: Ratio) -> Result<Ratio, Overflow> {
        self.rate.times(time)?.minus(self.offset)
    }
}

/// A lower bound on what is served in a time `t` to a queue that is not empty:
/// the greatest of zero and some rate-latency servers, hence convex and
/// piecewise linear. Le Boudec and Thiran, 1.3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceCurve {
    /// Rates and offsets grow strictly, and each is the greatest one somewhere.
    /// Empty where nothing is promised.
    pieces: Vec<RateLatency>,
}

impl ServiceCurve {
    /// No promise at all.
    pub const NOTHING: Self = Self { pieces: Vec::new() };

    /// `rate · (t - latency)`, at least zero. A rate of zero promises nothing.
    pub fn rate_latency(rate: Rate, latency: Nanos) -> Self {
        if rate == Rate(0) {
            return Self::NOTHING;
        }
        Self {
            pieces: vec![RateLatency::new(rate, latency)],
        }
    }

    /// The greatest of rate-latency servers; those without a rate promise
    /// nothing.
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

    /// The rate-latency servers whose greatest this is: rates and offsets grow.
    pub fn pieces(&self) -> &[RateLatency] {
        &self.pieces
    }

    /// The piece that holds in the long run, a promise that is below the whole
    /// curve. None where nothing is promised.
    pub fn long_run(&self) -> Option<RateLatency> {
        self.pieces.last().copied()
    }

    /// The least that is served in `time` (not below zero), in nanobits.
    pub fn at(&self, time: Ratio) -> Result<Ratio, Overflow> {
        let mut greatest = Ratio::ZERO;
        for piece in &self.pieces {
            greatest = greatest.max(piece.at(time)?);
        }
        Ok(greatest)
    }

    /// When `data` nanobits have been served at the latest: the smallest `t`
    /// with `self(t) >= data`.
    ///
    /// For no data this is the end of the latency: the curve's own inverse is
    /// zero there, but the first bit that comes waits that long. None where
    /// nothing is promised.
    pub fn time_for(&self, data: Ratio) -> Result<Option<Ratio>, Overflow> {
        self.piece_at(data)?
            .map(|index| {
                let piece = self.pieces[index];
                data.plus(piece.offset)?.over(piece.rate)
            })
            .transpose()
    }

    /// The piece that serves what comes right after `data` nanobits.
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

    /// When piece `index` takes over from the one before, or from zero.
    pub(crate) fn start_of(&self, index: usize) -> Result<Ratio, Overflow> {
        let piece = self.pieces[index];
        let Some(before) = index.checked_sub(1).map(|before| self.pieces[before]) else {
            return piece.latency();
        };
        let fall = piece.offset.minus(before.offset)?;
        fall.over(piece.rate.minus(before.rate)?)
    }

    /// How much has been served when piece `index` takes over.
    pub(crate) fn start_value(&self, index: usize) -> Result<Ratio, Overflow> {
        if index == 0 {
            return Ok(Ratio::ZERO);
        }
        self.pieces[index].at(self.start_of(index)?)
    }

    /// The most by which this falls behind a constant `rate` from the start:
    /// `sup_t rate · t - self(t)`, in nanobits. The rate is at most that of the
    /// long run.
    pub(crate) fn lag(&self, rate: Ratio) -> Result<Ratio, Overflow> {
        let faster = self.pieces.partition_point(|piece| piece.rate < rate);
        let Some(piece) = self.pieces.get(faster) else {
            return Err(Overflow);
        };
        // It falls behind until the first piece that is no slower takes over.
        let gained = piece.rate.minus(rate)?.times(self.start_of(faster)?)?;
        piece.offset.minus(gained)
    }

    /// Offsets rounded up to whole nanobits.
    ///
    /// Less is promised then, so what is computed from it stays a bound; and its
    /// numbers stay short.
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

    /// What this server promises when one more `data` must be served first: the
    /// curve less `data`, at least zero.
    ///
    /// With the largest frame for `data` this is a server that hands over whole
    /// frames only (Le Boudec and Thiran, 1.7), or one on which a frame of
    /// lower priority has just begun.
    pub fn after(&self, data: Bytes) -> Result<Self, Overflow> {
        self.map(Ratio::ZERO, Ratio::from(data))
    }

    /// What is left for a class when `higher` classes are served before it, and
    /// one frame of a lower class, of at most `blocking`, may be on the wire
    /// when they come: `self(t) - higher(t) - blocking`, at least zero.
    ///
    /// Without `blocking` this is also what is left when nothing is known about
    /// the order of service. The server must be a strict one, as a link of
    /// constant rate is: it works whenever there is a backlog. Le Boudec and
    /// Thiran, 6.2.
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

    /// What is left for a flow in a FIFO queue that it shares with `cross`
    /// traffic.
    ///
    /// Every θ >= 0 gives one such curve: `self(t) - cross(t - θ)` for `t > θ`
    /// and zero before (Le Boudec and Thiran, 6.2). This takes
    /// θ = the time in which the cross traffic's burst is served, the largest θ
    /// whose curve does not jump. For a rate-latency server (R, T) and a token
    /// bucket (r, b) that leaves the rate R - r after T + b/R, in place of
    /// T + (R·T + b)/(R - r) or so where the order of service is unknown.
    ///
    /// Of cross traffic with several buckets any one may be given; the one of
    /// the long run leaves the highest rate.
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

/// Where `a` and `b` meet against where `c` and `d` do; in both pairs the second
/// has the higher rate.
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
