//! An experiment as data: the checked contents of its TOML file.
//!
//! Read [`LabExperiment`] first.

mod grid;
mod loads;
mod paced;
mod probe;
mod traffic;
mod validate;
mod workflow;

pub(crate) use crate::guest::Manner;
pub(crate) use loads::NamedLoad;
pub(crate) use paced::{Etc, Guaranteed, Pacing, Shuffle, Wire};
pub(crate) use probe::{Duty, Probe, Surroundings};
pub(crate) use traffic::{Flood, Iperf, Message, Meter, Rtp, Transfer, Watch};
pub(crate) use workflow::{Nodes, Selection, Workflow};

use serde::Deserialize;
use std::collections::BTreeMap;
use tailbound_dataplane::{PipelineConfig, SnoopMode};
use tailbound_experiment::{ChartSpec, Curve, Name};
use tailbound_units::{Bytes, Nanos, Rate};

/// An experiment of the lab: a data centre, load on it, and variants to compare.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabExperiment {
    /// Length of each variant's measurement.
    pub duration: Nanos,
    /// Length of the load before the measurement; 1 s.
    #[serde(default = "default_warmup")]
    pub(crate) warmup: Nanos,
    /// Rate of every link; 100 Mbit/s.
    #[serde(default = "default_link_rate")]
    pub link_rate: Rate,
    /// Buffer of a switch port for each of its classes; 650 KB.
    #[serde(default = "default_switch_buffer")]
    pub(crate) switch_buffer: Bytes,
    /// Bytes that count for a frame's time on the wire: those of the frame, or with `"ethernet"` 24
    /// more and at least 84.
    #[serde(default)]
    pub(crate) wire: Wire,
    /// Guests of each host.
    pub(crate) hosts: BTreeMap<String, Vec<Name>>,
    /// Guests that are the VMs of one tenant, by its name.
    #[serde(default)]
    pub(crate) tenant: BTreeMap<String, Vec<Name>>,
    /// Sets of guarantees, by name.
    #[serde(default)]
    pub(crate) guarantee: BTreeMap<String, Vec<Guaranteed>>,
    /// Guests that share one core.
    pub(crate) shared_core: Option<SharedCore>,
    /// Guests that are virtual machines.
    pub(crate) machines: Option<Machines>,
    /// Guests whose CPU time is limited, in variants with `quota = true`.
    pub(crate) quota: Option<Quota>,
    /// Pipelines of hosts, by name.
    #[serde(default)]
    pub(crate) pipeline: BTreeMap<String, Pipeline>,
    /// Request and response load.
    #[serde(default)]
    pub(crate) query: Vec<Query>,
    /// Bulk streams.
    #[serde(default)]
    pub(crate) bulk: Vec<Bulk>,
    /// Echo requests.
    #[serde(default)]
    pub(crate) ping: Vec<Ping>,
    /// Requests to memcached.
    #[serde(default)]
    pub(crate) etc: Vec<Etc>,
    /// Streams between all guests of a tenant.
    #[serde(default)]
    pub(crate) shuffle: Vec<Shuffle>,
    /// Messages of datagrams.
    #[serde(default)]
    pub(crate) message: Vec<Message>,
    /// Transfers to a guest.
    #[serde(default)]
    pub(crate) transfer: Vec<Transfer>,
    /// Streams of RTP that are computed as they are sent.
    #[serde(default)]
    pub(crate) rtp: Vec<Rtp>,
    /// Streams of iperf3.
    #[serde(default)]
    pub(crate) iperf: Vec<Iperf>,
    /// Frames that guests compose themselves.
    #[serde(default)]
    pub(crate) flood: Vec<Flood>,
    /// Measurements of a guest's received traffic.
    #[serde(default)]
    pub(crate) meter: Vec<Meter>,
    /// Watched ports of the switch.
    #[serde(default)]
    pub(crate) watch: Vec<Watch>,
    /// Guests that use CPU.
    #[serde(default)]
    pub(crate) hog: Vec<Hog>,
    /// Guests that use a part of the CPU.
    #[serde(default)]
    pub(crate) duty: Vec<Duty>,
    /// `tailbound probe` in a guest.
    #[serde(default)]
    pub(crate) probe: Vec<Probe>,
    /// Guests that sleep until random times and measure the delay of their wakeups.
    #[serde(default)]
    pub(crate) wakeup: Vec<Wakeup>,
    /// Guests that are called in workflows, and their caller.
    pub(crate) nodes: Option<Nodes>,
    /// Selections of these guests by `tailbound select`.
    #[serde(default)]
    pub(crate) selection: Vec<Selection>,
    /// Workflows of calls to these guests.
    #[serde(default)]
    pub(crate) workflow: Vec<Workflow>,
    /// The compared configurations.
    pub(crate) variant: Vec<Variant>,
    /// Charts over the count of neighbours, with a line for each name that has several counts.
    #[serde(default)]
    pub(crate) chart: Vec<ChartSpec>,
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

