//! Memory use of this process, and available memory.

use crate::cgroup::{Mounts, parse_groups};
use crate::root::Root;
use std::path::{Path, PathBuf};
use std::{fs, io};
use tailbound_units::Bytes;

/// Returns the peak resident set size since the start or the last [`reset_peak`]; `None` if `/proc`
/// is missing.
pub fn peak() -> Option<Bytes> {
    parse_peak(&fs::read_to_string("/proc/self/status").ok()?)
}

/// Resets the peak: [`peak`] starts anew.
///
/// # Errors
/// The kernel has no peaks, or `/proc` is missing.
pub fn reset_peak() -> io::Result<()> {
    // proc(5): 5 resets the peak resident set size.
    fs::write("/proc/self/clear_refs", "5")
}

/// Returns freed memory to the system. For much memory that takes milliseconds: do not call it in a
/// thread that must not block.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) touches nothing that is allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns the memory that processes may still allocate: the computer's free and reclaimable
/// memory, or the rest of the limit of this process's control group (version 2), if that is less.
/// `None` if `/proc` is missing.
pub fn available() -> Option<Bytes> {
    let machine = field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let number = |path: &Path, file: &str| -> Option<u64> {
        let text = fs::read_to_string(path.join(file)).ok()?;
        text.trim().parse().ok()
    };
    let root = Path::new("/sys/fs/cgroup");
    let group = root.join(group.unwrap_or_default());
    let groups = group.ancestors().take_while(|path| path.starts_with(root));
    let left = groups.filter_map(|path| {
        let (most, used) = (number(path, "memory.max")?, number(path, "memory.current")?);
        Some(Bytes(most.saturating_sub(used)))
    });
    Some(left.fold(machine, Bytes::min))
}

/// Returns the memory limit of this process's control groups, of version 2 or 1; `None` without a
/// limit.
pub fn limit() -> Option<Bytes> {
    let (group, is_unified) = own_group()?;
    let file = if is_unified {
        "memory.max"
    } else {
        "memory.limit_in_bytes"
    };
    let limits = group.ancestors().filter_map(|group| {
        let text = fs::read_to_string(group.join(file)).ok()?;
        text.trim().parse().ok()
    });
    // Version 1 has the largest multiple of a page in the place of `max`.
    let limits = limits.filter(|limit: &u64| *limit < 1 << 62);
    limits.min().map(Bytes)
}

/// Returns the shared memory that is charged to this process's control group, guests' memory
/// included; `None` if the system does not report it.
pub fn charged_of_shared() -> Option<Bytes> {
    let (group, _) = own_group()?;
    parse_shared(&fs::read_to_string(group.join("memory.stat")).ok()?)
}

/// Returns the directory of this process's group for memory, and true for version 2.
fn own_group() -> Option<(PathBuf, bool)> {
    let mounts = Mounts::read(&Root::default()).ok()?;
    let groups = parse_groups(&fs::read_to_string("/proc/self/cgroup").ok()?);
    mounts.directory(&groups, "memory")
}

/// Returns the bytes of shared memory in the text of `memory.stat`; in version 1 including the
/// groups within.
fn parse_shared(stat: &str) -> Option<Bytes> {
    let field = |name: &str| {
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        let (_, value) = lines.find(|(found, _)| *found == name)?;
        value.trim().parse().ok()
    };
    field("total_shmem").or_else(|| field("shmem")).map(Bytes)
}

/// Returns the peak in the text of `/proc/PID/status`.
fn parse_peak(status: &str) -> Option<Bytes> {
    field(status, "VmHWM:")
}

/// Returns the value of the line in KiB that begins with `name`.
fn field(text: &str, name: &str) -> Option<Bytes> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(Bytes(kib.checked_mul(1_024)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_in_kib() {
        let status = "Name:\tx\nVmPeak:\t  9 kB\nVmHWM:\t   12 kB\nVmRSS:\t 3 kB\n";
        assert_eq!(parse_peak(status), Some(Bytes(12 * 1_024)));
    }

    #[test]
    fn text_of_another_shape_has_no_peak() {
        for status in [
            "",
            "VmHWM:",
            "VmHWM: x kB",
            "VmHWM: 18446744073709551615 kB",
        ] {
            assert_eq!(parse_peak(status), None, "{status}");
        }
    }

    #[test]
    fn shared_memory_includes_child_groups_if_reported() {
        let second = "anon 4096\nfile 8\nshmem 12288\nfile_mapped 1\n";
        assert_eq!(parse_shared(second), Some(Bytes(12_288)));
        let first = "cache 9\nshmem 1\ntotal_cache 9\ntotal_shmem 2\n";
        assert_eq!(parse_shared(first), Some(Bytes(2)));
        assert_eq!(parse_shared("shmem_thp 7\nshmem x\n"), None);
    }

    #[test]
    fn available_memory_is_read() {
        assert!(available().unwrap() > Bytes(1_024));
    }

    #[test]
    fn this_process_has_used_memory() {
        assert!(peak().unwrap() > Bytes(1_024));
    }
}
