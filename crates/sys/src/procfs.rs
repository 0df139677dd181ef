//! Lost time in `/proc`: steal, run-queue wait, load.
//!
//! The parsers are pure and accept any text; the readers around them do the I/O.

use crate::root::Root;
use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::PathBuf;
use tailbound_units::Nanos;

/// Time for which one CPU was ready to run but the hypervisor ran others, since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steal {
    /// The CPU.
    pub cpu: u32,
    /// The total. The kernel counts nanoseconds but shows whole ticks of
    /// [`TICK`], so this is up to one tick behind.
    pub total: Nanos,
}

/// The unit of times in `/proc/stat`: `USER_HZ` is 100 on every Linux
/// architecture this runs on.
pub const TICK: Nanos = Nanos::from_millis(10);

/// Returns the steal time of each CPU in the text of `/proc/stat`.
pub fn parse_steal(stat: &str) -> Vec<Steal> {
    let cpu_line = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let cpu = fields.next()?.strip_prefix("cpu")?.parse().ok()?;
        // user nice system idle iowait irq softirq steal
        let ticks: u64 = fields.nth(7)?.parse().ok()?;
        Some(Steal {
            cpu,
            total: Nanos(ticks.saturating_mul(TICK.as_nanos())),
        })
    };
    stat.lines().filter_map(cpu_line).collect()
}

/// Time of one CPU since boot, in whole ticks of [`TICK`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTime {
    /// The time for threads, guests and interrupts.
    pub busy: Nanos,
    /// The time for which it was ready to run while the hypervisor ran others; `None` before Linux
    /// 2.6.11.
    pub steal: Option<Nanos>,
}

/// Returns the time of one CPU, from the text of `/proc/stat`.
pub fn parse_cpu_time(stat: &str, cpu: u32) -> Option<CpuTime> {
    let mut lines = stat.lines().filter_map(|line| line.strip_prefix("cpu"));
    let times = lines.find_map(|line| {
        let (number, times) = line.split_once(' ')?;
        (number.parse() == Ok(cpu)).then_some(times)
    })?;
    let mut ticks = [None; 8];
    for (slot, field) in ticks.iter_mut().zip(times.split_ascii_whitespace()) {
        *slot = Some(field.parse().ok()?);
    }
    let [user, nice, system, _idle, _iowait, irq, softirq, steal] = ticks;
    let time = |ticks: u64| Nanos(ticks.saturating_mul(TICK.as_nanos()));
    let computing = [
        user?,
        nice?,
        system?,
        irq.unwrap_or(0),
        softirq.unwrap_or(0),
    ];
    Some(CpuTime {
        busy: time(computing.into_iter().fold(0, u64::saturating_add)),
        steal: steal.map(time),
    })
}

/// The time of all CPUs together, since boot, in whole ticks of [`TICK`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllCpus {
    /// Time in user mode, with any nice value, guests of this system included.
    pub user: Nanos,
    /// Time that the hypervisor below gave to others.
    pub steal: Nanos,
    /// The number of CPUs.
    pub count: u32,
}

/// Returns the time of all CPUs together, from the text of `/proc/stat`.
pub fn parse_all_cpus(stat: &str) -> Option<AllCpus> {
    let lines = || stat.lines().filter_map(|line| line.strip_prefix("cpu"));
    let sum = lines().find(|line| line.starts_with(' '))?;
    let ticks: Vec<u64> = sum
        .split_ascii_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    let time = |ticks: u64| Nanos(ticks.saturating_mul(TICK.as_nanos()));
    // user nice system idle iowait irq softirq steal
    Some(AllCpus {
        user: time(ticks.first()?.saturating_add(*ticks.get(1)?)),
        steal: time(*ticks.get(7)?),
        count: u32::try_from(lines().count() - 1).ok()?,
    })
}

/// Returns the time in user mode of a process and of its children that have ended and were waited
/// for, in whole ticks of [`TICK`], from the text of `/proc/PID/stat`.
pub fn parse_user_time(stat: &str) -> Option<Nanos> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let own: u64 = fields.nth(11)?.parse().ok()?;
    let of_children: u64 = fields.nth(1)?.parse().ok()?;
    let ticks = own.saturating_add(of_children);
    Some(Nanos(ticks.saturating_mul(TICK.as_nanos())))
}

