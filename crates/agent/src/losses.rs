//! Measures steal and interrupt time of CPUs: at a stretch, and in the long run.

use super::class::{Bandwidth, CPU};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use tailbound_sys::cpuset::Cpus;
use tailbound_sys::procfs::{LostCpuTime, TICK, parse_taken};
use tailbound_units::Nanos;

/// Over how long a rate is measured: an error of one [`TICK`] is a thousandth of it.
const LONG_RUN: Nanos = Nanos::from_secs(10);

/// A kernel's method to count interrupt time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterruptTime {
    /// Timed by a clock (`CONFIG_IRQ_TIME_ACCOUNTING`).
    Timed,
    #[default]
    /// Sampled as one tick for each interrupt that a tick met: the length of single stretches is
    /// unknown.
    Sampled,
}

/// The largest steal and interrupt times so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LargestLosses {
    /// Interrupt time at a stretch, the part that is certain. `/proc/stat` counts in [`TICK`]s, so
    /// one more tick is possible.
    pub interrupts: Nanos,
    /// Steal time at a stretch, the largest possible value; zero without steal.
    pub steal: Nanos,
    /// Time of both in 10 s or longer, on the CPU that lost most.
    pub long_run: LongRun,
}

/// Long-run usage of one CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LongRun {
    /// Number of the CPU.
    pub cpu: u32,
    /// Share of interrupts.
    pub interrupts: Bandwidth,
    /// Steal time.
    pub steal: Bandwidth,
}

impl LongRun {
    /// Returns what was taken in all, in thousandths of the CPU, rounded up.
    #[must_use]
    pub const fn thousandths(&self) -> u64 {
        (self.interrupts.0 + self.steal.0)
            .saturating_mul(1000)
            .div_ceil(CPU)
    }

    const fn share(&self) -> Bandwidth {
        Bandwidth(self.interrupts.0 + self.steal.0)
    }
}

impl fmt::Display for LongRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CPU {} lost {} of its time to interrupts and {} to steal",
            self.cpu, self.interrupts, self.steal
        )
    }
}

/// Measures stretches beyond a long-run share: the stated one, or the usage of a CPU over ten
/// seconds if that is larger. Steal uses its part of the share, interrupts the rest.
#[derive(Debug, Clone)]
pub struct Meter {
    counted: InterruptTime,
    stated: Bandwidth,
    start: Option<Nanos>,
    cpus: BTreeMap<u32, Buckets>,
    most: LargestLosses,
}

/// The backlog of usage of one CPU, which drains by its share.
#[derive(Debug, Clone, Default)]
struct Buckets {
    interrupts: Nanos,
    steal: Nanos,
    /// Readings since the last measurement of the rate, with their times.
    readings: Vec<(Nanos, LostCpuTime)>,
}

impl Meter {
    /// A meter beside `stated` of each CPU.
    #[must_use]
    pub fn new(counted: InterruptTime, stated: Bandwidth) -> Self {
        Self {
            counted,
            stated,
            start: None,
            cpus: BTreeMap::new(),
            most: LargestLosses::default(),
        }
    }

    /// Returns the share that it was made for.
    #[must_use]
    pub const fn stated(&self) -> Bandwidth {
        self.stated
    }

    /// Adds a reading at `now` for `cpus`; returns the maximum since the first reading. Usage
    /// counts after 10 s, since only the rate determines which part came at a stretch.
    pub fn read(&mut self, now: Nanos, text: &str, cpus: &Cpus) -> LargestLosses {
        for losses in parse_taken(text) {
            if cpus.contains(losses.cpu) {
                let of = self.cpus.entry(losses.cpu).or_default();
                of.readings.push((now, losses));
            }
        }
        let start = *self.start.get_or_insert(now);
        if now.since(start) >= LONG_RUN {
            self.start = Some(now);
            self.close();
        }
        self.most
    }

    fn close(&mut self) {
        let rates: Vec<_> = self.cpus.values().map(Buckets::rate).collect();
        let worst = rates.iter().chain([&self.most.long_run]);
        let worst = worst.max_by_key(|rate| rate.share().0).copied();
        self.most.long_run = worst.unwrap_or_default();
        let share = self.stated.max(self.most.long_run.share());
        for (of, rate) in self.cpus.values_mut().zip(rates) {
            of.drain(self.counted, share, rate.interrupts, &mut self.most);
        }
    }
}

