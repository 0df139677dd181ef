//! Experiments on a Linux kernel, for the emulated machine of `scripts/kernel-bench`.
//!
//! The machine executes one instruction a nanosecond, so that each time printed here is also a
//! number of instructions. `tailbound-kernel-bench EXPERIMENT` prints a figure a line: name, value,
//! unit. It changes the network of the machine that it runs on, so it belongs in one of its own.
//! [`why`] and [`adopt`] are no experiments: they try the program `tailbound`.

mod adopt;
mod analysis;
mod experiment;
mod figures;
mod load;
mod network;
mod why;

use experiment::Experiment;
use figures::Figures;
use std::process::ExitCode;

/// Result of a step that may fail for many reasons, each of which ends the experiment.
type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["adopt", "pod", rate, burst] => return end(adopt::pod::run(rate, burst)),
        ["adopt", topology] => return end(adopt::run(topology)),
        ["role", role @ ..] => return end(why::roles::run(role)),
        ["why", topology, cause] => {
            return end(why::run(topology, cause).and_then(|is_right| {
                let wrong = "the verdict is wrong".into();
                is_right.then_some(()).ok_or(wrong)
            }));
        }
        _ => {}
    }
    let mut names = arguments.iter();
    let experiment = match (names.next(), names.next()) {
        (Some(name), None) => Experiment::named(name),
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

fn end(outcome: Outcome<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tailbound-kernel-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
