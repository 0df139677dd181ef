//! The desired state of a thread.

use super::class::Class;
use super::guest::WeightBearer;
use serde::Deserialize;
use tailbound_sys::thread::ThreadId;
use tailbound_units::Nanos;

/// The desired state of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// The thread.
    pub thread: ThreadId,
    /// Its name for people, such as `web1 vcpu 0`.
    pub name: String,
    /// Its class.
    pub class: Class,
    /// Permission to widen its CPU mask if a deadline requires that.
    pub affinity: Affinity,
    /// A CPU to bring it to. A thread with a deadline may run anywhere in its root
    /// domain; it wakes where it ran last unless another deadline is there.
    pub home: Option<u32>,
    /// The bearer of the weight of its class.
    pub weighed: WeightBearer,
    /// CPU time of a thread beyond its reservation.
    pub excess: Excess,
}

impl Desired {
    /// Returns a thread's desired state if no guest and no rule sets more: its mask may be widened,
    /// it has no home and no group of its own.
    pub fn new(thread: ThreadId, class: Class) -> Self {
        Self {
            thread,
            name: format!("thread {}", thread.tid),
            class,
            affinity: Affinity::Widen,
            home: None,
            weighed: WeightBearer::Threads,
            excess: Excess::None,
        }
    }
}

/// CPU time of a thread beyond its reservation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Excess {
    /// No CPU time, even if its CPU is idle.
    #[default]
    None,
    /// The unused time of other reservations (`SCHED_FLAG_RECLAIM`), before all threads without a
    /// reservation.
    Reclaim {
        /// Longest time for which other threads may wait for it.
        longest: Nanos,
    },
}

/// Whether CPU masks may be widened where a deadline demands it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Affinity {
    /// Masks may be widened; restoring reverts that.
    #[default]
    Widen,
    /// Masks stay as they are; a deadline that needs a wider one is refused.
    Keep,
}
