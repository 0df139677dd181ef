//! TCP in a packet's bytes, for early acknowledgement.

mod plain;

use super::connection::connection_of;
use super::facts::{Destination, Facts};
use super::wire::{ETHERNET, Headers, Network, TAG, TCP, be16};
use super::{Checksum, Gso, GsoKind, Offload, Packet, Pool, VIRTIO_HEADER};
use crate::checksum::{fold, pseudo_header, sum, update};
use crate::frame::ipv4::mapped;
use crate::snoop::{
    Bare, Change, Direction, Flags, FlowId, Link, Options, Plain, Segment, Seq, Sight, StoredFrame,
    TcpFrame, Timestamps,
};
use crate::{Class, GuestId};

/// The fixed part of a TCP header.
const HEADER: usize = 20;
/// Offset of the checksum, in bytes.
const CHECKSUM: usize = 16;
const IPV4: usize = 20;
const IPV6: usize = 40;
/// Length of the timestamps option with two no-operations before it, in bytes.
const STAMPS: usize = 12;
/// The second word of an IPv4 header that the host writes: don't fragment, no identification.
const DONT_FRAGMENT: u32 = 0x4000;
/// ECN's field in the first word of an IPv4 and of an IPv6 header.
const ECN4: u32 = 0x0003_0000;
const ECN6: u32 = 0x0030_0000;

/// Resources for the host's own segments of a guest's connections.
#[derive(Debug, Clone)]
pub struct TcpMaker {
    /// Source of buffers.
    pub pool: Pool,
    /// The guest.
    pub guest: GuestId,
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn half(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) << 32 | u64::from(word(bytes, at + 4))
}

/// Fields of an IP header that its TCP segment needs.
struct Around {
    source: [u64; 2],
    destination: [u64; 2],
    /// Length of the IP packet, with its header.
    len: usize,
    /// The ECN field.
    ecn: u8,
}

impl Around {
    #[inline]
    fn ipv4(ip: &[u8; IPV4]) -> Self {
        Self {
            source: [0, word(ip, 12).into()],
            destination: [0, word(ip, 16).into()],
            len: be16(ip, 2).into(),
            ecn: ip[1] & 3,
        }
    }

    /// A separate function, so that IPv4's path stays short.
    #[inline(never)]
    fn ipv6(ip: &[u8; IPV6]) -> Self {
        Self {
            source: [half(ip, 8), half(ip, 16)],
            destination: [half(ip, 24), half(ip, 32)],
            len: IPV6 + usize::from(be16(ip, 4)),
            ecn: (ip[1] >> 4) & 3,
        }
    }
}

impl StoredFrame for Packet {
    fn to_bytes(&self) -> Vec<u8> {
        self.duplicate().with_virtio_header().to_vec()
    }

    fn from_bytes(maker: &TcpMaker, bytes: &[u8]) -> Option<Self> {
        let (virtio, bytes) = bytes.split_first_chunk::<VIRTIO_HEADER>()?;
        if bytes.len() > Self::MAX_FRAME {
            return None;
        }
        let start = Self::HEADROOM;
        let mut buffer = maker.pool.buffer(start + bytes.len());
        buffer[start..start + bytes.len()].copy_from_slice(bytes);
        Self::new(buffer, start, bytes.len(), Some(*virtio), None).ok()
    }

    fn hash(maker: &TcpMaker, flow: &FlowId) -> u32 {
        connection_of(maker.pool.hash(), flow)
    }
}

impl TcpFrame for Packet {
    type Maker = TcpMaker;

