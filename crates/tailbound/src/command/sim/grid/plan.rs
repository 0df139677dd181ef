//! What a grid costs, before it runs.

use super::Common;
use crate::command::experiment::Line;
use crate::command::output::{self, Output};
use crate::command::sim::point::{PointError, measure};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use tailbound_experiment::Source;
use tailbound_report::human;
use tailbound_sim::grid::{Cost, Left, Manifest, Measured, Price, Scenario, Store};
use tailbound_sim::grid::{corners, shortened};
use tailbound_sys::memory;
use tailbound_units::Bytes;

/// The most points that are measured.
const CORNERS: usize = 8;

/// Parts of a point's length that are run to tell what all of it costs.
const PARTS: [f64; 2] = [1.0 / 64.0, 1.0 / 16.0];

/// A point that costs less is run whole.
const SHORT: Duration = Duration::from_millis(200);

/// For so long points are measured before a run.
const BEFORE_A_RUN: Duration = Duration::from_secs(10);

/// Arguments of `tailbound sim plan`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The estimate is based on existing rows, and otherwise on short runs of \
    points at the grid's corners. It is accurate to a factor, not to a percent. Exit code: 0 the \
    grid fits into memory; 1 it does not; 2 there is no estimate."
)]
pub(in crate::command::sim) struct Plan {
    #[command(flatten)]
    common: Common,
    /// For how many seconds points may be measured
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    budget: u64,
}

/// What `--output json` prints.
#[derive(Debug, Serialize)]
struct Told {
    name: String,
    /// Points of the shard,
    points: usize,
    /// and how many of them have no row yet.
    left: usize,
    /// What follows is of these: none where nothing is left.
    price: Option<ToldPrice>,
    /// What there is of memory; none where that is not known.
    memory_free_bytes: Option<u64>,
    fits: bool,
}

#[derive(Debug, Serialize)]
struct ToldPrice {
    /// How many combinations were measured,
    measured: usize,
    /// and how many of them on whole runs.
    measured_whole: usize,
    cpu_ns: u64,
    longest_point_ns: u64,
    threads: usize,
    elapsed_ns: u64,
    point_memory_bytes: u64,
    memory_bytes: u64,
}

impl Plan {
    pub(in crate::command::sim) fn run(self) -> Result<Exit, Failure> {
        let common = &self.common;
        let scenario = common.scenario()?;
        let manifest = Manifest::new(&scenario);
        let directory = common.directory(&scenario);
        // A price makes no directory.
        let store = Store::open(&directory).ok();
        let store = store.filter(|store| *store.manifest() == manifest);
        let (points, left) = if let Some(store) = &store {
            let left = Left::of(store, common.shard)?;
            (left.points.len() + left.done, left.points)
        } else {
            let all = 0..manifest.points.len();
            let all: Vec<usize> = all.filter(|point| common.shard.has(*point)).collect();
            (all.len(), all)
        };
        let budget = Duration::from_secs(self.budget);
        let price = price(&scenario, (&manifest, store.as_ref()), &left, budget)?;
        let free = common.memory.or_else(memory::available);
        let told = Told::new(
            &scenario,
            (points, left.len()),
            price,
            common.threads(),
            free,
        );
        output::print(&match common.output {
            Output::Text => told.text(),
            Output::Json => output::json("plan", 1, &told),
        });
        Ok(Exit::holds(told.fits))
    }
}

/// Refuses a run that would not fit into memory.
pub(super) fn refuse(
    common: &Common,
    scenario: &Scenario,
    store: &Store,
    points: &[usize],
) -> Result<(), Failure> {
    let Some(free) = common.memory.or_else(memory::available) else {
        return Ok(());
    };
    let price = price(
        scenario,
        (store.manifest(), Some(store)),
        points,
        BEFORE_A_RUN,
    )?;
    let Some(price) = price else {
        return Ok(());
    };
    let threads = common.threads();
    let needed = price.memory_of(threads);
    if needed <= free {
        return Ok(());
    }
    let fit = free.0 / price.memory.0.max(1);
    let help = match fit {
        0 => "a machine with more, or a smaller scenario".to_owned(),
        fit => format!("--threads {fit} fits"),
    };
    Err(Failure::new(format!(
        "{} at once need some {}, and there are {}; {help}",
        told_points(threads.min(price.points)),
        bytes(needed),
        bytes(free)
    )))
}

fn told_points(number: usize) -> String {
    match number {
        1 => "1 point".to_owned(),
        more => format!("{more} points"),
    }
}

fn bytes(bytes: Bytes) -> String {
    human(bytes.0 as f64, "B")
}

