//! `tailbound sim placement`.

use crate::command::output::{self, Output};
use std::fs;
use std::io::{IsTerminal as _, Write as _, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use tailbound_report::{Results, Verdict};
use tailbound_sim::placement::{EMBEDDED, Machine, Options, SimError, describe, run, source_text};
use tailbound_units::{Bytes, Nanos};

/// Arguments of `tailbound sim placement`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the experiments that come with tailbound
    List,
    /// Print an experiment's TOML, to start another one from
    Show {
        /// Its name
        name: String,
    },
    /// Run experiments and write their reports
    Run(Run),
}

/// Arguments of `tailbound sim placement run`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Who is admitted where depends on the experiment and the seed alone; how long \
    that takes, on the machine and on what else it does. \
    Exit code: 0 all checks hold; 1 one does not; 2 an experiment could not run."
)]
struct Run {
    /// Names of experiments (see `tailbound sim placement list`), TOML files, or `all`
    #[arg(required = true, value_name = "EXPERIMENT")]
    experiments: Vec<String>,
    /// Everything random follows from this number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where the reports go
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// What to print; of several experiments as JSON, one document after the other
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        let done = match self.action {
            Action::List => list(),
            Action::Show { name } => show(&name),
            Action::Run(run) => run.run(),
        };
        done.unwrap_or_else(|error| {
            eprintln!("tailbound sim: {error}");
            ExitCode::from(2)
        })
    }
}

fn list() -> Result<ExitCode, SimError> {
    for (name, text) in EMBEDDED {
        let (title, source) = describe(text, name)?;
        output::print(&format!("{name:<24}{title} ({source})\n"));
    }
    Ok(ExitCode::SUCCESS)
}

fn show(name: &str) -> Result<ExitCode, SimError> {
    let (text, _) = source_text(name)?;
    output::print(&text);
    Ok(ExitCode::SUCCESS)
}

impl Run {
    fn run(self) -> Result<ExitCode, SimError> {
        let mut names: Vec<&str> = Vec::new();
        for name in &self.experiments {
            match name.as_str() {
                "all" => names.extend(EMBEDDED.iter().map(|(name, _)| *name)),
                name => names.push(name),
            }
        }
        let mut failed = false;
        for name in &names {
            let results = self.one(name)?;
            failed |= results.verdict != Verdict::Pass;
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
        Ok(ExitCode::from(u8::from(failed)))
    }

    /// One experiment, with a line on a terminal that says how far it is.
    fn one(&self, name: &str) -> Result<Results, SimError> {
        let options = Options {
            experiment: name.to_owned(),
            seed: self.seed,
        };
        let terminal = stderr().is_terminal();
        // A terminal that went away is no reason to stop.
        let say = |text: &str| {
            if terminal {
                let _ = write!(stderr(), "\r\x1b[K{text}");
            }
        };
        let mut machine = ThisMachine(Instant::now());
        let results = run(&options, &mut machine, |done, all| {
            say(&format!("{name}: {done} of {all}"));
        });
        say("");
        results
    }
}

/// Its clock, and the memory of this process.
struct ThisMachine(Instant);

impl Machine for ThisMachine {
    fn now(&self) -> Nanos {
        self.0.elapsed().into()
    }

    fn forget_memory(&mut self) {
        // proc(5): 5 resets the peak resident set size. Without it the figure is
        // of all points so far, which is more and not less.
        let _ = fs::write("/proc/self/clear_refs", "5");
    }

    fn memory(&self) -> Option<Bytes> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(Bytes(kib * 1_024))
    }
}
