//! Quotas of owners.

use super::{Ledger, LedgerError};
use std::fmt::Display;
use tailbound_placement::Request;
use tailbound_units::Rate;

/// Largest number of open reservations of an owner, also without a quota.
pub const MAX_OPEN: u64 = 10_000;

/// Limits on the sum of an owner's tenants, for the owner's own tokens. None means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// Largest number of tenants.
    pub tenants: Option<u64>,
    /// Largest number of machines of all its tenants.
    pub vms: Option<u64>,
    /// Largest sum of the guaranteed bandwidths of all its machines.
    pub bandwidth: Option<Rate>,
    /// Largest number of open reservations.
    pub reservations: Option<u64>,
}

/// Sum of an owner's tenants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of tenants.
    pub tenants: u64,
    /// Number of machines of all its tenants.
    pub vms: u64,
    /// Sum of the guaranteed bandwidths of all its machines, in bit/s.
    pub bandwidth: u128,
    /// Number of open reservations, whose machines count, too.
    pub reservations: u64,
}

impl Usage {
    /// Returns the usage of one tenant with this request.
    pub(super) fn of(request: &Request) -> Self {
        let vms = u64::from(request.vms);
        let each = request.guarantee.as_ref();
        let each = each.map_or(0, |guarantee| u128::from(guarantee.bandwidth.0));
        Self {
            tenants: 1,
            vms,
            bandwidth: each * u128::from(vms),
            reservations: 0,
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            tenants: self.tenants + other.tenants,
            vms: self.vms + other.vms,
            bandwidth: self.bandwidth + other.bandwidth,
            reservations: self.reservations + other.reservations,
        }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self {
            tenants: self.tenants - other.tenants,
            vms: self.vms - other.vms,
            bandwidth: self.bandwidth - other.bandwidth,
            reservations: self.reservations - other.reservations,
        }
    }
}

impl Quota {
    /// Returns the name of a limit that a usage has reached.
    pub(super) fn reached_by(&self, used: Usage) -> Option<&'static str> {
        let bandwidth = self.bandwidth.map(|most| u128::from(most.0));
        let reached = |most: Option<u64>, used| most.is_some_and(|most| used >= most);
        [
            ("tenants", reached(self.tenants, used.tenants)),
            ("machines", reached(self.vms, used.vms)),
            (
                "bandwidth",
                bandwidth.is_some_and(|most| used.bandwidth >= most),
            ),
            (
                "reservations",
                reached(self.reservations, used.reservations),
            ),
        ]
        .into_iter()
        .find_map(|(name, is_reached)| is_reached.then_some(name))
    }

    /// Checks that the usage of an owner may become `after`. Only growth is checked, so that an
    /// owner above a lowered quota can shrink.
    ///
    /// # Errors
    /// [`LedgerError::Quota`] with what would be too much.
    pub(super) fn check(
        &self,
        owner: &str,
        before: Usage,
        after: Usage,
    ) -> Result<(), LedgerError> {
        let over = |most: Option<u64>, before: u64, after: u64| {
            most.filter(|most| after > before && after > *most)
        };
        let refused = |after: &dyn Display, most: &dyn Display, before: &dyn Display| {
            Err(LedgerError::Quota {
                owner: owner.to_owned(),
                after: after.to_string(),
                most: most.to_string(),
                before: before.to_string(),
            })
        };
        if let Some(most) = over(self.tenants, before.tenants, after.tenants) {
            return refused(
                &format_args!("{} tenants", after.tenants),
                &most,
                &before.tenants,
            );
        }
        if let Some(most) = over(self.vms, before.vms, after.vms) {
            return refused(&format_args!("{} machines", after.vms), &most, &before.vms);
        }
        let most = self
            .reservations
            .map_or(MAX_OPEN, |most| most.min(MAX_OPEN));
        if let Some(most) = over(Some(most), before.reservations, after.reservations) {
            return refused(
                &format_args!("{} open reservations", after.reservations),
                &most,
                &before.reservations,
            );
        }
        let rate = |sum: u128| Rate(u64::try_from(sum).unwrap_or(u64::MAX));
        let (has, wants) = (rate(before.bandwidth), rate(after.bandwidth));
        match over(self.bandwidth.map(|most| most.0), has.0, wants.0) {
            Some(most) => refused(
                &format_args!("a bandwidth of {wants} in all"),
                &Rate(most),
                &has,
            ),
            None => Ok(()),
        }
    }
}

/// Returns what an owner has.
pub(crate) fn usage_of(ledger: &Ledger, owner: &str) -> Usage {
    ledger.owners.usage(owner)
}
