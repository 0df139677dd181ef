//! CPU quotas of control groups (`cpu.max`, `cpu.cfs_quota_us`), and the number of throttlings.
//! Quotas only concern proportional shares: a thread with a deadline runs in spite of its groups'
//! quotas.

use super::{Mounts, parse_groups, processes, read};
use crate::root::Root;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tailbound_units::Nanos;

/// CPU time that the threads of a group have together in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// The time.
    pub runtime: Nanos,
    /// The period.
    pub period: Nanos,
}

/// Throttling of a group since the group was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaThrottling {
    /// The number of periods in which the quota was used up.
    pub periods: u64,
    /// The time for which the group was throttled, summed up over CPUs.
    pub time: Nanos,
}

/// Returns a group's quota; `None` without a quota, or if the group is gone.
pub fn quota(directory: &Path) -> Option<Quota> {
    let (runtime, period) = match read(directory, "cpu.max") {
        // "max 100000", "20000 100000"
        Some(text) => {
            let (runtime, period) = text.split_once(' ')?;
            (runtime.parse().ok()?, period.parse().ok()?)
        }
        // Version 1; without a quota it is -1.
        None => (
            read(directory, "cpu.cfs_quota_us")?.parse().ok()?,
            read(directory, "cpu.cfs_period_us")?.parse().ok()?,
        ),
    };
    (period > 0).then_some(Quota {
        runtime: Nanos::from_micros(runtime),
        period: Nanos::from_micros(period),
    })
}

/// Returns the quotas that limit this process, with the directories of their groups, the innermost
/// first. A container sees its own group alone, at the place where the hierarchy is mounted.
pub fn own_quotas(root: &Root) -> Vec<(PathBuf, Quota)> {
    let groups = fs::read_to_string(root.path("/proc/self/cgroup")).unwrap_or_default();
    let (groups, Ok(mounts)) = (parse_groups(&groups), Mounts::read(root)) else {
        return Vec::new();
    };
    let legacy = mounts.legacy("cpu").zip(groups.legacy("cpu"));
    let unified = mounts.unified.as_deref().zip(groups.unified.as_deref());
    let Some((top, path)) = legacy.or(unified) else {
        return Vec::new();
    };
    // The path of a container's group is the host's, unless the container has its own cgroup
    // namespace.
    let own = top.join(path.trim_start_matches('/'));
    let own = if own.is_dir() { own } else { top.to_owned() };
    let levels = own.ancestors().take_while(|level| level.starts_with(top));
    levels
        .filter_map(|level| Some((level.to_owned(), quota(level)?)))
        .collect()
}

/// Returns a group's throttling; zero without a quota.
pub fn throttled(directory: &Path) -> QuotaThrottling {
    parse_throttled(&read(directory, "cpu.stat").unwrap_or_default())
}

/// Reads the text of a group's `cpu.stat`.
pub fn parse_throttled(text: &str) -> QuotaThrottling {
    let number = |name: &str| -> Option<u64> {
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.parse().ok()
    };
    // Version 2 counts microseconds, version 1 nanoseconds.
    let micros = number("throttled_usec").map(|micros| micros.saturating_mul(1000));
    QuotaThrottling {
        periods: number("nr_throttled").unwrap_or(0),
        time: Nanos(micros.or_else(|| number("throttled_time")).unwrap_or(0)),
    }
}

/// A group with a quota below this process's own. When the value is dropped, the group's processes
/// return to this process's group.
#[derive(Debug)]
pub struct Confinement {
    directory: PathBuf,
    parent: PathBuf,
}

impl Confinement {
    /// Creates a group of that name.
    ///
    /// # Errors
    /// This process is in no group with the CPU controller, may not create groups, or the kernel
    /// refuses the quota.
    pub fn new(root: &Root, name: &str, quota: Quota) -> io::Result<Self> {
        let groups = fs::read_to_string(root.path("/proc/self/cgroup"))?;
        let place = Mounts::read(root)?.directory(&parse_groups(&groups), "cpu");
        let (parent, is_unified) = place.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "no control group with the CPU controller",
            )
        })?;
        if is_unified {
            fs::write(parent.join("cgroup.subtree_control"), "+cpu")?;
        }
        let directory = parent.join(name);
        fs::create_dir(&directory)?;
        let confinement = Self { directory, parent };
        let write = |file: &str, text: String| fs::write(confinement.directory.join(file), text);
        let [runtime, period] = [quota.runtime, quota.period].map(|time| time.as_nanos() / 1000);
        if is_unified {
            write("cpu.max", format!("{runtime} {period}"))?;
        } else {
            write("cpu.cfs_period_us", period.to_string())?;
            write("cpu.cfs_quota_us", runtime.to_string())?;
        }
        Ok(confinement)
    }

    /// Moves a process into the group, with all of its threads.
    ///
    /// # Errors
    /// The process is gone, or may not be moved.
    pub fn take(&self, pid: u32) -> io::Result<()> {
        fs::write(self.directory.join("cgroup.procs"), pid.to_string())
    }

    /// Returns the group's throttling.
    pub fn throttled(&self) -> QuotaThrottling {
        throttled(&self.directory)
    }
}

