//! `tailbound doctor`: the table of `tailbound_sys::probe` as a report, by purpose.

mod classes;
mod collect;
mod switch;

use super::adopt::lateness::LatenessRow;
use super::output::{self, Output};
use crate::exit::{Exit, Failure};
use classes::ClassesRow;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use tailbound_adopt::live::Live;
use tailbound_report::Paint;
use tailbound_sys::probe::Purpose;

/// Arguments of `tailbound doctor`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Prints for each use whether this computer is ready for it, then each problem \
    with the observation and the remedy, then the working features, then unused missing \
    features. FAIL is a missing requirement, WARN a missing optional feature. The tests leave \
    no trace. Exit code: 0 ready for PURPOSE (without PURPOSE: for `demo` and `host`); 1 not \
    ready.\n\nWith --switch, only the switch is tested: it receives 100 void frames and 100 \
    frames to an unknown station within 0.1 s. Exit code: 0 no void frame returned or reached \
    the witness; 1 some did; 2 the test could not run."
)]
pub(crate) struct Args {
    /// The intended use of this computer [default: everything]
    #[arg(value_enum, conflicts_with = "switch")]
    purpose: Option<PurposeArgument>,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    /// Test whether the switch behind this interface drops void frames
    #[arg(long, value_name = "INTERFACE")]
    switch: Option<String>,
    /// The network namespace of the interface, as a file
    #[arg(long, value_name = "FILE", requires = "switch")]
    netns: Option<PathBuf>,
    /// An interface on another port of the same switch, which detects flooded void frames
    #[arg(long, value_name = "INTERFACE", requires = "switch")]
    witness: Option<String>,
    /// The network namespace of the witness, as a file
    #[arg(long, value_name = "FILE", requires = "witness")]
    witness_netns: Option<PathBuf>,
    /// Run the trials of a temporary namespace and print their results for the parent process
    #[arg(long, value_enum, hide = true)]
    inside: Option<Inside>,
}

/// A purpose, on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum PurposeArgument {
    /// Run the demo
    Demo,
    /// Forward the packets of guests
    Host,
    /// Set the scheduling class of vCPU threads
    Vcpu,
    /// Find out why a guest is slow
    Look,
    /// Protect guests in the network that they have
    Adopt,
    /// Probe from inside a guest
    Probe,
    /// Run the placement service
    Place,
    /// Run all experiments, tests and benchmarks
    Lab,
}

impl From<PurposeArgument> for Purpose {
    fn from(wanted: PurposeArgument) -> Self {
        match wanted {
            PurposeArgument::Demo => Self::Demo,
            PurposeArgument::Host => Self::Host,
            PurposeArgument::Vcpu => Self::Vcpu,
            PurposeArgument::Look => Self::Look,
            PurposeArgument::Adopt => Self::Adopt,
            PurposeArgument::Probe => Self::Probe,
            PurposeArgument::Place => Self::Place,
            PurposeArgument::Lab => Self::Lab,
        }
    }
}

/// As whom a child of the doctor enters the throw-away namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Inside {
    /// The user who runs the doctor
    ThisUser,
    /// An ordinary user, if that is root
    OrdinaryUser,
}

/// The beginning of the detail of a trial that could not be run.
const UNTRIED: &str = "not tried: ";

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
enum Grade {
    Pass,
    Warn,
    Fail,
}

/// Result of one trial.
#[derive(Debug, Clone, Serialize)]
struct Finding {
    name: &'static str,
    grade: Grade,
    /// Purposes that are impossible without it.
    needed_by: &'static [Purpose],
    /// Purposes that are impaired without it.
    helps: &'static [Purpose],
    purpose: &'static str,
    detail: String,
    mend: Option<String>,
}

impl Finding {
    /// Returns the severity for `purpose`; `None` if the purpose does not use it.
    fn grade_for(&self, purpose: Purpose) -> Option<Grade> {
        let is_needed = self.needed_by.contains(&purpose);
        let is_used = is_needed || self.helps.contains(&purpose);
        is_used.then_some(match self.grade {
            Grade::Pass => Grade::Pass,
            Grade::Warn | Grade::Fail if is_needed => Grade::Fail,
            Grade::Warn | Grade::Fail => Grade::Warn,
        })
    }

