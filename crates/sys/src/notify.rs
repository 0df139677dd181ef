//! Notifications to systemd about a service's state (`sd_notify(3)`), if systemd requested them.

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;
use tailbound_units::Nanos;

/// The time for which a message waits for room at the service manager.
const TIMEOUT: Duration = Duration::from_millis(100);

/// Sends `state` to the socket in `NOTIFY_SOCKET`; does nothing if that is not set.
///
/// # Errors
/// The socket refuses the message. Losing it does no harm.
pub fn notify(state: &str) -> io::Result<()> {
    tell(state, &[])
}

/// Sends `state` with a descriptor, which systemd stores (`FDSTORE=1`).
///
/// # Errors
/// As for [`notify`].
pub fn notify_with(state: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    tell(state, &[descriptor])
}

/// Sends systemd's watchdog a sign of life. Never blocks: a message for which systemd has no room
/// is lost.
///
/// # Errors
/// The socket refuses the message.
pub fn alive() -> io::Result<()> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(name) => send(&name, "WATCHDOG=1", &[], SendFlags::DONTWAIT),
        None => Ok(()),
    }
}

/// Returns the time that systemd waits for [`alive`] before it ends this process (`WatchdogSec=`);
/// `None` without a watchdog for this process.
pub fn watchdog() -> Option<Nanos> {
    let text = |name| std::env::var(name).ok();
    asked_for(
        text("WATCHDOG_USEC")?.as_str(),
        text("WATCHDOG_PID").as_deref(),
        std::process::id(),
    )
}

fn asked_for(micros: &str, of: Option<&str>, process: u32) -> Option<Nanos> {
    if of.is_some_and(|of| of.parse() != Ok(process)) {
        return None;
    }
    let micros: u64 = micros.parse().ok()?;
    (micros > 0).then(|| Nanos::from_micros(micros))
}

/// Returns the state at the start of a reload, with the time that systemd 253 and later need for
/// units with `Type=notify-reload`; others ignore the time.
pub fn reloading() -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
    format!("RELOADING=1\nMONOTONIC_USEC={micros}")
}

fn tell(state: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(name) => send(&name, state, descriptors, SendFlags::empty()),
        None => Ok(()),
    }
}

fn send(
    name: &OsStr,
    state: &str,
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // A service manager that stands still holds up no caller.
    socket.set_write_timeout(Some(TIMEOUT))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let state = [IoSlice::new(state.as_bytes())];
    sendmsg(&socket, &state, &mut control, flags | SendFlags::NOSIGNAL)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_watchdog_is_for_the_process_that_it_names() {
        let second = Some(Nanos::from_secs(1));
        assert_eq!(asked_for("1000000", None, 7), second);
        assert_eq!(asked_for("1000000", Some("7"), 7), second);
        for (micros, of) in [
            ("1000000", Some("8")),
            ("0", None),
            ("soon", None),
            ("-1", None),
        ] {
            assert_eq!(asked_for(micros, of, 7), None, "{micros} {of:?}");
        }
    }

    #[test]
    fn a_service_manager_that_stands_still_holds_up_a_caller_for_a_tenth_of_a_second() {
        let directory = tempfile::tempdir().expect("a directory");
        let name = directory.path().join("notify");
        let _silent = UnixDatagram::bind(&name).expect("bound");
        let begin = Instant::now();
        // The kernel keeps some messages for it (`net.unix.max_dgram_qlen`).
        let mut sent =
            (0..10_000).map(|_| send(name.as_os_str(), "STATUS=x", &[], SendFlags::empty()));
        let error = sent.find_map(Result::err).expect("it is full at last");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(begin.elapsed() < Duration::from_secs(10));
    }
}
