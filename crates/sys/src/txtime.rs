//! Datagrams with a departure time (`SO_TXTIME`, Linux 4.19), which the queueing discipline `fq`
//! keeps.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use tailbound_units::Nanos;

/// `struct sock_txtime`.
#[repr(C)]
struct Txtime {
    clock: libc::clockid_t,
    flags: u32,
}

/// The control message with a departure time, aligned as `cmsghdr` needs it.
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    time: u64,
}

/// Permits departure times, by the monotonic clock, for datagrams of this socket.
///
/// # Errors
/// The kernel is too old.
pub fn enable(socket: impl AsFd) -> io::Result<()> {
    let txtime = Txtime {
        clock: libc::CLOCK_MONOTONIC,
        flags: 0,
    };
    // SAFETY: the kernel reads as many bytes as `txtime` has, from a valid reference.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TXTIME,
            (&raw const txtime).cast(),
            size_of::<Txtime>() as libc::socklen_t,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sends a datagram on a connected socket; its departure is due at `due`, by the monotonic clock.
///
/// # Errors
/// The errors of `sendmsg(2)`; `EINVAL` without [`enable`].
pub fn send(socket: impl AsFd, datagram: &[u8], due: Nanos) -> io::Result<()> {
    let mut control = Control {
        header: libc::cmsghdr {
            cmsg_len: size_of::<Control>(),
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_TXTIME,
        },
        time: due.0,
    };
    let mut part = libc::iovec {
        iov_base: datagram.as_ptr().cast_mut().cast(),
        iov_len: datagram.len(),
    };
    // SAFETY: `msghdr` is plain old data, for which all zeros is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>();
    // SAFETY: the message points to `part` and `control`, and `part` to the datagram; all of them
    // live until the call returns, and the kernel only reads them.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn a_datagram_with_a_departure_time_arrives() {
        let [from, to] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        from.connect(to.local_addr().unwrap()).unwrap();
        assert!(send(&from, b"early", Nanos(1)).is_err(), "not enabled");
        enable(&from).unwrap();
        send(&from, b"due", Nanos(1)).unwrap();
        let mut buffer = [0; 8];
        let len = to.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"due");
    }
}
