//! `tailbound sim`.

mod net;
mod placement;
mod replay;
mod runner;

use crate::exit::{Exit, Failure};
pub(super) use runner::AnyNamed;
use runner::{Args as Of, Named, Parallel};
use tailbound_experiment::ExperimentError;
use tailbound_sim::flows::FlowsExperiment;
use tailbound_sim::net::NetExperiment;
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
    /// Tenants with data to move: who is accepted, and what the network carries
    Flows(Of<Parallel<FlowsExperiment>>),
    /// Frames through queues and links, against their bounds
    Net(net::Args),
    /// Guests through the pacer of the data path: rates, spacing, isolation
    Pacer(Of<Parallel<PacerExperiment>>),
    /// Messages over TCP through switches: how long they take
    Packets(Of<Parallel<PacketsExperiment>>),
    /// Tenants into data centres: who is admitted, and what a decision costs
    Placement(Of<placement::Timed>),
    /// Send what was recorded at a host again: what its tail would have been
    Replay(replay::Args),
    /// Guests through limits of the data path: media, pages, bulk
    Shaper(Of<Parallel<ShaperExperiment>>),
    /// Guests under models of hypervisors' schedulers
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
            Subject::Shaper(args) => args.run(),
            Subject::Vcpu(args) => args.run(),
        }
    }
}

/// Reads the experiment `KIND/NAME`, one of those that come with the program.
///
/// # Errors
/// There is none, or it has mistakes.
pub(super) fn named(kind_and_name: &str) -> Result<Box<dyn AnyNamed>, ExperimentError> {
    let (kind, name) = kind_and_name.split_once('/').unwrap_or(("", kind_and_name));
    Ok(match kind {
        "flows" => Box::new(Named::new(name, Parallel::<FlowsExperiment>::all())?),
        "net" => Box::new(Named::new(name, Parallel::<NetExperiment>::all())?),
        "pacer" => Box::new(Named::new(name, Parallel::<PacerExperiment>::all())?),
        "packets" => Box::new(Named::new(name, Parallel::<PacketsExperiment>::all())?),
        "placement" => Box::new(Named::new(name, placement::Timed {})?),
        "shaper" => Box::new(Named::new(name, Parallel::<ShaperExperiment>::all())?),
        "vcpu" => Box::new(Named::new(name, Parallel::<VcpuExperiment>::all())?),
        _ => {
            return Err(ExperimentError::Unknown {
                name: kind_and_name.to_owned(),
                known:
                    "flows/NAME, net/NAME, pacer/NAME, packets/NAME, placement/NAME, shaper/NAME, \
                        vcpu/NAME"
                        .to_owned(),
            });
        }
    })
}
