//! Reservations of machines with a time to live.
//!
//! A reserved machine is a machine of its tenant in everything: it has a number, it counts in the
//! calculus and under the quota, and its host receives its guarantee. A [`ReservationRecord`] in
//! the tenant marks it. A confirmation changes the mark alone, so it is never refused. A
//! cancellation removes the machines, and the tenant if it has no other.

use super::change::Change;
use super::checks::check_names;
use super::command::Reply;
use super::draft::Draft;
use super::marks::{machines, numbers_by_name};
use super::pinned::{self, grown, shrink};
use super::quota::{Quota, Usage};
use super::{Ledger, LedgerError};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tailbound_api::{
    MAX_TTL, MIN_TTL, NewReservation, Page, PinnedHost, Reservation, ReservationId,
    ReservationRecord, ReservationState, ReservedMachine, ReservedVm, Tenant, VmLimit,
};
use tailbound_placement::{Placement, TenantId};
use tailbound_units::Nanos;

/// Largest number of open reservations of an owner, also without a quota.
pub const MAX_OPEN: u64 = 10_000;
/// The longest name of a machine, in bytes.
const MAX_NAME: usize = 128;

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
    let owner = new.owner.as_deref().unwrap_or_default();
    check_names(owner, &new.tenant)?;
    check_ttl(new.ttl)?;
    let vms = new.placement.iter().map(|it| u64::from(it.vms)).sum();
    check_machine_names(&new.machines, vms)?;
    if vms == 0 {
        let what = "the placement has no machines".to_owned();
        return Err(LedgerError::Absurd(what));
    }
    let vms = u32::try_from(vms).unwrap_or(u32::MAX);
    let has = ledger.owners.usage(owner);
    if has.reservations >= MAX_OPEN {
        return Err(LedgerError::Quota {
            owner: owner.to_owned(),
            after: format!("{} open reservations", has.reservations + 1),
            most: MAX_OPEN.to_string(),
            before: has.reservations.to_string(),
        });
    }
    let more = pinned::placement(ledger, &new.placement, vms)?;
    match ledger.owners.find(owner, &new.tenant) {
        Some(id) => reserve_more(ledger, quota, id, new, &more, draft),
        None => reserve_all(ledger, quota, new, vms, &more, draft),
    }
}

/// Reserves more machines of a tenant that exists.
fn reserve_more(
    ledger: &mut Ledger,
    quota: &Quota,
    id: TenantId,
    new: &NewReservation,
    more: &Placement,
    draft: &mut Draft,
) -> Result<Reply, LedgerError> {
    let old = ledger.settled(None, id)?;
    let name = || format!("{}/{}", old.owner, old.name);
    if old.request.domains.is_some() {
        return Err(LedgerError::Absurd(format!(
            "{} has fault domains, which a cancellation could break: its machines cannot be \
                reserved",
            name()
        )));
    }
    if let Some(request) = new.request
        && request.of(old.request.vms) != old.request
    {
        return Err(LedgerError::Absurd(format!(
            "the machines of {} have another request; leave the request out, or change the \
                tenant first",
            name()
        )));
    }
    let known = numbers_by_name(&old);
    for machine in &new.machines {
        if let Some(number) = known.get(&**machine) {
            return Err(LedgerError::MachineExists {
                tenant: name(),
                name: machine.clone(),
                number: *number,
            });
        }
    }
    let (mut tenant, placement) = grown(ledger, quota, &old, more, 1)?;
    let id = ReservationId(ledger.count(draft));
    let record = record(id, new, &old, &tenant);
    tenant.reservations.push(record);
    let reply = ledger.relisted(&old, tenant, &placement, draft);
    Ok(reserved(&reply, id))
}

