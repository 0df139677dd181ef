//! Changes of tenants and hosts: resize, drain, failure, restore.

use super::complete::{self, Outcome};
use super::{AdmitError, Datacentre, Placement, PlacementError, Tenant, TenantId, search};
use crate::request::Request;
use crate::topology::NodeId;
use std::collections::{BTreeMap, BinaryHeap};

/// A tenant that loses machines, and where they would fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AffectedTenant {
    /// The tenant.
    pub tenant: TenantId,
    /// The number of its machines on the closed hosts.
    pub lost: u32,
    /// A placement of all its machines under which every promise holds and those on open hosts
    /// stay; or why there is none. Nothing is reserved: [`Datacentre::relocate`] does that.
    pub refit: Result<Placement, PlacementError>,
}

/// Returns a placement with the tenant's machines on open hosts that keep its guarantee, and others.
fn refitted(dc: &Datacentre, tenant: &Tenant) -> Result<Placement, PlacementError> {
    let hosts = tenant.placement.hosts().iter().copied();
    let stays = |host: NodeId, count: u32| {
        !dc.is_closed(host) && dc.vms_that_are_kept(host, &tenant.request) >= count
    };
    let base = Placement::new(hosts.filter(|(host, count)| stays(*host, *count)));
    dc.extend(&tenant.request, &base)
}

impl Datacentre {
    /// Changes a tenant's number of machines. The remaining machines are not moved.
    ///
    /// # Errors
    /// There is no place for more, or the number makes no sense. Then nothing
    /// has changed.
    pub fn resize(&mut self, id: TenantId, vms: u32) -> Result<&Placement, AdmitError> {
        let tenant = self.tenants.get(&id).ok_or(AdmitError::Unknown(id))?;
        let request = Request {
            vms,
            ..tenant.request
        };
        self.change(id, request)
    }

    /// Replaces a tenant's request, such as its guarantee. The remaining machines are not moved.
    ///
    /// # Errors
    /// There is no place for more machines, a promise would not hold with all of them where they
    /// are, or the request makes no sense. Then nothing has changed.
    pub fn change(&mut self, id: TenantId, request: Request) -> Result<&Placement, AdmitError> {
        self.check(&request)?;
        let placement = self.without(id, |dc, tenant| {
            let base = if request.vms < tenant.request.vms {
                dc.shrink(&request, &tenant.placement)
            } else {
                tenant.placement.clone()
            };
            let has_fewer_only = request.vms < tenant.request.vms
                && Request {
                    vms: tenant.request.vms,
                    ..request
                } == tenant.request;
            if has_fewer_only {
                // Their hosts keep no more than before.
                return dc.verify_network(&request, &base).map(|()| base);
            }
            dc.verify_resources(&request, &base)?;
            for &(host, count) in base.hosts() {
                dc.check_machines(host, &request, count).map_err(|rule| {
                    let host = dc.topology.name(host).into();
                    PlacementError::HostOfMachines { host, rule }
                })?;
            }
            dc.extend(&request, &base)
        })??;
        self.release(id)?;
        Ok(self.reserve(id, request, placement))
    }

    /// Moves the machines of a tenant that are on closed hosts, or on hosts that do not keep its
    /// guarantee, to others.
    ///
    /// # Errors
    /// There is no place for them. Then nothing has changed.
    pub fn relocate(&mut self, id: TenantId) -> Result<&Placement, AdmitError> {
        let placement = self.without(id, refitted)??;
        let tenant = self.release(id)?;
        Ok(self.reserve(id, tenant.request, placement))
    }

    /// Closes all hosts below a node, so that they get no machines, and returns the tenants that
    /// have some there. Their reservations stay until they are
    /// released or relocated.
    ///
    /// Use it for a planned drain and after a failure. After a failure, each of these tenants lacks
    /// `lost` machines, and the promises to other tenants hold.
    pub fn close(&mut self, node: NodeId) -> Vec<AffectedTenant> {
        self.set_closed(node, true);
        self.affected(node)
    }

    /// Opens all hosts below a node again.
    pub fn open(&mut self, node: NodeId) {
        self.set_closed(node, false);
    }

