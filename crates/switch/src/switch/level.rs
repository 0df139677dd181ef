//! Levels of guests' buckets, for a process that continues in this switch's place.

use super::Switch;
use crate::budget::Budget;
use tailbound_dataplane::GuestId;
use tailbound_dataplane::pacer::{DestinationLevel, GuestLevel, PacerError};
use tailbound_units::{Bytes, Nanos, WireBytes};

/// Bytes that a guest has spent of its budgets ([`crate::BudgetConfig`]) at a point in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Spent on frames to groups.
    pub groups: Bytes,
    /// Spent on frames to unknown addresses.
    pub unknown: Bytes,
}

impl Switch {
    /// Returns the spent part of a guest's budgets; `None` if there is no such guest.
    pub fn spent(&self, now: Nanos, guest: GuestId) -> Option<Spent> {
        let guest = self.parts.table.guest_of(guest)?;
        let spent = |budget: &Option<Budget>| {
            let budget = budget.as_ref();
            budget.map_or(Bytes(0), |budget| budget.spent(now))
        };
        Some(Spent {
            groups: spent(&guest.checks.groups),
            unknown: spent(&guest.checks.unknown),
        })
    }

    /// Adds bytes that a guest has spent of its budgets elsewhere.
    pub fn note_spent(&mut self, now: Nanos, guest: GuestId, spent: Spent) {
        let Some(guest) = self.parts.table.guest_of_mut(guest) else {
            return;
        };
        let budgets = [
            (&mut guest.checks.groups, spent.groups),
            (&mut guest.checks.unknown, spent.unknown),
        ];
        for (budget, spent) in budgets {
            if let Some(budget) = budget {
                budget.note_spent(now, spent);
            }
        }
    }

    /// Returns the levels of a guest's buckets; `None` without a guarantee.
    pub fn level(&mut self, now: Nanos, guest: GuestId) -> Option<GuestLevel> {
        self.parts.transmitter.pacer_mut()?.level(now, guest)
    }

    /// Adds `bytes` to {B, S} of a guest, up to its depth.
    pub fn fill_bucket(&mut self, now: Nanos, guest: GuestId, bytes: WireBytes) {
        if let Some(pacer) = self.parts.transmitter.pacer_mut() {
            pacer.fill_bucket(now, guest, bytes);
        }
    }

    /// Limits a guest's rate to a destination, with this level in its bucket.
    ///
    /// # Errors
    /// The rule of the pacer that the limit breaks; then nothing has changed.
    pub fn set_destination_level(
        &mut self,
        now: Nanos,
        guest: GuestId,
        level: DestinationLevel,
    ) -> Result<(), PacerError> {
        match self.parts.transmitter.pacer_mut() {
            Some(pacer) => pacer.set_destination_level(now, guest, level),
            None => Ok(()),
        }
    }
}
