//! Descriptions of a topology: a file, or a few numbers.

use super::classes::{self, DelayClassError, DelayClassSpec, WrongClass};
use super::{MAX_LIMITS, Names, Node, NodeId, PLENTY, Port, Resources, Topology, backlog_limit};
use crate::load::AffineCurve;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;
use tailbound_classes::{Classes, ClassesError, ClassesSpec};
use tailbound_document::{Document, Mistake, Step, unknown_word};
use tailbound_units::{Bytes, Nanos, Rate};

/// Largest number of slots in a topology.
const MAX_SLOTS: u64 = 4_000_000;
/// The largest lateness of a host.
const MAX_LATENESS: Nanos = Nanos::from_millis(50);
/// The longest sum of queue capacities from a host to the top.
const MAX_DELAY: Nanos = Nanos::from_millis(250);
const MAX_NODES: u64 = 2_000_000;
const MAX_LINKS: u32 = 256;
const MAX_HEIGHT: u8 = 16;
/// The longest name in bytes; each host of an entry has its own copy.
const MAX_NAME: usize = 128;
/// The name of the top.
const TOP_NAME: &str = "core";
/// The key of the longest frame's size.
const FRAME: &str = "frame";
/// The key of the longest packet's size.
const PACKET: &str = "packet";
/// The longest packet of segmentation offload, on the wire.
const MAX_PACKET: Bytes = Bytes(1_000_000);
/// The key of the classes.
const CLASSES: &str = "classes";
/// The key of the delay classes.
const DELAY_CLASSES: &str = "delay_class";
/// The uplink of the top, which has none.
const NO_UPLINK: u32 = u32::MAX;

/// Distribution of a machine's traffic over several parallel links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Spread {
    /// Each flow takes one link, as in switches: in the worst case all traffic takes one link, so
    /// that each link must be able to carry everything.
    #[default]
    Flow,
    /// Frames are distributed evenly: the bytes of a machine on each link differ by at most a
    /// frame.
    Frame,
}

/// The link between a node and its parent, and its two queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UplinkSpec {
    /// Rate of each link.
    pub rate: Rate,
    /// Parallel links: NICs of a host, or spine switches above a rack.
    #[serde(default = "one")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 256))]
    pub links: u32,
    /// Distribution of traffic over the links.
    #[serde(default)]
    pub spread: Spread,
    /// Capacity of each link's queue for guaranteed traffic, before `shared_buffer` is subtracted.
    pub buffer: Bytes,
    /// Capacity of the queue at the lower end, if different.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_buffer: Option<Bytes>,
    /// Part of the switches' buffer that lower classes can occupy, and admission does not count;
    /// none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shared_buffer: Bytes,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(bytes: &Bytes) -> bool {
    *bytes == Bytes::ZERO
}

impl UplinkSpec {
    /// Returns what the queue at the upper end, in a switch, can hold of traffic with guarantees.
    fn down(&self) -> Bytes {
        Bytes(self.buffer.0.saturating_sub(self.shared_buffer.0))
    }

    /// Returns the same for the queue at the lower end: in a switch, or a host's own, which
    /// shares nothing.
    fn up(&self, end: LowerEnd) -> Bytes {
        let buffer = self.up_buffer.unwrap_or(self.buffer);
        match end {
            LowerEnd::Host => buffer,
            LowerEnd::Switch => Bytes(buffer.0.saturating_sub(self.shared_buffer.0)),
        }
    }
}

/// Lower end of a link.
#[derive(Debug, Clone, Copy)]
enum LowerEnd {
    Host,
    Switch,
}

/// A switch and everything below it: a rack or a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GroupSpec {
    /// Name, unique among groups and hosts.
    pub name: String,
    /// Group above; the core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Link to the node above.
    pub uplink: UplinkSpec,
}

/// A host, or several equal ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// Name, unique among groups and hosts. With `count`, `-1`, `-2`, ... are appended.
    pub name: String,
    /// Group; directly below the core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Number of equal hosts.
    #[serde(default = "one")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 2_000_000))]
    pub count: u32,
    /// Maximum of VMs per host.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 100_000))]
    pub slots: u32,
    /// CPU for VMs, in thousandths of a CPU; not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(minimum = 1, maximum = 4_398_046_511_104_u64)
    )]
    pub cpu: Option<u64>,
    /// Memory for VMs; not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Longest lateness of frames for hosts with departure times (the kernel's `fq`), up to 50 ms;
    /// an exact pacer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Nanos>,
    /// Link to the node above.
    pub uplink: UplinkSpec,
}

