//! Silo's guarantees of a tenant as curves.

use crate::arrival::{ArrivalCurve, TokenBucket};
use crate::ratio::{Overflow, Ratio};
use tailbound_units::{Bursts, Bytes, Nanos, Rate};

/// Guarantee of each VM of a tenant: Silo's {B, S, Bmax} (4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guarantee {
    /// B, the average bandwidth of a VM in each direction.
    pub bandwidth: Rate,
    /// S, the burst that a VM may send after traffic below its bandwidth. Without `burst_in` the
    /// receiver does not limit it.
    pub burst: Bytes,
    /// Bmax, the rate of a burst.
    pub burst_rate: Rate,
    /// K, the number of bursts that a VM may send into one subtree of the network.
    pub bursts: Bursts,
    /// `S_in`, the bytes beyond B that may be on their way to one VM; at least S. Without it all
    /// others may send it their S together.
    pub burst_in: Option<Bytes>,
}

impl Guarantee {
    /// Returns the curve of one VM: `min(Bmax · t + frame, B · t + S)`.
    pub fn curve(self, frame: Bytes) -> Result<ArrivalCurve, Overflow> {
        self.across(1, 2, frame)
    }

    /// Returns the longest time in which a message of M bytes on the wire leaves its host, if its
    /// VM has not exceeded its bandwidth before: M/Bmax up to S, and S/Bmax + (M - S)/B above. A
    /// burst below a frame counts as one frame.
    pub fn time_for(self, message: Bytes, frame: Bytes) -> Nanos {
        let burst = message.min(self.burst.max(frame));
        let rest = Bytes(message.0 - burst.0);
        let burst_time = self.burst_rate.time_for(burst);
        burst_time.saturating_add(self.bandwidth.time_for(rest))
    }

    /// Returns the curve of the `senders` VMs on one side of a link to the other VMs of their
    /// tenant, which has `machines` VMs: [`hose`] at Bmax each, because all may burst together.
    pub fn across(
        self,
        senders: u64,
        machines: u64,
        frame: Bytes,
    ) -> Result<ArrivalCurve, Overflow> {
        let peak = ArrivalCurve::token_bucket(self.burst_rate, frame).times(senders)?;
        let Self {
            bandwidth,
            burst,
            bursts,
            burst_in,
            ..
        } = self;
        hose(bandwidth, burst, bursts, burst_in, senders, machines)?.min(&peak)
    }
}

/// Returns the curve of `senders` VMs of a tenant of `machines` VMs to the others, with instant
/// bursts. For m senders, n receivers and at most K bursts of a sender into their subtree it is
/// `min(m·B · t + m·S, n·B · t + min(m·min(K, n)·S, n·S_in))`.
///
/// The first term is the sum of the senders' {B, S}. The second has the rates of the receivers: at
/// each moment the rates of all pairs to a receiver sum up to B at most. Its burst depends on the
/// buckets of a sender, each charged when a frame departs:
///
/// - [`Bursts::PerReceiver`]: {`B_i`, S} for each receiver, so n bursts. These m VMs may send at
///   m·B until the buckets of their pairs are empty.
/// - [`Bursts::PerSubtree`]: besides these, {sum of the `B_i` in v, K·S} for each subtree v of the
///   tree, so K bursts. K = 1 is Silo's curve, {min(m, n)·B, m·S} (4.2.2). It holds only at the
///   ports of a tree whose subtrees have these buckets, not for any other set of receivers.
///
/// `burst_in` is `S_in`, at least S. At each moment the depths of all buckets of pairs to a receiver
/// sum up to at most `S_in`. A bucket passes at most its depth beyond its rate, so all of them pass
/// at most `S_in` beyond B. Depth may move from one bucket to another, with as many tokens: that
/// changes neither sum. Without it the sum is (N-1)·S, which m·min(K, n)·S never exceeds.
///
/// If m <= n the second term is above the first everywhere. Without a VM on the other side the link
/// has no traffic.
pub fn hose(
    bandwidth: Rate,
    burst: Bytes,
    bursts: Bursts,
    burst_in: Option<Bytes>,
    senders: u64,
    machines: u64,
) -> Result<ArrivalCurve, Overflow> {
    let receivers = machines.saturating_sub(senders);
    if senders == 0 || receivers == 0 {
        return Ok(ArrivalCurve::none());
    }
    let times = |value: Ratio, count: u64| value.times(Ratio::whole(i128::from(count)));
    let of_senders = times(
        times(burst.into(), senders)?,
        bursts.into_subtree(receivers),
    )?;
    let of_receivers = burst_in.map(|burst_in| times(burst_in.into(), receivers));
    let of_receivers = of_receivers.transpose()?.unwrap_or(of_senders);
    ArrivalCurve::least(vec![
        TokenBucket {
            rate: times(bandwidth.into(), senders)?,
            burst: times(burst.into(), senders)?,
        },
        TokenBucket {
            rate: times(bandwidth.into(), receivers)?,
            burst: of_senders.min(of_receivers),
        },
    ])
}

#[cfg(test)]
mod tests;
