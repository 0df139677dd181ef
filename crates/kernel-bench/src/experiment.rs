//! The experiments, by name.

mod classes;
mod cost;
mod departures;
mod edge;
mod look;
mod queue;
mod stages;
mod tap;
mod waits;

use crate::Outcome;
use crate::analysis::Sorted;
use crate::figures::{Figures, Unit};
use crate::load::awake;
use crate::network;

/// An experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Experiment {
    /// Spacing, rate and burst of frames behind `tbf`, and lateness behind `fq`.
    Departures,
    /// Instructions a frame, by path and payload.
    Cost,
    /// Frames through a TAP that vhost-net holds, both ways.
    Tap,
    /// Waits of a thread for a CPU beside a thread that never sleeps.
    Waits,
    /// Wake-up latency of a thread by its scheduling class, with ticks and with timers.
    Classes,
    /// Instructions that the programs of `tailbound why` add.
    Look,
    /// The data path of programs on interfaces: cost, burst and lateness.
    Edge,
    /// Buckets of destinations before a guarantee: waits of small messages beside bulk.
    Stages,
    /// The BPF qdisc beside `fq`: cost, burst, and waits of small messages beside bulk.
    Queue,
}

impl Experiment {
    /// All of them, in the order of their documentation.
    pub(crate) const ALL: [Self; 9] = [
        Self::Departures,
        Self::Cost,
        Self::Tap,
        Self::Waits,
        Self::Classes,
        Self::Look,
        Self::Edge,
        Self::Stages,
        Self::Queue,
    ];

    /// Name on the command line, and first part of the names of its figures.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Departures => "departures",
            Self::Cost => "cost",
            Self::Tap => "tap",
            // The loads of this one and the next keep the CPU awake.
            Self::Waits => "waits",
            Self::Classes => "classes",
            Self::Look => "look",
            Self::Edge => "edge",
            Self::Stages => "stages",
            Self::Queue => "queue",
        }
    }

    /// The experiment of a name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Runs it. Interfaces, namespaces and queues that it makes stay.
    pub(crate) fn run(self, figures: &mut Figures) -> Outcome<()> {
        network::silence()?;
        match self {
            Self::Departures => awake(|| departures::run(figures)),
            Self::Cost => awake(|| cost::run(figures)),
            Self::Tap => awake(|| tap::run(figures)),
            Self::Waits => waits::run(figures),
            Self::Classes => classes::run(figures),
            Self::Look => awake(|| look::run(figures)),
            Self::Edge => awake(|| edge::run(figures)),
            Self::Stages => awake(|| stages::run(figures)),
            Self::Queue => awake(|| queue::run(figures)),
        }
    }
}

/// Adds quantiles of times.
fn add_quantiles(figures: &mut Figures, name: &str, values: Vec<u64>) -> Outcome<()> {
    let sorted = Sorted::new(values).ok_or("nothing to take quantiles of")?;
    for (quantile, per_mille) in [("p50", 500), ("p99", 990), ("max", 1000)] {
        let value = sorted.quantile(per_mille);
        figures.add(format!("{name}.{quantile}"), value, Unit::Nanos);
    }
    Ok(())
}