    /// Returns true if the trial could not be run, because of another problem.
    fn is_untried(&self) -> bool {
        self.detail.starts_with(UNTRIED)
    }

    /// Returns true if a purpose uses it.
    const fn is_used(&self) -> bool {
        !self.needed_by.is_empty() || !self.helps.is_empty()
    }
}

/// Readiness of this computer for a purpose.
#[derive(Debug, Serialize)]
struct Readiness {
    purpose: Purpose,
    ready: bool,
    /// True if this program has the commands for it, or the package tailbound-lab has them.
    in_this_build: bool,
    /// Missing features that the purpose requires.
    missing: Vec<&'static str>,
    /// Missing features that would help the purpose.
    limits: Vec<&'static str>,
    works: Vec<&'static str>,
}

impl Readiness {
    fn of(purpose: Purpose, in_this_build: bool, findings: &[Finding]) -> Self {
        let with = |grade| -> Vec<_> {
            let graded = findings
                .iter()
                .filter(|finding| finding.grade_for(purpose) == Some(grade));
            graded.map(|finding| finding.name).collect()
        };
        let missing = with(Grade::Fail);
        Self {
            purpose,
            ready: in_this_build && missing.is_empty(),
            in_this_build,
            missing,
            limits: with(Grade::Warn),
            works: with(Grade::Pass),
        }
    }

    fn verdict(&self, paint: Paint) -> String {
        let count = self.limits.len();
        if !self.in_this_build {
            return "not in this build".to_owned();
        }
        match (self.ready, count) {
            (false, _) => paint.bad("not ready"),
            (true, 0) => paint.good("ready"),
            (true, 1) => format!("{}, with one limit", paint.good("ready")),
            (true, _) => format!("{}, with {count} limits", paint.good("ready")),
        }
    }
}

/// All findings and purposes: the document of `--output json`.
#[derive(Debug, Serialize)]
struct Diagnosis {
    ready: bool,
    purposes: Vec<Readiness>,
    findings: Vec<Finding>,
    /// The lateness of adopted guests' frames; absent for other purposes.
    #[serde(skip_serializing_if = "Option::is_none")]
    lateness: Option<LatenessRow>,
    /// The latency of wake-ups by class on this kernel; absent for other purposes.
    #[serde(skip_serializing_if = "Option::is_none")]
    classes: Option<ClassesRow>,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        if let Some(inside) = self.inside {
            collect::inside(inside);
            return Ok(Exit::Holds);
        }
        if let Some(interface) = self.switch {
            let question = tailbound_host::void_test::Question {
                interface,
                netns: self.netns,
                witness: self.witness,
                witness_netns: self.witness_netns,
            };
            return switch::ask(&question, self.output);
        }
        let purpose = self.purpose.map(Into::into);
        let mut diagnosis = Diagnosis::of(purpose, collect::findings());
        if purpose == Some(Purpose::Adopt) {
            // Only root may read it.
            let mut live = Live::new(Path::new(tailbound_sys::edge::PIN));
            diagnosis.lateness = LatenessRow::read(&mut live).unwrap_or_default();
        }
        if purpose == Some(Purpose::Vcpu) {
            diagnosis.classes = ClassesRow::read();
        }
        output::print(&match self.output {
            Output::Text => diagnosis.text(output::paint()),
            Output::Json => output::json("doctor", 2, &diagnosis),
        });
        Ok(Exit::holds(diagnosis.ready))
    }
}

/// Returns true if this build has the commands for a purpose, or starts the program that has them.
const fn is_built(purpose: Purpose) -> bool {
    let is_of_the_lab = matches!(purpose, Purpose::Demo | Purpose::Lab);
    !(matches!(purpose, Purpose::Probe) && cfg!(not(feature = "probe"))
        || matches!(purpose, Purpose::Look) && cfg!(not(feature = "look"))
        || matches!(purpose, Purpose::Place) && cfg!(not(feature = "place"))
        || is_of_the_lab && cfg!(not(any(feature = "lab", feature = "operator"))))
}

