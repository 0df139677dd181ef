//! An experiment as data: what its TOML file says, checked.
//!
//! Read [`LabExperiment`] first.

mod grid;
mod loads;
mod paced;
mod probe;
mod traffic;
mod validate;
mod workflow;

pub use crate::guest::Manner;
pub(crate) use loads::Named;
pub use paced::{Etc, Guaranteed, Pacing, Shuffle, Wire};
pub use probe::{Duty, Probe, Surroundings};
pub use traffic::{Flood, Iperf, Message, Meter, Rtp, Transfer, Watch};
pub use workflow::{Nodes, Pattern, Selection, Workflow};

use serde::Deserialize;
use std::collections::BTreeMap;
use tailbound_dataplane::{PipelineConfig, SnoopMode};
use tailbound_experiment::{ChartSpec, Curve, Name};
use tailbound_units::{Bytes, Nanos, Rate};

/// An experiment of the lab: a data centre, load on it, and variants to compare.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabExperiment {
    /// How long each variant is measured.
    pub duration: Nanos,
    /// How long the load runs before that.
    #[serde(default = "default_warmup")]
    pub warmup: Nanos,
    /// The rate of every link.
    #[serde(default = "default_link_rate")]
    pub link_rate: Rate,
    /// What a switch port can queue for each of its classes.
    #[serde(default = "default_switch_buffer")]
    pub switch_buffer: Bytes,
    /// What counts for a frame's time on the wire.
    #[serde(default)]
    pub wire: Wire,
    /// The guests of each host.
    pub hosts: BTreeMap<String, Vec<Name>>,
    /// The guests that are the machines of one tenant, by its name.
    #[serde(default)]
    pub tenant: BTreeMap<String, Vec<Name>>,
    /// Sets of guarantees, by name.
    #[serde(default)]
    pub guarantee: BTreeMap<String, Vec<Guaranteed>>,
    /// Guests that share one core.
    pub shared_core: Option<SharedCore>,
    /// Guests that are virtual machines.
    pub machines: Option<Machines>,
    /// Guests whose CPU time is limited, in variants that say so.
    pub quota: Option<Quota>,
    /// What hosts do with packets, by name.
    #[serde(default)]
    pub pipeline: BTreeMap<String, Pipeline>,
    /// Request and response load.
    #[serde(default)]
    pub query: Vec<Query>,
    /// Bulk streams.
    #[serde(default)]
    pub bulk: Vec<Bulk>,
    /// Echo requests.
    #[serde(default)]
    pub ping: Vec<Ping>,
    /// Requests to memcached.
    #[serde(default)]
    pub etc: Vec<Etc>,
    /// Streams between all guests of a tenant.
    #[serde(default)]
    pub shuffle: Vec<Shuffle>,
    /// Messages of datagrams.
    #[serde(default)]
    pub message: Vec<Message>,
    /// Transfers to a guest.
    #[serde(default)]
    pub transfer: Vec<Transfer>,
    /// Streams of RTP that are computed as they are sent.
    #[serde(default)]
    pub rtp: Vec<Rtp>,
    /// Streams of iperf3.
    #[serde(default)]
    pub iperf: Vec<Iperf>,
    /// Frames of a guest's own making.
    #[serde(default)]
    pub flood: Vec<Flood>,
    /// Measures of what a guest receives.
    #[serde(default)]
    pub meter: Vec<Meter>,
    /// Ports of the switch that are watched.
    #[serde(default)]
    pub watch: Vec<Watch>,
    /// Guests that use CPU.
    #[serde(default)]
    pub hog: Vec<Hog>,
    /// Guests that use a part of the CPU.
    #[serde(default)]
    pub duty: Vec<Duty>,
    /// `tailbound probe` in a guest.
    #[serde(default)]
    pub probe: Vec<Probe>,
    /// A guest that sleeps and sees when it wakes.
    #[serde(default)]
    pub wakeup: Vec<Wakeup>,
    /// Guests that are called in workflows, and who calls them.
    pub nodes: Option<Nodes>,
    /// `tailbound select` of them.
    #[serde(default)]
    pub selection: Vec<Selection>,
    /// Workflows of calls to them.
    #[serde(default)]
    pub workflow: Vec<Workflow>,
    /// What is compared.
    pub variant: Vec<Variant>,
    /// What is drawn over the count of neighbours, a line for each name that has
    /// several.
    #[serde(default)]
    pub chart: Vec<ChartSpec>,
}

