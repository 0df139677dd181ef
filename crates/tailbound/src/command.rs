//! One file a subcommand.

mod check_config;
mod doctor;
mod host;
mod lab;
mod output;
mod report;
mod sim;

use std::process::ExitCode;

/// What `tailbound` can do.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Forward the packets of this host's guests: meter, tag, segment, queue
    Host(host::Args),
    /// Check a host configuration without applying it
    CheckConfig(check_config::Args),
    /// Run experiments in a data centre of network namespaces on this machine
    Lab(lab::Args),
    /// Run experiments in virtual time, beside the papers' figures
    Sim(sim::Args),
    /// Show and compare the results of experiments
    Report(report::Args),
    /// Say what this machine can do, and how to mend what it cannot
    Doctor(doctor::Args),
}

impl Command {
    pub(crate) fn run(self) -> ExitCode {
        match self {
            Self::Host(args) => args.run(),
            Self::CheckConfig(args) => args.run(),
            Self::Lab(args) => args.run(),
            Self::Sim(args) => args.run(),
            Self::Report(args) => args.run(),
            Self::Doctor(args) => args.run(),
        }
    }
}
