//! What a grid costs, from what a few of its points cost.

use super::{Cost, Manifest, Scenario, Store};
use std::collections::BTreeMap;
use tailbound_units::{Bytes, Nanos};
use toml::{Table, Value};

/// Keys whose values are how long an experiment is, in time or in numbers of things.
const LENGTHS: [&str; 9] = [
    "count", "duration", "messages", "networks", "nodes", "requests", "time", "warm_up", "warmup",
];

/// A number of things below which a part says little of the whole.
const FEW: i64 = 100;

/// What points are known to cost.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// By the first point of their combination.
    costs: BTreeMap<usize, Cost>,
    /// How many were measured on whole runs, the others on parts.
    whole: usize,
}

/// What a grid costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// Points that are to be run.
    pub points: usize,
    /// How many combinations the price follows from,
    pub measured: usize,
    /// and how many of these ran whole.
    pub whole: usize,
    /// Time on CPUs.
    pub cpu: Nanos,
    /// The most of a point.
    pub longest: Nanos,
    /// The most memory of a point.
    pub memory: Bytes,
}

impl Price {
    /// How long it takes by `threads` at once, each with a CPU of its own.
    pub fn elapsed(&self, threads: usize) -> Nanos {
        let even = self.cpu.0.div_ceil(threads.max(1) as u64);
        Nanos(even.max(self.longest.0))
    }

    /// What `threads` at once need.
    pub fn memory_of(&self, threads: usize) -> Bytes {
        let at_once = threads.clamp(1, self.points.max(1)) as u64;
        Bytes(self.memory.0.saturating_mul(at_once))
    }
}

impl Measured {
    /// What rows that are there cost: of each combination the most expensive one.
    pub fn of_rows(store: &Store) -> Self {
        let mut measured = Self::default();
        let points = &store.manifest().points;
        for (number, planned) in points.iter().enumerate() {
            let first = number - planned.repetition as usize;
            let Some(cost) = store.cost(number) else {
                continue;
            };
            let known = measured.costs.entry(first).or_insert(cost);
            known.cpu_ns = known.cpu_ns.max(cost.cpu_ns);
            known.peak_bytes = known.peak_bytes.max(cost.peak_bytes);
        }
        measured.whole = measured.costs.len();
        measured
    }

    /// Whether a point's combination is among them.
    pub fn has(&self, point: usize) -> bool {
        self.costs.contains_key(&point)
    }

    /// Adds what parts of a point cost: each its length, 1 being all of it, and its cost. What is
    /// longer costs more in proportion to what it is longer.
    pub fn add(&mut self, point: usize, parts: &[(f64, Cost)]) {
        let Some(&(length, last)) = parts.last() else {
            return;
        };
        let whole = |of: fn(&Cost) -> u64| {
            let end = of(&last) as f64;
            let slope = match parts {
                [.., (before, it), _] => ((end - of(it) as f64) / (length - before)).max(0.0),
                _ => end / length,
            };
            (end + slope * (1.0 - length)) as u64
        };
        let cost = Cost {
            cpu_ns: whole(|cost| cost.cpu_ns),
            peak_bytes: match parts {
                // How memory grows takes two lengths.
                [_] => last.peak_bytes,
                _ => whole(|cost| cost.peak_bytes),
            },
        };
        self.costs.insert(point, cost);
        self.whole += usize::from(length >= 1.0);
    }

    /// What `points` cost; nothing where nothing was measured. A combination that was not
    /// measured costs as those around it, the nearer the more.
    pub fn price(&self, manifest: &Manifest, points: &[usize]) -> Option<Price> {
        self.costs.first_key_value()?;
        let places = Places::new(manifest);
        let mut known: BTreeMap<usize, f64> = BTreeMap::new();
        let (mut cpu, mut longest) = (0.0, 0.0_f64);
        for &point in points {
            let first = point - manifest.points[point].repetition as usize;
            let one = *known
                .entry(first)
                .or_insert_with(|| self.cpu(&places, first));
            cpu += one;
            longest = longest.max(one);
        }
        let memory = self.costs.values().map(|cost| cost.peak_bytes).max();
        Some(Price {
            points: points.len(),
            measured: self.costs.len(),
            whole: self.whole,
            cpu: Nanos(cpu as u64),
            longest: Nanos(longest as u64),
            memory: Bytes(memory.unwrap_or_default()),
        })
    }

