//! Common commands of every kind of simulated experiments: `list`, `show` and `run`.

use crate::command::experiment::{Line, List, Report, show};
use crate::exit::{Exit, Failure};
use std::marker::PhantomData;
use std::thread::available_parallelism;
use tailbound_experiment::{Catalogue, Experiment, ExperimentError, Loaded, Progress, Source};
use tailbound_report::Results;
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

impl<E: Send + Sync> Parallel<E> {
    /// Returns the kind with this number of threads.
    pub(super) const fn of(threads: Share) -> Self {
        let threads = match threads {
            Share::AllCpus => None,
            Share::One => Some(1),
        };
        Self {
            threads,
            experiments: PhantomData,
        }
    }
}

/// Number of threads that share the work of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// One thread for each CPU.
    AllCpus,
    /// One thread.
    One,
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

/// A kind of experiments, as an object.
pub(super) trait AnyKind {
    /// Returns the experiments of the kind that come with the program.
    fn catalogue(&self) -> Catalogue;

    /// Reads an experiment.
    ///
    /// # Errors
    /// All errors of the experiment.
    fn read(self: Box<Self>, source: &Source) -> Result<Box<dyn AnyNamed>, ExperimentError>;
}

impl<K: Kind + 'static> AnyKind for K {
    fn catalogue(&self) -> Catalogue {
        K::Experiment::CATALOGUE
    }

    fn read(self: Box<Self>, source: &Source) -> Result<Box<dyn AnyNamed>, ExperimentError> {
        let loaded = Loaded::parse(source)?;
        Ok(Box::new(Named {
            loaded,
            kind: *self,
        }))
    }
}

/// An experiment of a kind, after reading.
struct Named<K: Kind> {
    loaded: Loaded<K::Experiment>,
    kind: K,
}

/// An experiment of any kind, after reading.
pub(in crate::command) trait AnyNamed {
    /// Returns the names of its checks.
    #[cfg(test)]
    fn checks(&self) -> Vec<&str>;

    /// Returns the content of files that the experiment names.
    fn inputs(&self) -> String;

    /// Runs the experiment.
    fn run(&self, seed: u64, progress: &mut Progress<'_>) -> Result<Results, ExperimentError>;
}

impl<K: Kind> AnyNamed for Named<K> {
    #[cfg(test)]
    fn checks(&self) -> Vec<&str> {
        self.loaded.checks().collect()
    }

    fn inputs(&self) -> String {
        self.loaded.experiment.inputs()
    }

    fn run(&self, seed: u64, progress: &mut Progress<'_>) -> Result<Results, ExperimentError> {
        self.loaded.run(seed, &self.kind.options(), progress)
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
