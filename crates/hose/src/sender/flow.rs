//! A guest's traffic to one destination, and its demand.

use crate::ids::Destination;
use tailbound_units::{Bytes, Nanos, Rate};

/// Usage of a guest's flow to one destination since the last sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes on the wire.
    pub taken: Bytes,
    /// Deficit of its bucket, in bytes on the wire.
    pub lacks: Bytes,
    /// True if frames waited for the rate limit.
    pub waiting: bool,
    /// Bytes on the wire of the frames that wait now.
    pub queued: Bytes,
}

/// A guest's traffic to one destination of a receiver.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) destination: Destination,
    /// Bytes on the wire since the last sample.
    taken: Bytes,
    /// True if frames waited since the last sample.
    waiting: bool,
    /// Largest deficit of its bucket in the pacer at a report since the last sample.
    lacks: Bytes,
    /// Bytes of the frames that waited at the last sample.
    pub(super) queued: Bytes,
    /// Rates of the last two samples.
    recent: [Rate; 2],
    /// Estimated demand of the guest for this pair.
    pub(super) demand: Rate,
    /// Current rate limit.
    pub(super) rate: Option<Rate>,
    /// Bytes that are lent.
    pub(super) lent: Bytes,
}

/// Sample of all flows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// Length of the sample.
    pub(super) elapsed: Nanos,
    /// Usual length of a sample.
    pub(super) interval: Nanos,
    /// The pair's static share.
    pub(super) share: Rate,
}

impl Flow {
    pub(super) const fn new(destination: Destination) -> Self {
        Self {
            destination,
            taken: Bytes::ZERO,
            waiting: false,
            lacks: Bytes::ZERO,
            queued: Bytes::ZERO,
            recent: [Rate::ZERO; 2],
            demand: Rate::ZERO,
            rate: None,
            lent: Bytes::ZERO,
        }
    }

    /// Adds usage to the sample.
    pub(super) fn handle_usage(&mut self, usage: Usage) {
        self.taken = self.taken.saturating_add(usage.taken);
        self.waiting |= usage.waiting;
        self.lacks = self.lacks.max(usage.lacks);
        self.queued = usage.queued;
    }

    /// Returns the largest possible deficit of its bucket since the last sample.
    pub(super) const fn deficit(&self) -> Bytes {
        self.taken.saturating_add(self.lacks)
    }

    /// Ends a sample, and estimates the demand.
    pub(super) fn end_sample(&mut self, sample: Sample) {
        let Sample {
            elapsed,
            interval,
            share,
        } = sample;
        let span = elapsed.0.clamp(interval.0, 2 * interval.0).max(1);
        let rate = u128::from(self.taken.0) * 8_000_000_000 / u128::from(span);
        let rate = Rate(rate.try_into().unwrap_or(u64::MAX));
        self.recent = [rate, self.recent[0]];
        let used = self.recent[0].max(self.recent[1]);
        let more = used.saturating_add(Rate(used.0 / 4));
        self.demand = if self.waiting {
            Rate::MAX
        } else if self.lacks > Bytes::ZERO {
            // A bucket that is not full yet is filled at no less than the share
            // that is the pair's whatever others want.
            more.max(share)
        } else {
            more
        };
        self.taken = Bytes::ZERO;
        self.waiting = false;
        self.lacks = Bytes::ZERO;
        self.queued = Bytes::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Address;

    /// A used rate is exact, and its demand a quarter more.
    #[test]
    fn demand_is_a_quarter_above_the_used_rate() {
        let second = Nanos::from_secs(1);
        let mut flow = Flow::new(Destination::Address(Address(1)));
        flow.handle_usage(Usage {
            taken: Bytes(1_250_000_000),
            ..Usage::default()
        });
        flow.end_sample(Sample {
            elapsed: second,
            interval: second,
            share: Rate::ZERO,
        });
        assert_eq!(flow.demand, Rate(12_500_000_000));
    }
}
