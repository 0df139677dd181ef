//! The marks of reservations in a tenant.

use super::LedgerError;
use std::collections::HashSet;
use tailbound_api::{ReservationRecord, Tenant};

/// Returns the numbers of a tenant's machines and their hosts.
pub(super) fn machines(tenant: &Tenant) -> impl Iterator<Item = (u32, &str)> {
    let runs = tenant.runs.iter();
    runs.flat_map(|run| (run.first..run.first + run.count).map(|number| (number, &*run.host)))
}

/// Returns the numbers of the machines that are only reserved.
pub(super) fn open_machines(tenant: &Tenant) -> HashSet<u32> {
    let open = tenant.reservations.iter().filter(|it| !it.is_confirmed);
    let machines = open.flat_map(|record| &record.machines);
    machines.map(|machine| machine.number).collect()
}

fn open_at(tenant: &Tenant, number: u32) -> Option<&ReservationRecord> {
    let mut open = tenant.reservations.iter().filter(|it| !it.is_confirmed);
    open.find(|record| record.machines.iter().any(|it| it.number == number))
}

/// Checks that no reservation of a tenant is open, before machines go that the caller does not
/// choose.
pub(super) fn check_none_open(tenant: &Tenant) -> Result<(), LedgerError> {
    let mut records = tenant.reservations.iter();
    match records.find(|record| !record.is_confirmed) {
        None => Ok(()),
        Some(record) => Err(reserved_error(tenant, record)),
    }
}

/// Checks that a machine is not only reserved.
pub(super) fn check_not_open(tenant: &Tenant, number: u32) -> Result<(), LedgerError> {
    match open_at(tenant, number) {
        None => Ok(()),
        Some(record) => Err(reserved_error(tenant, record)),
    }
}

fn reserved_error(tenant: &Tenant, record: &ReservationRecord) -> LedgerError {
    LedgerError::Reserved {
        tenant: format!("{}/{}", tenant.owner, tenant.name),
        reservation: record.id,
    }
}

/// Removes machines that the tenant has no more from its reservations, and reservations without
/// machines.
pub(super) fn prune(tenant: &mut Tenant) {
    if tenant.reservations.is_empty() {
        return;
    }
    let has: HashSet<u32> = machines(tenant).map(|(number, _)| number).collect();
    for record in &mut tenant.reservations {
        record
            .machines
            .retain(|machine| has.contains(&machine.number));
    }
    tenant
        .reservations
        .retain(|record| !record.machines.is_empty());
}
