//! Machines that their callers named: a scheduler reserves a place under the name, and the host on
//! which the machine starts sets its place by the name alone.
//!
//! An owner's machine has at most one confirmed place, and beside it at most one that is only
//! reserved: during a live migration, or until the host of a new tenant starts it.

use super::checks::check_names;
use super::command::{Caller, NamedMachine, PutMachine, Reply};
use super::draft::{Draft, whole};
use super::intake::{Intake, check_machine_name, take_in};
use super::owners::{Place, named};
use super::quota::Quota;
use super::reservations::marked;
use super::{Ledger, LedgerError, pinned, runs};
use std::str::FromStr;
use std::sync::Arc;
use tailbound_api::{
    Machine, MachinePut, MachineRequest, MachineState, NewReservation, Page, PinnedHost,
    ReservationId, ReservationRecord, ReservationState, Tenant,
};
use tailbound_placement::TenantId;
use tailbound_units::Nanos;

/// Sets the tenant and the host of a named machine, and releases its other places.
///
/// # Errors
/// The machine does not fit there, or a host puts one that is unknown. Nothing was changed then.
pub(super) fn put(
    ledger: &mut Ledger,
    quota: &Quota,
    command: &PutMachine,
    draft: &mut Draft,
) -> Result<Reply, LedgerError> {
    let PutMachine {
        machine,
        put,
        caller,
    } = command;
    let NamedMachine { owner, name } = machine;
    check_machine_name(name)?;
    if ledger.host_node(&put.host).is_none() {
        return Err(pinned::unknown_host(&put.host).into());
    }
    let destination = Destination {
        tenant: &tenant_of(ledger, machine, put)?,
        host: &put.host,
        request: put.request,
    };
    check_names(owner, destination.tenant)?;
    whole(ledger, draft, |ledger, draft| {
        arrive(ledger, machine, &destination, draft)?;
        match here(ledger, machine, &destination) {
            Some(place) => confirm(ledger, machine, place, draft),
            None => admit(ledger, quota, machine, &destination, *caller, draft)?,
        }
        let machine = get(ledger, owner, name).expect("it was just put");
        Ok(Reply::Machine(Arc::new(machine)))
    })
}

/// The place that a machine shall have.
struct Destination<'a> {
    tenant: &'a str,
    host: &'a str,
    request: Option<MachineRequest>,
}

/// Returns the name of the tenant that a machine shall be in: the caller's, otherwise that of the
/// machine's place.
fn tenant_of(
    ledger: &Ledger,
    machine: &NamedMachine,
    put: &MachinePut,
) -> Result<String, LedgerError> {
    if let Some(tenant) = &put.tenant {
        return Ok(tenant.clone());
    }
    let NamedMachine { owner, name } = machine;
    let here = on_host(ledger, machine, &put.host);
    let place = here.first().copied().or_else(|| {
        let places = ledger.owners.places(owner, name).iter();
        places.min_by_key(|place| place.is_confirmed).copied()
    });
    let place = place.ok_or_else(|| {
        LedgerError::NotFound(format!(
            "machine {name:?} of {owner}; a new one needs a tenant"
        ))
    })?;
    let tenant = ledger.tenant(place.tenant);
    Ok(tenant
        .expect("the index has the tenant of the place")
        .name
        .clone())
}

/// Ends a move of the machine to the host.
fn arrive(
    ledger: &mut Ledger,
    machine: &NamedMachine,
    destination: &Destination<'_>,
    draft: &mut Draft,
) -> Result<(), LedgerError> {
    let places = ledger.owners.places(&machine.owner, &machine.name);
    let own = ledger.owners.find(&machine.owner, destination.tenant);
    let mut own = places.iter().filter(|place| Some(place.tenant) == own);
    let arrived = own.find(|place| {
        let tenant = ledger.tenant(place.tenant);
        let moving = tenant.and_then(|tenant| tenant.moving.as_ref());
        moving.is_some_and(|moving| moving.vm == place.number && moving.to == destination.host)
    });
    match arrived.map(|place| place.tenant) {
        Some(tenant) => ledger.arrive(tenant, draft),
        None => Ok(()),
    }
}

/// Returns the place of the machine in this tenant on this host, the confirmed one if there are
/// two.
fn here(ledger: &Ledger, machine: &NamedMachine, destination: &Destination<'_>) -> Option<Place> {
    let own = ledger.owners.find(&machine.owner, destination.tenant)?;
    let places = on_host(ledger, machine, destination.host);
    places.into_iter().rfind(|place| place.tenant == own)
}

/// Returns the places of a machine on a host, the confirmed one last.
fn on_host(ledger: &Ledger, machine: &NamedMachine, host: &str) -> Vec<Place> {
    let places = ledger.owners.places(&machine.owner, &machine.name).iter();
    let is_here = |place: &&Place| {
        let tenant = ledger.tenant(place.tenant);
        tenant.is_some_and(|it| runs::host_of(&it.runs, place.number) == Some(host))
    };
    let mut here: Vec<Place> = places.filter(is_here).copied().collect();
    here.sort_by_key(|place| place.is_confirmed);
    here
}