/// Reserves all machines of a new tenant.
fn reserve_all(
    ledger: &mut Ledger,
    quota: &Quota,
    new: &NewReservation,
    vms: u32,
    placement: &Placement,
    draft: &mut Draft,
) -> Result<Reply, LedgerError> {
    let owner = new.owner.clone().unwrap_or_default();
    let Some(request) = new.request else {
        let tenant = format!("tenant {owner}/{}; a new one needs a request", new.tenant);
        return Err(LedgerError::NotFound(tenant));
    };
    let request = request.of(vms);
    request.check()?;
    let has = ledger.owners.usage(&owner);
    let mut after = has.plus(Usage::of(&request));
    after.reservations += 1;
    quota.check(&owner, has, after)?;
    let id = TenantId(ledger.next_id);
    let dc = &mut ledger.datacentre;
    tailbound_placement::pinned::admit(dc, id, &request, placement.clone())?;
    let mut tenant = Tenant {
        id,
        owner,
        name: new.tenant.clone(),
        request,
        limit: VmLimit::default(),
        runs: ledger.runs(&[], placement),
        change: ledger.count(draft),
        moving: None,
        standing: None,
        reservations: Vec::new(),
        misfit: false,
    };
    let none = Tenant {
        runs: Vec::new(),
        ..tenant.clone()
    };
    let id = ReservationId(ledger.count(draft));
    tenant.reservations.push(record(id, new, &none, &tenant));
    let reply = ledger.entered(tenant, placement, draft);
    Ok(reserved(&reply, id))
}

/// Returns the record of the machines that a tenant has and had not.
fn record(
    id: ReservationId,
    new: &NewReservation,
    old: &Tenant,
    tenant: &Tenant,
) -> ReservationRecord {
    let had: HashSet<u32> = machines(old).map(|(number, _)| number).collect();
    let mut added: HashMap<&str, VecDeque<u32>> = HashMap::new();
    for (number, host) in machines(tenant).filter(|(number, _)| !had.contains(number)) {
        added.entry(host).or_default().push_back(number);
    }
    let mut names = new.machines.iter();
    let mut machines = Vec::new();
    for PinnedHost { host, vms } in &new.placement {
        let numbers = added.get_mut(&**host);
        let numbers = numbers.into_iter().flat_map(|it| it.drain(..*vms as usize));
        machines.extend(numbers.map(|number| ReservedMachine {
            number,
            name: names.next().cloned(),
        }));
    }
    machines.sort_unstable_by_key(|machine| machine.number);
    ReservationRecord {
        id,
        ttl: new.ttl,
        is_confirmed: false,
        machines,
    }
}

fn reserved(reply: &Reply, id: ReservationId) -> Reply {
    let Reply::Tenant(tenant) = reply else {
        unreachable!("a tenant that was listed is the reply");
    };
    let record = find_record(tenant, id).expect("the record was just added");
    Reply::Reservation(Arc::new(shown(tenant, record)))
}

/// Makes the machines of a reservation part of their tenant.
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
    if !record.is_confirmed {
        record.is_confirmed = true;
        let new = Arc::new(tenant);
        draft.keep(
            Change::Tenant(Arc::clone(&old)),
            Change::Tenant(Arc::clone(&new)),
        );
        let placement = ledger.placement_of(old.id);
        ledger.unlist(old.id, &placement);
        ledger.list(Arc::clone(&new), &placement);
        return Ok(reserved(&Reply::Tenant(new), id));
    }
    Ok(reserved(&Reply::Tenant(old), id))
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
    let gone: BTreeSet<u32> = machines.map(|machine| machine.number).collect();
    shrink(ledger, tenant, &gone, draft);
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

/// Checks the callers' names of `vms` machines.
fn check_machine_names(names: &[String], vms: u64) -> Result<(), LedgerError> {
    if names.is_empty() {
        return Ok(());
    }
    if names.len() as u64 != vms {
        return Err(LedgerError::Absurd(format!(
            "there are {} names for {vms} machines; name each of them, or none",
            names.len()
        )));
    }
    let mut seen = HashSet::new();
    for name in names {
        let is_printable = name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if !(1..=MAX_NAME).contains(&name.len()) || !is_printable {
            return Err(LedgerError::Absurd(format!(
                "the machine's name {name:?} is not 1 to {MAX_NAME} printable ASCII characters"
            )));
        }
        if !seen.insert(name) {
            return Err(LedgerError::Absurd(format!(
                "two machines have the name {name:?}"
            )));
        }
    }
    Ok(())
}
