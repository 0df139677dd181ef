//! CPU time of other programs: on the shared core, where its guests lack this time, and on all
//! CPUs, where the lab lacks it.

use crate::guest::now;
use tailbound_sys::procfs;
use tailbound_units::Nanos;

/// A reading of the shared core's CPU times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CoreUse {
    at: Nanos,
    /// CPU time of all programs on the core.
    busy: Nanos,
    /// CPU time of the core's guests.
    guests: Nanos,
}

impl CoreUse {
    /// Reads the CPU times of `cpu` and of these processes; `None` if a process has ended.
    pub(crate) fn read(cpu: u32, guests: impl Iterator<Item = u32>) -> Option<Self> {
        let mut sum = Nanos::ZERO;
        for pid in guests {
            sum += procfs::cpu_time(pid).ok()?;
        }
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        Some(Self {
            at: now(),
            busy: procfs::parse_cpu_time(&stat, cpu)?.busy,
            guests: sum,
        })
    }

    /// Returns the share of the core that other programs had until `last`; `None` if the interval
    /// is too short for the kernel's tick.
    pub(crate) fn foreign(&self, last: &Self) -> Option<f64> {
        let time = last.at.since(self.at);
        if time.as_nanos() < 50 * procfs::TICK.as_nanos() {
            return None;
        }
        let busy = last.busy.since(self.busy);
        let guests = last.guests.since(self.guests);
        Some(busy.since(guests).as_secs_f64() / time.as_secs_f64())
    }
}

/// A reading of the time that all CPUs worked, and of the lab's part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuUse {
    at: Nanos,
    all: procfs::AllCpus,
    /// Time in user mode of this process and its children.
    ours: Nanos,
}

impl CpuUse {
    /// Reads the times. `children` are the children that may still run; the times of ended children
    /// already belong to this process.
    pub(crate) fn read(children: impl Iterator<Item = u32>) -> Option<Self> {
        let own = procfs::user_time(std::process::id())?;
        let ours = children
            .filter_map(procfs::user_time)
            .fold(own, Nanos::saturating_add);
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        Some(Self {
            at: now(),
            all: procfs::parse_all_cpus(&stat)?,
            ours,
        })
    }

    /// Returns the shares of all CPUs taken until `last`; `None` if the interval is too short for
    /// the kernel's tick.
    ///
    /// Of other programs only the time in user mode counts: the kernel works for the lab's packets
    /// in interrupts and in threads of its own, which belong to no process.
    pub(crate) fn taken(&self, last: &Self) -> Option<CpusTaken> {
        let time = last.at.since(self.at);
        if time.as_nanos() < 50 * procfs::TICK.as_nanos() || last.all.count == 0 {
            return None;
        }
        let time = time.as_secs_f64() * f64::from(last.all.count);
        let user = last.all.user.since(self.all.user);
        let others = user.since(last.ours.since(self.ours));
        let stolen = last.all.steal.since(self.all.steal);
        Some(CpusTaken {
            others: others.as_secs_f64() / time,
            stolen: stolen.as_secs_f64() / time,
        })
    }
}

/// Shares of all CPUs that the lab did not have.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct CpusTaken {
    /// The share used by other programs.
    pub(crate) others: f64,
    /// The share that the hypervisor gave to other VMs.
    pub(crate) stolen: f64,
}

/// A reading of a process's CPU time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessUse {
    at: Nanos,
    used: Nanos,
}

impl ProcessUse {
    /// Reads the CPU time; `None` if the process has ended.
    pub(crate) fn read(pid: u32) -> Option<Self> {
        let used = procfs::cpu_time(pid).ok()?;
        Some(Self { at: now(), used })
    }

    /// Returns the share of a CPU that the process had until `last`, in percent.
    pub(crate) fn share(&self, last: &Self) -> f64 {
        let time = last.at.since(self.at).as_secs_f64();
        let used = last.used.since(self.used).as_secs_f64();
        if time > 0.0 { used / time * 100.0 } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_the_share_of_the_time_that_it_ran() {
        let reading = |at: u64, used: u64| ProcessUse {
            at: Nanos::from_millis(at),
            used: Nanos::from_millis(used),
        };
        let first = reading(1000, 50);
        assert!((first.share(&reading(3000, 150)) - 5.0).abs() < 1e-9);
        assert!(first.share(&first).abs() < 1e-9);
    }

    #[test]
    fn cpu_time_of_other_processes_counts_as_taken_from_the_lab() {
        let reading = |at: u64, user: u64, steal: u64, ours: u64| CpuUse {
            at: Nanos::from_millis(at),
            all: procfs::AllCpus {
                user: Nanos::from_millis(user),
                steal: Nanos::from_millis(steal),
                count: 2,
            },
            ours: Nanos::from_millis(ours),
        };
        let first = reading(0, 10_000, 500, 100);
        let taken = first.taken(&reading(1000, 11_500, 700, 600)).unwrap();
        assert!((taken.others - 0.5).abs() < 1e-9, "{taken:?}");
        assert!((taken.stolen - 0.1).abs() < 1e-9, "{taken:?}");
        // Ticks are rounded: less than nothing is nothing.
        let taken = first.taken(&reading(1000, 10_500, 500, 610));
        assert_eq!(taken, Some(CpusTaken::default()));
        assert_eq!(first.taken(&reading(499, 11_000, 500, 100)), None);
    }

    #[test]
    fn this_process_is_no_other_program() {
        let first = CpuUse::read(std::iter::empty()).unwrap();
        assert!(first.ours > Nanos::ZERO || first.all.user > Nanos::ZERO);
        assert!(first.all.count > 0);
    }

    fn reading(at: u64, busy: u64, guests: u64) -> CoreUse {
        let [at, busy, guests] = [at, busy, guests].map(Nanos::from_millis);
        CoreUse { at, busy, guests }
    }

    #[test]
    fn unattributed_time_of_the_core_counts_as_foreign() {
        let first = reading(0, 10_000, 0);
        let share = first.foreign(&reading(1000, 10_900, 650));
        assert!((share.unwrap() - 0.25).abs() < 1e-9);
        // Ticks are rounded: less than nothing is nothing.
        assert_eq!(first.foreign(&reading(1000, 10_640, 650)), Some(0.0));
        assert_eq!(first.foreign(&reading(499, 10_400, 0)), None);
    }
}
