//! Machines that come to a tenant by a reservation, or by their names.

use super::checks::check_names;
use super::draft::Draft;
use super::marks::machines;
use super::pinned::{self, Growth, grown};
use super::quota::{Quota, Usage};
use super::{Ledger, LedgerError, Reply};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tailbound_api::{
    NewReservation, PinnedHost, ReservationId, ReservationRecord, ReservationState,
    ReservedMachine, Tenant, VmLimit,
};
use tailbound_placement::{Placement, Request, TenantId};

/// The longest name of a machine, in bytes.
const MAX_NAME: usize = 128;

/// Machines that come to a tenant by one record.
pub(super) struct Intake<'a> {
    pub(super) new: &'a NewReservation,
    /// The state of the record.
    pub(super) state: ReservationState,
    /// The machines that the tenant loses by the same change.
    pub(super) gone: BTreeSet<u32>,
    /// The owner's usage before the call.
    pub(super) before: Usage,
}

/// Adds machines to a tenant, which is created if it does not exist. Returns the tenant and the
/// record.
pub(super) fn take_in(
    ledger: &mut Ledger,
    quota: &Quota,
    intake: &Intake<'_>,
    draft: &mut Draft,
) -> Result<(Arc<Tenant>, ReservationId), LedgerError> {
    let new = intake.new;
    let owner = new.owner.as_deref().unwrap_or_default();
    check_names(owner, &new.tenant)?;
    let vms = new.placement.iter().map(|it| u64::from(it.vms)).sum();
    check_machine_names(&new.machines, vms)?;
    if vms == 0 {
        let message = "the placement has no machines".to_owned();
        return Err(LedgerError::Absurd(message));
    }
    let vms = u32::try_from(vms).unwrap_or(u32::MAX);
    let more = pinned::placement(ledger, &new.placement, vms)?;
    match ledger.owners.find(owner, &new.tenant) {
        Some(id) => take_more(ledger, quota, id, intake, &more, draft),
        None => take_all(ledger, quota, intake, vms, &more, draft),
    }
}

/// Adds machines to a tenant that exists.
fn take_more(
    ledger: &mut Ledger,
    quota: &Quota,
    id: TenantId,
    intake: &Intake<'_>,
    more: &Placement,
    draft: &mut Draft,
) -> Result<(Arc<Tenant>, ReservationId), LedgerError> {
    let Intake { new, gone, .. } = intake;
    let old = ledger.settled(None, id)?;
    if old.request.domains.is_some() {
        return Err(LedgerError::Absurd(format!(
            "{}/{} has fault domains, which a cancellation could break: its machines cannot be \
                reserved",
            old.owner, old.name
        )));
    }
    if let Some(request) = new.request {
        check_request(ledger, id, &request.of(old.request.vms))?;
    }
    let rest = if gone.is_empty() {
        Arc::clone(&old)
    } else {
        Arc::new(pinned::without(&old, gone))
    };
    let growth = Growth {
        old: &old,
        rest: &rest,
        more,
        reservations: u64::from(intake.state == ReservationState::Open),
        before: intake.before,
    };
    let (mut tenant, placement) = grown(ledger, quota, &growth)?;
    let id = ReservationId(ledger.count(draft));
    tenant.reservations.push(record(id, intake, &rest, &tenant));
    match ledger.relisted(&old, tenant, &placement, draft) {
        Reply::Tenant(tenant) => Ok((tenant, id)),
        other => unreachable!("a tenant that was listed is the reply, not {other:?}"),
    }
}

/// Adds all machines of a new tenant.
fn take_all(
    ledger: &mut Ledger,
    quota: &Quota,
    intake: &Intake<'_>,
    vms: u32,
    placement: &Placement,
    draft: &mut Draft,
) -> Result<(Arc<Tenant>, ReservationId), LedgerError> {
    let new = intake.new;
    let owner = new.owner.clone().unwrap_or_default();
    let Some(request) = new.request else {
        let tenant = format!("tenant {owner}/{}; a new one needs a request", new.tenant);
        return Err(LedgerError::NotFound(tenant));
    };
    let request = ledger.datacentre.topology().with_class(request.of(vms));
    request.check()?;
    let mut after = ledger.owners.usage(&owner).plus(Usage::of(&request));
    after.reservations += u64::from(intake.state == ReservationState::Open);
    quota.check(&owner, intake.before, after)?;
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
    tenant.reservations.push(record(id, intake, &none, &tenant));
    match ledger.entered(tenant, placement, draft) {
        Reply::Tenant(tenant) => Ok((tenant, id)),
        other => unreachable!("a tenant that was listed is the reply, not {other:?}"),
    }
}

/// Checks that a request is that of a tenant's machines, except for their number.
pub(super) fn check_request(
    ledger: &Ledger,
    id: TenantId,
    request: &Request,
) -> Result<(), LedgerError> {
    let tenant = ledger.visible(None, id)?;
    let mut request = Request {
        vms: tenant.request.vms,
        ..request.with_default_bursts()
    };
    if let Some(guarantee) = &mut request.guarantee {
        guarantee.class = guarantee.class.or(tenant.request.class());
    }
    if request == tenant.request {
        return Ok(());
    }
    Err(LedgerError::Absurd(format!(
        "the machines of {}/{} have another request; leave the request out, or change the tenant \
            first",
        tenant.owner, tenant.name
    )))
}

/// Returns the record of the machines that a tenant has and had not.
fn record(
    id: ReservationId,
    intake: &Intake<'_>,
    old: &Tenant,
    tenant: &Tenant,
) -> ReservationRecord {
    let Intake { new, state, .. } = intake;
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
        is_confirmed: *state == ReservationState::Confirmed,
        machines,
    }
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
        check_machine_name(name)?;
        if !seen.insert(name) {
            return Err(LedgerError::Absurd(format!(
                "two machines have the name {name:?}"
            )));
        }
    }
    Ok(())
}

/// Checks a caller's name of a machine.
pub(super) fn check_machine_name(name: &str) -> Result<(), LedgerError> {
    let is_printable = name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if (1..=MAX_NAME).contains(&name.len()) && is_printable {
        return Ok(());
    }
    Err(LedgerError::Absurd(format!(
        "the machine's name {name:?} is not 1 to {MAX_NAME} printable ASCII characters"
    )))
}