/// Guests whose threads all run on one CPU, and the guests among them that have a class in variants
/// with `vcpu`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SharedCore {
    /// Guests.
    pub(crate) guests: Vec<Name>,
    /// Guests that have a class, and its parameters if the class is a reservation.
    pub(crate) periodic: Periodic,
    /// Time slice of guests with a short one; 0.1 ms.
    #[serde(default = "default_slice")]
    pub(crate) slice: Nanos,
}

/// The shortest slice that Linux accepts.
const fn default_slice() -> Nanos {
    Nanos::from_micros(100)
}

/// Guests that are virtual machines, each with a kernel of its own; all others are network
/// namespaces.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Machines {
    /// The VMM of the guests.
    #[expect(dead_code, reason = "there is one kind")]
    pub(crate) kind: MachineKind,
    /// The guests.
    pub(crate) guests: Vec<Name>,
}

/// The VMM of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MachineKind {
    /// QEMU, whose NIC uses vhost-user.
    Qemu,
}

/// CPU time of a guest's VM in each period, as a control group's quota.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Quota {
    /// Guests; each has a quota of its own.
    pub(crate) guests: Vec<Name>,
    /// Time of all threads of the VM.
    pub(crate) runtime: Nanos,
    /// Period.
    pub(crate) period: Nanos,
}

/// A reservation of CPU time (`SCHED_DEADLINE`).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Periodic {
    /// Guests with a reservation.
    pub(crate) guests: Vec<Name>,
    /// CPU time in each period.
    pub(crate) runtime: Nanos,
    /// Deadline, from the beginning of the period.
    pub(crate) deadline: Nanos,
    /// Period.
    pub(crate) period: Nanos,
}

/// Packet path of a host towards its link: a NIC queue and a pipeline before it, or a pacer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pipeline {
    /// Length of the NIC's own queue, in time at the link rate. Only without a pacer, which fills
    /// the wire itself.
    pub(crate) nic_queue: Option<Nanos>,
    /// The host's pipeline without its NIC.
    #[serde(default = "no_config")]
    pub(crate) config: toml::Spanned<PipelineConfig>,
    /// The pacer.
    pub(crate) pacer: Option<Pacing>,
}

fn no_config() -> toml::Spanned<PipelineConfig> {
    toml::Spanned::new(0..0, PipelineConfig::default())
}

/// Requests at random times, each answered by one of several servers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Query {
    /// Name of the load, for variants.
    pub(crate) name: Name,
    /// The guest that sends requests.
    pub(crate) client: Name,
    /// The guests that answer; each request goes to one of them at random.
    pub(crate) servers: Vec<Name>,
    /// The size of an answer.
    pub(crate) answer: Bytes,
    /// The mean time between requests, or
    pub(crate) mean_gap: Option<Nanos>,
    /// the share of the link that the answers fill on average.
    pub(crate) utilisation: Option<f64>,
    /// Connections to each server that are open from the start.
    #[serde(default = "default_connections")]
    pub(crate) connections: usize,
    /// The series of completion times.
    pub(crate) series: String,
}

const fn default_connections() -> usize {
    4
}

/// One TCP stream that never ends.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bulk {
    /// Name of the load, for variants.
    pub(crate) name: Name,
    /// The sender.
    pub(crate) from: Name,
    /// The receiver.
    pub(crate) to: Name,
    /// Name of the value of the received rate.
    pub(crate) value: String,
    /// Name of the value of the CPU share that the daemon of the sender's host used, in percent.
    pub(crate) cpu_value: Option<String>,
}

/// ICMP echo requests at fixed intervals.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ping {
    /// Name of the load, for variants.
    pub(crate) name: Name,
    /// The guest that sends requests.
    pub(crate) from: Name,
    /// The guest whose kernel answers.
    pub(crate) to: Name,
    /// The time between requests.
    pub(crate) every: Nanos,
    /// Name of the series of round trips.
    pub(crate) series: String,
}

/// CPU-bound work with brief sleeps (Small is Better, 5.2): scans of a block.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hog {
    /// Name, for variants.
    pub(crate) name: Name,
    /// Guests; each runs one.
    pub(crate) guests: Vec<Name>,
    /// Scans between two sleeps; 100.
    #[serde(default = "default_scans")]
    pub(crate) scans: u32,
    /// Length of a sleep; 1 ms.
    #[serde(default = "default_sleep")]
    pub(crate) sleep: Nanos,
    /// Size of the block; the default is that of the L2 cache.
    pub(crate) block: Option<Bytes>,
    /// Nice value of the hogs: with 5, another thread has three times the share of each.
    #[serde(default)]
    pub(crate) nice: u8,
    /// Value of all guests' scans per second together.
    pub(crate) value: String,
    /// Value of their CPU share together, in percent.
    pub(crate) cpu_value: Option<String>,
}

