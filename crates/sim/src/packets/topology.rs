//! Hosts, switches and links, and the paths through them.

use super::line::{Line, MAX_HOSTS, Sends, Tier, check_line};
use super::racks::BuiltRacks;
use serde::Deserialize;
use std::sync::Arc;
use tailbound_experiment::Section;

/// Topology: hosts at a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Star {
    /// Hosts.
    pub hosts: usize,
    /// Link of a host.
    pub link: Line,
}

/// A fat tree (Al-Fares et al., SIGCOMM 2008): pods of fully connected edge and aggregation
/// switches. Each core has a link to one aggregation switch per pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FatTree {
    /// Pods.
    pub pods: usize,
    /// Edge switches per pod.
    pub edges: usize,
    /// Hosts per edge switch.
    pub hosts: usize,
    /// Aggregation switches per pod.
    pub aggregations: usize,
    /// Cores per aggregation switch.
    pub cores: usize,
    /// Link from host to edge.
    pub host: Line,
    /// Link from edge to aggregation.
    pub edge: Line,
    /// Link from aggregation to core.
    pub core: Line,
}

/// Topology of the hosts.
#[derive(Debug, Clone)]
pub(super) enum Topology {
    /// Hosts at one switch.
    Star(Star),
    /// Hosts in a fat tree.
    FatTree(FatTree),
    /// Hosts in racks, in placement's model.
    Racks(Arc<BuiltRacks>),
}

impl Star {
    pub(super) fn check(&self, section: &mut Section<'_>) {
        section.range("hosts", self.hosts, 2..=MAX_HOSTS);
        check_line("link", self.link, section);
    }
}

impl FatTree {
    pub(super) fn check(&self, section: &mut Section<'_>) {
        let parts = [
            ("pods", self.pods),
            ("edges", self.edges),
            ("hosts", self.hosts),
            ("aggregations", self.aggregations),
            ("cores", self.cores),
        ];
        for (key, number) in parts {
            section.range(key, number, 1..=64);
        }
        let hosts = self.all_hosts();
        if !(2..=MAX_HOSTS).contains(&hosts) {
            let message = format!("{hosts} hosts in all: choose 2 to {MAX_HOSTS}");
            section.at("hosts", message);
        }
        check_line("host", self.host, section);
        check_line("edge", self.edge, section);
        check_line("core", self.core, section);
    }

    fn all_hosts(&self) -> usize {
        let edges = self.pods.saturating_mul(self.edges);
        edges.saturating_mul(self.hosts)
    }
}

impl Topology {
    /// Number of hosts.
    pub(super) fn hosts(&self) -> usize {
        match self {
            Self::Star(star) => star.hosts,
            Self::FatTree(tree) => tree.all_hosts(),
            Self::Racks(racks) => racks.hosts(),
        }
    }

    /// Returns all sending sides of links: first each host's own.
    pub(super) fn ports(&self) -> Vec<Sends> {
        let hosts = self.hosts();
        let some = |line, tier, number| vec![Sends::new(line, tier); number];
        match self {
            Self::Star(star) => [
                some(star.link, Tier::Host, hosts),
                some(star.link, Tier::ToHost, hosts),
            ]
            .concat(),
            Self::FatTree(tree) => {
                let between = tree.pods * tree.edges * tree.aggregations;
                let above = tree.pods * tree.aggregations * tree.cores;
                [
                    some(tree.host, Tier::Host, hosts),
                    some(tree.host, Tier::ToHost, hosts),
                    some(tree.edge, Tier::EdgeUp, between),
                    some(tree.edge, Tier::ToEdge, between),
                    some(tree.core, Tier::AggregationUp, above),
                    some(tree.core, Tier::CoreDown, above),
                ]
                .concat()
            }
            Self::Racks(racks) => racks.ports(),
        }
    }

    /// Returns the switch of each of [`Self::ports`]; `None` for a host's own port, or in racks.
    pub(super) fn switches(&self) -> Vec<Option<u32>> {
        let hosts = self.hosts();
        let switch = |port: usize| match self {
            Self::Star(_) => port.checked_sub(hosts).map(|_| 0),
            Self::FatTree(tree) => tree.switch_of(port),
            Self::Racks(_) => None,
        };
        let ports = 0..self.ports().len();
        ports.map(|port| switch(port).map(|it| it as u32)).collect()
    }

    /// Appends the ports that frames of one flow pass; `hash` selects among paths of the same
    /// length.
    pub(super) fn way(&self, from: usize, to: usize, hash: u64, way: &mut Vec<usize>) {
        if let Self::Racks(racks) = self {
            return racks.way(from, to, hash, way);
        }
        way.push(from);
        if let Self::FatTree(tree) = self {
            tree.between(from, to, hash, way);
        }
        way.push(self.hosts() + to);
    }
}

