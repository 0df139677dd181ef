//! `tailbound sim`.

mod grid;
mod net;
mod placement;
mod replay;
mod runner;

use crate::exit::{Exit, Failure};
pub(super) use grid::Merge;
pub(super) use runner::AnyNamed;
use runner::{AnyKind, Args as Of, Parallel, Share};
use tailbound_experiment::ExperimentError;
use tailbound_sim::flows::FlowsExperiment;
use tailbound_sim::grid::changed;
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
    /// Simulate tenants with data to move: acceptance and throughput
    Flows(Of<Parallel<FlowsExperiment>>),
    /// Simulate frames in queues and links, and compare delays with their bounds
    Net(net::Args),
    /// Simulate the pacer of the data path: rates, spacing, isolation
    Pacer(Of<Parallel<PacerExperiment>>),
    /// Simulate messages over TCP through switches: completion times
    Packets(Of<Parallel<PacketsExperiment>>),
    /// Simulate tenant admission: acceptance, and the cost of a decision
    Placement(Of<placement::Timed>),
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

/// The kinds whose results follow from an experiment and a seed alone.
const KINDS: [&str; 6] = ["flows", "net", "pacer", "packets", "shaper", "vcpu"];

/// Returns one of [`KINDS`], with threads according to `threads`.
fn kind(name: &str, threads: Share) -> Option<Box<dyn AnyKind>> {
    Some(match name {
        "flows" => Box::new(Parallel::<FlowsExperiment>::of(threads)),
        "net" => Box::new(Parallel::<NetExperiment>::of(threads)),
        "pacer" => Box::new(Parallel::<PacerExperiment>::of(threads)),
        "packets" => Box::new(Parallel::<PacketsExperiment>::of(threads)),
        "shaper" => Box::new(Parallel::<ShaperExperiment>::of(threads)),
        "vcpu" => Box::new(Parallel::<VcpuExperiment>::of(threads)),
        _ => return None,
    })
}

/// Reads the experiment `KIND/NAME`, one of those that come with the program, with other values for
/// some of its keys. Returns it with its text.
///
/// # Errors
/// The experiment does not exist, or it has errors.
pub(super) fn named(
    kind_and_name: &str,
    values: &toml::Table,
) -> Result<(Box<dyn AnyNamed>, String), Failure> {
    let (kind, name) = kind_and_name.split_once('/').unwrap_or(("", kind_and_name));
    let kind = match kind {
        "placement" => Box::new(placement::Timed {}),
        kind => self::kind(kind, Share::AllCpus).ok_or_else(|| ExperimentError::Unknown {
            name: kind_and_name.to_owned(),
            known: format!("{}/NAME, placement/NAME", KINDS.join("/NAME, ")),
        })?,
    };
    let mut source = kind.catalogue().source(name)?;
    if !values.is_empty() {
        source.text = changed(&source.text, values)
            .map_err(|why| Failure::new(format!("{}: {why}", source.file)))?;
    }
    Ok((kind.read(&source)?, source.text))
}
