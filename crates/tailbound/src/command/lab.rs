//! `tailbound lab`.

use super::experiment::{Lines, List, Report, show};
use super::output::{self, Output};
use crate::exit::{Exit, Failure};
use std::path::{Path, PathBuf};
use tailbound_experiment::{Experiment, Loaded, Trace};
use tailbound_lab::comparison::{self, Comparison, Limiter};
use tailbound_lab::vm::{self, GuestCommand};
use tailbound_lab::{LabError, LabExperiment, Options};
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
    /// Compare vhost-user NICs with TAPs and a Linux bridge
    Cards(Cards),
    /// Compare rate limiters of guests on real packets, the kernel's included
    Shaped(Shaped),
    /// List the experiments that come with tailbound
    List(List),
    /// Print the TOML file of an experiment, as a template
    Show {
        /// The name of the experiment
        name: String,
    },
    /// Remove leftovers of crashed runs
    Clean(Clean),
    /// Do a task inside a guest
    #[command(hide = true)]
    Guest {
        /// The file that describes it
        task: PathBuf,
    },
    /// Parts of a guest that is a virtual machine
    #[command(hide = true, subcommand)]
    Machine(Machine),
}

#[derive(Debug, clap::Subcommand)]
enum Machine {
    /// As its first process: boot it
    Boot,
    /// As its first process: show that it runs
    Prove,
    /// As its second process: do what is asked for
    Serve,
    /// Outside: proxy a task into the guest
    Do {
        /// The machine's channel
        socket: PathBuf,
        /// The file that describes a task
        #[arg(long)]
        task: Option<PathBuf>,
        /// A program, with its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<String>,
    },
}

/// Arguments of `tailbound lab run`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 all checks passed; 1 a check failed; 2 this computer was too \
    busy to judge, or the experiment could not run."
)]
struct Run {
    /// The name of an experiment (see `tailbound lab list`) or a TOML file
    experiment: String,
    /// The rate of every link, such as 1Gbit/s [default: the experiment's]
    #[arg(long, value_name = "RATE")]
    link_rate: Option<Rate>,
    /// The seed of all random arrivals
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The number of runs of each variant, in turn; figures are medians
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// The duration of each variant's measurement, such as 15s [default: the experiment's]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Nanos>,
    /// Run these variants only
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    variants: Option<Vec<String>>,
    /// The kernel image for VM guests [default: the newest in /boot]
    #[arg(long, value_name = "FILE")]
    guest_kernel: Option<PathBuf>,
    /// Keep configurations and logs of the run, and print their directory
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    report: Report,
}

/// Arguments of `tailbound lab forward`.
#[derive(Debug, clap::Args)]
struct Forward {
    /// The duration of each load's measurement
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration)]
    duration: Nanos,
    /// The number of measurements of each, in turn; figures are medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    #[command(flatten)]
    report: Report,
}

/// Arguments of `tailbound lab cards`.
#[derive(Debug, clap::Args)]
struct Cards {
    /// The duration of the measurement of each frame size
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    duration: Nanos,
    /// The number of measurements of each, in turn; figures are medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    #[command(flatten)]
    report: Report,
}

/// Arguments of `tailbound lab shaped`.
#[derive(Debug, clap::Args)]
struct Shaped {
    /// The guest's traffic: RTP streams, pages of nginx, or bulk TCP and UDP
    #[arg(value_parser = ["rtp", "http", "rate"])]
    load: String,
    /// The duration of each load's measurement
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    duration: Nanos,
    /// Measure only these limiters
    #[arg(long, value_name = "LIMITER,...", value_delimiter = ',')]
    only: Vec<Limiter>,
    /// Send this video instead of ffmpeg's test source: lines of milliseconds, bytes, and 1 for
    /// a key frame, as scripts/trace writes them
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The number of measurements of each limiter, in turn; figures are medians
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    #[command(flatten)]
    report: Report,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match self.action {
            Action::Run(run) => run.run(),
            Action::Forward(forward) => forward.run(),
            Action::Cards(cards) => cards.run(),
            Action::Shaped(shaped) => shaped.run(),
            Action::List(list) => list.run::<LabExperiment>(),
            Action::Show { name } => show::<LabExperiment>(&name),
            Action::Clean(clean) => clean.run(),
            Action::Guest { task } => {
                tailbound_lab::guest::run(&task)?;
                Ok(Exit::Holds)
            }
            Action::Machine(machine) => machine.run(),
        }
    }
}

impl Machine {
    fn run(self) -> Result<Exit, Failure> {
        let done = match self {
            Self::Boot => vm::boot(),
            Self::Prove => vm::prove(),
            Self::Serve => vm::serve(),
            Self::Do {
                socket,
                task,
                program,
            } => {
                let guest_command = task.map_or(GuestCommand::Program(program), GuestCommand::Task);
                let ended = vm::relay(&socket, guest_command).map_err(machine)?;
                return Ok(Exit::holds(ended == Some(0)));
            }
        };
        done.map_err(machine)?;
        Ok(Exit::Holds)
    }
}

