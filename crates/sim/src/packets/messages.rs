//! What an experiment of messages says, and how it is told what came of it.

use super::tally::{CLASSES, Outcome, Totals};
use super::topology::{FatTree, Star, Topology};
use super::workload::{Bursts, Flows, Load, Queries};
use crate::scenario::Scenario;
use crate::tcp::{Congestion, Recovery, TcpConfig};
use crate::{Threads, parallel};
use serde::Deserialize;
use std::convert::Infallible;
use tailbound_experiment::{ExperimentError, Found, Name, Run, Section};
use tailbound_report::{Series, Value, Variant, empty_histogram};
use tailbound_units::{Bytes, Nanos, Rate};

/// Messages between hosts: one topology, one workload, and settings to compare.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Messages {
    /// How long messages begin, all together.
    pub duration: Nanos,
    /// Those that begin before do not count.
    #[serde(default)]
    pub warm_up: Nanos,
    /// Hosts at a switch,
    pub star: Option<Star>,
    /// or in a tree.
    pub fat_tree: Option<FatTree>,
    /// Messages one way,
    pub flows: Option<Flows>,
    /// or questions and answers,
    pub queries: Option<Queries>,
    /// or all to one.
    pub bursts: Option<Bursts>,
    /// Each is a variant.
    pub setting: Vec<Setting>,
}

/// What a variant is.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Its name.
    pub name: Name,
    /// The hosts' TCP.
    #[serde(default)]
    pub transport: Transport,
    /// The switches.
    #[serde(default)]
    pub switches: Switches,
    /// The hosts' meter, which tells small flows' frames from others; without it all are of the
    /// first class.
    pub meter: Option<MeterSpec>,
}

/// TCP of the hosts; what is left out is as in Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Transport {
    /// How windows grow and shrink.
    pub congestion: Congestion,
    /// Whether losses are found by SACK and RACK-TLP and repaired by PRR, and not by duplicate
    /// acknowledgements.
    pub sack: bool,
    /// In segments of 1,448 B.
    pub initial_window: u32,
    /// The least retransmission timeout.
    pub least_timeout: Nanos,
    /// How long an acknowledgement is held back for a second segment.
    pub delayed_ack: Nanos,
    /// What a receiver offers, from the first.
    pub receive_window: Bytes,
    /// Whether a window begins anew after a silence of a timeout.
    pub restarts: bool,
}

impl Default for Transport {
    fn default() -> Self {
        let linux = TcpConfig::RACK;
        Self {
            congestion: linux.congestion,
            sack: true,
            initial_window: linux.initial_window,
            least_timeout: linux.least_timeout,
            delayed_ack: linux.delayed_ack,
            receive_window: Bytes(linux.receive_window.into()),
            restarts: linux.restarts,
        }
    }
}

impl Transport {
    pub(super) fn tcp(&self) -> TcpConfig {
        let window = u32::try_from(self.receive_window.0).unwrap_or(u32::MAX);
        TcpConfig {
            initial_window: self.initial_window,
            first_receive_window: window,
            receive_window: window,
            least_timeout: self.least_timeout,
            delayed_ack: self.delayed_ack,
            recovery: if self.sack {
                Recovery::Rack
            } else {
                Recovery::Duplicates
            },
            congestion: self.congestion,
            restarts: self.restarts,
            ..TcpConfig::RACK
        }
    }

    fn check(&self, section: &mut Section<'_>) {
        section.range("initial_window", self.initial_window, 1..=1_000);
        let times = Nanos::from_micros(10)..=Nanos::from_secs(10);
        section.range("least_timeout", self.least_timeout, times);
        let times = Nanos::ZERO..=Nanos::from_secs(1);
        section.range("delayed_ack", self.delayed_ack, times);
        let windows = Bytes(4 * 1_448)..=Bytes(1 << 30);
        section.range("receive_window", self.receive_window, windows);
    }
}

/// Ports of switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Switches {
    /// Classes of strict priority; 1 is a FIFO.
    pub classes: usize,
    /// What may wait at a port; without an end if it is left out. What does not fit is lost.
    pub buffer: Option<Bytes>,
    /// Whether each class of a port has a buffer of its own.
    pub apart: bool,
    /// A frame that finds so much of its class waiting is marked, where its sender takes marks.
    pub mark_at: Option<Bytes>,
    /// What may wait in a host for its link; without an end if it is left out.
    pub host_buffer: Option<Bytes>,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            classes: 1,
            buffer: Some(Bytes(150_000)),
            apart: false,
            mark_at: None,
            host_buffer: None,
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
        if let Some(mark_at) = self.mark_at {
            section.range("mark_at", mark_at, Bytes(1)..=Bytes(1 << 30));
        }
    }
}

/// What the meter of the data path holds a small flow to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeterSpec {
    /// How fast a bucket fills,
    pub rate: Rate,
    /// and what it holds.
    pub burst: Bytes,
}

/// A run goes on at most this many times as long as messages begin.
const LONGEST: u64 = 10;

