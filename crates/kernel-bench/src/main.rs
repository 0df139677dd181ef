//! Experiments on a Linux kernel, for the emulated machine of `scripts/kernel-bench`.
//!
//! The machine executes one instruction a nanosecond, so that each time printed here is also a
//! number of instructions. `tailbound-kernel-bench EXPERIMENT` prints a figure a line: name, value,
//! unit. It changes the network of the machine that it runs on, so it belongs in one of its own.

mod analysis;
mod experiment;
mod figures;
mod load;
mod network;

use experiment::Experiment;
use figures::Figures;
use std::process::ExitCode;

/// Result of a step that may fail for many reasons, each of which ends the experiment.
type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let mut names = std::env::args().skip(1);
    let experiment = match (names.next(), names.next()) {
        (Some(name), None) => Experiment::named(&name),
        _ => None,
    };
    let Some(experiment) = experiment else {
        let known: Vec<_> = Experiment::ALL.iter().map(|it| it.name()).collect();
        eprintln!(
            "usage: tailbound-kernel-bench EXPERIMENT, which is {}",
            known.join(", ")
        );
        return ExitCode::from(64);
    };
    let mut figures = Figures::default();
    match experiment.run(&mut figures) {
        Ok(()) => {
            print!("{figures}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}: {error}", experiment.name());
            ExitCode::FAILURE
        }
    }
}
