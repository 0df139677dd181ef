//! Packet sockets (`packet(7)`): all frames of one interface, sent and received in bursts behind a
//! `virtio_net_hdr`, so that packets of up to 64 KiB cross unsegmented.
//!
//! A [`Socket`] is the descriptor. A [`Batch`] has the arrays for `recvmmsg(2)` and `sendmmsg(2)`:
//! it is made once, and no burst allocates.

use crate::inherited::{is_in, is_of_another};
use crate::tap::VIRTIO_HEADER_LEN;
use std::ffi::{c_int, c_uint};
use std::io;
use std::mem::{size_of, zeroed};
use std::ops::DerefMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Receive buffer that is requested from the kernel, in bytes. The default of some 200 KiB is three
/// merged packets; this is a burst of 64 of them.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Reason why a packet socket could not be opened. The message contains a remedy.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// Packet sockets are not allowed.
    #[error(
        "not allowed to open a packet socket on {interface:?}: {source}; it takes CAP_NET_RAW in \
         the interface's network namespace"
    )]
    NotAllowed {
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The interface does not exist.
    #[error("there is no interface {interface:?}; `ip link` lists those there are")]
    NoInterface {
        /// The interface.
        interface: String,
    },
    /// The interface is not up.
    #[error("the interface {interface:?} is down; `ip link set {interface} up` mends that")]
    Down {
        /// The interface.
        interface: String,
    },
    /// The network namespace cannot be entered.
    #[error("cannot enter the network namespace {}: {source}", path.display())]
    Namespace {
        /// The namespace's file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Any other failure.
    #[error("cannot {step} for a packet socket on {interface:?}: {source}")]
    Other {
        /// The interface.
        interface: String,
        /// The step that failed.
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// A packet socket that receives every frame its interface receives, also those for other stations,
/// and none of those sent on it. Non-blocking.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    interface: String,
}

/// One frame of a received burst.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    /// Stored length of virtio header and frame together, in bytes.
    pub len: usize,
    /// True if the frame was longer than its buffers.
    pub truncated: bool,
    /// The 802.1Q tag that the kernel removed from the frame: TPID and TCI, in network byte order.
    /// Its place is behind the two MAC addresses.
    pub vlan_tag: Option<[u8; 4]>,
}

impl Socket {
    /// Opens a socket on `interface` in the network namespace `netns`, or in the caller's. The
    /// descriptor works in any namespace.
    pub fn open(interface: &str, netns: Option<&Path>) -> Result<Self, PacketError> {
        match netns {
            None => Self::open_here(interface),
            Some(path) => {
                crate::netns::within(path, || Self::open_here(interface)).map_err(|source| {
                    PacketError::Namespace {
                        path: path.to_owned(),
                        source,
                    }
                })?
            }
        }
    }

    fn open_here(interface: &str) -> Result<Self, PacketError> {
        let failed = |step| {
            move |source: io::Error| {
                let interface = interface.to_owned();
                match source.raw_os_error() {
                    Some(libc::EPERM | libc::EACCES) => {
                        PacketError::NotAllowed { interface, source }
                    }
                    Some(libc::ENODEV | libc::ENXIO) => PacketError::NoInterface { interface },
                    Some(libc::ENETDOWN) => PacketError::Down { interface },
                    _ => PacketError::Other {
                        interface,
                        step,
                        source,
                    },
                }
            }
        };
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // Protocol 0: nothing is received, from whatever interface, before bind.
        // SAFETY: socket(2) touches no memory of ours.
        let raw = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if raw < 0 {
            return Err(failed("open the socket")(io::Error::last_os_error()));
        }
        // SAFETY: socket(2) just returned this descriptor and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let index = rustix::net::netdevice::name_to_index(&fd, interface)
            .map_err(|errno| failed("find the interface")(errno.into()))?;
        // Both only make room; with less the socket works as well.
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&fd, RECEIVE_BUFFER).is_err() {
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&fd, RECEIVE_BUFFER);
        }
        set_option(&fd, libc::PACKET_VNET_HDR, &1)
            .map_err(failed("enable virtio headers (PACKET_VNET_HDR)"))?;
        set_option(&fd, libc::PACKET_AUXDATA, &1)
            .map_err(failed("enable VLAN tags (PACKET_AUXDATA)"))?;
        set_option(&fd, libc::PACKET_IGNORE_OUTGOING, &1).map_err(failed(
            "leave out what is sent (PACKET_IGNORE_OUTGOING, since Linux 4.20)",
        ))?;
        // SAFETY: `packet_mreq` is plain old data, for which all zeros is a value.
        let mut membership: libc::packet_mreq = unsafe { zeroed() };
        // Interface indices are positive `int`s throughout the kernel.
        membership.mr_ifindex = index.cast_signed();
        membership.mr_type = libc::PACKET_MR_PROMISC as libc::c_ushort;
        set_option(&fd, libc::PACKET_ADD_MEMBERSHIP, &membership)
            .map_err(failed("receive frames for other stations"))?;
        bind(&fd, index.cast_signed()).map_err(failed("bind"))?;
        // Binding to an interface that is down succeeds and leaves ENETDOWN
        // behind.
        match rustix::net::sockopt::socket_error(&fd) {
            Ok(Ok(())) => Ok(Self {
                fd,
                interface: interface.to_owned(),
            }),
            Ok(Err(errno)) | Err(errno) => Err(failed("bind")(errno.into())),
        }
    }

    /// Continues with a descriptor that another process opened by [`Socket::open`], with all frames
    /// queued in it.
    ///
    /// # Errors
    /// The descriptor is not that of the interface in the namespace, or the interface is gone or
    /// down.
    pub fn adopt(fd: OwnedFd, interface: &str, netns: Option<&Path>) -> io::Result<Self> {
        /// `SIOCGSKNS` of `linux/sockios.h`, since Linux 4.10.
        const GET_NAMESPACE: libc::c_ulong = 0x894c;
        if rustix::net::sockopt::socket_domain(&fd)? != rustix::net::AddressFamily::PACKET {
            return Err(is_of_another("it is no packet socket"));
        }
        rustix::net::sockopt::socket_error(&fd)??;
        let index = bound_to(&fd)?.sll_ifindex.cast_unsigned();
        let found = rustix::net::netdevice::index_to_name(&fd, index)?;
        if found != interface || !is_in(&fd, GET_NAMESPACE, netns)? {
            return Err(is_of_another("it is of another interface"));
        }
        Ok(Self {
            fd,
            interface: interface.to_owned(),
        })
    }

    /// From now on receives only broadcast and multicast.
    pub fn only_groups(&self) -> io::Result<()> {
        self.only(true)
    }

    /// From now on only frames to single stations come.
    pub fn only_stations(&self) -> io::Result<()> {
        self.only(false)
    }

    /// From now on only frames to groups come, or only others.
    fn only(&self, groups: bool) -> io::Result<()> {
        const fn step(code: u32, jf: u8, k: u32) -> libc::sock_filter {
            let (code, jt) = (code as u16, 0);
            libc::sock_filter { code, jt, jf, k }
        }
        let accepts = |accepts| if accepts { u32::MAX } else { 0 };
        // The lowest bit of the first byte says it (IEEE 802, 8.2.2).
        let mut filter = [
            step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 1, 1),
            step(libc::BPF_RET | libc::BPF_K, 0, accepts(groups)),
            step(libc::BPF_RET | libc::BPF_K, 0, accepts(!groups)),
        ];
        let program = libc::sock_fprog {
            len: filter.len() as libc::c_ushort,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: the kernel reads one `sock_fprog`, the size given, and as many
        // steps as it says.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const program).cast(),
                size_of::<libc::sock_fprog>() as libc::socklen_t,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Returns the MAC address of the interface. `InvalidData` if that is not Ethernet.
    pub fn address(&self) -> io::Result<[u8; 6]> {
        let address = bound_to(&self.fd)?;
        let bytes = &address.sll_addr[..usize::from(address.sll_halen).min(8)];
        bytes.try_into().map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, "its address is not of 6 bytes")
        })
    }

    /// Returns the longest packet behind an Ethernet header that the interface carries unsegmented,
    /// in bytes.
    pub fn mtu(&self) -> io::Result<u32> {
        crate::tap::mtu(self.fd.as_fd(), &self.interface)
    }

    /// Receives a burst of at most [`Batch::LEN`] frames into `received`, which is cleared first.
    /// Frame `i` goes, its virtio header first, to `heads[i][offset..]`, and its rest, if any, to
    /// `tails[i][heads[i].len()..]`: the place that it would have if the whole frame were in
    /// `tails[i]`. If there are fewer frames than buffers, the socket was empty.
    ///
    /// # Errors
    /// `WouldBlock` if there is no frame. See [`crate::tap::is_gone`] for the rest.
    pub fn receive<B: DerefMut<Target = [u8]>>(
        &self,
        batch: &mut Batch,
        offset: usize,
        heads: &mut [B],
        tails: &mut [B],
        received: &mut Vec<Received>,
    ) -> io::Result<()> {
        received.clear();
        let count = heads.len().min(tails.len()).min(Batch::LEN);
        for (i, (head, tail)) in heads.iter_mut().zip(tails).take(count).enumerate() {
            let tail = tail.get_mut(head.len()..).unwrap_or_default();
            let head = head.get_mut(offset..).unwrap_or_default();
            batch.vectors[2 * i] = io_vector(head.as_mut_ptr(), head.len());
            batch.vectors[2 * i + 1] = io_vector(tail.as_mut_ptr(), tail.len());
            let message = &mut batch.messages[i].msg_hdr;
            message.msg_iov = &raw mut batch.vectors[2 * i];
            message.msg_iovlen = 2;
            message.msg_control = (&raw mut batch.controls[i]).cast();
            message.msg_controllen = size_of::<Control>() as _;
        }
        // SAFETY: the first `count` messages point to buffers that are borrowed
        // mutably until this function returns, and to control buffers of the
        // size given; `count` is at most the length of `messages`.
        let result = unsafe {
            libc::recvmmsg(
                self.fd.as_raw_fd(),
                batch.messages.as_mut_ptr(),
                count as c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let Ok(got) = usize::try_from(result) else {
            return Err(io::Error::last_os_error());
        };
        received.extend(batch.messages.iter().take(got).map(|message| Received {
            len: message.msg_len as usize,
            truncated: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            vlan_tag: vlan_tag(&message.msg_hdr),
        }));
        Ok(())
    }

    /// Sends frames, each behind its virtio header, in one call: at most [`Batch::LEN`]. Returns
    /// the number of frames that the kernel took.
    ///
    /// # Errors
    /// The first frame was not taken: `WouldBlock` if the socket is full, `ENOBUFS` if the
    /// interface's queue dropped it, `ENETDOWN` if the interface is down. See
    /// [`crate::tap::is_gone`].
    pub fn transmit<'a>(
        &self,
        batch: &mut Batch,
        frames: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<usize> {
        let mut count = 0;
        for (i, frame) in frames.take(Batch::LEN).enumerate() {
            // The kernel only reads from it.
            batch.vectors[2 * i] = io_vector(frame.as_ptr().cast_mut(), frame.len());
            let message = &mut batch.messages[i].msg_hdr;
            message.msg_iov = &raw mut batch.vectors[2 * i];
            message.msg_iovlen = 1;
            message.msg_control = std::ptr::null_mut();
            message.msg_controllen = 0;
            count = i + 1;
        }
        // SAFETY: the first `count` messages point to frames that are borrowed
        // for 'a, which outlives this call; the kernel does not write to them.
        let result = unsafe {
            libc::sendmmsg(
                self.fd.as_raw_fd(),
                batch.messages.as_mut_ptr(),
                count as c_uint,
                libc::MSG_DONTWAIT as _,
            )
        };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }

    /// Returns the number of frames lost because the socket was full, since the last call.
    pub fn take_overruns(&self) -> io::Result<u64> {
        // SAFETY: `tpacket_stats` is plain old data, for which all zeros is a value.
        let mut stats: libc::tpacket_stats = unsafe { zeroed() };
        let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, the size of `stats`.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut len,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(u64::from(stats.tp_drops))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Space for one control message with a `tpacket_auxdata`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 64]);

// SAFETY: CMSG_SPACE computes a length and touches no memory.
const _: () = assert!(
    unsafe { libc::CMSG_SPACE(size_of::<libc::tpacket_auxdata>() as c_uint) } as usize
        <= size_of::<Control>()
);

/// The arrays of one burst. Each call sets their pointers anew.
pub struct Batch {
    messages: Box<[libc::mmsghdr; Self::LEN]>,
    vectors: Box<[libc::iovec; 2 * Self::LEN]>,
    controls: Box<[Control; Self::LEN]>,
}

// SAFETY: no pointer in it outlives the call that set it, and none is read before it is set anew:
// between two calls it is scratch space and nothing else.
unsafe impl Send for Batch {}

impl Batch {
    /// Most frames in one burst.
    pub const LEN: usize = 32;

    /// Makes arrays for bursts of up to [`Batch::LEN`] frames.
    pub fn new() -> Self {
        // SAFETY: an `mmsghdr` is plain old data: null pointers with zero
        // lengths, which is a valid empty message.
        let messages = Box::new(unsafe { zeroed() });
        Self {
            messages,
            vectors: Box::new([io_vector(std::ptr::null_mut(), 0); 2 * Self::LEN]),
            controls: Box::new([Control([0; 64]); Self::LEN]),
        }
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}

const fn io_vector(base: *mut u8, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: base.cast(),
        iov_len: len,
    }
}

/// Returns the tag that the kernel removed from a received frame, if it did.
fn vlan_tag(message: &libc::msghdr) -> Option<[u8; 4]> {
    // SAFETY: the kernel filled in `msg_control` and `msg_controllen`, and the
    // control buffer still lives: the batch that owns it is borrowed.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return null or a header that
        // lies within the control buffer.
        let control = unsafe { &*header };
        if control.cmsg_level == libc::SOL_PACKET && control.cmsg_type == libc::PACKET_AUXDATA {
            // SAFETY: a PACKET_AUXDATA message carries one `tpacket_auxdata`;
            // its place may not be aligned for it.
            let aux: libc::tpacket_auxdata =
                unsafe { std::ptr::read_unaligned(libc::CMSG_DATA(header).cast()) };
            if aux.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
                return None;
            }
            let tpid = if aux.tp_status & libc::TP_STATUS_VLAN_TPID_VALID == 0 {
                libc::ETH_P_8021Q as u16
            } else {
                aux.tp_vlan_tpid
            };
            let ([a, b], [c, d]) = (tpid.to_be_bytes(), aux.tp_vlan_tci.to_be_bytes());
            return Some([a, b, c, d]);
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

const _: () = assert!(VIRTIO_HEADER_LEN == 10, "PACKET_VNET_HDR means 10 bytes");

fn set_option<T>(fd: &OwnedFd, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as `T` has, from a valid reference.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Returns the interface that a socket is bound to.
fn bound_to(fd: &OwnedFd) -> io::Result<libc::sockaddr_ll> {
    // SAFETY: `sockaddr_ll` is plain old data, for which all zeros is a value.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `address`.
    let result =
        unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut len) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(address)
}

fn bind(fd: &OwnedFd, index: c_int) -> io::Result<()> {
    // SAFETY: `sockaddr_ll` is plain old data, for which all zeros is a value.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index;
    // SAFETY: the kernel reads one `sockaddr_ll`, the size given.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
