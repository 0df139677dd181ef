//! Measurements of one point: outcome of tenants, and traffic of the network.

use super::transfers::TIERS;
use crate::distribution::sorted;
use crate::net::Time;
use hdrhistogram::Histogram;
use tailbound_report::{Series, Value, Variant, empty_histogram};

/// Name of each tier's links in values.
const LINKS: [&str; TIERS] = ["host", "rack", "pod"];

/// Collects the measurements.
#[derive(Debug)]
pub(super) struct Recorder {
    /// Number of requests and of refused ones, by class.
    asked: Vec<u64>,
    refused: Vec<u64>,
    /// Ratio of jobs' times to their nominal times, by class.
    stretch: Vec<Vec<f64>>,
    jobs: Histogram<u64>,
}

/// Usage of a point's network and slots.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    pub(super) hosts: usize,
    pub(super) slots: u64,
    /// Measured time.
    pub(super) time: Time,
    /// Taken slots multiplied by picoseconds, during that time.
    pub(super) taken: f64,
    /// Bits that flows carried over links of each tier.
    pub(super) carried: [f64; TIERS],
    /// Bits a second of all these links in one direction.
    pub(super) capacity: [f64; TIERS],
}

impl Recorder {
    pub(super) fn new(classes: usize) -> Self {
        Self {
            asked: vec![0; classes],
            refused: vec![0; classes],
            stretch: vec![Vec::new(); classes],
            jobs: empty_histogram(),
        }
    }

    pub(super) fn decided(&mut self, class: usize, is_admitted: bool) {
        self.asked[class] += 1;
        self.refused[class] += u64::from(!is_admitted);
    }

    /// Records the end of a job, with its time and its nominal time.
    pub(super) fn ended(&mut self, class: usize, took: Time, nominal: Time) {
        self.jobs.saturating_record(took.floor().0);
        let stretch = took.0 as f64 / nominal.0.max(1) as f64;
        self.stretch[class].push(stretch);
    }

    /// Returns all measurements as a variant of the result.
    pub(super) fn finish(&self, name: &str, classes: &[&str], usage: &Usage) -> Variant {
        let part = |part: f64, of: f64| 100.0 * part / of;
        let seconds = usage.time.0 as f64 / 1e12;
        let sum = |counts: &[u64]| counts.iter().sum::<u64>() as f64;
        let all = usage.slots as f64 * usage.time.0 as f64;
        let (carried, capacity): (f64, f64) =
            (usage.carried.iter().sum(), usage.capacity.iter().sum());
        let refused = part(sum(&self.refused), sum(&self.asked));
        let mut variant = Variant::of_values(
            name,
            [
                ("hosts", usage.hosts as f64, ""),
                ("requests", sum(&self.asked), ""),
                ("seconds", seconds, "s"),
                ("accepted", 100.0 - refused, "%"),
                ("refused", refused, "%"),
                ("occupancy", part(usage.taken, all), "%"),
                ("utilization", part(carried, capacity * seconds), "%"),
            ],
        );
        let mut value = |name: String, unit: &str, figure: f64| {
            variant.values.insert(name, Value::new(unit, figure));
        };
        for (tier, link) in LINKS.iter().enumerate() {
            let used = part(usage.carried[tier], usage.capacity[tier] * seconds);
            value(format!("{link}_utilization"), "%", used);
        }
        for (number, class) in classes.iter().enumerate() {
            let refused = part(self.refused[number] as f64, self.asked[number] as f64);
            value(format!("{class}_refused"), "%", refused);
            stretch(&mut value, &format!("{class}_"), &self.stretch[number]);
        }
        stretch(&mut value, "", &self.stretch.concat());
        let jobs = Series::of("ns", &self.jobs);
        variant.series.insert("jobs".to_owned(), jobs);
        variant
    }
}

/// Adds the stretch of jobs: on average, and of the slowest hundredth at least.
fn stretch(value: &mut impl FnMut(String, &str, f64), prefix: &str, all: &[f64]) {
    let all = sorted(all.iter().copied());
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    value(format!("{prefix}stretch"), "", mean);
    let slowest = crate::distribution::percentile(&all, 99.0);
    value(format!("{prefix}stretch_p99"), "", slowest);
}

/// Returns a variant with the names of all values.
pub(super) fn outline(name: &str, classes: &[&str]) -> Variant {
    Recorder::new(classes.len()).finish(name, classes, &Usage::default())
}
