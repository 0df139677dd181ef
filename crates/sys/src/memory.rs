//! How much memory this process has used.

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

/// The peak in the text of `/proc/PID/status`.
fn parse_peak(status: &str) -> Option<Bytes> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
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
    fn this_process_has_used_memory() {
        assert!(peak().unwrap() > Bytes(1_024));
    }
}
