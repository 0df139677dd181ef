//! Clocks of other processes (`time_namespaces(7)`).

use rustix::thread::UnshareFlags;
use std::io;
use tailbound_units::Nanos;

/// Makes all processes that this one starts from now on read a `CLOCK_MONOTONIC` that is `ahead` of
/// the computer's own. The clock cannot be set twice. This process itself keeps its clock, and can
/// start no more threads, nor processes that share its memory (`vfork`).
///
/// # Errors
/// The caller lacks `CAP_SYS_ADMIN` or has several threads, or the kernel has no time
/// namespaces (Linux 5.6).
pub fn advance_children(ahead: Nanos) -> io::Result<()> {
    // SAFETY: no descriptors are unshared, which is what would let others see closed ones.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWTIME) }?;
    let (seconds, nanos) = (ahead.0 / 1_000_000_000, ahead.0 % 1_000_000_000);
    std::fs::write(
        "/proc/self/timens_offsets",
        format!("monotonic {seconds} {nanos}\n"),
    )
}
