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
    /// Measured time per variant.
    pub duration: Nanos,
    /// Load before the measurement; 1 s.
    #[serde(default = "default_warmup")]
    pub(crate) warmup: Nanos,
    /// Rate of links; 100 Mbit/s.
    #[serde(default = "default_link_rate")]
    pub link_rate: Rate,
    /// Buffer of a switch port per class; 650 KB.
    #[serde(default = "default_switch_buffer")]
    pub(crate) switch_buffer: Bytes,
    /// Counted bytes of a frame on the wire: its own, or with `"ethernet"` 24 more and at least 84.
    #[serde(default)]
    pub(crate) wire: Wire,
    /// Guests of each host.
    pub(crate) hosts: BTreeMap<String, Vec<Name>>,
    /// VMs of a tenant, by its name.
    #[serde(default)]
    pub(crate) tenant: BTreeMap<String, Vec<Name>>,
    /// Sets of guarantees, by name.
    #[serde(default)]
    pub(crate) guarantee: BTreeMap<String, Vec<Guaranteed>>,
    /// Guests with threads on one CPU.
    pub(crate) shared_core: Option<SharedCore>,
    /// Guests that are VMs.
    pub(crate) machines: Option<Machines>,
    /// Guests with limited CPU time, in variants with `quota = true`.
    pub(crate) quota: Option<Quota>,
    /// Pipelines of hosts, by name.
    #[serde(default)]
    pub(crate) pipeline: BTreeMap<String, Pipeline>,
    /// Requests at random times.
    #[serde(default)]
    pub(crate) query: Vec<Query>,
    /// Endless TCP streams.
    #[serde(default)]
    pub(crate) bulk: Vec<Bulk>,
    /// Echo requests.
    #[serde(default)]
    pub(crate) ping: Vec<Ping>,
    /// Requests to memcached.
    #[serde(default)]
    pub(crate) etc: Vec<Etc>,
    /// A stream from each guest to each one on another host.
    #[serde(default)]
    pub(crate) shuffle: Vec<Shuffle>,
    /// UDP messages.
    #[serde(default)]
    pub(crate) message: Vec<Message>,
    /// TCP transfers.
    #[serde(default)]
    pub(crate) transfer: Vec<Transfer>,
    /// RTP streams.
    #[serde(default)]
    pub(crate) rtp: Vec<Rtp>,
    /// UDP streams of iperf3.
    #[serde(default)]
    pub(crate) iperf: Vec<Iperf>,
    /// Frames at full speed.
    #[serde(default)]
    pub(crate) flood: Vec<Flood>,
    /// Measurements of received traffic.
    #[serde(default)]
    pub(crate) meter: Vec<Meter>,
    /// Watched ports of the switch.
    #[serde(default)]
    pub(crate) watch: Vec<Watch>,
    /// CPU-bound guests.
    #[serde(default)]
    pub(crate) hog: Vec<Hog>,
    /// Partly busy guests.
    #[serde(default)]
    pub(crate) duty: Vec<Duty>,
    /// `tailbound probe` in a guest.
    #[serde(default)]
    pub(crate) probe: Vec<Probe>,
    /// Guests that sleep until random times.
    #[serde(default)]
    pub(crate) wakeup: Vec<Wakeup>,
    /// Called guests and their caller.
    pub(crate) nodes: Option<Nodes>,
    /// Selections of nodes by `tailbound select`.
    #[serde(default)]
    pub(crate) selection: Vec<Selection>,
    /// Workflows of calls to nodes.
    #[serde(default)]
    pub(crate) workflow: Vec<Workflow>,
    /// Compared configurations.
    pub(crate) variant: Vec<Variant>,
    /// Charts over the count of neighbours, a line per name with several counts.
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

/// Guests with threads on one CPU.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SharedCore {
    /// Guests.
    pub(crate) guests: Vec<Name>,
    /// Guests with a class in variants with `vcpu`, and a reservation's parameters.
    pub(crate) periodic: Periodic,
    /// Length of a short time slice; 0.1 ms.
    #[serde(default = "default_slice")]
    pub(crate) slice: Nanos,
}

/// The shortest slice that Linux accepts.
const fn default_slice() -> Nanos {
    Nanos::from_micros(100)
}

/// Guests that are VMs; others are network namespaces.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Machines {
    /// VMM.
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

/// Guests with limited CPU time, in variants with `quota = true`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Quota {
    /// Guests, each with its own quota.
    pub(crate) guests: Vec<Name>,
    /// CPU time of a VM's threads per period.
    pub(crate) runtime: Nanos,
    /// Period.
    pub(crate) period: Nanos,
}

