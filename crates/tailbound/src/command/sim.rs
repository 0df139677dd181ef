//! `tailbound sim`.

mod net;
mod placement;
mod runner;

use crate::exit::{Exit, Failure};
use runner::{Args as Of, Parallel};
use tailbound_sim::pacer::PacerExperiment;
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
    /// Frames through queues and links, against their bounds
    Net(net::Args),
    /// Guests through the pacer of the data path: rates, spacing, isolation
    Pacer(Of<Parallel<PacerExperiment>>),
    /// Tenants into data centres: who is admitted, and what a decision costs
    Placement(Of<placement::Timed>),
    /// Guests through limits of the data path: media, pages, bulk
    Shaper(Of<Parallel<ShaperExperiment>>),
    /// Guests under models of hypervisors' schedulers
    Vcpu(Of<Parallel<VcpuExperiment>>),
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match self.subject {
            Subject::Net(args) => args.run(),
            Subject::Pacer(args) => args.run(),
            Subject::Placement(args) => args.run(),
            Subject::Shaper(args) => args.run(),
            Subject::Vcpu(args) => args.run(),
        }
    }
}
