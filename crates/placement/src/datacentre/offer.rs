//! Limits of hosts: the rules of their pacers, which every guarantee must satisfy as well.
//!
//! A host's report never widens the topology's limits. It does not move machines either: after a
//! lower report they stay, and [`Datacentre::broken_rule`] returns the broken rule.

use super::classes::{Classes, Links};
use super::{Datacentre, PlacementError};
use crate::host::{HostLimits, HostOffer, HostRule, Lateness};
use crate::load::Load;
use crate::request::{
    DEFAULT_BURSTS, Guarantee, KEEPS_DELAY_CLASSES, KEEPS_INWARD_BURSTS, Policy, Request,
};
use crate::topology::{Direction, NodeId, Port, PortId, Topology, backlog_limit};
use std::sync::Arc;
use tailbound_units::{Bytes, Rate};

/// Limit on the hosts that are checked for one that keeps a guarantee before a placement is
/// searched.
const HOSTS: usize = 20_000;

impl Datacentre {
    /// Treats hosts that have not reported as paced hosts of this version with the link and the
    /// frames of the topology. Otherwise they have no limits, as in the paper.
    pub fn assume_paced(&mut self) {
        self.assumes_paced = true;
    }

    /// Sets what a host keeps. Machines that are there stay.
    pub fn set_offer(&mut self, host: NodeId, offer: HostOffer) {
        let slot = &mut self.offers[host.index()];
        let before = slot.as_deref().copied().unwrap_or_default();
        *slot = (offer != HostOffer::Unknown).then(|| Box::new(offer));
        if (before == HostOffer::Nothing) != (offer == HostOffer::Nothing) {
            self.refresh(vec![host]);
        }
    }

    /// Returns what a host keeps.
    pub fn offer(&self, host: NodeId) -> HostOffer {
        self.offers[host.index()]
            .as_deref()
            .copied()
            .unwrap_or_default()
    }

    /// Returns the sum of the guarantees of all machines on a host, independent of their traffic.
    pub fn promised(&self, host: NodeId) -> Rate {
        Rate(self.promised[host.index()])
    }

    /// Returns the first rule that the host of some machines breaks for a tenant with machines
    /// there: of this request alone, or of all promises on the host together.
    pub fn broken_rule(&self, host: NodeId, request: &Request) -> Option<HostRule> {
        let paces = request.guarantee.as_ref().map_or(Ok(()), |guarantee| {
            self.check_terms(host, guarantee, request.vms)?;
            self.check_links(host)
        });
        paces.and_then(|()| self.check_cpu(host, request, 0)).err()
    }

    /// Checks what is promised on a host in all.
    pub fn check_all(&self, host: NodeId) -> Result<(), HostRule> {
        self.check_links(host)?;
        self.check_reserved(host)
    }

    /// Checks what its link is promised to carry in all.
    fn check_links(&self, host: NodeId) -> Result<(), HostRule> {
        let Some(limits) = self.limits(host)? else {
            return Ok(());
        };
        limits.check_sum(self.promised(host))?;
        let id = PortId {
            node: host,
            direction: Direction::Up,
        };
        if !Classes(self).carries(id, Links::Reported) {
            return Err(HostRule::Queue { link: limits.link });
        }
        Ok(())
    }

    /// Checks the guarantee of one of `vms` machines by itself.
    fn check_terms(&self, host: NodeId, guarantee: &Guarantee, vms: u32) -> Result<(), HostRule> {
        check_class(&self.topology, host, guarantee)?;
        match self.limits(host)? {
            Some(limits) => limits.check(guarantee, vms, self.topology.frame()),
            None => Ok(()),
        }
    }

    /// Returns the limits of a host; None if it has none.
    ///
    /// # Errors
    /// The host keeps no guarantee at all, or its frames are later than admission counts with.
    fn limits(&self, host: NodeId) -> Result<Option<HostLimits>, HostRule> {
        if self.policy == Policy::Locality {
            return Ok(None);
        }
        let port = PortId {
            node: host,
            direction: Direction::Up,
        };
        let built = Rate(self.topology.port(port).rate);
        match self.offer(host) {
            HostOffer::Unknown if self.assumes_paced => Ok(Some(HostLimits {
                link: built,
                reserved: Rate(0),
                frame: self.topology.frame(),
                slowest: Rate(0),
                subtree_bursts: DEFAULT_BURSTS.is_per_subtree(),
                inward_bursts: KEEPS_INWARD_BURSTS,
                delay_classes: KEEPS_DELAY_CLASSES,
                lateness: Lateness::Exact,
                packet: None,
            })),
            HostOffer::Unknown => Ok(None),
            HostOffer::Within(limits) => {
                limits.check_departures(self.topology.lateness(host), self.topology.packet())?;
                Ok(Some(HostLimits {
                    link: limits.link.min(built),
                    ..limits
                }))
            }
            HostOffer::BestEffort => Err(HostRule::NoGuarantee),
            HostOffer::Nothing => Err(HostRule::NoMachines),
        }
    }

