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
    after_help = "The first line is the verdict with its reason; a table of the vCPUs follows. \
    Exit code: 0 GOOD; 1 BAD; 2 UNSURE (the network test decides) or INCONCLUSIVE (the guest \
    itself was busy), or the probe could not run. As a plugin of node-problem-detector: \
    --output line."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    run: run::Options,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Answer the requests of a network test
    Serve(serve::Args),
    /// Send requests to instances that run `serve`, and judge them by their response times
    Network(network::Args),
    /// Measure workflows that call many instances, sequentially and in parallel
    Workflows(workflows::Args),
    /// Compute thresholds for another hypervisor, from instances that both tests judged
    Calibrate(calibrate::Args),
    /// Find the instances that cause long tails, from network tests of all pairs
    Pairs(pairs::Args),
    /// Probe repeatedly, and store the results of weeks in a small file
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
