//! What UDP sockets do that no safe library offers (`udp(7)`).

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// Makes the kernel, or the network card, segment data sent from now on into datagrams of `size`
/// bytes each; the last one has the rest (`UDP_SEGMENT`, Linux 4.18).
///
/// # Errors
/// The kernel does not support it, or the socket is no UDP socket.
pub fn segment(socket: impl AsFd, size: u16) -> io::Result<()> {
    let size = libc::c_int::from(size);
    // SAFETY: the kernel reads as many bytes as `size` has, from a valid reference.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const size).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    #[test]
    fn a_segmented_send_arrives_as_datagrams() {
        let [from, to] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        segment(&from, 100).unwrap();
        from.send_to(&[7; 250], to.local_addr().unwrap()).unwrap();
        let mut buffer = [0; 300];
        let lengths = [(); 3].map(|()| to.recv(&mut buffer).unwrap());
        assert_eq!(lengths, [100, 100, 50]);
        assert!(segment(TcpListener::bind("127.0.0.1:0").unwrap(), 100).is_err());
    }
}
