//! The socket of the exchange of rates, and the addresses of the other hosts.

use super::HoseConfig;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use tailbound_hose::HostId;
use tailbound_hose::wire::MAX_DATAGRAM;
use tailbound_units::Bytes;

/// Bytes that are read per turn; each datagram counts as [`DATAGRAM`] more. The total is some eight
/// full datagrams, or twenty short ones.
const READ: usize = 16 * 1024;

/// Fixed cost of a datagram, in units of the cost of hashing one of its bytes.
const DATAGRAM: usize = 512;

/// Datagrams to and from other hosts.
#[derive(Debug)]
pub(super) struct Channel {
    socket: UdpSocket,
    addresses: HashMap<HostId, SocketAddr>,
    /// The addresses that datagrams may come from.
    senders: HashSet<IpAddr>,
    send_failures: u64,
}

impl Channel {
    /// Makes a channel to the peers of a configuration.
    pub(super) fn new(socket: UdpSocket, config: &HoseConfig) -> Self {
        Self {
            socket,
            addresses: addresses(config),
            senders: senders(config),
            send_failures: 0,
        }
    }

    /// Applies the peers of another configuration, and its socket if it has another one.
    pub(super) fn reconfigure(&mut self, socket: Option<UdpSocket>, config: &HoseConfig) {
        if let Some(socket) = socket {
            self.socket = socket;
        }
        self.addresses = addresses(config);
        self.senders = senders(config);
    }

    /// Returns the socket, which is readable when a datagram has arrived.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the number of datagrams that could not be sent.
    pub(super) const fn send_failures(&self) -> u64 {
        self.send_failures
    }

    /// Sends a datagram to another host. Returns the length of its frame without FCS; without one,
    /// sending failed, which is counted.
    pub(super) fn send(&mut self, host: HostId, datagram: &[u8]) -> Option<Bytes> {
        let address = self.addresses.get(&host);
        let address = address.filter(|to| self.socket.send_to(datagram, to).is_ok());
        self.send_failures += u64::from(address.is_none());
        address.map(|to| Bytes(headers(to) + datagram.len() as u64))
    }

    /// Reads some of the waiting datagrams, some eight to twenty at most.
    pub(super) fn receive(&self, mut handle: impl FnMut(SocketAddr, ReceivedDatagram<'_>)) {
        // A byte more than the longest datagram, so that longer ones are noticed.
        let mut buffer = [0; MAX_DATAGRAM + 1];
        let mut read = 0;
        while read < READ {
            read += DATAGRAM;
            match self.socket.recv_from(&mut buffer) {
                Ok((len, from)) => {
                    read += len;
                    // Before the MAC is computed: a guest may not send from a peer's
                    // address, and could else have this host hash all that it sends.
                    let received = if self.senders.contains(&from.ip()) {
                        ReceivedDatagram::Datagram(&buffer[..len])
                    } else {
                        ReceivedDatagram::Stranger
                    };
                    handle(from, received);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // No datagram is left, or the network refused an earlier one (ICMP): its peer's
                // silence shows that.
                Err(_) => break,
            }
        }
    }

    /// Returns the local address.
    #[cfg(test)]
    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// A datagram from an address.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReceivedDatagram<'d> {
    /// The address is one of a peer.
    Datagram(&'d [u8]),
    /// The address is no peer's, so the content was not read.
    Stranger,
}

/// Returns the length of the headers of Ethernet, IP and UDP.
const fn headers(to: &SocketAddr) -> u64 {
    match to {
        SocketAddr::V4(_) => 14 + 20 + 8,
        SocketAddr::V6(_) => 14 + 40 + 8,
    }
}

/// Returns the address of each peer.
pub(super) fn addresses(config: &HoseConfig) -> HashMap<HostId, SocketAddr> {
    let peers = config.peers.iter();
    peers
        .map(|peer| (HostId::of(&peer.host), peer.address))
        .collect()
}

/// Returns the addresses that datagrams may come from.
fn senders(config: &HoseConfig) -> HashSet<IpAddr> {
    config.peers.iter().map(|peer| peer.address.ip()).collect()
}