const fn default_warmup() -> Nanos {
    Nanos::from_secs(1)
}

const fn default_link_rate() -> Rate {
    Rate::from_mbit(100)
}

/// Small is Better, table 5: where tags are ignored the 99.9th percentile levels off near
/// 5.3 ms at 1 Gbit/s, the time of about 650 KB.
const fn default_switch_buffer() -> Bytes {
    Bytes(650_000)
}

/// Guests whose threads all run on one CPU, and what tells some of them from the
/// others in variants that name a class in `vcpu`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedCore {
    /// The guests.
    pub guests: Vec<Name>,
    /// Which of them get a class, and what it is if that is a reservation.
    pub periodic: Periodic,
    /// The time slice of those with a short one.
    #[serde(default = "default_slice")]
    pub slice: Nanos,
}

/// The shortest that Linux takes.
const fn default_slice() -> Nanos {
    Nanos::from_micros(100)
}

/// Guests that are virtual machines, each with a kernel of its own; all others are network
/// namespaces.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machines {
    /// What they run in.
    pub kind: MachineKind,
    /// The guests.
    pub guests: Vec<Name>,
}

/// What a machine runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineKind {
    /// QEMU, whose card is spoken to by vhost-user.
    Qemu,
}

/// CPU time that a guest's machine has in each period, as a control group's quota.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Whose: each has one of its own.
    pub guests: Vec<Name>,
    /// The time, of all threads of the machine.
    pub runtime: Nanos,
    /// The period.
    pub period: Nanos,
}

/// A reservation of CPU time (`SCHED_DEADLINE`).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Periodic {
    /// Who has it.
    pub guests: Vec<Name>,
    /// CPU time in each period.
    pub runtime: Nanos,
    /// By when.
    pub deadline: Nanos,
    /// The period.
    pub period: Nanos,
}

/// What a host does with packets on their way out: it has a NIC queue and a
/// pipeline before it, or a pacer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// How long the NIC's own queue is, in time at the link rate: its limit in
    /// bytes follows the rate. Only without a pacer, which fills the wire itself.
    pub nic_queue: Option<Nanos>,
    /// The host's pipeline without its NIC.
    #[serde(default = "no_config")]
    pub config: toml::Spanned<PipelineConfig>,
    /// The pacer.
    pub pacer: Option<Pacing>,
}

fn no_config() -> toml::Spanned<PipelineConfig> {
    toml::Spanned::new(0..0, PipelineConfig::default())
}

/// Requests at random moments, each answered by one of several servers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// What variants call it.
    pub name: Name,
    /// The guest that asks.
    pub client: Name,
    /// The guests that answer; each request goes to one of them at random.
    pub servers: Vec<Name>,
    /// The size of an answer.
    pub answer: Bytes,
    /// The mean time between requests, or
    pub mean_gap: Option<Nanos>,
    /// the share of the link that the answers fill on average.
    pub utilisation: Option<f64>,
    /// Connections to each server that are open from the start.
    #[serde(default = "default_connections")]
    pub connections: usize,
    /// Who answers.
    #[serde(default)]
    pub tool: QueryTool,
    /// The series of completion times.
    pub series: String,
}

const fn default_connections() -> usize {
    4
}

/// Who answers queries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueryTool {
    /// The lab's own server.
    #[default]
    Own,
    /// memcached, asked for one value of the answer's size.
    Memcached,
}

/// One TCP stream that never ends.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bulk {
    /// What variants call it.
    pub name: Name,
    /// The sender.
    pub from: Name,
    /// The receiver.
    pub to: Name,
    /// Who sends.
    #[serde(default)]
    pub tool: BulkTool,
    /// The value of the rate received.
    pub value: String,
    /// That of the share of a CPU that the daemon of the sender's host used, in percent.
    pub cpu_value: Option<String>,
}

/// Who sends a bulk stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BulkTool {
    /// The lab's own sender.
    #[default]
    Own,
    /// iperf3.
    Iperf3,
}

/// ICMP echo requests at fixed moments.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ping {
    /// What variants call it.
    pub name: Name,
    /// Who asks.
    pub from: Name,
    /// Whose kernel answers.
    pub to: Name,
    /// The time between requests.
    pub every: Nanos,
    /// Who sends.
    #[serde(default)]
    pub tool: PingTool,
    /// The series of round trips.
    pub series: String,
}

