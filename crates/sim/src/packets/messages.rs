//! The experiment of messages, and the report of its outcome.

use super::figures::variant;
use super::hull::HullPacer;
use super::line::MAX_HOSTS;
use super::machines::{MachineSpec, Machines, Talkers};
use super::packet::Protocol;
use super::piped::PipelineSpec;
use super::port::{Phantom, Shared};
use super::racks::Racks;
use super::snooped::WIDEST;
use super::streams::Streams;
use super::talks::{self, GuestSpec, Talk};
use super::tally::Outcome;
use super::tenants::Tenants;
use super::topology::{FatTree, Star, Topology};
use super::trace::Trace;
use super::transport::Transport;
use super::workload::{Bursts, Flows, Load, Queries};
use crate::scenario::Scenario;
use crate::tcp::Congestion;
use crate::{Threads, parallel};
use serde::Deserialize;
use std::sync::Arc;
use tailbound_experiment::{ExperimentError, Mistakes, Name, Run, RunOutput, Section};
use tailbound_placement::Policy;
use tailbound_report::Variant;
use tailbound_units::{Bytes, Nanos, Rate};

/// One topology, one workload, and settings to compare.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Messages {
    /// Time for starts of messages.
    pub duration: Nanos,
    /// Warm-up: earlier messages do not count.
    #[serde(default)]
    pub warm_up: Nanos,
    /// No message begins after `duration`; the load continues until all counted messages were
    /// received.
    #[serde(default)]
    pub stops: bool,
    /// Topology: hosts at a switch.
    pub star: Option<Star>,
    /// Topology: a fat tree.
    pub fat_tree: Option<FatTree>,
    /// Topology: racks with slots for VMs.
    pub racks: Option<Racks>,
    /// Workload: one-way messages at random times.
    pub flows: Option<Flows>,
    /// Workload: questions and answers at random times.
    pub queries: Option<Queries>,
    /// Workload: simultaneous bursts of all hosts to the first.
    pub bursts: Option<Bursts>,
    /// Workload: streams of a constant rate, of equal messages.
    pub streams: Option<Streams>,
    /// Workload: messages of a file.
    pub trace: Option<Trace>,
    /// Workload, in racks: tenants' rounds.
    pub tenants: Option<Tenants>,
    /// Workload: guests with messages, by name.
    #[serde(default)]
    pub guest: Vec<GuestSpec>,
    /// Messages between two guests.
    #[serde(default)]
    pub talk: Vec<Talk>,
    /// Kinds of hosts under Xen.
    #[serde(default)]
    pub machine: Vec<MachineSpec>,
    /// Settings: one variant each.
    pub setting: Vec<Setting>,
}

/// A setting: one variant.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Name of the variant.
    pub name: Name,
    /// Transport.
    #[serde(default)]
    pub transport: Transport,
    /// The switches.
    #[serde(default)]
    pub switches: Switches,
    /// Meter of hosts, which puts small flows' frames into the first class; otherwise all frames.
    pub meter: Option<MeterSpec>,
    /// Path in each host before its link; a FIFO.
    pub pipeline: Option<PipelineSpec>,
    /// Placement policy.
    pub policy: Option<Policy>,
    /// Pacer of hosts, for the VMs' guarantees; unlimited without it.
    pub pacer: Option<PacerSpec>,
    /// HULL's pacer in each host, by default as in the paper. Requires DCTCP.
    pub hull: Option<HullPacer>,
    /// Kind of all hosts; without it they take no time.
    pub machine: Option<Name>,
    /// Kinds of single hosts.
    #[serde(default)]
    pub on: Vec<On>,
    /// Disabled talks, and classes of tenants that send nothing.
    #[serde(default)]
    pub quiet: Vec<Name>,
}

/// The kind of a single host.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct On {
    /// Host, from 0.
    pub host: usize,
    /// Kind.
    pub machine: Name,
}

/// Pacer of hosts, for the VMs' guarantees; unlimited without it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PacerSpec {
    /// VMs may exceed their guarantees while the host's link is idle.
    pub work_conserving: bool,
}

