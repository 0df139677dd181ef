//! Comparison of the simulator of messages with ns-3: the same star, TCP and flows; event counts,
//! CPU time and times of flows. `make compare-ns3` builds ns-3's half, `tools/ns3/star.cc`, and
//! runs this.
//!
//! `cargo run --release -p tailbound-sim --example ns3 -- STAR_OF_NS3 [SEEDS [MILLISECONDS]]`

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tailbound_experiment::{Loaded, Source};
use tailbound_sim::packets::{Messages, PacketsExperiment, ReceivedMessage};

const HOSTS: u32 = 16;
const DELAY: &str = "20us";
/// Buffer of a port: 244 full frames, with their length on a wire.
const BUFFER: u64 = 244 * 1_538;
/// Queue length from which frames are marked: 20 full frames.
const MARK_AT: u64 = 20 * 1_538;
const INITIAL_WINDOW: u32 = 10;
/// Larger than any flow: ns-3 stops at an exactly full window.
const RECEIVE_WINDOW: u64 = 64 << 20;
const LEAST_TIMEOUT: &str = "10ms";
const DELAYED_ACK: &str = "1ms";

/// A case of the comparison.
struct Case {
    name: &'static str,
    congestion: &'static str,
    sack: bool,
    marks: bool,
}

const CASES: [Case; 3] = [
    Case {
        name: "NewReno",
        congestion: "newreno",
        sack: false,
        marks: false,
    },
    Case {
        name: "NewReno, SACK",
        congestion: "newreno",
        sack: true,
        marks: false,
    },
    Case {
        name: "DCTCP",
        congestion: "dctcp",
        sack: true,
        marks: true,
    },
];

/// Results of one of the two simulators.
#[derive(Debug, Default)]
struct Side {
    /// Time of each flow, in nanoseconds.
    took: Vec<u64>,
    /// Length of each flow, in bytes.
    sizes: Vec<u64>,
    events: u64,
    dropped: u64,
    marked: u64,
    /// Number of flows whose connections were not open when they began.
    late: u64,
    seconds: f64,
}

impl Side {
    fn add(&mut self, other: Self) {
        self.took.extend(other.took);
        self.sizes.extend(other.sizes);
        self.events += other.events;
        self.dropped += other.dropped;
        self.marked += other.marked;
        self.late += other.late;
        self.seconds += other.seconds;
    }

    fn speed(&self) -> f64 {
        self.events as f64 / self.seconds
    }