/// Who sends echo requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PingTool {
    /// The lab's own sender: a late reply never delays the next request.
    #[default]
    Own,
    /// ping of iputils.
    Ping,
}

/// CPU-bound work with brief sleeps (Small is Better, 5.2): scans of a block.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hog {
    /// What variants call it.
    pub name: Name,
    /// The guests; each runs one.
    pub guests: Vec<Name>,
    /// Scans between two sleeps.
    #[serde(default = "default_scans")]
    pub scans: u32,
    /// The length of a sleep.
    #[serde(default = "default_sleep")]
    pub sleep: Nanos,
    /// The size of the block; otherwise that of the L2 cache.
    pub block: Option<Bytes>,
    /// How nice they are: 5 leaves another thread three times the share of each.
    #[serde(default)]
    pub nice: u8,
    /// The value of all guests' scans a second together.
    pub value: String,
    /// That of the share of a CPU that they got together, in percent.
    pub cpu_value: Option<String>,
}

const fn default_scans() -> u32 {
    100
}

const fn default_sleep() -> Nanos {
    Nanos::from_millis(1)
}

/// A guest that sleeps until random moments.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wakeup {
    /// What variants call it.
    pub name: Name,
    /// The guest.
    pub guest: Name,
    /// The mean time between two moments.
    pub mean_gap: Nanos,
    /// The series of how late it woke.
    pub series: String,
}

/// One of the configurations that are compared.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Stable name: an interface.
    pub name: Name,
    /// The hosts' pipeline, where the load uses the network.
    pub pipeline: Option<Name>,
    /// The set of guarantees that hold; guests of tenants that it does not name are
    /// best effort.
    pub guarantees: Option<Name>,
    /// Who tells the hosts of them.
    #[serde(default)]
    pub guarantees_by: GuaranteesBy,
    /// What the switch makes of the tags.
    #[serde(default)]
    pub switch: SwitchMode,
    /// The scheduling class of the guests named under `shared_core.periodic`.
    #[serde(default)]
    pub vcpu: VcpuMode,
    /// What the hosts' daemons get of the CPU.
    #[serde(default)]
    pub path: PathMode,
    /// By when a guest with a reservation runs, and how often, where that is not what
    /// `shared_core.periodic` says: it has the same share of the core.
    pub deadline: Option<Nanos>,
    /// Acknowledge TCP early for all guests that are machines.
    pub snoop: Option<SnoopMode>,
    /// Limit the CPU time of the guests named under `quota`.
    #[serde(default)]
    pub quota: bool,
    /// Run it only where scheduling classes cannot be set: what remains of the
    /// comparison there.
    #[serde(default)]
    pub only_without_periodic: bool,
    /// The loads that run, by name.
    pub loads: Vec<Name>,
    /// How many of each hog's guests run. A list of counts stands for a variant
    /// each, called by the variant's name and the count.
    #[serde(default)]
    pub neighbours: Vec<usize>,
}

/// Who tells hosts what their guests are guaranteed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuaranteesBy {
    /// Each host's own configuration.
    #[default]
    File,
    /// The placement service, which admits the tenants and is told by the hosts that they keep
    /// it.
    Service,
}

/// What the switch makes of the tags.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchMode {
    /// One queue for all.
    #[default]
    TagsIgnored,
    /// Each class goes before those below it.
    TagsHonoured,
}

/// What a host's own path gets of the CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathMode {
    /// What the vCPU agent gives it.
    #[default]
    Given,
    /// What the kernel gives to any thread.
    None,
}

/// The scheduling class of a guest's threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VcpuMode {
    /// What the kernel gives to any thread.
    #[default]
    Default,
    /// A larger share than its neighbours': they get nice 19.
    Weight,
    /// A short time slice.
    Slice,
    /// A short slice and a larger share, as the vCPU agent gives them.
    Aperiodic,
    /// A reservation.
    Periodic,
}

impl LabExperiment {
    /// All guests with their hosts, hosts and guests in order.
    pub fn guests(&self) -> impl Iterator<Item = (&str, &str)> {
        self.hosts.iter().flat_map(|(host, guests)| {
            let guests = guests.iter();
            guests.map(move |guest| (host.as_str(), guest.get_ref().as_str()))
        })
    }

