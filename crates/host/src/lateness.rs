//! The lateness of a packet loop's wake-ups on this computer, now: it decides the worth of a
//! guarantee here.

use crate::config::{Config, LoopClass};
use std::fmt::Write as _;
use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};
use tailbound_sys::cpuset::{Cpus, set_affinity};
use tailbound_sys::{real_time, sched};
use tailbound_units::Nanos;

/// The number of waits: 200.
const WAIT_COUNT: u32 = 200;
/// The length of a wait: 500 us, so that all of them take 100 ms if none is late.
const WAIT_TIME: Nanos = Nanos::from_micros(500);
/// No wait begins after this time: a computer that is late by 10 ms each time has 100 of them.
const MOST_TIME: Duration = Duration::from_secs(1);

/// The lateness of the waits of a thread with the class and the CPU of the packet loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lateness {
    /// 99 of 100 ended earlier.
    pub p99: Nanos,
    /// The longest lateness.
    pub longest: Nanos,
    /// True if the thread had a real-time class.
    pub is_real_time: bool,
}

impl Lateness {
    /// The lateness here in lines, if `config` paces anything, for which it is measured.
    pub fn told(config: &Config) -> String {
        if is_paced(config) {
            Self::measure(config.loop_class, config.cpu).explain(config)
        } else {
            String::new()
        }
    }

    /// Measures for 100 ms, or longer on a late computer, on a thread made for that, without the
    /// class or the CPU if the system refuses one.
    fn measure(class: LoopClass, cpu: Option<u32>) -> Self {
        let trial = move || {
            if let Some(cpu) = cpu {
                let _ = set_affinity(0, &Cpus::one(cpu));
            }
            let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
            let own = sched::policy(0);
            let is_real_time = match class {
                LoopClass::Share => own.is_ok_and(|own| matches!(own, sched::Policy::Fifo(_))),
                LoopClass::Auto | LoopClass::Fifo => real_time::try_it().is_ok(),
            };
            let begin = Instant::now();
            let waits = (0..WAIT_COUNT).take_while(|_| begin.elapsed() < MOST_TIME);
            Self::of(is_real_time, waits.map(|_| wait()))
        };
        let ended = thread::spawn(trial).join();
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn of(is_real_time: bool, late: impl Iterator<Item = Nanos>) -> Self {
        let mut late: Vec<_> = late.collect();
        late.sort_unstable();
        let at = |share: usize| late.get((late.len() * share).div_ceil(100).saturating_sub(1));
        Self {
            p99: at(99).copied().unwrap_or_default(),
            longest: at(100).copied().unwrap_or_default(),
            is_real_time,
        }
    }

    /// The lateness in a line, and a line for each guest of `config` whose burst does not make up
    /// for it.
    fn explain(&self, config: &Config) -> String {
        let class = if self.is_real_time {
            "with a real-time class"
        } else {
            "without a real-time class (`loop_class`, `tailbound doctor`)"
        };
        let mut text = format!(
            "packet loop: wakes up to {} late on this computer now (99 of 100 times at most {}), {class}\n",
            self.longest, self.p99
        );
        for guest in &config.guests {
            let Some(guarantee) = &guest.guarantee else {
                continue;
            };
            let made_up = guarantee.bandwidth.time_for(guarantee.burst);
            if made_up < self.longest {
                // Writing to a string cannot fail.
                let _ = writeln!(
                    text,
                    "guarantee of {}: a burst of {} makes up for {made_up}: it gets less than {} when \
                     the loop is later",
                    guest.name, guarantee.burst, guarantee.bandwidth
                );
            }
        }
        text
    }
}

fn is_paced(config: &Config) -> bool {
    let uplink = config.uplink.as_ref();
    uplink.is_some_and(|uplink| uplink.pacer.is_some())
}

/// Returns the lateness of the end of a wait.
fn wait() -> Nanos {
    let begin = Instant::now();
    thread::sleep(WAIT_TIME.into());
    Nanos::from(begin.elapsed()).since(WAIT_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_percentiles_match_the_measured_waits() {
        let late = Lateness::of(true, (1..=200).rev().map(Nanos::from_micros));
        assert_eq!(late.p99, Nanos::from_micros(198));
        assert_eq!(late.longest, Nanos::from_micros(200));
    }

    #[test]
    fn a_guest_whose_burst_is_too_small_for_the_lateness_is_named() {
        let text = r#"
            [uplink]
            port = { kind = "af-packet", interface = "eth0" }
            pacer = { link = "1Gbit/s" }
            [[guest]]
            name = "small"
            mac = "02:00:00:00:00:01"
            ip = ["10.0.0.1"]
            port = { kind = "tap", interface = "tap1" }
            guarantee = { bandwidth = "100Mbit/s", burst = "15KB", burst_rate = "1Gbit/s" }
            [[guest]]
            name = "large"
            mac = "02:00:00:00:00:02"
            ip = ["10.0.0.2"]
            port = { kind = "tap", interface = "tap2" }
            guarantee = { bandwidth = "100Mbit/s", burst = "150KB", burst_rate = "1Gbit/s" }
        "#;
        let config = Config::parse(text).unwrap();
        let late = |millis| Lateness {
            p99: Nanos::from_micros(60),
            longest: Nanos::from_millis(millis),
            is_real_time: false,
        };
        let told = late(2).explain(&config);
        assert!(
            told.starts_with("packet loop: wakes up to 2ms late"),
            "{told}"
        );
        assert!(
            told.contains("guarantee of small: a burst of 15KB makes up for 1.2ms"),
            "{told}"
        );
        assert_eq!(told.lines().count(), 2, "{told}");
        assert_eq!(late(1).explain(&config).lines().count(), 1);
        assert_eq!(Lateness::told(&Config::default()), "");
        let told = Lateness::told(&config);
        assert!(told.starts_with("packet loop: wakes up to "), "{told}");
    }
}