    /// Returns the time in milliseconds that this part of the flows up to a size does not exceed.
    fn percentile(&self, part: f64, most: u64) -> f64 {
        let flows = self.took.iter().zip(&self.sizes);
        let flows = flows.filter(|it| *it.1 <= most);
        let mut took: Vec<u64> = flows.map(|it| *it.0).collect();
        took.sort_unstable();
        let place = (part * took.len() as f64).ceil() as usize;
        let value = took.get(place.saturating_sub(1));
        value.map_or(f64::NAN, |it| *it as f64 / 1e6)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: ns3 STAR_OF_NS3 [SEEDS [MILLISECONDS]]";
    let star = arguments.next().ok_or(usage)?;
    let seeds: u64 = arguments.next().map_or(Ok(3), |it| it.parse())?;
    let milliseconds: u64 = arguments.next().map_or(Ok(500), |it| it.parse())?;
    let directory = tempfile::tempdir()?;
    for case in CASES {
        let messages = messages(&case, milliseconds)?;
        let (mut ours, mut theirs) = (Side::default(), Side::default());
        for seed in 1..=seeds {
            let (side, flows) = run_ours(&messages, seed)?;
            theirs.add(run_theirs(
                &case,
                Path::new(&star),
                &flows,
                directory.path(),
            )?);
            ours.add(side);
        }
        tell(&case, &ours, &theirs);
    }
    Ok(())
}

fn messages(case: &Case, milliseconds: u64) -> Result<Messages, Box<dyn Error>> {
    let mark_at = if case.marks {
        format!(", mark_at = \"{MARK_AT}B\", host_mark_at = \"{MARK_AT}B\"")
    } else {
        String::new()
    };
    let source = Source {
        file: "ns3".to_owned(),
        text: format!(
            r#"
name = "ns3"
title = "ns-3"
source = "nowhere"
[messages]
duration = "{milliseconds}ms"
stops = true
star = {{ hosts = {HOSTS}, link = {{ rate = "1Gbit/s", delay = "{DELAY}" }} }}
[messages.flows]
every = "1200us"
sizes = {{ pareto = {{ shape = 1.2, mean = "100KB", most = "10MB" }} }}
own_connections = true
[[messages.setting]]
name = "one"
switches = {{ buffer = "{BUFFER}B", host_buffer = "{BUFFER}B"{mark_at} }}
[messages.setting.transport]
congestion = "{}"
sack = {}
initial_window = {INITIAL_WINDOW}
least_timeout = "{LEAST_TIMEOUT}"
delayed_ack = "{DELAYED_ACK}"
quick_acks = 0
receive_window = "{RECEIVE_WINDOW}B"
restarts = false
probes = false
"#,
            case.congestion, case.sack
        ),
    };
    let loaded = Loaded::<PacketsExperiment>::parse(&source)?;
    Ok(loaded.experiment.messages.ok_or("there are messages")?)
}

/// Runs this simulator; returns the flows, too, in the order in which they begin.
fn run_ours(
    messages: &Messages,
    seed: u64,
) -> Result<(Side, Vec<ReceivedMessage>), Box<dyn Error>> {
    let start = on_the_cpu();
    let outcome = messages.simulate(&messages.setting[0], seed)?;
    let seconds = on_the_cpu().saturating_sub(start).as_secs_f64();
    if outcome.begun != outcome.ended {
        return Err(format!("{} of {} flows ended", outcome.ended, outcome.begun).into());
    }
    let mut flows: Vec<ReceivedMessage> = outcome.messages().collect();
    flows.sort_by_key(|it| (it.begun, it.from, it.to));
    let side = Side {
        took: flows.iter().map(|it| it.took.0).collect(),
        sizes: flows.iter().map(|it| it.size.0).collect(),
        events: outcome.totals.packets,
        dropped: outcome.totals.dropped,
        marked: outcome.totals.marked,
        late: 0,
        seconds,
    };
    Ok((side, flows))
}

/// Runs ns-3 with the same flows.
fn run_theirs(
    case: &Case,
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
    let mark_at = if case.marks { MARK_AT } else { 0 };
    let output = Command::new(star)
        .arg(format!("--flows={}", list.display()))
        .arg(format!("--took={}", took.display()))
        .arg(format!("--hosts={HOSTS}"))
        .args(["--rate=1Gbps".to_owned(), format!("--delay={DELAY}")])
        .arg(format!("--buffer={BUFFER}"))
        .arg(format!("--mark-at={mark_at}"))
        .arg(format!("--sack={}", case.sack))
        .arg(format!("--initial-window={INITIAL_WINDOW}"))
        .arg(format!("--receive-window={RECEIVE_WINDOW}"))
        .arg(format!("--least-timeout={LEAST_TIMEOUT}"))
        .arg(format!("--delayed-ack={DELAYED_ACK}"))
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
        return Err(format!("{} of {} flows of ns-3 ended", value("ended")?, flows.len()).into());
    }
    let took = fs::read_to_string(took)?;
    let took: Result<Vec<u64>, _> = took.lines().map(str::parse).collect();
    Ok(Side {
        took: took?,
        sizes: flows.iter().map(|it| it.size.0).collect(),
        events: value("events")? as u64,
        dropped: value("dropped")? as u64,
        marked: value("marked")? as u64,
        late: value("late")? as u64,
        seconds: value("seconds")?,
    })
}

fn tell(case: &Case, ours: &Side, theirs: &Side) {
    println!("\n{}: {} flows", case.name, ours.took.len());
    let line = |name: &str, ours: f64, theirs: f64| {
        println!(
            "{name:<28} {ours:>12.3} {theirs:>12.3} {:>8.3}",
            ours / theirs
        );
    };
    println!("{:<28} {:>12} {:>12} {:>8}", "", "ours", "ns-3", "ratio");
    line(
        "M events",
        ours.events as f64 / 1e6,
        theirs.events as f64 / 1e6,
    );
    line("frames lost", ours.dropped as f64, theirs.dropped as f64);
    line("frames marked", ours.marked as f64, theirs.marked as f64);
    line("connections late", ours.late as f64, theirs.late as f64);
    line("seconds of a CPU", ours.seconds, theirs.seconds);
    line(
        "M events a second",
        ours.speed() / 1e6,
        theirs.speed() / 1e6,
    );
    for (name, most) in [("all", u64::MAX), ("up to 100 KB", 100_000)] {
        for (percentile, part) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
            let (ours, theirs) = (ours.percentile(part, most), theirs.percentile(part, most));
            line(&format!("{name}, {percentile}, ms"), ours, theirs);
        }
    }
}

/// Returns the CPU time of this thread.
fn on_the_cpu() -> Duration {
    let told = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = told.split_whitespace().next();
    Duration::from_nanos(nanos.and_then(|it| it.parse().ok()).unwrap_or_default())
}
