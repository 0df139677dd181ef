//! The index from hosts to the tenants with machines there.

use tailbound_placement::{NodeId, Placement, TenantId};

/// The tenants of each host, so that a query about one host looks at no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostIndex {
    /// Tenants by node; each list is unordered, and an empty list takes no memory.
    tenants: Vec<Vec<TenantId>>,
}

impl HostIndex {
    /// Makes an empty index for a tree of `nodes` nodes.
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            tenants: vec![Vec::new(); nodes],
        }
    }

    pub(super) fn add(&mut self, tenant: TenantId, placement: &Placement) {
        for (host, _) in placement.hosts() {
            self.tenants[host.index()].push(tenant);
        }
    }

    pub(super) fn remove(&mut self, tenant: TenantId, placement: &Placement) {
        for (host, _) in placement.hosts() {
            let here = &mut self.tenants[host.index()];
            if let Some(place) = here.iter().position(|other| *other == tenant) {
                here.swap_remove(place);
            }
            // First fit comes to ever more hosts: lists that stayed would be kept for all of them.
            if here.is_empty() {
                *here = Vec::new();
            }
        }
    }

    /// Returns the tenants with machines on a host, in ascending order.
    pub(super) fn at(&self, host: NodeId) -> Vec<TenantId> {
        let mut here = self.tenants[host.index()].clone();
        here.sort_unstable();
        here
    }
}

#[cfg(test)]
mod tests {
    use crate::ledger::Ledger;
    use crate::ledger::command::{Command, Reply};
    use crate::ledger::testing::{call, create, ledger};
    use tailbound_units::Nanos;

    /// The places for tenants in the lists of all hosts, taken or not.
    fn places(ledger: &Ledger) -> usize {
        let lists = ledger.index.tenants.iter();
        lists.map(Vec::capacity).sum()
    }

    #[test]
    fn hosts_whose_tenants_are_gone_keep_no_memory() {
        let (mut ledger, _) = ledger();
        let mut decide = |call| {
            let decided = ledger.decide(&call, Nanos::ZERO).unwrap();
            (decided.reply, places(&ledger))
        };
        let (Reply::Tenant(tenant), at_work) = decide(create("acme", "web", 10)) else {
            panic!("no tenant");
        };
        assert!(at_work > 0);
        decide(call(Command::Delete { id: tenant.id }));
        assert_eq!(places(&ledger), 0);
    }
}
