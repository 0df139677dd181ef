//! Reservations of machines with a time to live.
//!
//! A reserved machine is a machine of its tenant in everything: it has a number, it counts in the
//! calculus and under the quota, and its host receives its guarantee. A [`ReservationRecord`] in
//! the tenant marks it. A confirmation changes the mark alone, so it is never refused. A
//! cancellation removes the machines, and the tenant if it has no other.

use super::change::Change;
use super::command::Reply;
use super::draft::{Draft, whole};
use super::intake::{Intake, take_in};
use super::owners::Place;
use super::quota::Quota;
use super::{Ledger, LedgerError, pinned};
use std::collections::BTreeSet;
use std::sync::Arc;
use tailbound_api::{
    MAX_REPLACED, MAX_TTL, MIN_TTL, NewReservation, Page, Reservation, ReservationId,
    ReservationRecord, ReservationState, ReservedVm, Tenant,
};
use tailbound_units::Nanos;

/// An open reservation, as the leader counts its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenReservation {
    /// The reservation.
    pub id: ReservationId,
    /// Its time to live.
    pub ttl: Nanos,
}

/// Reserves machines of a tenant, which is created if it does not exist.
pub(super) fn reserve(
    ledger: &mut Ledger,
    quota: &Quota,
    new: &NewReservation,
    draft: &mut Draft,
) -> Result<Reply, LedgerError> {
    check_ttl(new.ttl)?;
    whole(ledger, draft, |ledger, draft| {
        let owner = new.owner.as_deref().unwrap_or_default();
        let before = ledger.owners.usage(owner);
        let gone = vacate(ledger, new, draft)?;
        let intake = Intake {
            new,
            state: ReservationState::Open,
            gone,
            before,
        };
        let (tenant, id) = take_in(ledger, quota, &intake, draft)?;
        Ok(reserved(&tenant, id))
    })
}

/// Releases the places of a reservation's machines that are only reserved. Returns those of its own
/// tenant, which are still to be released.
fn vacate(
    ledger: &mut Ledger,
    new: &NewReservation,
    draft: &mut Draft,
) -> Result<BTreeSet<u32>, LedgerError> {
    let owner = new.owner.as_deref().unwrap_or_default();
    if new.replace && new.machines.len() > MAX_REPLACED {
        return Err(LedgerError::Absurd(format!(
            "a reservation that replaces others has at most {MAX_REPLACED} named machines, not {}",
            new.machines.len()
        )));
    }
    let mut places = Vec::new();
    for name in &new.machines {
        for place in ledger.owners.places(owner, name) {
            if !new.replace {
                return Err(exists(ledger, *place, name));
            }
            places.extend((!place.is_confirmed).then_some(*place));
        }
    }
    let own = ledger.owners.find(owner, &new.tenant);
    let (own, others) = places
        .into_iter()
        .partition(|place| Some(place.tenant) == own);
    pinned::release(ledger, others, draft);
    Ok(own.into_iter().map(|place| place.number).collect())
}

fn exists(ledger: &Ledger, place: Place, name: &str) -> LedgerError {
    let tenant = ledger.tenant(place.tenant);
    LedgerError::MachineExists {
        tenant: tenant.map_or_else(String::new, |it| format!("{}/{}", it.owner, it.name)),
        name: name.to_owned(),
        number: place.number,
    }
}

fn reserved(tenant: &Tenant, id: ReservationId) -> Reply {
    let record = find_record(tenant, id).expect("the caller has found or added it");
    Reply::Reservation(Arc::new(shown(tenant, record)))
}

/// Makes the machines of a reservation part of their tenant, and releases their other places.
pub(super) fn confirm(
    ledger: &mut Ledger,
    owner: Option<&str>,
    id: ReservationId,
    draft: &mut Draft,
) -> Result<Reply, LedgerError> {
    let old = tenant_of(ledger, owner, id)?;
    let mut tenant = Tenant::clone(&old);
    let mut records = tenant.reservations.iter_mut();
    let record = records.find(|record| record.id == id);
    let record = record.expect("the index has the tenant of the reservation");
    if record.is_confirmed {
        return Ok(reserved(&old, id));
    }
    record.is_confirmed = true;
    let mut others = Vec::new();
    for machine in &record.machines {
        let name = machine.name.as_deref();
        let places = name.map_or(&[][..], |name| ledger.owners.places(&old.owner, name));
        let is_other = |place: &&Place| (place.tenant, place.number) != (old.id, machine.number);
        others.extend(places.iter().filter(is_other).copied());
    }
    marked(ledger, &old, tenant, draft);
    pinned::release(ledger, others, draft);
    let tenant = tenant_of(ledger, owner, id)?;
    Ok(reserved(&tenant, id))
}

/// Replaces a tenant by one whose reservations have other marks.
pub(super) fn marked(ledger: &mut Ledger, old: &Arc<Tenant>, tenant: Tenant, draft: &mut Draft) {
    let new = Arc::new(tenant);
    draft.keep(
        Change::Tenant(Arc::clone(old)),
        Change::Tenant(Arc::clone(&new)),
    );
    let placement = ledger.placement_of(old.id);
    ledger.unlist(old.id, &placement);
    ledger.list(new, &placement);
}

