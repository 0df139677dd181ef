//! Starts nodes, probes them, keeps the best and ends the others.
//!
//! Read [`Options::run`] first. Only nodes with this run's tag are ended: those that the launcher
//! reported as started, and unreported ones with the tag.

use super::{Selection, results};
use crate::exit::{Failure, print_error};
use std::time::Duration;
use tailbound_probe::Outcome;
use tailbound_probe::run::launch::{Probed, Probes, end_all, is_empty, tag};
use tailbound_probe::run::launcher::Launcher;
use tailbound_probe::select::{Candidate, Use};
use tailbound_units::Nanos;

/// Largest number of nodes that are started.
const MOST: usize = 10_000;

/// Options of a selection that starts its nodes.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Start nodes by this program, which speaks JSON lines; its words are separated by spaces
    #[arg(long, value_name = "CMD", conflicts_with_all = ["results", "keep"])]
    pub(super) launch: Option<String>,
    /// How many nodes are needed
    #[arg(long, value_name = "N", value_parser = super::at_least_one, requires = "launch")]
    want: Option<usize>,
    /// Start so many for each that is needed (K)
    #[arg(long, value_name = "K", default_value_t = 4.0, value_parser = overshoot)]
    overshoot: f64,
    /// How a node is probed; `{address}` is where it is
    #[arg(
        long,
        value_name = "CMD",
        default_value = "ssh -o BatchMode=yes {address} tailbound probe --output json"
    )]
    probe: String,
    /// Probe so many nodes at once
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = super::at_least_one)]
    parallel: usize,
    /// The launcher has so long for each answer
    #[arg(long, value_name = "TIME", default_value = "300s")]
    launch_timeout: Nanos,
    /// A probe has so long
    #[arg(long, value_name = "TIME", default_value = "180s")]
    probe_timeout: Nanos,
    /// Say what would be started, and start nothing
    #[arg(long, requires = "launch")]
    dry_run: bool,
    /// End all nodes with this tag, which a run that was interrupted left
    #[arg(long, value_name = "TAG", requires = "launch", conflicts_with = "want")]
    end: Option<String>,
}

fn overshoot(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (1.0..=100.0).contains(&factor) => Ok(factor),
        _ => Err("a number from 1 to 100".to_owned()),
    }
}

/// Result of a launched run.
pub(super) enum Outcomes {
    /// Nodes were selected.
    Chosen(Selection),
    /// No selection was requested; the text describes the action.
    Said(String),
}

impl Options {
    /// Runs the whole selection.
    ///
    /// # Errors
    /// The launcher failed; all nodes with the tag were ended then, as far as possible.
    pub(super) fn run(&self, launch: &str) -> Result<Outcomes, Failure> {
        let start = || Launcher::start(launch, Duration::from(self.launch_timeout));
        if let Some(tag) = &self.end {
            let mut launcher = start().map_err(Failure::new)?;
            let ended = end_all(&mut launcher, tag, &[]).map_err(Failure::new)?;
            return Ok(Outcomes::Said(format!("{ended} nodes of {tag} ended\n")));
        }
        let want = self.want.ok_or_else(|| {
            Failure::wrong_arguments("how many nodes are needed is missing: --want N")
        })?;
        let count = (want as f64 * self.overshoot).ceil() as usize;
        if count > MOST {
            return Err(Failure::wrong_arguments(format!(
                "{count} nodes: at most {MOST} are started"
            )));
        }
        let tag = tag();
        let mut launcher = start().map_err(Failure::new)?;
        if !is_empty(&mut launcher, &tag).map_err(Failure::new)? {
            return Err(Failure::new(format!(
                "the launcher names nodes with the tag {tag}, which is new: it does not go by tags"
            )));
        }
        if self.dry_run {
            return Ok(Outcomes::Said(format!(
                "would start {count} nodes, keep the best {want} and end the others\n"
            )));
        }
        print_error(&format!("nodes of this run have the tag {tag}"));
        match self.choose(&mut launcher, &tag, count, want) {
            Ok(selection) => Ok(Outcomes::Chosen(selection)),
            Err(why) => {
                drop(launcher);
                let ended = start().and_then(|mut launcher| end_all(&mut launcher, &tag, &[]));
                let after = match ended {
                    Ok(count) => format!("all {count} nodes of {tag} were ended"),
                    Err(error) => format!(
                        "nodes may be left: {error}; end them with --launch ... --end {tag}"
                    ),
                };
                Err(Failure::new(format!("{why}; {after}")))
            }
        }
    }

    fn choose(
        &self,
        launcher: &mut Launcher,
        tag: &str,
        count: usize,
        want: usize,
    ) -> Result<Selection, String> {
        let settings = Probes {
            command: &self.probe,
            parallel: self.parallel,
            patience: Duration::from(self.probe_timeout),
        };
        let probed = settings.create(launcher, tag, count, results::candidate)?;
        let rows: Vec<_> = probed.iter().map(row).collect();
        let selection = Selection::of(&rows, want);
        let kept: Vec<&str> = selection
            .nodes
            .iter()
            .filter(|node| node.what == Use::Keep)
            .map(|node| node.node.as_str())
            .collect();
        end_all(launcher, tag, &kept)?;
        Ok(selection)
    }
}

/// Returns a node as a candidate of the selection; without a result it cannot be kept.
fn row(probed: &Probed) -> super::Row {
    let name = probed.launched.node.clone();
    let (candidate, note) = match &probed.found {
        Ok(candidate) => (
            Candidate {
                name,
                ..candidate.clone()
            },
            probed.launched.address.clone(),
        ),
        Err(why) => {
            let nothing = Candidate {
                name,
                outcome: Outcome::Inconclusive,
                network: None,
                samples: 0,
                late: 0,
                p99_9: Nanos::ZERO,
            };
            (nothing, format!("{}: {why}", probed.launched.address))
        }
    };
    super::Row { candidate, note }
}