/// Description of a data centre in TOML, JSON or another format of serde.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Longest frame on the wire, including preamble, FCS and gap.
    pub frame: Bytes,
    /// Longest packet on the wire that hosts with a `lateness` release whole, up to 1 MB; one frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet: Option<Bytes>,
    /// Priority classes of the switches and their marks; `guarantees-first`. If small flows are
    /// first, no delay can be promised.
    #[serde(default = "default_classes", skip_serializing_if = "is_default")]
    pub classes: ClassesSpec,
    /// Up to two guaranteed classes above the ordinary one, the highest first; none.
    #[serde(default, rename = "delay_class", skip_serializing_if = "Vec::is_empty")]
    pub delay_classes: Vec<DelayClassSpec>,
    /// Switches (racks and pods), in any order.
    #[serde(default, rename = "group", skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupSpec>,
    /// Hosts, in any order.
    #[serde(default, rename = "host", skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostSpec>,
}

/// A data centre of equal pods, racks and hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uniform {
    /// The number of pods.
    pub pods: u32,
    /// The number of racks in each pod.
    pub racks: u32,
    /// The number of hosts in each rack.
    pub hosts: u32,
    /// The number of slots on each host.
    pub slots: u32,
    /// Link between a host and its rack.
    pub host_link: UplinkSpec,
    /// Link between a rack and its pod.
    pub rack_link: UplinkSpec,
    /// Link between a pod and the core.
    pub pod_link: UplinkSpec,
    /// The longest frame.
    pub frame: Bytes,
}

/// Reason why a description is not a data centre.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The text is not TOML, or not of this form.
    #[error("{}", lines(.0))]
    Syntax(Vec<Mistake>),
    /// Marks of classes that break a rule.
    #[error("classes: {0}")]
    Classes(#[from] ClassesError),
    /// A delay class that contradicts the fabric, the queues or another class.
    #[error("delay_class {number}: {error}")]
    DelayClass {
        /// The number of the class, from 1 on.
        number: u8,
        /// The mistake.
        error: DelayClassError,
    },
    /// A name that cannot be one.
    #[error("{name:?} cannot be a name: {why}")]
    Name {
        /// The name, or its beginning.
        name: String,
        /// The mistake.
        why: &'static str,
    },
    /// Two things have one name.
    #[error("the name {0:?} is there twice; names of groups and hosts are unique")]
    Duplicate(String),
    /// A group that is named does not exist.
    #[error("{name:?} has the group {group:?}, which does not exist")]
    Unknown {
        /// The group or host that names it.
        name: String,
        /// The group that does not exist.
        group: String,
    },
    /// Groups are inside each other.
    #[error(
        "the group {0:?} contains itself, directly or through other groups; change the parent of \
            one of them"
    )]
    Cycle(String),
    /// A group has no hosts.
    #[error("the group {0:?} has no hosts; remove the group or add hosts")]
    Empty(String),
    /// The description has no hosts.
    #[error("there are no hosts")]
    NoHosts,
    /// A number is zero or absurd.
    #[error("{name:?}: {what} of {got} is not between {least} and {most}")]
    Range {
        /// The group or host, or `frame`, `packet` or `all`.
        name: String,
        /// The number.
        what: &'static str,
        /// The value in the description.
        got: String,
        /// The least allowed.
        least: String,
        /// The most allowed.
        most: String,
    },
}

/// Returns one line for each mistake.
fn lines(mistakes: &[Mistake]) -> String {
    let lines: Vec<String> = mistakes.iter().map(Mistake::to_string).collect();
    lines.join("\n")
}

