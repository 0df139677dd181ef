//! Work that takes longer than it is worth: measured, and charged to the port that causes it.
//!
//! The general cost of a frame is charged by its length ([`super::work`]). A receiver can raise
//! it: a veth's receive path runs in the softirq of the sender, with all packet sockets and
//! filters that a container has there. So a clock is read before a port's burst and
//! behind it, and time beyond what the burst is worth is charged to that port. A port whose
//! frames are dear is offered fewer frames in a burst, so that others wait for one such frame
//! and not for 32.
//!
//! **Time that is not the port's.** The thread may lose its CPU amid a burst. A burst that took
//! [`SUSPECT`] times what it is worth makes its port suspected: it is charged for a bounded
//! part, and at its next bursts the thread's switches are counted as well. A burst with a switch
//! is charged as usual for that port, and not measured. Time that a hypervisor steals is seen
//! nowhere: one burst raises the usual cost to less than three times, however long it took.
//!
//! CPU time of the thread would not do: Linux does not count softirqs in it
//! (`IRQ_TIME_ACCOUNTING`), and these are what is dear.
//!
//! **Stalls.** A guest's memory may make the thread sleep: a page fault waits for a monitor that
//! punches a hole into the memory's file, or for a disk. After a burst of [`STALL`] or more the
//! port's bursts are watched for [`WATCH`], and another one during which the thread slept has the
//! port left alone for [`REST`] times the stall, if it shares memory with its guest. So a port can make all others wait for 0.5 % of
//! the time, beside the first stall.

use crate::port::BURST;
use std::fmt;
use tailbound_units::Nanos;

/// Measures the work of a switch.
pub trait Stopwatch: fmt::Debug + Send {
    /// Now, on a clock that only goes on.
    fn now(&mut self) -> Nanos;

    /// The context switches of this thread so far. Read for suspected and watched ports only.
    fn switches(&mut self) -> Switches;
}

/// Context switches of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switches {
    /// Times that it gave away its CPU, to wait for something.
    pub waits: u64,
    /// Times that it lost its CPU to another thread.
    pub losses: u64,
}

/// A burst that takes as many times what it is worth makes its port suspected.
const SUSPECT: u64 = 4;

/// Bursts of less than this are not looked at: a cache miss or an interrupt is in each.
const SHORT: Nanos = Nanos::from_micros(20);

/// Bursts for which a port stays suspected after one that was dear.
const PROBATION: u8 = 64;

/// A burst counts for at most as many times what is usual for its port.
const MAX_RATIO: u64 = 8;

/// A burst of this or more is a stall, if the thread slept in it.
const STALL: Nanos = Nanos::from_millis(10);

/// The time for which all bursts of a port are watched after such a burst.
const WATCH: Nanos = Nanos::from_secs(600);

/// A port that stalled the thread is left alone for this multiple of the stall.
const REST: u64 = 200;

/// The consequences of a burst that took longer than it is worth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Excess {
    /// The charge beyond the burst's worth.
    pub(super) charge: Nanos,
    /// The time for which the port is left alone.
    pub(super) rest: Nanos,
}

/// A burst that is being measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lap {
    begin: Nanos,
    /// The thread's switches by then, for a port that is suspected or watched.
    switches: Option<Switches>,
}

/// Measurements of one direction of a port.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Timing {
    /// Bursts for which it is still suspected.
    suspected: u8,
    /// The usual time for a frame, while the port is suspected.
    usual: Nanos,
    /// The moment until which the port is watched for stalls.
    watched: Nanos,
}

impl Timing {
    /// Begins to measure a burst.
    pub(super) fn begin(self, stopwatch: &mut dyn Stopwatch) -> Lap {
        let begin = stopwatch.now();
        let is_watched = self.suspected > 0 || begin < self.watched;
        Lap {
            switches: is_watched.then(|| stopwatch.switches()),
            begin,
        }
    }

