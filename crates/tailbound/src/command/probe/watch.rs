//! Probes of a node over weeks: repeats the probe, and stores the results in a small file.

use super::document::{CpuDocument, Document, SCHEMA};
use super::run::Measure;
use crate::command::output::{self, Output, print};
use crate::exit::{Exit, Failure};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tailbound_probe::NodeVerdict;
use tailbound_probe::history::{History, Run, Stretch};
use tailbound_report::{Paint, Table, human};
use tailbound_units::Nanos;

/// Shortest interval between runs: a run may take two minutes, and the file must stay small.
const MIN_INTERVAL: Nanos = Nanos::from_secs(180);
/// Longest interval between runs.
const MAX_INTERVAL: Nanos = Nanos::from_secs(7 * 86_400);
/// Largest file that is read, in bytes: hourly runs of a century.
const LARGEST: u64 = 200 << 20;

/// Arguments of `tailbound probe watch`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Each run appends a line of JSON of about 150 bytes to FILE: hourly runs take \
    1.3 MB a year. The command continues an existing file and runs until a signal ends it. \
    Exit code, after --runs and with --show: 0 the last verdict was GOOD; 1 BAD; 2 no run had \
    a verdict, or the probe could not run."
)]
pub(super) struct Args {
    /// The file of results, one line for each run; created if missing
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The interval between the starts of two runs
    #[arg(long, value_name = "TIME", default_value = "1h")]
    every: Nanos,
    /// The number of runs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// Run no probe; summarise the file
    #[arg(long, conflicts_with_all = ["every", "runs"])]
    show: bool,
    /// The output format of the summary
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    measure: Measure,
}

impl Args {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        if self.show {
            let mut file = File::open(&self.file).map_err(|error| failed(&self.file, &error))?;
            let (runs, _) = read(&self.file, &mut file)?;
            return Ok(self.told(&History::of(&runs)));
        }
        if !(MIN_INTERVAL..=MAX_INTERVAL).contains(&self.every) {
            return Err(Failure::wrong_arguments(format!(
                "a run every {}: {MIN_INTERVAL} to {MAX_INTERVAL} can be kept",
                self.every
            )));
        }
        let mut log = Log::open(&self.file)?;
        let mut left = self.runs;
        loop {
            let start = SystemTime::now();
            let document = self.measure.run(super::form::Form::Line, None)?;
            let run = shortened(&document, self.every);
            log.add(&run)?;
            if self.output == Output::Text {
                print(&format!("{}\n", document.line));
            }
            left = left.map(|left| left - 1);
            let is_lost = output::lost().is_some();
            if left == Some(0) || is_lost {
                return Ok(self.told(&History::of(&log.runs)));
            }
            // A clock that was set back does not extend the pause.
            let passed = start.elapsed().unwrap_or_default();
            let every = std::time::Duration::from(self.every);
            std::thread::sleep(every.saturating_sub(passed));
        }
    }

    fn told(&self, history: &History) -> Exit {
        print(&match self.output {
            Output::Json => output::json("probe-watch", SCHEMA, history),
            Output::Text => text(history, output::paint()),
        });
        let now = history
            .now
            .map_or(NodeVerdict::Inconclusive, |now| now.verdict);
        now.into()
    }
}

/// The file with its content.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: File,
    runs: Vec<Run>,
}

impl Log {
    /// Opens the file for this process alone. An incomplete line at its end, from an interrupted
    /// write, is removed.
    fn open(path: &Path) -> Result<Self, Failure> {
        let open = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path);
        let mut file = open.map_err(|error| failed(path, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let why = "another watch keeps it: end that, or use another file";
                return Err(Failure::new(format!("{}: {why}", path.display())));
            }
            Err(TryLockError::Error(error)) => return Err(failed(path, &error)),
        }
        let (runs, whole) = read(path, &mut file)?;
        file.set_len(whole).map_err(|error| failed(path, &error))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            runs,
        })
    }

    fn add(&mut self, run: &Run) -> Result<(), Failure> {
        let mut line = serde_json::to_string(run).map_err(io::Error::from);
        if let Ok(line) = &mut line {
            line.push('\n');
        }
        let written = line.and_then(|line| {
            self.file.write_all(line.as_bytes())?;
            self.file.sync_data()
        });
        written.map_err(|error| failed(&self.path, &error))?;
        self.runs.push(run.clone());
        Ok(())
    }
}