    /// Returns the tenants with machines below a node. Their refits avoid all closed hosts.
    fn affected(&mut self, node: NodeId) -> Vec<AffectedTenant> {
        let here = |dc: &Self, tenant: &Tenant| -> u32 {
            let hosts = tenant.placement.hosts().iter();
            hosts
                .filter(|(host, _)| dc.topology.is_below(*host, node))
                .map(|(_, count)| *count)
                .sum()
        };
        let lost: Vec<(TenantId, u32)> = self
            .tenants()
            .map(|(id, tenant)| (id, here(self, tenant)))
            .filter(|(_, lost)| *lost > 0)
            .collect();
        lost.into_iter()
            .filter_map(|(tenant, lost)| {
                let refit = self.without(tenant, refitted).ok()?;
                Some(AffectedTenant {
                    tenant,
                    lost,
                    refit,
                })
            })
            .collect()
    }

    /// Returns a placement of all of a tenant's machines after a move of those on closed hosts, as
    /// [`Self::relocate`] would choose it. Nothing is reserved.
    ///
    /// # Errors
    /// There is no such tenant.
    pub fn refit(&mut self, id: TenantId) -> Result<Result<Placement, PlacementError>, AdmitError> {
        self.without(id, refitted)
    }

    /// Closes or opens all hosts below a node without looking for affected tenants, as for a state
    /// that comes from a store.
    pub fn set_closed(&mut self, node: NodeId, closed: bool) {
        let mut hosts = Vec::new();
        let mut todo = vec![node];
        while let Some(node) = todo.pop() {
            if self.topology.is_host(node) {
                hosts.push(node);
            } else {
                todo.extend(self.topology.children(node));
            }
        }
        for host in &hosts {
            self.closed[host.index()] = closed;
        }
        hosts.sort_unstable();
        self.refresh(hosts);
    }

    /// Calls `ask` with the data centre as it would be without a tenant, and returns the answer.
    pub(super) fn without<T>(
        &mut self,
        id: TenantId,
        ask: impl FnOnce(&Self, &Tenant) -> T,
    ) -> Result<T, AdmitError> {
        let tenant = self.release(id)?;
        let answer = ask(self, &tenant);
        self.reserve(id, tenant.request, tenant.placement);
        Ok(answer)
    }

    /// Returns a part of the placement with as many machines as the request has. Machines on closed
    /// hosts are removed first, then those of hosts with the fewest, so that hosts become free;
    /// where fault domains are requested, those of the domain with the most.
    fn shrink(&self, request: &Request, placement: &Placement) -> Placement {
        let mut hosts = placement.hosts().to_vec();
        // Machines of the last host are removed first.
        hosts.sort_by_key(|(host, count)| {
            std::cmp::Reverse((!self.is_closed(*host), *count, *host))
        });
        let mut domains: BTreeMap<Option<NodeId>, Vec<(NodeId, u32)>> = BTreeMap::new();
        for entry in hosts {
            let domain = request
                .domains
                .map(|domains| self.domain(entry.0, domains.height));
            domains.entry(domain).or_default().push(entry);
        }
        let sum = |hosts: &[(NodeId, u32)]| hosts.iter().map(|(_, count)| *count).sum::<u32>();
        let mut largest: BinaryHeap<(u32, Vec<(NodeId, u32)>)> = domains
            .into_values()
            .map(|hosts| (sum(&hosts), hosts))
            .collect();
        for _ in u64::from(request.vms)..placement.vms() {
            let Some((sum, mut hosts)) = largest.pop() else {
                break;
            };
            if let Some((_, count)) = hosts.last_mut() {
                *count -= 1;
                if *count == 0 {
                    hosts.pop();
                }
            }
            if sum > 1 {
                largest.push((sum - 1, hosts));
            }
        }
        Placement::new(largest.into_iter().flat_map(|(_, hosts)| hosts))
    }

    /// Returns a placement with all of `base` and the missing machines, as near to them as they
    /// fit.
    fn extend(&self, request: &Request, base: &Placement) -> Result<Placement, PlacementError> {
        let placement = self.found_beside(request, base);
        placement.map_err(|error| self.with_cpu_cause(request, error))
    }

