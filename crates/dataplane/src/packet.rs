//! A packet of bytes that is checked once, when it arrives.
//!
//! Read [`Packet::new`] first: it rejects every mistake that a guest may have made, with a
//! [`Malformed`] that names it. All other methods rely on the offsets it stored. [`Pool`] supplies
//! the buffers, and [`Offload`] describes the remaining work: checksum and segmentation.

mod claim;
mod connection;
mod control;
mod facts;
mod offload;
mod parsed;
mod pool;
pub mod segment;
mod tag;
mod tcp;
#[cfg(test)]
mod tests;
mod wire;

pub use claim::{Claim, Role, Station};
pub use offload::{Checksum, Cwr, Gso, GsoKind, MAX_SEGMENTS, Offload, VIRTIO_HEADER};
pub use pool::{Buffer, Pool};
pub use tcp::TcpMaker;

use crate::{Connection, Control, FlowKey, Frame, GuestId};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tailbound_classes::{Class, Classes, Mark};
use tailbound_units::Bytes;
use wire::{ETHERNET, Network, TAG, be16, is_tag};

use crate::checksum::{fold, pseudo_header, sum};
use crate::frame::ipv4::{self, Ipv4Header};
use facts::{Destination, Facts};
use parsed::Parsed;
pub use parsed::PlainPacket;

/// Reason why bytes are not a packet that may be forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The frame is outside the buffer, leaves no room for a virtio header before it, or is longer
    /// than any frame.
    #[error("a frame of {len} bytes at {start} does not fit its buffer")]
    Bounds {
        /// Offset of the frame in the buffer.
        start: usize,
        /// Length of the frame in bytes.
        len: usize,
    },
    /// A header, or the length in its length field, goes beyond the end of the frame.
    #[error("the frame ends before its {0} header or payload does")]
    Truncated(&'static str),
    /// The version in the IP header contradicts the frame's `EtherType`.
    #[error("the IP header's version contradicts the frame's type")]
    IpVersion,
    /// More IPv6 extension headers than RFC 8200 defines uses for.
    #[error("the IPv6 packet has too many extension headers")]
    Extensions,
    /// ARP for anything but IPv4 over Ethernet.
    #[error("the ARP packet is not one for IPv4 over Ethernet")]
    Arp,
    /// The virtio header has flags that a sender never sets.
    #[error("virtio header: unknown flags {flags:#04x}")]
    VirtioFlags {
        /// All flags.
        flags: u8,
    },
    /// The virtio header's `hdr_len` is beyond the packet.
    #[error("virtio header: hdr_len {header_len} is beyond the packet")]
    HeaderLength {
        /// The declared length of the headers (`hdr_len`), in bytes.
        header_len: u16,
    },
    /// The checksum is not at the place that the packet's protocol has for it.
    #[error("virtio header: no checksum belongs at csum_start {start} + csum_offset {offset}")]
    ChecksumPlace {
        /// Begin of the checksummed part (`csum_start`), in bytes from the frame's begin.
        start: u16,
        /// Place of the checksum (`csum_offset`), in bytes from `start`.
        offset: u16,
    },
    /// Segmentation of a kind that was not offered.
    #[error("virtio header: gso_type {gso_type:#04x} was never offered")]
    GsoType {
        /// The declared kind of segmentation (`gso_type`).
        gso_type: u8,
    },
    /// A segment size of zero, or one that makes too many segments.
    #[error("virtio header: gso_size {size} is 0 or makes more than {MAX_SEGMENTS} segments")]
    GsoSize {
        /// The declared payload of a segment (`gso_size`), in bytes.
        size: u16,
    },
    /// The GSO type contradicts the packet's headers, or the headers and payload do not end with
    /// the frame.
    #[error("virtio header: the GSO type contradicts the packet's headers")]
    GsoMismatch,
    /// Segmentation of a packet inside of a tunnel, which the port did not offer.
    #[error("virtio header: segmentation of a packet inside of a tunnel")]
    Tunnel,
    /// TCP segmentation of a packet that is not complete TCP.
    #[error("virtio header: TCP segmentation for a packet that is not TCP")]
    NotTcp,
}

