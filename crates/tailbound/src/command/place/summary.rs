//! Summary of a tenant in words, for the commands that change or show it.

use super::enforcement;
use super::request::words;
use super::tables::runs;
use tailbound_api::{Tenant, TenantState};
use tailbound_report::Paint;
use tailbound_units::Bursts;

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

/// Returns a note about tenants of an earlier version, which have more bursts than the `default`
/// of new requests; empty without any.
pub(super) fn of_earlier_version(tenants: &[Tenant], default: Bursts) -> String {
    let is_earlier = |tenant: &&Tenant| {
        let guarantee = tenant.request.guarantee.as_ref();
        guarantee.is_some_and(|guarantee| guarantee.bursts.is_none())
    };
    let earlier = tenants.iter().filter(is_earlier);
    let names: Vec<_> = earlier
        .map(|tenant| format!("{}/{}", tenant.owner, tenant.name))
        .collect();
    if names.is_empty() || !default.is_per_subtree() {
        return String::new();
    }
    format!(
        "\nadmitted by an earlier version, with a burst for each receiver: {}\n\
         delete and create them to reserve less of the switches' buffers\n",
        names.join(", ")
    )
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
    let tenant_state = tenant.standing.as_ref();
    match tenant_state.filter(|tenant_state| tenant_state.state != TenantState::Admitted) {
        Some(tenant_state) => format!(
            "\n{}",
            enforcement::hosts(&tenant_state.hosts, false, paint)
        ),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str, guarantee: &str) -> Tenant {
        let text = format!(
            r#"{{"id": 1, "owner": "acme", "name": "{name}", "runs": [], "request": {{"vms": 2{guarantee}}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn tenants_of_earlier_burst_rules_are_named() {
        let tenants = [
            tenant("old", r#", "guarantee": {"bandwidth": "1Gbit/s"}"#),
            tenant(
                "new",
                r#", "guarantee": {"bandwidth": "1Gbit/s", "bursts": 1}"#,
            ),
            tenant("plain", ""),
        ];
        let said = of_earlier_version(&tenants, Bursts::ONE);
        assert!(
            said.contains("a burst for each receiver: acme/old\n"),
            "{said}"
        );
        assert_eq!(of_earlier_version(&tenants[1..], Bursts::ONE), "");
        assert_eq!(of_earlier_version(&tenants, Bursts::PerReceiver), "");
    }
}