    #[inline]
    fn sight(&self, direction: Direction) -> Option<Sight> {
        let facts = self.facts();
        let headers = facts.headers;
        if headers.protocol != TCP {
            return None;
        }
        let frame = self.bytes();
        let network = usize::from(headers.network);
        let transport = usize::from(headers.transport);
        let v6 = headers.network_kind == Network::Ipv6;
        let ip = frame.get(network..)?;
        let around = if v6 {
            Around::ipv6(ip.first_chunk()?)
        } else {
            Around::ipv4(ip.first_chunk()?)
        };
        let tcp = frame.get(transport..network + around.len)?;
        let ports = word(tcp.first_chunk::<4>()?, 0);
        let (guest, peer, ports) = match direction {
            Direction::ToPeer => (around.source, around.destination, ports),
            Direction::ToGuest => (around.destination, around.source, ports.rotate_left(16)),
        };
        let flow = FlowId {
            guest,
            peer,
            ports,
            v6,
        };
        let hash = match (direction, facts.source) {
            // The connection was hashed when the packet came in.
            (Direction::ToPeer, Some(_)) => facts.connection.0,
            _ => connection_of(self.pool().hash(), &flow),
        };
        // All parts around the TCP header are known: at most one VLAN tag, and no extension header
        // of IPv6.
        let is_plain = network <= ETHERNET + TAG && (!v6 || transport == network + IPV6);
        let segment = if is_plain {
            segment_in(tcp, around.ecn == 3, facts.offload.gso)
        } else {
            None
        };
        Some(Sight {
            flow,
            hash,
            segment,
        })
    }

    #[inline]
    fn connection_hash(&self, direction: Direction) -> Option<u32> {
        plain::connection_hash(self, direction).or_else(|| Some(self.sight(direction)?.hash))
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for every frame of TCP")]
    fn plain(&self, direction: Direction) -> Option<Plain> {
        self.read_plain(direction)
    }

    #[inline]
    fn link(&self) -> Link {
        let frame = self.bytes();
        let network = usize::from(self.facts().headers.network);
        let is_v6 = self.facts().headers.network_kind == Network::Ipv6;
        let (Some(ip), Some(stations)) = (frame.get(network..), frame.first_chunk::<12>()) else {
            return Link::default();
        };
        let Some(ip) = ip.first_chunk::<9>() else {
            return Link::default();
        };
        let first = word(ip, 0);
        Link {
            stations: *stations,
            tag: if network == ETHERNET {
                0
            } else {
                word(frame, 12)
            },
            top: if is_v6 {
                first & !ECN6
            } else {
                first & 0xff_0000 & !ECN4 | 0x4500_0000
            },
            hops: ip[if is_v6 { 7 } else { 8 }],
        }
    }

    #[inline]
    fn is_intact(&self) -> bool {
        if self.facts().offload.checksum.is_some() || self.facts().headers.vouched {
            return true;
        }
        let frame = self.bytes();
        let headers = self.facts().headers;
        let (transport, end) = (usize::from(headers.transport), headers.end(frame));
        let len = (end - transport) as u32;
        let fixed = usize::from(headers.network) + IPV4;
        let rest = if headers.network_kind == Network::Ipv4 && transport == fixed {
            // The addresses are right before the segment.
            u32::from(sum(&frame[transport - 8..end])) + u32::from(TCP)
        } else {
            let pseudo = pseudo_header(headers.addresses(frame), TCP);
            pseudo + u32::from(sum(&frame[transport..end]))
        };
        fold(rest + len) == 0xffff
    }

    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "for each segment that is acknowledged early"
    )]
    fn is_plain_intact(&self, plain: &Plain) -> bool {
        plain::is_intact(self, plain)
    }

    fn change(&mut self, change: &Change) {
        let transport = usize::from(self.facts().headers.transport);
        let is_complete = self.facts().offload.checksum.is_none();
        let end = transport + usize::from(self.bytes()[transport + 12] >> 4) * 4;
        let tcp = &mut self.bytes_mut()[transport..end];
        let mut checksum = be16(tcp, CHECKSUM);
        let mut write = |tcp: &mut [u8], at: usize, new: u16| {
            let old = be16(tcp, at);
            if old != new {
                checksum = self::update(checksum, old, new);
                tcp[at..at + 2].copy_from_slice(&new.to_be_bytes());
            }
        };
        for (at, Seq(number)) in [(4, change.seq), (8, change.ack)] {
            write(tcp, at, (number >> 16) as u16);
            write(tcp, at + 2, number as u16);
        }
        write(tcp, 14, change.window);
        if change.timestamps.is_some() || change.sacks_after.is_some() {
            let before = sum(&tcp[HEADER..]);
            rewrite_options(&mut tcp[HEADER..], change);
            checksum = self::update(checksum, before, sum(&tcp[HEADER..]));
        }
        if is_complete {
            tcp[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "for each segment that is kept")]
    fn again(&self) -> Self {
        Self(self.0.share())
    }

    fn part(&self, from: u32, len: u32) -> Self {
        let headers = self.facts().headers;
        let frame = self.bytes();
        let transport = usize::from(headers.transport);
        let header_len = transport + usize::from(frame[transport + 12] >> 4) * 4;
        let payload = &frame[header_len..headers.end(frame)];
        if from == 0 && len as usize == payload.len() {
            return self.again();
        }
        let (from, len) = (from as usize, len as usize);
        let chunk = &payload[from..from + len];
        let is_last = from + len == payload.len();
        let mut part = self.piece(
            &self.facts_of_parts(),
            &frame[..header_len],
            chunk,
            |headers| {
                let tcp = &mut headers[transport..];
                let seq = word(tcp, 4).wrapping_add(from as u32);
                tcp[4..8].copy_from_slice(&seq.to_be_bytes());
                if !is_last {
                    tcp[13] &= !(Flags::FIN.0 | Flags::PSH.0) as u8;
                }
            },
        );
        part.set_ip_len();
        let gso = self
            .facts()
            .offload
            .gso
            .filter(|gso| usize::from(gso.size) < len);
        part.facts_mut().offload.gso = gso;
        part.leave_checksum();
        part
    }

    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "for each segment that is acknowledged early"
    )]
    fn bare(maker: &TcpMaker, bare: &Bare) -> Self {
        match bare.timestamps {
            _ if bare.flow.v6 || bare.link.tag != 0 => Self::write_any(maker, *bare),
            None => plain::write_unstamped(maker, *bare),
            stamps @ Some(_) => Self::write_plain(maker, bare, stamps),
        }
    }
}

