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
    /// machines of their tenant, of `machines` in all.
    ///
    /// A receiver's bandwidth is no more than B, so the rate is that of the
    /// smaller side; bursts have no such limit: {min(m, N - m)·B, m·S} (Silo
    /// 4.2.2). All m may burst together, at Bmax each. With nobody on the other
    /// side nothing crosses the link.
    pub fn across(
        self,
        senders: u64,
        machines: u64,
        frame: Bytes,
    ) -> Result<ArrivalCurve, Overflow> {
        let receivers = machines.saturating_sub(senders);
        if senders == 0 || receivers == 0 {
            return Ok(ArrivalCurve::none());
        }
        let times = |value: Ratio, count: u64| value.times(Ratio::whole(i128::from(count)));
        ArrivalCurve::least(vec![
            TokenBucket {
                rate: times(self.burst_rate.into(), senders)?,
                burst: times(frame.into(), senders)?,
            },
            TokenBucket {
                rate: times(self.bandwidth.into(), senders.min(receivers))?,
                burst: times(self.burst.into(), senders)?,
            },
        ])
    }
}

#[cfg(test)]
mod tests;