    /// The host of a guest.
    pub(crate) fn host_of(&self, guest: &str) -> Option<&str> {
        let mut guests = self.guests();
        let found = guests.find(|(_, name)| *name == guest);
        found.map(|(host, _)| host)
    }

    /// Whether a variant has machines: guests of its network, or the probe's.
    pub(crate) fn has_machines(&self, variant: &Variant) -> bool {
        let mut probes = variant.running(&self.probe);
        let guests = variant.pipeline.is_some() && self.machines.is_some();
        guests || probes.any(|load| load.place == Surroundings::Machine)
    }

    /// Whether a guest is a virtual machine.
    pub fn is_machine(&self, guest: &str) -> bool {
        let machines = self.machines.iter().flat_map(|machines| &machines.guests);
        machines.into_iter().any(|name| name.get_ref() == guest)
    }

    /// The lines of charts: the variants of one name over their counts of neighbours.
    pub(crate) fn families(&self) -> Vec<Curve> {
        let mut curves: Vec<Curve> = Vec::new();
        for variant in &self.variant {
            let Some(count) = variant.count() else {
                continue;
            };
            let point = (count as f64, variant.name.get_ref().clone());
            let family = variant.family();
            match curves.iter_mut().find(|curve| curve.name == family) {
                Some(curve) => curve.points.push(point),
                None => curves.push(Curve {
                    name: family.to_owned(),
                    points: vec![point],
                }),
            }
        }
        curves
    }

    /// The values that say what was done on the shared core, and the series of what took as long
    /// as a guest on it did.
    pub(crate) fn on_shared_core(&self) -> Vec<String> {
        let shared = self.shared_core.iter().flat_map(|core| &core.guests);
        let shared: Vec<&str> = shared.map(|name| name.get_ref().as_str()).collect();
        let there = |guests: &[Name]| {
            guests
                .iter()
                .any(|g| shared.contains(&g.get_ref().as_str()))
        };
        let hogs = self.hog.iter().flat_map(|load| {
            let values = std::iter::once(&load.value).chain(&load.cpu_value);
            values.map(|value| (&load.guests, value))
        });
        let duties = self.duty.iter().map(|load| (&load.guests, &load.value));
        let done = hogs.chain(duties);
        let done = done.filter(|(guests, _)| there(guests));
        let is_there = |guest: &Name| there(std::slice::from_ref(guest));
        let queries = self.query.iter();
        let queries = queries.filter(|load| is_there(&load.client) || there(&load.servers));
        let pings = self.ping.iter();
        let pings = pings.filter(|load| is_there(&load.from) || is_there(&load.to));
        let wakeups = self.wakeup.iter().filter(|load| is_there(&load.guest));
        let nodes = self.nodes.iter().filter(|nodes| there(&nodes.guests));
        let workflows = nodes.flat_map(|_| &self.workflow);
        let messages = self.message.iter();
        let messages = messages.filter(|load| there(&load.from) || there(&load.to));
        let streams = self.rtp.iter().filter(|load| is_there(&load.from));
        let iperfs = self.iperf.iter().filter(|load| is_there(&load.from));
        done.map(|(_, value)| value)
            .chain(queries.map(|load| &load.series))
            .chain(pings.map(|load| &load.series))
            .chain(wakeups.map(|load| &load.series))
            .chain(workflows.map(|load| &load.series))
            .chain(messages.map(|load| &load.series))
            .chain(streams.map(|load| &load.series))
            .chain(iperfs.map(|load| &load.value))
            .cloned()
            .collect()
    }
}

impl SharedCore {
    /// The same where a reservation has that deadline and period, and the same share of the core.
    pub(crate) fn with_deadline(&self, deadline: Nanos) -> Self {
        let mut shared = self.clone();
        let periodic = &mut shared.periodic;
        let share = periodic.runtime.as_nanos() as f64 / periodic.period.as_nanos() as f64;
        periodic.runtime = Nanos((deadline.as_nanos() as f64 * share) as u64);
        (periodic.deadline, periodic.period) = (deadline, deadline);
        shared
    }
}

impl Query {
    /// The mean time between requests where every link has `rate`.
    pub fn gap(&self, rate: Rate) -> Nanos {
        match (self.mean_gap, self.utilisation) {
            (Some(gap), _) => gap,
            (None, Some(share)) if share > 0.0 => {
                let busy = rate.time_for(self.answer).as_nanos() as f64;
                Nanos((busy / share) as u64)
            }
            (None, _) => Nanos::MAX,
        }
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
