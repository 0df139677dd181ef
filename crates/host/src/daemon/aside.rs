//! What the packet loop does beside packets, and how long a packet may have to wait for it.
//!
//! Counted in CPU time of its thread: what the loop itself takes. The system may take the
//! CPU away from it as well; who wants to see that looks at the thread's `schedstat`.

use crate::metrics::AsideTimes;
use rustix::time::{ClockId, clock_gettime};
use tailbound_units::Nanos;

/// The CPU time of turns in which the loop did something beside packets.
#[derive(Default)]
pub(super) struct Aside {
    times: AsideTimes,
    /// When the turn under way began, where it is such a one.
    began: Option<Nanos>,
    /// There was a turn: the first, which looks at every port, is that of the start.
    has_begun: bool,
}

impl Aside {
    /// A turn begins, which is to be counted if `counts`: each costs two system calls. The
    /// first is not.
    pub(super) fn begin(&mut self, counts: bool) {
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        self.began = (counts && has_begun).then(cpu_time);
    }

    /// The turn ends.
    pub(super) fn end(&mut self) {
        if let Some(began) = self.began.take() {
            self.times.record(cpu_time().since(began));
        }
    }

    /// All of them so far.
    pub(super) fn times(&self) -> AsideTimes {
        self.times.clone()
    }
}

/// How long this thread has run.
fn cpu_time() -> Nanos {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    Nanos(seconds * 1_000_000_000 + nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_that_count_are_counted_but_the_first() {
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