impl Malformed {
    /// Label of the reason in a counter.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Bounds { .. } => "bounds",
            Self::Truncated(_) => "truncated",
            Self::IpVersion => "ip_version",
            Self::Extensions => "extensions",
            Self::Arp => "arp",
            Self::VirtioFlags { .. } => "virtio_flags",
            Self::HeaderLength { .. } => "header_length",
            Self::ChecksumPlace { .. } => "checksum_place",
            Self::GsoType { .. } => "gso_type",
            Self::GsoSize { .. } => "gso_size",
            Self::GsoMismatch => "gso_mismatch",
            Self::Tunnel => "tunnel",
            Self::NotTcp => "not_tcp",
        }
    }

    /// Checks whether the packet is valid but requests a kind of segmentation that is not
    /// implemented here: the port's interface was configured to offer it.
    pub const fn is_unsupported_segmentation(self) -> bool {
        matches!(self, Self::GsoType { .. } | Self::Tunnel)
    }
}

/// A packet of bytes: an Ethernet frame in a pool's buffer, the offsets of its headers, and the
/// remaining work. One word; cheap to move.
pub struct Packet(Buffer);

const _: () = assert!(size_of::<Option<Packet>>() == 8, "a word");

impl Packet {
    /// Room in front of the frame for a virtio header and 4 more bytes for a restored VLAN tag,
    /// rounded up to keep the frame aligned.
    pub const HEADROOM: usize = 16;
    /// The longest frame: an IPv4 packet of 65,535 bytes, two VLAN tags, and the
    /// Ethernet header.
    pub const MAX_FRAME: usize = 65_535 + 2 * TAG + ETHERNET;
    /// Memory of a packet in addition to its buffer, in bytes: the packet, its entry in a queue,
    /// and the allocator's and the pool's records of the buffer.
    pub const OVERHEAD: u64 = 256;

    /// Checks `buffer[start..start + len]`, an Ethernet frame from `source` (`None`: from outside),
    /// and makes a packet of it. All checks are here: lengths, ends of headers, and the requests of
    /// the virtio header.
    ///
    /// A frame in a larger buffer than necessary moves to a smaller one, so that a queue holds no
    /// more memory than its packets' bytes need.
    ///
    /// The class is the lowest until a pipeline or [`Packet::read_class`] sets another.
    pub fn new(
        buffer: Buffer,
        start: usize,
        len: usize,
        virtio: Option<[u8; VIRTIO_HEADER]>,
        source: Option<GuestId>,
    ) -> Result<Self, Malformed> {
        match Facts::of_plain(&buffer, start, len, virtio.as_ref(), source) {
            Some(facts) => Ok(Self::of(buffer, facts)),
            None => any_packet(buffer, start, len, virtio, source),
        }
    }