/// Ports of switches.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Switches {
    /// Classes of strict priority; 1 is a FIFO.
    pub classes: usize,
    /// Buffer of a port; unlimited. Not in racks.
    pub buffer: Option<Bytes>,
    /// A buffer per class of a port.
    pub apart: bool,
    /// A buffer for all ports of a switch, instead of one per port. Not in racks.
    pub shared: Option<Shared>,
    /// Serves the flow with the least remaining data first, and drops the one with the most
    /// (pFabric, SIGCOMM 2013). Requires that transport.
    pub pfabric: bool,
    /// Queue length of a class from which frames are marked.
    pub mark_at: Option<Bytes>,
    /// Phantom queue, which marks frames.
    pub phantom: Option<Phantom>,
    /// Buffer of a host; unlimited. Not with a pacer.
    pub host_buffer: Option<Bytes>,
    /// `mark_at` of hosts.
    pub host_mark_at: Option<Bytes>,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            classes: 1,
            buffer: Some(Bytes(150_000)),
            apart: false,
            shared: None,
            pfabric: false,
            mark_at: None,
            phantom: None,
            host_buffer: None,
            host_mark_at: None,
        }
    }
}

impl Switches {
    fn check(&self, section: &mut Section<'_>) {
        section.range("classes", self.classes, 1..=8);
        let buffers = Bytes(1_538)..=Bytes(1 << 30);
        for (key, buffer) in [("buffer", self.buffer), ("host_buffer", self.host_buffer)] {
            if let Some(buffer) = buffer {
                section.range(key, buffer, buffers.clone());
            }
        }
        if let Some(shared) = &self.shared {
            let mut section = section.table("shared");
            section.range("buffer", shared.buffer, buffers);
            section.range("alpha", shared.alpha, 0.001..=1_000.0);
        }
        if self.pfabric && self.classes != 1 {
            section.at("classes", "pFabric has its own order: leave it out");
        }
        let marks = Bytes(1)..=Bytes(1 << 30);
        for (key, mark_at) in [
            ("mark_at", self.mark_at),
            ("host_mark_at", self.host_mark_at),
        ] {
            if let Some(mark_at) = mark_at {
                section.range(key, mark_at, marks.clone());
            }
        }
        if let Some(phantom) = &self.phantom {
            let mut section = section.table("phantom");
            section.range("drain", phantom.drain, 0.01..=1.0);
            section.range("mark_at", phantom.mark_at, marks);
        }
    }
}

/// Meter of hosts, which puts small flows' frames into the first class; otherwise all frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeterSpec {
    /// Rate of a flow's bucket.
    pub rate: Rate,
    /// Depth of the bucket.
    pub burst: Bytes,
}

/// Limit of a run's time, as a multiple of the time in which messages begin.
const MAX_RUN_MULTIPLE: u64 = 10;

impl Messages {
    /// Time after which a run ends, even if messages are incomplete.
    pub fn longest(&self) -> Nanos {
        Nanos(self.duration.0.saturating_mul(MAX_RUN_MULTIPLE))
    }

    /// Number of hosts of each configured topology.
    fn hosts(&self) -> impl Iterator<Item = usize> {
        let racks = self.racks.as_ref();
        let racks = racks.map(|it| it.racks as usize * it.hosts as usize);
        let star = self.star.map(|it| Topology::Star(it).hosts());
        let tree = self.fat_tree.map(|it| Topology::FatTree(it).hosts());
        [star, tree, racks].into_iter().flatten()
    }

    fn loads(&self) -> [Option<Load>; 3] {
        [
            self.flows.map(Load::Flows),
            self.queries.map(Load::Queries),
            self.bursts.map(Load::Bursts),
        ]
    }

    /// Load of hosts, unless tenants are the load.
    pub(super) fn load(&self) -> Option<Load> {
        self.loads().into_iter().flatten().next()
    }

    /// Average rate of each host, in bits a second, if it is known beforehand.
    fn offered(&self, hosts: usize) -> Option<f64> {
        let load = self.load().map(|it| it.rate(hosts));
        let streams = self.streams.map(|it| it.rate(hosts));
        let trace = self.trace.as_ref().map(|trace| {
            let bits = 8.0 * trace.bytes(self.duration) as f64;
            bits / self.duration.as_secs_f64() / hosts as f64
        });
        load.or(streams).or(trace)
    }

