//! Common parts of experiments of every kind: `list`, `show`, and the output of a run.

use super::output::{self, Output};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
#[cfg(feature = "lab")]
use std::{
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tailbound_experiment::{Experiment, Loaded};
use tailbound_report::{Provenance, Results};

/// Arguments for the directory of reports and the output format.
#[derive(Debug, clap::Args)]
pub(super) struct Report {
    /// The directory of the reports
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// The output format; for several experiments, JSON documents follow one another
    #[arg(long, value_enum, default_value_t)]
    output: Form,
}

/// Format of a result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// The result in a few lines
    #[default]
    Text,
    /// All figures, as `tailbound report show` prints them
    Table,
    /// One JSON document with a schema version
    Json,
}

/// JSON document of `--output json`: the results file with the common header.
#[derive(Debug, Serialize)]
struct ResultsDocument<'r> {
    kind: &'static str,
    version: &'static str,
    #[serde(flatten)]
    results: &'r Results,
}

impl Report {
    /// Writes a report and prints the verdict. Returns the exit code.
    pub(super) fn finish(&self, results: &Results) -> Result<Exit, Failure> {
        let dated = Results {
            made: Some(Provenance::now(super::commit())),
            ..results.clone()
        };
        let written = dated.write(&self.out)?;
        output::print(&match self.output {
            Form::Json => output::indented(&ResultsDocument {
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
    /// Prints the separator between the reports of two experiments.
    pub(super) fn separate(&self) {
        if self.output != Form::Json {
            output::print("\n");
        }
    }
}

/// Arguments of `list`.
#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// JSON document of `list --output json`.
#[derive(Debug, Serialize)]
struct ExperimentList {
    experiments: Vec<ListedExperiment>,
}

#[derive(Debug, Serialize)]
struct ListedExperiment {
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
            experiments.push(ListedExperiment {
                name: name.to_owned(),
                title: loaded.title().to_owned(),
                source: loaded.source().to_owned(),
            });
        }
        output::print(&match self.output {
            Output::Json => output::json("experiments", 1, &ExperimentList { experiments }),
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

/// Interval between two lines of progress without a terminal.
#[cfg(feature = "lab")]
const EACH: Duration = Duration::from_secs(10);

/// Progress of a run on a terminal: one line that is updated; no output without a terminal.
pub(super) struct Line {
    shown: bool,
}

impl Line {
    pub(super) fn new() -> Self {
        Self {
            shown: output::shows_progress(),
        }
    }

    /// Replaces the text of the line.
    pub(super) fn show(&self, text: &str) {
        output::progress(self.shown, text);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.show("");
    }
}

/// Progress of a run of the lab: a [`Line`] on a terminal, otherwise a line every ten seconds on
/// standard error, also during a longer step.
#[cfg(feature = "lab")]
pub(super) struct Lines {
    line: Line,
    /// Receiver of the texts without a terminal, and the thread that prints them. The thread starts
    /// with the first text: until then the lab enters namespaces, which requires a single thread.
    printer: Option<(Sender<String>, JoinHandle<()>)>,
}

#[cfg(feature = "lab")]
impl Lines {
    pub(super) fn new() -> Self {
        Self {
            line: Line::new(),
            printer: None,
        }
    }

    /// Shows the progress of the run.
    pub(super) fn show(&mut self, text: &str) {
        if self.line.shown {
            self.line.show(text);
            return;
        }
        let (texts, _) = self.printer.get_or_insert_with(|| {
            let (texts, received) = mpsc::channel();
            (texts, thread::spawn(move || print_each(EACH, &received)))
        });
        // The thread receives texts until it is joined.
        let _ = texts.send(text.to_owned());
    }
}

#[cfg(feature = "lab")]
impl Drop for Lines {
    fn drop(&mut self) {
        if let Some((texts, printer)) = self.printer.take() {
            drop(texts);
            // The thread only prints.
            let _ = printer.join();
        }
    }
}

/// Prints the last of the texts in each interval, until their sender is dropped.
#[cfg(feature = "lab")]
fn print_each(interval: Duration, texts: &Receiver<String>) {
    let mut step = Step::default();
    let mut due = Instant::now() + interval;
    loop {
        let left = due.saturating_duration_since(Instant::now());
        match texts.recv_timeout(left) {
            Ok(text) => step.begin(text, Instant::now()),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(line) = step.line(Instant::now()) {
                    output::print_progress(&line);
                }
                due += interval;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The last text, its start, and whether it was printed.
#[cfg(feature = "lab")]
#[derive(Default)]
struct Step(Option<(String, Instant, bool)>);

#[cfg(feature = "lab")]
impl Step {
    fn begin(&mut self, text: String, now: Instant) {
        self.0 = Some((text, now, false));
    }

    /// Returns the line to print at `now`: a text that was printed before is followed by its age.
    fn line(&mut self, now: Instant) -> Option<String> {
        let (text, since, was_printed) = self.0.as_mut()?;
        if !std::mem::replace(was_printed, true) {
            return Some(text.clone());
        }
        let age = now.duration_since(*since).as_secs();
        Some(format!("{text} (for {age} s)"))
    }
}

#[cfg(all(test, feature = "lab"))]
mod tests {
    use super::*;

    #[test]
    fn a_long_step_is_printed_with_its_age() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut step = Step::default();
        assert_eq!(step.line(start), None);
        step.begin("bridge".to_owned(), after(4));
        let lines = [10, 20, 30].map(|seconds| step.line(after(seconds)).unwrap());
        assert_eq!(lines, ["bridge", "bridge (for 16 s)", "bridge (for 26 s)"]);
        step.begin("tap".to_owned(), after(31));
        assert_eq!(step.line(after(40)).unwrap(), "tap");
    }
}
