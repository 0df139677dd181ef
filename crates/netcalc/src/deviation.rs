//! The two distances between what may come and what is served: delay and
//! backlog.

use crate::arrival::{ArrivalCurve, TokenBucket};
use crate::ratio::{Overflow, Ratio};
use crate::service::ServiceCurve;

/// A bound, if there is one. A smaller one compares as less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// It is never more than this.
    Finite(Ratio),
    /// More comes than is served: there is no bound.
    Unbounded,
}

impl Bound {
    /// The bound, if there is one.
    pub fn finite(self) -> Option<Ratio> {
        match self {
            Self::Finite(bound) => Some(bound),
            Self::Unbounded => None,
        }
    }
}

impl ArrivalCurve {
    /// The longest that anything waits and is served in a FIFO queue, in
    /// nanoseconds: the horizontal deviation `h(self, service)`.
    ///
    /// Silo's queue bound (4.2.2). A token bucket (r, b) at a rate-latency
    /// server (R, T) has T + b/R as long as r <= R. Le Boudec and Thiran,
    /// theorem 1.4.2.
    pub fn delay(&self, service: &ServiceCurve) -> Result<Bound, Overflow> {
        if self.is_none() {
            return Ok(Bound::Finite(Ratio::ZERO));
        }
        let (buckets, pieces) = (self.buckets(), service.pieces());
        let mut data = buckets[0].burst;
        let Some(mut piece) = service.piece_at(data)? else {
            return Ok(Bound::Unbounded);
        };
        let mut bucket = 0;
        let mut time = Ratio::ZERO;
        // What comes later waits longer as long as it comes faster than it is
        // served. Go on to where one of the two changes.
        while buckets[bucket].rate > pieces[piece].rate {
            let TokenBucket { rate, burst } = buckets[bucket];
            let knee = self.knee(bucket)?;
            let came = match knee {
                Some(knee) => Some(rate.times(knee)?.plus(burst)?),
                None => None,
            };
            let joint = if piece + 1 < pieces.len() {
                Some(service.start_value(piece + 1)?)
            } else {
                None
            };
            data = match (came, joint) {
                (Some(came), Some(joint)) => came.min(joint),
                (Some(only), None) | (None, Some(only)) => only,
                (None, None) => return Ok(Bound::Unbounded),
            };
            if let (Some(knee), true) = (knee, came == Some(data)) {
                time = knee;
                bucket += 1;
            } else {
                time = data.minus(burst)?.over(rate)?;
            }
            piece += usize::from(joint == Some(data));
        }
        let served = data.plus(pieces[piece].offset)?.over(pieces[piece].rate)?;
        served.minus(time).map(Bound::Finite)
    }

    /// The most that waits and is served at one time, in nanobits: the vertical
    /// deviation `v(self, service)`.
    ///
    /// A token bucket (r, b) at a rate-latency server (R, T) has b + r·T. It is
    /// what the server may send at once when it wakes up, the burst of
    /// [`Self::output`]. Le Boudec and Thiran, theorem 1.4.1.
    pub fn backlog(&self, service: &ServiceCurve) -> Result<Bound, Overflow> {
        Ok(match self.output(service)? {
            Some(output) => Bound::Finite(output.buckets()[0].burst),
            None => Bound::Unbounded,
        })
    }
}

#[cfg(test)]
mod tests;
