//! The causes that a guest can examine by itself, without privilege: the times at which its threads
//! were woken late, and its own counters. Pure.
//!
//! A thread sleeps for 1 ms again and again. A wake that is 1 ms late or more is a slow period; its
//! time is divided into the wait in the run queue of the guest's kernel and the rest, in which the
//! kernel itself did not run. Only the host can name the program that ran instead.

use crate::words::time as shown;
use std::fmt::Write as _;
use tailbound_units::Nanos;

/// A wake is late from here on.
pub const LATE_WAKE: Nanos = Nanos::from_millis(1);
/// A late wake that is worth a word by itself.
const LONG_WAKE: Nanos = Nanos::from_millis(20);
/// Late wakes are nothing to speak of below this part of the time.
const NEGLIGIBLE: u64 = 1_000;
/// A cause is named if at least this many wakes were late.
const MIN_LATE: u64 = 3;
/// Segments sent again are worth a word from one in this many on.
const ONE_IN: u64 = 100;

/// Wakes of threads that sleep for 1 ms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wakes {
    /// All wakes.
    pub count: u64,
    /// The late ones.
    pub late: u64,
    /// The time by which these were late, summed up.
    pub delay: Nanos,
    /// The longest of these.
    pub longest: Nanos,
    /// The part of `delay` in which the thread was in the run queue of this kernel.
    pub queued: Nanos,
}

impl Wakes {
    /// Counts a wake that was `late` by this time, of which it was in the run queue for `queued`.
    pub fn add(&mut self, late: Nanos, queued: Nanos) {
        self.count += 1;
        if late >= LATE_WAKE {
            self.late += 1;
            self.delay = self.delay.saturating_add(late);
            self.longest = self.longest.max(late);
            self.queued = self.queued.saturating_add(queued.min(late));
        }
    }

    /// Adds the wakes of another thread.
    pub fn join(&mut self, other: &Self) {
        self.count += other.count;
        self.late += other.late;
        self.delay = self.delay.saturating_add(other.delay);
        self.longest = self.longest.max(other.longest);
        self.queued = self.queued.saturating_add(other.queued);
    }
}

/// All that a guest measured of itself in a window; an error is the reason why a part is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inside {
    /// The length of the window.
    pub window: Nanos,
    /// Late wakes; an error if the time in the run queue is not known.
    pub wakes: Result<Wakes, String>,
    /// The time that the hypervisor reported as taken, over all CPUs.
    pub steal: Result<Nanos, String>,
    /// The time that programs of this kernel ran in user mode, and the time of all CPUs.
    pub user: Result<(Nanos, Nanos), String>,
    /// The periods in which the guest's own CPU quota was used up, and the time over all CPUs.
    pub throttled: Result<(u64, Nanos), String>,
    /// Segments of TCP: sent, and sent again.
    pub segments: Result<(u64, u64), String>,
}

/// The place of most of the delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Nothing that could be examined was slow.
    Nothing,
    /// Below this kernel: the hypervisor ran others, or interrupts had the CPU.
    Below,
    /// The run queue of this kernel, behind other threads.
    RunQueue,
    /// The guest's own CPU quota.
    Quota,
    /// Beyond the guest: segments were lost.
    Loss,
    /// A place that is not known.
    Unknown,
}

impl Place {
    /// Its stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing-slow",
            Self::Below => "below-this-kernel",
            Self::RunQueue => "run-queue",
            Self::Quota => "quota",
            Self::Loss => "loss",
            Self::Unknown => "unknown",
        }
    }
}

impl Inside {
    /// The parts of the delay that sum up to it: below this kernel, quota, run queue.
    fn parts(&self, wakes: &Wakes) -> [(Place, Nanos); 3] {
        let queued = wakes.queued.min(wakes.delay);
        let throttled = self.throttled.as_ref().map_or(Nanos::ZERO, |it| it.1);
        let quota = throttled.min(queued);
        [
            (Place::Below, wakes.delay.saturating_sub(queued)),
            (Place::Quota, quota),
            (Place::RunQueue, queued.saturating_sub(quota)),
        ]
    }

    /// The place of most of the delay.
    pub fn place(&self) -> Place {
        let is_lossy = |it: &(u64, u64)| it.1 >= MIN_LATE && it.1.saturating_mul(ONE_IN) >= it.0;
        let otherwise = if self.segments.as_ref().is_ok_and(is_lossy) {
            Place::Loss
        } else {
            Place::Nothing
        };
        let Ok(wakes) = &self.wakes else {
            return Place::Unknown;
        };
        if wakes.longest < LONG_WAKE && wakes.delay.0 < self.window.0 / NEGLIGIBLE {
            return otherwise;
        }
        let parts = self.parts(wakes);
        let largest = parts.into_iter().max_by_key(|(_, time)| *time);
        match largest {
            Some((place, time))
                if wakes.late >= MIN_LATE && time.0 >= wakes.delay.0.div_ceil(2) =>
            {
                place
            }
            _ => Place::Unknown,
        }
    }

    /// The answer in one sentence.
    pub fn sentence(&self) -> String {
        let late = self.wakes.as_ref().map_or_else(
            |_| "its threads".to_owned(),
            |it| format!("{} of its {} wakes", it.late, it.count),
        );
        let text = match self.place() {
            Place::Nothing => "nothing was slow that can be seen from inside".to_owned(),
            Place::Below => format!("{late} were late, and this kernel did not run meanwhile"),
            Place::RunQueue => format!("{late} were late, behind other threads of this kernel"),
            Place::Quota => format!("{late} were late, as its own CPU quota was used up"),
            Place::Loss => "segments were lost on their way, and sent again".to_owned(),
            Place::Unknown => "I do not know why it is slow".to_owned(),
        };
        format!("this guest: {text}.")
    }

