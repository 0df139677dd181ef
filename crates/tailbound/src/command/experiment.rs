//! What experiments of every kind share: `list`, `show`, and what a run prints.

use super::output::{self, Output};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
#[cfg(feature = "lab")]
use std::time::{Duration, Instant};
use tailbound_experiment::{Experiment, Loaded};
use tailbound_report::{Made, Results};

/// Where reports go, and what is printed.
#[derive(Debug, clap::Args)]
pub(super) struct Report {
    /// Where the reports go
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// What to print; of several experiments as JSON, one document after the other
    #[arg(long, value_enum, default_value_t)]
    output: Form,
}

/// The form of a result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// The result in a few lines
    #[default]
    Text,
    /// Every figure, as `tailbound report show` prints them
    Table,
    /// One JSON document with a schema version
    Json,
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
            Form::Json => output::indented(&Printed {
                kind: "experiment",
                version: env!("CARGO_PKG_VERSION"),
                results: &dated,
            }),
            Form::Text => results.brief(output::paint(), output::bars(), &written.html),
            Form::Table => format!(
                "{}report  {}\ndata    {}\n",
                results.summary(output::paint().0),
                written.html.display(),
                written.json.display(),
            ),
        });
        Ok(results.verdict.into())
    }

    #[cfg(feature = "sim")]
    /// What stands between the reports of two experiments.
    pub(super) fn separate(&self) {
        if self.output != Form::Json {
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

/// The time between two lines of progress without a terminal.
#[cfg(feature = "lab")]
const EACH: Duration = Duration::from_secs(10);

/// The progress of a run on a terminal: one line that changes; silence elsewhere.
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

/// The progress of a run of the lab: a [`Line`] on a terminal, elsewhere a line each ten seconds on
/// standard error.
#[cfg(feature = "lab")]
pub(super) struct Lines {
    line: Line,
    /// The time of the last line, at first of the start of the run.
    printed: Instant,
}

#[cfg(feature = "lab")]
impl Lines {
    pub(super) fn new() -> Self {
        Self {
            line: Line::new(),
            printed: Instant::now(),
        }
    }

    /// Shows how far the run is.
    pub(super) fn show(&mut self, text: &str) {
        if self.line.shown {
            self.line.show(text);
        } else if is_due(&mut self.printed, Instant::now()) {
            output::print_progress(text);
        }
    }
}

/// Returns true if ten seconds passed since the last line, whose time then becomes `now`.
#[cfg(feature = "lab")]
fn is_due(printed: &mut Instant, now: Instant) -> bool {
    let due = now.duration_since(*printed) >= EACH;
    if due {
        *printed = now;
    }
    due
}

#[cfg(all(test, feature = "lab"))]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_each_ten_seconds() {
        let start = Instant::now();
        let mut printed = start;
        let due = [0, 9, 10, 11, 19, 20, 45, 54, 55];
        let due = due.map(|second| is_due(&mut printed, start + Duration::from_secs(second)));
        assert_eq!(
            due,
            [false, false, true, false, false, true, true, false, true]
        );
    }
}
