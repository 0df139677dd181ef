//! Moves of a machine between hosts: until its arrival, both have a place for it.
//!
//! A tenant with a moving machine counts as a tenant with one more machine: its loads bound those
//! before and after the move.

use super::{AdmitError, Datacentre, Placement, PlacementError, Tenant, TenantId};
use crate::host::HostRule;
use crate::request::Request;
use crate::topology::NodeId;

/// Reason why a machine cannot move to a host; nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// There is no such tenant, or it has no machine to move.
    #[error(transparent)]
    Tenant(#[from] AdmitError),
    /// The host gets no machines.
    #[error("it is drained or failed, and gets no machines")]
    Closed,
    /// The host does not keep it.
    #[error(transparent)]
    Host(#[from] HostRule),
    /// A promise would break.
    #[error("{0}")]
    Place(PlacementError),
}

impl Request {
    /// Returns the request with one more machine, for a move.
    #[must_use]
    pub const fn with_one_more(mut self) -> Self {
        self.vms = self.vms.saturating_add(1);
        self
    }
}

impl Datacentre {
    /// Reserves a place on `to` for a machine of a tenant that is on `from`, and keeps its
    /// place there. The tenant then has a machine more, until [`Self::end_move`].
    ///
    /// # Errors
    /// `to` cannot take it, with the tenant as it is meanwhile or as it will be.
    pub fn begin_move(
        &mut self,
        id: TenantId,
        from: NodeId,
        to: NodeId,
    ) -> Result<&Placement, MoveError> {
        if !self.topology.is_host(to) {
            return Err(AdmitError::NotAHost(to.index()).into());
        }
        if self.is_closed(to) {
            return Err(MoveError::Closed);
        }
        let found = self.without(id, |dc, tenant| dc.with_move(tenant, from, to))?;
        let (request, placement) = found?;
        self.release(id)?;
        Ok(self.reserve(id, request, placement))
    }

    /// Releases the place on `leave` that a tenant's machine does not need any more: its old place
    /// after the move, or its new place if the move was cancelled.
    ///
    /// # Errors
    /// There is no such tenant, or it has no machine on this host.
    pub fn end_move(&mut self, id: TenantId, leave: NodeId) -> Result<&Placement, AdmitError> {
        let tenant = self.tenants.get(&id).ok_or(AdmitError::Unknown(id))?;
        let request = Request {
            vms: tenant.request.vms.saturating_sub(1),
            ..tenant.request
        };
        let placement = tenant.placement.shifted(Some(leave), None);
        let placement = placement.ok_or(AdmitError::NotAHost(leave.index()))?;
        self.release(id)?;
        Ok(self.reserve(id, request, placement))
    }

    /// Returns the tenant with its machine on both hosts of a move, if the second place is not
    /// reserved yet.
    fn with_move(
        &self,
        tenant: &Tenant,
        from: NodeId,
        to: NodeId,
    ) -> Result<(Request, Placement), MoveError> {
        let Tenant { request, placement } = tenant;
        let missing = || MoveError::from(AdmitError::NotAHost(from.index()));
        let after = placement
            .shifted(Some(from), Some(to))
            .ok_or_else(missing)?;
        let during = placement.shifted(None, Some(to)).ok_or_else(missing)?;
        let more = request.with_one_more();
        more.check_inward_frames(self.topology.frame())
            .map_err(AdmitError::from)?;
        self.check_machines(to, &more, after.on(to))?;
        for (request, placement) in [(request, &after), (&more, &during)] {
            let checked = self.verify(request, placement);
            let checked = checked.and_then(|()| self.verify_links(request, placement));
            checked.map_err(MoveError::Place)?;
        }
        Ok((more, during))
    }
}

impl Placement {
    /// Returns the number of machines on a host.
    fn on(&self, host: NodeId) -> u32 {
        let place = self.hosts.binary_search_by_key(&host, |(host, _)| *host);
        place.map_or(0, |place| self.hosts[place].1)
    }

    /// Returns the placement with one machine less on `from` and one more on `to`; `None` if `from`
    /// has no machine.
    fn shifted(&self, from: Option<NodeId>, to: Option<NodeId>) -> Option<Self> {
        let mut hosts = self.hosts.clone();
        if let Some(from) = from {
            let place = hosts.binary_search_by_key(&from, |(host, _)| *host).ok()?;
            hosts[place].1 -= 1;
        }
        Some(Self::new(hosts.into_iter().chain(to.map(|to| (to, 1)))))
    }
}
