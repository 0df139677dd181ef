//! Verdicts on hosts for more machines of a tenant, without a change.

use super::super::ports::{self, BOTH, Cut, for_each_crossing};
use super::{Datacentre, Placement, PlacementError, Refusal, Tenant, TenantId, verify_host};
use crate::datacentre::PortOverload;
use crate::load::Load;
use crate::request::{Policy, Request};
use crate::topology::{NodeId, PortId};
use std::collections::HashMap;
use tailbound_units::{Bytes, Nanos, Rate};

/// Unreserved capacity of the scarcest port between a host and the top of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spare {
    /// The lowest unreserved rate of these ports.
    pub bandwidth: Rate,
    /// The smallest unused part of their queues.
    pub burst: Bytes,
}

/// Returns the unreserved capacity of the scarcest port between a host and the top.
pub fn spare(dc: &Datacentre, host: NodeId) -> Spare {
    let mut spare = Spare {
        bandwidth: Rate(u64::MAX),
        burst: Bytes(u64::MAX),
    };
    let above = std::iter::successors(Some(host), |node| dc.topology.parent(*node));
    for node in above.filter(|node| *node != NodeId::TOP) {
        for direction in BOTH {
            let id = PortId { node, direction };
            let (port, load) = (dc.offered(id), dc.load(id));
            let rate = port.rate.saturating_sub(load.rate());
            let used = load.backlog(port.rate, port.feed);
            let room = used.map_or(0, |used| port.backlog_limit.saturating_sub(used));
            spare.bandwidth = spare.bandwidth.min(Rate(rate));
            spare.burst = spare.burst.min(Bytes(room / 8));
        }
    }
    spare
}

/// The parameters of the load of a tenant at a port: machines in all, those that send, the wait of
/// their frames before the port, and the number of links.
type LoadKey = (u32, u32, Nanos, u32);

/// Verdicts for more machines of one tenant.
#[derive(Debug)]
pub struct Candidates<'a> {
    dc: &'a Datacentre,
    /// The request; its number of machines is that of the whole tenant.
    request: Request,
    /// The tenant's placement; None for one that does not exist yet.
    present: Option<Placement>,
    /// The present loads of the tenant.
    own: HashMap<PortId, Load>,
    loads: HashMap<LoadKey, Load>,
}

impl<'a> Candidates<'a> {
    /// Returns verdicts for more machines of a tenant: the same as of a reservation. None if there
    /// is no such tenant.
    pub fn of_tenant(dc: &'a Datacentre, id: TenantId) -> Option<Self> {
        let tenant = dc.tenant(id)?;
        let mut own = HashMap::new();
        ports::for_each_load(&dc.topology, dc.policy, tenant, |port, load| {
            own.insert(port, *load);
        });
        Some(Self {
            dc,
            request: tenant.request,
            present: Some(tenant.placement.clone()),
            own,
            loads: HashMap::new(),
        })
    }

    /// Returns verdicts for machines of a tenant that does not exist yet. The hosts of the others
    /// of its `request.vms` machines are not known, so only the host and its own link are checked:
    /// a host that is refused has no place in any placement of the tenant.
    pub fn of_request(dc: &'a Datacentre, request: &Request) -> Self {
        Self {
            dc,
            request: *request,
            present: None,
            own: HashMap::new(),
            loads: HashMap::new(),
        }
    }

    /// Checks whether a host takes `vms` more machines.
    ///
    /// # Errors
    /// The rule that refuses them.
    pub fn check(&mut self, host: NodeId, vms: u32) -> Result<(), Refusal> {
        verify_host(self.dc, &self.request, host, vms)?;
        let slots = self.dc.topology.resources(NodeId::TOP).slots;
        if self.present.is_none() && self.request.vms > slots {
            // Sums of guarantees are within 64 bits for as many machines as there are slots.
            let error = PlacementError::Slots {
                wanted: self.request.vms,
                free: self.dc.free(NodeId::TOP).slots,
            };
            return Err(Refusal::of_placement(&error));
        }
        let tenant = match &self.present {
            None => return self.check_link(host, vms),
            Some(present) => {
                let hosts = present.hosts().iter().copied();
                Tenant {
                    request: Request {
                        vms: self.request.vms.saturating_add(vms),
                        ..self.request
                    },
                    placement: Placement::new(hosts.chain([(host, vms)])),
                }
            }
        };
        let place = self.dc.verify_place(&tenant.request, &tenant.placement);
        place.map_err(|error| Refusal::of_placement(&error))?;
        let (dc, own, loads) = (self.dc, &self.own, &mut self.loads);
        let mut worst: Option<PortOverload> = None;
        for_each_crossing(&dc.topology, dc.policy, &tenant, |id, crossing| {
            let key = (
                crossing.vms,
                crossing.senders,
                crossing.waited,
                crossing.parts,
            );
            let load = *loads.entry(key).or_insert_with(|| crossing.load());
            let others = match own.get(&id) {
                Some(own) => dc.load(id).minus(own),
                None => *dc.load(id),
            };
            note_overload(dc, id, others, load, &mut worst);
        });
        worst.map_or(Ok(()), |worst| Err(Refusal::of_port(&worst)))
    }

    /// Returns for how many more machines [`Self::check`] accepts the host, if it accepts `good`. A
    /// bisection finds the number; ports refuse more machines if they refuse fewer. Of a tenant
    /// that does not exist yet, at most its number of machines.
    pub fn most(&mut self, host: NodeId, mut good: u32) -> u32 {
        let fit = self.dc.vms_that_fit(host, &self.request);
        let limit = if self.present.is_none() {
            fit.min(self.request.vms)
        } else {
            fit
        };
        let mut bad = limit.max(good) + 1;
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            if self.check(host, middle).is_ok() {
                good = middle;
            } else {
                bad = middle;
            }
        }
        good
    }

    /// Checks the ports of a host's own link, with `vms` of all machines there.
    fn check_link(&self, host: NodeId, vms: u32) -> Result<(), Refusal> {
        let dc = self.dc;
        let Some(source) = self.request.source(dc.policy, dc.topology.frame()) else {
            return Ok(());
        };
        if vms >= self.request.vms || dc.policy == Policy::Locality {
            return Ok(());
        }
        let cut = Cut {
            below: vms,
            vms: self.request.vms,
        };
        let mut worst = None;
        for direction in BOTH {
            let id = PortId {
                node: host,
                direction,
            };
            let parts = dc.topology.port(id).parts;
            let load = source.across(cut.senders(direction), cut.vms, Nanos::ZERO, parts);
            note_overload(dc, id, *dc.load(id), load, &mut worst);
        }
        worst.map_or(Ok(()), |worst| Err(Refusal::of_port(&worst)))
    }
}

/// Notes a port that may not carry both loads, if it is the worst so far.
fn note_overload(
    dc: &Datacentre,
    id: PortId,
    carried: Load,
    added: Load,
    worst: &mut Option<PortOverload>,
) {
    let sum = carried.plus(&added);
    if dc.policy.allows(&sum, dc.topology.port(id)) && dc.allows(&sum, id) {
        return;
    }
    let port = dc.offered(id);
    let found = PortOverload {
        port: id,
        name: dc.topology.port_name(id),
        carried,
        added,
        rate: port.rate,
        backlog_limit: port.backlog_limit,
        backlog: sum.backlog(port.rate, port.feed),
        capacity: port.capacity,
    };
    if worst
        .as_ref()
        .is_none_or(|worst| found.is_worse_than(worst))
    {
        *worst = Some(found);
    }
}
