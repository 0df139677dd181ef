//! The probe as a load, and the neighbours it is to find.

use serde::Deserialize;
use tailbound_experiment::Name;
use tailbound_units::Nanos;

/// Guests that compute for a part of each period, as cpulimit makes programs do.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Duty {
    /// What variants call it.
    pub name: Name,
    /// The guests; each runs one.
    pub guests: Vec<Name>,
    /// CPU time that it wants in each period.
    pub busy: Nanos,
    /// The period.
    pub period: Nanos,
    /// Whether nobody gets the core before it has had that (`SCHED_FIFO`): so it
    /// is beside a hypervisor that does not preempt who woke last.
    #[serde(default)]
    pub uninterrupted: bool,
    /// The value of the share of a core that all of them got, in percent.
    pub value: String,
}

/// `tailbound probe` in a guest, until its verdict.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// What variants call it.
    pub name: Name,
    /// The guest.
    pub guest: Name,
    /// What the guest is.
    pub place: Surroundings,
    /// How many sleeps decide at most.
    pub samples: u64,
    /// With so many late sleeps at most the node is GOOD, with more than five
    /// times as many BAD.
    pub low_mark: u64,
    /// When it gives up.
    pub time_limit: Nanos,
    /// The series of how long its sleeps took.
    pub series: String,
}

/// What the probe runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Surroundings {
    /// A process under this machine's kernel, as in a container.
    Process,
    /// A virtual machine with a kernel of its own.
    Machine,
}

impl Probe {
    /// What it measures beside its series.
    pub(crate) const VALUES: [&'static str; 8] = [
        "good",
        "bad",
        "late",
        "ours",
        "stolen",
        "unexplained",
        "time_to_verdict",
        "probe_cpu",
    ];

    /// The arguments of `tailbound probe`.
    pub(crate) fn args(&self) -> Vec<String> {
        [
            format!("--samples={}", self.samples),
            format!("--low-mark={}", self.low_mark),
            format!("--time-limit={}", self.time_limit),
        ]
        .into()
    }
}