/// Cancels a reservation. One that is gone is cancelled already.
pub(super) fn cancel(
    ledger: &mut Ledger,
    owner: Option<&str>,
    id: ReservationId,
    draft: &mut Draft,
) -> Result<Reply, LedgerError> {
    if ledger.owners.reservation(id).is_none() && id.0 < ledger.next_id {
        return Ok(Reply::Deleted);
    }
    let old = tenant_of(ledger, owner, id)?;
    let record = find_record(&old, id).expect("the index has the tenant of the reservation");
    if record.is_confirmed {
        return Err(LedgerError::Confirmed(id));
    }
    release(ledger, &old, id, draft);
    Ok(Reply::Deleted)
}

/// Cancels those of some reservations that are open.
pub(super) fn expire(ledger: &mut Ledger, ids: &[ReservationId], draft: &mut Draft) -> Reply {
    for id in ids {
        let tenant = tenant_of(ledger, None, *id).ok();
        let open = tenant.filter(|tenant| {
            let record = find_record(tenant, *id);
            record.is_some_and(|record| !record.is_confirmed)
        });
        if let Some(tenant) = open {
            release(ledger, &tenant, *id, draft);
        }
    }
    Reply::Noted
}

/// Removes the machines of a reservation.
fn release(ledger: &mut Ledger, tenant: &Arc<Tenant>, id: ReservationId, draft: &mut Draft) {
    let record = find_record(tenant, id);
    let machines = record.into_iter().flat_map(|record| &record.machines);
    let numbers: BTreeSet<u32> = machines.map(|machine| machine.number).collect();
    pinned::shrink(ledger, tenant, &numbers, draft);
}

/// Returns the tenant of a reservation that the caller may see.
fn tenant_of(
    ledger: &Ledger,
    owner: Option<&str>,
    id: ReservationId,
) -> Result<Arc<Tenant>, LedgerError> {
    let tenant = ledger.owners.reservation(id);
    let tenant = tenant.and_then(|tenant| ledger.visible(owner, tenant).ok());
    tenant.ok_or_else(|| LedgerError::NotFound(format!("reservation {id}")))
}

fn find_record(tenant: &Tenant, id: ReservationId) -> Option<&ReservationRecord> {
    tenant.reservations.iter().find(|record| record.id == id)
}

/// Returns a reservation as the API has it.
fn shown(tenant: &Tenant, record: &ReservationRecord) -> Reservation {
    let Tenant { owner, name, .. } = tenant;
    let machines = record.machines.iter().map(|machine| ReservedVm {
        number: machine.number,
        vm: format!("{owner}/{name}/{}", machine.number),
        host: super::runs::host_of(&tenant.runs, machine.number)
            .unwrap_or_default()
            .to_owned(),
        name: machine.name.clone(),
    });
    Reservation {
        id: record.id,
        tenant: tenant.id,
        owner: owner.clone(),
        name: name.clone(),
        state: if record.is_confirmed {
            ReservationState::Confirmed
        } else {
            ReservationState::Open
        },
        ttl: record.ttl,
        expires_in: None,
        machines: machines.collect(),
        revision: None,
    }
}

/// Returns the reservation of this number that the caller may see.
pub(crate) fn get(ledger: &Ledger, owner: Option<&str>, id: ReservationId) -> Option<Reservation> {
    let tenant = tenant_of(ledger, owner, id).ok()?;
    Some(shown(&tenant, find_record(&tenant, id)?))
}

/// Returns a page of open reservations in ascending order, beginning behind `after`.
pub(crate) fn list(
    ledger: &Ledger,
    owner: Option<&str>,
    after: ReservationId,
    limit: usize,
) -> Page<Reservation> {
    let open = ledger.owners.open_after(after);
    let mut open = open.filter_map(|(id, tenant)| {
        let tenant = ledger.tenant(tenant)?;
        let is_visible = owner.is_none_or(|owner| tenant.owner == owner);
        let record = find_record(tenant, id).filter(|_| is_visible)?;
        Some(shown(tenant, record))
    });
    let items: Vec<Reservation> = open.by_ref().take(limit).collect();
    let last = items.last().map(|reservation| reservation.id.to_string());
    let next = last.filter(|_| open.next().is_some());
    Page { items, next }
}

/// Returns the open reservations above `after`, in ascending order.
pub(crate) fn open_after(ledger: &Ledger, after: ReservationId) -> Vec<OpenReservation> {
    let open = ledger.owners.open_after(after);
    let open = open.filter_map(|(id, tenant)| {
        let record = find_record(ledger.tenant(tenant)?, id)?;
        Some(OpenReservation {
            id,
            ttl: record.ttl,
        })
    });
    open.collect()
}

/// Returns the number of open reservations.
pub(crate) fn open_count(ledger: &Ledger) -> usize {
    ledger.owners.open()
}

/// Returns whether a reservation is open.
pub(crate) fn is_open_reservation(ledger: &Ledger, id: ReservationId) -> bool {
    let before = ReservationId(id.0.saturating_sub(1));
    let mut open = ledger.owners.open_after(before);
    open.next().is_some_and(|(found, _)| found == id)
}

fn check_ttl(ttl: Nanos) -> Result<(), LedgerError> {
    if (MIN_TTL..=MAX_TTL).contains(&ttl) {
        return Ok(());
    }
    Err(LedgerError::Absurd(format!(
        "a time to live of {ttl} is not between {MIN_TTL} and {MAX_TTL}"
    )))
}
