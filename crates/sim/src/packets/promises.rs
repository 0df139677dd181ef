//! What frames of guaranteed tenants are promised: each that comes is held against it.

use super::line::Tier;
use super::packet::{FIRST, Packet};
use tailbound_units::{Nanos, Rate};

/// What is promised on the way to an end of a connection, from when a frame has left its host
/// until it is there, wires and links included.
#[derive(Debug, Clone, Copy)]
pub(super) struct Promise {
    /// By the bounds of the ports on its way, with the tenants there are.
    pub(super) bound: Nanos,
    /// By the tenant's delay.
    pub(super) delay: Nanos,
}

/// What is promised on all ways, and what came.
#[derive(Debug, Clone, Default)]
pub(super) struct Promises {
    /// By the ends that packets go to.
    by_end: Vec<Option<Promise>>,
    /// Hosts' links.
    link: Rate,
    pub(super) kept: Kept,
}

/// Frames with a guarantee that came over a wire.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Kept {
    pub(super) frames: u64,
    /// Those that took longer than the bound of their way,
    pub(super) over_bound: u64,
    /// and longer than their tenant's delay.
    pub(super) over_delay: u64,
    /// What the one that was nearest to its bound took of that.
    pub(super) nearest: f64,
}

impl Kept {
    /// Adds those of another data centre.
    pub(super) fn add(&mut self, other: &Self) {
        self.frames += other.frames;
        self.over_bound += other.over_bound;
        self.over_delay += other.over_delay;
        self.nearest = self.nearest.max(other.nearest);
    }
}

impl Promises {
    pub(super) fn new(by_end: Vec<Option<Promise>>, link: Rate) -> Self {
        Self {
            by_end,
            link,
            kept: Kept::default(),
        }
    }

    /// Holds a packet that came against what was promised.
    pub(super) fn hold(&mut self, now: Nanos, packet: &Packet) {
        let promise = self.by_end.get(packet.to as usize).copied().flatten();
        let Some(promise) = promise.filter(|_| packet.class == FIRST) else {
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
