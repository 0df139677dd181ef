//! TCP in a packet's bytes, for early acknowledgement.

use super::connection::connection_of;
use super::facts::{Destination, Facts};
use super::wire::{ETHERNET, Headers, Network, TAG, TCP, be16};
use super::{Checksum, GsoKind, Offload, Packet, Pool};
use crate::checksum::{fold, pseudo_header, sum, update};
use crate::snoop::{
    Bare, Change, Flags, FlowId, Link, Options, Segment, Seq, Sight, TcpFrame, Timestamps, Way,
};
use crate::{Class, GuestId};

/// The fixed part of a TCP header.
const HEADER: usize = 20;
/// Where its checksum stands.
const CHECKSUM: usize = 16;
const IPV4: usize = 20;
const IPV6: usize = 40;
/// What a frame says of itself where the host makes it: don't fragment.
const DONT_FRAGMENT: [u8; 2] = [0x40, 0];
/// ECN's field in the first word of an IPv4 and of an IPv6 header.
const ECN4: u32 = 0x0003_0000;
const ECN6: u32 = 0x0030_0000;

/// What the host makes a guest's segments with.
#[derive(Debug, Clone)]
pub struct TcpMaker {
    /// Where buffers come from.
    pub pool: Pool,
    /// Whose they are.
    pub guest: GuestId,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn half(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) << 32 | u64::from(word(bytes, at + 4))
}

/// The addresses of a packet, source first.
fn addresses(bytes: &[u8]) -> Option<[[u64; 2]; 2]> {
    match bytes.len() {
        8 => Some([[0, word(bytes, 0).into()], [0, word(bytes, 4).into()]]),
        32 => Some([
            [half(bytes, 0), half(bytes, 8)],
            [half(bytes, 16), half(bytes, 24)],
        ]),
        _ => None,
    }
}

impl TcpFrame for Packet {
    type Maker = TcpMaker;

    #[inline]
    fn sight(&self, way: Way) -> Option<Sight> {
        let headers = self.facts().headers;
        let transport = usize::from(headers.transport);
        if headers.protocol != TCP || transport == 0 {
            return None;
        }
        let frame = self.bytes();
        let tcp = frame.get(transport..headers.end(frame))?;
        let [source, destination] = addresses(headers.addresses(frame))?;
        let ports = word(tcp.first_chunk::<4>()?, 0);
        let (guest, peer, ports) = match way {
            Way::ToPeer => (source, destination, ports),
            Way::ToGuest => (destination, source, ports.rotate_left(16)),
        };
        let flow = FlowId {
            guest,
            peer,
            ports,
            v6: headers.network_kind == Network::Ipv6,
        };
        let hash = match (way, self.facts().source) {
            // It was made when the packet came in.
            (Way::ToPeer, Some(_)) => self.facts().connection.0,
            _ => connection_of(self.pool().hash(), &flow),
        };
        Some(Sight {
            flow,
            hash,
            segment: self.is_plain().then(|| self.segment_in(tcp)).flatten(),
        })
    }

    #[inline]
    fn link(&self) -> Link {
        let frame = self.bytes();
        let network = usize::from(self.facts().headers.network);
        let is_v6 = self.facts().headers.network_kind == Network::Ipv6;
        let first = word(frame, network);
        let mac = |at| std::array::from_fn(|i| frame[at + i]);
        Link {
            guest: mac(6),
            peer: mac(0),
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
            hops: frame[network + if is_v6 { 7 } else { 8 }],
        }
    }

