//! Nodes that run `tailbound probe serve`, and workflows of calls to them (Bobtail, 5.2 and 5.3):
//! among all nodes, or among those that `tailbound select` keeps.

use super::{LabExperiment, Variant};
use serde::{Deserialize, Serialize};
use tailbound_experiment::Name;
use tailbound_units::Nanos;

/// Called guests and their caller.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nodes {
    /// Calling guest.
    pub(crate) client: Name,
    /// Called guests.
    pub(crate) guests: Vec<Name>,
}

/// A selection of nodes by `tailbound select`, from `tailbound probe` during the warm-up.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Selection {
    /// Name.
    pub(crate) name: Name,
    /// Kept nodes.
    pub(crate) keep: usize,
    /// Length of a sleep.
    pub(crate) sleep: Nanos,
    /// Most sleeps to the verdict.
    pub(crate) samples: u64,
    /// Most late sleeps of a GOOD node; more than five times as many are BAD.
    pub(crate) low_mark: u64,
}

/// Workflows of calls to nodes (`tailbound probe workflows`), one after the other.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Workflow {
    /// Name.
    pub(crate) name: Name,
    /// Pattern of calls.
    pub(crate) kind: Pattern,
    /// Drawn nodes, of all or the kept ones.
    pub(crate) group: usize,
    /// Fan-outs per second; sequences have a tenth.
    pub(crate) rate: u32,
    /// Series of durations.
    pub(crate) series: String,
}

/// Pattern of a workflow's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pattern {
    /// One node at random, ten times, one call after the other.
    Sequential,
    /// All nodes of the group in parallel.
    FanOut,
}

impl LabExperiment {
    /// Returns the time in which samples count: each workflow has the experiment's duration, in
    /// turn.
    pub(crate) fn counted_time(&self, variant: &Variant) -> Nanos {
        let workflows = variant.running(&self.workflow).count();
        Nanos(self.duration.as_nanos() * workflows.max(1) as u64)
    }
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
