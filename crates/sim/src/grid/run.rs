//! Run of a grid's points on several threads.

use super::{GridError, GridPoint, Row, Scenario, Store};
use crate::Threads;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use tailbound_experiment::ExperimentError;
use tailbound_report::Results;

/// A part of a grid: each N-th point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Number of the part, from 1.
    number: usize,
    of: usize,
}

impl Shard {
    /// The whole grid.
    pub const WHOLE: Self = Self { number: 1, of: 1 };

    /// True if the part includes a point.
    pub const fn has(self, point: usize) -> bool {
        point % self.of == self.number - 1
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/');
        let parts = parts.and_then(|(one, other)| Some((one.parse().ok()?, other.parse().ok()?)));
        match parts {
            Some((number, of)) if (1..=of).contains(&number) => Ok(Self { number, of }),
            _ => Err(format!(
                "{text:?} is no part: write 2/8 for the second of eight"
            )),
        }
    }
}

/// Missing points of a shard.
#[derive(Debug, Default)]
pub struct MissingPoints {
    /// Points without a row.
    pub points: Vec<usize>,
    /// Number of points with a row.
    pub done: usize,
    /// Rows whose content differs from their checksum; they count as missing.
    pub corrupt: Vec<GridError>,
}

impl MissingPoints {
    /// Checks all rows of a shard.
    ///
    /// # Errors
    /// A row cannot be read.
    pub fn of(store: &Store, shard: Shard) -> Result<Self, GridError> {
        let mut left = Self::default();
        let points = 0..store.manifest().points.len();
        for point in points.filter(|point| shard.has(*point)) {
            match store.read(point) {
                Ok(Some(_)) => left.done += 1,
                Ok(None) => left.points.push(point),
                Err(error @ GridError::Corrupt { .. }) => {
                    left.points.push(point);
                    left.corrupt.push(error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(left)
    }
}

/// Runs points and writes a row of each, until `is_over` returns true; then no more points are
/// started. `progress` receives the number of completed points. Returns that number.
///
/// # Errors
/// The error of a point; rows of other points are kept.
///
/// # Panics
/// The system cannot create threads.
pub fn run(
    scenario: &Scenario,
    store: &Store,
    points: &[usize],
    threads: Threads,
    is_over: impl Fn() -> bool + Sync,
    progress: impl Fn(usize) + Sync,
    measure: impl Fn(&GridPoint) -> Result<Results, ExperimentError> + Sync,
) -> Result<usize, GridError> {
    let done = AtomicUsize::new(0);
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let point = |number: usize| {
        let point = &scenario.points[number];
        let results = measure(point).map_err(|why| GridError::Point {
            point: number,
            with: scenario.told(number),
            why,
        })?;
        store.write(&Row::new(number, &point.key, results))?;
        progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        Ok(())
    };
    let first = || failed.lock().unwrap_or_else(PoisonError::into_inner);
    // Threads of their own: a worker of a pool of rayon would begin further points while a point
    // waits for its own pool.
    thread::scope(|scope| {
        for _ in 0..threads.0.max(1) {
            scope.spawn(|| {
                while !is_over() && first().is_none() {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&number) = points.get(at) else {
                        return;
                    };
                    if let Err(error) = point(number) {
                        first().get_or_insert(error);
                    }
                }
            });
        }
    });
    let error = first().take();
    error.map_or_else(|| Ok(done.into_inner()), Err)
}
