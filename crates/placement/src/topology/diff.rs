//! The differences between two topologies, by name.

use super::{DelayClassSpec, NodeId, PLENTY, Spread, Topology, UplinkSpec};
use std::fmt;
use tailbound_units::{Bytes, Nanos};

/// What [`diff`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diff {
    /// Differences that concern every port: the longest frame, the classes.
    pub everywhere: Vec<Difference>,
    /// Names that only the new tree has, in its order.
    pub added: Vec<String>,
    /// Names that only the old tree has, in its order.
    pub removed: Vec<String>,
    /// Names that both have, in the order of the new tree, if anything of theirs
    /// differs.
    pub changed: Vec<NodeDiff>,
}

/// A host, rack or pod that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDiff {
    /// Its name.
    pub name: String,
    /// Differences; at least one.
    pub changes: Vec<Difference>,
}

/// A difference of one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What: `place`, `kind`, `slots`, `cpu`, `memory`, `lateness`, `link rate`, `links`,
    /// `spread`, `buffer`, `up buffer`, `shared buffer`, `frame`, `packet`,
    /// `classes` or `delay classes`.
    pub what: &'static str,
    /// Value in the old tree, with its unit.
    pub was: String,
    /// Value in the new tree.
    pub now: String,
}

impl Diff {
    /// Returns whether both trees are equal, apart from the order of their parts.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}, was {}", self.what, self.now, self.was)
    }
}

/// Writes all differences of a node, without its name: `slots: 8, was 4; links: 2, was 1`.
impl fmt::Display for NodeDiff {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, change) in self.changes.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(formatter, "{separator}{change}")?;
        }
        Ok(())
    }
}

/// Returns the differences between two trees. Nodes are the same if they have the same name; of a
/// group only its own properties are compared, not what is below it.
///
/// Takes time in proportion to the number of nodes.
pub fn diff(old: &Topology, new: &Topology) -> Diff {
    let mut diff = Diff {
        everywhere: Changes::default()
            .compare("frame", old.frame, new.frame)
            .compare("classes", old.classes, new.classes)
            .0,
        ..Diff::default()
    };
    let is_frame = |topology: &Topology| topology.packet == topology.frame;
    if !(is_frame(old) && is_frame(new)) {
        let packets = Changes::default().compare("packet", old.packet, new.packet);
        diff.everywhere.extend(packets.0);
    }
    if old.delay_classes != new.delay_classes {
        let [was, now] = [old, new].map(|topology| DelayClasses(&topology.delay_classes));
        let classes = Changes::default().compare("delay classes", was, now);
        diff.everywhere.extend(classes.0);
    }
    for node in all(old) {
        if new.find(old.name(node)).is_none() {
            diff.removed.push(old.name(node).to_owned());
        }
    }
    for node in all(new) {
        let name = new.name(node).to_owned();
        let Some(before) = old.find(&name) else {
            diff.added.push(name);
            continue;
        };
        let before = NodeIn {
            topology: old,
            node: before,
        };
        let now = NodeIn {
            topology: new,
            node,
        };
        let changes = changes(before, now);
        if !changes.is_empty() {
            diff.changed.push(NodeDiff { name, changes });
        }
    }
    diff
}

fn all(topology: &Topology) -> impl Iterator<Item = NodeId> + use<> {
    (0..topology.len() as u32).map(NodeId)
}

/// A node and the tree that it is in.
#[derive(Clone, Copy)]
struct NodeIn<'a> {
    topology: &'a Topology,
    node: NodeId,
}

impl<'a> NodeIn<'a> {
    /// Returns the name of the node above; the same for the tops of all trees.
    fn parent(self) -> &'a str {
        let parent = self.topology.parent(self.node);
        parent.map_or("", |parent| self.topology.name(parent))
    }

    fn is_host(self) -> bool {
        self.topology.is_host(self.node)
    }

    fn kind(self) -> &'static str {
        if self.is_host() { "host" } else { "group" }
    }
}

fn changes(before: NodeIn<'_>, now: NodeIn<'_>) -> Vec<Difference> {
    let mut changes = Changes::default()
        .compare("kind", before.kind(), now.kind())
        .compare("place", before.parent(), now.parent());
    if before.is_host() && now.is_host() {
        let (was, is) = (
            before.topology.resources(before.node),
            now.topology.resources(now.node),
        );
        changes = changes
            .compare("slots", was.slots, is.slots)
            .compare("cpu", HostResource(was.cpu), HostResource(is.cpu))
            .compare("memory", HostResource(was.memory), HostResource(is.memory))
            .compare("lateness", HostLateness::of(before), HostLateness::of(now));
    }
    if let (Some(was), Some(is)) = (
        before.topology.uplink(before.node),
        now.topology.uplink(now.node),
    ) {
        changes = changes.uplink(was, is);
    }
    changes.0
}

/// A resource of a host, which is not counted where the description leaves it out.
#[derive(Clone, Copy, PartialEq)]
struct HostResource<T>(T);

impl fmt::Display for HostResource<u64> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            PLENTY => formatter.write_str("not counted"),
            some => some.fmt(formatter),
        }
    }
}

impl fmt::Display for HostResource<Bytes> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Bytes(PLENTY) => formatter.write_str("not counted"),
            some => some.fmt(formatter),
        }
    }
}

/// The lateness of a host; an exact pacer has none.
#[derive(Clone, Copy, PartialEq)]
struct HostLateness(Option<Nanos>);

impl HostLateness {
    fn of(host: NodeIn<'_>) -> Self {
        Self(host.topology.lateness(host.node))
    }
}

impl fmt::Display for HostLateness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(lateness) => lateness.fmt(formatter),
            None => formatter.write_str("none"),
        }
    }
}

#[derive(Default)]
struct Changes(Vec<Difference>);

/// Delay classes as text.
#[derive(Clone, Copy, PartialEq)]
struct DelayClasses<'a>(&'a [DelayClassSpec]);

impl fmt::Display for DelayClasses<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, class) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(formatter, "{separator}{} ({})", class.queue, class.mark)?;
        }
        if self.0.is_empty() {
            formatter.write_str("none")?;
        }
        Ok(())
    }
}

impl Changes {
    fn compare<T: Copy + PartialEq + fmt::Display>(
        mut self,
        property: &'static str,
        was: T,
        now: T,
    ) -> Self {
        if was != now {
            self.0.push(Difference {
                what: property,
                was: was.to_string(),
                now: now.to_string(),
            });
        }
        self
    }

    fn uplink(self, was: &UplinkSpec, now: &UplinkSpec) -> Self {
        let spread = |uplink: &UplinkSpec| match uplink.spread {
            Spread::Flow => "flow",
            Spread::Frame => "frame",
        };
        let changes = self
            .compare("link rate", was.rate, now.rate)
            .compare("links", was.links, now.links)
            .compare("spread", spread(was), spread(now))
            .compare("buffer", was.buffer, now.buffer)
            .compare("shared buffer", was.shared_buffer, now.shared_buffer);
        if was.up_buffer.is_none() && now.up_buffer.is_none() {
            // It is said with the other one.
            return changes;
        }
        let up = |uplink: &UplinkSpec| uplink.up_buffer.unwrap_or(uplink.buffer);
        changes.compare("up buffer", up(was), up(now))
    }
}

#[cfg(test)]
mod tests;