/// Purposes that decide the exit code if no purpose is requested.
const COMMON: [Purpose; 2] = [Purpose::Demo, Purpose::Host];

impl Diagnosis {
    /// Judges `findings` for `wanted`, or for every purpose.
    fn of(wanted: Option<Purpose>, mut findings: Vec<Finding>) -> Self {
        if let Some(wanted) = wanted {
            findings.retain(|finding| finding.grade_for(wanted).is_some());
        }
        let purposes: Vec<_> = Purpose::ALL
            .into_iter()
            .filter(|purpose| wanted.is_none_or(|wanted| wanted == *purpose))
            .map(|purpose| Readiness::of(purpose, is_built(purpose), &findings))
            .collect();
        let judged = |purpose| wanted.is_some() || COMMON.contains(&purpose);
        Self {
            ready: purposes
                .iter()
                .all(|readiness| readiness.ready || !judged(readiness.purpose)),
            purposes,
            findings,
            lateness: None,
            classes: None,
        }
    }

    /// Returns a line for each purpose, then the problems, the most severe first, then the working
    /// features, then unused missing ones.
    fn text(&self, paint: Paint) -> String {
        let mut out = String::new();
        for readiness in &self.purposes {
            let (name, verdict) = (readiness.purpose.name(), readiness.verdict(paint));
            // Writing to a String does not fail.
            let _ = writeln!(out, "{name:<7}{verdict}");
        }
        let (works, lacks): (Vec<_>, Vec<_>) = self
            .findings
            .iter()
            .partition(|finding| finding.grade == Grade::Pass);
        let (mut problems, unused): (Vec<_>, Vec<_>) =
            lacks.into_iter().partition(|finding| finding.is_used());
        problems.sort_by_key(|finding| finding.grade != Grade::Fail);
        let (untried, tried): (Vec<_>, Vec<_>) = problems
            .into_iter()
            .partition(|finding| finding.is_untried());
        for finding in tried {
            out += &self.problem(finding, paint);
        }
        for (why, names) in by_reason(&untried) {
            let _ = writeln!(out, "\n{why}: {}", names.join(", "));
        }
        for (heading, findings) in [("works", works), ("not there, and not used", unused)] {
            let names: Vec<_> = findings.iter().map(|finding| finding.name).collect();
            if !names.is_empty() {
                let _ = writeln!(out, "\n{heading}: {}", names.join(", "));
            }
        }
        if let Some(lateness) = &self.lateness {
            let _ = write!(out, "\n{}", lateness.text());
        }
        if let Some(classes) = &self.classes {
            let _ = write!(out, "\n{}", classes.text());
        }
        out
    }

    /// Returns the text of a problem: its name and purposes, the observation, and the remedy on a
    /// line of its own.
    fn problem(&self, finding: &Finding, paint: Paint) -> String {
        let (word, purposes) = match finding.grade {
            Grade::Fail => (paint.bad("FAIL"), finding.needed_by),
            Grade::Warn | Grade::Pass => (paint.doubtful("WARN"), finding.helps),
        };
        let shown = |purpose: &&Purpose| self.purposes.iter().any(|it| it.purpose == **purpose);
        let purposes: Vec<_> = purposes.iter().filter(shown).map(|it| it.name()).collect();
        let purposes = match &purposes[..] {
            [] => String::new(),
            some => format!(" ({})", some.join(", ")),
        };
        let mut out = format!(
            "\n{word}  {}: {}{purposes}\n      {}\n",
            paint.strong(finding.name),
            finding.purpose,
            finding.detail
        );
        if let Some(mend) = &finding.mend {
            let _ = writeln!(out, "      {mend}");
        }
        out
    }
}

/// Returns the names of trials that were not run, grouped by the reason.
fn by_reason<'f>(findings: &[&'f Finding]) -> Vec<(&'f str, Vec<&'static str>)> {
    let mut groups: Vec<(&str, Vec<_>)> = Vec::new();
    for finding in findings {
        match groups.iter_mut().find(|(why, _)| *why == finding.detail) {
            Some((_, names)) => names.push(finding.name),
            None => groups.push((&finding.detail, vec![finding.name])),
        }
    }
    groups
}

#[cfg(test)]
mod tests;
