//! Network namespaces. A namespace belongs to a thread, so work in another one runs on a thread of
//! its own.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Runs `work` on a fresh thread inside the network namespace that `path`
/// names (`/run/netns/NAME`, `/proc/PID/ns/net`) and returns its result.
///
/// # Errors
/// The file cannot be opened, is not a network namespace, or entering it needs
/// `CAP_SYS_ADMIN` there.
pub fn within<T: Send>(path: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let namespace = File::open(path)?;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        })?;
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
