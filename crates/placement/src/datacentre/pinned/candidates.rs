//! Verdicts on hosts for more machines of a tenant, without a change.

use super::super::classes::{Addition, Classes, Links};
use super::super::ports::{self, BOTH, Cut};
use super::{Datacentre, Placement, PlacementError, Refusal, Tenant, TenantId, verify_host};
use crate::datacentre::PortOverload;
use crate::load::{Load, Wait};
use crate::request::{Policy, Request};
use crate::topology::{Direction, NodeId, PortId};
use std::collections::{HashMap, HashSet};
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
            let (port, load) = (dc.offered(id, dc.topology.port(id)), dc.load(id));
            let rate = port.rate.saturating_sub(load.rate());
            let used = load.backlog(port.rate, port.feed);
            let room = used.map_or(0, |used| port.backlog_limit.saturating_sub(used));
            spare.bandwidth = spare.bandwidth.min(Rate(rate));
            spare.burst = spare.burst.min(Bytes(room / 8));
        }
    }
    spare
}

/// The link of a node on the way from a host up to the tenant's tree: queue capacities and numbers
/// of links, up and down.
type Link = [(Nanos, u32); 2];

/// The loads of a tenant with more machines. They are equal for all hosts with equal links and
/// lateness whose ways meet the tenant's tree in one node.
#[derive(Debug)]
struct PathLoads {
    /// The refusal of the placement itself, or the worst port of the tenant's tree.
    refusal: Option<Refusal>,
    /// The tenant's loads on the ports of the way, from the host on.
    loads: Vec<[Load; 2]>,
}

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
    /// The nodes of the tenant's tree, and all nodes above it.
    tree: HashSet<NodeId>,
    crossed: HashMap<(NodeId, u32, Option<Nanos>, Vec<Link>), PathLoads>,
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
        let mut hosts = tenant.placement.hosts().iter().map(|(host, _)| *host);
        let first = hosts.next()?;
        let scope = hosts.fold(first, |scope, host| dc.topology.meeting(scope, host));
        let above = std::iter::successors(Some(scope), |node| dc.topology.parent(*node));
        Some(Self {
            dc,
            request: tenant.request,
            present: Some(tenant.placement.clone()),
            tree: own.keys().map(|port| port.node).chain(above).collect(),
            own,
            crossed: HashMap::new(),
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
            tree: HashSet::new(),
            crossed: HashMap::new(),
        }
    }

    /// Checks whether a host takes `vms` more machines.
    ///
    /// # Errors
    /// The rule that refuses them.
    pub fn check(&mut self, host: NodeId, vms: u32) -> Result<(), Refusal> {
        verify_host(self.dc, &self.request, host, vms)?;
        if self.present.is_none() {
            return self.check_link(host, vms);
        }
        if self.request.domains.is_some() {
            // Each host has a fault domain of its own.
            self.crossed.clear();
        }
        let dc = self.dc;
        let above = std::iter::successors(Some(host), |node| dc.topology.parent(*node));
        let path: Vec<NodeId> = above.take_while(|node| !self.tree.contains(node)).collect();
        let last = path
            .last()
            .map_or(Some(host), |last| dc.topology.parent(*last));
        let links = path.iter().map(|node| {
            BOTH.map(|direction| {
                let node = *node;
                let port = dc.topology.port(PortId { node, direction });
                (port.capacity, port.parts)
            })
        });
        let key = (
            last.unwrap_or(NodeId::TOP),
            vms,
            dc.topology.lateness(host),
            links.collect(),
        );
        if !self.crossed.contains_key(&key) {
            let crossed = self.cross(host, vms, &path);
            self.crossed.insert(key.clone(), crossed);
        }
        let crossed = &self.crossed[&key];
        if let Some(refusal) = &crossed.refusal {
            return Err(refusal.clone());
        }
        let mut worst = None;
        for (node, loads) in path.iter().zip(&crossed.loads) {
            for (direction, load) in BOTH.into_iter().zip(loads) {
                let id = PortId {
                    node: *node,
                    direction,
                };
                self.note_overload(id, None, load, &mut worst);
            }
        }
        worst.map_or(Ok(()), |worst| Err(Refusal::of_port(&worst)))
    }

    /// Checks the tenant's tree with more machines on a host, and returns the loads on the way from
    /// the host to the tree.
    fn cross(&self, host: NodeId, vms: u32, path: &[NodeId]) -> PathLoads {
        let dc = self.dc;
        let present = self.present.iter().flat_map(Placement::hosts);
        let tenant = Tenant {
            request: Request {
                vms: self.request.vms.saturating_add(vms),
                ..self.request
            },
            placement: Placement::new(present.copied().chain([(host, vms)])),
        };
        let mut crossed = PathLoads {
            refusal: None,
            loads: vec![[Load::NONE; 2]; path.len()],
        };
        if let Err(error) = dc.verify_place(&tenant.request, &tenant.placement) {
            crossed.refusal = Some(Refusal::of_placement(&error));
            return crossed;
        }
        let mut worst = None;
        ports::for_each_load(&dc.topology, dc.policy, &tenant, |id, load| {
            if let Some(place) = path.iter().position(|node| *node == id.node) {
                crossed.loads[place][id.direction as usize] = *load;
                return;
            }
            self.note_overload(id, self.own.get(&id), load, &mut worst);
        });
        crossed.refusal = worst.as_ref().map(Refusal::of_port);
        crossed
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
        let slots = dc.topology.resources(NodeId::TOP).slots;
        if self.request.vms > slots {
            // Sums of guarantees are within 64 bits for as many machines as there are slots.
            let error = PlacementError::Slots {
                wanted: self.request.vms,
                free: dc.free(NodeId::TOP).slots,
            };
            return Err(Refusal::of_placement(&error));
        }
        let Some(source) = self.request.source(dc.policy, &dc.topology) else {
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
            // The hosts of the others are unknown.
            let wait = match direction {
                Direction::Up => dc.topology.wait_of_timers(host),
                Direction::Down => Wait::default(),
            };
            let load = source.across(cut.senders(direction), cut.vms, wait, parts);
            self.note_overload(id, None, &load, &mut worst);
        }
        worst.map_or(Ok(()), |worst| Err(Refusal::of_port(&worst)))
    }

    /// Notes a port that may not carry the tenant's new load, without its present one, if it is the
    /// worst so far.
    fn note_overload(
        &self,
        id: PortId,
        removed: Option<&Load>,
        added: &Load,
        worst: &mut Option<PortOverload>,
    ) {
        let addition = Addition {
            rank: self.dc.topology.rank(self.request.class()),
            removed,
            added,
        };
        let overload = Classes(self.dc).overload(addition, id, Links::Reported);
        let is_worse = |overload: &PortOverload| {
            let worst = worst.as_ref();
            worst.is_none_or(|worst| overload.is_worse_than(worst))
        };
        if let Some(overload) = overload.filter(is_worse) {
            *worst = Some(overload);
        }
    }
}