/// Guests with a class in variants with `vcpu`, and its reservation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Periodic {
    /// Guests.
    pub(crate) guests: Vec<Name>,
    /// CPU time per period.
    pub(crate) runtime: Nanos,
    /// Deadline, from the period's beginning.
    pub(crate) deadline: Nanos,
    /// Period.
    pub(crate) period: Nanos,
}

/// Packet path of a host to its link: a NIC queue and a pipeline, or a pacer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pipeline {
    /// Length of the NIC's queue, in time at the link rate. Not with a pacer.
    pub(crate) nic_queue: Option<Nanos>,
    /// Pipeline without its NIC.
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
    /// Name.
    pub(crate) name: Name,
    /// Guest that sends requests.
    pub(crate) client: Name,
    /// Guests that answer; each request has a random one.
    pub(crate) servers: Vec<Name>,
    /// Size of an answer.
    pub(crate) answer: Bytes,
    /// Mean time between requests; or `utilisation`.
    pub(crate) mean_gap: Option<Nanos>,
    /// Mean share of the link for the answers.
    pub(crate) utilisation: Option<f64>,
    /// Connections per server, open from the start.
    #[serde(default = "default_connections")]
    pub(crate) connections: usize,
    /// Series of completion times.
    pub(crate) series: String,
}

const fn default_connections() -> usize {
    4
}

/// An endless TCP stream.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bulk {
    /// Name.
    pub(crate) name: Name,
    /// Sender.
    pub(crate) from: Name,
    /// Receiver.
    pub(crate) to: Name,
    /// Value of the received rate.
    pub(crate) value: String,
    /// Value of the CPU share of the daemon at the sender's host, in percent.
    pub(crate) cpu_value: Option<String>,
}

/// Echo requests at fixed intervals.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ping {
    /// Name.
    pub(crate) name: Name,
    /// Guest that sends requests.
    pub(crate) from: Name,
    /// Guest whose kernel answers.
    pub(crate) to: Name,
    /// Time between requests.
    pub(crate) every: Nanos,
    /// Series of round trips.
    pub(crate) series: String,
}

/// CPU-bound work with brief sleeps (Small is Better, 5.2): scans of a block.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hog {
    /// Name.
    pub(crate) name: Name,
    /// Guests; each runs one.
    pub(crate) guests: Vec<Name>,
    /// Scans between sleeps; 100.
    #[serde(default = "default_scans")]
    pub(crate) scans: u32,
    /// Length of a sleep; 1 ms.
    #[serde(default = "default_sleep")]
    pub(crate) sleep: Nanos,
    /// Size of the block; that of the L2 cache.
    pub(crate) block: Option<Bytes>,
    /// Nice value of the hogs.
    #[serde(default)]
    pub(crate) nice: u8,
    /// Value of all guests' scans per second.
    pub(crate) value: String,
    /// Value of their CPU share, in percent.
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
    /// Name.
    pub(crate) name: Name,
    /// The guest.
    pub(crate) guest: Name,
    /// Mean time between wakeups.
    pub(crate) mean_gap: Nanos,
    /// Series of delays.
    pub(crate) series: String,
}

/// A compared configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    /// Stable name: an interface.
    pub(crate) name: Name,
    /// The hosts' pipeline, for loads on the network.
    pub(crate) pipeline: Option<Name>,
    /// Set of guarantees; other tenants are best effort.
    pub(crate) guarantees: Option<Name>,
    /// Source of the hosts' guarantees.
    #[serde(default)]
    pub(crate) guarantees_by: GuaranteesBy,
    /// The switch's use of tags.
    #[serde(default)]
    pub(crate) switch: SwitchMode,
    /// Class of the guests in `shared_core.periodic`.
    #[serde(default)]
    pub(crate) vcpu: VcpuMode,
    /// Scheduling class of the hosts' packet loops.
    #[serde(default)]
    pub(crate) path: PathMode,
    /// Deadline and period of reservations, if other than in `shared_core.periodic`.
    pub(crate) deadline: Option<Nanos>,
    /// Early acknowledgement of TCP for all VMs.
    pub(crate) snoop: Option<SnoopMode>,
    /// Limits the CPU time of the guests in `quota`.
    #[serde(default)]
    pub(crate) quota: bool,
    /// Runs only if scheduling classes cannot be set.
    #[serde(default)]
    pub(crate) only_without_periodic: bool,
    /// Running loads.
    pub(crate) loads: Vec<Name>,
    /// Running guests of each hog; a list makes a variant per count.
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

/// The switch's use of tags.
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