impl Packet {
    /// Writes a segment without payload, with any layout.
    #[inline(never)]
    fn write_any(maker: &TcpMaker, bare: Bare) -> Self {
        let bare = &bare;
        let v6 = bare.flow.v6;
        let options = if bare.timestamps.is_some() { STAMPS } else { 0 };
        let network = ETHERNET + if bare.link.tag == 0 { 0 } else { TAG };
        let transport = network + if v6 { IPV6 } else { IPV4 };
        let len = transport + HEADER + options;
        let mut buffer = maker.pool.buffer(Self::HEADROOM + len);
        let (bytes, facts) = buffer.parts_mut();
        let is_to_peer = bare.direction == Direction::ToPeer;
        let destination = if is_to_peer {
            bare.flow.peer
        } else {
            bare.flow.guest
        };
        let headers = Headers {
            protocol: TCP,
            network_kind: if v6 { Network::Ipv6 } else { Network::Ipv4 },
            network: network as u8,
            vouched: false,
            transport: transport as u16,
        };
        *facts = Facts {
            source: is_to_peer.then_some(maker.guest),
            len: len as u32,
            start: Self::HEADROOM as u16,
            network_start: (Self::HEADROOM + network) as u16,
            headers,
            class: Class::Lowest,
            destination: Destination::of(headers, false),
            has_flow: true,
            is_plain: bare.link.tag == 0,
            flow: if v6 {
                u128::from(destination[0]) << 64 | u128::from(destination[1])
            } else {
                mapped(destination[1] as u32)
            },
            offload: Offload {
                // The checksum is left to the NIC.
                checksum: Some(Checksum {
                    start: transport as u16,
                    offset: CHECKSUM as u16,
                }),
                gso: None,
            },
            connection: crate::Connection(bare.hash),
        };
        let frame = &mut bytes[Self::HEADROOM..Self::HEADROOM + len];
        let (link, rest) = frame.split_at_mut(network);
        write_link(link, bare);
        let (ip, tcp) = rest.split_at_mut(transport - network);
        let addresses = match ip.first_chunk_mut() {
            Some(ip) if !v6 => write_ipv4(ip, bare, HEADER + options),
            _ => write_ipv6(ip, bare, HEADER + options),
        };
        let pseudo = addresses + u32::from(TCP) + (HEADER + options) as u32;
        write_tcp(tcp, bare, fold(pseudo));
        Self(buffer)
    }