/// What `points` cost: from rows that are there, and from parts of the grid's corners.
fn price(
    scenario: &Scenario,
    (manifest, store): (&Manifest, Option<&Store>),
    points: &[usize],
    budget: Duration,
) -> Result<Option<Price>, Failure> {
    if points.is_empty() {
        return Ok(None);
    }
    let mut measured = store.map(Measured::of_rows).unwrap_or_default();
    let began = Instant::now();
    let line = Line::new();
    let corners = corners(manifest, CORNERS);
    for (number, &point) in corners.iter().enumerate() {
        let left = budget.saturating_sub(began.elapsed());
        if measured.has(point) || (left.is_zero() && number > 0) {
            continue;
        }
        line.show(&format!(
            "{}: pricing, {number} of {}",
            scenario.name,
            corners.len()
        ));
        let parts = parts(scenario, point, left.max(Duration::from_secs(1)))?;
        measured.add(point, &parts);
    }
    let price = measured.price(manifest, points);
    price.map(Some).ok_or_else(|| {
        let why = "no point came to an end within the budget, nor did a part of one";
        Failure::new(format!("{}: there is no price: {why}", scenario.name))
    })
}

/// What parts of a point cost, the shortest first, and all of it where that is cheap.
fn parts(scenario: &Scenario, point: usize, budget: Duration) -> Result<Vec<(f64, Cost)>, Failure> {
    let planned = &scenario.points[point];
    let mut parts: Vec<(f64, Cost)> = Vec::new();
    let mut left = budget;
    for part in PARTS.into_iter().chain([1.0]) {
        let text = match shortened(scenario, point, part) {
            _ if part >= 1.0 => planned.source.text.clone(),
            Some(text) => text,
            None => continue,
        };
        let expected = parts.last().map_or(Duration::ZERO, |(length, cost)| {
            Duration::from_nanos((cost.cpu_ns as f64 * part / length) as u64)
        });
        let is_dear = part >= 1.0 && !parts.is_empty() && expected > SHORT;
        if is_dear || expected > left {
            break;
        }
        let source = Source {
            text,
            file: planned.source.file.clone(),
        };
        let seconds = left.as_secs().max(1);
        match measure(scenario.kind(), &source, planned.seed, Some(seconds)) {
            Ok((_, cost)) => {
                left = left.saturating_sub(Duration::from_nanos(cost.cpu_ns));
                parts.push((part, cost));
            }
            Err(PointError::TooLong(_)) => break,
            // A part may be too short for what its experiment asks for.
            Err(_) if part < 1.0 => {}
            Err(error) => {
                let with = scenario.told(point);
                return Err(Failure::new(format!("point {point} ({with}): {error}")));
            }
        }
    }
    Ok(parts)
}

impl Told {
    fn new(
        scenario: &Scenario,
        (points, left): (usize, usize),
        price: Option<Price>,
        threads: usize,
        free: Option<Bytes>,
    ) -> Self {
        let needed = price.map_or(Bytes::ZERO, |price| price.memory_of(threads));
        Self {
            name: scenario.name.clone(),
            points,
            left,
            price: price.map(|price| ToldPrice {
                measured: price.measured,
                measured_whole: price.whole,
                cpu_ns: price.cpu.0,
                longest_point_ns: price.longest.0,
                threads,
                elapsed_ns: price.elapsed(threads).0,
                point_memory_bytes: price.memory.0,
                memory_bytes: needed.0,
            }),
            memory_free_bytes: free.map(|free| free.0),
            fits: free.is_none_or(|free| needed <= free),
        }
    }

    fn text(&self) -> String {
        let Self {
            name, points, left, ..
        } = self;
        let mut text = format!("{name}: {points} points, {left} without a row\n");
        let Some(price) = &self.price else {
            return text;
        };
        let time = |ns: u64| human(ns as f64, "ns");
        let size = |bytes: u64| human(bytes as f64, "B");
        let free = self.memory_free_bytes.map_or_else(String::new, |free| {
            let fits = if self.fits { "" } else { ": it does not fit" };
            format!(" of {}{fits}", size(free))
        });
        let threads = price.threads;
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "time    {} of CPUs: {} on {threads} at once; the longest point takes {}\n\
             memory  {} for a point, {}{free} for {threads} at once\n\
             from    {} combinations that were measured, {} of them whole",
            time(price.cpu_ns),
            time(price.elapsed_ns),
            time(price.longest_point_ns),
            size(price.point_memory_bytes),
            size(price.memory_bytes),
            price.measured,
            price.measured_whole,
        );
        text
    }
}
