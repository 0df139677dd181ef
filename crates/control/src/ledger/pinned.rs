//! Placements that the caller chooses: of new tenants, and of more or fewer machines on a host.

use super::command::{Call, Reply};
use super::draft::{Draft, Replacement};
use super::owners::{Place, named, usage};
use super::quota::{Quota, Usage};
use super::{Ledger, LedgerError, marks, runs};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tailbound_api::{HostMachines, MachineRef, PinnedHost, Rule, Tenant, TenantRef};
use tailbound_placement::pinned::{self, Refusal, Running};
use tailbound_placement::{Placement, Request, TenantId};

/// Returns the placement that a caller chose, for `vms` machines.
///
/// # Errors
/// A host is unknown or has no machine, or there are not as many machines.
pub(super) fn placement(
    ledger: &Ledger,
    chosen: &[PinnedHost],
    vms: u32,
) -> Result<Placement, LedgerError> {
    let mut hosts = Vec::with_capacity(chosen.len());
    let mut sum = 0_u64;
    for PinnedHost { host, vms } in chosen {
        let node = ledger.host_node(host).ok_or_else(|| unknown_host(host))?;
        if *vms == 0 {
            let message = format!("the placement has no machine on {host:?}; leave the host out");
            return Err(LedgerError::Absurd(message));
        }
        sum += u64::from(*vms);
        hosts.push((node, *vms));
    }
    if sum != u64::from(vms) {
        return Err(LedgerError::Absurd(format!(
            "the placement has {sum} machines, not {vms}"
        )));
    }
    Ok(Placement::new(hosts))
}

/// Returns the refusal of a host that does not exist.
pub(super) fn unknown_host(host: &str) -> Refusal {
    Refusal {
        rule: Rule::UnknownHost,
        host: Some(host.to_owned()),
        port: None,
        excess: None,
        sentence: format!("there is no host {host:?}"),
    }
}

/// Reserves a placement that the caller chose for a new tenant.
pub(super) fn admit(
    ledger: &mut Ledger,
    id: TenantId,
    request: &Request,
    chosen: &[PinnedHost],
) -> Result<Placement, LedgerError> {
    let placement = placement(ledger, chosen, request.vms)?;
    pinned::admit(&mut ledger.datacentre, id, request, placement.clone())?;
    Ok(placement)
}

/// Returns the tenant that a caller names.
pub(super) fn find(
    ledger: &Ledger,
    owner: Option<&str>,
    tenant: &TenantRef,
) -> Result<TenantId, LedgerError> {
    let found = find_any(ledger, owner, tenant)?;
    found.ok_or_else(|| LedgerError::NotFound(format!("tenant {tenant}")))
}

/// Returns the tenant that a caller names, or None if the caller may create one of this name.
pub(super) fn find_any(
    ledger: &Ledger,
    owner: Option<&str>,
    tenant: &TenantRef,
) -> Result<Option<TenantId>, LedgerError> {
    let missing = || LedgerError::NotFound(format!("tenant {tenant}"));
    if let Some(id) = tenant.id() {
        return ledger.visible(owner, id).map(|tenant| Some(tenant.id));
    }
    let (named, name) = tenant.name().ok_or_else(missing)?;
    let of = match (owner, named) {
        (Some(owner), Some(named)) if owner != named => return Err(missing()),
        (Some(owner), _) | (None, Some(owner)) => owner,
        (None, None) => {
            let message =
                format!("the owner of the tenant {name:?} is missing: name it OWNER/{name}");
            return Err(LedgerError::Absurd(message));
        }
    };
    Ok(ledger.owners.find(of, name))
}

