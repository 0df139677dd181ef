//! What guests may still send at once, for whoever goes on in this switch's place.

use super::Switch;
use crate::budget::Budget;
use tailbound_dataplane::GuestId;
use tailbound_dataplane::pacer::{DestinationLevel, GuestLevel, PacerError};
use tailbound_units::{Bytes, Nanos, WireBytes};

/// What a guest has spent of its budgets ([`crate::BudgetConfig`]) and has not got back at
/// a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// For frames to groups.
    pub groups: Bytes,
    /// For frames to addresses that nobody is known to have.
    pub unknown: Bytes,
}

impl Switch {
    /// What a guest has spent of its budgets; `None` where there is no such guest.
    pub fn spent(&self, now: Nanos, guest: GuestId) -> Option<Spent> {
        let port = self.slots.port_of(guest)?;
        let guest = self.guests.get(port.0.checked_sub(self.first_guest())?)?;
        let spent = |budget: &Option<Budget>| {
            let budget = budget.as_ref();
            budget.map_or(Bytes(0), |budget| budget.spent(now))
        };
        Some(Spent {
            groups: spent(&guest.groups),
            unknown: spent(&guest.unknown),
        })
    }

    /// Notes what a guest has spent of its budgets until now, besides what it did here.
    pub fn note_spent(&mut self, now: Nanos, guest: GuestId, spent: Spent) {
        let port = self.slots.port_of(guest);
        let Some(guest) = port.and_then(|port| self.guest_at(port)) else {
            return;
        };
        let budgets = [
            (&mut guest.groups, spent.groups),
            (&mut guest.unknown, spent.unknown),
        ];
        for (budget, spent) in budgets {
            if let Some(budget) = budget {
                budget.note_spent(now, spent);
            }
        }
    }

    /// What a guest's buckets hold now; `None` where it has no guarantee.
    pub fn level(&mut self, now: Nanos, guest: GuestId) -> Option<GuestLevel> {
        self.pacer()?.level(now, guest)
    }

    /// Puts so many bytes into {B, S} of a guest, as far as it holds them.
    pub fn fill_bucket(&mut self, now: Nanos, guest: GuestId, bytes: WireBytes) {
        if let Some(pacer) = self.pacer() {
            pacer.fill_bucket(now, guest, bytes);
        }
    }

    /// Limits what a guest sends to a destination, with so much in its bucket.
    ///
    /// # Errors
    /// The rule of the pacer that the limit breaks; then nothing has changed.
    pub fn set_destination_level(
        &mut self,
        now: Nanos,
        guest: GuestId,
        level: DestinationLevel,
    ) -> Result<(), PacerError> {
        match self.pacer() {
            Some(pacer) => pacer.set_destination_level(now, guest, level),
            None => Ok(()),
        }
    }
}
