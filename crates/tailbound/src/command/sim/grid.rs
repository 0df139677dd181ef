//! `tailbound sim run` and `tailbound report merge`: grids.

use crate::command;
use crate::command::experiment::Line;
use crate::command::output::{self, Output};
use crate::exit::{Exit, Failure, print_error};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Instant;
use tailbound_report::{Provenance, human};
use tailbound_sim::Threads;
use tailbound_sim::grid::{self, GridFiles, Manifest, MissingPoints, Scenario, Shard, Store};

/// Arguments of `tailbound sim run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "The row of each point is written as a whole. \
    After a crash, Ctrl-C or SIGTERM (once: running points finish first; twice: immediate), \
    the same command continues. A corrupt row is computed again. Results depend on the \
    scenario alone. With all rows, DIR has the report: NAME.html, .json, .csv and .parquet. \
    Exit code: 0 all rows of the shard exist; 2 a point could not run; 130 and 143 interrupted.")]
pub(super) struct Run {
    /// The scenario file (TOML)
    #[arg(value_name = "SCENARIO")]
    scenario: PathBuf,
    /// The directory of rows and report [default: out/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run only each N-th point, starting with the I-th
    #[arg(
        long,
        value_name = "I/N",
        default_value = "1/1",
        hide_default_value = true
    )]
    shard: Shard,
    /// The number of points that run in parallel [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: Option<u16>,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Arguments of `tailbound report merge`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Compares every row with its checksum, and rows of the same point with one \
    another. Exit code: 0 the report is written; 2 rows are missing, corrupt, from another \
    grid, or contradictory."
)]
pub(in crate::command) struct Merge {
    /// The output directories of `tailbound sim run`
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// The directory of the merged rows and the report [default: out/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// State of a grid.
#[derive(Debug, Serialize)]
struct GridStatus {
    name: String,
    /// Directory of its rows.
    directory: PathBuf,
    /// Number of its points.
    points: usize,
    /// Number of requested points.
    asked: usize,
    /// Number of requested points with rows.
    rows: usize,
    /// Number of rows that were computed now.
    computed: usize,
    /// Corrupt rows.
    corrupt: Vec<String>,
    report: Option<GridFiles>,
}

impl Run {
    fn directory(&self, scenario: &Scenario) -> PathBuf {
        let default = || Path::new("out").join(&scenario.name);
        self.out.clone().unwrap_or_else(default)
    }

    fn threads(&self) -> usize {
        let all = || thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or_else(all, usize::from)
    }

    pub(super) fn run(self) -> Result<Exit, Failure> {
        let scenario = Scenario::read(&self.scenario, &command::version())?;
        let directory = self.directory(&scenario);
        let store = Store::create(&directory, Manifest::new(&scenario))?;
        let left = MissingPoints::of(&store, self.shard)?;
        let corrupt: Vec<String> = left.corrupt.iter().map(ToString::to_string).collect();
        for row in &corrupt {
            print_error(row);
        }
        let stop = Stop::watch()?;
        let computed = self.points(&scenario, &store, &left, &stop)?;
        let mut status = GridStatus::new(&store, left.points.len() + left.done);
        status.rows = left.done + computed;
        status.computed = computed;
        status.corrupt = corrupt;
        let ended = stop.signal().filter(|_| status.rows < status.asked);
        if let Some(signal) = ended {
            let (rows, all) = (status.rows, status.asked);
            let message =
                format!("interrupted: {rows} of {all} rows are there; run it again to go on");
            return Err(Failure::with(Exit::Signal(signal), message));
        }
        status.finish(&store, self.output)
    }

    /// Runs the missing points. Returns their number.
    fn points(
        &self,
        scenario: &Scenario,
        store: &Store,
        left: &MissingPoints,
        stop: &Stop,
    ) -> Result<usize, Failure> {
        let line = Line::new();
        let began = Instant::now();
        let (all, there) = (left.points.len() + left.done, left.done);
        let progress = |done: usize| {
            let each = began.elapsed().as_secs_f64() / done as f64;
            let rest = each * (left.points.len() - done) as f64;
            let rest = human(rest * 1e9, "ns");
            line.show(&format!(
                "{}: {} of {all}, {rest} left",
                scenario.name,
                there + done
            ));
        };
        line.show(&format!("{}: {there} of {all}", scenario.name));
        let computed = grid::run(
            scenario,
            store,
            &left.points,
            Threads(self.threads()),
            || stop.signal().is_some(),
            progress,
            |point| scenario.measure(point),
        );
        Ok(computed?)
    }
}

impl Merge {
    pub(in crate::command) fn run(self) -> Result<Exit, Failure> {
        let stores: Result<Vec<Store>, _> =
            self.directories.iter().map(|it| Store::open(it)).collect();
        let stores = stores?;
        let manifest = stores[0].manifest();
        let default = || Path::new("out").join(&manifest.name);
        let out = self.out.unwrap_or_else(default);
        let all = Store::create(&out, manifest.clone())?;
        for store in &stores {
            all.take(store)?;
        }
        let mut status = GridStatus::new(&all, manifest.points.len());
        status.rows = all.all()?.len();
        status.finish(&all, self.output)
    }
}

impl GridStatus {
    fn new(store: &Store, asked: usize) -> Self {
        let manifest = store.manifest();
        Self {
            name: manifest.name.clone(),
            directory: store.directory().to_owned(),
            points: manifest.points.len(),
            asked,
            rows: 0,
            computed: 0,
            corrupt: Vec::new(),
            report: None,
        }
    }

    /// Writes the report if all rows exist, and prints the state.
    fn finish(mut self, store: &Store, output: Output) -> Result<Exit, Failure> {
        let mut text = String::new();
        let elsewhere = self.points - self.asked;
        let is_whole = elsewhere == 0 || MissingPoints::of(store, Shard::WHOLE)?.points.is_empty();
        if is_whole {
            let (results, written) = store.write_report(Provenance::now(command::commit()))?;
            text = results.summary(output::paint().0) + "\n";
            let GridFiles {
                html,
                json,
                csv,
                parquet,
            } = &written;
            let files = [html, json, csv, parquet];
            for (name, path) in ["report", "data", "table", "table"].into_iter().zip(files) {
                // Writing to a String does not fail.
                let _ = writeln!(text, "{name:<7} {}", path.display());
            }
            self.report = Some(written);
        }
        let (rows, directory) = (self.rows, self.directory.display());
        let (asked, computed) = (self.asked, self.computed);
        let _ = writeln!(
            text,
            "rows    {rows} of {asked} are in {directory}, {computed} of them new"
        );
        if !is_whole {
            let _ = writeln!(
                text,
                "{elsewhere} of {} points are of other shards: `tailbound report merge DIR...` puts \
                 all together",
                self.points
            );
        }
        output::print(&match output {
            Output::Text => text,
            Output::Json => output::json("grid", 1, &self),
        });
        Ok(Exit::Holds)
    }
}

/// Flag that a signal has requested the end.
struct Stop(Arc<AtomicU8>);

impl Stop {
    /// Sets the flag at the first signal; the second one ends this process and its points.
    fn watch() -> io::Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let noted = Arc::new(AtomicU8::new(0));
        let note = Arc::clone(&noted);
        thread::spawn(move || {
            for signal in signals.forever() {
                let signal = signal as u8;
                if note.swap(signal, Ordering::Relaxed) != 0 {
                    std::process::exit(128 + i32::from(signal));
                }
                print_error("points that run are ended first; a second signal ends immediately");
            }
        });
        Ok(Self(noted))
    }

    fn signal(&self) -> Option<u8> {
        Some(self.0.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }
}
