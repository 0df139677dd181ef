//! TAP devices: Ethernet interfaces whose other end is a file descriptor.
//!
//! A [`Tap`] sends and receives frames behind a `virtio_net_hdr` of [`VIRTIO_HEADER_LEN`] bytes. It
//! takes over checksums and the segmentation of TCP and, from Linux 6.2 on, of UDP from the kernel
//! (`TUN_F_CSUM`, `TUN_F_TSO4`, `TUN_F_TSO6`, `TUN_F_TSO_ECN`, `TUN_F_USO4`, `TUN_F_USO6`): senders
//! on the interface hand over packets of up to 64 KiB, as a guest with a virtio NIC does. Kernel
//! side: `Documentation/networking/tuntap.rst`.

use crate::inherited::{is_in, is_of_another};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Length of the `virtio_net_hdr` in front of each frame, in bytes.
pub const VIRTIO_HEADER_LEN: usize = 10;

/// Longest name of an interface, in bytes (`IFNAMSIZ` less the final zero).
pub const MAX_INTERFACE_NAME: usize = libc::IFNAMSIZ - 1;

/// Reason why a TAP could not be opened. The message contains a remedy.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// There is no TUN/TAP driver to open.
    #[error(
        "cannot open /dev/net/tun: {0}; load the driver with `modprobe tun`, or pass the device to \
         the container that this runs in"
    )]
    NoDriver(#[source] io::Error),
    /// Opening the driver or creating the device is not allowed.
    #[error(
        "not allowed to open the TAP {interface:?}: {source}; it takes CAP_NET_ADMIN in the \
         interface's network namespace and read and write access to /dev/net/tun"
    )]
    NotAllowed {
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// Another process holds the device.
    #[error(
        "the TAP {interface:?} is attached to another process; if that is a machine's monitor, as \
         QEMU, add a card of kind \"vhost-user\", or use kind \"af-packet\" on this \
         interface, behind which frames are lost unseen by its queue; otherwise end that process, \
         or use another name"
    )]
    Busy {
        /// The interface.
        interface: String,
    },
    /// The name is not valid for an interface.
    #[error(
        "{interface:?} cannot name an interface: it takes 1 to {MAX_INTERFACE_NAME} bytes without '/' and white space"
    )]
    Name {
        /// The name.
        interface: String,
    },
    /// There is an interface of that name which is no TAP, or one created with other flags.
    #[error(
        "the interface {interface:?} exists and is not a single-queue TAP; remove it with \
         `ip link delete {interface}` or use another name"
    )]
    NotTap {
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
    #[error("cannot {step} for the TAP {interface:?}: {source}")]
    Other {
        /// The interface.
        interface: String,
        /// The step that failed.
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// One open queue of a TAP device, non-blocking.
#[derive(Debug)]
pub struct Tap {
    fd: OwnedFd,
    persistent: bool,
}

impl Tap {
    /// Attaches to the TAP `interface`, or creates it. It is in the network namespace `netns`, or
    /// in the caller's; the descriptor works in any namespace.
    ///
    /// A device that is created here disappears with the returned value; a persistent one that
    /// existed before (`ip tuntap add mode tap`) stays.
    pub fn open(interface: &str, netns: Option<&Path>) -> Result<Self, TapError> {
        match netns {
            None => Self::open_here(interface),
            Some(path) => {
                crate::netns::within(path, || Self::open_here(interface)).map_err(|source| {
                    TapError::Namespace {
                        path: path.to_owned(),
                        source,
                    }
                })?
            }
        }
    }

    fn open_here(interface: &str) -> Result<Self, TapError> {
        let mut request = request(interface).ok_or_else(|| TapError::Name {
            interface: interface.to_owned(),
        })?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(|errno| {
            if errno == Errno::ACCESS || errno == Errno::PERM {
                TapError::NotAllowed {
                    interface: interface.to_owned(),
                    source: errno.into(),
                }
            } else {
                TapError::NoDriver(errno.into())
            }
        })?;
        let failed = |step| {
            move |source: io::Error| {
                let interface = interface.to_owned();
                match source.raw_os_error() {
                    Some(libc::EBUSY) => TapError::Busy { interface },
                    Some(libc::EINVAL) if step == ATTACH => TapError::NotTap { interface },
                    Some(libc::EPERM | libc::EACCES) => TapError::NotAllowed { interface, source },
                    _ => TapError::Other {
                        interface,
                        step,
                        source,
                    },
                }
            }
        };
        // IFF_TAP and the others are small positive constants: they fit.
        request.ifr_ifru.ifru_flags =
            (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one `ifreq`, which `request` is.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })
            .map_err(failed(ATTACH))?;
        Self::configure(fd).map_err(|(step, source)| failed(step)(source))
    }

    /// Continues with a descriptor that another process opened by [`Tap::open`], with all frames
    /// queued in it.
    ///
    /// # Errors
    /// The descriptor is not that of the interface in the namespace, or the interface is gone.
    pub fn adopt(fd: OwnedFd, interface: &str, netns: Option<&Path>) -> io::Result<Self> {
        /// `TUNGETDEVNETNS` of `linux/if_tun.h`, since Linux 4.20.
        const GET_NAMESPACE: libc::c_ulong = 0x54e3;
        let wanted = request(interface).ok_or(io::ErrorKind::InvalidInput)?;
        let found = device(&fd)?;
        if wanted.ifr_name != found.ifr_name || !is_in(&fd, GET_NAMESPACE, netns)? {
            return Err(is_of_another("it is of another TAP"));
        }
        Self::configure(fd).map_err(|(_, source)| source)
    }

    /// Sets the offloads of a descriptor that are set after it was attached.
    fn configure(fd: OwnedFd) -> Result<Self, (&'static str, io::Error)> {
        let header_len = (VIRTIO_HEADER_LEN as libc::c_uint).cast_signed();
        // SAFETY: TUNSETVNETHDRSZ reads one `int`.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const header_len) })
            .map_err(|error| ("set the header size", error))?;
        // A kernel that cannot leave UDP to us cuts it before it hands it over.
        take_over(&fd, TCP | libc::TUN_F_USO4 | libc::TUN_F_USO6)
            .or_else(|_| take_over(&fd, TCP))
            .map_err(|error| ("take over checksums and segmentation", error))?;
        let device = device(&fd).map_err(|error| ("read the flags", error))?;
        // SAFETY: TUNGETIFF filled in the flags, and any bits are a valid integer.
        let flags = unsafe { device.ifr_ifru.ifru_flags };
        Ok(Self {
            fd,
            persistent: libc::c_int::from(flags) & libc::IFF_PERSIST != 0,
        })
    }

    /// Makes the kernel segment and checksum frames before it hands them over.
    ///
    /// # Errors
    /// The kernel refuses.
    #[cfg(feature = "vhost-net")]
    pub fn leave_offloads(&self) -> io::Result<()> {
        take_over(&self.fd, 0)
    }

    /// Returns true if the device existed before, and stays when this is dropped.
    pub fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// Sets the MAC address of the interface.
    ///
    /// # Errors
    /// The address is a multicast one, or the interface is in use in a way that
    /// forbids the change.
    pub fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        // SAFETY: `ifreq` is plain old data, for which all zeros is a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let mut address = libc::sockaddr {
            sa_family: libc::ARPHRD_ETHER,
            sa_data: [0; 14],
        };
        for (to, from) in address.sa_data.iter_mut().zip(mac) {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_hwaddr = address;
        // SAFETY: SIOCSIFHWADDR reads one `ifreq`; on a TAP's descriptor it
        // means that TAP, whatever name the request has.
        check(unsafe {
            libc::ioctl(
                self.fd.as_raw_fd(),
                libc::SIOCSIFHWADDR as libc::Ioctl,
                &raw const request,
            )
        })
    }

    /// Takes the next frame off the device: the virtio header and the frame go into `buffers`, one
    /// after the other. Returns their total length.
    ///
    /// # Errors
    /// `WouldBlock` if there is no frame. See [`is_gone`] for the rest.
    pub fn receive(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Ok(rustix::io::readv(&self.fd, buffers)?)
    }

    /// Sends a frame behind its virtio header to the device.
    ///
    /// # Errors
    /// `EIO` if the interface is down, `EINVAL` if the header contradicts the frame, `WouldBlock`
    /// if the device is full. See [`is_gone`] for the rest.
    pub fn transmit(&self, header_and_frame: &[u8]) -> io::Result<()> {
        rustix::io::write(&self.fd, header_and_frame)?;
        Ok(())
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns true for an error of a TAP or a packet socket that means that the interface behind it
/// does not exist any more (or, for a packet socket, is down).
pub fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EBADFD | libc::ENODEV | libc::ENXIO | libc::ENETDOWN)
    )
}