const fn default_scans() -> u32 {
    100
}

const fn default_sleep() -> Nanos {
    Nanos::from_millis(1)
}

/// A guest that sleeps until random times.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wakeup {
    /// Name, for variants.
    pub(crate) name: Name,
    /// The guest.
    pub(crate) guest: Name,
    /// Mean time between two wakeups.
    pub(crate) mean_gap: Nanos,
    /// Series of the wakeups' delays.
    pub(crate) series: String,
}

/// One of the compared configurations.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    /// Stable name: an interface.
    pub(crate) name: Name,
    /// The hosts' pipeline, if the load uses the network.
    pub(crate) pipeline: Option<Name>,
    /// The set of guarantees that hold; guests of tenants without one in it are best effort.
    pub(crate) guarantees: Option<Name>,
    /// Source of the hosts' guarantees.
    #[serde(default)]
    pub(crate) guarantees_by: GuaranteesBy,
    /// The switch's use of the tags.
    #[serde(default)]
    pub(crate) switch: SwitchMode,
    /// The scheduling class of the guests named under `shared_core.periodic`.
    #[serde(default)]
    pub(crate) vcpu: VcpuMode,
    /// Scheduling class of the hosts' packet loops.
    #[serde(default)]
    pub(crate) path: PathMode,
    /// Deadline and period of guests with a reservation, if other than in `shared_core.periodic`,
    /// for the same share of the core.
    pub(crate) deadline: Option<Nanos>,
    /// Acknowledge TCP early for all guests that are VMs.
    pub(crate) snoop: Option<SnoopMode>,
    /// Limit the CPU time of the guests named under `quota`.
    #[serde(default)]
    pub(crate) quota: bool,
    /// Run this variant only if scheduling classes cannot be set, as the part of the comparison
    /// that remains possible.
    #[serde(default)]
    pub(crate) only_without_periodic: bool,
    /// The running loads, by name.
    pub(crate) loads: Vec<Name>,
    /// Running guests of each hog. A list of counts stands for a variant each, named by the
    /// variant's name and the count.
    #[serde(default)]
    pub(crate) neighbours: Vec<usize>,
}

/// Source of the hosts' guarantees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum GuaranteesBy {
    /// Each host's own configuration.
    #[default]
    File,
    /// The placement service, which admits the tenants; hosts report to it that they enforce the
    /// guarantees.
    Service,
}

/// The switch's use of the tags.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SwitchMode {
    /// One queue for all classes.
    #[default]
    TagsIgnored,
    /// Strict priority of the classes.
    TagsHonoured,
}

/// Scheduling class of a host's packet loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PathMode {
    /// The class that the vCPU agent sets.
    #[default]
    Given,
    /// The kernel's default for any thread.
    None,
}

/// The scheduling class of a guest's threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum VcpuMode {
    /// The kernel's default for any thread.
    #[default]
    Default,
    /// A larger share than its neighbours, which have nice 19.
    Weight,
    /// A short time slice.
    Slice,
    /// A short slice and a larger share, as the vCPU agent sets them.
    Aperiodic,
    /// A reservation.
    Periodic,
}

impl LabExperiment {
    /// Returns all guests with their hosts, hosts and guests in order.
    pub(crate) fn guests(&self) -> impl Iterator<Item = (&str, &str)> {
        self.hosts.iter().flat_map(|(host, guests)| {
            let guests = guests.iter();
            guests.map(move |guest| (host.as_str(), guest.get_ref().as_str()))
        })
    }

    /// Returns the host of a guest.
    pub(crate) fn host_of(&self, guest: &str) -> Option<&str> {
        let mut guests = self.guests();
        let found = guests.find(|(_, name)| *name == guest);
        found.map(|(host, _)| host)
    }

    /// Returns whether a variant has VMs: guests of its network, or the probe's.
    pub(crate) fn has_machines(&self, variant: &Variant) -> bool {
        let mut probes = variant.running(&self.probe);
        let guests = variant.pipeline.is_some() && self.machines.is_some();
        guests || probes.any(|load| load.place == Surroundings::Machine)
    }

    /// Returns whether a guest is a VM.
    pub(crate) fn is_machine(&self, guest: &str) -> bool {
        let machines = self.machines.iter().flat_map(|machines| &machines.guests);
        machines.into_iter().any(|name| name.get_ref() == guest)
    }

    /// Returns the lines of charts: the variants of one name over their counts of neighbours.
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

    /// Returns the values of work on the shared core, and the series of durations that depend on a
    /// guest on that core.
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
    /// Returns the same core with a reservation of this deadline and period, and the same share of
    /// the core.
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
    /// Returns the mean time between requests if every link has `rate`.
    pub(crate) fn gap(&self, rate: Rate) -> Nanos {
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