    /// The next step.
    pub fn advice(&self) -> Option<&'static str> {
        Some(match self.place() {
            Place::Nothing => return None,
            Place::Below => "`tailbound why` on the host names the one that ran instead",
            Place::RunQueue => {
                "look at the programs of this guest; in a container the others may be the host's: \
                 `tailbound why` there names them"
            }
            Place::Quota => "raise the quota of this guest",
            Place::Loss => "look at the network; `tailbound why` on the host divides it further",
            Place::Unknown => {
                "examine it for longer (--for 10m), or run `tailbound why` on the host"
            }
        })
    }

    /// The measurements, a line each.
    pub fn evidence(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Ok(wakes) = &self.wakes {
            let mut line = format!("Late wakes: {} in {}", shown(wakes.delay), wakes.late);
            if wakes.late > 0 {
                let [below, quota, queue] = self.parts(wakes).map(|(_, time)| shown(time));
                // Writing to a String does not fail.
                let _ = write!(
                    line,
                    ", the longest {}: {below} below this kernel, {quota} quota, {queue} run queue",
                    shown(wakes.longest)
                );
            }
            lines.push(line + ".");
        }
        if let Ok(steal) = &self.steal {
            lines.push(format!("Steal: {} over all CPUs.", shown(*steal)));
        }
        if let Ok((user, all)) = &self.user {
            let percent = crate::percent(*user, *all);
            lines.push(format!(
                "Programs of this kernel ran for {percent} of the CPU time."
            ));
        }
        if let Ok((periods, time)) = &self.throttled {
            let time = shown(*time);
            lines.push(format!(
                "Quota: used up in {periods} periods, for {time} of CPU time."
            ));
        }
        if let Ok((sent, again)) = &self.segments {
            lines.push(format!("TCP: {again} of {sent} segments were sent again."));
        }
        let missing = self.unexamined();
        let missing: Vec<_> = missing
            .iter()
            .map(|(part, why)| format!("{part} ({why})"))
            .collect();
        lines.push(format!("Not examined: {}.", missing.join("; ")));
        lines
    }

    /// The parts that were not examined, and why.
    pub fn unexamined(&self) -> Vec<(&'static str, String)> {
        let parts = [
            ("late wakes", self.wakes.as_ref().err()),
            ("steal", self.steal.as_ref().err()),
            ("CPU use", self.user.as_ref().err()),
            ("quota", self.throttled.as_ref().err()),
            ("retransmissions", self.segments.as_ref().err()),
        ];
        let missing = parts.into_iter();
        let missing = missing.filter_map(|(part, why)| Some((part, why?.clone())));
        let host = "the host alone sees it".to_owned();
        missing
            .chain([("other guests and the host's queues", host)])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(late_ms: &[(u64, u64)]) -> Inside {
        let mut wakes = Wakes::default();
        for _ in 0..1_000 {
            wakes.add(Nanos::from_micros(60), Nanos::ZERO);
        }
        for (late, queued) in late_ms {
            wakes.add(Nanos::from_millis(*late), Nanos::from_millis(*queued));
        }
        Inside {
            window: Nanos::from_secs(10),
            wakes: Ok(wakes),
            steal: Ok(Nanos::ZERO),
            user: Ok((Nanos::from_secs(2), Nanos::from_secs(20))),
            throttled: Ok((0, Nanos::ZERO)),
            segments: Ok((1_000, 2)),
        }
    }

    #[test]
    fn most_of_the_delay_decides_the_place() {
        assert_eq!(inside(&[]).place(), Place::Nothing);
        assert_eq!(inside(&[(2, 0); 4]).place(), Place::Nothing);
        assert_eq!(inside(&[(8, 1); 4]).place(), Place::Below);
        assert_eq!(inside(&[(8, 7); 4]).place(), Place::RunQueue);
        let mut throttled = inside(&[(80, 80); 4]);
        throttled.throttled = Ok((4, Nanos::from_millis(300)));
        assert_eq!(throttled.place(), Place::Quota);
        // Two prove nothing.
        assert_eq!(inside(&[(80, 0); 2]).place(), Place::Unknown);
    }

    #[test]
    fn lost_segments_are_named_if_threads_were_woken_in_time() {
        let mut lossy = inside(&[]);
        lossy.segments = Ok((1_000, 10));
        assert_eq!(lossy.place(), Place::Loss);
        lossy.segments = Ok((2, 2));
        assert_eq!(lossy.place(), Place::Nothing);
    }

    #[test]
    fn a_part_that_is_missing_is_listed_with_the_reason() {
        let mut blind = inside(&[(8, 1); 4]);
        blind.wakes = Err("no schedstat".to_owned());
        blind.throttled = Err("no cgroup".to_owned());
        assert_eq!(blind.place(), Place::Unknown);
        let lines = blind.evidence();
        assert_eq!(
            lines.last().unwrap(),
            "Not examined: late wakes (no schedstat); quota (no cgroup); other guests and the \
             host's queues (the host alone sees it)."
        );
    }

    #[test]
    fn the_evidence_lines_have_the_measured_times() {
        let seen = inside(&[(8, 1); 4]);
        assert_eq!(
            seen.sentence(),
            "this guest: 4 of its 1004 wakes were late, and this kernel did not run meanwhile."
        );
        assert_eq!(
            seen.evidence()[..3],
            [
                "Late wakes: 32.0 ms in 4, the longest 8.0 ms: 28.0 ms below this kernel, 0 µs \
                 quota, 4.0 ms run queue.",
                "Steal: 0 µs over all CPUs.",
                "Programs of this kernel ran for 10.0 % of the CPU time.",
            ]
        );
    }
}
