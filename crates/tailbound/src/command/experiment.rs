//! What experiments of every kind share: `list`, `show`, and what a run prints.

use super::output::{self, Output};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use tailbound_experiment::{Experiment, Loaded};
use tailbound_report::{Made, Results, one_line};

/// Where reports go, and what is printed.
#[derive(Debug, clap::Args)]
pub(super) struct Report {
    /// Where the reports go
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// What to print; of several experiments as JSON, one document after the other
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// What `--output json` prints: the file, and what every document says.
#[derive(Debug, Serialize)]
struct Printed<'r> {
    kind: &'static str,
    version: &'static str,
    #[serde(flatten)]
    results: &'r Results,
}

impl Report {
    /// Writes a report and prints the verdict. Returns how the command ends.
    pub(super) fn finish(&self, results: &Results) -> Result<Exit, Failure> {
        let dated = Results {
            made: Some(Made::now(super::commit())),
            ..results.clone()
        };
        let written = dated.write(&self.out)?;
        output::print(&match self.output {
            Output::Json => output::indented(&Printed {
                kind: "experiment",
                version: env!("CARGO_PKG_VERSION"),
                results: &dated,
            }),
            Output::Text => {
                let sentence = results.sentence.as_ref();
                let sentence = sentence.map(|it| format!("\n{}\n", one_line(it)));
                format!(
                    "{}report  {}\ndata    {}\n{}",
                    results.summary(output::paint().0),
                    written.html.display(),
                    written.json.display(),
                    sentence.unwrap_or_default()
                )
            }
        });
        Ok(results.verdict.into())
    }

    #[cfg(feature = "sim")]
    /// What stands between the reports of two experiments.
    pub(super) fn separate(&self) {
        if self.output == Output::Text {
            output::print("\n");
        }
    }
}

/// Arguments of `list`.
#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// What to print
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// What `list --output json` prints.
#[derive(Debug, Serialize)]
struct Listed {
    experiments: Vec<Named>,
}

#[derive(Debug, Serialize)]
struct Named {
    name: String,
    title: String,
    source: String,
}

impl List {
    /// Lists the experiments that come with the program.
    pub(super) fn run<E: Experiment>(&self) -> Result<Exit, Failure> {
        let mut experiments = Vec::new();
        for name in E::CATALOGUE.names() {
            let loaded = Loaded::<E>::parse(&E::CATALOGUE.source(name)?)?;
            experiments.push(Named {
                name: name.to_owned(),
                title: loaded.title().to_owned(),
                source: loaded.source().to_owned(),
            });
        }
        output::print(&match self.output {
            Output::Json => output::json("experiments", 1, &Listed { experiments }),
            Output::Text => experiments.iter().fold(String::new(), |mut text, it| {
                // Writing to a String does not fail.
                let _ = writeln!(text, "{:<24}{} ({})", it.name, it.title, it.source);
                text
            }),
        });
        Ok(Exit::Holds)
    }
}

/// Prints the text of an experiment.
pub(super) fn show<E: Experiment>(name: &str) -> Result<Exit, Failure> {
    output::print(&E::CATALOGUE.source(name)?.text);
    Ok(Exit::Holds)
}

/// A line on a terminal that says how far a run is; silence elsewhere.
pub(super) struct Line {
    shown: bool,
}

impl Line {
    pub(super) fn new() -> Self {
        Self {
            shown: output::shows_progress(),
        }
    }

    /// Puts `text` in place of what the line said.
    pub(super) fn show(&self, text: &str) {
        output::progress(self.shown, text);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.show("");
    }
}
