//! Racks of equal hosts in placement's model: its rules place machines there, and its bounds hold
//! for their ports.

use super::line::{Line, MAX_HOSTS, Sends, Tier, check_line};
use super::priorities::Priorities;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use tailbound_dataplane::pacer::{DelayClass, HostGroups};
use tailbound_experiment::Section;
use tailbound_placement::{
    Datacentre, DelayClassSpec, Direction, NodeId, PortId, Spec, SpecError, Spread, Topology,
    Uniform, UplinkSpec, bound_of_class,
};
use tailbound_units::{Bytes, Nanos, Rate};

/// Topology: equal racks of equal hosts, with slots for VMs, below one switch.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Racks {
    /// Racks.
    pub racks: u32,
    /// Hosts per rack.
    pub hosts: u32,
    /// VMs per host.
    pub slots: u32,
    /// Link from host to rack. `up_buffer` limits the host's own queue in placement's rules.
    pub host_link: UplinkSpec,
    /// Link from rack to switch. Of several links each flow takes one, by a hash of its addresses and
    /// ports (ECMP).
    pub rack_link: UplinkSpec,
    /// Delay of a frame's last bit on these links.
    pub delay: Nanos,
    /// Link between VMs of a host.
    pub inside: Line,
    /// Delay classes, as in a topology of placement; none.
    #[serde(default)]
    pub delay_class: Vec<DelayClassSpec>,
}

/// The longest frame on a wire.
pub(super) const FRAME: Bytes = Bytes(1_538);

/// Racks for placement.
#[derive(Debug)]
pub(super) struct BuiltRacks {
    spec: Racks,
    tree: Topology,
    /// Numbers of hosts by their nodes, and the rack of each.
    places: BTreeMap<NodeId, usize>,
    rack_of: Vec<usize>,
    priorities: Arc<Priorities>,
}

impl Racks {
    pub(super) fn check(&self, section: &mut Section<'_>) {
        section.range("racks", self.racks, 1..=1_000);
        section.range("hosts", self.hosts, 1..=1_000);
        section.range("slots", self.slots, 1..=1_000);
        section.range("delay", self.delay, Nanos::ZERO..=Nanos::from_millis(100));
        check_line("inside", self.inside, section);
        let hosts = self.racks as usize * self.hosts as usize;
        if !(2..=MAX_HOSTS).contains(&hosts) {
            let message = format!("{hosts} hosts in all: choose 2 to {MAX_HOSTS}");
            return section.at("hosts", message);
        }
        if self.host_link.links != 1 {
            let message = "a host has one link: write one with all of their rate";
            section.table("host_link").at("links", message);
        }
        if self.rack_link.links != 1 && self.rack_link.spread != Spread::Flow {
            let message = "a flow takes one of several links: write `spread = \"flow\"`, or one link \
                           with all of their rate";
            section.table("rack_link").at("spread", message);
        }
        section.hold("racks", self.tree().map(drop));
    }

    fn tree(&self) -> Result<Topology, SpecError> {
        let uniform = Uniform {
            pods: 1,
            racks: self.racks,
            hosts: self.hosts,
            slots: self.slots,
            host_link: self.host_link.clone(),
            rack_link: self.rack_link.clone(),
            // There is only one pod.
            pod_link: self.rack_link.clone(),
            frame: FRAME,
        };
        let spec = Spec {
            delay_classes: self.delay_class.clone(),
            ..uniform.spec()
        };
        spec.build()
    }

    pub(super) fn build(&self) -> Result<BuiltRacks, SpecError> {
        let tree = self.tree()?;
        let racks = tree.at_height(1);
        let rack = |host: &NodeId| {
            let parent = tree.parent(*host);
            racks.iter().position(|rack| Some(*rack) == parent)
        };
        let rack_of = tree.hosts().iter().filter_map(rack).collect();
        let places = tree.hosts().iter().copied().zip(0..).collect();
        Ok(BuiltRacks {
            spec: self.clone(),
            places,
            rack_of,
            priorities: Arc::new(Priorities::new(&self.delay_class)),
            tree,
        })
    }
}

impl BuiltRacks {
    pub(super) fn hosts(&self) -> usize {
        self.rack_of.len()
    }

