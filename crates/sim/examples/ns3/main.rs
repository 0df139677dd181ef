//! Comparison of the simulator of messages with ns-3: the same stars, TCP and messages. It prints
//! the times of messages, losses, timeouts and event rates of each cell of a matrix, and a verdict.
//! `make compare-ns3` builds ns-3's half, `tools/ns3/star.cc`, and runs this.
//!
//! `cargo run --release -p tailbound-sim --example ns3 -- STAR_OF_NS3 [SEED [PART_OF_A_NAME]]`

mod cells;
mod side;

use cells::{CELLS, Cell, RECEIVE_WINDOW, Way};
use side::Side;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tailbound_experiment::{Loaded, Source};
use tailbound_sim::packets::{PacketsExperiment, ReceivedMessage};

/// Largest accepted difference at the median and the 90th percentile.
const LIMIT: f64 = 0.10;
/// The same at the 99th percentile and of losses.
const TAIL_LIMIT: f64 = 0.15;
/// Losses that differ by fewer frames are not judged.
const IGNORED_LOSSES: u64 = 50;
const PARTS: [f64; 3] = [0.5, 0.9, 0.99];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: ns3 STAR_OF_NS3 [SEED [PART_OF_A_NAME]]";
    let star = arguments.next().ok_or(usage)?;
    let seed: u64 = arguments.next().map_or(Ok(1), |it| it.parse())?;
    let part = arguments.next().unwrap_or_default();
    let directory = tempfile::tempdir()?;
    println!("Times in ms: here with ns-3's loss recovery, in ns-3, and their ratio.");
    println!(
        "{:<31} {:>19} {:>19} {:>19} {:>18} {:>12} {:>8}",
        "", "p50", "p90", "p99", "lost", "timeouts", "M/s"
    );
    let (mut agreed, mut unknown, mut all) = (0, 0, 0);
    for cell in CELLS.iter().filter(|it| it.name.contains(&part)) {
        let (ours, flows) = run_ours(cell, Way::Ns3, seed, directory.path())?;
        let (linux, _) = run_ours(cell, Way::Linux, seed, directory.path())?;
        let theirs = run_theirs(cell, Path::new(&star), &flows, directory.path())?;
        let is_equal = agrees(&ours, &theirs);
        tell(
            cell.name,
            &ours,
            &theirs,
            if is_equal { "agrees" } else { "DIFFERS" },
        );
        if cell.sack {
            tell("  with Linux's", &linux, &theirs, "");
        }
        if let Some(cause) = cell.differs.filter(|_| !is_equal) {
            println!("  {cause}");
        }
        all += 1;
        agreed += u32::from(is_equal);
        unknown += u32::from(!is_equal && cell.differs.is_none());
    }
    println!("{agreed} of {all} cells agree, {unknown} differ without a known cause.");
    if unknown > 0 {
        std::process::exit(1);
    }
    Ok(())
}

/// True if times and losses agree.
fn agrees(ours: &Side, theirs: &Side) -> bool {
    let times = PARTS.iter().zip([LIMIT, LIMIT, TAIL_LIMIT]);
    let mut off = times.map(|(part, most)| {
        (ours.percentile(*part) / theirs.percentile(*part) - 1.0).abs() <= most
    });
    let losses = ours.dropped as f64 / theirs.dropped as f64;
    let is_ignored = ours.dropped.abs_diff(theirs.dropped) < IGNORED_LOSSES;
    off.all(|it| it) && (is_ignored || (losses - 1.0).abs() <= TAIL_LIMIT)
}

