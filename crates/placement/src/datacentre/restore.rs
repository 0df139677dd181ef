//! Restores tenants from a store.

use super::classes::{Classes, Links};
use super::{AdmitError, Datacentre, Placement, PlacementError, Tenant, TenantId};
use crate::request::Request;
use crate::topology::{Direction, NodeId, PortId};

impl Datacentre {
    /// Reserves a placement that this or another data centre found before. The placement must be
    /// one of this request in this tree, with its delay and its fault domains, and with slots, CPUs
    /// and memory for it. Its hosts may be closed, because they may have been closed later.
    ///
    /// The load on ports is not checked. The rules may have been different at the time of the
    /// decision, and the machines exist: [`Self::ports_over`] returns the overloaded ports, and
    /// [`Self::holds`] checks in advance.
    ///
    /// The same tenants and closed hosts are accepted in any order, with the same state as the
    /// result.
    ///
    /// # Errors
    /// The placement is not valid for the request and the tree.
    pub fn restore(
        &mut self,
        id: TenantId,
        request: &Request,
        placement: Placement,
    ) -> Result<(), AdmitError> {
        let tenant = self.restorable(id, request, placement)?;
        self.apply(&tenant, true);
        self.tenants.insert(id, tenant);
        Ok(())
    }

    /// Restores many tenants, one after the other, in less time: the summaries of racks, pods and
    /// the core are updated once.
    ///
    /// # Errors
    /// As for [`Self::restore`], of the first tenant that is not accepted. Then
    /// none was restored.
    pub fn restore_all(
        &mut self,
        tenants: impl IntoIterator<Item = (TenantId, Request, Placement)>,
    ) -> Result<(), (TenantId, AdmitError)> {
        let mut restored = Vec::new();
        for (id, request, placement) in tenants {
            match self.restorable(id, &request, placement) {
                Ok(tenant) => {
                    self.count(&tenant, true);
                    self.tenants.insert(id, tenant);
                    restored.push(id);
                }
                Err(error) => {
                    for id in restored {
                        if let Some(tenant) = self.tenants.remove(&id) {
                            self.count(&tenant, false);
                        }
                    }
                    return Err((id, error));
                }
            }
        }
        let restored = restored.iter().filter_map(|id| self.tenants.get(id));
        let mut hosts: Vec<NodeId> = restored
            .flat_map(|tenant| tenant.placement.hosts.iter().map(|(host, _)| *host))
            .collect();
        hosts.sort_unstable();
        hosts.dedup();
        self.refresh(hosts);
        Ok(())
    }

    /// Checks whether every promise would hold if a placement were restored, which is one.
    ///
    /// # Errors
    /// The rule that would be broken.
    pub fn holds(&self, request: &Request, placement: &Placement) -> Result<(), PlacementError> {
        self.verify(request, placement)
    }

    /// Returns the ports that carry more than the policy allows because of restored tenants. No
    /// other tenants are admitted there.
    pub fn ports_over(&self) -> Vec<PortId> {
        let nodes = (0..self.topology.len() as u32).map(NodeId);
        let ports = nodes.flat_map(|node| {
            [Direction::Up, Direction::Down].map(|direction| PortId { node, direction })
        });
        let is_over = |port: &PortId| {
            !self.load(*port).is_none() && !Classes(self).carries(*port, Links::Built)
        };
        ports.filter(is_over).collect()
    }

    /// Returns the tenant if it can be put where it was. Looks at hosts, and at nothing that is
    /// derived from them.
    fn restorable(
        &self,
        id: TenantId,
        request: &Request,
        placement: Placement,
    ) -> Result<Tenant, AdmitError> {
        self.check(request)?;
        let tenant = placeable(self, id, request, placement)?;
        self.verify_resources(request, &tenant.placement)?;
        self.verify_place(request, &tenant.placement)?;
        Ok(tenant)
    }
}

/// Returns the tenant if its placement is one of the request in this tree.
pub(super) fn placeable(
    dc: &Datacentre,
    id: TenantId,
    request: &Request,
    placement: Placement,
) -> Result<Tenant, AdmitError> {
    request.check()?;
    request.check_class(&dc.topology)?;
    if dc.tenants.contains_key(&id) {
        return Err(AdmitError::Exists(id));
    }
    for (host, _) in &placement.hosts {
        if host.index() >= dc.topology.len() || !dc.topology.is_host(*host) {
            return Err(AdmitError::NotAHost(host.index()));
        }
    }
    if placement.vms() != u64::from(request.vms) {
        return Err(AdmitError::Count {
            placed: placement.vms(),
            vms: request.vms,
        });
    }
    Ok(Tenant {
        request: *request,
        placement,
    })
}
