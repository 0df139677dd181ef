//! Queries about an interface by the ioctl of `ethtool(8)`.

use crate::tap::{check, mtu, request};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

const GET_DRIVER: u32 = 0x03;
const GET_CHANNELS: u32 = 0x3c;
const GET_STRINGS: u32 = 0x1b;
const GET_STRING_SETS: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const SET_FEATURES: u32 = 0x3b;
/// `ETH_SS_FEATURES`.
const FEATURES: u32 = 4;
/// Length of a name in bytes (`ETH_GSTRING_LEN`).
const NAME: usize = 32;
const GET_FLAGS: u32 = 0x25;
const GET_TIMESTAMPING: u32 = 0x41;
/// `ETH_FLAG_RXVLAN`.
const RX_VLAN: u32 = 1 << 8;

/// Queries about one interface of the network namespace in which this was opened.
#[derive(Debug)]
pub(crate) struct Ethtool {
    socket: OwnedFd,
    interface: String,
}

impl Ethtool {
    pub(crate) fn open(interface: &str) -> io::Result<Self> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
        let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
        Ok(Self {
            socket: socket_with(family, kind, SocketFlags::CLOEXEC, None)?,
            interface: interface.to_owned(),
        })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Passes `words`, the first of which is the command, to the kernel, which fills in the others.
    fn ask<const N: usize>(&self, command: u32) -> io::Result<[u32; N]> {
        let mut words = [0; N];
        words[0] = command;
        self.exchange(&mut words)?;
        Ok(words)
    }

    /// The same, with the command's own number of words.
    fn exchange(&self, words: &mut [u32]) -> io::Result<()> {
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
        })
    }

    /// Returns the indices of the active ones among the features `names`, and the number of all
    /// features.
    pub(crate) fn active(&self, names: &[&str]) -> io::Result<(Vec<usize>, usize)> {
        // `struct ethtool_sset_info`: command, nothing, a mask of 64 bits, one length.
        let mut info = [GET_STRING_SETS, 0, 1 << FEATURES, 0, 0];
        self.exchange(&mut info)?;
        let count = info[4];
        // `struct ethtool_gstrings`: command, set, length, the names.
        let mut strings = vec![0; 3 + count as usize * NAME / 4];
        strings[..3].copy_from_slice(&[GET_STRINGS, FEATURES, count]);
        self.exchange(&mut strings)?;
        let bytes: Vec<u8> = strings[3..]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        // `struct ethtool_gfeatures`: command, blocks; four words a block of 32 features.
        let blocks = count.div_ceil(32);
        let mut features = vec![0; 2 + 4 * blocks as usize];
        features[..2].copy_from_slice(&[GET_FEATURES, blocks]);
        self.exchange(&mut features)?;
        let is_active = |place: usize| features[2 + 4 * (place / 32) + 2] >> (place % 32) & 1 != 0;
        let places = bytes.chunks(NAME).enumerate().filter(|(place, name)| {
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            names.iter().any(|wanted| wanted.as_bytes() == name) && is_active(*place)
        });
        Ok((places.map(|(place, _)| place).collect(), count as usize))
    }

    /// Disables features, by their indices among `count`.
    pub(crate) fn switch_off(&self, places: &[usize], count: usize) -> io::Result<()> {
        // `struct ethtool_sfeatures`: command, blocks; which, and what they become.
        let blocks = count.div_ceil(32);
        let mut words = vec![0; 2 + 2 * blocks];
        words[..2].copy_from_slice(&[SET_FEATURES, blocks as u32]);
        for place in places {
            words[2 + 2 * (place / 32)] |= 1 << (place % 32);
        }
        self.exchange(&mut words)
    }

    /// Returns the name of the interface's driver; `None` if the interface does not report it.
    pub(crate) fn driver(&self) -> io::Result<Option<String>> {
        // `struct ethtool_drvinfo`: command, five names of 32 bytes, 12 bytes, five numbers.
        let words = match self.ask::<49>(GET_DRIVER) {
            Ok(words) => words,
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(None),
            Err(error) => return Err(error),
        };
        let bytes = words[1..9].iter().flat_map(|word| word.to_ne_bytes());
        let name: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
        Ok(String::from_utf8(name).ok())
    }

    /// Returns the number of receive queues: those that only receive and those that also send.
    pub(crate) fn receive_queues(&self) -> io::Result<u32> {
        // `struct ethtool_channels`: command, four maxima, then the numbers that
        // receive, send, do other things, and do both.
        let [.., receive, _send, _other, combined] = self.ask::<9>(GET_CHANNELS)?;
        Ok(receive.saturating_add(combined))
    }

    /// Returns true if the interface removes 802.1Q tags from received frames.
    pub(crate) fn takes_tags_out(&self) -> io::Result<bool> {
        // `struct ethtool_value`.
        let [_, flags] = self.ask::<2>(GET_FLAGS)?;
        Ok(flags & RX_VLAN != 0)
    }

    /// Returns the number N of `/dev/ptpN`, the interface's clock; `None` without a clock.
    pub(crate) fn clock(&self) -> io::Result<Option<u32>> {
        // `struct ethtool_ts_info`: command, flags, index; eight more words.
        let [_, _, index, ..] = self.ask::<11>(GET_TIMESTAMPING)?;
        Ok(u32::try_from(index.cast_signed()).ok())
    }

    /// Returns the longest packet behind an Ethernet header, in bytes.
    pub(crate) fn mtu(&self) -> io::Result<u32> {
        mtu(self.socket(), &self.interface)
    }

    /// Returns the MAC address.
    pub(crate) fn address(&self) -> io::Result<[u8; 6]> {
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