    /// Reads the files that the experiment names. `file` is the path of the experiment.
    pub(super) fn read_files(&mut self, file: &str, mistakes: &mut Mistakes) {
        let hosts = self.hosts().next().unwrap_or(2).max(2);
        if let Some(trace) = &mut self.trace {
            trace.load(file, hosts, mistakes);
        }
    }

    /// Number of data centres.
    pub(super) fn centres(&self) -> u32 {
        self.tenants.as_ref().map_or(1, |it| it.centres)
    }

    /// Returns the network of a checked experiment.
    pub(super) fn topology(&self) -> Topology {
        let racks = self.racks.as_ref();
        let racks = racks.and_then(|it| Some(Topology::Racks(Arc::new(it.build().ok()?))));
        let star = self.star.map(Topology::Star);
        let there = star.or(self.fat_tree.map(Topology::FatTree)).or(racks);
        there.expect("a checked experiment has a topology")
    }

    /// Returns an outcome without messages.
    pub(super) fn nothing(&self) -> Outcome {
        let talks = self.talk.iter().map(|talk| talk.name.get_ref().clone());
        let is_udp = |it: Protocol| it == Protocol::Udp;
        let settings = self.setting.iter().map(|it| it.transport.protocol);
        let protocols = self.talk.iter().filter_map(|talk| talk.protocol);
        Outcome {
            waits: !self.machine.is_empty(),
            snoops: self.machine.iter().any(|it| it.snoop.is_some()),
            may_lose: protocols.chain(settings).any(is_udp),
            ..Outcome::nothing(self.tenants.as_ref(), talks.collect())
        }
    }

    /// Returns those of a setting's hosts whose guests wait for CPUs.
    pub(super) fn machines(&self, setting: &Setting, hosts: usize, seed: u64) -> Machines {
        let machines = self.try_machines(setting, hosts, seed);
        machines.expect("a checked experiment's machines run")
    }

    fn try_machines(&self, setting: &Setting, hosts: usize, seed: u64) -> Result<Machines, String> {
        let kind = |host: usize| {
            let own = setting.on.iter().find(|it| it.host == host);
            let name = own.map(|it| &it.machine).or(setting.machine.as_ref())?;
            let named = |it: &&MachineSpec| it.name.get_ref() == name.get_ref();
            let spec = self.machine.iter().find(named)?;
            Some((spec, self.guests_on(host)))
        };
        let specs: Vec<_> = (0..hosts).map(kind).collect();
        if specs.iter().all(Option::is_none) {
            return Ok(Machines::nowhere());
        }
        Machines::new(&specs, seed)
    }

    /// Returns the guests with messages on a host; one guest, if the experiment names none.
    fn guests_on(&self, host: usize) -> Talkers {
        let there = self.guest.iter().filter(|guest| guest.host == host);
        let there: Talkers = there.map(|guest| guest.core).collect();
        if self.guest.is_empty() {
            vec![None]
        } else {
            there
        }
    }

    fn check_guests(&self, hosts: usize, section: &mut Section<'_>) {
        for (place, guest) in self.guest.iter().enumerate() {
            let mut section = section.item("guest", place);
            section.range("host", guest.host, 0..=hosts - 1);
        }
        let seats = talks::seats(&self.guest);
        for (place, talk) in self.talk.iter().enumerate() {
            talk.check(&seats, &mut section.item("talk", place));
        }
        for (place, machine) in self.machine.iter().enumerate() {
            machine.check(&vec![None], &mut section.item("machine", place));
        }
    }

    fn check_machines(&self, setting: &Setting, section: &mut Section<'_>) {
        let machines = || self.machine.iter().map(|it| it.name.get_ref());
        let is_known = |name: &Name| machines().any(|it| it == name.get_ref());
        let unknown = |name: &Name| format!("{} is no `machine`: name one", name.get_ref());
        if let Some(name) = setting.machine.as_ref().filter(|it| !is_known(it)) {
            section.at("machine", unknown(name));
        }
        // An invalid number is reported by another check.
        let hosts = self.hosts().next().unwrap_or(1).clamp(1, MAX_HOSTS);
        for (place, on) in setting.on.iter().enumerate() {
            let mut section = section.item("on", place);
            section.range("host", on.host, 0..=hosts - 1);
            if !is_known(&on.machine) {
                section.at("machine", unknown(&on.machine));
            }
        }
        section.hold("machine", self.try_machines(setting, hosts, 0).map(drop));
        self.check_snoop(setting, section);
        let classes = self.tenants.iter().flat_map(|tenants| &tenants.class);
        let classes = classes.map(|class| class.name.get_ref());
        let talks = self.talk.iter().map(|talk| talk.name.get_ref());
        let known: Vec<_> = talks.chain(classes).collect();
        let is_unknown = |it: &&Name| !known.contains(&it.get_ref());
        if let Some(name) = setting.quiet.iter().find(is_unknown) {
            let message = format!(
                "{} is no `talk` and no class of `tenants`: name one",
                name.get_ref()
            );
            section.at("quiet", message);
        }
    }

