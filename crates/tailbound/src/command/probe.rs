//! `tailbound probe`: what `tailbound_probe` decides, on this machine.

mod calibrate;
mod document;
mod form;
mod log;
mod network;
mod pairs;
mod run;
mod serve;
mod text;
mod watch;
mod workflows;

use crate::exit::{Exit, Failure};

/// Arguments of `tailbound probe`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "The first line says what the node is and why; a table of the vCPUs follows. \
    Exit code: 0 GOOD; 1 BAD; 2 UNSURE (the network test decides) or INCONCLUSIVE (the guest \
    itself was busy), or it could not run. \
    As a plugin of node-problem-detector: --output line."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    run: run::Options,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Answer the calls of a network test
    Serve(serve::Args),
    /// Call nodes that serve, and tell from their answers what they are
    Network(network::Args),
    /// Call many nodes for one answer, in a row and at once, and tell how long that takes
    Workflows(workflows::Args),
    /// Find the marks for other hypervisors, from nodes that both tests judged
    Calibrate(calibrate::Args),
    /// Tell whose the long tails among many nodes are, from network tests of each against each
    Pairs(pairs::Args),
    /// Probe again and again, and keep in a small file what the node was over weeks
    Watch(watch::Args),
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match self.action {
            None => self.run.run(),
            Some(Action::Serve(args)) => args.run(),
            Some(Action::Network(args)) => args.run(),
            Some(Action::Workflows(args)) => args.run(),
            Some(Action::Calibrate(args)) => args.run(),
            Some(Action::Pairs(args)) => args.run(),
            Some(Action::Watch(args)) => args.run(),
        }
    }
}
