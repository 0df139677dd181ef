//! `tailbound doctor`: the table of `tailbound_sys::probe` as a report.

mod collect;
mod switch;

use super::output::{self, Output};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, stdout};
use std::path::PathBuf;

/// Arguments of `tailbound doctor`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "One line for each capability: PASS, WARN or FAIL, its name, \
    what it is for, what was seen, and the command that mends it. \
    FAIL is only what the lab or the host daemon cannot do without, \
    WARN what one feature or experiment lacks. The trials leave nothing behind. \
    Exit code: 0, or 1 if there is a FAIL.\n\n\
    With --switch, a hundred void frames and as many to a station that nobody is \
    are sent to the switch in a tenth of a second, and nothing else is tried. \
    Exit code: 0 no void came back, nor to the witness; 1 some did; \
    2 it could not be found out."
)]
pub(crate) struct Args {
    /// Lines for people, or JSON with a schema version
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    /// Find out what the switch behind this interface does with void frames
    #[arg(long, value_name = "INTERFACE")]
    switch: Option<String>,
    /// The network namespace that the interface is in, as a file
    #[arg(long, value_name = "FILE", requires = "switch")]
    netns: Option<PathBuf>,
    /// An interface on another port of the same switch: sees whether voids flood
    #[arg(long, value_name = "INTERFACE", requires = "switch")]
    witness: Option<String>,
    /// The network namespace that the witness is in, as a file
    #[arg(long, value_name = "FILE", requires = "witness")]
    witness_netns: Option<PathBuf>,
    /// Run the trials of a throw-away namespace and print them for the parent
    #[arg(long, value_enum, hide = true)]
    inside: Option<Inside>,
}

/// As whom a child of the doctor enters the throw-away namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Inside {
    /// The user who runs the doctor
    ThisUser,
    /// An ordinary user, where that is root
    OrdinaryUser,
}

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
enum Grade {
    Pass,
    Warn,
    Fail,
}

impl Grade {
    const fn word(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        }
    }
}

/// One line.
#[derive(Debug, Clone, Serialize)]
struct Finding {
    name: &'static str,
    grade: Grade,
    purpose: &'static str,
    detail: String,
    mend: Option<String>,
}

/// All of it, as `--output json` prints it.
#[derive(Debug, Serialize)]
struct Diagnosis {
    schema: u32,
    ready: bool,
    pass: usize,
    warn: usize,
    fail: usize,
    findings: Vec<Finding>,
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
        let diagnosis = Diagnosis::of(collect::findings());
        output::print(&match self.output {
            Output::Text => diagnosis.text(stdout().is_terminal()),
            Output::Json => output::json(&diagnosis),
        });
        Ok(Exit::holds(diagnosis.ready))
    }
}

impl Diagnosis {
    fn of(findings: Vec<Finding>) -> Self {
        let count = |grade| {
            findings
                .iter()
                .filter(|finding| finding.grade == grade)
                .count()
        };
        let fail = count(Grade::Fail);
        Self {
            schema: 1,
            ready: fail == 0,
            pass: count(Grade::Pass),
            warn: count(Grade::Warn),
            fail,
            findings,
        }
    }

    /// The summary, then a line for each finding: its fields aligned for a
    /// terminal, or separated by tabs for a program.
    fn text(&self, terminal: bool) -> String {
        let ready = if self.ready { "ready" } else { "not ready" };
        let mut out = format!(
            "{ready}: {} pass, {} warn, {} fail\n",
            self.pass, self.warn, self.fail
        );
        let longest = |field: fn(&Finding) -> &str| {
            let lengths = self.findings.iter().map(|f| field(f).chars().count());
            lengths.max().filter(|_| terminal).unwrap_or(0)
        };
        let (name, purpose) = (longest(|f| f.name), longest(|f| f.purpose));
        let gap = if terminal { "  " } else { "\t" };
        for finding in &self.findings {
            let mend = match &finding.mend {
                Some(mend) if terminal => format!("; to mend: {mend}"),
                Some(mend) => format!("\t{mend}"),
                None => String::new(),
            };
            // Writing to a String does not fail.
            let _ = writeln!(
                out,
                "{}{gap}{:<name$}{gap}{:<purpose$}{gap}{}{mend}",
                finding.grade.word(),
                finding.name,
                finding.purpose,
                finding.detail,
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(name: &'static str, grade: Grade, mend: Option<&str>) -> Finding {
        Finding {
            name,
            grade,
            purpose: if grade == Grade::Pass {
                "one thing"
            } else {
                "another"
            },
            detail: "what was seen".into(),
            mend: mend.map(Into::into),
        }
    }

    fn findings() -> Vec<Finding> {
        vec![
            finding("tap", Grade::Pass, None),
            finding("sched-deadline", Grade::Warn, Some("run as root")),
            finding("htb", Grade::Fail, Some("sudo modprobe sch_htb")),
        ]
    }

    #[test]
    fn columns_line_up_on_a_terminal() {
        assert_eq!(
            Diagnosis::of(findings()).text(true),
            "not ready: 1 pass, 1 warn, 1 fail\n\
             PASS  tap             one thing  what was seen\n\
             WARN  sched-deadline  another    what was seen; to mend: run as root\n\
             FAIL  htb             another    what was seen; to mend: sudo modprobe sch_htb\n"
        );
    }

    #[test]
    fn fields_are_split_by_tabs_for_a_program() {
        assert_eq!(
            Diagnosis::of(findings()[..2].to_vec()).text(false),
            "ready: 1 pass, 1 warn, 0 fail\n\
             PASS\ttap\tone thing\twhat was seen\n\
             WARN\tsched-deadline\tanother\twhat was seen\trun as root\n"
        );
    }

    #[test]
    fn the_json_is_stable() {
        let diagnosis = Diagnosis::of(findings()[1..].to_vec());
        assert_eq!(
            serde_json::to_value(&diagnosis).unwrap(),
            serde_json::json!({
                "schema": 1, "ready": false, "pass": 0, "warn": 1, "fail": 1,
                "findings": [
                    {"name": "sched-deadline", "grade": "WARN", "purpose": "another",
                     "detail": "what was seen", "mend": "run as root"},
                    {"name": "htb", "grade": "FAIL", "purpose": "another",
                     "detail": "what was seen", "mend": "sudo modprobe sch_htb"},
                ]
            })
        );
    }
}