impl FatTree {
    /// Returns the switch of a port: edges first, then aggregations, then cores.
    fn switch_of(&self, port: usize) -> Option<usize> {
        let (hosts, edges) = (self.all_hosts(), self.pods * self.edges);
        let aggregations = self.pods * self.aggregations;
        let above = aggregations * self.cores;
        let between = edges * self.aggregations;
        let port = port.checked_sub(hosts)?;
        if port < hosts {
            return Some(port / self.hosts);
        }
        let port = port - hosts;
        if port < between {
            return Some(port / self.aggregations);
        }
        let port = port - between;
        if port < between {
            let (edge, aggregation) = (port / self.aggregations, port % self.aggregations);
            return Some(edges + edge / self.edges * self.aggregations + aggregation);
        }
        let port = port - between;
        if port < above {
            return Some(edges + port / self.cores);
        }
        Some(edges + aggregations + (port - above) % (self.aggregations * self.cores))
    }

    /// Appends the ports of switches that lead to other switches.
    fn between(&self, from: usize, to: usize, hash: u64, way: &mut Vec<usize>) {
        let edge = |host: usize| host / self.hosts;
        let pod = |host: usize| edge(host) / self.edges;
        if edge(from) == edge(to) {
            return;
        }
        let by_hash = (hash % (self.aggregations * self.cores) as u64) as usize;
        let (aggregation, core) = (by_hash % self.aggregations, by_hash / self.aggregations);
        let (all_edges, first) = (self.pods * self.edges, 2 * self.all_hosts());
        let down = first + all_edges * self.aggregations;
        let above = down + all_edges * self.aggregations;
        let from_core = above + self.pods * self.aggregations * self.cores;
        way.push(first + edge(from) * self.aggregations + aggregation);
        if pod(from) != pod(to) {
            let upper = |pod: usize| (pod * self.aggregations + aggregation) * self.cores + core;
            way.push(above + upper(pod(from)));
            way.push(from_core + upper(pod(to)));
        }
        way.push(down + edge(to) * self.aggregations + aggregation);
    }
}

/// Spreads flows over paths (Stafford's mix 13).
pub(super) const fn hash(flow: u64) -> u64 {
    let mixed = (flow ^ (flow >> 30)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use tailbound_units::{Nanos, Rate};

    const LINE: Line = Line {
        rate: Rate::from_mbit(1_000),
        delay: Nanos::from_micros(1),
    };
    const TREE: FatTree = FatTree {
        pods: 4,
        edges: 4,
        hosts: 8,
        aggregations: 4,
        cores: 2,
        host: LINE,
        edge: LINE,
        core: LINE,
    };

    fn way(from: usize, to: usize, hash: u64) -> Vec<usize> {
        let mut way = Vec::new();
        Topology::FatTree(TREE).way(from, to, hash, &mut way);
        way
    }

    #[test]
    fn ways_have_two_four_or_six_ports() {
        let topology = Topology::FatTree(TREE);
        assert_eq!(
            (topology.hosts(), topology.ports().len()),
            (128, 2 * 128 + 2 * 64 + 2 * 32)
        );
        assert_eq!(way(0, 7, 3), [0, 128 + 7]);
        assert_eq!(way(0, 8, 3).len(), 4);
        assert_eq!(way(0, 127, 3).len(), 6);
    }

    #[test]
    fn every_port_is_used_and_each_leads_to_one_switch() {
        let mut used = BTreeSet::new();
        // The ports that follow each port: those of one switch.
        let mut next: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); 512];
        for from in 0..128 {
            for to in (0..128).filter(|to| *to != from) {
                for hash in 0..8 {
                    let way = way(from, to, hash);
                    used.extend(way.iter().copied());
                    for pair in way.windows(2) {
                        next[pair[0]].insert(pair[1]);
                    }
                }
            }
        }
        assert_eq!(used.len(), 2 * 128 + 2 * 64 + 2 * 32);
        // Two ports lead to one switch if the same ports follow them, and to two switches if all
        // differ; no path goes back to the switch before.
        for (port, after) in next.iter().enumerate().take(448) {
            let most = if port < 128 { 8 - 1 + 4 } else { 8 };
            assert!(after.len() <= most, "port {port} leads to {}", after.len());
        }
    }

    /// A frame goes from switch to switch: from an edge to its pod's aggregation, a core, and down.
    #[test]
    fn a_way_passes_ports_of_the_switches_between() {
        let switches = Topology::FatTree(TREE).switches();
        let passed = |from, to, hash| -> Vec<Option<u32>> {
            let way = way(from, to, hash);
            way.iter().map(|port| switches[*port]).collect()
        };
        // 16 edges, 16 aggregations, 8 cores. Hash 6 is aggregation 2 and its core 1.
        let expected = [
            None,
            Some(0),
            Some(16 + 2),
            Some(32 + 5),
            Some(16 + 14),
            Some(15),
        ];
        assert_eq!(passed(0, 127, 6), expected);
        assert_eq!(passed(0, 8, 1), [None, Some(0), Some(16 + 1), Some(1)]);
        assert_eq!(passed(9, 10, 1), [None, Some(1)]);
    }

    #[test]
    fn there_are_as_many_ways_as_cores() {
        let ways: BTreeSet<_> = (0..64).map(|hash| way(0, 127, hash)).collect();
        assert_eq!(ways.len(), 8);
    }
}
