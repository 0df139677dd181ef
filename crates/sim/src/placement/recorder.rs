//! Measurements of the requests of one point.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use tailbound_placement::{PlacementError, Request};
use tailbound_report::{Series, Value, Variant, empty_histogram};
use tailbound_units::{Bytes, Nanos};

/// Measured times: of an admission, of a refusal, of either, of a release, of an explanation.
const TIMES: [&str; 5] = ["admitted", "rejected", "all", "released", "explained"];
/// Number of ports that a decision checked.
const PORTS: &str = "ports";
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

    /// Mean number of machines; NaN without tenants.
    fn mean(&self) -> f64 {
        self.vms as f64 / self.tenants as f64
    }
}

/// Collects the measurements of one point.
pub(super) struct Recorder {
    times: BTreeMap<&'static str, Histogram<u64>>,
    ports: Histogram<u64>,
    /// Admitted and refused requests, by class.
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
    /// Number of queues with traffic, and number of these that may exceed their capacity.
    pub(super) queues: (u64, u64),
    /// Peak memory of the process.
    pub(super) memory: Option<Bytes>,
}

/// The cost of a decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct DecisionCost {
    pub(super) took: Nanos,
    /// The number of checked ports.
    pub(super) ports: u32,
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

    /// Records a decision about a request of a class, with its cost.
    pub(super) fn decided(
        &mut self,
        class: usize,
        request: &Request,
        refusal: Option<&PlacementError>,
        cost: DecisionCost,
    ) {
        let DecisionCost { took, ports } = cost;
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
            // Too few slots, or too few at the requested place.
            PlacementError::Slots { .. } | PlacementError::Domains | PlacementError::Cpu { .. } => {
                "refused_slots"
            }
            PlacementError::Delay { .. } | PlacementError::Fabric { .. } => "refused_delay",
            PlacementError::Ports
            | PlacementError::Unfound
            | PlacementError::Unproved
            | PlacementError::Beside
            | PlacementError::Overload
            | PlacementError::Hosts { .. }
            | PlacementError::HostOfMachines { .. } => "refused_ports",
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

    /// Returns all measurements, as a variant of the result. A time without samples has no series.
    pub(super) fn finish(self, name: &str, classes: &[&str], end: &End) -> Variant {
        let mut variant = self.outline_at(name, classes, end);
        let is_always_there = |name: &str| !TIMES.contains(&name);
        variant
            .series
            .retain(|name, series| series.stats.count > 0 || is_always_there(name));
        variant
    }

    /// Returns a variant with the names of all possible values.
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
        let refused = |name: &str| {
            let count = self.refusals.get(name).copied().unwrap_or(0);
            percent(count, asked.tenants)
        };
        let decided = asked.tenants as f64 * 1e9 / self.deciding.0 as f64;
        let over = percent(end.queues.1, end.queues.0.max(1));
        let memory = end.memory.map_or(f64::NAN, |memory| memory.0 as f64);
        let mut variant = Variant::of_values(
            name,
            [
                ("hosts", end.hosts as f64, ""),
                ("tenants", end.tenants as f64, ""),
                ("occupancy", percent(end.taken, end.slots), "%"),
                ("asked_vms", asked.mean(), ""),
                ("admitted_vms", all[0].mean(), ""),
                ("refused", percent(all[1].tenants, asked.tenants), "%"),
                ("refused_slots", refused("refused_slots"), "%"),
                ("refused_delay", refused("refused_delay"), "%"),
                ("refused_ports", refused("refused_ports"), "%"),
                ("refused_effort", refused("refused_effort"), "%"),
                ("queues_used", end.queues.0 as f64, ""),
                ("queues_over", over, "%"),
                ("decisions_per_second", decided, "/s"),
                ("memory", memory, "B"),
            ],
        );
        for (class, [admitted, refused]) in classes.iter().zip(&self.counts) {
            let asked = admitted.plus(refused);
            let refused = percent(refused.tenants, asked.tenants);
            for (name, figure, unit) in [
                ("asked_vms", asked.mean(), ""),
                ("admitted_vms", admitted.mean(), ""),
                ("refused", refused, "%"),
            ] {
                let value = Value::new(unit, figure);
                variant.values.insert(format!("{class}_{name}"), value);
            }
        }
        let times = self.times.iter();
        variant.series = times
            .map(|(name, times)| ((*name).to_owned(), Series::of("ns", times)))
            .chain([(PORTS.to_owned(), Series::of("", &self.ports))])
            .collect();
        variant
    }
}