/// Sets the number of a tenant's machines on a host, without those of open reservations.
pub(super) fn put_host(
    ledger: &mut Ledger,
    call: &Call,
    id: TenantId,
    host: &str,
    machines: &HostMachines,
    draft: &mut Draft,
) -> Result<Reply, LedgerError> {
    let old = ledger.settled(call.owner.as_deref(), id)?;
    let node = ledger.host_node(host);
    let node = node.ok_or_else(|| LedgerError::NotFound(format!("host {host:?}")))?;
    let here = confirmed_at(&old, host);
    let had = here.len() as u32;
    let surplus = |why: &str| Err(LedgerError::Absurd(format!("no machine is removed: {why}")));
    match machines.vms.cmp(&had) {
        Ordering::Less => {
            let removed_numbers = removed(&old, host, &here, machines)?;
            let request = Request {
                vms: old.request.vms - removed_numbers.len() as u32,
                ..old.request
            };
            if request.vms > 0 {
                request.check()?;
                let rest = without(&old, &removed_numbers);
                let placement = ledger.placement(&rest);
                let placement = placement.map_err(|why| LedgerError::Absurd(why.to_string()))?;
                pinned::check_domains(&ledger.datacentre, &request, &placement)?;
            }
            Ok(shrink(ledger, &old, &removed_numbers, draft))
        }
        _ if !machines.remove.is_empty() => surplus("the host has no more machines than vms"),
        Ordering::Equal => Ok(Reply::Tenant(old)),
        Ordering::Greater => {
            let growth = Growth {
                old: &old,
                rest: &old,
                more: &Placement::new([(node, machines.vms - had)]),
                reservations: 0,
                before: ledger.owners.usage(&old.owner),
            };
            let (tenant, placement) = grown(ledger, &call.quota, &growth)?;
            Ok(ledger.relisted(&old, tenant, &placement, draft))
        }
    }
}

/// Machines that come to a tenant.
pub(super) struct Growth<'a> {
    /// The tenant.
    pub(super) old: &'a Tenant,
    /// The tenant without the machines that it loses by the same change.
    pub(super) rest: &'a Tenant,
    /// The new machines.
    pub(super) more: &'a Placement,
    /// The number of open reservations that they have.
    pub(super) reservations: u64,
    /// The owner's usage before the call.
    pub(super) before: Usage,
}

/// Reserves more machines of a tenant, and returns the tenant with them, which has to be listed.
pub(super) fn grown(
    ledger: &mut Ledger,
    quota: &Quota,
    growth: &Growth<'_>,
) -> Result<(Tenant, Replacement), LedgerError> {
    let Growth {
        old, rest, more, ..
    } = growth;
    let vms = u64::from(rest.request.vms) + more.vms();
    let vms = u32::try_from(vms)
        .ok()
        .filter(|vms| u64::from(*vms) <= pinned::MAX_VMS);
    let vms = vms.ok_or_else(|| {
        LedgerError::Absurd(format!("a tenant has at most {} machines", pinned::MAX_VMS))
    })?;
    let request = Request { vms, ..old.request };
    request.check()?;
    let mut tenant = Tenant {
        request,
        ..Tenant::clone(rest)
    };
    let has = ledger.owners.usage(&old.owner);
    let mut after = has.minus(usage(old)).plus(usage(&tenant));
    after.reservations += growth.reservations;
    quota.check(&old.owner, growth.before, after)?;
    let before = ledger.placement_of(old.id);
    let stay = if rest.request.vms == old.request.vms {
        before.clone()
    } else {
        placement_of_part(ledger, rest)
    };
    let hosts = stay.hosts().iter().chain(more.hosts()).copied();
    let placement = Replacement {
        new: Placement::new(hosts),
        old: before,
    };
    let new = placement.new.clone();
    pinned::change(&mut ledger.datacentre, old.id, &request, new)?;
    tenant.runs = ledger.runs(&rest.runs, &placement.new);
    Ok((tenant, placement))
}

