//! State of the TCP connections that are acknowledged early, for a takeover: bytes that were
//! acknowledged to a peer are never lost.

use std::collections::HashMap;
use tailbound_switch::Switch;
use tailbound_units::Nanos;

/// State of guests' connections, with their acknowledged data.
#[derive(Debug, Default)]
pub(super) struct Connections {
    /// The guests' slots, which identify guests as each other's peers.
    pub(super) slots: Vec<(usize, String)>,
    /// The state of each guest's connections, in the snoop's own format.
    pub(super) guests: Vec<(String, Vec<u8>)>,
}

impl Connections {
    /// Returns the state of all guests' connections; `None` if it exceeds `most` bytes.
    pub(super) fn of(switch: &Switch, now: Nanos, most: usize) -> Option<Self> {
        let slots = switch.guests();
        let slots = slots.map(|(id, name)| (id.slot(), name.to_owned()));
        let mut all = Self {
            slots: slots.collect(),
            guests: Vec::new(),
        };
        let mut len = 0;
        for (id, name) in switch.guests() {
            let guest = switch.guest(id);
            if let Some(bytes) = guest.and_then(|guest| guest.export_snoop(now)) {
                len += bytes.len();
                all.guests.push((name.to_owned(), bytes));
            }
            if len > most {
                return None;
            }
        }
        Some(all)
    }

    /// Restores the state of the guests that exist.
    pub(super) fn resume(self, now: Nanos, switch: &mut Switch) {
        let here = switch.guests().map(|(id, name)| (name.to_owned(), id));
        let here: HashMap<_, _> = here.collect();
        let slots: HashMap<_, _> = self.slots.into_iter().collect();
        let of_slot = |slot: usize| here.get(slots.get(&slot)?).copied();
        for (name, bytes) in &self.guests {
            let guest = here.get(name).and_then(|id| switch.guest_mut(*id));
            let Some(mut guest) = guest else {
                continue;
            };
            match guest.import_snoop(now, bytes, of_slot) {
                Ok(count) => tracing::debug!(guest = name, count, "goes on with its connections"),
                Err(error) => tracing::warn!(guest = name, %error, "connections are not known"),
            }
        }
    }
}
