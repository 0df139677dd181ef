//! The guarantees of a tenant of Silo as curves.

use crate::arrival::{ArrivalCurve, TokenBucket};
use crate::ratio::{Overflow, Ratio};
use tailbound_units::{Bytes, Nanos, Rate};

/// What each virtual machine of a tenant may send: Silo's {B, S, Bmax} (4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guarantee {
    /// B, the average bandwidth; limits what a machine receives as well.
    pub bandwidth: Rate,
    /// S, the burst that a machine may send when it has been below its
    /// bandwidth. The receiver does not limit it.
    pub burst: Bytes,
    /// Bmax, at which a burst is sent.
    pub burst_rate: Rate,
}

impl Guarantee {
    /// Returns what one machine may send: `min(Bmax · t + frame, B · t + S)`.
    pub fn curve(self, frame: Bytes) -> Result<ArrivalCurve, Overflow> {
        self.across(1, 2, frame)
    }

    /// Returns how long a message of so many bytes on the wire takes to leave its host at most,
    /// if its machine has sent nothing beyond its bandwidth before: M/Bmax up to S, and
    /// S/Bmax + (M - S)/B above. A burst below a frame is one frame.
    pub fn time_for(self, message: Bytes, frame: Bytes) -> Nanos {
        let burst = message.min(self.burst.max(frame));
        let rest = Bytes(message.0 - burst.0);
        let at_once = self.burst_rate.time_for(burst);
        at_once.saturating_add(self.bandwidth.time_for(rest))
    }

    /// What the `senders` machines on one side of a link may send to the other
    /// machines of their tenant, of `machines` in all: [`hose`] at Bmax each at most,
    /// for all may burst together.
    pub fn across(
        self,
        senders: u64,
        machines: u64,
        frame: Bytes,
    ) -> Result<ArrivalCurve, Overflow> {
        let peak = ArrivalCurve::token_bucket(self.burst_rate, frame).times(senders)?;
        hose(self.bandwidth, self.burst, (senders, machines), frame)?.min(&peak)
    }
}

/// What so many `senders` of so many `machines` of a tenant may send to the others, where a burst
/// may come at once: `min(m·B · t + m·S, n·B · t + m·n·(S + frame))` for m senders and n receivers.
///
/// The first is what {B, S} of the senders lets pass. The second is what {`B_i`, S} of the pairs
/// does: the rates of all pairs to a receiver are B in all, but each pair has a bucket of S, and one
/// frame that was charged to it before and has waited for its turn since. Silo counts
/// {min(m, n)·B, m·S} (4.2.2), and with it the bursts of the senders and the rates of the
/// receivers; but m machines may send at m·B until the buckets of their pairs are empty. Where no
/// more send than receive the second is above the first everywhere. With nobody on the other side
/// nothing crosses the link.
pub fn hose(
    bandwidth: Rate,
    burst: Bytes,
    (senders, machines): (u64, u64),
    frame: Bytes,
) -> Result<ArrivalCurve, Overflow> {
    let receivers = machines.saturating_sub(senders);
    if senders == 0 || receivers == 0 {
        return Ok(ArrivalCurve::none());
    }
    let times = |value: Ratio, count: u64| value.times(Ratio::whole(i128::from(count)));
    let pair = Ratio::from(burst).plus(frame.into())?;
    ArrivalCurve::least(vec![
        TokenBucket {
            rate: times(bandwidth.into(), senders)?,
            burst: times(burst.into(), senders)?,
        },
        TokenBucket {
            rate: times(bandwidth.into(), receivers)?,
            burst: times(times(pair, senders)?, receivers)?,
        },
    ])
}

#[cfg(test)]
mod tests;