/// Runs this simulator; returns the messages, too, in the order in which they begin.
fn run_ours(
    cell: &Cell,
    way: Way,
    seed: u64,
    directory: &Path,
) -> Result<(Side, Vec<ReceivedMessage>), Box<dyn Error>> {
    if let Some(rows) = cell.trace(seed) {
        let mut writer = csv::Writer::from_path(directory.join("trace.csv"))?;
        rows.iter().try_for_each(|row| writer.serialize(row))?;
        writer.flush()?;
    }
    let source = Source {
        file: directory.join("ns3.toml").display().to_string(),
        text: cell.experiment("trace.csv", way),
    };
    let loaded = Loaded::<PacketsExperiment>::parse(&source)?;
    let messages = loaded.experiment.messages.ok_or("there are messages")?;
    let start = on_the_cpu();
    let outcome = messages.simulate(&messages.setting[0], seed)?;
    let took_cpu = on_the_cpu().saturating_sub(start);
    if outcome.begun != outcome.ended {
        return Err(format!("{} of {} messages ended", outcome.ended, outcome.begun).into());
    }
    let mut flows: Vec<ReceivedMessage> = outcome.messages().collect();
    flows.sort_by_key(|it| (it.begun, it.from, it.to));
    let side = Side {
        took: flows.iter().map(|it| it.took.0).collect(),
        events: outcome.totals.packets,
        dropped: outcome.totals.dropped,
        timeouts: outcome.totals.timeouts,
        took_cpu,
    };
    Ok((side, flows))
}

/// Runs ns-3 with the same messages.
fn run_theirs(
    cell: &Cell,
    star: &Path,
    flows: &[ReceivedMessage],
    directory: &Path,
) -> Result<Side, Box<dyn Error>> {
    let (list, took) = (directory.join("flows.csv"), directory.join("took"));
    let mut writer = csv::Writer::from_path(&list)?;
    for flow in flows {
        writer.serialize((flow.begun.0, flow.from, flow.to, flow.size.0))?;
    }
    writer.flush()?;
    let output = Command::new(star)
        .arg(format!("--flows={}", list.display()))
        .arg(format!("--took={}", took.display()))
        .arg(format!("--hosts={}", cell.hosts))
        .arg(format!("--rate={}Gbps", cell.gigabits))
        .arg(format!("--delay={}us", cell.delay))
        .arg(format!("--buffer={}", cell.buffer()))
        .arg(format!("--mark-at={}", cell.mark_at()))
        .arg(format!("--sack={}", cell.sack))
        .arg(format!("--initial-window={}", cell.initial_window))
        .arg(format!("--receive-window={RECEIVE_WINDOW}"))
        .arg(format!("--least-timeout={}ms", cell.least_timeout))
        .arg("--delayed-ack=1ms")
        .output()?;
    let told = String::from_utf8(output.stdout)?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}\n{told}{errors}", star.display(), output.status).into());
    }
    let value = |name: &str| -> Result<f64, Box<dyn Error>> {
        let mut lines = told.lines().filter_map(|it| it.split_once(' '));
        let line = lines.find(|it| it.0 == name);
        let line = line.ok_or_else(|| format!("ns-3 does not tell {name}:\n{told}"))?;
        Ok(line.1.parse()?)
    };
    if value("ended")? as usize != flows.len() {
        return Err(format!(
            "{} of {} messages of ns-3 ended",
            value("ended")?,
            flows.len()
        )
        .into());
    }
    let took = fs::read_to_string(took)?;
    let took: Result<Vec<u64>, _> = took.lines().map(str::parse).collect();
    Ok(Side {
        took: took?,
        events: value("events")? as u64,
        dropped: value("dropped")? as u64,
        timeouts: value("timeouts")? as u64,
        took_cpu: Duration::from_secs_f64(value("seconds")?),
    })
}

fn tell(name: &str, ours: &Side, theirs: &Side, verdict: &str) {
    print!("{name:<31}");
    for part in PARTS {
        let (own, other) = (ours.percentile(part), theirs.percentile(part));
        print!(" {own:>6.2} {other:>6.2} {:>5.2}", own / other);
    }
    println!(
        " {:>6} {:>6} {:>4.2} {:>5} {:>5} {:>4.1} {:>5.2}  {verdict}",
        ours.dropped,
        theirs.dropped,
        ours.dropped as f64 / theirs.dropped as f64,
        ours.timeouts,
        theirs.timeouts,
        ours.speed(),
        theirs.speed(),
    );
}

/// Returns the CPU time of this thread.
fn on_the_cpu() -> Duration {
    let told = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = told.split_whitespace().next();
    Duration::from_nanos(nanos.and_then(|it| it.parse().ok()).unwrap_or_default())
}
