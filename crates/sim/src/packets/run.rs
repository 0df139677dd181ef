//! One run: the network of a setting, its load, and its outcome.

use super::hose::{Hoses, STEP};
use super::hosts::{Hosts, OwnParts, Place};
use super::judged::TenantsOutcome;
use super::line::{Sends, Tier};
use super::machines::Machines;
use super::messages::{Messages, Setting};
use super::paced::PacedHost;
use super::packet::{GuestSeat, OVERHEAD, Packet, Protocol};
use super::piped::{PipedHost, Talker};
use super::placed::Joined;
use super::pool::Pool;
use super::port::{Port, PortConfig, PortTally, Room};
use super::promises::Promises;
use super::racks::BuiltRacks;
use super::streams::Streaming;
use super::talks::{self, Talking};
use super::tally::{Outcome, Tally, Totals};
use super::tenants::Tenants;
use super::topology::{Topology, hash};
use super::trace::Replaying;
use super::workload::{HostsLoad, Workload};
use crate::net::{Node, NodeId, Simulation, Time};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::sync::Arc;
use tailbound_dataplane::pacer::PacerError;
use tailbound_dataplane::{HashKeys, Meter, MeterConfig};
use tailbound_experiment::Name;
use tailbound_units::{Bytes, Nanos};

/// Interval of the check whether all messages that count were received.
const END_CHECK_INTERVAL: Nanos = Nanos::from_millis(1);

/// The kinds of nodes.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are ports")]
enum Element {
    Port(Port),
    Paced(Box<PacedHost>),
    Piped(Box<PipedHost>),
    Hosts(Box<Hosts>),
}

impl Node<Packet> for Element {
    fn poll_at(&self) -> Time {
        match self {
            Self::Port(port) => port.poll_at(),
            Self::Paced(host) => host.poll_at(),
            Self::Piped(host) => host.poll_at(),
            Self::Hosts(hosts) => hosts.poll_at(),
        }
    }

    fn rank(&self) -> u32 {
        match self {
            Self::Port(port) => port.rank(),
            Self::Paced(_) | Self::Piped(_) | Self::Hosts(_) => 0,
        }
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Packet>) {
        match self {
            Self::Port(port) => port.poll(now, out),
            Self::Paced(host) => host.poll(now, out),
            Self::Piped(host) => host.poll(now, out),
            Self::Hosts(hosts) => hosts.poll(now, out),
        }
    }

    fn receive(&mut self, now: Time, packet: Packet, out: &mut Vec<Packet>) {
        match self {
            Self::Port(port) => port.receive(now, packet, out),
            Self::Paced(host) => host.receive(now, packet, out),
            Self::Piped(host) => host.receive(now, packet, out),
            Self::Hosts(hosts) => hosts.receive(now, packet, out),
        }
    }
}

/// A network during a run.
struct Network {
    simulation: Simulation<Element, Packet>,
    /// Pool of its ports' frames.
    pool: Pool,
    /// Number of hosts: the first ports are their own.
    hosts: usize,
    /// Its tenants, if any.
    joined: Option<(Arc<BuiltRacks>, Joined)>,
    /// The hosts' exchange of rates, if they pace.
    hoses: Option<Hoses>,
}

/// Ends of connections with their positions in the network.
struct Ends {
    places: Vec<Place>,
    routes: Vec<NodeId>,
    workload: Workload,
}

impl Messages {
    /// Runs one setting until all messages that count were received, or for [`Messages::longest`];
    /// repeats it for each of several data centres.
    ///
    /// # Errors
    /// The rule of a pacer that a tenant's guarantee breaks.
    ///
    /// # Panics
    /// The experiment was not checked.
    pub fn simulate(&self, setting: &Setting, seed: u64) -> Result<Outcome, PacerError> {
        let mut all = self.nothing();
        for centre in 0..self.centres() {
            all.add(self.simulate_one(setting, seed, centre)?);
        }
        Ok(all)
    }

