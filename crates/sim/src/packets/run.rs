//! One run: a network of a setting, its load, and what comes of it.

use super::hosts::{Hosts, Place};
use super::messages::{Messages, Setting};
use super::packet::{OVERHEAD, Packet};
use super::port::{Port, PortConfig, PortTally};
use super::tally::{Outcome, Tally, Totals};
use super::topology::{Sends, Topology};
use super::workload::{Load, Workload};
use crate::net::{Node, NodeId, Simulation, Time};
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use tailbound_dataplane::{HashKeys, Meter, MeterConfig};
use tailbound_units::{Bytes, Nanos};

/// How often it is looked whether all messages that count have come.
const LOOK: Nanos = Nanos::from_millis(1);

/// The kinds of nodes.
#[derive(Debug)]
enum Element {
    Port(Port),
    Hosts(Box<Hosts>),
}

impl Node<Packet> for Element {
    fn poll_at(&self) -> Time {
        match self {
            Self::Port(port) => port.poll_at(),
            Self::Hosts(hosts) => hosts.poll_at(),
        }
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Packet>) {
        match self {
            Self::Port(port) => port.poll(now, out),
            Self::Hosts(hosts) => hosts.poll(now, out),
        }
    }

    fn receive(&mut self, now: Time, packet: Packet, out: &mut Vec<Packet>) {
        match self {
            Self::Port(port) => port.receive(now, packet, out),
            Self::Hosts(hosts) => hosts.receive(now, packet, out),
        }
    }
}

impl Messages {
    /// Runs one setting until all messages that count have come, or for
    /// [`Messages::longest`].
    ///
    /// # Panics
    /// The experiment was not checked.
    pub fn simulate(&self, setting: &Setting, seed: u64) -> Outcome {
        let (topology, load) = self.checked();
        let (mut simulation, hosts) = self.build(&topology, load, setting, seed);
        let (mut now, mut flying) = (Nanos::ZERO, 0);
        loop {
            now += LOOK;
            simulation.run(now.into(), &mut ());
            flying = flying.max(ports(&simulation).map(Port::held).sum());
            let tally = tally(&simulation);
            let is_whole = now >= self.duration && tally.begun == tally.ended;
            if is_whole || now >= self.longest() {
                let mut outcome = outcome(&simulation, hosts, now);
                outcome.totals.flying = flying;
                return outcome;
            }
        }
    }

    fn build(
        &self,
        topology: &Topology,
        load: Load,
        setting: &Setting,
        seed: u64,
    ) -> (Simulation<Element, Packet>, usize) {
        let hosts = topology.hosts();
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let connections = load.connections(hosts, &mut random);
        let ports = topology.ports();
        let all_hosts = NodeId(ports.len() as u32);
        let (mut routes, mut places) = (Vec::new(), Vec::new());
        let mut opened = vec![Vec::new(); hosts];
        let mut way = Vec::new();
        for (number, &(from, to)) in connections.iter().enumerate() {
            opened[from].push(2 * number as u32);
            for (from, to, side) in [(from, to, 0), (to, from, 1)] {
                way.clear();
                topology.way(from, to, hash(2 * number as u64 + side), &mut way);
                // Both ways are as long.
                let one_way = way.iter().map(|port| opening(&ports[*port]).0).sum::<u64>();
                places.push(Place {
                    host: from as u32,
                    route: routes.len() as u32,
                    round_trip: Nanos(2 * one_way),
                });
                routes.extend(way.iter().map(|port| NodeId(*port as u32)));
                routes.push(all_hosts);
            }
        }
        let meter = setting.meter.map(|it| MeterConfig {
            rate: it.rate,
            burst: it.burst,
            flows: (2 * hosts).next_power_of_two(),
            ..MeterConfig::default()
        });
        let meters = meter.iter().flat_map(|it| {
            let meter = |_| Meter::with_keys(it, HashKeys::FIXED);
            (0..hosts).map(meter)
        });
        let workload = Workload::new(load, opened, random);
        let hosts_node = Hosts::new(
            setting.transport.tcp(),
            places.into_iter(),
            meters.collect(),
            workload,
            Tally::new(self.warm_up, self.duration),
        );
        let port = |it: &Sends| Element::Port(Port::new(&port_config(it, setting)));
        let mut nodes: Vec<Element> = ports.iter().map(port).collect();
        nodes.push(Element::Hosts(Box::new(hosts_node)));
        (Simulation::new(nodes, routes), hosts)
    }
}

/// How long the segment that opens a connection takes over a link.
fn opening(it: &Sends) -> Nanos {
    it.line.rate.time_for(Bytes(OVERHEAD)) + it.line.delay
}

fn port_config(it: &Sends, setting: &Setting) -> PortConfig {
    let switches = &setting.switches;
    let (classes, buffer, mark_at) = if it.is_host {
        (1, switches.host_buffer, None)
    } else {
        (switches.classes, switches.buffer, switches.mark_at)
    };
    PortConfig {
        rate: it.line.rate,
        delay: it.line.delay,
        classes,
        buffer,
        apart: switches.apart,
        mark_at,
    }
}

/// What spreads flows over ways (Stafford's mix 13).
const fn hash(flow: u64) -> u64 {
    let mixed = (flow ^ (flow >> 30)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn hosts(simulation: &Simulation<Element, Packet>) -> &Hosts {
    match simulation.nodes().last() {
        Some(Element::Hosts(hosts)) => hosts,
        _ => unreachable!("the last node is that of the hosts"),
    }
}

fn ports(simulation: &Simulation<Element, Packet>) -> impl Iterator<Item = &Port> {
    simulation.nodes().iter().filter_map(|node| match node {
        Element::Port(port) => Some(port),
        Element::Hosts(_) => None,
    })
}

fn tally(simulation: &Simulation<Element, Packet>) -> &Tally {
    &hosts(simulation).tally
}

fn outcome(simulation: &Simulation<Element, Packet>, own: usize, end: Nanos) -> Outcome {
    let tally = tally(simulation);
    let (resent, timeouts) = hosts(simulation).resent();
    let mut totals = Totals {
        resent,
        timeouts,
        end,
        ..Totals::default()
    };
    for (place, port) in ports(simulation).enumerate() {
        let PortTally {
            sent,
            bytes,
            dropped,
            marked,
            peak,
        } = port.tally;
        totals.packets += sent;
        totals.dropped += dropped;
        totals.marked += marked;
        totals.memory += port.memory() as u64;
        if place < own {
            totals.sent += bytes;
        } else {
            totals.peak = totals.peak.max(peak);
        }
    }
    Outcome {
        took: tally.took.clone(),
        begun: tally.begun,
        ended: tally.ended,
        totals,
    }
}
