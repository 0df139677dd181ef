//! What the kernel counts of an interface.

use crate::netns;
use crate::rtnetlink::{Attributes, Netlink};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::path::Path;

/// How many frames `interface` in the network namespace `netns`, or in the caller's, has
/// dropped that were sent to it, since it was made (`tx_dropped` of `rtnl_link_stats64`): on a
/// TAP those that whoever has its file side did not take.
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
    /// The place of `tx_dropped`, in bytes.
    const TX_DROPPED: usize = 7 * 8;
    let any = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let index = rustix::net::netdevice::name_to_index(&any, interface)?;
    let attributes = Netlink::open()?.link(index)?;
    let mut statistics = Attributes(&attributes).filter(|(kind, _)| *kind == STATISTICS);
    let dropped = statistics.find_map(|(_, value)| value.get(TX_DROPPED..)?.first_chunk());
    let dropped = dropped.ok_or(io::ErrorKind::NotFound)?;
    Ok(u64::from_ne_bytes(*dropped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_says_what_it_dropped_and_one_that_is_not_there_does_not() {
        assert!(transmit_drops("lo", None).is_ok());
        assert!(transmit_drops("nowhere", None).is_err());
        assert!(transmit_drops("lo", Some(Path::new("/nonexistent/netns"))).is_err());
    }
}