    /// Runs one setting in one data centre.
    ///
    /// # Errors
    /// Same as [`Self::simulate`].
    pub(super) fn simulate_one(
        &self,
        setting: &Setting,
        seed: u64,
        centre: u32,
    ) -> Result<Outcome, PacerError> {
        // The first data centre has the seed itself.
        let seed = seed.wrapping_add(u64::from(centre).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut network = match (self.topology(), &self.tenants) {
            (Topology::Racks(racks), Some(tenants)) => {
                self.with_tenants(racks, tenants, setting, seed)?
            }
            (topology, _) => self.with_hosts(&topology, setting, seed),
        };
        let mut now = Nanos::ZERO;
        let (mut flying, mut memory) = (0, 0);
        loop {
            now += END_CHECK_INTERVAL;
            network.run(now);
            let held = network.held();
            if held > flying {
                (flying, memory) = (held, network.memory());
            }
            let tally = &network.all_hosts().tally;
            let is_whole = now >= self.duration && tally.is_whole();
            if is_whole || now >= self.longest() {
                let mut outcome = network.outcome(now, self);
                outcome.totals.flying = flying;
                outcome.totals.memory = memory;
                return Ok(outcome);
            }
        }
    }

    fn with_hosts(&self, topology: &Topology, setting: &Setting, seed: u64) -> Network {
        let hosts = topology.hosts();
        let ports = topology.ports();
        let all_hosts = NodeId(ports.len() as u32);
        let (opened, workload) = self.workload(hosts, setting, seed);
        let (mut routes, mut places) = (Vec::new(), Vec::new());
        let mut way = Vec::new();
        for (number, it) in (0_u64..).zip(&opened) {
            for (from, to, side) in [(it.from, it.to, 0), (it.to, it.from, 1)] {
                way.clear();
                let flow = hash(2 * number + side);
                topology.way(from.host as usize, to.host as usize, flow, &mut way);
                // Both directions have the same length.
                let one_way = way.iter().map(|port| opening(&ports[*port]).0).sum::<u64>();
                places.push(Place {
                    host: from.host,
                    guest: from.guest,
                    route: routes.len() as u32,
                    round_trip: Nanos(2 * one_way),
                    protocol: it.protocol,
                    owner: it.owner,
                });
                routes.extend(way.iter().map(|port| NodeId(*port as u32)));
                routes.push(all_hosts);
            }
        }
        let ends = Ends {
            places,
            routes,
            workload,
        };
        let own = OwnParts {
            meters: meters(setting, hosts),
            machines: self.machines(setting, hosts, seed),
        };
        let pool = Pool::new();
        let mut rooms = BTreeMap::new();
        let port = |(it, switch): (&Sends, Option<u32>)| {
            let room = switch.zip(setting.switches.shared);
            let room = room.map(|(switch, shared)| {
                let room = rooms.entry(switch).or_insert_with(|| Room::new(shared));
                room.clone()
            });
            Element::Port(Port::new(&port_config(it, setting), &pool, room))
        };
        let mut nodes: Vec<_> = ports.iter().zip(topology.switches()).map(port).collect();
        if let Some(spec) = &setting.pipeline {
            let talkers = talkers(&ends);
            let meter = meter(setting, hosts);
            for (node, it) in nodes.iter_mut().zip(ports).take(hosts) {
                let host = PipedHost::new(it.line, spec, meter, Arc::clone(&talkers));
                *node = Element::Piped(Box::new(host));
            }
        }
        Network {
            simulation: self.network(nodes, ends, setting, own, Promises::default()),
            pool,
            hosts,
            joined: None,
            hoses: None,
        }
    }

    /// End of the time in which messages begin.
    const fn until(&self) -> Nanos {
        if self.stops {
            self.duration
        } else {
            Nanos::MAX
        }
    }

    /// Returns all connections, and their workload.
    fn workload(&self, hosts: usize, setting: &Setting, seed: u64) -> (Vec<Opened>, Workload) {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let until = self.until();
        let opened = |pairs: &[(usize, usize)]| {
            let only_guest = |host: usize| GuestSeat {
                host: host as u32,
                guest: 1,
            };
            let opened = pairs.iter().map(|(from, to)| Opened {
                from: only_guest(*from),
                to: only_guest(*to),
                protocol: setting.transport.protocol,
                owner: 0,
            });
            opened.collect()
        };
        let first_ends = (0..).step_by(2);
        if let Some(streams) = self.streams {
            let pairs = streams.peers.connections(hosts, &mut random);
            let ends = first_ends.take(pairs.len());
            let streaming = Streaming::new(streams, ends, until, &mut random);
            return (opened(&pairs), Workload::Streams(streaming));
        }
        if let Some(trace) = &self.trace {
            let replaying = Replaying::new(trace, first_ends, self.duration);
            return (opened(&trace.connections()), Workload::Trace(replaying));
        }
        let Some(load) = self.load() else {
            return self.talks(setting, until, random);
        };
        let pairs = load.connections(hosts, &mut random);
        let mut ends = vec![Vec::new(); hosts];
        for (end, (from, _)) in first_ends.zip(&pairs) {
            ends[*from].push(end);
        }
        let load = HostsLoad::new(load, ends, until, random);
        (opened(&pairs), Workload::Hosts(load))
    }

    /// Returns the equivalent of [`Self::workload`] for guests that talk.
    fn talks(&self, setting: &Setting, until: Nanos, random: Pcg64Mcg) -> (Vec<Opened>, Workload) {
        let seats = talks::seats(&self.guest);
        let (mut opened, mut talks) = (Vec::new(), Vec::new());
        for (owner, talk) in (0..).zip(&self.talk) {
            let is_it = |name: &Name| name.get_ref() == talk.name.get_ref();
            let is_quiet = setting.quiet.iter().any(is_it);
            let seats = talk.seats(&seats).filter(|_| !is_quiet);
            let end = 2 * opened.len() as u32;
            opened.extend(seats.map(|(from, to)| Opened {
                from,
                to,
                protocol: talk.protocol.unwrap_or(setting.transport.protocol),
                owner,
            }));
            talks.push((talk, seats.map(|_| end)));
        }
        let talking = Talking::new(&talks, until, random);
        (opened, Workload::Talks(talking))
    }

    fn with_tenants(
        &self,
        racks: Arc<BuiltRacks>,
        tenants: &Tenants,
        setting: &Setting,
        seed: u64,
    ) -> Result<Network, PacerError> {
        let hosts = racks.hosts();
        let policy = setting.policy.unwrap_or_default();
        let joined = Joined::new(tenants.place(&racks, policy, seed), hosts);
        let mut routes = Vec::new();
        let is_paced = setting.pacer.is_some();
        let protocol = setting.transport.protocol;
        let places = joined.places(&racks, protocol, is_paced, &mut routes);
        let ends = Ends {
            places,
            routes,
            workload: Workload::Tenants(joined.rounds(self.until(), |class| {
                let name = tenants.class[class].name.get_ref();
                setting.quiet.iter().any(|quiet| quiet.get_ref() == name)
            })),
        };
        let pool = Pool::new();
        let port = |it: &Sends| Element::Port(Port::new(&port_config(it, setting), &pool, None));
        let mut nodes: Vec<Element> = racks.ports().iter().map(port).collect();
        let paced = joined.paced(&racks, setting)?;
        for (node, host) in nodes.iter_mut().zip(paced) {
            *node = Element::Paced(Box::new(host));
        }
        let promises = if is_paced {
            joined.promises(&racks)
        } else {
            Promises::default()
        };
        let own = OwnParts {
            meters: Vec::new(),
            machines: Machines::nowhere(),
        };
        Ok(Network {
            simulation: self.network(nodes, ends, setting, own, promises),
            pool,
            hosts,
            hoses: is_paced.then(|| Hoses::new(hosts, &joined.members(policy, &racks))),
            joined: Some((racks, joined)),
        })
    }

    fn network(
        &self,
        mut nodes: Vec<Element>,
        ends: Ends,
        setting: &Setting,
        own: OwnParts,
        promises: Promises,
    ) -> Simulation<Element, Packet> {
        let mut hosts = Hosts::new(
            setting.transport.tcp(),
            ends.places.into_iter(),
            own,
            ends.workload,
            promises,
            Tally::new(self.warm_up, self.duration),
        );
        if let Some(pacer) = setting.hull {
            hosts.pace(pacer);
        }
        if setting.pipeline.as_ref().is_some_and(|it| it.offload) {
            hosts.offload();
        }
        nodes.push(Element::Hosts(Box::new(hosts)));
        Simulation::new(nodes, ends.routes)
    }
}

/// A connection: its two guests, and its owner.
#[derive(Debug, Clone, Copy)]
struct Opened {
    from: GuestSeat,
    to: GuestSeat,
    protocol: Protocol,
    owner: u32,
}

/// Returns the senders on the paths of connections, by the second position of each.
fn talkers(ends: &Ends) -> Arc<[Talker]> {
    let mut talkers = vec![Talker::default(); ends.routes.len()];
    for (number, place) in ends.places.iter().enumerate() {
        talkers[place.route as usize + 1] = Talker {
            guest: place.guest,
            to: ends.places[number ^ 1].host,
        };
    }
    talkers.into()
}

/// Returns the meter of hosts, if there is one.
fn meter(setting: &Setting, hosts: usize) -> Option<MeterConfig> {
    setting.meter.map(|it| MeterConfig {
        rate: it.rate,
        burst: it.burst,
        flows: (2 * hosts).next_power_of_two(),
        ..MeterConfig::default()
    })
}

/// Returns each host's meter, if there is one outside the pipeline.
fn meters(setting: &Setting, hosts: usize) -> Vec<Meter> {
    let meter = meter(setting, hosts).filter(|_| setting.pipeline.is_none());
    let of_hosts = |it: &MeterConfig| -> Vec<Meter> {
        let meter = |_| Meter::with_keys(it, HashKeys::FIXED);
        (0..hosts).map(meter).collect()
    };
    meter.iter().flat_map(of_hosts).collect()
}

/// Returns the time of the segment that opens a connection on a link.
fn opening(it: &Sends) -> Nanos {
    it.line.rate.time_for(Bytes(OVERHEAD)) + it.line.delay
}

fn port_config(it: &Sends, setting: &Setting) -> PortConfig {
    let switches = &setting.switches;
    let (classes, buffer, mark_at) = if it.tier == Tier::Host {
        (1, switches.host_buffer, switches.host_mark_at)
    } else {
        let buffer = it.buffer.or(switches.buffer);
        (switches.classes, buffer, switches.mark_at)
    };
    PortConfig {
        tier: it.tier,
        phantom: switches.phantom,
        pfabric: switches.pfabric,
        hull: setting.hull.filter(|_| it.tier == Tier::Host),
        rate: it.line.rate,
        delay: it.line.delay,
        classes,
        buffer,
        apart: switches.apart,
        mark_at,
    }
}

impl Network {
    fn all_hosts(&self) -> &Hosts {
        match self.simulation.nodes().last() {
            Some(Element::Hosts(hosts)) => hosts,
            _ => unreachable!("the last node is that of the hosts"),
        }
    }

