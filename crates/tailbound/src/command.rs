//! One file a subcommand.

#[cfg(feature = "full")]
mod calc;
#[cfg(feature = "full")]
mod check_config;
#[cfg(feature = "full")]
mod doctor;
#[cfg(feature = "full")]
mod figures;
#[cfg(feature = "full")]
mod host;
#[cfg(feature = "full")]
mod lab;
mod output;
#[cfg(feature = "full")]
mod place;
mod probe;
#[cfg(feature = "full")]
mod report;
mod select;
#[cfg(feature = "full")]
mod sim;
#[cfg(feature = "full")]
mod vcpu;

use std::process::ExitCode;

/// What `tailbound` can do.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Forward the packets of this host's guests: meter, tag, segment, queue, pace
    #[cfg(feature = "full")]
    Host(host::Args),
    /// Check a host configuration without applying it
    #[cfg(feature = "full")]
    CheckConfig(check_config::Args),
    /// Give guests' vCPUs a class, and take it back
    #[cfg(feature = "full")]
    Vcpu(vcpu::Args),
    /// Tell from inside a guest whether its neighbours keep its CPU
    Probe(probe::Args),
    /// Choose the best of many probed nodes
    Select(select::Args),
    /// Run experiments in a data centre of network namespaces on this machine
    #[cfg(feature = "full")]
    Lab(lab::Args),
    /// Run experiments in virtual time, beside the papers' figures
    #[cfg(feature = "full")]
    Sim(sim::Args),
    /// Bound delay and backlog in a network of queues, by network calculus
    #[cfg(feature = "full")]
    Calc(calc::Args),
    /// Promise tenants bandwidth, burst and delay, and place their machines
    #[cfg(feature = "full")]
    Place(place::Args),
    /// Show and compare the results of experiments
    #[cfg(feature = "full")]
    Report(report::Args),
    /// Say what this machine can do, and how to mend what it cannot
    #[cfg(feature = "full")]
    Doctor(doctor::Args),
}

/// `EX_USAGE`: the arguments are wrong. No verdict of any command has this code.
const USAGE: u8 = 64;

/// Prints why the arguments are none, or the help or version that was asked for.
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    // A terminal that went away is no reason for another error.
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { USAGE } else { 0 })
}

impl Command {
    pub(crate) fn run(self) -> ExitCode {
        match self {
            #[cfg(feature = "full")]
            Self::Host(args) => args.run(),
            #[cfg(feature = "full")]
            Self::CheckConfig(args) => args.run(),
            #[cfg(feature = "full")]
            Self::Vcpu(args) => args.run(),
            Self::Probe(args) => args.run(),
            Self::Select(args) => args.run(),
            #[cfg(feature = "full")]
            Self::Lab(args) => args.run(),
            #[cfg(feature = "full")]
            Self::Sim(args) => args.run(),
            #[cfg(feature = "full")]
            Self::Calc(args) => args.run(),
            #[cfg(feature = "full")]
            Self::Place(args) => args.run(),
            #[cfg(feature = "full")]
            Self::Report(args) => args.run(),
            #[cfg(feature = "full")]
            Self::Doctor(args) => args.run(),
        }
    }
}
