//! Compares the simulator's TCP with the kernel's: the same flows over the same star, in virtual
//! time and over TAPs. Prints the durations of flows. `make compare-kernel` runs this.
//!
//! `cargo run --release -p tailbound-lab --example star -- [RUNS [SECONDS]]`

use hdrhistogram::Histogram;
use std::error::Error;
use tailbound_experiment::{Loaded, Source};
use tailbound_lab::star::{Flow, Links, Star, StarResult};
use tailbound_report::{Paint, Table, empty_histogram};
use tailbound_sim::packets::{Messages, Outcome, PacketsExperiment};
use tailbound_units::{Bytes, Nanos, Rate};

const HOSTS: u8 = 6;
const MBIT: u64 = 100;
const DELAY_US: u64 = 500;
/// Mean length of each host's flows, and their mean interval.
const MEAN: &str = "60KB";
const EVERY: &str = "14ms";

/// Compared cases: names, and buffers of a switch port. The smallest timeout is Linux's.
const CASES: [(&str, Bytes); 2] = [
    ("without losses", Bytes(16_000_000)),
    ("with losses", Bytes(60 * 1_538)),
];

/// Upper limit of short flows in bytes. Their durations are also printed separately.
const SHORT: u64 = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let runs: usize = arguments.next().map_or(Ok(5), |it| it.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(10), |it| it.parse())?;
    let star = Star::build(HOSTS)?;
    for (name, buffer) in CASES {
        let messages = messages(buffer, seconds)?;
        let simulated = messages.simulate(&messages.setting[0], 1)?;
        let flows = flows(&simulated);
        if simulated.begun != simulated.ended {
            return Err(format!("{} flows did not end", simulated.begun - simulated.ended).into());
        }
        let links = Links {
            rate: Rate::from_mbit(MBIT),
            delay: Nanos::from_micros(DELAY_US),
            buffer,
        };
        let mut carried = Vec::new();
        for _ in 0..runs {
            carried.push(star.run(&links, &flows)?);
        }
        tell(name, &flows, &simulated, &carried);
    }
    Ok(())
}

/// Returns the messages of the simulated star. Settings that are left out are as in Linux.
fn messages(buffer: Bytes, seconds: u64) -> Result<Messages, Box<dyn Error>> {
    let source = Source {
        file: "star".to_owned(),
        text: format!(
            r#"
name = "star"
title = "The kernel's TCP"
source = "nowhere"
[messages]
duration = "{seconds}s"
stops = true
star = {{ hosts = {HOSTS}, link = {{ rate = "{MBIT}Mbit/s", delay = "{DELAY_US}us" }} }}
[messages.flows]
every = "{EVERY}"
sizes = {{ pareto = {{ shape = 1.2, mean = "{MEAN}", most = "2MB" }} }}
own_connections = true
[[messages.setting]]
name = "one"
switches = {{ buffer = "{buffer}" }}
transport = {{ congestion = "cubic" }}
"#
        ),
    };
    let loaded = Loaded::<PacketsExperiment>::parse(&source)?;
    Ok(loaded.experiment.messages.ok_or("there are messages")?)
}

/// Returns the flows of a simulation, in the order of their beginnings.
fn flows(simulated: &Outcome) -> Vec<Flow> {
    let mut told: Vec<_> = simulated.messages().collect();
    told.sort_by_key(|it| (it.begun, it.from, it.to));
    let flow = |it: &tailbound_sim::packets::ReceivedMessage| Flow {
        begun: it.begun,
        from: it.from as usize,
        to: it.to as usize,
        size: it.size,
    };
    told.iter().map(flow).collect()
}

/// Returns the durations of flows of up to `most` bytes, in nanoseconds.
fn simulated_times(simulated: &Outcome, most: u64) -> Histogram<u64> {
    let mut times = empty_histogram();
    for it in simulated.messages().filter(|it| it.size.0 <= most) {
        times.saturating_record(it.took.0);
    }
    times
}

fn carried_times(flows: &[Flow], carried: &StarResult, most: u64) -> Histogram<u64> {
    let mut times = empty_histogram();
    let each = flows.iter().zip(&carried.took);
    for (_, took) in each.filter(|it| it.0.size.0 <= most) {
        times.saturating_record(took.map_or(u64::MAX, |it| it.0));
    }
    times
}

fn tell(name: &str, flows: &[Flow], simulated: &Outcome, carried: &[StarResult]) {
    println!("\n{name}: {} flows", flows.len());
    for (class, most) in [("all", u64::MAX), ("up to 100 KB", SHORT)] {
        let simulated = simulated_times(simulated, most);
        let runs: Vec<_> = carried
            .iter()
            .map(|it| carried_times(flows, it, most))
            .collect();
        let mut table = Table::new(&[class, "simulated", "kernel", "ratio", "each run"], &[4]);
        for (percentile, part) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
            let value = |times: &Histogram<u64>| times.value_at_quantile(part) as f64 / 1e6;
            let each: Vec<f64> = runs.iter().map(value).collect();
            let (ours, theirs) = (value(&simulated), median(&each));
            let each: Vec<_> = each.iter().map(|it| format!("{it:.2}")).collect();
            table.row([
                percentile.to_owned(),
                format!("{ours:.3} ms"),
                format!("{theirs:.3} ms"),
                format!("{:.3}", ours / theirs),
                each.join(" "),
            ]);
        }
        print!("{}", table.render(Paint(false)));
    }
    let lost: Vec<f64> = carried.iter().map(|it| it.lost as f64).collect();
    let missing = carried.iter().flat_map(|it| &it.took);
    let late: Vec<f64> = carried
        .iter()
        .map(|it| it.late.value_at_quantile(0.99) as f64 / 1e3)
        .collect();
    println!(
        "frames lost: {} simulated, {} kernel; flows missing: {}; frames late, p99: {:.0} us",
        simulated.totals.dropped,
        median(&lost),
        missing.filter(|it| it.is_none()).count(),
        median(&late)
    );
}

/// Returns the median; of an even number of values, the larger of the middle two.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
