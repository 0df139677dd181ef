//! The measurement of packets, as the loop uses it.

use std::sync::Arc;
use tailbound_agent::inventory::Guest;
use tailbound_look::evidence::Evidence;
use tailbound_units::Nanos;

/// Measures the packets of guests at the host's interfaces of them.
pub(crate) trait Packets {
    /// Returns why packets are not measured.
    fn examined(&self) -> Result<(), String>;
    /// Measures the interfaces of these guests from now on, and no others.
    fn follow(&mut self, guests: &[&Guest]);
    /// Enters the slow requests and frames of a guest since `from`, and how many requests were
    /// answered.
    fn enter(&self, guest: &Arc<str>, from: Nanos, evidence: &mut Evidence);
}

/// No measurement.
#[derive(Debug)]
pub(crate) struct NoPackets;

impl Packets for NoPackets {
    fn examined(&self) -> Result<(), String> {
        Err("this version measures no packets".to_owned())
    }

    fn follow(&mut self, _: &[&Guest]) {}

    fn enter(&self, _: &Arc<str>, _: Nanos, _: &mut Evidence) {}
}
