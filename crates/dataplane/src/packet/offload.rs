//! Remaining work on a packet (checksum and segmentation), and its form in a virtio header.

use super::Malformed;
use super::wire::{Headers, ICMP, ICMPV6, Network, TCP, UDP};

/// Length of the `virtio_net_hdr` before a frame (virtio 1.2, 5.1.6; the form without `num_buffers`
/// that TAP and `PACKET_VNET_HDR` use).
pub const VIRTIO_HEADER: usize = 10;

/// Maximum number of segments of one packet.
///
/// A 64 KiB packet has 123 segments with the smallest MSS that real paths have (TCP's default of
/// 536). Without a limit a guest could make the host produce 65,000 packets of one.
pub const MAX_SEGMENTS: usize = 512;

const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
/// `VIRTIO_NET_HDR_GSO_ACCECN`, as proposed for Linux.
const GSO_ACCURATE_ECN: u8 = 0x10;
const GSO_ECN: u8 = 0x80;

/// A checksum that is left to the packet's last sender: the field holds the sum of the
/// pseudo-header, and the bytes from `start` on must be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checksum {
    /// First byte under the checksum, counted from the first of the frame.
    pub start: u16,
    /// Offset of the field from `start`.
    pub offset: u16,
}

impl Checksum {
    /// Offset of the field from the first byte of the frame.
    pub const fn field(self) -> usize {
        self.start as usize + self.offset as usize
    }
}

/// Kind of a packet that needs segmentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv4: each segment is a datagram (`UDP_SEGMENT`).
    Udp4,
    /// UDP over IPv6.
    Udp6,
}

/// Meaning of TCP's flag CWR in a packet that needs segmentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cwr {
    /// Unknown: every segment keeps the flag, because it may be a bit of a counter (RFC 9768).
    Plain,
    /// An answer to a mark: only the first segment keeps the flag (RFC 3168, 6.1.2).
    Classic,
    /// A bit of `AccECN`'s counter, declared by the sender.
    Accurate,
}

/// Segmentation that is left to the packet's last sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gso {
    /// Kind of the packet.
    pub kind: GsoKind,
    /// Payload bytes of a segment (the MSS minus its options); never 0.
    pub size: u16,
    /// Length of all headers up to the end of TCP's or UDP's, in bytes from the first of the frame.
    pub header_len: u16,
    /// Meaning of CWR, for TCP.
    pub cwr: Cwr,
}

/// Work that remains before a packet can go over a wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offload {
    /// A checksum to complete.
    pub checksum: Option<Checksum>,
    /// Cutting into packets of one MTU.
    pub gso: Option<Gso>,
}

impl Offload {
    /// No work remains.
    pub const NONE: Self = Self {
        checksum: None,
        gso: None,
    };

    /// Reads a virtio header (little endian) and compares it with the frame's own headers.
    ///
    /// A guest writes both, so both may be wrong. The checksum field must be at the place of the
    /// packet's own protocol: it is written later, and must not overwrite addresses that were
    /// checked before.
    pub(super) fn parse(
        virtio: [u8; VIRTIO_HEADER],
        frame: &[u8],
        headers: Headers,
    ) -> Result<Self, Malformed> {
        let [flags, gso_type, ..] = virtio;
        let word = |at| u16::from_le_bytes([virtio[at], virtio[at + 1]]);
        let (header_len, size, start, offset) = (word(2), word(4), word(6), word(8));

        if flags & !(NEEDS_CHECKSUM | DATA_VALID) != 0 {
            return Err(Malformed::VirtioFlags { flags });
        }
        if usize::from(header_len) > frame.len() {
            return Err(Malformed::HeaderLength { header_len });
        }
        let mut offload = Self::NONE;
        if flags & NEEDS_CHECKSUM != 0 {
            let checksum = Checksum { start, offset };
            check_checksum(checksum, frame, headers)?;
            offload.checksum = Some(checksum);
        }
        let ecn = gso_type & (GSO_ECN | GSO_ACCURATE_ECN);
        let kind = match (gso_type ^ ecn, headers.network_kind) {
            (GSO_NONE, _) => return Ok(offload),
            (GSO_TCP4, _) => GsoKind::Tcp4,
            (GSO_TCP6, _) => GsoKind::Tcp6,
            (GSO_UDP, Network::Ipv4) => GsoKind::Udp4,
            (GSO_UDP, Network::Ipv6) => GsoKind::Udp6,
            (GSO_UDP, _) => return Err(Malformed::GsoMismatch),
            _ => return Err(Malformed::GsoType { gso_type }),
        };
        let cwr = match ecn {
            0 => Cwr::Plain,
            GSO_ECN => Cwr::Classic,
            _ => Cwr::Accurate,
        };
        let place = Checksum {
            start: headers.transport,
            offset: kind.checksum_offset(),
        };
        let is_own = headers.protocol == kind.protocol();
        let is_inner = offload.checksum.is_some_and(|checksum| checksum != place);
        if kind.is_tunnelled(headers) || is_own && is_inner {
            return Err(Malformed::Tunnel);
        }
        offload.gso = check_gso(kind, size, cwr, frame, headers)?;
        if offload.gso.is_some() {
            // A sender need not leave the checksum; Linux too makes it a partial one
            // when it segments (net/ipv4/tcp_offload.c). `Packet` writes the field.
            offload.checksum = Some(place);
        }
        Ok(offload)
    }