    /// Writes the length into the IP header, and its checksum.
    fn set_ip_len(&mut self) {
        let (network, _) = self.header_offsets();
        let is_v6 = self.facts().headers.network_kind == Network::Ipv6;
        let len = self.facts().len as usize - network;
        let ip = &mut self.bytes_mut()[network..];
        if is_v6 {
            ip[4..6].copy_from_slice(&((len - IPV6) as u16).to_be_bytes());
        } else {
            let checksum = update(be16(ip, 10), be16(ip, 2), len as u16);
            ip[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
    }

    /// Leaves the TCP checksum to the NIC.
    fn leave_checksum(&mut self) {
        let facts = self.facts_mut();
        facts.offload.checksum = Some(Checksum {
            start: facts.headers.transport,
            offset: CHECKSUM as u16,
        });
        self.write_pseudo_header_sum();
    }
}

/// Parses the segment whose header is at the beginning of `tcp`; `None` if the header is truncated.
#[inline]
fn segment_in(tcp: &[u8], congestion: bool, gso: Option<Gso>) -> Option<Segment> {
    let fixed = tcp.first_chunk::<HEADER>()?;
    let header_len = usize::from(fixed[12] >> 4) * 4;
    let options = tcp.get(HEADER..header_len)?;
    let payload = (tcp.len() - header_len) as u32;
    let largest = match gso {
        Some(gso) if matches!(gso.kind, GsoKind::Tcp4 | GsoKind::Tcp6) => gso.size,
        _ => payload as u16,
    };
    Some(Segment {
        seq: Seq(word(fixed, 4)),
        ack: Seq(word(fixed, 8)),
        payload,
        largest,
        window: be16(fixed, 14),
        flags: Flags(u16::from(fixed[12] & 1) << 8 | u16::from(fixed[13])),
        congestion,
        options: Options::parse(options),
    })
}

/// Writes a few bytes at a place if it exists: a single store for a known place.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a store for each field of a header")]
fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = value;
    }
}

/// Writes the headers before IP.
#[inline]
fn write_link(frame: &mut [u8], bare: &Bare) {
    let Bare { link, flow, .. } = bare;
    let [near, far] = [6, 0].map(|at| std::array::from_fn(|i| link.stations[at + i]));
    let (to, from): ([u8; 6], [u8; 6]) = if bare.direction == Direction::ToPeer {
        (far, near)
    } else {
        (near, far)
    };
    let kind: [u8; 2] = if flow.v6 { [0x86, 0xdd] } else { [8, 0] };
    let Some((stations, rest)) = frame.split_first_chunk_mut::<12>() else {
        return;
    };
    put(stations, 0, to);
    put(stations, 6, from);
    if let Some((tag, kinds)) = rest.split_first_chunk_mut::<TAG>() {
        *tag = link.tag.to_be_bytes();
        put(kinds, 0, kind);
    } else {
        put(rest, 0, kind);
    }
}

/// Writes the IP header of `tcp` bytes of TCP, with don't fragment. Returns a sum of the addresses
/// for TCP's checksum.
#[inline]
fn write_ipv4(ip: &mut [u8; IPV4], bare: &Bare, tcp: usize) -> u32 {
    let (source, destination) = if bare.direction == Direction::ToPeer {
        (bare.flow.guest[1] as u32, bare.flow.peer[1] as u32)
    } else {
        (bare.flow.peer[1] as u32, bare.flow.guest[1] as u32)
    };
    let len = (IPV4 + tcp) as u16;
    let halves = |word: u32| (word >> 16) + (word & 0xffff);
    let addresses = halves(source) + halves(destination);
    let [hops, top] = [u32::from(bare.link.hops), halves(bare.link.top)];
    let rest = u32::from(len) + DONT_FRAGMENT + (hops << 8 | u32::from(TCP));
    let checksum = !fold(addresses + top + rest);
    put(ip, 0, bare.link.top.to_be_bytes());
    put(ip, 2, len.to_be_bytes());
    put(ip, 4, DONT_FRAGMENT.to_be_bytes());
    put(ip, 8, [bare.link.hops, TCP]);
    put(ip, 10, checksum.to_be_bytes());
    put(ip, 12, source.to_be_bytes());
    put(ip, 16, destination.to_be_bytes());
    addresses
}

