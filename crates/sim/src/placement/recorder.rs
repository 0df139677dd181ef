//! What became of the requests of one point.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use tailbound_placement::{PlacementError, Request};
use tailbound_report::{Series, Value, Variant, empty_histogram};
use tailbound_units::{Bytes, Nanos};

/// How long something took: the time of an admission, of a refusal, of either,
/// of a release, of an explanation.
const TIMES: [&str; 5] = ["admitted", "rejected", "all", "released", "explained"];
/// How many ports a decision looked at.
const PORTS: &str = "ports";
const PERCENT: &str = "%";

/// Values that every point has: name and unit.
const VALUES: [(&str, &str); 14] = [
    ("hosts", ""),
    ("tenants", ""),
    ("occupancy", PERCENT),
    ("asked_vms", ""),
    ("admitted_vms", ""),
    ("refused", PERCENT),
    ("refused_slots", PERCENT),
    ("refused_delay", PERCENT),
    ("refused_ports", PERCENT),
    ("refused_effort", PERCENT),
    ("queues_used", ""),
    ("queues_over", PERCENT),
    ("decisions_per_second", "/s"),
    ("memory", "B"),
];

/// Of one class: what was asked for and what was admitted, on average, and how
/// many were refused.
fn class_values(class: &str) -> [(String, &'static str); 3] {
    [
        (format!("{class}_asked_vms"), ""),
        (format!("{class}_admitted_vms"), ""),
        (format!("{class}_refused"), PERCENT),
    ]
}

#[derive(Default, Clone)]
struct Count {
    tenants: u64,
    vms: u64,
}

impl Count {
    fn add(&mut self, request: &Request) {
        self.tenants += 1;
        self.vms += u64::from(request.vms);
    }

    fn plus(&self, other: &Self) -> Self {
        Self {
            tenants: self.tenants + other.tenants,
            vms: self.vms + other.vms,
        }
    }

    /// NaN of none: there is no mean.
    fn mean(&self) -> f64 {
        self.vms as f64 / self.tenants as f64
    }
}

/// Collects what happens at one point.
pub(super) struct Recorder {
    times: BTreeMap<&'static str, Histogram<u64>>,
    ports: Histogram<u64>,
    /// By class: admitted, refused.
    counts: Vec<[Count; 2]>,
    refusals: BTreeMap<&'static str, u64>,
    deciding: Nanos,
}

/// The state of the data centre at the end.
#[derive(Default)]
pub(super) struct End {
    pub(super) hosts: usize,
    pub(super) slots: u64,
    pub(super) taken: u64,
    pub(super) tenants: usize,
    /// How many queues carry something, and how many of these may grow over
    /// their capacity.
    pub(super) queues: (u64, u64),
    /// What the process had at most.
    pub(super) memory: Option<Bytes>,
}

impl Recorder {
    pub(super) fn new(classes: usize) -> Self {
        Self {
            times: TIMES.map(|name| (name, empty_histogram())).into(),
            ports: empty_histogram(),
            counts: vec![Default::default(); classes],
            refusals: BTreeMap::new(),
            deciding: Nanos::ZERO,
        }
    }

    fn time(&mut self, name: &'static str, took: Nanos) {
        if let Some(times) = self.times.get_mut(name) {
            times.saturating_record(took.0);
        }
    }

    /// A decision about a request of a class, that took so long and looked at so
    /// many ports.
    pub(super) fn decided(
        &mut self,
        (class, request): (usize, &Request),
        refusal: Option<&PlacementError>,
        (took, ports): (Nanos, u32),
    ) {
        self.deciding += took;
        self.time("all", took);
        self.ports.saturating_record(u64::from(ports));
        let [admitted, refused] = &mut self.counts[class];
        let Some(refusal) = refusal else {
            admitted.add(request);
            self.time("admitted", took);
            return;
        };
        refused.add(request);
        self.time("rejected", took);
        let name = match refusal {
            // Both: there are not enough, or not where they are wanted.
            PlacementError::Slots { .. } | PlacementError::Domains => "refused_slots",
            PlacementError::Delay { .. } => "refused_delay",
            PlacementError::Ports => "refused_ports",
            PlacementError::Effort { .. } => "refused_effort",
        };
        *self.refusals.entry(name).or_default() += 1;
    }

    pub(super) fn released(&mut self, took: Nanos) {
        self.time("released", took);
    }

    pub(super) fn explained(&mut self, took: Nanos) {
        self.time("explained", took);
    }

    /// All of it, as a variant of the result. What was never timed has no series.
    pub(super) fn finish(self, name: &str, classes: &[&str], end: &End) -> Variant {
        let mut variant = self.outline_at(name, classes, end);
        let is_always_there = |name: &str| !TIMES.contains(&name);
        variant
            .series
            .retain(|name, series| series.stats.count > 0 || is_always_there(name));
        variant
    }

    /// The variant with the names of all that may be measured.
    pub(super) fn outline(self, name: &str, classes: &[&str]) -> Variant {
        self.outline_at(name, classes, &End::default())
    }

    fn outline_at(self, name: &str, classes: &[&str], end: &End) -> Variant {
        let all: [Count; 2] = [0, 1].map(|kind| {
            let counts = self.counts.iter();
            counts.fold(Count::default(), |sum, count| sum.plus(&count[kind]))
        });
        let asked = all[0].plus(&all[1]);
        let percent = |part: u64, of: u64| 100.0 * part as f64 / of as f64;
        let mut values = BTreeMap::new();
        let mut value = |name: &str, unit: &str, value: f64| {
            values.insert(name.to_owned(), Value::new(unit, value));
        };
        for (name, unit) in VALUES {
            let figure = match name {
                "hosts" => end.hosts as f64,
                "tenants" => end.tenants as f64,
                "occupancy" => percent(end.taken, end.slots),
                "asked_vms" => asked.mean(),
                "admitted_vms" => all[0].mean(),
                "refused" => percent(all[1].tenants, asked.tenants),
                "queues_used" => end.queues.0 as f64,
                "queues_over" => percent(end.queues.1, end.queues.0.max(1)),
                "decisions_per_second" => asked.tenants as f64 * 1e9 / self.deciding.0 as f64,
                "memory" => end.memory.map_or(f64::NAN, |memory| memory.0 as f64),
                refusal => {
                    let count = self.refusals.get(refusal).copied().unwrap_or(0);
                    percent(count, asked.tenants)
                }
            };
            value(name, unit, figure);
        }
        for (class, [admitted, refused]) in classes.iter().zip(&self.counts) {
            let asked = admitted.plus(refused);
            let figures = [
                asked.mean(),
                admitted.mean(),
                percent(refused.tenants, asked.tenants),
            ];
            for ((name, unit), figure) in class_values(class).into_iter().zip(figures) {
                value(&name, unit, figure);
            }
        }
        let times = self.times.iter();
        let mut series: BTreeMap<String, Series> = times
            .map(|(name, times)| ((*name).to_owned(), Series::of("ns", times)))
            .collect();
        series.insert(PORTS.to_owned(), Series::of("", &self.ports));
        Variant {
            name: name.to_owned(),
            series,
            values,
            ..Variant::default()
        }
    }
}
