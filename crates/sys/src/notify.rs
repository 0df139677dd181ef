//! Telling systemd how a service is (`sd_notify(3)`), where it asks to be told.

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `state` to the socket in `NOTIFY_SOCKET`; does nothing where that is not set.
///
/// # Errors
/// The socket does not take it. Nobody depends on it arriving.
pub fn notify(state: &str) -> io::Result<()> {
    tell(state, &[])
}

/// The same with a descriptor, which systemd keeps (`FDSTORE=1`).
///
/// # Errors
/// As for [`notify`].
pub fn notify_with(state: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    tell(state, &[descriptor])
}

/// The state at the start of a reload, with the time that systemd 253 and later want with it
/// where the unit says `Type=notify-reload`; others pass the time over.
pub fn reloading() -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
    format!("RELOADING=1\nMONOTONIC_USEC={micros}")
}

fn tell(state: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(name) => send(&name, state, descriptors),
        None => Ok(()),
    }
}

fn send(name: &OsStr, state: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
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
