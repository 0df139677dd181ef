//! Runs `tailbound probe workflows` to all nodes, or to those that `tailbound select` keeps.

use super::{Outcome, Sample, Starter, leave, now, sleep_until};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tailbound_units::Nanos;

/// Configuration of a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workflows {
    /// All nodes, as ADDRESS:PORT.
    pub nodes: Vec<String>,
    /// Selection of the called nodes; `None` for all.
    pub choice: Option<Choice>,
    /// The runs, one after the other.
    pub runs: Vec<Flows>,
}

/// Selection of nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Paths of the reports of `tailbound probe` on each node, named after its address; the files
    /// appear during the warm-up.
    pub results: Vec<PathBuf>,
    /// Number of nodes to keep.
    pub keep: usize,
    /// Path of the selection's file.
    pub selection: PathBuf,
}

/// One run of `tailbound probe workflows`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flows {
    /// Number of nodes in a group.
    pub group: usize,
    /// Its arguments, except for the nodes.
    pub args: Vec<String>,
    /// Path of its outcome.
    pub outcome: PathBuf,
}

/// The output of `tailbound select --output json`, as far as the lab reads it.
#[derive(Debug, Deserialize)]
pub(crate) struct NodeSelection {
    /// Number of GOOD nodes.
    pub(crate) good: usize,
    nodes: Vec<Candidate>,
}

#[derive(Debug, Deserialize)]
struct Candidate {
    /// File of the probe's report, named after the address.
    file: PathBuf,
    #[serde(rename = "use")]
    what: String,
}

impl NodeSelection {
    /// Returns the addresses of kept nodes.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &str> {
        let kept_nodes = self.nodes.iter().filter(|node| node.what == "keep");
        kept_nodes.filter_map(|node| node.file.file_stem()?.to_str())
    }
}

/// A line of `tailbound probe workflows --output jsonl`: a workflow, or the document.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Line {
    Workflow { due_ns: u64, time_ns: u64 },
    ProbeWorkflows { runs: Vec<Counts> },
}

#[derive(Debug, Deserialize)]
struct Counts {
    timed_out: u64,
    lost: u64,
}

/// Interval of the checks for reports.
const POLL: Duration = Duration::from_millis(20);

pub(super) fn run(starter: &Starter<'_>, workflows: &Workflows) -> io::Result<()> {
    let schedule = starter.ready()?;
    let nodes = match &workflows.choice {
        None => workflows.nodes.clone(),
        Some(choice) => choose(choice, &workflows.nodes, schedule.from)?,
    };
    sleep_until(schedule.from);
    for run in &workflows.runs {
        if nodes.len() < run.group {
            // Readers of the selection report this case.
            leave(&run.outcome, &serde_json::to_vec(&Outcome::default())?)?;
            continue;
        }
        let mut arguments = vec!["probe", "workflows", "--output=jsonl"];
        arguments.extend(run.args.iter().chain(&nodes).map(String::as_str));
        let outcome = outcome(&own_output(&arguments)?)?;
        leave(&run.outcome, &serde_json::to_vec(&outcome)?)?;
    }
    starter.finish(&Outcome::default())
}

/// Returns the kept nodes after all nodes have been probed; an error after `latest`.
fn choose(choice: &Choice, nodes: &[String], latest: Nanos) -> io::Result<Vec<String>> {
    let missing = || choice.results.iter().find(|path| !path.exists());
    while let Some(path) = missing() {
        if now() > latest {
            let message = format!(
                "the probe left no {} while it was warming up",
                path.display()
            );
            return Err(io::Error::other(message));
        }
        std::thread::sleep(POLL);
    }
    let keep = format!("--keep={}", choice.keep);
    let mut arguments = vec!["select".as_ref(), keep.as_ref(), "--output=json".as_ref()];
    arguments.extend(choice.results.iter().map(|path| path.as_os_str()));
    let text = own_output(&arguments)?;
    std::fs::write(&choice.selection, &text)?;
    let selection: NodeSelection = serde_json::from_str(&text)?;
    let is_kept = |node: &&String| {
        let address = node
            .rsplit_once(':')
            .map_or(node.as_str(), |(address, _)| address);
        selection.kept().any(|kept| kept == address)
    };
    Ok(nodes.iter().filter(is_kept).cloned().collect())
}

/// Returns this program's output with these arguments. Exit code 1 is a verdict.
fn own_output<A: AsRef<std::ffi::OsStr>>(arguments: &[A]) -> io::Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let output = command.output()?;
    if matches!(output.status.code(), Some(0 | 1)) {
        return String::from_utf8(output.stdout).map_err(io::Error::other);
    }
    let stderr_text = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "{}: {}",
        output.status,
        stderr_text.trim()
    )))
}

/// Parses the output of one run.
fn outcome(text: &str) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    for line in text.lines() {
        match serde_json::from_str(line)? {
            Line::Workflow { due_ns, time_ns } => outcome.samples.push(Sample {
                arrival: outcome.samples.len() as u32,
                start: Nanos(due_ns),
                end: Nanos(due_ns.saturating_add(time_ns)),
            }),
            Line::ProbeWorkflows { runs } => {
                let unanswered = runs.iter().map(|run| run.timed_out + run.lost);
                outcome.unanswered = unanswered.sum();
            }
        }
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_workflow_and_the_last_counts_unanswered_ones() {
        let text = concat!(
            r#"{"schema":1,"kind":"workflow","due_ns":5,"time_ns":7,"group":2}"#,
            "\n",
            r#"{"schema":1,"kind":"probe-workflows","runs":[{"timed_out":2,"lost":3}]}"#,
        );
        let outcome = outcome(text).unwrap();
        let [sample] = outcome.samples[..] else {
            panic!("{outcome:?}");
        };
        assert_eq!((sample.start, sample.end), (Nanos(5), Nanos(12)));
        assert_eq!(outcome.unanswered, 5);
        assert!(super::outcome(r#"{"kind":"other"}"#).is_err());
    }

    #[test]
    fn only_nodes_marked_keep_are_selected() {
        let text = r#"{"good": 2, "nodes": [
            {"file": "run/10.77.1.2.json", "use": "keep"},
            {"file": "run/10.77.1.3.json", "use": "spare"},
            {"file": "run/10.77.1.4.json", "use": "drop"}]}"#;
        let selection: NodeSelection = serde_json::from_str(text).unwrap();
        assert_eq!(selection.kept().collect::<Vec<_>>(), ["10.77.1.2"]);
        assert_eq!(selection.good, 2);
    }
}