    /// Runs until `end`.
    fn run(&mut self, end: Nanos) {
        let Some(hoses) = &mut self.hoses else {
            return self.simulation.run(end.into(), &mut ());
        };
        let mut now = end.since(END_CHECK_INTERVAL);
        while now < end {
            let simulation = &mut self.simulation;
            hoses.step(now, |host, change| {
                simulation.change(NodeId(host as u32), |node| {
                    if let Element::Paced(host) = node {
                        change(host);
                    }
                });
            });
            now += STEP;
            simulation.run(now.into(), &mut ());
        }
    }

    /// Number of frames that are queued or on links.
    fn held(&self) -> u64 {
        let nodes = self.simulation.nodes().iter();
        let held = nodes.map(|node| match node {
            Element::Port(port) => port.held(),
            Element::Paced(host) => host.held(),
            Element::Piped(host) => host.held(),
            Element::Hosts(_) => 0,
        });
        held.sum()
    }

    /// Memory of queues and links, in bytes.
    fn memory(&self) -> u64 {
        let nodes = self.simulation.nodes().iter();
        let memory = nodes.map(|node| match node {
            Element::Paced(host) => host.memory(),
            Element::Piped(host) => host.memory(),
            Element::Port(_) | Element::Hosts(_) => 0,
        });
        (self.pool.memory() + memory.sum::<usize>()) as u64
    }

