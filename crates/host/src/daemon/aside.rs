//! CPU time of the packet loop's work beside packets, which delays packets.
//!
//! The unit is CPU time of the loop's thread. If the system preempts the thread, packets wait
//! longer; the thread's `schedstat` shows that.

use crate::metrics::AsideTimes;
use rustix::time::{ClockId, clock_gettime};
use tailbound_units::Nanos;

/// The CPU time of turns in which the loop did something beside packets.
#[derive(Default)]
pub(super) struct Aside {
    times: AsideTimes,
    /// The start of the current turn, if that is counted.
    began: Option<Nanos>,
    /// True after the first turn. The first turn looks at every port and belongs to the start.
    has_begun: bool,
}

impl Aside {
    /// Begins a turn, which is counted if `counts` is set, except for the first turn. Counting
    /// costs two system calls.
    pub(super) fn begin(&mut self, counts: bool) {
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        self.began = (counts && has_begun).then(cpu_time);
    }

    /// Ends the turn.
    pub(super) fn end(&mut self) {
        if let Some(began) = self.began.take() {
            self.times.record(cpu_time().since(began));
        }
    }

    /// Returns all times so far.
    pub(super) fn times(&self) -> AsideTimes {
        self.times.clone()
    }
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Nanos {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    Nanos(seconds * 1_000_000_000 + nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_work_turns_are_counted_except_the_first() {
        let mut aside = Aside::default();
        for counts in [true, true, false, true] {
            aside.begin(counts);
            aside.end();
        }
        aside.end();
        let times = aside.times();
        assert_eq!(times.turns.count(), 2);
        assert!(times.longest <= times.turns.sum());
    }

    #[test]
    fn a_threads_time_passes_while_it_runs() {
        let start = cpu_time();
        while cpu_time() == start {}
    }
}