impl Buckets {
    /// Returns at what rate time was taken over all readings.
    fn rate(&self) -> LongRun {
        let [Some((from, first)), Some((to, last))] = [self.readings.first(), self.readings.last()]
        else {
            return LongRun::default();
        };
        let over = u128::from(to.since(*from).0.max(1));
        let rate = |last: Nanos, first: Nanos| {
            let taken = u128::from(last.saturating_sub(first).0) * u128::from(CPU);
            Bandwidth(
                u64::try_from(taken.div_ceil(over))
                    .unwrap_or(u64::MAX)
                    .min(CPU),
            )
        };
        LongRun {
            cpu: last.cpu,
            interrupts: rate(last.interrupts, first.interrupts),
            steal: rate(last.steal, first.steal),
        }
    }

    /// Takes all readings but the last; `evenly` is the rate of interrupts that are only sampled.
    fn drain(
        &mut self,
        counted: InterruptTime,
        share: Bandwidth,
        evenly: Bandwidth,
        most: &mut LargestLosses,
    ) {
        for pair in self.readings.windows(2) {
            let [(before, first), (at, last)] = pair else {
                continue;
            };
            let passed = at.since(*before);
            let steal = last.steal.saturating_sub(first.steal);
            let interrupts = match counted {
                InterruptTime::Timed => last.interrupts.saturating_sub(first.interrupts),
                InterruptTime::Sampled => part(passed, evenly),
            };
            // Interrupts may have come evenly; steal that may have come right now counts whole.
            let drained = part(passed, share);
            let of_steal = match counted {
                InterruptTime::Timed => self.steal.min(drained),
                InterruptTime::Sampled => self.steal.min(drained.saturating_sub(interrupts)),
            };
            self.steal = self.steal.saturating_sub(of_steal).saturating_add(steal);
            self.interrupts = self.interrupts.saturating_add(interrupts);
            let left = drained.saturating_sub(of_steal);
            self.interrupts = self.interrupts.saturating_sub(left);
            let certain = self.interrupts.saturating_sub(TICK);
            most.interrupts = most.interrupts.max(certain);
            if self.steal > Nanos::ZERO {
                most.steal = most.steal.max(self.steal.saturating_add(TICK));
            }
        }
        let read = self.readings.len().saturating_sub(1);
        self.readings.drain(..read);
    }
}