    /// Makes a packet of a buffer and its known facts.
    #[inline]
    fn of(mut buffer: Buffer, facts: Facts) -> Self {
        *buffer.parts_mut().1 = facts;
        Self(buffer)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "for each look at a frame")]
    fn facts(&self) -> &Facts {
        self.0.facts()
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "for each look at a frame")]
    fn facts_mut(&mut self) -> &mut Facts {
        self.0.parts_mut().1
    }

    /// A copy in a buffer of its own, for a frame that goes to several ports.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        let facts = *self.facts();
        let len = facts.len as usize;
        let mut buffer = self.pool().buffer(Self::HEADROOM + len);
        buffer[Self::HEADROOM..Self::HEADROOM + len].copy_from_slice(self.bytes());
        let facts = Facts {
            start: Self::HEADROOM as u16,
            network_start: Self::HEADROOM as u16 + u16::from(facts.headers.network),
            ..facts
        };
        Self::of(buffer, facts)
    }

    /// Returns the facts of the packet's parts, without their lengths: a part needs no
    /// segmentation. A separate function, so that the facts are copied for each part as a whole,
    /// not field by field.
    #[inline(never)]
    fn facts_of_parts(&self) -> Facts {
        let whole = self.facts();
        Facts {
            start: Self::HEADROOM as u16,
            network_start: Self::HEADROOM as u16 + u16::from(whole.headers.network),
            offload: Offload {
                gso: None,
                ..whole.offload
            },
            ..*whole
        }
    }

    /// Makes a packet with the facts `known` (except for the length), this packet's `headers` after
    /// `rewrite` changed them, and `payload`.
    #[inline]
    fn piece(
        &self,
        known: &Facts,
        headers: &[u8],
        payload: &[u8],
        rewrite: impl FnOnce(&mut [u8]),
    ) -> Self {
        let len = headers.len() + payload.len();
        let mut buffer = self.pool().buffer(Self::HEADROOM + len);
        let (bytes, facts) = buffer.parts_mut();
        let (front, back) = bytes[Self::HEADROOM..][..len].split_at_mut(headers.len());
        front.copy_from_slice(headers);
        back.copy_from_slice(payload);
        rewrite(front);
        *facts = *known;
        facts.len = len as u32;
        Self(buffer)
    }

    /// The IP header's and the next protocol's offset.
    pub(crate) fn header_offsets(&self) -> (usize, usize) {
        (
            usize::from(self.facts().headers.network),
            usize::from(self.facts().headers.transport),
        )
    }

    /// The IP addresses as in the header; empty if the packet is not IP.
    pub(crate) fn ip_addresses(&self) -> &[u8] {
        self.facts().headers.addresses(self.bytes())
    }

    /// The frame, from the Ethernet header to the end.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let facts = self.facts();
        let start = usize::from(facts.start);
        &self.0[start..start + facts.len as usize]
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let (bytes, facts) = self.0.parts_mut();
        let start = usize::from(facts.start);
        &mut bytes[start..start + facts.len as usize]
    }

    /// The pool that the buffer came from.
    #[inline]
    pub fn pool(&self) -> &Pool {
        self.0.pool()
    }

    /// Remaining work: checksum and segmentation.
    pub fn offload(&self) -> Offload {
        self.facts().offload
    }

    /// The Ethernet destination.
    #[inline]
    pub fn destination_mac(&self) -> [u8; 6] {
        mac_at(self.bytes(), 0)
    }

    /// The Ethernet source.
    #[inline]
    pub fn source_mac(&self) -> [u8; 6] {
        mac_at(self.bytes(), 6)
    }

    /// The VLAN of the outermost tag; `None` without a tag.
    pub fn vlan(&self) -> Option<u16> {
        let bytes = self.bytes();
        is_tag(be16(bytes, 12)).then(|| be16(bytes, ETHERNET) & 0xfff)
    }

    /// Sets the packet's flow to all traffic of its guest to the destination station, for any IP
    /// address: see [`FlowKey::station`].
    pub fn flow_by_station(&mut self) {
        let station = FlowKey::station(self.destination_mac());
        let facts = self.facts_mut();
        facts.destination = match facts.destination {
            Destination::Ip | Destination::PlainIpv4 | Destination::Station => Destination::Station,
            Destination::IpHere | Destination::StationHere => Destination::StationHere,
            Destination::Group => return,
        };
        facts.has_flow = true;
        facts.flow = station;
    }

    /// Marks the packet as one to another guest of this host: see [`Frame::is_local`].
    pub fn set_local(&mut self) {
        let facts = self.facts_mut();
        facts.destination = match facts.destination {
            Destination::Ip | Destination::PlainIpv4 | Destination::IpHere => Destination::IpHere,
            Destination::Station | Destination::StationHere => Destination::StationHere,
            Destination::Group => Destination::Group,
        };
    }

    /// The IP source address; `None` if the packet is not IP.
    pub fn ip_source(&self) -> Option<IpAddr> {
        let addresses = self.facts().headers.addresses(self.bytes());
        let (source, _) = addresses.split_at(addresses.len() / 2);
        ip_address(source)
    }

    /// The IP destination address; `None` if the packet is not IP.
    pub fn ip_destination(&self) -> Option<IpAddr> {
        let addresses = self.facts().headers.addresses(self.bytes());
        let (_, destination) = addresses.split_at(addresses.len() / 2);
        ip_address(destination)
    }

    /// Returns the virtio header that requests the remaining work, and the frame, contiguous: for
    /// one `write` to a TAP or a `PACKET_VNET_HDR` socket.
    pub fn with_virtio_header(&mut self) -> &[u8] {
        let (bytes, facts) = self.0.parts_mut();
        let start = usize::from(facts.start);
        let bytes = &mut bytes[start - VIRTIO_HEADER..start + facts.len as usize];
        if let Some(header) = bytes.first_chunk_mut() {
            facts.offload.write(header);
        }
        bytes
    }

    /// Returns the virtio header that requests the remaining work, for a port that writes header
    /// and frame separately.
    pub fn virtio_header(&self) -> [u8; VIRTIO_HEADER] {
        let mut header = [0; VIRTIO_HEADER];
        self.facts().offload.write(&mut header);
        header
    }

    /// Completes a checksum that was left to the NIC, for ports that cannot (pcap, memory). A
    /// packet that needs segmentation gets the checksum of the whole.
    pub fn complete_checksum(&mut self) {
        let Some(checksum) = self.facts().offload.checksum else {
            return;
        };
        self.facts_mut().offload.checksum = None;
        let end = self.facts().headers.end(self.bytes());
        let bytes = self.bytes_mut();
        let total = !sum(&bytes[usize::from(checksum.start)..end]);
        // Zero would mean "no checksum" to UDP; both are the same number in
        // one's complement, and Linux too never writes zero.
        let written = if total == 0 { 0xffff } else { total };
        bytes[checksum.field()..checksum.field() + 2].copy_from_slice(&written.to_be_bytes());
    }

    /// Writes the sum of the pseudo-header into the checksum field, so that the completed checksum
    /// does not depend on the guest's value.
    fn write_pseudo_header_sum(&mut self) {
        let Some(checksum) = self.facts().offload.checksum else {
            return;
        };
        let headers = self.facts().headers;
        let bytes = self.bytes();
        let length = headers.end(bytes) - usize::from(headers.transport);
        let sum = fold(pseudo_header(headers.addresses(bytes), headers.protocol) + length as u32);
        let field = checksum.field();
        self.bytes_mut()[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }

    /// Sets the class that the frame's mark stands for: its DSCP, or the PCP of its tag if the
    /// packet is not IP. For packets from a fabric of `classes`; the marks of guests have no
    /// meaning.
    pub fn read_class(&mut self, classes: Classes) {
        let bytes = self.bytes();
        let network = usize::from(self.facts().headers.network);
        self.facts_mut().class = match self.facts().headers.network_kind {
            Network::Ipv4 => {
                let dscp = bytes[network + 1] >> 2;
                classes.class_by_mark(|mark| mark.dscp == dscp)
            }
            Network::Ipv6 => {
                let dscp = (be16(bytes, network) >> 6) & 0x3f;
                classes.class_by_mark(|mark| u16::from(mark.dscp) == dscp)
            }
            Network::Arp | Network::Other => {
                let pcp = is_tag(be16(bytes, 12)).then(|| bytes[ETHERNET] >> 5);
                classes.class_by_mark(|mark| Some(mark.pcp) == pcp)
            }
        };
    }

    /// The ECN field of the IP header (RFC 3168); 0 if the packet is not IP.
    fn ecn(&self) -> u8 {
        let bytes = self.bytes();
        let network = usize::from(self.facts().headers.network);
        match self.facts().headers.network_kind {
            Network::Ipv4 => bytes[network + 1] & 3,
            Network::Ipv6 => (bytes[network + 1] >> 4) & 3,
            Network::Arp | Network::Other => 0,
        }
    }

    /// The first bytes of the header behind Ethernet and its tags. `new` checked that an IP header
    /// is complete.
    #[inline]
    fn network_header_mut<const N: usize>(&mut self) -> Option<&mut [u8; N]> {
        let (bytes, facts) = self.0.parts_mut();
        let at = usize::from(facts.network_start);
        bytes.get_mut(at..at + N)?.first_chunk_mut()
    }

    /// Replaces the bits of `mask` in the IPv4 TOS or IPv6 traffic class byte.
    #[inline]
    fn rewrite_traffic_class(&mut self, mask: u8, value: u8) {
        if self.facts().headers.network_kind != Network::Ipv4 {
            return self.rewrite_ipv6_traffic_class(mask, value);
        }
        let Some(ip) = self.network_header_mut::<20>() else {
            return;
        };
        ipv4::replace_tos(ip, mask, value);
    }

    /// A separate function, so that IPv4's path stays short.
    #[inline(never)]
    fn rewrite_ipv6_traffic_class(&mut self, mask: u8, value: u8) {
        if self.facts().headers.network_kind == Network::Ipv6
            && let Some(ip) = self.network_header_mut::<2>()
        {
            ip[0] = (ip[0] & !(mask >> 4)) | value >> 4;
            ip[1] = (ip[1] & !(mask << 4)) | value << 4;
        }
    }

    /// Writes the PCP of every VLAN tag, because a switch's port decides which of the tags it
    /// reads.
    fn rewrite_priority(&mut self, pcp: u8) {
        let tags_end = usize::from(self.facts().headers.network);
        let bytes = self.bytes_mut();
        for tag in (ETHERNET..tags_end).step_by(TAG) {
            bytes[tag] = (bytes[tag] & 0x1f) | (pcp << 5);
        }
    }
}