impl Drop for Confinement {
    fn drop(&mut self) {
        for pid in processes(&self.directory) {
            let _ = fs::write(self.parent.join("cgroup.procs"), pid.to_string());
        }
        let _ = fs::remove_dir(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_written_as_each_version_reads_it() {
        let legacy = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n";
        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        for (mounts, own, group) in [
            (legacy, "1:cpu:/vms\n", "sys/fs/cgroup/cpu/vms"),
            (unified, "0::/vms\n", "sys/fs/cgroup/vms"),
        ] {
            let directory = group_of(mounts, own, group);
            let root = Root::at(directory.path());
            let asked = Quota {
                runtime: Nanos::from_millis(40),
                period: Nanos::from_millis(100),
            };
            let made = Confinement::new(&root, "one", asked).expect("it may be made");
            let place = directory.path().join(group).join("one");
            assert_eq!(quota(&place), Some(asked));
            made.take(77).expect("it takes it");
            assert_eq!(processes(&place), [77]);
            drop(made);
            assert_eq!(processes(&directory.path().join(group)), [77]);
        }
        let nothing = group_of("", "0::/\n", "sys");
        let root = Root::at(nothing.path());
        let quota = Quota {
            runtime: Nanos(1),
            period: Nanos(1),
        };
        let error = Confinement::new(&root, "one", quota).unwrap_err();
        assert!(error.to_string().contains("CPU controller"), "{error}");
    }

    fn group_of(mounts: &str, own: &str, group: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let at = |path: &str| directory.path().join(path);
        std::fs::create_dir_all(at("proc/self")).unwrap();
        std::fs::create_dir_all(at(group)).unwrap();
        std::fs::write(at("proc/self/mounts"), mounts).unwrap();
        std::fs::write(at("proc/self/cgroup"), own).unwrap();
        std::fs::write(at(group).join("cgroup.controllers"), "cpu memory\n").unwrap();
        directory
    }

    fn group(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        directory
    }

    #[test]
    fn quotas_of_both_versions_are_read() {
        let fifth = Some(Quota {
            runtime: Nanos::from_millis(20),
            period: Nanos::from_millis(100),
        });
        let legacy = |quota| {
            vec![
                ("cpu.cfs_quota_us", quota),
                ("cpu.cfs_period_us", "100000\n"),
            ]
        };
        for (files, expected) in [
            (vec![("cpu.max", "20000 100000\n")], fifth),
            (vec![("cpu.max", "max 100000\n")], None),
            (legacy("20000\n"), fifth),
            (legacy("-1\n"), None),
            (vec![("cpu.max", "20000 0\n")], None),
            (vec![], None),
        ] {
            assert_eq!(quota(group(&files).path()), expected, "{files:?}");
        }
    }

    #[test]
    fn the_quotas_of_this_process_are_found_from_the_host_and_from_a_container() {
        let tenth = Quota {
            runtime: Nanos::from_millis(10),
            period: Nanos::from_millis(100),
        };
        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        let legacy = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n";
        for (mounts, own, group) in [
            (
                unified,
                "0::/kubepods/pod1/app\n",
                "sys/fs/cgroup/kubepods/pod1/app",
            ),
            (
                unified,
                "0::/kubepods/pod1/app\n",
                "sys/fs/cgroup/kubepods/pod1",
            ),
            (unified, "0::/\n", "sys/fs/cgroup"),
            (
                legacy,
                "3:cpu,cpuacct:/kubepods/pod1/app\n",
                "sys/fs/cgroup/cpu,cpuacct",
            ),
        ] {
            let directory = group_of(mounts, own, group);
            let at = directory.path().join(group);
            if mounts == unified {
                let inner = directory.path().join("sys/fs/cgroup/kubepods/pod1/app");
                std::fs::create_dir_all(inner).unwrap();
                std::fs::write(at.join("cpu.max"), "10000 100000\n").unwrap();
            } else {
                std::fs::write(at.join("cpu.cfs_quota_us"), "10000\n").unwrap();
                std::fs::write(at.join("cpu.cfs_period_us"), "100000\n").unwrap();
            }
            let found = own_quotas(&Root::at(directory.path()));
            assert_eq!(found, [(at, tenth)], "{own} {group}");
        }
        let none = group_of(unified, "0::/\n", "sys/fs/cgroup");
        assert_eq!(own_quotas(&Root::at(none.path())), []);
        assert_eq!(own_quotas(&Root::at("/nowhere")), []);
    }

    #[test]
    fn quota_throttling_is_read_in_both_units() {
        let expected = QuotaThrottling {
            periods: 3,
            time: Nanos::from_micros(250),
        };
        for stat in [
            "usage_usec 9\nnr_periods 7\nnr_throttled 3\nthrottled_usec 250\n",
            "nr_periods 7\nnr_throttled 3\nthrottled_time 250000\n",
        ] {
            assert_eq!(throttled(group(&[("cpu.stat", stat)]).path()), expected);
        }
        assert_eq!(throttled(group(&[]).path()), QuotaThrottling::default());
    }
}
