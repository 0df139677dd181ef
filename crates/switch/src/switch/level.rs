//! Levels of guests' buckets, for a process that continues in this switch's place.

use super::{GuestMut, GuestRef};
use crate::budget::Budget;
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

impl GuestRef<'_> {
    /// Returns the spent part of the guest's budgets.
    pub fn spent(self, now: Nanos) -> Spent {
        let checks = &self.state().checks;
        let spent = |budget: &Option<Budget>| {
            let budget = budget.as_ref();
            budget.map_or(Bytes(0), |budget| budget.spent(now))
        };
        Spent {
            groups: spent(&checks.groups),
            unknown: spent(&checks.unknown),
        }
    }
}

impl GuestMut<'_> {
    /// Adds bytes that the guest has spent of its budgets elsewhere.
    pub fn note_spent(&mut self, now: Nanos, spent: Spent) {
        let checks = &mut self.state().checks;
        let budgets = [
            (&mut checks.groups, spent.groups),
            (&mut checks.unknown, spent.unknown),
        ];
        for (budget, spent) in budgets {
            if let Some(budget) = budget {
                budget.note_spent(now, spent);
            }
        }
    }

    /// Returns the levels of the guest's buckets; `None` without a guarantee.
    pub fn level(&mut self, now: Nanos) -> Option<GuestLevel> {
        let guest = self.id();
        self.parts.transmitter.pacer_mut()?.level(now, guest)
    }

    /// Adds `bytes` to {B, S} of the guest, up to its depth.
    pub fn fill_bucket(&mut self, now: Nanos, bytes: WireBytes) {
        let guest = self.id();
        if let Some(pacer) = self.parts.transmitter.pacer_mut() {
            pacer.fill_bucket(now, guest, bytes);
        }
    }

    /// Limits the guest's rate to a destination, with this level in its bucket.
    ///
    /// # Errors
    /// The rule of the pacer that the limit breaks; then nothing has changed.
    pub fn set_destination_level(
        &mut self,
        now: Nanos,
        level: DestinationLevel,
    ) -> Result<(), PacerError> {
        let guest = self.id();
        match self.parts.transmitter.pacer_mut() {
            Some(pacer) => pacer.set_destination_level(now, guest, level),
            None => Ok(()),
        }
    }
}
