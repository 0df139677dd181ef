//! The network of tenants: their connections, their hosts' pacers, and their guarantees.

use super::hose::{self, Member};
use super::hosts::Place;
use super::line::Line;
use super::messages::Setting;
use super::paced::{PacedHost, Sender};
use super::packet::{OVERHEAD, Protocol};
use super::promises::{Promise, Promises};
use super::racks::{BuiltRacks, FRAME};
use super::rounds::{Rounds, Sends};
use super::tenants::{AdmittedTenant, Centre};
use super::topology::hash;
use crate::net::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;
use tailbound_dataplane::pacer::{Home, PacerError};
use tailbound_dataplane::{Guarantee, GuestId};
use tailbound_hose::InwardBurst;
use tailbound_placement::{Direction, Policy, PortId};
use tailbound_units::{Bytes, Nanos};

/// A machine of a tenant.
#[derive(Debug, Clone, Copy)]
struct Machine {
    host: usize,
    /// Slot on its host.
    slot: u32,
}

/// A connection between two machines.
#[derive(Debug, Clone, Copy)]
struct Pair {
    tenant: u32,
    /// Numbers of its machines among all machines.
    from: u32,
    to: u32,
}

/// Tenants with their machines and connections.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) centre: Centre,
    machines: Vec<Machine>,
    pairs: Vec<Pair>,
    /// Number of guests of each host.
    guests: Vec<u32>,
}

impl Joined {
    pub(super) fn new(centre: Centre, hosts: usize) -> Self {
        let mut joined = Self {
            machines: Vec::new(),
            pairs: Vec::new(),
            guests: vec![0; hosts],
            centre,
        };
        for (tenant, placed) in (0..).zip(&joined.centre.tenants) {
            let first = joined.machines.len() as u32;
            for &host in &placed.machines {
                let slot = joined.guests[host];
                joined.guests[host] += 1;
                joined.machines.push(Machine { host, slot });
            }
            let pairs = placed.pairs.iter().map(|&(from, to)| Pair {
                tenant,
                from: first + from as u32,
                to: first + to as u32,
            });
            joined.pairs.extend(pairs);
        }
        joined
    }

    /// Returns the rounds before `until` of the tenants whose class is not quiet. The first end of a
    /// connection sends.
    pub(super) fn rounds(&self, until: Nanos, is_quiet: impl Fn(usize) -> bool) -> Rounds {
        let sends = self.centre.tenants.iter().map(|tenant| Sends {
            ends: Vec::new(),
            size: tenant.size,
            every: tenant.every,
            due: if is_quiet(tenant.class) {
                Nanos::MAX
            } else {
                hose::SETTLED + tenant.first
            },
            flying: 0,
        });
        let mut sends: Vec<Sends> = sends.collect();
        for (number, pair) in (0..).zip(&self.pairs) {
            sends[pair.tenant as usize].ends.push(2 * number);
        }
        Rounds::new(sends, until)
    }

    /// Returns the hosts of both ends of each connection, and its tenant.
    fn ends(&self) -> impl Iterator<Item = (usize, usize, u32)> {
        self.pairs.iter().flat_map(|pair| {
            let host = |machine: u32| self.machines[machine as usize].host;
            let (from, to) = (host(pair.from), host(pair.to));
            [(from, to, pair.tenant), (to, from, pair.tenant)]
        })
    }

    /// Appends the paths between all ends to `routes`. Frames within a host pass its own switch,
    /// after its pacer if hosts pace.
    pub(super) fn places(
        &self,
        racks: &BuiltRacks,
        protocol: Protocol,
        is_paced: bool,
        routes: &mut Vec<NodeId>,
    ) -> Vec<Place> {
        let ports = racks.ports();
        let all_hosts = NodeId(ports.len() as u32);
        let mut way = Vec::new();
        let place = |(end, (from, to, owner))| {
            way.clear();
            if is_paced && from == to {
                way.push(from);
            }
            racks.way(from, to, hash(end), &mut way);
            let opening = |port: &usize| {
                let Line { rate, delay } = ports[*port].line;
                (rate.time_for(Bytes(OVERHEAD)) + delay).0
            };
            let place = Place {
                host: from as u32,
                guest: 1,
                route: routes.len() as u32,
                round_trip: Nanos(2 * way.iter().map(opening).sum::<u64>()),
                protocol,
                owner,
            };
            routes.extend(way.iter().map(|port| NodeId(*port as u32)));
            routes.push(all_hosts);
            place
        };
        (0..).zip(self.ends()).map(place).collect()
    }

    /// Returns hosts that pace, with their guests' guarantees under a policy.
    ///
    /// # Errors
    /// The rule of a pacer that a guarantee breaks.
    pub(super) fn paced(
        &self,
        racks: &BuiltRacks,
        setting: &Setting,
    ) -> Result<Vec<PacedHost>, PacerError> {
        let Some(pacer) = setting.pacer else {
            return Ok(Vec::new());
        };
        let policy = setting.policy.unwrap_or_default();
        let senders = self.senders();
        let mut guests: Vec<Vec<Option<Guarantee>>> = vec![Vec::new(); racks.hosts()];
        for tenant in &self.centre.tenants {
            let guarantee = tenant.is_promised.then(|| paced(tenant, policy, racks));
            for host in &tenant.machines {
                guests[*host].push(guarantee);
            }
        }
        let lines = racks.ports();
        let groups = Arc::new(racks.groups());
        let sizes = self.sizes();
        let host = |(number, guests): (usize, Vec<_>)| {
            let line = lines[number].line;
            let mut host = PacedHost::new(
                line,
                pacer.work_conserving,
                &guests,
                Arc::clone(&senders),
                Arc::clone(racks.priorities()),
            )?;
            for (slot, machines) in (0..).zip(sizes.get(number).into_iter().flatten()) {
                let home = Home {
                    host: number as u64,
                    machines: *machines,
                    groups: Arc::clone(&groups),
                };
                host.set_home(GuestId::first(slot), home);
            }
            Ok(host)
        };
        let hosts = guests.into_iter().enumerate().map(host);
        hosts.collect()
    }

