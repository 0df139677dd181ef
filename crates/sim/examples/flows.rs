//! How long an experiment of flows takes, and what it finds, a line a point:
//! `cargo run --release -p tailbound-sim --example flows [NAME or FILE [SEED]]`.

use std::env;
use std::error::Error;
use std::time::Instant;
use tailbound_experiment::{Experiment, Loaded};
use tailbound_sim::Threads;
use tailbound_sim::flows::FlowsExperiment;

/// What is printed of each point.
const FIGURES: [&str; 10] = [
    "hosts",
    "requests",
    "occupancy",
    "refused",
    "A_refused",
    "B_refused",
    "utilization",
    "pod_utilization",
    "stretch",
    "stretch_p99",
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let name = arguments.next().unwrap_or("silo-large-scale".to_owned());
    let seed = arguments.next().map_or(Ok(1), |seed| seed.parse())?;
    let source = FlowsExperiment::CATALOGUE.source(&name)?;
    let loaded = Loaded::<FlowsExperiment>::parse(&source)?;
    let start = Instant::now();
    let mut progress = |done: &str| eprintln!("{:7.1?} {done}", start.elapsed());
    let results = loaded.run(seed, &Threads(1), &mut progress)?;
    println!(
        "{:<24}{}",
        "",
        FIGURES.map(|it| format!("{it:>16}")).concat()
    );
    for variant in &results.variants {
        let figure = |name: &str| variant.values.get(name).map_or(f64::NAN, |it| it.value);
        let figures = FIGURES.map(|name| format!("{:>16.3}", figure(name)));
        println!("{:<24}{}", variant.name, figures.concat());
    }
    for check in &results.checks {
        let got = check.got.unwrap_or(f64::NAN);
        println!(
            "{:<11}{}: {got:.4} (wanted {})",
            check.outcome(),
            check.name,
            check.want
        );
    }
    println!("took {:.1?}", start.elapsed());
    Ok(())
}
