//! Announced stations of VMs.

use crate::ids::Station;
use std::collections::HashMap;

/// An added or removed station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StationChange {
    /// The station.
    pub station: Station,
    /// True if a VM is announced with it.
    pub announced: bool,
}

/// The stations of all machines, here and elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Stations {
    /// Number of machines behind each station: while a machine moves, both its hosts announce it.
    machines: HashMap<Station, u32>,
    changes: Vec<StationChange>,
}

impl Stations {
    /// The stations that are announced, in no order.
    pub(crate) fn announced(&self) -> impl Iterator<Item = Station> + '_ {
        self.machines.keys().copied()
    }

    /// A machine is announced.
    pub(crate) fn add(&mut self, station: Option<Station>) {
        let Some(station) = station else { return };
        let machines = self.machines.entry(station).or_default();
        *machines += 1;
        if *machines == 1 {
            let announced = true;
            self.changes.push(StationChange { station, announced });
        }
    }

    /// A machine is no longer announced.
    pub(crate) fn remove(&mut self, station: Option<Station>) {
        let Some(station) = station else { return };
        let Some(machines) = self.machines.get_mut(&station) else {
            return;
        };
        *machines -= 1;
        if *machines == 0 {
            self.machines.remove(&station);
            let announced = false;
            self.changes.push(StationChange { station, announced });
        }
    }

    /// A machine is reached by another one now. One that stays does not change.
    pub(crate) fn replace(&mut self, before: Option<Station>, now: Option<Station>) {
        self.add(now);
        self.remove(before);
    }

    /// Withdraws at most `count` stations, even if machines are behind them. Returns whether there
    /// were any.
    pub(crate) fn end_some(&mut self, count: usize) -> bool {
        let some: Vec<_> = self.machines.keys().copied().take(count).collect();
        for station in &some {
            self.machines.remove(station);
            self.changes.push(StationChange {
                station: *station,
                announced: false,
            });
        }
        !some.is_empty()
    }

    /// Returns the changes since the last call.
    pub(crate) fn poll_changes(&mut self) -> impl Iterator<Item = StationChange> + '_ {
        self.changes.drain(..)
    }
}