impl SpecError {
    /// Returns the path to the part of `spec` that the error is about, for [`Document::find`].
    pub fn path(&self, spec: &Spec) -> Vec<Step> {
        let named = |name: &String| {
            let group = spec.groups.iter().rposition(|group| group.name == *name);
            let host = spec.hosts.iter().rposition(|host| host.name == *name);
            match (host, group) {
                (Some(index), _) => vec![Step::Key("host"), Step::Index(index)],
                (None, Some(index)) => vec![Step::Key("group"), Step::Index(index)],
                (None, None) => Vec::new(),
            }
        };
        match self {
            Self::Range { name, .. } if name == FRAME => vec![Step::Key(FRAME)],
            Self::Range { name, .. } if name == PACKET => vec![Step::Key(PACKET)],
            Self::Name { name, .. }
            | Self::Duplicate(name)
            | Self::Unknown { name, .. }
            | Self::Cycle(name)
            | Self::Empty(name)
            | Self::Range { name, .. } => named(name),
            Self::Classes(_) => vec![Step::Key(CLASSES)],
            Self::DelayClass { number, .. } => {
                let place = usize::from(*number).saturating_sub(1);
                vec![Step::Key(DELAY_CLASSES), Step::Index(place)]
            }
            Self::Syntax(_) | Self::NoHosts => Vec::new(),
        }
    }
}

fn one() -> u32 {
    1
}

fn is_default(classes: &ClassesSpec) -> bool {
    Classes::try_from(*classes) == Ok(Classes::default())
}

fn default_classes() -> ClassesSpec {
    Classes::default().into()
}

fn check<T: Copy + PartialOrd + std::fmt::Display>(
    name: &str,
    quantity: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<(), SpecError> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(SpecError::Range {
        name: name.to_owned(),
        what: quantity,
        got: value.to_string(),
        least: least.to_string(),
        most: most.to_string(),
    })
}

fn check_name(name: &str) -> Result<(), SpecError> {
    let unfit = |c: char| c.is_control() || c.is_whitespace();
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > MAX_NAME {
        "it is longer than 128 bytes"
    } else if name.contains(unfit) {
        "it has a space or a control character"
    } else if name == TOP_NAME {
        "the top of the tree is called so"
    } else {
        return Ok(());
    };
    Err(SpecError::Name {
        name: name.chars().take(40).collect(),
        why,
    })
}