/// Does the same for IPv6.
#[inline(never)]
fn write_ipv6(ip: &mut [u8], bare: &Bare, tcp: usize) -> u32 {
    let (source, destination) = if bare.direction == Direction::ToPeer {
        (bare.flow.guest, bare.flow.peer)
    } else {
        (bare.flow.peer, bare.flow.guest)
    };
    ip[..4].copy_from_slice(&bare.link.top.to_be_bytes());
    ip[4..6].copy_from_slice(&(tcp as u16).to_be_bytes());
    ip[6..8].copy_from_slice(&[TCP, bare.link.hops]);
    let halves = [source[0], source[1], destination[0], destination[1]];
    for (to, half) in ip[8..IPV6].chunks_exact_mut(8).zip(halves) {
        to.copy_from_slice(&half.to_be_bytes());
    }
    sum(&ip[8..IPV6]).into()
}

/// Writes the header of a segment without payload; `pseudo` is the sum of the pseudo-header.
#[inline]
fn write_tcp(tcp: &mut [u8], bare: &Bare, pseudo: u16) {
    let ports = match bare.direction {
        Direction::ToPeer => bare.flow.ports,
        Direction::ToGuest => bare.flow.ports.rotate_left(16),
    };
    let words = (tcp.len() as u16 / 4) << 12;
    let Some((header, options)) = tcp.split_first_chunk_mut::<HEADER>() else {
        return;
    };
    put(header, 0, ports.to_be_bytes());
    put(header, 4, bare.seq.0.to_be_bytes());
    put(header, 8, bare.ack.0.to_be_bytes());
    put(header, 12, (words | bare.flags.0).to_be_bytes());
    put(header, 14, bare.window.to_be_bytes());
    put(header, 16, pseudo.to_be_bytes());
    put(header, 18, [0; 2]);
    if let (Some(Timestamps { value, echo }), Some(options)) =
        (bare.timestamps, options.first_chunk_mut::<STAMPS>())
    {
        put(options, 0, [1, 1, 8, 10]);
        put(options, 4, value.to_be_bytes());
        put(options, 8, echo.to_be_bytes());
    }
}

/// Writes timestamps, and replaces removed SACK blocks by no-operations.
fn rewrite_options(options: &mut [u8], change: &Change) {
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        if kind == 0 {
            return;
        }
        if kind == 1 {
            at += 1;
            continue;
        }
        let len = options.get(at + 1).map_or(0, |len| usize::from(*len));
        let Some(option) = options.get_mut(at..at + len).filter(|_| len >= 2) else {
            return;
        };
        match (kind, len, change) {
            (
                8,
                10,
                Change {
                    timestamps: Some(stamps),
                    ..
                },
            ) => {
                option[2..6].copy_from_slice(&stamps.value.to_be_bytes());
                option[6..10].copy_from_slice(&stamps.echo.to_be_bytes());
            }
            (
                5,
                _,
                Change {
                    sacks_after: Some(ack),
                    ..
                },
            ) => remove_sacks(option, *ack),
            _ => {}
        }
        at += len;
    }
}

/// Removes the blocks of a SACK option that do not begin after `ack`.
fn remove_sacks(option: &mut [u8], ack: Seq) {
    let mut end = 2;
    for at in (2..option.len() - option.len() % 8).step_by(8) {
        if at + 8 <= option.len() && Seq(word(option, at)).is_after(ack) {
            option.copy_within(at..at + 8, end);
            end += 8;
        }
    }
    if end == option.len() {
        return;
    }
    let end = if end == 2 { 0 } else { end };
    option[end..].fill(1);
    if end > 0 {
        option[1] = end as u8;
    }
}
