//! Summary of a tenant in words, for the commands that change or show it.

use super::enforcement;
use super::request::words;
use super::tables::runs;
use tailbound_api::{Tenant, TenantState};
use tailbound_report::Paint;

/// Returns the summary of a tenant, after a word for the operation's result.
pub(super) fn summary(word: &str, tenant: &Tenant, paint: Paint) -> String {
    format!(
        "{word}  {}/{}, id {}: {}\n\n{}",
        tenant.owner,
        tenant.name,
        tenant.id.0,
        promised(tenant),
        runs(&tenant.runs, paint)
    ) + &on_its_way(tenant)
        + &not_kept(tenant, paint)
}

/// Returns the guarantee and the limits of each of a tenant's VMs, in words.
pub(super) fn promised(tenant: &Tenant) -> String {
    let words = words(&tenant.request);
    if tenant.limit.is_none() {
        return words;
    }
    format!("{words}, at most {}", tenant.limit)
}

/// Returns the VM that moves, if there is one.
pub(super) fn on_its_way(tenant: &Tenant) -> String {
    match &tenant.moving {
        Some(moving) => format!(
            "\nmachine {} is on its way to {}, which has a place for it as well\n",
            moving.vm, moving.to
        ),
        None => String::new(),
    }
}

/// Returns the hosts that do not enforce a tenant's guarantee, or not yet, if there are any.
fn not_kept(tenant: &Tenant, paint: Paint) -> String {
    let standing = tenant.standing.as_ref();
    match standing.filter(|standing| standing.state != TenantState::Admitted) {
        Some(standing) => format!("\n{}", enforcement::hosts(&standing.hosts, false, paint)),
        None => String::new(),
    }
}
