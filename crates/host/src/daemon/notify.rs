//! Notifications to systemd about the daemon's state. A lost one does no harm: errors are only
//! logged.

use std::os::fd::BorrowedFd;
use tailbound_sys::notify;
pub(super) use tailbound_sys::notify::reloading;

/// Sends `state`, if systemd requested notifications.
pub(super) fn notify(state: &str) {
    told(state, notify::notify(state));
}

/// Sends `state` with a descriptor.
pub(super) fn notify_with(state: &str, descriptor: BorrowedFd<'_>) {
    told(state, notify::notify_with(state, descriptor));
}

fn told(state: &str, sent: std::io::Result<()>) {
    if let Err(error) = sent {
        tracing::warn!(%error, "cannot notify systemd of {state:?}");
    }
}