    fn cpu(&self, places: &Places<'_>, point: usize) -> f64 {
        if let Some(cost) = self.costs.get(&point) {
            return cost.cpu_ns as f64;
        }
        let (mut sum, mut weights) = (0.0, 0.0);
        for (other, cost) in &self.costs {
            let weight = places.distance(point, *other).powi(-2);
            sum += weight * cost.cpu_ns as f64;
            weights += weight;
        }
        sum / weights
    }
}

/// Where combinations stand among each other.
struct Places<'m> {
    manifest: &'m Manifest,
    /// Of each key its values, in order.
    values: Vec<Vec<&'m str>>,
}

impl<'m> Places<'m> {
    fn new(manifest: &'m Manifest) -> Self {
        let mut values = vec![Vec::new(); manifest.keys.len()];
        for point in &manifest.points {
            for (values, value) in values.iter_mut().zip(&point.settings) {
                if !values.contains(&value.as_str()) {
                    values.push(value);
                }
            }
        }
        Self { manifest, values }
    }

    /// The place of a point's value of a key, from 0 to 1.
    fn place(&self, point: usize, key: usize) -> f64 {
        let values = &self.values[key];
        let value = &self.manifest.points[point].settings[key];
        let place = values.iter().position(|it| it == value);
        place.unwrap_or_default() as f64 / (values.len() - 1).max(1) as f64
    }

    fn distance(&self, one: usize, other: usize) -> f64 {
        let keys = 0..self.values.len();
        let squares = keys.map(|key| (self.place(one, key) - self.place(other, key)).powi(2));
        squares.sum::<f64>().sqrt().max(1e-3)
    }

    /// Whether a point has the first or the last value of each key.
    fn is_corner(&self, point: usize) -> bool {
        let is_end = |place: f64| place <= 0.0 || place >= 1.0;
        (0..self.values.len()).all(|key| is_end(self.place(point, key)))
    }
}

/// The points whose costs say most of a grid's: the first of combinations that have the first or
/// the last value of each key; of many at most `most`, the last and the first among them.
pub fn corners(manifest: &Manifest, most: usize) -> Vec<usize> {
    let places = Places::new(manifest);
    let firsts = (0..manifest.points.len()).filter(|it| manifest.points[*it].repetition == 0);
    let mut all: Vec<usize> = firsts.filter(|it| places.is_corner(*it)).collect();
    // The last ones are mostly the largest.
    all.reverse();
    if all.len() > most {
        let chosen = (0..most).map(|number| all[number * (all.len() - 1) / (most - 1).max(1)]);
        all = chosen.collect();
    }
    all
}

/// A part of an experiment's length, as its text; nothing where it has no length that is known.
pub fn shortened(scenario: &Scenario, point: usize, part: f64) -> Option<String> {
    let mut table: Table = scenario.points[point].source.text.parse().ok()?;
    let found = shorten(&mut table, part);
    found.then(|| table.to_string())
}

fn shorten(table: &mut Table, part: f64) -> bool {
    let mut found = false;
    for (key, value) in table {
        let is_length = LENGTHS.contains(&key.as_str());
        match value {
            Value::Table(inner) => found |= shorten(inner, part),
            Value::Array(items) => {
                for table in items.iter_mut().filter_map(Value::as_table_mut) {
                    found |= shorten(table, part);
                }
            }
            Value::Integer(number) if is_length && *number >= FEW => {
                *number = (*number as f64 * part).ceil() as i64;
                found = true;
            }
            Value::String(text) if is_length => {
                if let Ok(time) = text.parse::<Nanos>() {
                    *text = Nanos((time.0 as f64 * part).ceil() as u64).to_string();
                    found = true;
                }
            }
            _ => {}
        }
    }
    found
}
