//! The wait of a tenant's frames before a port.

use super::Interval;
use tailbound_units::Nanos;

/// The longest wait of a tenant's frames before a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Wait {
    /// The sum of the queues' capacities, with the lateness J of a host with departure times.
    pub(crate) time: Nanos,
    /// True if some of the frames come from a host with departure times, whose guarantees are as
    /// exact as its timers.
    pub(crate) late: bool,
}

impl Wait {
    /// Returns the wait behind one more queue.
    pub(crate) fn after(self, capacity: Nanos) -> Self {
        Self {
            time: self.time + capacity,
            ..self
        }
    }

    /// Returns the longest wait of frames of either wait.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            time: self.time.max(other.time),
            late: self.late || other.late,
        }
    }
}

/// A wait for queues alone.
impl From<Nanos> for Wait {
    fn from(time: Nanos) -> Self {
        Self { time, late: false }
    }
}

/// Waits between two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waits {
    pub(crate) times: Interval<Nanos>,
    pub(crate) late: Interval<bool>,
}

impl Waits {
    /// Returns the waits of one alone.
    pub(crate) const fn point(wait: Wait) -> Self {
        Self {
            times: Interval::point(wait.time),
            late: Interval::point(wait.late),
        }
    }

    /// Returns the least waits with all of both.
    pub(crate) fn hull(self, other: Self) -> Self {
        Self {
            times: self.times.hull(other.times),
            late: self.late.hull(other.late),
        }
    }
}

/// Waits for queues alone.
impl From<Interval<Nanos>> for Waits {
    fn from(times: Interval<Nanos>) -> Self {
        Self {
            times,
            late: Interval::point(false),
        }
    }
}