    /// Returns whether a port may carry a load. The rate is the lower of the host's report and the
    /// topology.
    #[inline]
    pub(super) fn allows(&self, load: &Load, id: PortId) -> bool {
        let port = self.topology.port(id);
        match self.slower(id, port) {
            None => self.policy.allows(load, port),
            Some(slower) => self.policy.allows(load, &slower),
        }
    }

    /// Returns a port, with the queue of some class, with the lower of its rate and that of its host's
    /// report.
    pub(super) fn offered(&self, id: PortId, port: &Port) -> Port {
        self.slower(id, port).unwrap_or(*port)
    }

    /// Returns a port with its host's rate if that is slower than the topology's. As much may wait
    /// as it sends in the time that the topology promises.
    #[inline]
    fn slower(&self, id: PortId, port: &Port) -> Option<Port> {
        let Some(HostOffer::Within(limits)) = self.offers[id.node.index()].as_deref() else {
            return None;
        };
        if id.direction == Direction::Down || limits.link.0 >= port.rate {
            return None;
        }
        let frames = Bytes(self.topology.frame().0 * u64::from(port.parts));
        let most = backlog_limit(limits.link, port.capacity, frames);
        Some(Port {
            rate: limits.link.0,
            backlog_limit: most.min(port.backlog_limit),
            ..*port
        })
    }

    /// Returns how many more machines of a request a host can keep.
    pub(super) fn vms_that_are_kept(&self, host: NodeId, request: &Request) -> u32 {
        match self.vms_that_are_paced(host, request) {
            0 => 0,
            paced => paced.min(self.vms_with_cpu(host, request)),
        }
    }

    fn vms_that_are_paced(&self, host: NodeId, request: &Request) -> u32 {
        let Some(guarantee) = &request.guarantee else {
            return u32::MAX;
        };
        if check_class(&self.topology, host, guarantee).is_err() {
            return 0;
        }
        match self.limits(host) {
            Err(_) => 0,
            Ok(None) => u32::MAX,
            Ok(Some(limits)) => {
                let frame = self.topology.frame();
                if limits.check(guarantee, request.vms, frame).is_err() {
                    return 0;
                }
                let left = limits.room().0.saturating_sub(self.promised[host.index()]);
                // The least bandwidth is above zero.
                u32::try_from(left / guarantee.bandwidth.0).unwrap_or(u32::MAX)
            }
        }
    }

    /// Checks that a host keeps `count` machines of a request, beside the machines of others.
    pub(super) fn check_machines(
        &self,
        host: NodeId,
        request: &Request,
        count: u32,
    ) -> Result<(), HostRule> {
        self.check_cpu(host, request, count)?;
        let Some(guarantee) = &request.guarantee else {
            return match self.offer(host) {
                HostOffer::Nothing => Err(HostRule::NoMachines),
                _ => Ok(()),
            };
        };
        self.check_terms(host, guarantee, request.vms)?;
        let Some(limits) = self.limits(host)? else {
            return Ok(());
        };
        let more = guarantee.bandwidth.0.saturating_mul(count.into());
        limits.check_sum(Rate(self.promised(host).0.saturating_add(more)))
    }

    /// Checks that some host keeps the guarantee, be it full or not.
    pub(super) fn check_hosts(&self, request: &Request) -> Result<(), PlacementError> {
        let Some(guarantee) = &request.guarantee else {
            return Ok(());
        };
        let mut nearest = None;
        for host in self.topology.hosts().iter().take(HOSTS) {
            match self.check_terms(*host, guarantee, request.vms) {
                Ok(()) => return Ok(()),
                // That of a host that says what it keeps tells more.
                Err(rule @ (HostRule::NoGuarantee | HostRule::NoMachines)) => {
                    nearest.get_or_insert((*host, rule));
                }
                Err(rule) => nearest = Some((*host, rule)),
            }
        }
        match nearest {
            Some((host, rule)) if self.topology.hosts().len() <= HOSTS => {
                let host = Arc::clone(self.topology.shared_name(host));
                Err(PlacementError::Hosts { host, rule })
            }
            _ => Ok(()),
        }
    }
}

/// Checks that a host has the delay class of a guarantee: one with departure times has one class.
fn check_class(topology: &Topology, host: NodeId, guarantee: &Guarantee) -> Result<(), HostRule> {
    match guarantee.class {
        Some(class) if topology.lateness(host).is_some() => Err(HostRule::DelayClass { class }),
        _ => Ok(()),
    }
}