    fn check_pipeline(&self, setting: &Setting, section: &mut Section<'_>) {
        let Some(pipeline) = &setting.pipeline else {
            return;
        };
        pipeline.check(&mut section.table("pipeline"));
        let switches = &setting.switches;
        if switches.host_buffer.is_some() || switches.host_mark_at.is_some() {
            let message = "is the hosts' queue: leave out `host_buffer` and `host_mark_at`";
            section.at("pipeline", message);
        }
        if self.tenants.is_some() || setting.hull.is_some() || switches.pfabric {
            let message = "does not go with `tenants`, `hull` or pFabric: leave it out";
            section.at("pipeline", message);
        }
    }

    fn check_snoop(&self, setting: &Setting, section: &mut Section<'_>) {
        let named = setting.on.iter().map(|on| &on.machine);
        let snoops = named.chain(&setting.machine).any(|name| {
            let mut kinds = self.machine.iter();
            kinds.any(|it| it.name.get_ref() == name.get_ref() && it.snoop.is_some())
        });
        let transport = &setting.transport;
        if snoops
            && matches!(
                transport.congestion,
                Congestion::Dctcp | Congestion::PFabric
            )
        {
            let message = "no early acknowledgement with marks or pFabric: choose newreno or \
                           cubic, or a `machine` without `snoop`";
            section.at("transport", message);
        }
        if snoops && transport.receive_window > WIDEST {
            let message = format!(
                "receive_window {}: early acknowledgement advertises at most {WIDEST}",
                transport.receive_window
            );
            section.at("transport", message);
        }
    }

    fn check_setting(&self, setting: &Setting, section: &mut Section<'_>) {
        setting.transport.check(&mut section.table("transport"));
        setting.switches.check(&mut section.table("switches"));
        let is_pfabric = setting.transport.congestion == Congestion::PFabric;
        if is_pfabric != setting.switches.pfabric {
            let message = "pFabric is switches and hosts: write `switches = { pfabric = true }` and \
                           `transport = { congestion = \"pfabric\" }`";
            section.at("switches", message);
        }
        if is_pfabric && (setting.meter.is_some() || self.tenants.is_some()) {
            section.at(
                "transport",
                "pFabric has no classes: leave out `meter` and `tenants`",
            );
        }
        if setting.switches.shared.is_some() && self.racks.is_some() {
            section.at(
                "switches",
                "racks define their ports' buffers: leave out `shared`",
            );
        }
        if let Some(meter) = &setting.meter {
            let mut section = section.table("meter");
            let rates = Rate(100_000)..=Rate::from_mbit(100_000);
            section.range("rate", meter.rate, rates);
            let bursts = Bytes(1_538)..=Bytes(250_000_000);
            section.range("burst", meter.burst, bursts);
        }
        if let Some(hull) = &setting.hull {
            hull.check(&mut section.table("hull"));
            if setting.transport.congestion != Congestion::Dctcp || setting.pacer.is_some() {
                let message = "HULL is DCTCP with a pacer of its own: write `transport = { congestion = \
                               \"dctcp\" }`, and leave out `pacer`";
                section.at("hull", message);
            }
        }
        self.check_machines(setting, section);
        self.check_pipeline(setting, section);
        if self.tenants.is_some() {
            if setting.machine.is_some() || !setting.on.is_empty() {
                section.at("machine", "tenants' machines wait for no CPU: leave it out");
            }
            if setting.meter.is_some() {
                section.at("meter", "tenants are not metered: leave it out");
            }
            check_queues(self, setting, section);
            return;
        }
        for (key, is_there) in [
            ("policy", setting.policy.is_some()),
            ("pacer", setting.pacer.is_some()),
        ] {
            if is_there {
                section.at(
                    key,
                    "there are no tenants: write `tenants`, or leave it out",
                );
            }
        }
    }
}

