//! Telling systemd how the daemon is (`sd_notify(3)`), where it asks to be told.

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::ffi::OsStr;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `state` to the socket in `NOTIFY_SOCKET`, if that is set. Nobody
/// depends on it arriving: an error is only logged.
pub(super) fn notify(state: &str) {
    tell(state, &[]);
}

/// The same with a descriptor.
pub(super) fn notify_with(state: &str, descriptor: BorrowedFd<'_>) {
    tell(state, &[descriptor]);
}

fn tell(state: &str, descriptors: &[BorrowedFd<'_>]) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(&name, state, descriptors) {
        tracing::warn!(%error, "cannot tell systemd {state:?}");
    }
}

/// The state at the start of a reload, with the time that systemd wants with it
/// (`Type=notify-reload`).
pub(super) fn reloading() -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
    format!("RELOADING=1\nMONOTONIC_USEC={micros}")
}

fn send(name: &OsStr, state: &str, descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let state = [IoSlice::new(state.as_bytes())];
    sendmsg(&socket, &state, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}
