//! Options of `tailbound select` that start nodes, probe them, keep the best and end the others.

use crate::exit::{Failure, print_error};
use std::time::Duration;
use tailbound_probe::run::launch::{LaunchedSelection, Probes, end_tag};
use tailbound_probe::select::Selection;
use tailbound_units::Nanos;

/// Largest number of nodes that can be started.
const MAX_NODES: usize = 10_000;

/// Options of a selection that starts its nodes.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Start nodes by this program, which speaks JSON lines; its words are separated by spaces
    #[arg(long, value_name = "CMD", conflicts_with_all = ["results", "keep"])]
    pub(super) launch: Option<String>,
    /// Number of needed nodes
    #[arg(long, value_name = "N", value_parser = super::at_least_one, requires = "launch")]
    want: Option<usize>,
    /// Started nodes per needed node (K)
    #[arg(long, value_name = "K", default_value_t = 4.0, value_parser = overshoot)]
    overshoot: f64,
    /// Probe of a node; `{address}` is replaced by its address
    #[arg(
        long,
        value_name = "CMD",
        default_value = "ssh -o BatchMode=yes {address} tailbound probe --output json"
    )]
    probe: String,
    /// Number of nodes that are probed in parallel
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = super::at_least_one)]
    parallel: usize,
    /// The launcher has so long for each answer
    #[arg(long, value_name = "TIME", default_value = "300s")]
    launch_timeout: Nanos,
    /// A probe has so long
    #[arg(long, value_name = "TIME", default_value = "180s")]
    probe_timeout: Nanos,
    /// Print what would be started, and start nothing
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
        let timeout = Duration::from(self.launch_timeout);
        if let Some(tag) = &self.end {
            let ended = end_tag(launch, timeout, tag).map_err(Failure::new)?;
            return Ok(Outcomes::Said(format!("{ended} nodes of {tag} ended\n")));
        }
        let want = self.want.ok_or_else(|| {
            Failure::wrong_arguments("the number of needed nodes is missing: --want N")
        })?;
        let count = (want as f64 * self.overshoot).ceil() as usize;
        if count > MAX_NODES {
            return Err(Failure::wrong_arguments(format!(
                "{count} nodes: at most {MAX_NODES} are started"
            )));
        }
        let launching = LaunchedSelection::begin(launch, timeout).map_err(Failure::new)?;
        if self.dry_run {
            return Ok(Outcomes::Said(format!(
                "would start {count} nodes, keep the best {want} and end the others\n"
            )));
        }
        print_error(&format!(
            "nodes of this run have the tag {}",
            launching.tag()
        ));
        let probes = Probes {
            command: &self.probe,
            parallel: self.parallel,
            patience: Duration::from(self.probe_timeout),
        };
        let selection = launching.select(&probes, count, want);
        selection.map(Outcomes::Chosen).map_err(Failure::new)
    }
}