/// Returns [`parse_user_time`] of a process; `None` if it is gone.
pub fn user_time(pid: u32) -> Option<Nanos> {
    parse_user_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Time of one CPU that no thread could use, since boot, in whole ticks of [`TICK`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostCpuTime {
    /// The CPU.
    pub cpu: u32,
    /// The time that interrupts took, soft ones included.
    pub interrupts: Nanos,
    /// The time that the hypervisor took.
    pub steal: Nanos,
}

/// Returns the lost time of each CPU, from the text of `/proc/stat`.
pub fn parse_taken(stat: &str) -> Vec<LostCpuTime> {
    let of_cpu = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let cpu = fields.next()?.strip_prefix("cpu")?.parse().ok()?;
        // user nice system idle iowait irq softirq steal
        let mut time = |skipped| {
            let ticks: u64 = fields.nth(skipped)?.parse().ok()?;
            Some(Nanos(ticks.saturating_mul(TICK.as_nanos())))
        };
        Some(LostCpuTime {
            cpu,
            interrupts: time(5)?.saturating_add(time(0)?),
            steal: time(0)?,
        })
    };
    stat.lines().filter_map(of_cpu).collect()
}

/// Returns the time that a thread ran so far, and the time that it waited in a run queue, from the
/// text of `/proc/PID/task/TID/schedstat`.
pub fn parse_schedstat(schedstat: &str) -> Option<(Nanos, Nanos)> {
    let run = schedstat.split_ascii_whitespace().next()?.parse().ok()?;
    Some((Nanos(run), parse_run_delay(schedstat)?))
}

/// Returns the time that a thread waited in a run queue while it could have run, from the text of
/// `/proc/PID/task/TID/schedstat` ("run wait slices", nanoseconds).
pub fn parse_run_delay(schedstat: &str) -> Option<Nanos> {
    let wait = schedstat.split_ascii_whitespace().nth(1)?;
    wait.parse().ok().map(Nanos)
}

/// Returns the start time of a process, in ticks since boot, from the text of `/proc/PID/stat`.
/// With the process id it identifies one process for good.
pub fn parse_start_time(stat: &str) -> Option<u64> {
    // The name in parentheses may hold anything, parentheses included.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Returns the state of a thread ('R' is running or runnable, 'S' sleeps, 'T' is stopped), from the
/// text of `/proc/PID/task/TID/stat`.
pub fn parse_state(stat: &str) -> Option<char> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.trim_start().chars().next()
}

/// Returns the CPU on which a thread runs or ran last, from the text of `/proc/PID/task/TID/stat`.
pub fn parse_processor(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(36)?.parse().ok()
}

/// Returns the start time of a process, [`parse_start_time`]; `None` if it is gone.
pub fn start_time(pid: u32) -> Option<u64> {
    parse_start_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Returns the threads of a process.
pub fn threads(pid: u32) -> io::Result<Vec<u32>> {
    numbers_in(PathBuf::from(format!("/proc/{pid}/task")))
}

/// Returns the CPU time that the threads of a process have used so far.
pub fn cpu_time(pid: u32) -> io::Result<Nanos> {
    let mut total = Nanos::ZERO;
    for thread in threads(pid)? {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat"))?;
        // "run wait slices", nanoseconds.
        let run = text.split_ascii_whitespace().next();
        total += Nanos(run.and_then(|run| run.parse().ok()).unwrap_or(0));
    }
    Ok(total)
}

/// Returns all processes, in the order of their numbers.
pub fn processes(root: &Root) -> io::Result<Vec<u32>> {
    let mut processes = numbers_in(root.path("/proc"))?;
    processes.sort_unstable();
    Ok(processes)
}

fn numbers_in(directory: PathBuf) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        if let Some(number) = entry?.file_name().to_str().and_then(|n| n.parse().ok()) {
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// Returns the value of a variable in the environment with which a process was started; `None` if
/// it has none, is gone, or is not accessible.
pub fn environment_variable(pid: u32, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    environment
        .split(|byte| *byte == 0)
        .filter_map(|entry| std::str::from_utf8(entry).ok())
        .find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
        .map(str::to_owned)
}

/// A file of `/proc` that is read repeatedly.
#[derive(Debug)]
pub struct Reread {
    file: fs::File,
    buffer: Vec<u8>,
}

impl Reread {
    /// Opens the file.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        Ok(Self {
            file: fs::File::open(path.into())?,
            buffer: vec![0; 16 << 10],
        })
    }

    /// Returns its present text, at most the first 16 KiB; `None` once the process it belongs to is
    /// gone.
    pub fn text(&mut self) -> io::Result<Option<&str>> {
        match rustix::io::pread(&self.file, &mut self.buffer[..], 0) {
            Ok(length) => Ok(Some(utf8_prefix(&self.buffer[..length]))),
            Err(Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn utf8_prefix(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()])
            .expect("the error has the length of the valid part"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_column_of_each_cpu_and_not_of_the_sum() {
        let stat = "cpu  1 2 3 4 5 6 7 99 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu12 0 0 0 0 0 0 0 3\nintr 5 cpu3\n";
        let steal = |cpu, ms| Steal {
            cpu,
            total: Nanos::from_millis(ms),
        };
        assert_eq!(parse_steal(stat), [steal(0, 80), steal(12, 30)]);
    }

    #[test]
    fn all_cpus_together_compute_for_programs_of_any_nice_value() {
        let stat = "cpu  10 20 3 4 5 6 7 8 9 9\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu12 0 0 0 0 0 0 0 3\nintr 5 cpu3\n";
        let all = AllCpus {
            user: Nanos::from_millis(300),
            steal: Nanos::from_millis(80),
            count: 2,
        };
        assert_eq!(parse_all_cpus(stat), Some(all));
        for damaged in ["", "cpu0 1 2 3\n", "cpu  1 2 3\ncpu0 1 2 3\n"] {
            assert_eq!(parse_all_cpus(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn the_time_in_user_mode_has_that_of_children_that_have_ended() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4 1 1 0 0 15 99 30 99 20 0 1 0 555";
        assert_eq!(parse_user_time(stat), Some(Nanos::from_millis(450)));
        assert_eq!(parse_user_time("7 (a) S 1"), None);
        let own = user_time(std::process::id());
        assert!(own.is_some());
    }

    #[test]
    fn interrupt_and_steal_times_are_read_per_cpu() {
        let stat =
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\nintr 5\ncpu3 1 1 1 1 1 0 0 0\n";
        let taken = |cpu, interrupts, steal| LostCpuTime {
            cpu,
            interrupts: Nanos::from_millis(interrupts),
            steal: Nanos::from_millis(steal),
        };
        assert_eq!(parse_taken(stat), [taken(0, 130, 80), taken(3, 0, 0)]);
        assert_eq!(parse_taken("cpu0 1 2 3\n"), []);
    }

    #[test]
    fn a_cpu_is_busy_with_all_but_idling_waiting_and_steal() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu1 1 2 3 400 500 4 5 6 7 8\ncpu11 1 1 1 1\n";
        let time = |busy, steal: Option<u64>| CpuTime {
            busy: Nanos::from_millis(busy),
            steal: steal.map(Nanos::from_millis),
        };
        assert_eq!(parse_cpu_time(stat, 1), Some(time(150, Some(60))));
        assert_eq!(parse_cpu_time(stat, 11), Some(time(30, None)));
        assert_eq!(parse_cpu_time(stat, 0), None);
        assert_eq!(parse_cpu_time("cpu0 1 2\n", 0), None);
        assert_eq!(parse_cpu_time("cpu0 1 2 3 x 5 6 7 8\n", 0), None);
        assert_eq!(parse_schedstat("5 6 7"), Some((Nanos(5), Nanos(6))));
        assert_eq!(parse_schedstat("5"), None);
    }

    #[test]
    fn a_process_whose_name_holds_parentheses_has_a_start_time() {
        let fields = (4..=52).map(|n| n.to_string()).collect::<Vec<_>>();
        let stat = format!("7 (a) b)) S {}", fields.join(" "));
        assert_eq!(parse_start_time(&stat), Some(22));
        assert_eq!(parse_state(&stat), Some('S'));
        assert_eq!(parse_processor(&stat), Some(39));
    }

    #[test]
    fn text_of_another_shape_is_no_figure() {
        assert_eq!(parse_run_delay(""), None);
        assert_eq!(parse_run_delay("12 x 3"), None);
        assert_eq!(parse_run_delay("12 34 3\n"), Some(Nanos(34)));
        assert_eq!(parse_start_time("1 (x) S 1"), None);
        assert_eq!(parse_steal("cpu0 1 2 3\ncpux 1 2 3 4 5 6 7 8\n"), []);
    }

    #[test]
    fn this_process_is_found_with_its_thread_and_start_time() {
        let pid = std::process::id();
        assert!(processes(&Root::default()).unwrap().contains(&pid));
        assert!(threads(pid).unwrap().contains(&pid));
        assert!(start_time(pid).is_some());
        let mut schedstat = Reread::open(format!("/proc/{pid}/schedstat")).unwrap();
        assert!(parse_run_delay(schedstat.text().unwrap().unwrap()).is_some());
    }
}
