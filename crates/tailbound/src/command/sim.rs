//! `tailbound sim`.

mod grid;
mod net;
mod placement;
mod replay;
mod runner;

use crate::exit::{Exit, Failure};
pub(super) use grid::Merge;
pub(super) use placement::ThisComputer;
#[cfg(feature = "advise")]
pub(super) use replay::guest;
use runner::{Args as Of, Parallel};
use tailbound_sim::flows::FlowsExperiment;
use tailbound_sim::pacer::PacerExperiment;
use tailbound_sim::packets::PacketsExperiment;
use tailbound_sim::shaper::ShaperExperiment;
use tailbound_sim::vcpu::VcpuExperiment;

/// Arguments of `tailbound sim`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, clap::Subcommand)]
enum Subject {
    /// Simulate tenants with data to move: acceptance and throughput
    Flows(Of<Parallel<FlowsExperiment>>),
    /// Simulate frames in queues and links, and compare delays with their bounds
    Net(net::Args),
    /// Simulate the pacer of the data path: rates, spacing, isolation
    Pacer(Of<Parallel<PacerExperiment>>),
    /// Simulate messages over TCP through switches: completion times
    Packets(Of<Parallel<PacketsExperiment>>),
    /// Simulate tenant admission: acceptance, and the cost of a decision
    Placement(Of<placement::PlacementSimulation>),
    /// Replay a capture of a host through the data path, and show the tail latency
    Replay(replay::Args),
    /// Run a grid: an experiment with varied values and several seeds
    Run(grid::Run),
    /// Simulate rate limits of the data path: media, web pages, bulk
    Shaper(Of<Parallel<ShaperExperiment>>),
    /// Simulate guests under models of hypervisor schedulers
    Vcpu(Of<Parallel<VcpuExperiment>>),
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match self.subject {
            Subject::Flows(args) => args.run(),
            Subject::Net(args) => args.run(),
            Subject::Pacer(args) => args.run(),
            Subject::Packets(args) => args.run(),
            Subject::Placement(args) => args.run(),
            Subject::Replay(args) => args.run(),
            Subject::Run(args) => args.run(),
            Subject::Shaper(args) => args.run(),
            Subject::Vcpu(args) => args.run(),
        }
    }
}
