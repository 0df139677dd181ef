//! Measurement of a guest by itself, without privilege.

use std::fs;
use std::io;
use std::thread;
use tailbound_look::inside::{Inside, Wakes};
use tailbound_sys::cgroup::{Mounts, parse_groups, parse_throttled};
use tailbound_sys::cpuset::{Cpus, affinity, set_affinity};
use tailbound_sys::procfs::{AllCpus, Reread, parse_all_cpus, parse_schedstat};
use tailbound_sys::root::Root;
use tailbound_sys::timer::{now, set_least_slack, sleep_until};
use tailbound_units::Nanos;

/// The sleep of a thread.
const SLEEP_TIME: Nanos = Nanos::from_millis(1);
/// CPUs that are looked at: the first ones.
const MAX_CPUS: usize = 64;

/// Measures for `window`.
pub fn measure(window: Nanos) -> Inside {
    let before = Counters::read();
    let wakes = wakes(now().saturating_add(window));
    Counters::read().since(before, window, wakes)
}

/// The counters of the kernel at a moment, or why one cannot be read.
struct Counters {
    cpus: Result<AllCpus, String>,
    throttled: Result<(u64, Nanos), String>,
    segments: Result<(u64, u64), String>,
}

impl Counters {
    fn read() -> Self {
        let read = |path: &str| {
            let text = fs::read_to_string(path);
            text.map_err(|error| format!("{path}: {error}"))
        };
        let cpus = read("/proc/stat").and_then(|text| {
            parse_all_cpus(&text).ok_or_else(|| "/proc/stat has no line of all CPUs".to_owned())
        });
        let segments = read("/proc/net/snmp").and_then(|text| {
            segments(&text).ok_or_else(|| "/proc/net/snmp has no such counters".to_owned())
        });
        Self {
            cpus,
            throttled: throttled(),
            segments,
        }
    }

    fn since(self, before: Self, window: Nanos, wakes: Result<Wakes, String>) -> Inside {
        let both = self.cpus.and_then(|now| Ok((now, before.cpus?)));
        let steal = both
            .clone()
            .map(|(now, then)| now.steal.saturating_sub(then.steal));
        let user = both.map(|(now, then)| {
            let all = window.0.saturating_mul(u64::from(now.count));
            (
                now.user.saturating_sub(then.user).min(Nanos(all)),
                Nanos(all),
            )
        });
        let throttled = self.throttled.and_then(|now| {
            let then = before.throttled?;
            Ok((now.0.saturating_sub(then.0), now.1.saturating_sub(then.1)))
        });
        let segments = self.segments.and_then(|now| {
            let then = before.segments?;
            Ok((now.0.saturating_sub(then.0), now.1.saturating_sub(then.1)))
        });
        Inside {
            window,
            wakes,
            steal,
            user,
            throttled,
            segments,
        }
    }
}

/// The periods in which the quota of this process's control group was used up, and for how long.
fn throttled() -> Result<(u64, Nanos), String> {
    let text = |error: io::Error| error.to_string();
    let groups = fs::read_to_string("/proc/self/cgroup").map_err(text)?;
    let mounts = Mounts::read(&Root::default()).map_err(text)?;
    let directory = mounts.directory(&parse_groups(&groups), "cpu");
    // The root of a container's view has no controllers listed for it, and its counters.
    let directory = directory.map(|(directory, _)| directory).or(mounts.unified);
    let directory = directory.ok_or("there is no control group for the CPU")?;
    let stat = fs::read_to_string(directory.join("cpu.stat")).map_err(text)?;
    if !stat.contains("nr_throttled") {
        return Err("its control group has no quota".to_owned());
    }
    let throttled = parse_throttled(&stat);
    Ok((throttled.periods, throttled.time))
}

/// The segments of TCP that were sent, and those sent again, from the text of `/proc/net/snmp`.
fn segments(snmp: &str) -> Option<(u64, u64)> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let value = |name: &str| {
        let at = names.split_whitespace().position(|it| it == name)?;
        numbers.split_whitespace().nth(at)?.parse().ok()
    };
    Some((value("OutSegs")?, value("RetransSegs")?))
}

/// The wakes of a thread on each CPU until `end`.
fn wakes(end: Nanos) -> Result<Wakes, String> {
    let allowed = affinity(0).map_err(|error| error.to_string())?;
    let cpus = (0..4_096)
        .filter(|cpu| allowed.contains(*cpu))
        .take(MAX_CPUS);
    let threads: Vec<_> = cpus
        .map(|cpu| thread::spawn(move || sleep_on(cpu, end)))
        .collect();
    let mut whole = Wakes::default();
    for thread in threads {
        let wakes = thread.join().map_err(|_| "a thread ended".to_owned())?;
        whole.join(&wakes.map_err(|error| error.to_string())?);
    }
    Ok(whole)
}

/// Sleeps and wakes on one CPU until `end`.
fn sleep_on(cpu: u32, end: Nanos) -> io::Result<Wakes> {
    // Both make the answer better, and neither is needed.
    let _ = (set_affinity(0, &Cpus::one(cpu)), set_least_slack());
    let mut schedstat = Reread::open("/proc/thread-self/schedstat")?;
    let mut queued = || -> io::Result<Nanos> {
        // A kernel that does not count has zeros: this thread never ran.
        let seen = schedstat.text()?.and_then(parse_schedstat);
        let counted = seen.filter(|(ran, _)| *ran > Nanos::ZERO);
        let wait = counted.map(|(_, wait)| wait);
        wait.ok_or_else(|| io::Error::other("the kernel does not count waits (CONFIG_SCHED_INFO)"))
    };
    sleep_until(now().saturating_add(SLEEP_TIME));
    let mut wakes = Wakes::default();
    let mut before = queued()?;
    let mut next = now().saturating_add(SLEEP_TIME);
    while next < end {
        sleep_until(next);
        let late = now().saturating_sub(next);
        let after = queued()?;
        wakes.add(late, after.saturating_sub(before));
        before = after;
        next = now().saturating_add(SLEEP_TIME);
    }
    Ok(wakes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_found_by_their_names() {
        let text = "Ip: Forwarding\nIp: 1\n\
            Tcp: RtoAlgorithm InSegs OutSegs RetransSegs InErrs\nTcp: 1 50 40 3 0\n";
        assert_eq!(segments(text), Some((40, 3)));
        assert_eq!(segments("Tcp: OutSegs RetransSegs\nTcp: 4\n"), None);
        assert_eq!(segments(""), None);
    }

    #[test]
    fn this_machine_is_looked_at_without_privilege() {
        let wakes = wakes(now().saturating_add(Nanos::from_millis(100)));
        if let Ok(wakes) = &wakes {
            assert!(wakes.count > 0);
            assert!(wakes.queued <= wakes.delay);
        }
        let counters = Counters::read();
        assert!(counters.cpus.is_ok(), "{:?}", counters.cpus);
        let inside = Counters::read().since(counters, Nanos::from_millis(100), wakes);
        assert!(!inside.sentence().is_empty());
        assert!(
            inside
                .evidence()
                .last()
                .unwrap()
                .starts_with("Not examined: ")
        );
    }
}
