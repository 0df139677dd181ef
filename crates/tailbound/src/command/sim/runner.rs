//! What every kind of simulated experiments offers: `list`, `show` and `run`.

use crate::command::output::{self, Output};
use crate::exit::{Exit, Failure};
use std::io::{IsTerminal as _, Write as _, stderr, stdout};
use std::path::PathBuf;
use std::thread::available_parallelism;
use tailbound_report::Results;
use tailbound_sim::{ExperimentError, Options, SimError};

/// A kind of experiments, with the arguments of `run` that not all kinds have.
pub(super) trait Kind: clap::Args {
    /// Those that come with the program, name and text.
    const EMBEDDED: &'static [(&'static str, &'static str)];
    /// What results depend on, for the help of `run`.
    const DEPENDS: &'static str;

    /// The title and the source of a text, whose file is named in messages.
    fn describe(text: &str, file: &str) -> Result<(String, String), ExperimentError>;

    /// The text of an experiment and what to call it.
    fn source_text(name: &str) -> Result<(String, String), ExperimentError>;

    /// Runs one; `progress` hears how much of how much is done.
    fn run(
        &self,
        experiment: &str,
        seed: u64,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Results, SimError>;
}

/// The argument of kinds whose work threads may share.
#[derive(Debug, clap::Args)]
pub(super) struct Threads {
    /// How many threads share the work [default: one a CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
}

impl Threads {
    pub(super) fn options(&self, experiment: &str, seed: u64) -> Options {
        let threads = self.threads.map_or_else(
            || available_parallelism().map_or(1, usize::from),
            usize::from,
        );
        Options {
            experiment: experiment.to_owned(),
            seed,
            threads,
        }
    }
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Action<K: Kind> {
    /// List the experiments that come with tailbound
    List,
    /// Print an experiment's TOML, to start another one from
    Show {
        /// Its name
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
    /// Everything random follows from this number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    kind: K,
    /// Where the reports go
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// What to print; of several experiments as JSON, one document after the other
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

fn after_help<K: Kind>() -> String {
    format!(
        "{} Exit code: 0 all checks hold; 1 one does not; 2 an experiment could not run.",
        K::DEPENDS
    )
}

impl<K: Kind> Action<K> {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        match self {
            Self::List => list::<K>(),
            Self::Show { name } => show::<K>(&name),
            Self::Run(run) => run.run(),
        }
    }
}

fn list<K: Kind>() -> Result<Exit, Failure> {
    for (name, text) in K::EMBEDDED {
        let (title, source) = K::describe(text, name)?;
        output::print(&format!("{name:<24}{title} ({source})\n"));
    }
    Ok(Exit::Holds)
}

fn show<K: Kind>(name: &str) -> Result<Exit, Failure> {
    let (text, _) = K::source_text(name)?;
    output::print(&text);
    Ok(Exit::Holds)
}

impl<K: Kind> Run<K> {
    fn run(self) -> Result<Exit, Failure> {
        let mut names: Vec<&str> = Vec::new();
        for name in &self.experiments {
            match name.as_str() {
                "all" => names.extend(K::EMBEDDED.iter().map(|(name, _)| *name)),
                name => names.push(name),
            }
        }
        let mut exit = Exit::Holds;
        for name in &names {
            let results = self.one(name)?;
            exit = exit.max(results.verdict.into());
            let written = results.write(&self.out)?;
            match self.output {
                Output::Json => output::print(&results.to_json()),
                Output::Text => {
                    output::print(&results.summary(stdout().is_terminal()));
                    let (html, json) = (written.html.display(), written.json.display());
                    output::print(&format!("report  {html}\ndata    {json}\n"));
                    if names.len() > 1 {
                        output::print("\n");
                    }
                }
            }
        }
        Ok(exit)
    }

    /// One experiment, with a line on a terminal that says how far it is.
    fn one(&self, name: &str) -> Result<Results, SimError> {
        let terminal = stderr().is_terminal();
        // A terminal that went away is no reason to stop.
        let say = |text: &str| {
            if terminal {
                let _ = write!(stderr(), "\r\x1b[K{text}");
            }
        };
        let results = self.kind.run(name, self.seed, &mut |done, all| {
            say(&format!("{name}: {done} of {all}"));
        });
        say("");
        results
    }
}
