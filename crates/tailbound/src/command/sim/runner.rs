//! Common commands of every kind of simulated experiments: `list`, `show` and `run`.

use crate::command::experiment::{Line, List, Report, show};
use crate::exit::{Exit, Failure};
use std::marker::PhantomData;
use std::thread::available_parallelism;
use tailbound_experiment::{Experiment, ExperimentError, Loaded};
use tailbound_sim::Threads;

/// A kind of experiments, with the arguments of `run` that only some kinds have.
pub(super) trait Kind: clap::Args {
    /// Type of the experiments.
    type Experiment: Experiment<Error = ExperimentError>;
    /// Inputs of the results, for the help of `run`.
    const DEPENDS: &'static str;

    /// Returns the options of a run.
    fn options(&self) -> <Self::Experiment as Experiment>::Options;
}

/// Experiments whose work can be divided among threads.
#[derive(Debug, clap::Args)]
pub(super) struct Parallel<E: Send + Sync + 'static> {
    /// The number of threads [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    #[arg(skip)]
    experiments: PhantomData<E>,
}

impl<E> Kind for Parallel<E>
where
    E: Experiment<Options = Threads, Error = ExperimentError> + Send + Sync + 'static,
{
    type Experiment = E;

    const DEPENDS: &'static str =
        "Time is virtual: results depend on the experiment and the seed alone.";

    fn options(&self) -> Threads {
        let all = || available_parallelism().map_or(1, usize::from);
        Threads(self.threads.map_or_else(all, usize::from))
    }
}

/// Arguments of a kind.
#[derive(Debug, clap::Args)]
pub(super) struct Args<K: Kind> {
    #[command(subcommand)]
    action: Action<K>,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Action<K: Kind> {
    /// List the experiments that come with tailbound
    List(List),
    /// Print an experiment's TOML, to start another one from
    Show {
        /// The name of the experiment
        name: String,
    },
    /// Run experiments and write their reports
    Run(Run<K>),
}

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
#[command(after_help = after_help::<K>())]
pub(super) struct Run<K: Kind> {
    /// Names of experiments (see `list`), TOML files, or `all`
    #[arg(required = true, value_name = "EXPERIMENT")]
    experiments: Vec<String>,
    /// The seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    kind: K,
    #[command(flatten)]
    report: Report,
}

fn after_help<K: Kind>() -> String {
    format!(
        "{} Exit code: 0 all checks hold; 1 one does not; 2 an experiment could not run.",
        K::DEPENDS
    )
}

impl<K: Kind> Args<K> {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        self.action.run()
    }
}

impl<K: Kind> Action<K> {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        match self {
            Self::List(list) => list.run::<K::Experiment>(),
            Self::Show { name } => show::<K::Experiment>(&name),
            Self::Run(run) => run.run(),
        }
    }
}

impl<K: Kind> Run<K> {
    fn run(self) -> Result<Exit, Failure> {
        let catalogue = K::Experiment::CATALOGUE;
        let mut names: Vec<&str> = Vec::new();
        for name in &self.experiments {
            match name.as_str() {
                "all" => names.extend(catalogue.names().collect::<Vec<&str>>()),
                name => names.push(name),
            }
        }
        // All experiments are read before the first runs: an error costs no run.
        let loaded = names
            .iter()
            .map(|name| Loaded::parse(&catalogue.source(name)?));
        let loaded: Vec<Loaded<K::Experiment>> = loaded.collect::<Result<_, _>>()?;
        let mut exit = Exit::Holds;
        for (name, experiment) in names.iter().zip(&loaded) {
            let line = Line::new();
            let mut progress = |done: &str| line.show(&format!("{name}: {done}"));
            let results = experiment.run(self.seed, &self.kind.options(), &mut progress)?;
            drop(line);
            exit = exit.max(self.report.finish(&results)?);
            if names.len() > 1 {
                self.report.separate();
            }
        }
        Ok(exit)
    }
}
