//! What `ethtool(8)` would say of an interface, by the same ioctl.

use crate::tap::{check, mtu, request};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

const GET_CHANNELS: u32 = 0x3c;
const GET_FLAGS: u32 = 0x25;
const GET_TIMESTAMPING: u32 = 0x41;
/// `ETH_FLAG_RXVLAN`.
const RX_VLAN: u32 = 1 << 8;

/// Asks about one interface of the network namespace that it was opened in.
#[derive(Debug)]
pub(super) struct Ethtool {
    socket: OwnedFd,
    interface: String,
}

impl Ethtool {
    pub(super) fn open(interface: &str) -> io::Result<Self> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
        let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
        Ok(Self {
            socket: socket_with(family, kind, SocketFlags::CLOEXEC, None)?,
            interface: interface.to_owned(),
        })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Passes `words`, the first of which is the command, to the kernel, which
    /// fills in the others.
    fn ask<const N: usize>(&self, command: u32) -> io::Result<[u32; N]> {
        let mut words = [0; N];
        words[0] = command;
        let mut request = request(&self.interface).ok_or(io::ErrorKind::InvalidInput)?;
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        // SAFETY: SIOCETHTOOL reads and writes one `ifreq` and, where that points
        // to, what the command has: each caller asks for as many words.
        check(unsafe {
            libc::ioctl(
                self.socket.as_raw_fd(),
                libc::SIOCETHTOOL as libc::Ioctl,
                &raw mut request,
            )
        })?;
        Ok(words)
    }

    /// How many queues receive: those that only do and those that also send.
    pub(super) fn receive_queues(&self) -> io::Result<u32> {
        // `struct ethtool_channels`: command, four maxima, then the numbers that
        // receive, send, do other things, and do both.
        let [.., receive, _send, _other, combined] = self.ask::<9>(GET_CHANNELS)?;
        Ok(receive.saturating_add(combined))
    }

    /// Whether the interface takes 802.1Q tags out of received frames.
    pub(super) fn takes_tags_out(&self) -> io::Result<bool> {
        // `struct ethtool_value`.
        let [_, flags] = self.ask::<2>(GET_FLAGS)?;
        Ok(flags & RX_VLAN != 0)
    }

    /// The number N of `/dev/ptpN`, the interface's clock; `None` where it has
    /// none.
    pub(super) fn clock(&self) -> io::Result<Option<u32>> {
        // `struct ethtool_ts_info`: command, flags, index; eight more words.
        let [_, _, index, ..] = self.ask::<11>(GET_TIMESTAMPING)?;
        Ok(u32::try_from(index.cast_signed()).ok())
    }

    /// The longest packet behind an Ethernet header, in bytes.
    pub(super) fn mtu(&self) -> io::Result<u32> {
        mtu(self.socket(), &self.interface)
    }

    /// The MAC address.
    pub(super) fn address(&self) -> io::Result<[u8; 6]> {
        let mut request = request(&self.interface).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: SIOCGIFHWADDR reads and writes one `ifreq`.
        check(unsafe {
            libc::ioctl(
                self.socket.as_raw_fd(),
                libc::SIOCGIFHWADDR as libc::Ioctl,
                &raw mut request,
            )
        })?;
        // SAFETY: SIOCGIFHWADDR filled in the address, and any bits are bytes.
        let data = unsafe { request.ifr_ifru.ifru_hwaddr }.sa_data;
        let bytes = data.map(libc::c_char::cast_unsigned);
        bytes
            .first_chunk()
            .copied()
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}