impl Spec {
    /// Reads a description in TOML.
    /// # Errors
    /// [`SpecError::Syntax`] with all mistakes.
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        let document = Document::parse(text).map_err(SpecError::Syntax)?;
        Self::from_document(&document).map_err(SpecError::Syntax)
    }

    /// Reads a description from a TOML document. It is not checked whether the description can be
    /// built.
    ///
    /// # Errors
    /// All mistakes.
    pub fn from_document(document: &Document<'_>) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let (mut frame, mut packet) = (None, None);
        let mut classes = Some(Classes::default());
        let mut delay_classes: Vec<(usize, DelayClassSpec)> = Vec::new();
        let mut groups: Vec<(usize, GroupSpec)> = Vec::new();
        let mut hosts: Vec<(usize, HostSpec)> = Vec::new();
        let mut keys = Vec::new();
        for entry in document.entries() {
            match entry.key() {
                FRAME => frame = entry.read(&mut mistakes),
                PACKET => packet = entry.read(&mut mistakes),
                CLASSES => classes = entry.read(&mut mistakes),
                DELAY_CLASSES => delay_classes = entry.read_list(&mut mistakes),
                "group" => groups = entry.read_list(&mut mistakes),
                "host" => hosts = entry.read_list(&mut mistakes),
                other => {
                    let keys = [FRAME, PACKET, CLASSES, DELAY_CLASSES, "group", "host"];
                    let message = unknown_word("key", other, &keys);
                    mistakes.push(entry.wrong_key(message));
                }
            }
            keys.push(entry.key().to_owned());
        }
        if !keys.iter().any(|key| key == FRAME) {
            let message = "the key `frame` is missing; add `frame = ...` at the top";
            mistakes.push(document.mistake(0..0, message));
        }
        match (frame, classes) {
            (Some(frame), Some(classes)) if mistakes.is_empty() => Ok(Self {
                frame,
                packet,
                classes: classes.into(),
                delay_classes: delay_classes.into_iter().map(|(_, class)| class).collect(),
                groups: groups.into_iter().map(|(_, group)| group).collect(),
                hosts: hosts.into_iter().map(|(_, host)| host).collect(),
            }),
            _ => {
                mistakes.sort_by_key(|mistake| mistake.location);
                Err(mistakes)
            }
        }
    }

    /// Builds the tree.
    ///
    /// # Errors
    /// Names that are unknown or doubled, groups that are in each other or
    /// empty, numbers that are zero or absurd. All is checked before anything
    /// is built.
    pub fn build(&self) -> Result<Topology, SpecError> {
        self.check()?;
        let groups = self.groups_by_name()?;
        // The children of the core have the last index.
        let core = self.groups.len();
        let mut inner: Vec<Vec<usize>> = vec![Vec::new(); core + 1];
        let mut leaves: Vec<Vec<usize>> = vec![Vec::new(); core + 1];
        let above = |name: &str, group: Option<&String>| {
            let Some(group) = group else { return Ok(core) };
            let group_index = groups.get(group.as_str()).copied();
            group_index.ok_or_else(|| SpecError::Unknown {
                name: name.to_owned(),
                group: group.clone(),
            })
        };
        for (index, group) in self.groups.iter().enumerate() {
            inner[above(&group.name, group.parent.as_ref())?].push(index);
        }
        for (index, host) in self.hosts.iter().enumerate() {
            leaves[above(&host.name, host.group.as_ref())?].push(index);
        }
        let top = Node::new(TOP_NAME.to_owned(), 0, NO_UPLINK, None, self.frame);
        let mut builder = Builder {
            frame: self.frame,
            packet: self.packet.unwrap_or(self.frame),
            classes: self.classes.try_into()?,
            nodes: vec![top],
            resources: vec![Resources::default()],
        };
        // A breadth-first walk; `from` says which group each node is.
        let mut from = vec![Some(core)];
        let mut at = 0;
        while at < from.len() {
            let first = from.len() as u32;
            if let Some(group) = from[at] {
                for &child in &inner[group] {
                    let child_spec = &self.groups[child];
                    let uplink = NumberedUplink {
                        number: child,
                        spec: &child_spec.uplink,
                    };
                    let (name, none) = (child_spec.name.clone(), Resources::default());
                    builder.add(name, at, uplink, LowerEnd::Switch, none);
                    from.push(Some(child));
                }
                for &host in &leaves[group] {
                    for number in 1..=self.hosts[host].count {
                        builder.add_host(&self.hosts[host], core + host, number, at);
                        from.push(None);
                    }
                }
            }
            builder.nodes[at].children = first..from.len() as u32;
            at += 1;
        }
        let mut reached = vec![false; self.groups.len()];
        for group in from.iter().flatten().filter(|group| **group != core) {
            reached[*group] = true;
        }
        if let Some(lost) = reached.iter().position(|reached| !reached) {
            return Err(SpecError::Cycle(self.groups[lost].name.clone()));
        }
        let uplinks = self.groups.iter().map(|group| &group.uplink);
        let uplinks = uplinks.chain(self.hosts.iter().map(|host| &host.uplink));
        builder.finish_all(
            &from,
            &uplinks.cloned().collect::<Vec<_>>(),
            &self.delay_classes,
        )
    }

    /// Checks every number by itself.
    fn check(&self) -> Result<(), SpecError> {
        check(FRAME, "size", self.frame, Bytes(64), Bytes(65_536))?;
        let packet = self.packet.unwrap_or(self.frame);
        check(PACKET, "size", packet, self.frame, MAX_PACKET)?;
        let checked = classes::check(&self.delay_classes, self.classes.try_into()?);
        checked.map_err(|WrongClass { number, error }| SpecError::DelayClass { number, error })?;
        let names = self.groups.iter().map(|group| &group.name);
        for name in names.chain(self.hosts.iter().map(|host| &host.name)) {
            check_name(name)?;
        }
        let links = self.groups.iter();
        let links = links.map(|group| (&group.name, &group.uplink, LowerEnd::Switch));
        let host_links = self.hosts.iter();
        let host_links = host_links.map(|host| (&host.name, &host.uplink, LowerEnd::Host));
        for (name, uplink, end) in links.chain(host_links) {
            check(
                name,
                "link rate",
                uplink.rate,
                Rate(1_000_000),
                MAX_LIMITS.rate,
            )?;
            check(name, "number of links", uplink.links, 1, MAX_LINKS)?;
            for buffer in [Some(uplink.buffer), uplink.up_buffer]
                .into_iter()
                .flatten()
            {
                check(name, "buffer", buffer, self.frame, MAX_LIMITS.burst)?;
            }
            for left in [uplink.down(), uplink.up(end)] {
                let quantity = "buffer less shared buffer";
                check(name, quantity, left, self.frame, MAX_LIMITS.burst)?;
            }
        }
        let (mut nodes, mut slots) = (self.groups.len() as u64, 0_u64);
        for host in &self.hosts {
            check(&host.name, "count", host.count, 1, 2_000_000)?;
            check(&host.name, "number of slots", host.slots, 1, 100_000)?;
            check(&host.name, "cpu", host.cpu.unwrap_or(1), 1, PLENTY)?;
            check(
                &host.name,
                "memory",
                host.memory.unwrap_or(Bytes(1)),
                Bytes(1),
                Bytes(PLENTY),
            )?;
            let lateness = host.lateness.unwrap_or_default();
            check(&host.name, "lateness", lateness, Nanos::ZERO, MAX_LATENESS)?;
            nodes += u64::from(host.count);
            slots += u64::from(host.count) * u64::from(host.slots);
        }
        if self.hosts.is_empty() {
            return Err(SpecError::NoHosts);
        }
        check("all", "number of hosts and groups", nodes, 1, MAX_NODES)?;
        check("all", "number of slots", slots, 1, MAX_SLOTS)
    }

    /// Returns the indices of the groups by name.
    fn groups_by_name(&self) -> Result<HashMap<&str, usize>, SpecError> {
        let mut groups = HashMap::new();
        for (index, group) in self.groups.iter().enumerate() {
            if groups.insert(group.name.as_str(), index).is_some() {
                return Err(SpecError::Duplicate(group.name.clone()));
            }
        }
        Ok(groups)
    }
}

