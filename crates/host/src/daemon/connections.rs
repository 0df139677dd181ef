//! What is known of TCP connections that are acknowledged in guests' places, across a takeover:
//! no peer was told of bytes that nobody has any more.

use std::collections::HashMap;
use tailbound_switch::Switch;
use tailbound_units::Nanos;

/// What is known of guests' connections, and kept for them.
#[derive(Debug, Default)]
pub(super) struct Connections {
    /// The guests' slots, by which each is known as another one's peer.
    pub(super) slots: Vec<(usize, String)>,
    /// Of each guest, what it alone understands.
    pub(super) guests: Vec<(String, Vec<u8>)>,
}

impl Connections {
    /// Those of all guests; `None` where that is more than `most` bytes.
    pub(super) fn of(switch: &Switch, now: Nanos, most: usize) -> Option<Self> {
        let slots = switch.guests();
        let slots = slots.map(|(id, name)| (id.slot(), name.to_owned()));
        let mut all = Self {
            slots: slots.collect(),
            guests: Vec::new(),
        };
        let mut len = 0;
        for (id, name) in switch.guests() {
            if let Some(bytes) = switch.export_snoop(now, id) {
                len += bytes.len();
                all.guests.push((name.to_owned(), bytes));
            }
            if len > most {
                return None;
            }
        }
        Some(all)
    }

    /// Goes on with those of the guests that there are.
    pub(super) fn resume(self, now: Nanos, switch: &mut Switch) {
        let here = switch.guests().map(|(id, name)| (name.to_owned(), id));
        let here: HashMap<_, _> = here.collect();
        let slots: HashMap<_, _> = self.slots.into_iter().collect();
        let of_slot = |slot: usize| here.get(slots.get(&slot)?).copied();
        for (name, bytes) in &self.guests {
            let Some(id) = here.get(name) else {
                continue;
            };
            match switch.import_snoop(now, *id, bytes, of_slot) {
                Ok(count) => tracing::debug!(guest = name, count, "goes on with its connections"),
                Err(error) => tracing::warn!(guest = name, %error, "connections are not known"),
            }
        }
    }
}
