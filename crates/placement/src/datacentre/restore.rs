//! Restores tenants from a store.

use super::{AdmitError, Datacentre, Placement, Tenant, TenantId};
use crate::request::Request;
use crate::topology::NodeId;

impl Datacentre {
    /// Reserves a placement that was found before, by this or another data centre, if every promise
    /// would hold. Its hosts may be closed: they were closed after it was made.
    ///
    /// The same tenants and closed hosts are accepted in any order, with the same state as the
    /// result.
    ///
    /// # Errors
    /// As for [`Self::admit`], or the placement is not one of this request in this tree.
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

    /// Returns the tenant if it can be put where it was. Looks at hosts and ports, and at nothing
    /// that is derived from them.
    fn restorable(
        &self,
        id: TenantId,
        request: &Request,
        placement: Placement,
    ) -> Result<Tenant, AdmitError> {
        self.check(request)?;
        if self.tenants.contains_key(&id) {
            return Err(AdmitError::Exists(id));
        }
        for (host, _) in &placement.hosts {
            if host.index() >= self.topology.len() || !self.topology.is_host(*host) {
                return Err(AdmitError::NotAHost(host.index()));
            }
        }
        if placement.vms() != u64::from(request.vms) {
            return Err(AdmitError::Count {
                placed: placement.vms(),
                vms: request.vms,
            });
        }
        self.verify(request, &placement)?;
        Ok(Tenant {
            request: *request,
            placement,
        })
    }
}