impl Uniform {
    /// Returns the same as a description. Names are `pod1`, `pod1-rack1`, `pod1-rack1-host-1`.
    pub fn spec(&self) -> Spec {
        let mut spec = Spec {
            frame: self.frame,
            packet: None,
            classes: default_classes(),
            delay_classes: Vec::new(),
            groups: Vec::new(),
            hosts: Vec::new(),
        };
        for pod in 1..=self.pods {
            let pod = format!("pod{pod}");
            for rack in 1..=self.racks {
                let rack = format!("{pod}-rack{rack}");
                spec.hosts.push(HostSpec {
                    name: format!("{rack}-host"),
                    group: Some(rack.clone()),
                    count: self.hosts,
                    slots: self.slots,
                    cpu: None,
                    memory: None,
                    lateness: None,
                    uplink: self.host_link.clone(),
                });
                spec.groups.push(GroupSpec {
                    name: rack,
                    parent: Some(pod.clone()),
                    uplink: self.rack_link.clone(),
                });
            }
            spec.groups.push(GroupSpec {
                name: pod,
                parent: None,
                uplink: self.pod_link.clone(),
            });
        }
        spec
    }
}

impl Node {
    fn new(
        name: String,
        parent: u32,
        uplink_number: u32,
        uplink: Option<(&UplinkSpec, LowerEnd)>,
        frame: Bytes,
    ) -> Self {
        let port = |buffer: Bytes, uplink: &UplinkSpec| {
            let capacity = Nanos(buffer.0 * 8_000_000_000 / uplink.rate.0);
            let parts = match uplink.spread {
                Spread::Flow => 1,
                Spread::Frame => uplink.links,
            };
            Port {
                rate: uplink.rate.0 * u64::from(parts),
                capacity,
                backlog_limit: backlog_limit(uplink.rate, capacity, frame) * u64::from(parts),
                feed: None,
                parts,
            }
        };
        Self {
            parent,
            children: 0..0,
            height: 0,
            up: uplink.map_or_else(Port::default, |(uplink, end)| port(uplink.up(end), uplink)),
            down: uplink.map_or_else(Port::default, |(uplink, _)| port(uplink.down(), uplink)),
            below: Nanos::ZERO,
            late: 0,
            beside: None,
            below_down: Nanos::ZERO,
            nearest: (Nanos::MAX, Nanos::MAX),
            name: name.into(),
            uplink: uplink_number,
        }
    }
}

/// A link, and which of [`Topology::uplinks`] it is.
#[derive(Clone, Copy)]
struct NumberedUplink<'a> {
    number: usize,
    spec: &'a UplinkSpec,
}

#[derive(Clone)]
struct Builder {
    frame: Bytes,
    packet: Bytes,
    classes: Classes,
    nodes: Vec<Node>,
    resources: Vec<Resources>,
}

