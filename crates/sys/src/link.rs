//! Counters and the queue length of an interface.

use crate::netns;
use crate::rtnetlink::{Attributes, Netlink};
use crate::tap::{check, request};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Returns the number of frames that were sent to `interface` and that it dropped, since its
/// creation (`tx_dropped` of `rtnl_link_stats64`). On a TAP these are the frames that the process
/// at its file side did not take. The interface is in the network namespace `netns`, or in the
/// caller's.
///
/// # Errors
/// There is no such interface, or the namespace cannot be entered.
pub fn transmit_drops(interface: &str, netns: Option<&Path>) -> io::Result<u64> {
    match netns {
        None => transmit_drops_here(interface),
        Some(path) => netns::within(path, || transmit_drops_here(interface))?,
    }
}

fn transmit_drops_here(interface: &str) -> io::Result<u64> {
    /// `IFLA_STATS64`.
    const STATISTICS: u16 = 23;
    /// The offset of `tx_dropped`, in bytes.
    const TX_DROPPED: usize = 7 * 8;
    let any = any_socket()?;
    let index = rustix::net::netdevice::name_to_index(&any, interface)?;
    let attributes = Netlink::open()?.link(index)?;
    let mut statistics = Attributes(&attributes).filter(|(kind, _)| *kind == STATISTICS);
    let dropped = statistics.find_map(|(_, value)| value.get(TX_DROPPED..)?.first_chunk());
    let dropped = dropped.ok_or(io::ErrorKind::NotFound)?;
    Ok(u64::from_ne_bytes(*dropped))
}

/// Makes a socket for queries about interfaces.
fn any_socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Sets the transmit queue of `interface` to `packets` packets (`txqueuelen`): on a TAP, packets
/// that the process at its file side has not taken yet. The interface is in the network namespace
/// `netns`, or in the caller's. A queue that has this length already is left alone.
///
/// # Errors
/// There is no such interface, the namespace cannot be entered, or it takes `CAP_NET_ADMIN`.
pub fn set_queue_length(interface: &str, netns: Option<&Path>, packets: u32) -> io::Result<()> {
    match netns {
        None => set_queue_length_here(interface, packets),
        Some(path) => netns::within(path, || set_queue_length_here(interface, packets))?,
    }
}

fn set_queue_length_here(interface: &str, packets: u32) -> io::Result<()> {
    let socket = any_socket()?;
    let packets = i32::try_from(packets).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut asked = request(interface).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: SIOCGIFTXQLEN writes a number into one `ifreq`, which `asked` is.
    check(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCGIFTXQLEN as libc::Ioctl,
            &raw mut asked,
        )
    })?;
    // SAFETY: the kernel has just written `ifr_qlen`, an integer where this one is.
    if unsafe { asked.ifr_ifru.ifru_metric } == packets {
        return Ok(());
    }
    asked.ifr_ifru.ifru_metric = packets;
    // SAFETY: SIOCSIFTXQLEN reads one `ifreq`, whose `ifr_qlen` was just written.
    check(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFTXQLEN as libc::Ioctl,
            &raw const asked,
        )
    })
}

/// Enables `interface` of the caller's network namespace.
///
/// # Errors
/// There is no such interface, or it takes `CAP_NET_ADMIN`.
pub fn set_up(interface: &str) -> io::Result<()> {
    let socket = any_socket()?;
    let mut asked = request(interface).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: SIOCGIFFLAGS writes flags into one `ifreq`, which `asked` is.
    check(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCGIFFLAGS as libc::Ioctl,
            &raw mut asked,
        )
    })?;
    // SAFETY: the kernel has just written `ifr_flags`.
    let flags = unsafe { asked.ifr_ifru.ifru_flags };
    // IFF_UP is 1, so it fits.
    asked.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`, whose `ifr_flags` was just written.
    check(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as libc::Ioctl,
            &raw const asked,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_read_of_existing_interfaces_only() {
        assert!(transmit_drops("lo", None).is_ok());
        assert!(transmit_drops("nowhere", None).is_err());
        assert!(transmit_drops("lo", Some(Path::new("/nonexistent/netns"))).is_err());
        assert!(set_queue_length("nowhere", None, 10).is_err());
        assert!(set_up("nowhere").is_err());
    }
}
