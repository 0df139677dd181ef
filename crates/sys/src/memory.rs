//! How much memory this process has used, and how much there is.

use std::path::Path;
use std::{fs, io};
use tailbound_units::Bytes;

/// The peak resident set size since the start or the last [`reset_peak`]; `None` where
/// `/proc` is not there.
pub fn peak() -> Option<Bytes> {
    parse_peak(&fs::read_to_string("/proc/self/status").ok()?)
}

/// Forgets the peak: from now on [`peak`] counts anew.
///
/// # Errors
/// The kernel keeps no peaks, or `/proc` is not there.
pub fn reset_peak() -> io::Result<()> {
    // proc(5): 5 resets the peak resident set size.
    fs::write("/proc/self/clear_refs", "5")
}

/// Hands memory that was freed back to the system. It takes milliseconds where there is
/// much: not for a thread that is not to wait.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) touches nothing that is allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// What processes may still take: what the machine has free or can free, or what is left of what a
/// control group (version 2) of this process may have, if that is less. `None` where `/proc` is not
/// there.
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

/// The peak in the text of `/proc/PID/status`.
fn parse_peak(status: &str) -> Option<Bytes> {
    field(status, "VmHWM:")
}

/// What a line in KiB says that begins so.
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
    fn there_is_memory() {
        assert!(available().unwrap() > Bytes(1_024));
    }

    #[test]
    fn this_process_has_used_memory() {
        assert!(peak().unwrap() > Bytes(1_024));
    }
}
