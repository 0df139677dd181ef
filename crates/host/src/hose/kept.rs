//! Limits of another process, which stay in force until they are confirmed: another process's
//! agreement is better than no limit.

use super::destination;
use std::collections::HashSet;
use tailbound_dataplane::pacer::PacerError;
use tailbound_dataplane::{FlowKey, Pacer, Packet};
use tailbound_hose::{Destination, Station};
use tailbound_units::Nanos;

/// The longest time for keeping unconfirmed limits of another process: live peers send their state
/// within some milliseconds.
const KEPT: Nanos = Nanos::from_secs(1);

/// Limits that were in force before this process, until others replace them or their time is over.
#[derive(Debug)]
pub(super) struct KeptLimits {
    flows: HashSet<FlowKey>,
    until: Nanos,
    /// Stations that were limited as such, and are no longer.
    withdrawn: Vec<Station>,
}

impl Default for KeptLimits {
    fn default() -> Self {
        Self {
            flows: HashSet::new(),
            until: Nanos::MAX,
            withdrawn: Vec::new(),
        }
    }
}

impl KeptLimits {
    /// Keeps the limits of some flows, for a second at most.
    pub(super) fn keep(&mut self, now: Nanos, limited: Vec<FlowKey>) {
        if !limited.is_empty() {
            self.flows.extend(limited);
            self.until = now + KEPT;
        }
    }

    /// Returns the stations that are limited as such by a kept limit.
    pub(super) fn stations(&self) -> impl Iterator<Item = Station> + '_ {
        let flows = self.flows.iter();
        flows.filter_map(|flow| match destination(flow.destination) {
            Destination::Station(station) => Some(station),
            Destination::Address(_) => None,
        })
    }

    /// Returns true if no limit is kept.
    pub(super) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Notes that another limit replaces a kept one.
    pub(super) fn replace(&mut self, flow: &FlowKey) {
        self.flows.remove(flow);
    }

    /// Removes the limits that nothing has confirmed, if their time is over. The stations in
    /// `announced` stay limited.
    pub(super) fn end(
        &mut self,
        now: Nanos,
        announced: impl Iterator<Item = Station>,
        pacer: &mut Pacer<Packet>,
    ) {
        if now < self.until {
            return;
        }
        self.until = Nanos::MAX;
        let announced: HashSet<_> = announced.collect();
        let over = self.stations();
        let over: Vec<_> = over
            .filter(|station| !announced.contains(station))
            .collect();
        self.withdrawn.extend(over);
        for flow in self.flows.drain() {
            let ended: Result<_, PacerError> =
                pacer.set_destination(now, flow.source, flow.destination, None);
            if let Err(error) = ended {
                tracing::debug!(%error, "a guest of a limit that was kept is gone");
            }
        }
    }

    /// Returns, once, the stations that are no longer limited as such.
    pub(super) fn take_withdrawn(&mut self) -> std::vec::Drain<'_, Station> {
        self.withdrawn.drain(..)
    }

    /// Returns the time at which the limits end, if there are any.
    pub(super) fn poll_at(&self) -> Option<Nanos> {
        (!self.is_empty()).then_some(self.until)
    }
}