/// Removes machines of a tenant, and the tenant if it has no other machine.
pub(super) fn shrink(
    ledger: &mut Ledger,
    old: &Arc<Tenant>,
    removed_numbers: &BTreeSet<u32>,
    draft: &mut Draft,
) -> Reply {
    let tenant = without(old, removed_numbers);
    if tenant.request.vms == 0 {
        let deleted = ledger.delete(None, old.id, draft);
        return deleted.expect("the tenant was just read");
    }
    let placement = Replacement {
        old: ledger.placement_of(old.id),
        new: placement_of_part(ledger, &tenant),
    };
    let dc = &mut ledger.datacentre;
    dc.release(old.id)
        .expect("a listed tenant is in the data centre");
    let rest = Running {
        id: old.id,
        request: tenant.reserved(),
        placement: placement.new.clone(),
        // Fewer machines are never further apart.
        is_misfit: true,
    };
    pinned::put(dc, [rest]).expect("fewer machines are on hosts that have them");
    ledger.relisted(old, tenant, &placement, draft)
}

/// Removes machines, and tenants without other machines.
pub(super) fn release(ledger: &mut Ledger, places: Vec<Place>, draft: &mut Draft) {
    let mut removed_numbers: BTreeMap<TenantId, BTreeSet<u32>> = BTreeMap::new();
    for Place { tenant, number, .. } in places {
        removed_numbers.entry(tenant).or_default().insert(number);
    }
    for (id, removed_numbers) in removed_numbers {
        let tenant = ledger.tenant(id).cloned();
        shrink(
            ledger,
            &tenant.expect("the index has it"),
            &removed_numbers,
            draft,
        );
    }
}

/// Returns the placement of a tenant that has lost machines.
fn placement_of_part(ledger: &Ledger, tenant: &Tenant) -> Placement {
    let placement = ledger.placement(tenant);
    placement.expect("a part of a tenant's machines is on hosts that exist")
}

/// Returns a tenant without some machines, also without the move of one of them.
pub(super) fn without(tenant: &Tenant, removed_numbers: &BTreeSet<u32>) -> Tenant {
    let runs = runs::without(&tenant.runs, removed_numbers);
    let vms = runs.iter().map(|run| run.count).sum();
    let moving = tenant.moving.clone();
    let mut rest = Tenant {
        request: Request {
            vms,
            ..tenant.request
        },
        runs,
        moving: moving.filter(|moving| !removed_numbers.contains(&moving.vm)),
        ..tenant.clone()
    };
    marks::prune(&mut rest);
    rest
}

/// Returns the numbers of a tenant's machines on a host, in ascending order, without those of open
/// reservations.
fn confirmed_at(tenant: &Tenant, host: &str) -> Vec<u32> {
    let open = marks::open_machines(tenant);
    let runs = tenant.runs.iter().filter(|run| *run.host == *host);
    let numbers = runs.flat_map(|run| run.first..run.first + run.count);
    numbers.filter(|number| !open.contains(number)).collect()
}

/// Returns the machines that leave a host with the machines `here`.
fn removed(
    tenant: &Tenant,
    host: &str,
    here: &[u32],
    machines: &HostMachines,
) -> Result<BTreeSet<u32>, LedgerError> {
    let fewer = here.len() - machines.vms as usize;
    if machines.remove.is_empty() {
        let last = here.iter().rev().take(fewer);
        return Ok(last.copied().collect());
    }
    // A name may have a reserved machine, too.
    let numbers = named(tenant).map(|(name, place)| (name, place.number));
    let named: HashMap<&str, u32> = numbers
        .filter(|(_, number)| here.binary_search(number).is_ok())
        .collect();
    let mut removed_numbers = BTreeSet::new();
    for machine in &machines.remove {
        let number = match machine {
            MachineRef::Number(number) => Some(*number),
            MachineRef::Name(name) => named.get(&**name).copied(),
        };
        let number = number.filter(|number| here.binary_search(number).is_ok());
        let number = number.ok_or_else(|| {
            LedgerError::Absurd(format!("there is no machine {machine} on {host} to remove"))
        })?;
        removed_numbers.insert(number);
    }
    if removed_numbers.len() != fewer {
        return Err(LedgerError::Absurd(format!(
            "remove has {} machines, and from {} to {} there are {fewer} fewer",
            removed_numbers.len(),
            here.len(),
            machines.vms
        )));
    }
    Ok(removed_numbers)
}
