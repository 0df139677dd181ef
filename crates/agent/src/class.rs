//! Scheduling classes, and levels that stand for them.

use serde::{Deserialize, Serialize};
use std::fmt;
use tailbound_sys::cgroup::WeightKind;
use tailbound_sys::sched::Deadline;
use tailbound_sys::thread::{PolicyNumber, Scheduling};
use tailbound_units::Nanos;

/// The scheduling class of a guest's threads: a kernel policy and its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "kebab-case",
    deny_unknown_fields,
    expecting = "a table with a `kind`, such as { kind = \"aperiodic\" }, or `level` in its place \
                 (normal, high, top)"
)]
pub enum Class {
    /// Settings from before the agent's change.
    Normal,
    /// A short slice and a large share, for guests that mostly sleep.
    Aperiodic(Aperiodic),
    /// A reservation (`SCHED_DEADLINE`): `runtime` per `period` and no more, by `deadline` after a
    /// wake-up.
    Periodic(Periodic),
    /// `SCHED_FIFO`: above all proportional shares, below reservations. For the host's packet loop
    /// only (path), since a guest that never sleeps would starve the host.
    #[serde(skip_deserializing)]
    RealTime,
}

/// The priority of [`Class::RealTime`]: any is before all proportional shares, and behind the
/// threads that serve interrupts (50).
pub const REAL_TIME_PRIORITY: u32 = 3;

/// The parameters of [`Class::Aperiodic`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Aperiodic {
    /// Time slice, 0.1 to 100 ms; 0.1 ms. Needs Linux 6.12; earlier kernels apply only the weight.
    pub slice: Nanos,
    /// Multiple of the default share, 1 to 100; 10.
    pub weight: u32,
}

impl Aperiodic {
    /// The range to which `sched_setattr(2)` clamps a slice.
    pub const SLICES: std::ops::RangeInclusive<Nanos> =
        Nanos::from_micros(100)..=Nanos::from_millis(100);
    /// Above this kernel threads of a busy host would wait too long.
    pub const MAX_WEIGHT: u32 = 100;

    /// Returns the nice value whose weight is nearest: each step is a factor of 1.25.
    pub fn nice(&self) -> i32 {
        let steps = f64::from(self.weight.max(1)).ln() / 1.25f64.ln();
        -(steps.round().min(20.0) as i32)
    }

    /// Returns the weight of a control group with this share.
    pub fn group_weight(&self, kind: WeightKind) -> u64 {
        (kind.default_weight() * u64::from(self.weight)).min(kind.max())
    }
}

impl Default for Aperiodic {
    /// Measured beside five hogs on one core (`docs/reference/vcpu.md`): a larger weight
    /// helps little more, and a guest that ran away would leave the others less.
    fn default() -> Self {
        Self {
            slice: Nanos::from_micros(100),
            weight: 10,
        }
    }
}

/// The parameters of [`Class::Periodic`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Periodic {
    /// CPU time per period.
    pub runtime: Nanos,
    /// Time from a wake-up by which the thread has its runtime.
    pub deadline: Nanos,
    /// Period.
    pub period: Nanos,
}

impl Periodic {
    /// Returns what it reserves of one CPU, in units of 2^-20 as the kernel counts.
    pub fn bandwidth(&self) -> u64 {
        bandwidth(self.runtime, self.period)
    }
}

impl From<&Scheduling> for Periodic {
    /// Returns the class of a thread with a deadline.
    fn from(scheduling: &Scheduling) -> Self {
        let Scheduling {
            runtime,
            deadline,
            period,
            ..
        } = *scheduling;
        Self {
            runtime,
            deadline,
            period,
        }
    }
}

impl From<Periodic> for Deadline {
    fn from(periodic: Periodic) -> Self {
        let Periodic {
            runtime,
            deadline,
            period,
        } = periodic;
        Self {
            runtime,
            deadline,
            period,
        }
    }
}

/// One CPU, in the kernel's unit of bandwidth: 2^-20 of it.
pub const CPU: u64 = 1 << 20;

/// A part of the machine's CPUs, in units of 2^-20 of one. In configurations it is a number
/// of CPUs, such as `1.5`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "f64")]
pub struct Bandwidth(pub u64);

impl TryFrom<f64> for Bandwidth {
    type Error = String;
    fn try_from(cpus: f64) -> Result<Self, String> {
        if (0.0..=4096.0).contains(&cpus) {
            return Ok(Self((cpus * CPU as f64).round() as u64));
        }
        Err(format!("{cpus} CPUs cannot be; use 0 to 4096"))
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thousandths = (self.0 as f64 * 1000.0 / CPU as f64).round() / 1000.0;
        write!(f, "{thousandths}")
    }
}

impl std::str::FromStr for Bandwidth {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let cpus: f64 = text
            .parse()
            .map_err(|_| format!("{text:?} is no number of CPUs"))?;
        cpus.try_into()
    }
}

/// Returns the bandwidth that a thread has reserved: zero without a deadline.
pub fn reserved(scheduling: &Scheduling) -> u64 {
    if scheduling.is_deadline() {
        bandwidth(scheduling.runtime, scheduling.period)
    } else {
        0
    }
}

/// Returns `runtime / period` in units of 2^-20, rounded down as the kernel does.
pub fn bandwidth(runtime: Nanos, period: Nanos) -> u64 {
    if period.0 == 0 {
        return 0;
    }
    let ratio = u128::from(runtime.0) * u128::from(CPU) / u128::from(period.0);
    u64::try_from(ratio).unwrap_or(u64::MAX)
}