impl Frame for Packet {
    #[inline]
    fn len(&self) -> usize {
        self.facts().len as usize
    }

    #[inline]
    fn source(&self) -> Option<GuestId> {
        self.facts().source
    }

    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "called once for every frame, and a call costs about the same as its work"
    )]
    fn flow(&self) -> Option<FlowKey> {
        let facts = self.facts();
        let source = facts.source?;
        facts.has_flow.then_some(FlowKey {
            source,
            destination: facts.flow,
        })
    }

    #[inline]
    fn class(&self) -> Class {
        self.facts().class
    }

    #[inline]
    fn connection(&self) -> Connection {
        self.facts().connection
    }

    #[inline]
    fn control(&self) -> Option<Control> {
        if self.facts().len as usize > control::MAX_CONTROL_PACKET {
            return None;
        }
        self.control_of_short()
    }

    /// The buffer's full capacity, and the memory of the packet's records.
    #[inline]
    fn truesize(&self) -> Bytes {
        Bytes(self.0.len() as u64 + Self::OVERHEAD)
    }

    #[inline]
    fn set_class(&mut self, class: Class, mark: Mark) {
        self.facts_mut().class = class;
        self.rewrite_traffic_class(ipv4::DSCP, mark.dscp << 2);
        if usize::from(self.facts().headers.network) > ETHERNET {
            self.rewrite_priority(mark.pcp);
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for every frame")]
    fn ipv4(&mut self) -> Option<Ipv4Header<'_>> {
        if self.facts().destination != Destination::PlainIpv4 {
            return None;
        }
        let (bytes, facts) = self.0.parts_mut();
        let at = usize::from(facts.network_start);
        let flow = FlowKey {
            source: facts.source?,
            // What it was made from, so that whoever hashes it sees that it is IPv4.
            destination: ipv4::mapped(facts.flow as u32),
        };
        let header = bytes.get_mut(at..at + 20)?.first_chunk_mut()?;
        let len = facts.len as usize;
        Some(Ipv4Header::new(flow, len, header, &mut facts.class))
    }

    fn mark_congestion(&mut self) -> bool {
        if self.ecn() == 0 {
            return false;
        }
        self.rewrite_traffic_class(0x03, 0x03);
        true
    }

    fn is_scalable(&self) -> bool {
        self.ecn() == 1
    }

    #[inline]
    fn is_local(&self) -> bool {
        self.facts().destination.is_here()
    }

    #[inline]
    fn is_multicast(&self) -> bool {
        self.facts().destination == Destination::Group
    }

    fn add_priority_tag(&mut self, mark: Mark) {
        self.insert_priority_tag(mark);
    }

    #[inline]
    fn segments(&self) -> usize {
        let gso = self.facts().offload.gso.as_ref();
        gso.map_or(1, |gso| {
            (self.len() - usize::from(gso.header_len)).div_ceil(usize::from(gso.size))
        })
    }

    #[inline]
    fn wire_len(&self) -> usize {
        let headers = self
            .facts()
            .offload
            .gso
            .map_or(0, |gso| usize::from(gso.header_len));
        self.len() + self.segments().saturating_sub(1) * headers
    }

    #[inline]
    fn segment(self, sink: impl FnMut(Self)) {
        segment::segment(self, sink);
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("len", &self.facts().len)
            .field("source", &self.facts().source)
            .field("class", &self.facts().class)
            .field("headers", &self.facts().headers)
            .field("offload", &self.facts().offload)
            .finish_non_exhaustive()
    }
}

