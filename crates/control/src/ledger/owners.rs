//! The index from owners to their tenants, by name and by number.

use super::quota::Usage;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tailbound_api::{ReservationId, Tenant};
use tailbound_placement::TenantId;

/// The tenants of each owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Owners {
    owned: HashMap<String, OwnerRecord>,
    /// The tenants of all reservations with machines.
    reservations: HashMap<ReservationId, TenantId>,
    /// The tenants of the open reservations.
    open: BTreeMap<ReservationId, TenantId>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct OwnerRecord {
    names: HashMap<String, TenantId>,
    ids: BTreeSet<TenantId>,
    usage: Usage,
    /// The places of the named machines, each list in ascending order.
    machines: HashMap<String, Vec<Place>>,
}

/// A place of a named machine: a machine of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) tenant: TenantId,
    pub(super) number: u32,
    /// False if the place is only reserved.
    pub(super) is_confirmed: bool,
}

impl Owners {
    /// Returns the tenant of this owner and name.
    pub(super) fn find(&self, owner: &str, name: &str) -> Option<TenantId> {
        self.owned.get(owner)?.names.get(name).copied()
    }

    /// Returns the owners of tenants.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.owned.keys().map(String::as_str)
    }

    /// Returns what an owner has.
    pub(super) fn usage(&self, owner: &str) -> Usage {
        self.owned
            .get(owner)
            .map(|owned| owned.usage)
            .unwrap_or_default()
    }

    /// Returns an owner's tenants with numbers above `after`, in ascending order.
    pub(super) fn after(&self, owner: &str, after: TenantId) -> impl Iterator<Item = TenantId> {
        let from = TenantId(after.0.saturating_add(1));
        let found = self.owned.get(owner).into_iter();
        found.flat_map(move |owned| owned.ids.range(from..).copied())
    }

    /// Returns the places of a named machine: none if the owner has no such machine, and two while
    /// a confirmed one has a reservation elsewhere.
    pub(super) fn places(&self, owner: &str, name: &str) -> &[Place] {
        let of_owner = self.owned.get(owner);
        let places = of_owner.and_then(|owned| owned.machines.get(name));
        places.map_or(&[], Vec::as_slice)
    }

    /// Returns the tenant of a reservation.
    pub(super) fn reservation(&self, id: ReservationId) -> Option<TenantId> {
        self.reservations.get(&id).copied()
    }

    /// Returns the open reservations above `after` and their tenants, in ascending order.
    pub(super) fn open_after(
        &self,
        after: ReservationId,
    ) -> impl Iterator<Item = (ReservationId, TenantId)> {
        let from = ReservationId(after.0.saturating_add(1));
        self.open.range(from..).map(|(id, tenant)| (*id, *tenant))
    }

    /// Returns the number of open reservations.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    pub(super) fn add(&mut self, tenant: &Tenant) {
        for record in &tenant.reservations {
            self.reservations.insert(record.id, tenant.id);
            if !record.is_confirmed {
                self.open.insert(record.id, tenant.id);
            }
        }
        let owned = self.owned.entry(tenant.owner.clone()).or_default();
        owned.names.insert(tenant.name.clone(), tenant.id);
        owned.ids.insert(tenant.id);
        owned.usage = owned.usage.plus(usage(tenant));
        for (name, place) in named(tenant) {
            let places = owned.machines.entry(name.to_owned()).or_default();
            places.push(place);
            places.sort_unstable();
        }
    }

    pub(super) fn remove(&mut self, tenant: &Tenant) {
        for record in &tenant.reservations {
            self.reservations.remove(&record.id);
            self.open.remove(&record.id);
        }
        if let Some(owned) = self.owned.get_mut(&tenant.owner) {
            owned.names.remove(&tenant.name);
            owned.ids.remove(&tenant.id);
            owned.usage = owned.usage.minus(usage(tenant));
            for (name, place) in named(tenant) {
                if let Some(places) = owned.machines.get_mut(name) {
                    places.retain(|it| *it != place);
                    if places.is_empty() {
                        owned.machines.remove(name);
                    }
                }
            }
            if owned.ids.is_empty() {
                self.owned.remove(&tenant.owner);
            }
        }
    }
}

/// Returns the named machines of a tenant.
pub(super) fn named(tenant: &Tenant) -> impl Iterator<Item = (&str, Place)> {
    let records = tenant.reservations.iter();
    let machines = records.flat_map(|it| it.machines.iter().map(|one| (one, it.is_confirmed)));
    machines.filter_map(|(machine, is_confirmed)| {
        let place = Place {
            tenant: tenant.id,
            number: machine.number,
            is_confirmed,
        };
        Some((machine.name.as_deref()?, place))
    })
}

/// Returns the usage of a tenant with its open reservations.
pub(super) fn usage(tenant: &Tenant) -> Usage {
    let open = tenant.reservations.iter().filter(|it| !it.is_confirmed);
    Usage {
        reservations: open.count() as u64,
        ..Usage::of(&tenant.request)
    }
}