/// Makes a reserved place part of its tenant, and releases the others. A place that is confirmed
/// already leaves a reserved one as it is, since that belongs to a move that has not begun.
fn confirm(ledger: &mut Ledger, machine: &NamedMachine, place: Place, draft: &mut Draft) {
    if place.is_confirmed {
        return;
    }
    let places = ledger.owners.places(&machine.owner, &machine.name).iter();
    let others: Vec<Place> = places.filter(|it| **it != place).copied().collect();
    let old = ledger.tenant(place.tenant).cloned();
    let old = old.expect("the index has the tenant of the place");
    let mut tenant = Tenant::clone(&old);
    let is_its = |record: &&mut ReservationRecord| {
        let mut machines = record.machines.iter();
        machines.any(|machine| machine.number == place.number)
    };
    let record = tenant.reservations.iter_mut().find(is_its);
    let record = record.expect("the index has the reservation of the place");
    if record.machines.len() == 1 {
        record.is_confirmed = true;
    } else {
        // The other machines of the reservation stay reserved.
        let at = record.machines.iter();
        let at = at.take_while(|it| it.number != place.number).count();
        let confirmed = ReservationRecord {
            id: ReservationId(ledger.count(draft)),
            ttl: record.ttl,
            is_confirmed: true,
            machines: vec![record.machines.remove(at)],
        };
        tenant.reservations.push(confirmed);
    }
    marked(ledger, &old, tenant, draft);
    pinned::release(ledger, others, draft);
}

/// Makes a place on the host, and releases all others.
fn admit(
    ledger: &mut Ledger,
    quota: &Quota,
    machine: &NamedMachine,
    destination: &Destination<'_>,
    caller: Caller,
    draft: &mut Draft,
) -> Result<(), LedgerError> {
    let NamedMachine { owner, name } = machine;
    let places = ledger.owners.places(owner, name).to_vec();
    let tenant = ledger.owners.find(owner, destination.tenant);
    if caller == Caller::Host {
        let unknown = |what| Err(LedgerError::HostAdmits(what));
        if places.is_empty() {
            return unknown(format!("machine {name:?} of {owner}"));
        }
        if tenant.is_none() {
            return unknown(format!("tenant {owner}/{}", destination.tenant));
        }
    }
    let before = ledger.owners.usage(owner);
    let (own, others): (Vec<Place>, _) = places
        .into_iter()
        .partition(|place| Some(place.tenant) == tenant);
    pinned::release(ledger, others, draft);
    let new = NewReservation {
        tenant: destination.tenant.to_owned(),
        owner: Some(owner.clone()),
        request: destination.request,
        placement: vec![PinnedHost {
            host: destination.host.to_owned(),
            vms: 1,
        }],
        // A confirmed machine has no end.
        ttl: Nanos::ZERO,
        machines: vec![name.clone()],
        replace: true,
    };
    let intake = Intake {
        new: &new,
        state: ReservationState::Confirmed,
        gone: own.into_iter().map(|place| place.number).collect(),
        before,
    };
    take_in(ledger, quota, &intake, draft).map(|_| ())
}

/// Releases the place of a named machine on a host: the confirmed one, otherwise the reserved one.
/// A machine without a place there is released already.
pub(super) fn delete(
    ledger: &mut Ledger,
    machine: &NamedMachine,
    host: &str,
    draft: &mut Draft,
) -> Result<Reply, LedgerError> {
    check_machine_name(&machine.name)?;
    if let Some(place) = on_host(ledger, machine, host).pop() {
        pinned::release(ledger, vec![place], draft);
    }
    Ok(Reply::Deleted)
}

/// Returns the confirmed place of a named machine, otherwise the reserved one.
pub(crate) fn get(ledger: &Ledger, owner: &str, name: &str) -> Option<Machine> {
    let places = ledger.owners.places(owner, name).iter();
    let place = places.max_by_key(|place| place.is_confirmed)?;
    shown(ledger.tenant(place.tenant)?, name, *place)
}

fn shown(tenant: &Tenant, name: &str, place: Place) -> Option<Machine> {
    Some(Machine {
        name: name.to_owned(),
        owner: tenant.owner.clone(),
        tenant: tenant.id,
        tenant_name: tenant.name.clone(),
        vm: format!("{}/{}/{}", tenant.owner, tenant.name, place.number),
        host: runs::host_of(&tenant.runs, place.number)?.to_owned(),
        state: if place.is_confirmed {
            MachineState::Confirmed
        } else {
            MachineState::Reserved
        },
    })
}

/// A position in the list of the places of all named machines: a tenant, and a number of a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Position {
    tenant: u64,
    number: u32,
}

impl FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('-');
        let position = parts.and_then(|(tenant, number)| {
            Some(Self {
                tenant: tenant.parse().ok()?,
                number: number.parse().ok()?,
            })
        });
        position.ok_or_else(|| format!("{text:?} is no `next` of a list of machines"))
    }
}

/// Returns a page of the places of named machines, beginning at a position. A machine with two
/// places is there twice.
pub(crate) fn list(
    ledger: &Ledger,
    owner: Option<&str>,
    from: Position,
    limit: usize,
) -> Page<Machine> {
    let tenants = ledger.tenants.range(TenantId(from.tenant)..);
    let tenants = tenants.filter(|(_, tenant)| owner.is_none_or(|owner| tenant.owner == owner));
    let mut places = tenants.flat_map(|(id, tenant)| {
        let first = if id.0 == from.tenant { from.number } else { 0 };
        let mut named: Vec<_> = named(tenant).collect();
        named.retain(|(_, place)| place.number >= first);
        named.sort_unstable_by_key(|(_, place)| place.number);
        named
            .into_iter()
            .map(move |(name, place)| (tenant, name, place))
    });
    let page = places.by_ref().take(limit);
    let items = page
        .filter_map(|(tenant, name, place)| shown(tenant, name, place))
        .collect();
    let next = places.next();
    let next = next.map(|(tenant, _, place)| format!("{}-{}", tenant.id.0, place.number));
    Page { items, next }
}