    /// Returns the number of machines of each guest's tenant, by host and slot.
    fn sizes(&self) -> Vec<Vec<u32>> {
        let mut sizes = Vec::new();
        for tenant in &self.centre.tenants {
            for host in &tenant.machines {
                if sizes.len() <= *host {
                    sizes.resize(*host + 1, Vec::new());
                }
                sizes[*host].push(tenant.machines.len() as u32);
            }
        }
        sizes
    }

    /// Returns the machines that divide their guaranteed bandwidth among their senders.
    pub(super) fn members(&self, policy: Policy, racks: &BuiltRacks) -> Vec<Member> {
        let tenants = (0..).zip(&self.centre.tenants);
        let owners = tenants.flat_map(|(number, tenant)| {
            std::iter::repeat_n((number, tenant), tenant.machines.len())
        });
        let machines = (0..).zip(&self.machines).zip(owners);
        let machines = machines.filter(|(_, (_, tenant))| tenant.is_promised);
        let member =
            |((number, machine), (tenant, of)): ((u32, &Machine), (u32, &AdmittedTenant))| {
                let guarantee = paced(of, policy, racks);
                Member {
                    host: machine.host,
                    slot: machine.slot,
                    number,
                    tenant,
                    bandwidth: guarantee.bandwidth,
                    burst: guarantee.burst,
                    inward: guarantee
                        .credit
                        .zip(of.guarantee.burst_in)
                        .map(|(part, most)| InwardBurst { most, part }),
                    machines: of.machines.len() as u32,
                }
            };
        machines.map(member).collect()
    }

    /// Returns the sender to each end.
    fn senders(&self) -> Arc<[Sender]> {
        let senders = self.pairs.iter().flat_map(|pair| {
            let machine = |number: u32| self.machines[number as usize];
            [(pair.to, pair.from), (pair.from, pair.to)].map(|(from, to)| Sender {
                slot: machine(from).slot,
                destination: hose::address(to),
                is_local: machine(from).host == machine(to).host,
            })
        });
        senders.collect()
    }

    /// Returns the guarantees of the paths to each end.
    pub(super) fn promises(&self, racks: &BuiltRacks) -> Promises {
        let mut bounds = BTreeMap::new();
        let (ports, mut way) = (racks.ports(), Vec::new());
        // An end's sender is the other end.
        let ends = self.ends().map(|(to, from, tenant)| {
            let tenant = &self.centre.tenants[tenant as usize];
            if !tenant.is_promised || from == to {
                return None;
            }
            way.clear();
            // All links of a rack have the same bound.
            racks.way(from, to, 0, &mut way);
            let flying: u64 = way.iter().map(|port| ports[*port].line.delay.0).sum();
            let class = tenant.guarantee.class;
            let bounds = bounds
                .entry(class)
                .or_insert_with(|| racks.bounds(&self.centre.datacentre, class));
            let mut queues = way[1..].iter().map(|port| bounds[*port]);
            let queues = queues.try_fold(0, |sum, bound| Some(sum + bound?.0));
            let tree = racks.tree().of_class(class)?;
            let own = tree.port(PortId {
                node: tree.hosts()[from],
                direction: Direction::Up,
            });
            let delay = tenant.guarantee.delay;
            let delay = delay.map(|it| it.since(own.capacity) + Nanos(flying));
            Some(Promise {
                bound: queues.map_or(Nanos::MAX, |queues| Nanos(queues + flying)),
                delay: delay.unwrap_or(Nanos::MAX),
            })
        });
        let priorities = Arc::clone(racks.priorities());
        Promises::new(ends.collect(), racks.host_rate(), priorities)
    }
}

/// Returns the guarantee that the pacer enforces for a tenant's machine under a policy.
fn paced(tenant: &AdmittedTenant, policy: Policy, racks: &BuiltRacks) -> Guarantee {
    let of = &tenant.guarantee;
    let link = racks.host_rate();
    let bandwidth = of.bandwidth;
    match policy {
        // No machine may burst.
        Policy::Oktopus => Guarantee::new(bandwidth, FRAME, bandwidth),
        Policy::Silo | Policy::OktopusBursts | Policy::Locality => {
            let burst_rate = of.burst_rate.unwrap_or(link).min(link);
            let vms = u32::try_from(tenant.machines.len()).unwrap_or(u32::MAX);
            let credit = of.credit(vms).filter(|credit| *credit < of.burst);
            Guarantee {
                bursts: of.counted_bursts(),
                // Only Silo's rules count on limited inward bursts.
                credit: credit.filter(|_| policy == Policy::Silo),
                class: of.class.and_then(|number| racks.delay_class(number)),
                ..Guarantee::new(bandwidth, of.burst, burst_rate.max(bandwidth))
            }
        }
    }
}