impl Messages {
    /// After that long a run ends, whether all messages have come or not.
    pub fn longest(&self) -> Nanos {
        Nanos(self.duration.0.saturating_mul(LONGEST))
    }

    fn topologies(&self) -> [Option<Topology>; 2] {
        [
            self.star.map(Topology::Star),
            self.fat_tree.map(Topology::FatTree),
        ]
    }

    fn loads(&self) -> [Option<Load>; 3] {
        [
            self.flows.map(Load::Flows),
            self.queries.map(Load::Queries),
            self.bursts.map(Load::Bursts),
        ]
    }

    /// Topology and load of a checked experiment.
    pub(super) fn checked(&self) -> (Topology, Load) {
        let topology = self.topologies().into_iter().flatten().next();
        let load = self.loads().into_iter().flatten().next();
        let there = topology.zip(load);
        there.expect("a checked experiment has a topology and a load")
    }
}

impl Scenario for Messages {
    fn check(&self, section: &mut Section<'_>) {
        let longest = Nanos::from_secs(3_600);
        section.range("duration", self.duration, Nanos::from_micros(100)..=longest);
        section.range("warm_up", self.warm_up, Nanos::ZERO..=self.duration);
        let topologies = self.topologies().into_iter().flatten().count();
        let loads = self.loads().into_iter().flatten().count();
        if topologies != 1 {
            let message = format!("{topologies} topologies: write one of `star`, `fat_tree`");
            section.at("star", message);
        }
        if loads != 1 {
            let message = format!("{loads} loads: write one of `flows`, `queries`, `bursts`");
            section.at("flows", message);
        }
        if let Some(star) = &self.star {
            star.check(&mut section.table("star"));
        }
        if let Some(tree) = &self.fat_tree {
            tree.check(&mut section.table("fat_tree"));
        }
        let hosts = self.topologies().into_iter().flatten().next();
        let hosts = hosts.map_or(2, |it| it.hosts()).max(2);
        for load in self.loads().into_iter().flatten() {
            load.check(hosts, &mut section.table(load.key()));
        }
        section.count("setting", self.setting.len(), 1..=100);
        for (place, setting) in self.setting.iter().enumerate() {
            let mut section = section.item("setting", place);
            setting.transport.check(&mut section.table("transport"));
            setting.switches.check(&mut section.table("switches"));
            if let Some(meter) = &setting.meter {
                let mut section = section.table("meter");
                let rates = Rate(100_000)..=Rate::from_mbit(100_000);
                section.range("rate", meter.rate, rates);
                let bursts = Bytes(1_538)..=Bytes(250_000_000);
                section.range("burst", meter.burst, bursts);
            }
        }
    }

    fn outline(&self) -> Vec<Variant> {
        let nothing = Outcome {
            took: std::array::from_fn(|_| empty_histogram()),
            begun: 0,
            ended: 0,
            totals: Totals::default(),
        };
        let settings = self.setting.iter();
        settings.map(|it| variant(it, &nothing, 1)).collect()
    }

    fn run(&self, run: &mut Run<'_, Threads>) -> Result<Found, ExperimentError> {
        let seed = run.seed;
        let name = |setting: &Setting| setting.name.get_ref().clone();
        let outcomes = parallel::map(run, &self.setting, name, |setting| {
            Ok::<_, Infallible>(self.simulate(setting, seed))
        })?;
        let (topology, load) = self.checked();
        let hosts = topology.hosts();
        let each = self.setting.iter().zip(&outcomes);
        let each = each.map(|(setting, outcome)| variant(setting, outcome, hosts));
        let mut found = Found::of(each.collect());
        found.condition("hosts", hosts);
        found.condition("duration", self.duration.to_string());
        found.condition("offered", Rate(load.rate(hosts) as u64).to_string());
        Ok(found)
    }
}

fn variant(setting: &Setting, outcome: &Outcome, hosts: usize) -> Variant {
    let totals = &outcome.totals;
    let seconds = totals.end.as_secs_f64().max(1e-9);
    let sent = 8.0 * totals.sent as f64 / seconds / hosts.max(1) as f64;
    let mut variant = Variant::of_values(
        setting.name.get_ref(),
        [
            ("messages", outcome.begun as f64, ""),
            ("unfinished", (outcome.begun - outcome.ended) as f64, ""),
            ("dropped", totals.dropped as f64, ""),
            ("marked", totals.marked as f64, ""),
            ("resent", totals.resent as f64, ""),
            ("timeouts", totals.timeouts as f64, ""),
            ("longest_queue", totals.peak as f64, "B"),
            ("sent_by_a_host", sent, "bit/s"),
            ("packet_events", totals.packets as f64, ""),
        ],
    );
    let mut all = empty_histogram();
    for (name, took) in CLASSES.iter().zip(&outcome.took) {
        let _ = all.add(took);
        let series = Series::of("ns", took);
        // Tables of means that have no percentiles are compared with values.
        let mean = Value::new("ns", took.mean());
        variant.values.insert(format!("mean_{name}"), mean);
        variant.series.insert((*name).to_owned(), series);
    }
    variant
        .series
        .insert("all".to_owned(), Series::of("ns", &all));
    variant
}
