//! Learned addresses, for a process that continues in this switch's place.

use super::Switch;
use crate::mac::Mac;
use std::collections::HashMap;
use tailbound_units::Nanos;

impl Switch {
    /// Returns the learned addresses, with the names of their ports.
    pub fn stations(&self) -> impl Iterator<Item = (Mac, &str)> {
        let learned = self.parts.forwarding.learned();
        learned.map(|(mac, port)| (mac, self.parts.table[port].name.as_str()))
    }

    /// Learns addresses as if they had just sent. Addresses at unknown ports, and guests' own, are
    /// skipped.
    pub fn learn<'n>(&mut self, now: Nanos, stations: impl IntoIterator<Item = (Mac, &'n str)>) {
        let names = self.parts.table.states();
        let ports: HashMap<_, _> = names
            .map(|(port, state)| (state.name.as_str(), port))
            .collect();
        for (mac, name) in stations {
            if let Some(port) = ports.get(name) {
                self.parts.forwarding.learn(now, *port, mac);
            }
        }
    }
}