    /// Checks for a virtio header that requests nothing; the checksum may be declared valid.
    #[inline]
    pub(super) fn leaves_nothing(virtio: &[u8; VIRTIO_HEADER]) -> bool {
        let [flags, rest @ ..] = virtio;
        flags & !DATA_VALID == 0 && *rest == [0; VIRTIO_HEADER - 1]
    }

    /// Checks whether a virtio header declares the packet's checksum valid.
    pub(super) const fn vouches(virtio: [u8; VIRTIO_HEADER]) -> bool {
        virtio[0] & DATA_VALID != 0
    }

    /// Writes the virtio header that requests the remaining work.
    pub(super) fn write(self, virtio: &mut [u8; VIRTIO_HEADER]) {
        *virtio = [0; VIRTIO_HEADER];
        if let Some(Checksum { start, offset }) = self.checksum {
            virtio[0] = NEEDS_CHECKSUM;
            virtio[6..8].copy_from_slice(&start.to_le_bytes());
            virtio[8..10].copy_from_slice(&offset.to_le_bytes());
        }
        if let Some(gso) = self.gso {
            virtio[1] = match gso.kind {
                GsoKind::Tcp4 => GSO_TCP4,
                GsoKind::Tcp6 => GSO_TCP6,
                GsoKind::Udp4 | GsoKind::Udp6 => GSO_UDP,
            };
            virtio[1] |= match gso.cwr {
                Cwr::Plain => 0,
                Cwr::Classic => GSO_ECN,
                Cwr::Accurate => GSO_ACCURATE_ECN,
            };
            virtio[2..4].copy_from_slice(&gso.header_len.to_le_bytes());
            virtio[4..6].copy_from_slice(&gso.size.to_le_bytes());
        }
    }
}

impl GsoKind {
    const fn protocol(self) -> u8 {
        match self {
            Self::Tcp4 | Self::Tcp6 => TCP,
            Self::Udp4 | Self::Udp6 => UDP,
        }
    }

    /// Offset of the checksum in the header of TCP or UDP.
    const fn checksum_offset(self) -> u16 {
        match self {
            Self::Tcp4 | Self::Tcp6 => 16,
            Self::Udp4 | Self::Udp6 => 6,
        }
    }

    /// Checks whether a packet with these headers must be a tunnel whose inner packets need
    /// segmentation: in UDP, IPv4, IPv6 or GRE.
    const fn is_tunnelled(self, headers: Headers) -> bool {
        match self {
            Self::Tcp4 | Self::Tcp6 => matches!(headers.protocol, UDP | IP_IN_IP | IPV6 | GRE),
            Self::Udp4 | Self::Udp6 => matches!(headers.protocol, IP_IN_IP | IPV6 | GRE),
        }
    }
}

const IP_IN_IP: u8 = 4;
const IPV6: u8 = 41;
const GRE: u8 = 47;

fn check_checksum(checksum: Checksum, frame: &[u8], headers: Headers) -> Result<(), Malformed> {
    let Checksum { start, offset } = checksum;
    let refused = Err(Malformed::ChecksumPlace { start, offset });
    let transport = headers.transport;
    if transport == 0 || start < transport || checksum.field() + 2 > headers.end(frame) {
        return refused;
    }
    let own = match headers.protocol {
        TCP => Some(16),
        UDP => Some(6),
        ICMP | ICMPV6 => Some(2),
        _ => None,
    };
    match own {
        Some(own) if start == transport && offset == own => Ok(()),
        // A packet inside of UDP (a tunnel): behind the outer header.
        Some(_) if headers.protocol == UDP && start >= transport + 8 => Ok(()),
        Some(_) => refused,
        None => Ok(()),
    }
}

fn check_gso(
    kind: GsoKind,
    size: u16,
    cwr: Cwr,
    frame: &[u8],
    headers: Headers,
) -> Result<Option<Gso>, Malformed> {
    let network = match kind {
        GsoKind::Tcp4 | GsoKind::Udp4 => Network::Ipv4,
        GsoKind::Tcp6 | GsoKind::Udp6 => Network::Ipv6,
    };
    if headers.network_kind != network {
        return Err(Malformed::GsoMismatch);
    }
    if size == 0 {
        return Err(Malformed::GsoSize { size });
    }
    let header_len = match kind {
        GsoKind::Tcp4 | GsoKind::Tcp6 => headers.tcp_end(frame)?,
        GsoKind::Udp4 | GsoKind::Udp6 => headers.udp_end(frame)?,
    };
    if headers.end(frame) != frame.len() {
        return Err(Malformed::GsoMismatch);
    }
    let payload = frame.len() - header_len;
    if payload.div_ceil(usize::from(size)) > MAX_SEGMENTS {
        return Err(Malformed::GsoSize { size });
    }
    // A payload of at most one segment needs no segmentation.
    if payload <= usize::from(size) {
        return Ok(None);
    }
    Ok(Some(Gso {
        kind,
        size,
        header_len: u16::try_from(header_len).map_err(|_| Malformed::GsoMismatch)?,
        cwr,
    }))
}