    fn is_intact(&self) -> bool {
        if self.facts().offload.checksum.is_some() || self.facts().headers.vouched {
            return true;
        }
        let frame = self.bytes();
        let headers = self.facts().headers;
        let segment = &frame[usize::from(headers.transport)..headers.end(frame)];
        let pseudo = pseudo_header(headers.addresses(frame), TCP) + segment.len() as u32;
        fold(u32::from(fold(pseudo)) + u32::from(sum(segment))) == 0xffff
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

    fn part(&self, from: u32, len: u32) -> Self {
        let headers = self.facts().headers;
        let frame = self.bytes();
        let transport = usize::from(headers.transport);
        let header_len = transport + usize::from(frame[transport + 12] >> 4) * 4;
        let payload = &frame[header_len..headers.end(frame)];
        if from == 0 && len as usize == payload.len() {
            return self.duplicate();
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

    fn bare(maker: &TcpMaker, bare: &Bare) -> Self {
        let v6 = bare.flow.v6;
        let options = if bare.timestamps.is_some() { 12 } else { 0 };
        let network = ETHERNET + if bare.link.tag == 0 { 0 } else { TAG };
        let transport = network + if v6 { IPV6 } else { IPV4 };
        let len = transport + HEADER + options;
        let mut buffer = maker.pool.buffer(Self::HEADROOM + len);
        let frame = &mut buffer[Self::HEADROOM..Self::HEADROOM + len];
        write_link(frame, bare, network);
        write_tcp(&mut frame[transport..], bare);
        let headers = Headers {
            protocol: TCP,
            network_kind: if v6 { Network::Ipv6 } else { Network::Ipv4 },
            network: network as u8,
            vouched: false,
            transport: transport as u16,
        };
        let flow = headers.destination(frame);
        let hash = connection_of(maker.pool.hash(), &bare.flow);
        let facts = Facts {
            source: (bare.way == Way::ToPeer).then_some(maker.guest),
            len: len as u32,
            start: Self::HEADROOM as u16,
            network_start: (Self::HEADROOM + network) as u16,
            headers,
            class: Class::Lowest,
            destination: Destination::of(headers, false),
            has_flow: flow.is_some(),
            flow: flow.unwrap_or_default(),
            offload: Offload::NONE,
            connection: crate::Connection(hash),
        };
        let mut packet = Self::of(buffer, facts);
        packet.leave_checksum();
        packet
    }
}

impl Packet {
    /// Whether nothing stands around its TCP header that is not looked into: one VLAN tag
    /// at most, and no extension header of IPv6.
    #[inline]
    fn is_plain(&self) -> bool {
        let (network, transport) = self.header_offsets();
        let is_v4 = self.facts().headers.network_kind == Network::Ipv4;
        network <= ETHERNET + TAG && (is_v4 || transport == network + IPV6)
    }

    /// The segment whose header stands at the beginning of `tcp`, where it is whole.
    #[inline]
    fn segment_in(&self, tcp: &[u8]) -> Option<Segment> {
        let fixed = tcp.first_chunk::<HEADER>()?;
        let header_len = usize::from(fixed[12] >> 4) * 4;
        let options = tcp.get(HEADER..header_len)?;
        let payload = (tcp.len() - header_len) as u32;
        let largest = match self.facts().offload.gso {
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
            congestion: self.ecn() == 3,
            options: Options::parse(options),
        })
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

    /// Leaves the TCP checksum to whoever sends it.
    fn leave_checksum(&mut self) {
        let facts = self.facts_mut();
        facts.offload.checksum = Some(Checksum {
            start: facts.headers.transport,
            offset: CHECKSUM as u16,
        });
        self.write_pseudo_header_sum();
    }
}

/// Everything before TCP.
fn write_link(frame: &mut [u8], bare: &Bare, network: usize) {
    let Bare { link, flow, .. } = bare;
    let is_to_peer = bare.way == Way::ToPeer;
    let (to, from) = if is_to_peer {
        (link.peer, link.guest)
    } else {
        (link.guest, link.peer)
    };
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    if link.tag != 0 {
        frame[12..16].copy_from_slice(&link.tag.to_be_bytes());
    }
    let kind: u16 = if flow.v6 { 0x86dd } else { 0x0800 };
    frame[network - 2..network].copy_from_slice(&kind.to_be_bytes());
    let (source, destination) = if is_to_peer {
        (flow.guest, flow.peer)
    } else {
        (flow.peer, flow.guest)
    };
    let ip = &mut frame[network..];
    ip[..4].copy_from_slice(&link.top.to_be_bytes());
    if flow.v6 {
        let len = ip.len() - IPV6;
        ip[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        ip[6..8].copy_from_slice(&[TCP, link.hops]);
        for (at, half) in [
            (8, source[0]),
            (16, source[1]),
            (24, destination[0]),
            (32, destination[1]),
        ] {
            ip[at..at + 8].copy_from_slice(&half.to_be_bytes());
        }
    } else {
        let len = ip.len() as u16;
        ip[2..4].copy_from_slice(&len.to_be_bytes());
        ip[4..6].fill(0);
        ip[6..8].copy_from_slice(&DONT_FRAGMENT);
        ip[8..12].copy_from_slice(&[link.hops, TCP, 0, 0]);
        ip[12..16].copy_from_slice(&(source[1] as u32).to_be_bytes());
        ip[16..20].copy_from_slice(&(destination[1] as u32).to_be_bytes());
        let checksum = !sum(&ip[..IPV4]);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// The header of a segment without payload; the checksum is left.
fn write_tcp(tcp: &mut [u8], bare: &Bare) {
    let ports = match bare.way {
        Way::ToPeer => bare.flow.ports,
        Way::ToGuest => bare.flow.ports.rotate_left(16),
    };
    tcp[..4].copy_from_slice(&ports.to_be_bytes());
    tcp[4..8].copy_from_slice(&bare.seq.0.to_be_bytes());
    tcp[8..12].copy_from_slice(&bare.ack.0.to_be_bytes());
    tcp[12] = (tcp.len() as u8 / 4) << 4 | (bare.flags.0 >> 8) as u8;
    tcp[13] = bare.flags.0 as u8;
    tcp[14..16].copy_from_slice(&bare.window.to_be_bytes());
    tcp[16..20].fill(0);
    if let Some(Timestamps { value, echo }) = bare.timestamps {
        tcp[20..24].copy_from_slice(&[1, 1, 8, 10]);
        tcp[24..28].copy_from_slice(&value.to_be_bytes());
        tcp[28..32].copy_from_slice(&echo.to_be_bytes());
    }
}

/// Writes timestamps, and puts no-operations in the place of SACK blocks that are to go.
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