/// A class without numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// [`Class::Normal`].
    Normal,
    /// [`Class::Aperiodic`] with its defaults: for guests that answer.
    High,
    /// [`Class::Periodic`] with 1 ms in 4 ms: for a guest that must run on time beside any load,
    /// and needs less than a quarter of a CPU for each vCPU.
    Top,
}

impl Level {
    /// Every level, lowest first.
    pub const ALL: [Self; 3] = [Self::Normal, Self::High, Self::Top];

    /// Returns the class that it stands for.
    pub fn class(self) -> Class {
        match self {
            Self::Normal => Class::Normal,
            Self::High => Class::Aperiodic(Aperiodic::default()),
            Self::Top => Class::Periodic(Periodic {
                runtime: Nanos::from_millis(1),
                deadline: Nanos::from_millis(4),
                period: Nanos::from_millis(4),
            }),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Normal => "normal",
            Self::High => "high",
            Self::Top => "top",
        })
    }
}

impl Class {
    /// Returns its name in configurations and metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Aperiodic(_) => "aperiodic",
            Self::Periodic(_) => "periodic",
            Self::RealTime => "real-time",
        }
    }

    /// Returns the class of a guest's other threads if its vCPUs have this class and the rule has
    /// no other. Reservations for many helpers would use up the host, so helpers get
    /// [`Class::Aperiodic`] instead.
    #[must_use]
    pub fn for_helpers(&self) -> Self {
        match self {
            Self::Periodic(_) => Self::Aperiodic(Aperiodic::default()),
            Self::RealTime => Self::Normal,
            other => *other,
        }
    }

    /// Returns what is impossible about its parameters on any kernel and what would be
    /// right, each with the parameter's name.
    pub fn mistakes(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Normal | Self::RealTime => Vec::new(),
            Self::Aperiodic(aperiodic) => aperiodic.mistakes(),
            Self::Periodic(periodic) => periodic.mistakes(),
        }
    }
}

impl Aperiodic {
    fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if !Self::SLICES.contains(&self.slice) {
            wrong.push((
                "slice",
                format!(
                    "a slice of {} is outside of what the kernel takes; use {} to {}",
                    self.slice,
                    Self::SLICES.start(),
                    Self::SLICES.end()
                ),
            ));
        }
        if !(1..=Self::MAX_WEIGHT).contains(&self.weight) {
            wrong.push((
                "weight",
                format!(
                    "a weight of {} times the default is out of range; use 1 to {}",
                    self.weight,
                    Self::MAX_WEIGHT
                ),
            ));
        }
        wrong
    }
}

impl Periodic {
    /// The shortest runtime the kernel takes.
    pub const SHORTEST: Nanos = Nanos(1024);

    fn mistakes(&self) -> Vec<(&'static str, String)> {
        let Self {
            runtime,
            deadline,
            period,
        } = *self;
        let mut wrong = Vec::new();
        if runtime < Self::SHORTEST {
            wrong.push((
                "runtime",
                format!(
                    "a runtime of {runtime} is too short for the kernel; use at least {}",
                    Self::SHORTEST
                ),
            ));
        }
        if runtime > deadline {
            wrong.push((
                "runtime",
                format!(
                    "a runtime of {runtime} cannot be over by a deadline of {deadline}; use a \
                     runtime of at most {deadline}, or a later deadline"
                ),
            ));
        }
        if deadline > period {
            wrong.push((
                "deadline",
                format!(
                    "a deadline of {deadline} is later than the period of {period}; use at most \
                     {period}"
                ),
            ));
        }
        wrong
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal => f.pad("normal"),
            Self::Aperiodic(Aperiodic { slice, weight }) => {
                write!(f, "aperiodic slice {slice} weight {weight}")
            }
            Self::Periodic(Periodic {
                runtime,
                deadline,
                period,
            }) => write!(f, "periodic {runtime}/{deadline}/{period}"),
            Self::RealTime => f.pad("real-time"),
        }
    }
}

/// The parts of a class that a kernel and a guest support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Support {
    /// True if a thread can have its own time slice.
    pub(crate) slices: bool,
    /// True if the thread has the weight, since its guest has no group.
    pub(crate) nice: bool,
    /// True if the agent may revert everything, the flag for children included.
    pub(crate) privileged: bool,
}

/// Returns what `class` makes of a thread that was scheduled as `before`; `None` when
/// that stays as it was.
pub(crate) fn target(class: &Class, before: &Scheduling, support: Support) -> Option<Scheduling> {
    // A thread that the guest's own threads start must not inherit this: it has
    // no reservation of its own, and is found and given its class soon enough.
    // Only the privileged can take the flag away again.
    let flags = if support.privileged {
        before.flags | Scheduling::RESET_ON_FORK
    } else {
        before.flags
    };
    match class {
        Class::Normal => None,
        Class::Aperiodic(aperiodic) => Some(Scheduling {
            policy: PolicyNumber::NORMAL,
            flags,
            nice: match aperiodic.weight {
                2.. if support.nice => aperiodic.nice(),
                // Its own nice value; a reservation has none.
                _ if before.is_share() => before.nice,
                _ => 0,
            },
            runtime: if support.slices {
                aperiodic.slice
            } else {
                Nanos::ZERO
            },
            ..Scheduling::PLAIN
        }),
        Class::Periodic(periodic) => Some(Scheduling {
            policy: PolicyNumber::DEADLINE,
            flags,
            runtime: periodic.runtime,
            deadline: periodic.deadline,
            period: periodic.period,
            ..Scheduling::PLAIN
        }),
        Class::RealTime => Some(Scheduling {
            policy: PolicyNumber::FIFO,
            flags,
            priority: REAL_TIME_PRIORITY,
            ..Scheduling::PLAIN
        }),
    }
}