/// Reads the runs in a file, and the length of its complete lines.
fn read(path: &Path, file: &mut File) -> Result<(Vec<Run>, u64), Failure> {
    let failed = |error: &io::Error| failed(path, error);
    let length = file.metadata().map_err(|error| failed(&error))?.len();
    if length > LARGEST {
        let why = format!("{length} bytes are more than any watch writes: use another file");
        return Err(Failure::new(format!("{}: {why}", path.display())));
    }
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))
        .map_err(|error| failed(&error))?;
    file.read_to_end(&mut bytes)
        .map_err(|error| failed(&error))?;
    let whole = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let lines = bytes[..whole].split_inclusive(|byte| *byte == b'\n');
    let runs = (1..).zip(lines).map(|(number, line)| {
        serde_json::from_slice(line).map_err(|error| {
            let why = format!("no line of tailbound probe watch: {error}; use another file");
            Failure::new(format!("{}:{number}: {why}", path.display()))
        })
    });
    Ok((runs.collect::<Result<_, _>>()?, whole as u64))
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

/// Returns the stored part of a run: its worst vCPU.
fn shortened(document: &Document, every: Nanos) -> Run {
    let share = |cpu: &&CpuDocument| {
        (u128::from(cpu.counts.late) << 64) / u128::from(cpu.counts.samples.max(1))
    };
    let worst = document.cpus.iter().max_by_key(share);
    let counts = worst.map(|cpu| cpu.counts).unwrap_or_default();
    let sleeps = worst.map(|cpu| &cpu.sleep_ns);
    Run {
        // Milliseconds are enough, and short.
        at: (document.start_unix_s * 1e3).round() / 1e3,
        every: every.as_secs_f64(),
        verdict: document.verdict,
        sleeps: counts.samples,
        late: counts.late,
        ours: counts.ours,
        stolen: counts.stolen,
        p99_9: sleeps.map_or(0, |sleeps| sleeps.p99_9),
        max: sleeps.map_or(0, |sleeps| sleeps.max),
    }
}

fn text(history: &History, paint: Paint) -> String {
    let line = match &history.now {
        None => "INCONCLUSIVE  no run decided".to_owned(),
        Some(now) => format!("{}  for {}; runs: {}", now.verdict, length(now), now.runs),
    };
    let verdict = history
        .now
        .map_or(NodeVerdict::Inconclusive, |now| now.verdict);
    let mut out = super::text::painted(&line, verdict, paint.0);
    out += "\n\n";
    let mut table = Table::new(&["verdict", "runs", "share", "longest"], &[0]);
    let all = history.runs().max(1) as f64;
    for (verdict, runs, longest) in [
        (NodeVerdict::Good, history.good, history.longest_good),
        (NodeVerdict::Bad, history.bad, history.longest_bad),
        (NodeVerdict::Unsure, history.unsure, None),
        (NodeVerdict::Inconclusive, history.inconclusive, None),
    ] {
        table.row([
            verdict.to_string(),
            runs.to_string(),
            format!("{:.1} %", 100.0 * runs as f64 / all),
            longest
                .as_ref()
                .map_or_else(|| tailbound_report::NOTHING.to_owned(), length),
        ]);
    }
    out += &table.render(paint);
    // Writing to a String does not fail.
    let _ = writeln!(
        out,
        "\nchanges between GOOD and BAD: {}; gaps between runs: {}",
        history.changes, history.gaps
    );
    out
}

/// Returns the duration of a stretch, in its two largest units.
fn length(stretch: &Stretch) -> String {
    let seconds = stretch.length();
    let minutes = (seconds / 60.0) as u64;
    match (minutes / 1_440, minutes / 60 % 24, minutes % 60) {
        (0, 0, 0) => human(seconds * 1e9, "ns"),
        (0, 0, minutes) => format!("{minutes}min"),
        (0, hours, minutes) => format!("{hours}h {minutes}min"),
        (days, hours, _) => format!("{days}d {hours}h"),
    }
}
