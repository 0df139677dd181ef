//! The index from hosts to the tenants with machines there.

use tailbound_placement::{NodeId, Placement, TenantId};

/// The tenants of each host, so that a query about one host looks at no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostIndex {
    /// By node; each list is in no order.
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
        }
    }

    /// Returns the tenants with machines on a host, in ascending order.
    pub(super) fn at(&self, host: NodeId) -> Vec<TenantId> {
        let mut here = self.tenants[host.index()].clone();
        here.sort_unstable();
        here
    }
}