/// Checks that switches have a queue for each delay class, for other guarantees and for the rest.
fn check_queues(messages: &Messages, setting: &Setting, section: &mut Section<'_>) {
    let delay_classes = messages.racks.as_ref().map_or(0, |it| it.delay_class.len());
    let queues = delay_classes + 2;
    let classes = setting.switches.classes;
    if delay_classes > 0 && setting.pacer.is_some() && classes < queues {
        let message = format!(
            "{classes} classes for {delay_classes} of `delay_class`, other guarantees and best \
             effort: write {queues} or more"
        );
        section.table("switches").at("classes", message);
    }
}

impl Scenario for Messages {
    fn check(&self, section: &mut Section<'_>) {
        let longest = Nanos::from_secs(3_600);
        section.range("duration", self.duration, Nanos::from_micros(100)..=longest);
        section.range("warm_up", self.warm_up, Nanos::ZERO..=self.duration);
        let topologies = self.hosts().count();
        let loads = self.loads().into_iter().flatten().count();
        let others = [
            self.streams.is_some(),
            self.trace.is_some(),
            self.tenants.is_some(),
            !self.talk.is_empty(),
        ];
        let loads = loads + others.into_iter().filter(|it| *it).count();
        if topologies != 1 {
            let message =
                format!("{topologies} topologies: write one of `star`, `fat_tree`, `racks`");
            section.at("star", message);
        }
        if loads != 1 {
            let message = format!(
                "{loads} loads: write one of `flows`, `queries`, `bursts`, `streams`, `trace`, `tenants`, `talk`"
            );
            section.at("flows", message);
        }
        if let Some(star) = &self.star {
            star.check(&mut section.table("star"));
        }
        if let Some(tree) = &self.fat_tree {
            tree.check(&mut section.table("fat_tree"));
        }
        if let Some(racks) = &self.racks {
            racks.check(&mut section.table("racks"));
        }
        let hosts = self.hosts().next().unwrap_or(2).max(2);
        for load in self.loads().into_iter().flatten() {
            load.check(hosts, &mut section.table(load.key()));
        }
        if let Some(streams) = self.streams {
            streams.check(hosts, &mut section.table("streams"));
        }
        if let Some(tenants) = &self.tenants {
            if self.racks.is_none() {
                section.at("tenants", "tenants are placed in `racks`: write these");
            }
            tenants.check(&mut section.table("tenants"));
        }
        self.check_guests(hosts, section);
        section.count("setting", self.setting.len(), 1..=100);
        for (place, setting) in self.setting.iter().enumerate() {
            self.check_setting(setting, &mut section.item("setting", place));
        }
    }

    fn outline(&self) -> Vec<Variant> {
        let nothing = self.nothing();
        let settings = self.setting.iter();
        settings
            .map(|it| variant(it.name.get_ref(), &nothing, 1))
            .collect()
    }

    fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        let seed = run.seed;
        let centres = |setting| (0..self.centres()).map(move |centre| (setting, centre));
        let jobs: Vec<(&Setting, u32)> = self.setting.iter().flat_map(centres).collect();
        let name = |(setting, _): &(&Setting, u32)| setting.name.get_ref().clone();
        let each = parallel::map(run, &jobs, name, |(setting, centre)| {
            self.simulate_one(setting, seed, *centre)
        })?;
        let nothing = self.nothing();
        let mut outcomes = vec![nothing; self.setting.len()];
        for (place, outcome) in each.into_iter().enumerate() {
            outcomes[place / self.centres() as usize].add(outcome);
        }
        let hosts = self.hosts().next().unwrap_or(1);
        let each = self.setting.iter().zip(&outcomes);
        let each = each.map(|(setting, outcome)| variant(setting.name.get_ref(), outcome, hosts));
        let mut found = RunOutput::of(each.collect());
        found.condition("hosts", hosts);
        found.condition("duration", self.duration.to_string());
        if let Some(rate) = self.offered(hosts) {
            found.condition("offered", Rate(rate as u64).to_string());
        }
        Ok(found)
    }
}