const ATTACH: &str = "attach";

const TCP: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// Takes over the offloads in `offload`, and no others.
fn take_over(fd: &OwnedFd, offload: libc::c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value and touches no memory of ours.
    check(unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            libc::TUNSETOFFLOAD,
            libc::c_ulong::from(offload),
        )
    })
}

/// Makes an `ifreq` that names `interface`.
pub(crate) fn request(interface: &str) -> Option<libc::ifreq> {
    let bytes = interface.as_bytes();
    let fits = (1..=MAX_INTERFACE_NAME).contains(&bytes.len());
    // The kernel would take "%d" as a pattern, and a name with a slash or white
    // space it refuses (dev_valid_name).
    if !fits
        || bytes
            .iter()
            .any(|b| matches!(b, 0 | b'/' | b':' | b'%') || b.is_ascii_whitespace())
    {
        return None;
    }
    // SAFETY: `ifreq` is plain old data, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = from.cast_signed();
    }
    Some(request)
}

/// Returns the name and the flags of the device behind a descriptor.
fn device(fd: &OwnedFd) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is plain old data, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: TUNGETIFF writes one `ifreq`, which `request` is.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNGETIFF, &raw mut request) })?;
    Ok(request)
}

/// Returns the longest packet behind an Ethernet header, in bytes; `interface` is in the network
/// namespace in which `socket` was opened.
pub(crate) fn mtu(socket: BorrowedFd<'_>, interface: &str) -> io::Result<u32> {
    let mut request = request(interface).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: SIOCGIFMTU reads and writes one `ifreq`.
    check(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCGIFMTU as libc::Ioctl,
            &raw mut request,
        )
    })?;
    // SAFETY: SIOCGIFMTU filled in the MTU, and any bits are an integer.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(mtu.cast_unsigned())
}

pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_interface_can_have_are_refused_before_the_kernel_sees_them() {
        for name in ["", "a-name-of-16-byt", "a/b", "a b", "tap%d", "nul\0"] {
            assert!(matches!(Tap::open(name, None), Err(TapError::Name { .. })));
        }
        assert!(request("a-name-of-15-by").is_some());
    }

    #[test]
    fn a_namespace_that_does_not_exist_is_named_in_the_error() {
        let error = Tap::open("tap0", Some(Path::new("/nonexistent/netns"))).expect_err("no file");
        assert!(error.to_string().contains("/nonexistent/netns"), "{error}");
    }
}