    fn totals(&self, end: Nanos) -> Totals {
        let (resent, timeouts) = self.all_hosts().resent();
        let mut totals = Totals {
            resent,
            timeouts,
            end,
            dropped: self.all_hosts().machines.dropped(),
            early: self.all_hosts().machines.acknowledged_early(),
            connections: self.all_hosts().connections() as u64,
            ..Totals::default()
        };
        for (place, node) in self.simulation.nodes().iter().enumerate() {
            let tally = match node {
                Element::Port(port) => port.tally,
                Element::Paced(host) => host.tally,
                Element::Piped(host) => host.tally(),
                Element::Hosts(_) => continue,
            };
            let PortTally {
                sent,
                bytes,
                dropped,
                marked,
                peak,
            } = tally;
            totals.packets += sent;
            totals.dropped += dropped;
            totals.marked += marked;
            if place < self.hosts {
                totals.sent += bytes;
            } else {
                totals.peak = totals.peak.max(peak);
            }
        }
        totals
    }

    fn outcome(&self, end: Nanos, messages: &Messages) -> Outcome {
        let tally = &self.all_hosts().tally;
        let judged = messages.tenants.as_ref().zip(self.joined.as_ref());
        let judged = judged.map(|(tenants, (racks, joined))| {
            let outcome = TenantsOutcome::new(tenants, &joined.centre, &tally.records);
            self.judge(outcome, racks, joined)
        });
        Outcome {
            took: tally.took.clone(),
            begun: tally.begun,
            ended: tally.ended,
            lost: tally.lost,
            totals: self.totals(end),
            records: tally.records.clone(),
            tenants: judged,
            ..messages.nothing()
        }
    }

    /// Compares hosts and frames with the guarantees.
    fn judge(
        &self,
        mut outcome: TenantsOutcome,
        racks: &BuiltRacks,
        joined: &Joined,
    ) -> TenantsOutcome {
        outcome.kept = self.all_hosts().promises.kept;
        outcome.refused_rates = self.hoses.as_ref().map_or(0, |hoses| hoses.refused);
        // The ordinary class waits longest.
        let bounds = racks.bounds(&joined.centre.datacentre, None);
        for (node, bound) in self.simulation.nodes().iter().zip(bounds) {
            if let Element::Paced(host) = node {
                outcome.lost_in_hosts += host.drops();
                let is_late = bound.is_some_and(|bound| host.latest() > bound);
                outcome.late_hosts += u64::from(is_late);
            }
        }
        outcome
    }
}
