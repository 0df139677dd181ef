//! Descriptors from another process: from systemd at the start (`sd_listen_fds(3)`), and the check
//! that a device's descriptor is that of the expected interface.

use rustix::io::{FdFlags, fcntl_setfd};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first descriptor that systemd passes.
const FIRST: i32 = 3;

/// Returns the descriptors that systemd passed to this process (`LISTEN_FDS`), each with its name
/// (`LISTEN_FDNAMES`). A later call returns none, since the descriptors have an owner.
pub fn take_from_systemd() -> Vec<(String, OwnedFd)> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = |name: &str| std::env::var(name).ok()?.parse::<i32>().ok();
    let is_ours = number("LISTEN_PID") == i32::try_from(std::process::id()).ok();
    if !is_ours || TAKEN.swap(true, Ordering::Relaxed) {
        return Vec::new();
    }
    let count = number("LISTEN_FDS").unwrap_or(0).max(0);
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':').map(str::to_owned);
    let mut passed = Vec::new();
    for raw in FIRST..FIRST.saturating_add(count) {
        let name = names.next().unwrap_or_default();
        // SAFETY: fcntl(2) fails for a number that is no descriptor, and touches no memory.
        if unsafe { libc::fcntl(raw, libc::F_GETFD) } < 0 {
            break;
        }
        // SAFETY: it is open, systemd opened it for this process (LISTEN_PID) before it
        // began, and no other call takes it.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        if fcntl_setfd(&fd, FdFlags::CLOEXEC).is_ok() {
            passed.push((name, fd));
        }
    }
    passed
}

/// Returns true if a device is in the network namespace `netns`, or in the caller's. `request` is
/// the ioctl for a descriptor of the device's namespace.
///
/// # Errors
/// The namespace's file cannot be opened, or the device's namespace is not accessible: that takes
/// `CAP_NET_ADMIN` there.
pub(crate) fn is_in(
    device: &impl AsFd,
    request: libc::c_ulong,
    netns: Option<&Path>,
) -> io::Result<bool> {
    // SAFETY: the request takes no argument and returns a new descriptor.
    let raw = unsafe { libc::ioctl(device.as_fd().as_raw_fd(), request as libc::Ioctl) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: ioctl(2) just returned it and nobody else has it.
    let its = rustix::fs::fstat(unsafe { OwnedFd::from_raw_fd(raw) })?;
    let wanted = rustix::fs::stat(netns.unwrap_or(Path::new("/proc/thread-self/ns/net")))?;
    Ok((its.st_dev, its.st_ino) == (wanted.st_dev, wanted.st_ino))
}

/// Makes the error of a descriptor that is not that of the expected device.
pub(crate) fn is_of_another(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