impl Builder {
    /// Adds a node below `parent`.
    fn add(
        &mut self,
        name: String,
        parent: usize,
        uplink: NumberedUplink<'_>,
        end: LowerEnd,
        resources: Resources,
    ) {
        let NumberedUplink {
            number,
            spec: uplink,
        } = uplink;
        let (above, number) = (parent as u32, number as u32);
        let mut node = Node::new(name, above, number, Some((uplink, end)), self.frame);
        // Until the whole tree is known this is what the links can bring to others.
        node.up.feed = Some(AffineCurve {
            rate: uplink.rate.0 * u64::from(uplink.links),
            burst: self.frame.0 * 8 * u64::from(uplink.links),
        });
        self.nodes.push(node);
        self.resources.push(resources);
    }

    /// Adds host `number` of an entry, whose link is the uplink `entry`.
    fn add_host(&mut self, spec: &HostSpec, entry: usize, number: u32, parent: usize) {
        let name = if spec.count == 1 {
            spec.name.clone()
        } else {
            format!("{}-{number}", spec.name)
        };
        let resources = Resources {
            slots: spec.slots,
            cpu: spec.cpu.unwrap_or(PLENTY),
            memory: spec.memory.unwrap_or(Bytes(PLENTY)),
        };
        let uplink = NumberedUplink {
            number: entry,
            spec: &spec.uplink,
        };
        self.add(name, parent, uplink, LowerEnd::Host, resources);
        let node = self.nodes.last_mut().expect("it was just added");
        node.late = u32::from(spec.lateness.is_some());
        node.below = spec.lateness.unwrap_or_default();
    }

    /// Returns the builder with the queues of a delay class at every port.
    fn with_queues(&self, class: &DelayClassSpec) -> Result<Self, DelayClassError> {
        let mut of_class = self.clone();
        for node in &mut of_class.nodes[1..] {
            for (port, end) in [(&mut node.up, "up"), (&mut node.down, "down")] {
                let name = || format!("{} {end}", node.name);
                *port = class
                    .port(port, self.frame)
                    .map_err(|limit| limit.at(name()))?;
            }
        }
        Ok(of_class)
    }

    /// Computes what depends on the whole tree, for each class.
    fn finish_all(
        self,
        from: &[Option<usize>],
        uplinks: &[UplinkSpec],
        classes: &[DelayClassSpec],
    ) -> Result<Topology, SpecError> {
        let mut urgent = Vec::with_capacity(classes.len());
        for (class, number) in classes.iter().zip(1..) {
            let of_class = self.with_queues(class);
            let of_class = of_class.map_err(|error| SpecError::DelayClass { number, error })?;
            urgent.push(of_class.finish(from, uplinks.to_vec())?);
        }
        let mut topology = self.finish(from, uplinks.to_vec())?;
        topology.delay_classes = classes.to_vec();
        topology.urgent = urgent;
        Ok(topology)
    }

    /// Computes what depends on the whole tree.
    fn finish(
        mut self,
        from: &[Option<usize>],
        uplinks: Vec<UplinkSpec>,
    ) -> Result<Topology, SpecError> {
        let names = Names::new(&self.nodes)
            .map_err(|twice| SpecError::Duplicate(self.nodes[twice.index()].name.to_string()))?;
        self.sum_up(from)?;
        self.set_beside();
        self.set_feeds();
        let shortest = self.shortest();
        let mut by_height = vec![Vec::new(); usize::from(self.nodes[0].height) + 1];
        for (index, node) in self.nodes.iter().enumerate() {
            by_height[usize::from(node.height)].push(NodeId(index as u32));
        }
        Ok(Topology {
            nodes: self.nodes,
            resources: self.resources,
            by_height,
            names,
            uplinks,
            frame: self.frame,
            packet: self.packet,
            classes: self.classes,
            delay_classes: Vec::new(),
            urgent: Vec::new(),
            shortest,
        })
    }

