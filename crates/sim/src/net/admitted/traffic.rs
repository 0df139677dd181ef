//! Flows of tenants, and their times.

use super::Admitted;
use crate::net::{Envelope, Fabric, FlowConfig, Pattern, PortConfig, SourceConfig, Time};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use tailbound_placement::{Datacentre, Direction, NodeId, PortId, Tenant, Topology};
use tailbound_units::{Bytes, Nanos, Rate};

/// Pairs of machines that exchange data inside each tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Traffic {
    /// All machines to one, drawn at random.
    ToOne,
    /// All machines that can send through this port, spread over the receivers behind it.
    Target(PortId),
    /// Each machine to another one, drawn at random.
    Shuffle,
}

/// Times of a source's bursts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timing {
    /// All sources together.
    Together,
    /// Each source up to this much later.
    Shifted(Nanos),
    /// Repeatedly, each source with its own pause.
    Again,
    /// At random times, within the envelope.
    Random,
}

/// A flow between two machines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) envelope: Envelope,
    /// The guaranteed delay.
    pub(super) promised: Option<Nanos>,
}

/// Returns the position of a port among the simulator's.
pub(super) fn place(port: PortId) -> usize {
    // The top has no ports.
    2 * (port.node.index() - 1) + usize::from(port.direction == Direction::Down)
}

/// Returns all ports, in the order of their places.
pub(crate) fn ports(topology: &Topology) -> impl Iterator<Item = PortId> {
    let mut nodes: Vec<NodeId> = Vec::with_capacity(topology.len());
    for height in 0..topology.height(NodeId::TOP) {
        nodes.extend(topology.at_height(height));
    }
    nodes.sort_unstable();
    nodes.into_iter().flat_map(|node| {
        [Direction::Up, Direction::Down].map(|direction| PortId { node, direction })
    })
}

/// Returns the buffer of a port for traffic with guarantees: the data that its link sends in its
/// capacity.
fn buffer(topology: &Topology, port: PortId) -> Bytes {
    let port = topology.port(port);
    Rate(port.rate).bytes_in(port.capacity)
}

/// Returns the flows of one run.
pub(super) fn pairs(dc: &Datacentre, traffic: Traffic, random: &mut Pcg64Mcg) -> Vec<Pair> {
    let mut all = Vec::new();
    for (_, tenant) in dc.tenants() {
        of_tenant(dc.topology(), tenant, traffic, random, &mut all);
    }
    all
}

fn of_tenant(
    topology: &Topology,
    tenant: &Tenant,
    traffic: Traffic,
    random: &mut Pcg64Mcg,
    all: &mut Vec<Pair>,
) {
    let Some(guarantee) = tenant.request.guarantee else {
        return;
    };
    let hosts = tenant.placement.hosts().iter();
    let machines = hosts.flat_map(|(host, count)| (0..*count).map(|_| *host));
    let machines: Vec<NodeId> = machines.collect();
    // Senders and receivers, by their positions among the machines.
    let (senders, receivers): (Vec<usize>, Vec<usize>) = match traffic {
        Traffic::ToOne => {
            let victim = random.random_range(0..machines.len());
            let others = (0..machines.len()).filter(|it| *it != victim).collect();
            (others, vec![victim])
        }
        Traffic::Target(port) => {
            let below = |it: &usize| topology.is_below(machines[*it], port.node);
            let (below, above) = (0..machines.len()).partition(below);
            match port.direction {
                Direction::Up => (below, above),
                Direction::Down => (above, below),
            }
        }
        Traffic::Shuffle => {
            let mut order: Vec<usize> = (0..machines.len()).collect();
            for last in (1..order.len()).rev() {
                order.swap(last, random.random_range(0..=last));
            }
            // Each to the next one of a cycle in random order.
            let next = (0..order.len()).map(|it| order[(it + 1) % order.len()]);
            (order.clone(), next.collect())
        }
    };
    if receivers.is_empty() {
        return;
    }
    // The hose model: all senders to a receiver together get its bandwidth.
    let most = senders.len().div_ceil(receivers.len()) as u64;
    for (index, sender) in senders.iter().enumerate() {
        let receiver = receivers[index % receivers.len()];
        let (from, to) = (machines[*sender], machines[receiver]);
        if from == to {
            continue;
        }
        all.push(Pair {
            from,
            to,
            envelope: Envelope {
                rate: Rate((guarantee.bandwidth.0 / most).max(1)),
                burst: guarantee.burst.max(topology.frame()),
                burst_rate: guarantee.burst_rate,
                frame: topology.frame(),
            },
            promised: guarantee.delay,
        });
    }
}

impl Admitted {
    /// Returns the network of one run. With `below`, each host also sends best-effort traffic at
    /// its link's rate to another host.
    pub(super) fn fabric(
        &self,
        topology: &Topology,
        pairs: &[Pair],
        timing: Timing,
        below: bool,
        random: &mut Pcg64Mcg,
    ) -> Fabric {
        let ports = ports(topology).map(|port| PortConfig {
            rate: Rate(topology.port(port).rate),
            latency: Nanos::ZERO,
            propagation: Nanos::ZERO,
            buffer: [Some(buffer(topology, port)); 2],
        });
        let path = |from: NodeId, to: NodeId| {
            let path = topology.path(from, to).into_iter().map(place);
            path.collect::<Vec<_>>()
        };
        let mut flows = Vec::with_capacity(pairs.len());
        for pair in pairs {
            let (start, pattern) = match timing {
                Timing::Together => (Nanos::ZERO, Pattern::Greedy),
                Timing::Shifted(most) => (Nanos(random.random_range(0..=most.0)), Pattern::Greedy),
                Timing::Again => {
                    let pause = Nanos(random.random_range(0..=100_000));
                    (Nanos::ZERO, Pattern::Bursts { pause })
                }
                Timing::Random => (Nanos::ZERO, Pattern::Random),
            };
            let start = Time::from(start);
            flows.push(FlowConfig {
                source: SourceConfig {
                    envelope: pair.envelope,
                    pattern,
                    start,
                    stop: start + self.after(),
                    class: 0,
                },
                path: path(pair.from, pair.to),
            });
        }
        if below {
            let hosts = topology.hosts();
            for (index, host) in hosts.iter().enumerate() {
                let other = (index + random.random_range(1..hosts.len())) % hosts.len();
                let rate = Rate(self.host_link.rate.0);
                flows.push(FlowConfig {
                    source: SourceConfig {
                        envelope: Envelope {
                            rate,
                            burst: topology.frame(),
                            burst_rate: None,
                            frame: topology.frame(),
                        },
                        pattern: Pattern::Greedy,
                        start: Time::ZERO,
                        stop: self.after(),
                        class: 1,
                    },
                    path: path(*host, hosts[other]),
                });
            }
        }
        Fabric {
            ports: ports.collect(),
            flows,
        }
    }
}