/// A share of a time, rounded down.
fn part(time: Nanos, share: Bandwidth) -> Nanos {
    let part = u128::from(time.0) * u128::from(share.0) / u128::from(CPU);
    Nanos(u64::try_from(part).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::InterruptTime::{Sampled, Timed};
    use super::*;

    fn stat(interrupts: u64, steal: u64) -> String {
        format!("cpu0 0 0 0 0 0 {interrupts} 0 {steal}\ncpu9 0 0 0 0 0 {interrupts} 0 {steal}\n")
    }

    /// Reads CPU 0 once a second, whose counters are `counters(second)`.
    fn read(
        meter: &mut Meter,
        seconds: std::ops::RangeInclusive<u64>,
        counters: impl Fn(u64) -> (u64, u64),
    ) -> LargestLosses {
        let mut measured = LargestLosses::default();
        for second in seconds {
            let (interrupts, steal) = counters(second);
            let now = Nanos::from_secs(second);
            measured = meter.read(now, &stat(interrupts, steal), &Cpus::one(0));
        }
        measured
    }

    fn rates(measured: LargestLosses) -> (String, String) {
        let LongRun {
            interrupts, steal, ..
        } = measured.long_run;
        (interrupts.to_string(), steal.to_string())
    }

    const TWENTIETH: Bandwidth = Bandwidth(CPU / 20);
    const SIXTEENTH: Bandwidth = Bandwidth(CPU / 16);

    #[test]
    fn interrupts_have_all_of_the_share_that_steal_does_not_use() {
        let mut alone = Meter::new(Timed, TWENTIETH);
        let measured = read(&mut alone, 0..=100, |second| (5 * second, 0));
        assert_eq!(measured.interrupts, Nanos::ZERO);
        let mut beside = Meter::new(Timed, TWENTIETH);
        let measured = read(&mut beside, 0..=100, |second| (3 * second, 2 * second));
        assert_eq!(measured.interrupts, Nanos::ZERO);
        // 20 ms each second, and what the reading may lack.
        assert_eq!(measured.steal, Nanos::from_millis(30));
        assert_eq!(rates(measured), ("0.03".into(), "0.02".into()));
        assert_eq!(measured.long_run.thousandths(), 51, "rounded up");
    }

    #[test]
    fn steady_interrupt_load_counts_as_a_rate_and_not_as_a_burst() {
        let mut meter = Meter::new(Timed, TWENTIETH);
        let measured = read(&mut meter, 0..=50, |second| (9 * second, 0));
        assert_eq!(measured.interrupts, Nanos::ZERO);
        assert_eq!(rates(measured), ("0.09".into(), "0".into()));
        assert_eq!(measured.long_run.cpu, 0);
        // It stays the most, whatever comes.
        let later = read(&mut meter, 51..=100, |_| (450, 0));
        assert_eq!(later, measured);
    }

    #[test]
    fn a_burst_of_interrupts_counts_as_a_burst_and_not_as_a_rate() {
        let mut meter = Meter::new(Timed, SIXTEENTH);
        // Ten ticks in one second, of which one is the error of the reading and 62.5 ms its share.
        let burst = |second| (if second < 4 { 7 } else { 17 }, 0);
        assert_eq!(read(&mut meter, 0..=9, burst), LargestLosses::default());
        let measured = read(&mut meter, 10..=10, burst);
        assert_eq!(measured.interrupts, Nanos::from_micros(27_500));
        assert_eq!(rates(measured), ("0.01".into(), "0".into()));
    }

    #[test]
    fn sampled_interrupt_ticks_count_as_no_burst() {
        let burst = |second| (if second < 4 { 7 } else { 37 }, 0);
        let measured = read(&mut Meter::new(Sampled, SIXTEENTH), 0..=10, burst);
        assert_eq!(measured.interrupts, Nanos::ZERO);
        assert_eq!(rates(measured), ("0.03".into(), "0".into()));
        let timed = read(&mut Meter::new(Timed, SIXTEENTH), 0..=10, burst);
        assert_eq!(timed.interrupts, Nanos::from_micros(227_500));
    }

    #[test]
    fn steal_takes_the_share_that_sampled_interrupts_leave() {
        // 30 ms of 50 are the interrupts' each second; 100 ms of steal, then a second later 10
        // more.
        let counters = |second: u64| (3 * second, if second < 2 { 0 } else { 8 + second });
        let measured = read(&mut Meter::new(Sampled, TWENTIETH), 0..=3, counters);
        assert_eq!(measured, LargestLosses::default(), "not yet");
        let measured = read(&mut Meter::new(Sampled, TWENTIETH), 0..=10, |second| {
            counters(second.min(3))
        });
        // 9 ticks of interrupts in 10 s leave 41 of 50 ms each second.
        assert_eq!(measured.steal, Nanos::from_millis(110));
        let steady = |second: u64| (3 * second, 3 * second);
        let measured = read(&mut Meter::new(Sampled, TWENTIETH), 0..=60, steady);
        assert_eq!(measured.steal, Nanos::from_millis(40));
        assert_eq!(rates(measured), ("0.03".into(), "0.03".into()));
    }

    #[test]
    fn steal_is_measured_whole_plus_one_tick() {
        let mut meter = Meter::new(Timed, TWENTIETH);
        // 50 ms a second go away; what was before it was looked at does not count.
        let steal = |second| {
            (
                0,
                [1000, 1000, 1003, 1005, 1015][usize::try_from(second).unwrap_or(4).min(4)],
            )
        };
        let measured = read(&mut meter, 0..=10, steal);
        assert_eq!(measured.steal, Nanos::from_millis(110));
        let none = read(&mut Meter::new(Timed, TWENTIETH), 0..=10, |_| (0, 1000));
        assert_eq!(none.steal, Nanos::ZERO);
    }
}
