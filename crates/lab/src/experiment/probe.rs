//! The probe as a load, and the neighbours that it must detect.

use serde::Deserialize;
use tailbound_experiment::Name;
use tailbound_units::Nanos;

/// Guests that compute for a part of each period, like cpulimit.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Duty {
    /// Name.
    pub(crate) name: Name,
    /// Guests; each runs one.
    pub(crate) guests: Vec<Name>,
    /// CPU time wanted per period.
    pub(crate) busy: Nanos,
    /// Period.
    pub(crate) period: Nanos,
    /// Keeps the core for this time (`SCHED_FIFO`).
    #[serde(default)]
    pub(crate) uninterrupted: bool,
    /// Value of all guests' share of a core, in percent.
    pub(crate) value: String,
}

/// `tailbound probe` in a guest, up to its verdict.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Probe {
    /// Name.
    pub(crate) name: Name,
    /// The guest.
    pub(crate) guest: Name,
    /// Environment of the probe.
    pub(crate) place: Surroundings,
    /// Most sleeps to the verdict.
    pub(crate) samples: u64,
    /// Most late sleeps of a GOOD node; more than five times as many are BAD.
    pub(crate) low_mark: u64,
    /// Time limit of the probe.
    pub(crate) time_limit: Nanos,
    /// Series of sleeps.
    pub(crate) series: String,
}

/// Environment of the probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Surroundings {
    /// A process on this computer's kernel, as in a container.
    Process,
    /// A virtual machine with a kernel of its own.
    Machine,
}

impl Probe {
    /// Names of the values that it measures beside its series.
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

    /// Returns the arguments of `tailbound probe`.
    pub(crate) fn args(&self) -> Vec<String> {
        [
            format!("--samples={}", self.samples),
            format!("--low-mark={}", self.low_mark),
            format!("--time-limit={}", self.time_limit),
        ]
        .into()
    }
}