    /// Adds up the resources, heights and delays of the nodes below each node, from the hosts
    /// upwards: a node comes after its parent in `nodes`.
    ///
    /// # Errors
    /// A node other than a host is empty, or the tree is too high or too slow.
    fn sum_up(&mut self, from: &[Option<usize>]) -> Result<(), SpecError> {
        for index in (1..self.nodes.len()).rev() {
            let node = &self.nodes[index];
            if from[index].is_some() && node.children.is_empty() {
                return Err(SpecError::Empty(node.name.to_string()));
            }
            let (name, height) = (&node.name, node.height);
            check(name, "number of levels below it", height, 0, MAX_HEIGHT)?;
            let (height, parent) = (height + 1, node.parent as usize);
            let below = node.below + node.up.capacity;
            let below_down = node.below_down + node.down.capacity;
            let longest = below.max(below_down);
            check(name, "delay to the top", longest, Nanos::ZERO, MAX_DELAY)?;
            // The delay up from the nearest host below, and down to it.
            let nearest = if node.height == 0 {
                (node.below, Nanos::ZERO)
            } else {
                node.nearest
            };
            let nearest = (nearest.0 + node.up.capacity, nearest.1 + node.down.capacity);
            let had = self.resources[index];
            let late = node.late;
            let above = &mut self.nodes[parent];
            above.late += late;
            above.height = above.height.max(height);
            above.below = above.below.max(below);
            above.below_down = above.below_down.max(below_down);
            above.nearest.0 = above.nearest.0.min(nearest.0);
            above.nearest.1 = above.nearest.1.min(nearest.1);
            let sum = &mut self.resources[parent];
            sum.slots += had.slots;
            sum.cpu += had.cpu;
            sum.memory += had.memory;
        }
        Ok(())
    }

    /// Returns the least delay between two hosts; zero with one host.
    fn shortest(&self) -> Nanos {
        let scopes = self.nodes.iter().map(|node| node.children.clone());
        let shortest = scopes
            .filter_map(|children| self.shortest_between(children))
            .min();
        shortest.unwrap_or_default()
    }

    /// Returns the least delay between hosts below two different children of one node.
    fn shortest_between(&self, children: Range<u32>) -> Option<Nanos> {
        // The shortest way up and the shortest way down of all children so far.
        let mut before: Option<(Nanos, Nanos)> = None;
        let mut shortest: Option<Nanos> = None;
        for child in children {
            let node = &self.nodes[child as usize];
            let (own_up, own_down) = if node.height == 0 {
                (node.below, Nanos::ZERO)
            } else {
                node.nearest
            };
            let (up, down) = (own_up + node.up.capacity, own_down + node.down.capacity);
            if let Some((other_up, other_down)) = before {
                let between = (up + other_down).min(other_up + down);
                shortest = Some(shortest.map_or(between, |least| least.min(between)));
            }
            let (other_up, other_down) = before.unwrap_or((up, down));
            before = Some((up.min(other_up), down.min(other_down)));
        }
        shortest
    }

    /// Sets how long the ways are to each node's parent from beside the node.
    fn set_beside(&mut self) {
        for index in 0..self.nodes.len() {
            let children = self.nodes[index].children.clone();
            // The longest way, and the longest but one.
            let mut longest: [Option<(u32, Nanos)>; 2] = [None; 2];
            for child in children.clone() {
                let node = &self.nodes[child as usize];
                let delay = node.below + node.up.capacity;
                let is_longer = |than: Option<(u32, Nanos)>| than.is_none_or(|it| delay > it.1);
                if is_longer(longest[0]) {
                    longest = [Some((child, delay)), longest[0]];
                } else if is_longer(longest[1]) {
                    longest[1] = Some((child, delay));
                }
            }
            for child in children {
                let beside = longest.into_iter().flatten().find(|delay| delay.0 != child);
                self.nodes[child as usize].beside = beside.map(|delay| delay.1);
            }
        }
    }

    /// Sets the feeds: a switch's ports get no more than its other links bring.
    fn set_feeds(&mut self) {
        let links: Vec<AffineCurve> = self
            .nodes
            .iter()
            .map(|node| node.up.feed.unwrap_or_default())
            .collect();
        for index in 0..self.nodes.len() {
            let children = self.nodes[index].children.clone();
            let sum = |of: fn(&AffineCurve) -> u64| {
                let all = &links[children.start as usize..children.end as usize];
                all.iter().map(of).fold(0_u64, u64::saturating_add)
            };
            let all = AffineCurve {
                rate: sum(|link| link.rate),
                burst: sum(|link| link.burst),
            };
            // A host's own queue is fed by its machines.
            self.nodes[index].up.feed = (!children.is_empty()).then_some(all);
            let above = links[index];
            for child in children {
                let own = links[child as usize];
                self.nodes[child as usize].down.feed = Some(AffineCurve {
                    rate: all.rate.saturating_add(above.rate) - own.rate,
                    burst: all.burst + above.burst - own.burst,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