    /// Ends a burst of `frames` that was charged as `worth` of work.
    pub(super) fn end(
        &mut self,
        lap: Lap,
        stopwatch: &mut dyn Stopwatch,
        frames: u64,
        worth: Nanos,
    ) -> Excess {
        let now = stopwatch.now();
        let took = now.since(lap.begin);
        let switches = lap.switches.map(|before| (before, stopwatch.switches()));
        Excess {
            rest: self.judge_stall(now, took, switches),
            charge: self.judge_cost(took, switches, frames.max(1), worth),
        }
    }

    /// Returns the time for which the port is left alone.
    fn judge_stall(
        &mut self,
        now: Nanos,
        took: Nanos,
        switches: Option<(Switches, Switches)>,
    ) -> Nanos {
        if took < STALL {
            return Nanos::ZERO;
        }
        self.watched = now + WATCH;
        if switches.is_some_and(|(before, after)| after.waits > before.waits) {
            Nanos(took.0.saturating_mul(REST))
        } else {
            Nanos::ZERO
        }
    }

    /// Returns the additional charge for a burst.
    fn judge_cost(
        &mut self,
        took: Nanos,
        switches: Option<(Switches, Switches)>,
        frames: u64,
        worth: Nanos,
    ) -> Nanos {
        let is_dear = took >= SHORT && took.0 > worth.0.saturating_mul(SUSPECT);
        let Some((before, after)) = switches.filter(|_| self.suspected > 0) else {
            if !is_dear {
                return Nanos::ZERO;
            }
            // It may be the thread's CPU that was taken: that much is charged, and no more.
            self.suspected = PROBATION;
            self.usual = Nanos(worth.0 / frames);
            return Nanos(worth.0.saturating_mul(SUSPECT - 1));
        };
        let usual = Nanos(self.usual.0.saturating_mul(frames));
        let counted = if before == after {
            let most = usual.max(worth).0.saturating_mul(MAX_RATIO);
            let counted = Nanos(took.0.min(most));
            self.usual = Nanos((3 * self.usual.0 + counted.0 / frames) / 4);
            if is_dear {
                self.suspected = PROBATION;
            } else {
                self.suspected -= 1;
            }
            counted
        } else {
            usual
        };
        counted.saturating_sub(worth)
    }

