//! Nodes that `tailbound probe serve` runs on, and workflows of calls to them (Bobtail, 5.2 and
//! 5.3): among all, or among those that `tailbound select` keeps.

use serde::{Deserialize, Serialize};
use tailbound_experiment::Name;
use tailbound_units::Nanos;

/// The guests that are called, and the one that calls them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    /// Who calls.
    pub client: Name,
    /// Who is called.
    pub guests: Vec<Name>,
}

/// `tailbound probe` on all nodes while the load warms up, and `tailbound select` of what it found:
/// in a variant with this the workflows are to nodes that are kept.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// What variants call it.
    pub name: Name,
    /// How many nodes are wanted.
    pub keep: usize,
    /// How long each sleep is.
    pub sleep: Nanos,
    /// How many sleeps decide at most.
    pub samples: u64,
    /// With so many late sleeps at most a node is GOOD, with more than five times as many BAD.
    pub low_mark: u64,
}

/// Workflows of `tailbound probe workflows` to a group of nodes, for the experiment's duration.
/// Those of a variant run one after the other.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workflow {
    /// What variants call it.
    pub name: Name,
    /// What they call.
    pub kind: Pattern,
    /// How many nodes are drawn, of all or of those that are kept.
    pub group: usize,
    /// How many calls a second there are to begin workflows for: as many fan-outs, a tenth as many
    /// sequences, each of ten calls.
    pub rate: u32,
    /// The series of how long they take.
    pub series: String,
}

/// What workflows call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One node at random, ten times, one call after the other.
    Sequential,
    /// All nodes of the group at once.
    FanOut,
}

impl Nodes {
    /// Where they serve.
    pub(crate) const PORT: u16 = 7413;
}

impl Selection {
    /// How many nodes were found GOOD, how many were kept, and how many of those are on the shared
    /// core.
    pub(crate) const VALUES: [&'static str; 3] = ["found_good", "kept", "kept_on_shared_core"];

    /// How long nodes sleep.
    pub(crate) fn time(&self) -> Nanos {
        Nanos(self.sleep.as_nanos().saturating_mul(self.samples))
    }

    /// In how much of the warm-up they begin, one after the other: programs that all start at once
    /// hold each other up. As much is left at its end, as each sleep takes a little longer.
    pub(crate) fn spread(&self, warmup: Nanos) -> Nanos {
        Nanos(warmup.since(self.time()).as_nanos() / 2)
    }

    /// The arguments of `tailbound probe` that may take so long.
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
    /// The arguments of `tailbound probe workflows`, but for the nodes.
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
