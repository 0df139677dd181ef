//! Nodes that run `tailbound probe serve`, and workflows of calls to them (Bobtail, 5.2 and 5.3):
//! among all nodes, or among those that `tailbound select` keeps.

use serde::{Deserialize, Serialize};
use tailbound_experiment::Name;
use tailbound_units::Nanos;

/// The called guests, and their caller.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    /// Calling guest.
    pub client: Name,
    /// Called guests.
    pub guests: Vec<Name>,
}

/// `tailbound probe` on all nodes during the warm-up, and `tailbound select` of its reports: in a
/// variant with a selection, workflows call kept nodes only.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// Name, for variants.
    pub name: Name,
    /// Nodes to keep.
    pub keep: usize,
    /// Length of each sleep.
    pub sleep: Nanos,
    /// Maximum of sleeps until the verdict.
    pub samples: u64,
    /// Largest number of late sleeps of a GOOD node; more than five times this number is BAD.
    pub low_mark: u64,
}

/// Workflows of `tailbound probe workflows` to a group of nodes, one after the other, for the
/// experiment's duration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workflow {
    /// Name, for variants.
    pub name: Name,
    /// Pattern of calls.
    pub kind: Pattern,
    /// Drawn nodes, of all or of the kept ones.
    pub group: usize,
    /// Calls per second: workflows begin at this rate as fan-outs, and at a tenth of it as
    /// sequences of ten calls.
    pub rate: u32,
    /// Series of the workflows' durations.
    pub series: String,
}

/// Pattern of a workflow's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One node at random, ten times, one call after the other.
    Sequential,
    /// All nodes of the group in parallel.
    FanOut,
}

impl Nodes {
    /// TCP port of the nodes.
    pub(crate) const PORT: u16 = 7413;
}

impl Selection {
    /// Names of its values: the number of GOOD nodes, of kept nodes, and of kept nodes on the
    /// shared core.
    pub(crate) const VALUES: [&'static str; 3] = ["found_good", "kept", "kept_on_shared_core"];

    /// Returns the total length of a node's sleeps.
    pub(crate) fn time(&self) -> Nanos {
        Nanos(self.sleep.as_nanos().saturating_mul(self.samples))
    }

    /// Returns the part of the warm-up in which the probes begin, one after the other: programs
    /// that all start together delay each other. The same time remains at the end of the warm-up,
    /// because each sleep is slightly longer than requested.
    pub(crate) fn spread(&self, warmup: Nanos) -> Nanos {
        Nanos(warmup.since(self.time()).as_nanos() / 2)
    }

    /// Returns the arguments of `tailbound probe` with this time limit.
    pub(crate) fn args(&self, time_limit: Nanos) -> Vec<String> {
        [
            format!("--sleep={}", self.sleep),
            format!("--samples={}", self.samples),
            format!("--low-mark={}", self.low_mark),
            format!("--time-limit={time_limit}"),
        ]
        .into()
    }
}

impl Workflow {
    /// Returns the arguments of `tailbound probe workflows`, except for the nodes.
    pub(crate) fn args(&self, duration: Nanos, seed: u64) -> Vec<String> {
        let only = match self.kind {
            Pattern::Sequential => "sequential",
            Pattern::FanOut => "fan-out",
        };
        [
            format!("--only={only}"),
            format!("--groups={}", self.group),
            format!("--rates={}", self.rate),
            format!("--duration={duration}"),
            format!("--seed={seed}"),
        ]
        .into()
    }
}