    /// Most frames of a burst, out of a share of `quantum`.
    pub(super) fn most_frames(self, quantum: Nanos) -> usize {
        if self.suspected == 0 {
            return BURST;
        }
        let most = quantum.0 / self.usual.0.max(1);
        most.clamp(1, BURST as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stopwatch in virtual time.
    #[derive(Debug, Default)]
    struct Watch {
        now: Nanos,
        switches: Switches,
        /// Number of reads of `switches`.
        asked: u64,
    }

    impl Stopwatch for Watch {
        fn now(&mut self) -> Nanos {
            self.now
        }
        fn switches(&mut self) -> Switches {
            self.asked += 1;
            self.switches
        }
    }

    const WORTH: Nanos = Nanos::from_micros(4);
    const QUANTUM: Nanos = Nanos::from_micros(160);

    /// Measures a burst of a frame that takes so long, in which the thread lost its CPU or not;
    /// returns what it is charged for beyond its worth.
    fn burst(timing: &mut Timing, watch: &mut Watch, took: Nanos, lost: bool) -> Nanos {
        let lap = timing.begin(watch);
        watch.now += took;
        watch.switches.losses += u64::from(lost);
        timing.end(lap, watch, 1, WORTH).charge
    }

    #[test]
    fn a_costly_port_is_charged_in_full_and_gets_single_frame_bursts() {
        let (mut timing, mut watch) = (Timing::default(), Watch::default());
        assert_eq!(timing.most_frames(QUANTUM), BURST);
        let dear = Nanos::from_micros(700);
        let charged: Vec<_> = (0..40)
            .map(|_| burst(&mut timing, &mut watch, dear, false).0)
            .collect();
        assert!(charged.is_sorted(), "{charged:?}");
        assert_eq!(charged[39], (dear - WORTH).0);
        assert_eq!(charged[8], (dear - WORTH).0, "within nine bursts");
        assert_eq!(timing.most_frames(QUANTUM), 1);
        // It comes back, once it is as cheap as others for a while.
        for _ in 0..PROBATION {
            burst(&mut timing, &mut watch, WORTH, false);
        }
        assert_eq!(timing.most_frames(QUANTUM), BURST);
    }

    #[test]
    fn a_port_of_normal_cost_is_never_charged() {
        let (mut timing, mut watch) = (Timing::default(), Watch::default());
        for _ in 0..1000 {
            let charged = burst(&mut timing, &mut watch, Nanos::from_micros(15), false);
            assert_eq!(charged, Nanos::ZERO);
        }
        assert_eq!(watch.asked, 0);
    }

    #[test]
    fn a_thread_that_loses_its_cpu_costs_a_port_next_to_nothing() {
        let (mut timing, mut watch) = (Timing::default(), Watch::default());
        let mut charged = Nanos::ZERO;
        for n in 0..1000 {
            let lost = n % 10 == 5;
            let took = if lost { Nanos::from_millis(4) } else { WORTH };
            charged += burst(&mut timing, &mut watch, took, lost);
        }
        // 400 ms were lost.
        assert!(charged < Nanos::from_micros(200), "{charged:?}");
        assert!(timing.most_frames(QUANTUM) >= BURST);
    }

    #[test]
    fn time_that_a_hypervisor_steals_is_charged_for_a_bounded_part() {
        let (mut timing, mut watch) = (Timing::default(), Watch::default());
        let mut charged = Nanos::ZERO;
        for n in 0..1000 {
            let took = if n % 100 == 5 {
                Nanos::from_millis(4)
            } else {
                WORTH
            };
            charged += burst(&mut timing, &mut watch, took, false);
        }
        // 40 ms were stolen.
        assert!(charged < Nanos::from_millis(2), "{charged:?}");
    }

    #[test]
    fn a_port_that_is_costly_at_times_is_charged_by_its_probation() {
        let (mut timing, mut watch) = (Timing::default(), Watch::default());
        let dear = Nanos::from_micros(700);
        let mut charged = Nanos::ZERO;
        for n in 0..1000 {
            let took = if n % 4 == 0 { dear } else { WORTH };
            charged += burst(&mut timing, &mut watch, took, false);
        }
        let all = Nanos(250 * dear.0);
        assert!(charged.0 * 10 > all.0, "{charged:?} of {all:?}");
    }
    /// Measures a burst in which the thread slept; returns the rest of the port.
    fn sleep(timing: &mut Timing, watch: &mut Watch, took: Nanos) -> Nanos {
        let lap = timing.begin(watch);
        watch.now += took;
        watch.switches.waits += 1;
        timing.end(lap, watch, 1, WORTH).rest
    }

    #[test]
    fn a_port_that_stalls_the_thread_again_is_left_alone_for_200_times_as_long() {
        let (mut timing, mut watch) = (Timing::default(), Watch::default());
        let stall = Nanos::from_millis(300);
        assert_eq!(sleep(&mut timing, &mut watch, stall), Nanos::ZERO);
        // Also long after its probation.
        let behave = |timing: &mut Timing, watch: &mut Watch| {
            for _ in 0..1000 {
                burst(timing, watch, WORTH, false);
            }
        };
        behave(&mut timing, &mut watch);
        assert_eq!(sleep(&mut timing, &mut watch, stall), Nanos::from_secs(60));
        // A thread that lost its CPU did not sleep, and ten minutes later nothing is known.
        let charged = burst(&mut timing, &mut watch, stall, true);
        assert!(charged <= WORTH, "{charged:?}");
        behave(&mut timing, &mut watch);
        watch.now += Nanos::from_secs(601);
        assert_eq!(sleep(&mut timing, &mut watch, stall), Nanos::ZERO);
    }
}