/// Checks any frame, and makes a packet of it. A separate function, so that the most common path
/// stays short.
#[inline(never)]
fn any_packet(
    mut buffer: Buffer,
    start: usize,
    len: usize,
    virtio: Option<[u8; VIRTIO_HEADER]>,
    source: Option<GuestId>,
) -> Result<Packet, Malformed> {
    let bounds = Malformed::Bounds { start, len };
    let in_bounds = start >= VIRTIO_HEADER && len <= Packet::MAX_FRAME;
    let frame = buffer
        .get(start..start.checked_add(len).ok_or(bounds)?)
        .filter(|_| in_bounds)
        .ok_or(bounds)?;
    let Parsed {
        mut headers,
        flow,
        has_flow,
        connection,
        is_plain,
    } = Parsed::new(buffer.pool().hash(), frame, source.is_some())?;
    let is_group = frame[0] & 1 != 0;
    let offload = match &virtio {
        Some(virtio) => Offload::parse(*virtio, frame, headers)?,
        None => Offload::NONE,
    };
    // A guest can claim checksums that its packets do not have.
    headers.vouched = source.is_none() && virtio.is_some_and(Offload::vouches);
    let capacity = buffer.len();
    let facts = buffer.parts_mut().1;
    *facts = Facts {
        source,
        has_flow,
        is_plain,
        flow,
        len: len as u32,
        start: u16::try_from(start).map_err(|_| bounds)?,
        network_start: u16::try_from(start + usize::from(headers.network)).map_err(|_| bounds)?,
        headers,
        class: Class::Lowest,
        destination: Destination::of(headers, is_group),
        offload,
        connection,
    };
    let mut packet = Packet(buffer);
    if capacity > Pool::SMALL && Pool::capacity_for(Packet::HEADROOM + len) < capacity {
        packet = packet.duplicate();
    }
    if offload.gso.is_some() {
        packet.write_pseudo_header_sum();
    }
    Ok(packet)
}

#[inline]
fn mac_at(bytes: &[u8], at: usize) -> [u8; 6] {
    let bytes = &bytes[at..at + 6];
    std::array::from_fn(|i| bytes[i])
}

/// An address of 4 or 16 bytes.
fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(*bytes.first_chunk()?).into()),
        16 => Some(Ipv6Addr::from(*bytes.first_chunk()?).into()),
        _ => None,
    }
}