    fn racks(&self) -> usize {
        self.spec.racks as usize
    }

    /// Returns placement's tree.
    pub(super) fn tree(&self) -> &Topology {
        &self.tree
    }

    /// Returns the switches' queues.
    pub(super) fn priorities(&self) -> &Arc<Priorities> {
        &self.priorities
    }

    /// Returns the delay class with a number, as pacers have it.
    pub(super) fn delay_class(&self, number: u8) -> Option<DelayClass> {
        let place = usize::from(number).checked_sub(1)?;
        DelayClass::new(number, self.spec.delay_class.get(place)?.mark)
    }

    /// Returns the number of a host.
    pub(super) fn host(&self, node: NodeId) -> Option<usize> {
        self.places.get(&node).copied()
    }

    /// Returns the groups of each host, by number: its rack.
    pub(super) fn groups(&self) -> HostGroups {
        let racks = self.rack_of.iter().map(|rack| vec![*rack as u64]);
        (0..).zip(racks).collect()
    }

    /// Returns the number of parallel links of a rack.
    fn links(&self) -> usize {
        self.spec.rack_link.links as usize
    }

    /// Returns the rate of a host's link.
    pub(super) fn host_rate(&self) -> Rate {
        self.spec.host_link.rate
    }

    /// Returns placement's ports, in the order of [`Self::ports`]: hosts' up and down, racks' up
    /// and down. Each of several links has all of its rack's port: placement's rules count as if all
    /// flows took the same link.
    fn placed(&self) -> impl Iterator<Item = (PortId, Tier)> {
        let (hosts, racks) = (self.tree.hosts(), self.tree.at_height(1));
        let ends = [
            (hosts, 1, Direction::Up, Tier::Host),
            (hosts, 1, Direction::Down, Tier::ToHost),
            (racks, self.links(), Direction::Up, Tier::EdgeUp),
            (racks, self.links(), Direction::Down, Tier::ToEdge),
        ];
        ends.into_iter()
            .flat_map(|(nodes, links, direction, tier)| {
                let port = move |node| (PortId { node, direction }, tier);
                let links = move |node: &NodeId| std::iter::repeat_n(port(*node), links);
                nodes.iter().flat_map(links)
            })
    }

    /// Returns all sending sides of links; after those of placement, each host's own switch.
    pub(super) fn ports(&self) -> Vec<Sends> {
        let placed = self.placed().map(|(port, tier)| {
            let of = self.tree.port(port);
            let line = Line {
                rate: Rate(of.rate),
                delay: self.spec.delay,
            };
            let buffer = Rate(of.rate).bytes_in(of.capacity);
            Sends {
                // A host's own queue is that of its setting.
                buffer: (tier != Tier::Host).then_some(buffer),
                ..Sends::new(line, tier)
            }
        });
        // In a host's memory.
        let inside = Sends {
            buffer: Some(Bytes(u64::MAX >> 1)),
            ..Sends::new(self.spec.inside, Tier::ToHost)
        };
        let inside = std::iter::repeat_n(inside, self.hosts());
        placed.chain(inside).collect()
    }

    /// Appends the ports that frames of one flow pass; `hash` selects one of several links.
    pub(super) fn way(&self, from: usize, to: usize, hash: u64, way: &mut Vec<usize>) {
        let (hosts, links) = (self.hosts(), self.links());
        let (up, down) = (2 * hosts, 2 * hosts + self.racks() * links);
        if from == to {
            return way.push(down + self.racks() * links + from);
        }
        way.push(from);
        let (from_rack, to_rack) = (self.rack_of[from], self.rack_of[to]);
        if from_rack != to_rack {
            let link = (hash % links as u64) as usize;
            way.push(up + from_rack * links + link);
            way.push(down + to_rack * links + link);
        }
        way.push(hosts + to);
    }

    /// Returns the longest time of a guaranteed class's frame at each of placement's ports, with the
    /// placed tenants; `None` if it is unbounded.
    pub(super) fn bounds(&self, centre: &Datacentre, class: Option<u8>) -> Vec<Option<Nanos>> {
        let bound = |(port, _)| bound_of_class(centre, class, port).map(|bound| bound.delay);
        self.placed().map(bound).collect()
    }
}
