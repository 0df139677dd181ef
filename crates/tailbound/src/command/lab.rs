//! `tailbound lab`.

use super::output::Output;
use crate::exit::{Exit, Failure};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use tailbound_lab::experiment::{EMBEDDED, Experiment, source_text};
use tailbound_lab::{LabError, Options};
use tailbound_report::Results;
use tailbound_units::{Nanos, Rate};

/// Arguments of `tailbound lab`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Run an experiment and write its report
    Run(Run),
    /// Compare forwarding with a Linux bridge and Open vSwitch
    Forward(Forward),
    /// List the experiments that come with tailbound
    List,
    /// Print an experiment's TOML, to start another one from
    Show {
        /// Its name
        name: String,
    },
    /// Remove what crashed runs left behind
    Clean,
    /// Do a task inside a guest
    #[command(hide = true)]
    Guest {
        /// The file that describes it
        task: PathBuf,
    },
}

/// Arguments of `tailbound lab run`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 all checks hold; 1 one does not; 2 the machine was too \
    noisy to judge, or the experiment could not run."
)]
struct Run {
    /// The name of an experiment (see `tailbound lab list`) or a TOML file
    experiment: String,
    /// The rate of every link, such as 1Gbit/s [default: the experiment's]
    #[arg(long, value_name = "RATE")]
    link_rate: Option<Rate>,
    /// All random arrivals follow from this number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Run the variants this often, in turn; figures are medians then
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// How long each variant is measured, such as 15s [default: the experiment's]
    #[arg(long, value_name = "TIME")]
    duration: Option<Nanos>,
    /// Run these variants only
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    variants: Option<Vec<String>>,
    /// Where the report goes
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// What guests that are virtual machines boot [default: the newest in /boot]
    #[arg(long, value_name = "FILE")]
    guest_kernel: Option<PathBuf>,
    /// Keep configurations and logs of the run, and say where
    #[arg(long)]
    keep: bool,
    /// What to print
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Arguments of `tailbound lab forward`.
#[derive(Debug, clap::Args)]
struct Forward {
    /// How long each load is measured
    #[arg(long, value_name = "TIME", default_value = "3s")]
    duration: Nanos,
    /// Measure each way this often, in turn; figures are medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Where the report goes
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// What to print
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let done = match self.action {
            Action::Run(run) => run.run(),
            Action::Forward(forward) => forward.run(),
            Action::List => list(),
            Action::Show { name } => show(&name),
            Action::Clean => clean(),
            Action::Guest { task } => {
                tailbound_lab::guest::run(&task)?;
                Ok(Exit::Holds)
            }
        };
        done.map_err(|error| match error {
            LabError::Interrupted { signal } => Failure::with(Exit::Signal(signal as u8), error),
            error => Failure::new(error),
        })
    }
}

impl Run {
    fn run(self) -> Result<Exit, LabError> {
        let results = tailbound_lab::run(&Options {
            experiment: self.experiment,
            link_rate: self.link_rate,
            duration: self.duration,
            variants: self.variants,
            seed: self.seed,
            repeat: self.repeat,
            guest_kernel: self.guest_kernel,
            keep: self.keep,
        })?;
        finish(&results, &self.out, self.output)
    }
}

impl Forward {
    fn run(self) -> Result<Exit, LabError> {
        let results = tailbound_lab::forward::run(&tailbound_lab::forward::Options {
            duration: self.duration,
            repeat: self.repeat,
        })?;
        finish(&results, &self.out, self.output)
    }
}

/// Writes the report and prints the verdict.
fn finish(results: &Results, out: &Path, output: Output) -> Result<Exit, LabError> {
    let written = results.write(out)?;
    match output {
        Output::Json => print!("{}", results.to_json()),
        Output::Text => {
            print!("{}", results.summary(std::io::stdout().is_terminal()));
            println!("report  {}", written.html.display());
            println!("data    {}", written.json.display());
        }
    }
    Ok(results.verdict.into())
}

fn list() -> Result<Exit, LabError> {
    for (name, text) in EMBEDDED {
        let experiment = Experiment::parse(text, name)?;
        println!("{name:<14}{} ({})", experiment.title, experiment.source);
    }
    Ok(Exit::Holds)
}

fn show(name: &str) -> Result<Exit, LabError> {
    let (text, _) = source_text(name)?;
    print!("{text}");
    Ok(Exit::Holds)
}

fn clean() -> Result<Exit, LabError> {
    let cleaned = tailbound_lab::clean().map_err(|source| LabError::Io {
        what: "cleaning up".into(),
        source,
    })?;
    for pid in &cleaned.processes {
        println!("killed process {pid}");
    }
    for directory in &cleaned.directories {
        println!("removed {}", directory.display());
    }
    if cleaned.processes.is_empty() && cleaned.directories.is_empty() {
        println!("nothing was left behind");
    }
    Ok(Exit::Holds)
}
