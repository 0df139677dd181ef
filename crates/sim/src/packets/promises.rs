//! Guarantees of tenants' frames, and the comparison of each delivered frame with them.

use super::line::Tier;
use super::packet::Packet;
use super::priorities::Priorities;
use std::sync::Arc;
use tailbound_units::{Nanos, Rate};

/// Guarantee on the path to an end of a connection: the time from a frame's departure from its host
/// to its delivery, including wires and links.
#[derive(Debug, Clone, Copy)]
pub(super) struct Promise {
    /// Bound from the ports on its path, with the tenants that were placed.
    pub(super) bound: Nanos,
    /// The tenant's guaranteed delay.
    pub(super) delay: Nanos,
}

/// Guarantees of all paths, and counters of delivered frames.
#[derive(Debug, Clone, Default)]
pub(super) struct Promises {
    /// Guarantees, by the receiving ends.
    by_end: Vec<Option<Promise>>,
    /// Rate of hosts' links.
    link: Rate,
    /// Queues of switches.
    priorities: Arc<Priorities>,
    pub(super) kept: GuaranteeCounters,
}

/// Counters of frames with a guarantee that were delivered over a wire.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct GuaranteeCounters {
    pub(super) frames: u64,
    /// Number of frames that took longer than the bound of their path.
    pub(super) over_bound: u64,
    /// Number of frames that took longer than their tenant's delay.
    pub(super) over_delay: u64,
    /// Largest ratio of a frame's time to its bound.
    pub(super) nearest: f64,
}

impl GuaranteeCounters {
    /// Adds the counters of another data centre.
    pub(super) fn add(&mut self, other: &Self) {
        self.frames += other.frames;
        self.over_bound += other.over_bound;
        self.over_delay += other.over_delay;
        self.nearest = self.nearest.max(other.nearest);
    }
}

impl Promises {
    pub(super) fn new(
        by_end: Vec<Option<Promise>>,
        link: Rate,
        priorities: Arc<Priorities>,
    ) -> Self {
        Self {
            by_end,
            link,
            priorities,
            kept: GuaranteeCounters::default(),
        }
    }

    /// Compares a delivered packet with its guarantee.
    pub(super) fn hold(&mut self, now: Nanos, packet: &Packet) {
        let promise = self.by_end.get(packet.to as usize).copied().flatten();
        let Some(promise) = promise.filter(|_| self.priorities.is_guaranteed(packet.class)) else {
            return;
        };
        let flight = (now.0 as u32).wrapping_sub(packet.sent);
        let took = flight.saturating_sub(packet.waited[Tier::Host as usize]);
        let took = Nanos(took.into()).since(self.link.time_for(packet.bytes()));
        let kept = &mut self.kept;
        kept.frames += 1;
        kept.over_bound += u64::from(took > promise.bound);
        kept.over_delay += u64::from(took > promise.delay);
        let part = took.0 as f64 / promise.bound.0.max(1) as f64;
        kept.nearest = kept.nearest.max(part);
    }
}
