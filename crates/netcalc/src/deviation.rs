//! Delay, backlog and output of an arrival curve at a service curve.

use crate::arrival::{ArrivalCurve, TokenBucket};
use crate::bound::Bound;
use crate::ratio::{Overflow, Ratio};
use crate::service::ServiceCurve;

impl ArrivalCurve {
    /// Returns the longest delay in a FIFO queue, waiting and service, in nanoseconds: the
    /// horizontal deviation `h(self, service)`.
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

    /// Returns the largest backlog, waiting and in service, in nanobits: the vertical deviation
    /// `v(self, service)`.
    ///
    /// A token bucket (r, b) at a rate-latency server (R, T) has b + r·T. The server may send this
    /// amount instantly when it wakes up: the burst of [`Self::output`]. Le Boudec and Thiran,
    /// theorem 1.4.1.
    pub fn backlog(&self, service: &ServiceCurve) -> Result<Bound, Overflow> {
        Ok(match self.output(service)? {
            Some(output) => Bound::Finite(output.buckets()[0].burst),
            None => Bound::Unbounded,
        })
    }

    /// Returns the curve of the traffic behind a server that guarantees `service` to this traffic
    /// alone: the exact min-plus deconvolution, `sup_s self(t + s) - service(s)`.
    ///
    /// `None` if the server is too slow, so that the backlog has no bound. Le Boudec and Thiran,
    /// theorem 1.4.3.
    pub fn output(&self, service: &ServiceCurve) -> Result<Option<Self>, Overflow> {
        let Some(fastest) = service.long_run() else {
            return Ok(self.is_none().then(Self::none));
        };
        // Of a concave and a convex curve the result is concave and has their
        // slopes. The line of slope r that touches it is as far above the
        // origin as that of the one and that of the other together (the sum of
        // their Legendre transforms).
        let mut buckets = Vec::with_capacity(self.buckets().len() + service.pieces().len());
        for bucket in self.buckets() {
            if bucket.rate <= fastest.rate {
                let lag = service.lag(bucket.rate)?;
                buckets.push(TokenBucket {
                    rate: bucket.rate,
                    burst: bucket.burst.plus(lag)?,
                });
            }
        }
        for piece in service.pieces() {
            if let Bound::Finite(excess) = self.excess(piece.rate)? {
                buckets.push(TokenBucket {
                    rate: piece.rate,
                    burst: piece.offset.plus(excess)?,
                });
            }
        }
        // None at all: the slowest bucket is faster than the fastest piece.
        if buckets.is_empty() {
            return Ok(None);
        }
        Self::least(buckets).map(Some)
    }
}

#[cfg(test)]
mod tests;
