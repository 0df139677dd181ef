//! The index from owners to their tenants, by name and by number.

use super::quota::Usage;
use std::collections::{BTreeSet, HashMap};
use tailbound_api::Tenant;
use tailbound_placement::TenantId;

/// The tenants of each owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Owners {
    owners: HashMap<String, Owned>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Owned {
    names: HashMap<String, TenantId>,
    ids: BTreeSet<TenantId>,
    usage: Usage,
}

impl Owners {
    /// Returns the tenant of this owner and name.
    pub(super) fn find(&self, owner: &str, name: &str) -> Option<TenantId> {
        self.owners.get(owner)?.names.get(name).copied()
    }

    /// Returns what an owner has.
    pub(super) fn usage(&self, owner: &str) -> Usage {
        self.owners
            .get(owner)
            .map(|owned| owned.usage)
            .unwrap_or_default()
    }

    /// Returns an owner's tenants with numbers above `after`, in ascending order.
    pub(super) fn after(&self, owner: &str, after: TenantId) -> impl Iterator<Item = TenantId> {
        let from = TenantId(after.0.saturating_add(1));
        let found = self.owners.get(owner).into_iter();
        found.flat_map(move |owned| owned.ids.range(from..).copied())
    }

    pub(super) fn add(&mut self, tenant: &Tenant) {
        let owned = self.owners.entry(tenant.owner.clone()).or_default();
        owned.names.insert(tenant.name.clone(), tenant.id);
        owned.ids.insert(tenant.id);
        owned.usage = owned.usage.plus(Usage::of(&tenant.request));
    }

    pub(super) fn remove(&mut self, tenant: &Tenant) {
        if let Some(owned) = self.owners.get_mut(&tenant.owner) {
            owned.names.remove(&tenant.name);
            owned.ids.remove(&tenant.id);
            owned.usage = owned.usage.minus(Usage::of(&tenant.request));
            if owned.ids.is_empty() {
                self.owners.remove(&tenant.owner);
            }
        }
    }
}
