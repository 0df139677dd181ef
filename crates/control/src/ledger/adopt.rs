//! Adoption of machines that run: each is recorded where it is, and what does not fit is named.

use super::checks::{check_limit, check_names};
use super::command::Reply;
use super::draft::Draft;
use super::{Ledger, LedgerError, pinned};
use std::collections::BTreeMap;
use std::sync::Arc;
use tailbound_api::{AdoptionReport, Misfit, NewTenant, Rule, Tenant};
use tailbound_placement::pinned::{MAX_VMS, Refusal, Running, check, put};
use tailbound_placement::{Placement, Request, TenantId};

/// Checks what makes sense of a running tenant by itself.
pub(crate) fn check_new(new: &NewTenant) -> Result<Request, LedgerError> {
    let owner = new.owner.as_deref().unwrap_or_default();
    let named = |error: LedgerError| {
        LedgerError::Absurd(format!("the tenant {owner}/{}: {error}", new.name))
    };
    check_names(owner, &new.name)?;
    let request = new.request();
    request.check().map_err(|error| named(error.into()))?;
    check_limit(&new.limit, &request).map_err(named)?;
    let sum: u64 = new.placement.iter().map(|it| u64::from(it.vms)).sum();
    if sum != u64::from(request.vms) || new.placement.iter().any(|it| it.vms == 0) {
        let message = format!("the placement has {sum} machines, not {}", request.vms);
        return Err(named(LedgerError::Absurd(message)));
    }
    Ok(request)
}

/// Records tenants whose machines run.
///
/// # Errors
/// A tenant makes no sense by itself, or there would be too many machines; nothing has changed.
pub(super) fn adopt(
    ledger: &mut Ledger,
    tenants: &[NewTenant],
    draft: &mut Draft,
) -> Result<Reply, LedgerError> {
    let mut requests = Vec::with_capacity(tenants.len());
    let mut vms = ledger.used;
    for new in tenants {
        let request = ledger.datacentre.topology().with_class(check_new(new)?);
        vms += u64::from(request.vms);
        requests.push(request);
    }
    if vms > MAX_VMS {
        let message = format!("a data centre has at most {MAX_VMS} machines, not {vms}");
        return Err(LedgerError::Absurd(message));
    }
    let mut report = AdoptionReport::default();
    for (new, request) in tenants.iter().zip(&requests) {
        adopt_one(ledger, new, request, &mut report, draft);
    }
    Ok(Reply::Adopted(Arc::new(report)))
}

fn adopt_one(
    ledger: &mut Ledger,
    new: &NewTenant,
    request: &Request,
    report: &mut AdoptionReport,
    draft: &mut Draft,
) {
    let owner = new.owner.as_deref().unwrap_or_default();
    let placement = match pinned::placement(ledger, &new.placement, request.vms) {
        Ok(placement) => placement,
        Err(error) => {
            let refusal = match error {
                LedgerError::Pinned(refusal) => refusal,
                other => unreachable!("the placement was checked: {other}"),
            };
            report.misfits.push(misfit(new, refusal, false));
            return;
        }
    };
    if let Some(id) = ledger.owners.find(owner, &new.name) {
        if is_same(ledger, id, request, &placement) {
            report.present += 1;
        } else {
            let sentence = format!(
                "{owner} has another tenant {:?} already, with the id {}",
                new.name, id.0
            );
            let refusal = Refusal {
                rule: Rule::Exists,
                host: None,
                port: None,
                excess: None,
                sentence,
            };
            report.misfits.push(misfit(new, refusal, false));
        }
        return;
    }
    let refusal = check(&ledger.datacentre, request, &placement).err();
    let id = TenantId(ledger.next_id);
    let running = Running {
        id,
        request: *request,
        placement: placement.clone(),
        is_misfit: refusal.is_some(),
    };
    put(&mut ledger.datacentre, [running]).expect("the placement is one of the request");
    let tenant = Tenant {
        id,
        owner: owner.to_owned(),
        name: new.name.clone(),
        request: *request,
        limit: new.limit,
        runs: ledger.runs(&[], &placement),
        change: ledger.count(draft),
        moving: None,
        standing: None,
        reservations: Vec::new(),
        misfit: refusal.is_some(),
    };
    ledger.entered(tenant, &placement, draft);
    report.adopted += 1;
    if let Some(refusal) = refusal {
        report.misfits.push(misfit(new, refusal, true));
    }
}

/// Returns whether a tenant has this request and as many machines on each host.
fn is_same(ledger: &Ledger, id: TenantId, request: &Request, placement: &Placement) -> bool {
    let Some(tenant) = ledger.tenant(id) else {
        return false;
    };
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for run in &tenant.runs {
        *counts.entry(&run.host).or_default() += run.count;
    }
    let topology = ledger.datacentre.topology();
    let hosts = placement.hosts().iter();
    let wanted = hosts.map(|(host, count)| (topology.name(*host), *count));
    tenant.request == *request && counts == wanted.collect()
}

fn misfit(new: &NewTenant, refusal: Refusal, adopted: bool) -> Misfit {
    let Refusal {
        rule,
        host,
        port,
        excess,
        sentence,
    } = refusal;
    Misfit {
        tenant: format!("{}/{}", new.owner.as_deref().unwrap_or_default(), new.name),
        adopted,
        rule,
        host,
        port,
        excess,
        sentence,
    }
}
