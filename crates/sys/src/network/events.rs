//! Notifications of the kernel about devices of this thread's network namespace.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The group of messages about devices (`RTMGRP_LINK`).
const LINKS: u32 = 1;

/// Devices that appear, change and go.
#[derive(Debug)]
pub struct LinkEvents(OwnedFd);

impl LinkEvents {
    /// Listens from now on.
    ///
    /// # Errors
    /// Netlink sockets are not available.
    pub fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, kind, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, LINKS))?;
        Ok(Self(socket))
    }

    /// Waits until a device has changed, at most `patience`. Returns true if one has. All
    /// notifications so far are taken; lost ones count as a change.
    ///
    /// # Errors
    /// The socket failed.
    pub fn wait(&self, patience: Duration) -> io::Result<bool> {
        let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
        let mut waiting = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut waiting, Some(&patience)) {
            // A signal.
            Err(Errno::INTR) | Ok(0) => return Ok(false),
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        // A message beyond the buffer is cut off and not read.
        let mut buffer = [0; 4 << 10];
        loop {
            match recv(&self.0, &mut buffer[..], RecvFlags::empty()) {
                Ok(_) | Err(Errno::INTR | Errno::NOBUFS) => {}
                Err(Errno::AGAIN) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_does_not_change_is_no_event() {
        let events = LinkEvents::open().unwrap();
        // Other tests of this computer may change devices meanwhile.
        let _ = events.wait(Duration::from_millis(1)).unwrap();
    }
}