fn machine(source: std::io::Error) -> Failure {
    let what = "the machine".into();
    Failure::new(LabError::Io { what, source })
}

/// Returns the failure of a run; a signal that ended it determines the exit code.
fn failed(error: LabError) -> Failure {
    match error {
        LabError::Interrupted { signal } => Failure::with(Exit::Signal(signal as u8), error),
        error => Failure::new(error),
    }
}

impl Run {
    fn run(self) -> Result<Exit, Failure> {
        let source = LabExperiment::CATALOGUE.source(&self.experiment)?;
        let loaded = Loaded::parse_changed(&source, |experiment: &mut LabExperiment| {
            experiment.link_rate = self.link_rate.unwrap_or(experiment.link_rate);
            experiment.duration = self.duration.unwrap_or(experiment.duration);
        })?;
        let options = Options {
            variants: self.variants,
            repeat: self.repeat,
            guest_kernel: self.guest_kernel,
            keep: self.keep,
        };
        run(&loaded, self.seed, &options, &self.report)
    }
}

impl Forward {
    fn run(self) -> Result<Exit, Failure> {
        let options = comparison::Options {
            duration: self.duration,
            repeat: self.repeat,
            only: Vec::new(),
            trace: Trace::test_source(),
        };
        compare("forward", &options, &self.report)
    }
}

impl Cards {
    fn run(self) -> Result<Exit, Failure> {
        let options = comparison::Options {
            duration: self.duration,
            repeat: self.repeat,
            only: Vec::new(),
            trace: Trace::test_source(),
        };
        compare("cards", &options, &self.report)
    }
}

impl Shaped {
    fn run(self) -> Result<Exit, Failure> {
        let trace = match &self.trace {
            None => Trace::test_source(),
            Some(path) => read_trace(path)?,
        };
        let options = comparison::Options {
            duration: self.duration,
            repeat: self.repeat,
            only: self.only.into_iter().map(Limiter::name).collect(),
            trace,
        };
        compare(&format!("shaped/{}", self.load), &options, &self.report)
    }
}

/// Runs a comparison that comes with the program.
fn compare(name: &str, options: &comparison::Options, report: &Report) -> Result<Exit, Failure> {
    let source = Comparison::CATALOGUE.source(name)?;
    run(&Loaded::<Comparison>::parse(&source)?, 0, options, report)
}

fn read_trace(path: &Path) -> Result<Trace, Failure> {
    let text = std::fs::read_to_string(path).map_err(|source| LabError::Io {
        what: format!("reading {}", path.display()),
        source,
    })?;
    Trace::parse(&text).map_err(|wrong| {
        Failure::new(LabError::Trace {
            path: path.to_owned(),
            wrong,
        })
    })
}

/// Runs an experiment and writes its report.
fn run<E: Experiment<Error = LabError>>(
    loaded: &Loaded<E>,
    seed: u64,
    options: &E::Options,
    report: &Report,
) -> Result<Exit, Failure> {
    let mut lines = Lines::new();
    let name = loaded.name();
    let results = loaded.run(seed, options, &mut |text| {
        lines.show(&format!("lab {name}: {text}"));
    });
    drop(lines);
    report.finish(&results.map_err(failed)?)
}

/// Parses the duration of a measurement, within the limits of an experiment's file.
fn duration(text: &str) -> Result<Nanos, String> {
    let time: Nanos = text.parse().map_err(|error| format!("{error}"))?;
    if (Nanos::from_millis(100)..=Nanos::from_secs(3600)).contains(&time) {
        Ok(time)
    } else {
        Err("choose 100ms to 3600s".to_owned())
    }
}

/// Arguments of `tailbound lab clean`.
#[derive(Debug, clap::Args)]
struct Clean {
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

impl Clean {
    fn run(self) -> Result<Exit, Failure> {
        let cleaned = tailbound_lab::clean().map_err(|source| LabError::Io {
            what: "cleaning up".into(),
            source,
        })?;
        let processes = cleaned.processes.iter();
        let directories = cleaned.directories.iter().map(|it| it.display());
        if self.output == Output::Json {
            output::print(&output::json(
                "lab-clean",
                1,
                &serde_json::json!({
                    "killed": processes.map(ToString::to_string).collect::<Vec<_>>(),
                    "removed": directories.map(|it| it.to_string()).collect::<Vec<_>>(),
                }),
            ));
            return Ok(Exit::Holds);
        }
        for pid in processes {
            output::print(&format!("killed process {pid}\n"));
        }
        for directory in directories {
            output::print(&format!("removed {directory}\n"));
        }
        if cleaned.processes.is_empty() && cleaned.directories.is_empty() {
            output::print("nothing was left behind\n");
        }
        Ok(Exit::Holds)
    }
}
