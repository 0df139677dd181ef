//! What is still to be done to a packet, and its form in a virtio header.

use super::Malformed;
use super::wire::{Headers, ICMP, ICMPV6, Network, TCP, UDP};

/// Length of the `virtio_net_hdr` that stands before a frame (virtio 1.2, 5.1.6;
/// the form without `num_buffers` that TAP and `PACKET_VNET_HDR` use).
pub const VIRTIO_HEADER: usize = 10;

/// Most segments that one packet may ask for.
///
/// A 64 KiB packet at the smallest MSS that is met on real paths (TCP's default
/// of 536) makes 123. Without a limit a guest could have the host make 65,000
/// packets out of one.
pub const MAX_SEGMENTS: usize = 512;

const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_ECN: u8 = 0x80;

/// A checksum that is left to whoever sends the packet: the field holds the sum
/// of the pseudo-header, and what is from `start` on is still to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checksum {
    /// First byte under the checksum, counted from the first of the frame.
    pub start: u16,
    /// Where the field is, counted from `start`.
    pub offset: u16,
}

impl Checksum {
    /// Where the field is, counted from the first byte of the frame.
    pub const fn field(self) -> usize {
        self.start as usize + self.offset as usize
    }
}

/// What kind of packet is to be segmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
}

/// Segmentation that is left to whoever sends the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gso {
    /// What it is.
    pub kind: GsoKind,
    /// Payload bytes a segment (the MSS less its options); never 0.
    pub size: u16,
    /// All headers up to the end of TCP's, in bytes from the first of the frame.
    pub header_len: u16,
    /// The sender said that the packet carries CWR, which only the first segment
    /// keeps (RFC 3168, 6.1.2).
    pub ecn: bool,
}

/// What is still to be done to a packet before it can go over a wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offload {
    /// A checksum to finish.
    pub checksum: Option<Checksum>,
    /// Cutting into packets of one MTU.
    pub gso: Option<Gso>,
}

impl Offload {
    /// Nothing is left to do.
    pub const NONE: Self = Self {
        checksum: None,
        gso: None,
    };

    /// Reads a virtio header (little endian) and holds it against the frame's
    /// own headers.
    ///
    /// A guest writes both, so both may lie. A checksum field must lie where the
    /// packet's own protocol has one: it is written later, and must not touch
    /// addresses that were checked before.
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
        let ecn = gso_type & GSO_ECN != 0;
        let kind = match gso_type & !GSO_ECN {
            GSO_NONE => return Ok(offload),
            GSO_TCP4 => GsoKind::Tcp4,
            GSO_TCP6 => GsoKind::Tcp6,
            _ => return Err(Malformed::GsoType { gso_type }),
        };
        offload.gso = check_gso(kind, size, ecn, frame, headers)?;
        if offload.gso.is_some() && offload.checksum.is_none() {
            // Allowed by virtio; Linux too makes it a partial checksum when it
            // segments (net/ipv4/tcp_offload.c). `Packet` writes the field.
            offload.checksum = Some(Checksum {
                start: headers.transport,
                offset: 16,
            });
        }
        Ok(offload)
    }

    /// Writes the virtio header that asks for what is still to be done.
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
            };
            if gso.ecn {
                virtio[1] |= GSO_ECN;
            }
            virtio[2..4].copy_from_slice(&gso.header_len.to_le_bytes());
            virtio[4..6].copy_from_slice(&gso.size.to_le_bytes());
        }
    }
}

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
    ecn: bool,
    frame: &[u8],
    headers: Headers,
) -> Result<Option<Gso>, Malformed> {
    let network = match kind {
        GsoKind::Tcp4 => Network::Ipv4,
        GsoKind::Tcp6 => Network::Ipv6,
    };
    if headers.network_kind != network {
        return Err(Malformed::GsoMismatch);
    }
    if size == 0 {
        return Err(Malformed::GsoSize { size });
    }
    let header_len = headers.tcp_end(frame)?;
    if headers.end(frame) != frame.len() {
        return Err(Malformed::GsoMismatch);
    }
    let payload = frame.len() - header_len;
    if payload.div_ceil(usize::from(size)) > MAX_SEGMENTS {
        return Err(Malformed::GsoSize { size });
    }
    // What fits in one segment is not to be segmented.
    if payload <= usize::from(size) {
        return Ok(None);
    }
    Ok(Some(Gso {
        kind,
        size,
        header_len: u16::try_from(header_len).map_err(|_| Malformed::GsoMismatch)?,
        ecn,
    }))
}