    fn found_beside(
        &self,
        request: &Request,
        base: &Placement,
    ) -> Result<Placement, PlacementError> {
        let missing = u64::from(request.vms).saturating_sub(base.vms());
        if base.vms() == 0 {
            return search::fit(self, request, self.effort).0;
        }
        if missing == 0 {
            self.verify(request, base)?;
            self.verify_links(request, base)?;
            return Ok(base.clone());
        }
        let too_few = PlacementError::Slots {
            wanted: missing as u32,
            free: self.free(NodeId::TOP).slots,
        };
        // Sums are within 64 bits for as many machines as there are slots.
        if request.vms > self.topology.resources(NodeId::TOP).slots
            || missing > u64::from(self.free(NodeId::TOP).slots)
        {
            return Err(too_few);
        }
        let mut scope = super::ports::branches(&self.topology, base).1;
        loop {
            if let Some(placement) = self.extend_below(request, base, scope) {
                return Ok(placement);
            }
            match self.topology.parent(scope) {
                Some(parent) => scope = parent,
                None => break,
            }
        }
        let (outcome, looks) = complete::search(self, request, base, self.effort);
        match outcome {
            Outcome::Found(placement) => Ok(placement),
            Outcome::Nowhere => Err(PlacementError::Beside),
            Outcome::Unproved => Err(PlacementError::Unproved),
            Outcome::GaveUp => Err(PlacementError::Effort { looks }),
            Outcome::TooMany => Err(PlacementError::Unfound),
        }
    }

    /// Adds the missing machines to the first hosts below `scope` that take them, or returns None.
    fn extend_below(
        &self,
        request: &Request,
        base: &Placement,
        scope: NodeId,
    ) -> Option<Placement> {
        let mut hosts: BTreeMap<NodeId, u32> = base.hosts().iter().copied().collect();
        let mut missing = request.vms - base.vms() as u32;
        let mut search = search::Search::new(self, request, self.policy);
        search.look_below(scope);
        let mut domains = Domains::new(self, request, base);
        let mut todo = vec![scope];
        while let Some(node) = todo.pop() {
            if missing == 0 {
                break;
            }
            if self.free(node).slots == 0 {
                continue;
            }
            if !self.topology.is_host(node) {
                todo.extend(self.topology.children(node).rev());
                continue;
            }
            let had = hosts.get(&node).copied().unwrap_or(0);
            let most = self
                .vms_that_fit(node, request)
                .min(had + missing.min(domains.remaining(node)));
            let count = search.most_at(node, had + 1, most).ok()?;
            if count > had {
                missing -= count - had;
                domains.add(node, count - had);
                hosts.insert(node, count);
            }
        }
        if missing > 0 {
            return None;
        }
        let placement = Placement::new(hosts);
        self.verify(request, &placement).ok()?;
        self.verify_links(request, &placement).ok()?;
        Some(placement)
    }
}

/// Number of machines of each fault domain while machines are added.
struct Domains<'a> {
    dc: &'a Datacentre,
    height: u8,
    most: u32,
    sums: BTreeMap<NodeId, u32>,
}

impl<'a> Domains<'a> {
    fn new(dc: &'a Datacentre, request: &Request, base: &Placement) -> Self {
        let domains = request.domains;
        let mut new = Self {
            dc,
            height: domains.map_or(0, |domains| domains.height),
            most: domains.map_or(u32::MAX, |domains| domains.most(request.vms)),
            sums: BTreeMap::new(),
        };
        for &(host, count) in base.hosts() {
            new.add(host, count);
        }
        new
    }

    fn add(&mut self, host: NodeId, count: u32) {
        *self
            .sums
            .entry(self.dc.domain(host, self.height))
            .or_default() += count;
    }

    /// Returns how many more machines the fault domain of a host may get.
    fn remaining(&self, host: NodeId) -> u32 {
        let sum = self.sums.get(&self.dc.domain(host, self.height)).copied();
        self.most.saturating_sub(sum.unwrap_or(0))
    }
}
