//! Fast path for the most common frame: an Ethernet header without a tag, an IPv4 header without
//! options, and a TCP header without options or with timestamps, at fixed offsets. [`super`] reads
//! and writes all other layouts.

use super::{CHECKSUM, DONT_FRAGMENT, ECN4, HEADER, IPV4, STAMPS, TcpMaker, put, word};
use crate::checksum::{fold, fold_words, sum};
use crate::frame::ipv4::mapped;
use crate::packet::connection::ipv4_connection_of;
use crate::packet::facts::{Destination, Facts};
use crate::packet::wire::{ETHERNET, Headers, Network, TCP, be16};
use crate::packet::{Checksum, Offload, Packet};
use crate::snoop::{Bare, Direction, FlowId, Link, Plain, Seq, Timestamps};
use crate::{Class, Connection};

const TRANSPORT: usize = ETHERNET + IPV4;
/// Bytes of both IPv4 addresses.
const ADDRESSES: usize = 8;
/// Length of a frame without payload and options, and of one with timestamps.
const SHORT: usize = TRANSPORT + HEADER;
const STAMPED: usize = SHORT + STAMPS;
/// The first words of the options: two no-operations, timestamps and their length.
const STAMPS_FIRST: u32 = 0x0101_080a;
/// A TCP header's length and its upper flags, without options and with timestamps.
const BARE_HEADER: u8 = (HEADER as u8 / 4) << 4;
const STAMPED_HEADER: u8 = ((HEADER + STAMPS) as u8 / 4) << 4;
const ACK: u8 = 0x10;
const PSH: u8 = 8;
/// ECN's code point for congestion.
const CONGESTION: u8 = 3;
/// The headers of such a frame.
const HEADERS: Headers = Headers {
    protocol: TCP,
    network_kind: Network::Ipv4,
    network: ETHERNET as u8,
    vouched: false,
    transport: TRANSPORT as u16,
};

/// Writes a segment without payload and timestamps, in the layout of [`Packet::write_plain`]. A
/// separate function, so that the more common one with timestamps stays short.
#[inline(never)]
pub(super) fn write_unstamped(maker: &TcpMaker, bare: Bare) -> Packet {
    Packet::write_plain(maker, &bare, None)
}

impl Packet {
    /// Returns the frame's fields if it has this layout.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for every frame of TCP")]
    pub(super) fn read_plain(&self, direction: Direction) -> Option<Plain> {
        let facts = self.facts();
        let vouched = facts.headers.vouched;
        if facts.headers != (Headers { vouched, ..HEADERS }) {
            return None;
        }
        // Bytes in the buffer behind a shorter frame are not used.
        let frame: &[u8; STAMPED] = self.0.get(usize::from(facts.start)..)?.first_chunk()?;
        let (timestamps, header) = match frame[TRANSPORT + 12] {
            STAMPED_HEADER if word(frame, SHORT) == STAMPS_FIRST => {
                let stamps = Timestamps {
                    value: word(frame, SHORT + 4),
                    echo: word(frame, SHORT + 8),
                };
                (Some(stamps), IPV4 + HEADER + STAMPS)
            }
            BARE_HEADER => (None, IPV4 + HEADER),
            _ => return None,
        };
        let flags = frame[TRANSPORT + 13];
        if flags & !PSH != ACK || frame[ETHERNET + 1] & CONGESTION == CONGESTION {
            return None;
        }
        let payload = usize::from(be16(frame, ETHERNET + 2)).checked_sub(header)? as u32;
        let flow = flow_of(frame, direction);
        let hash = hash_of(self, &flow, direction);
        Some(Plain {
            flow,
            hash,
            seq: Seq(word(frame, TRANSPORT + 4)),
            ack: Seq(word(frame, TRANSPORT + 8)),
            payload,
            largest: facts.offload.gso.map_or(payload as u16, |gso| gso.size),
            window: be16(frame, TRANSPORT + 14),
            pushed: flags & PSH != 0,
            timestamps,
            link: link_of(frame),
        })
    }

    /// A segment without payload, with this layout. `timestamps` are those of `bare`: each caller
    /// knows whether there are any, so that lengths are constant.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "for each segment that is acknowledged early"
    )]
    pub(super) fn write_plain(
        maker: &TcpMaker,
        bare: &Bare,
        timestamps: Option<Timestamps>,
    ) -> Self {
        let (guest, peer) = (bare.flow.guest[1] as u32, bare.flow.peer[1] as u32);
        let Link {
            stations,
            top,
            hops,
            ..
        } = bare.link;
        let (source, destination, ports, stations) = match bare.direction {
            Direction::ToPeer => (guest, peer, bare.flow.ports, stations),
            Direction::ToGuest => {
                let mut turned = stations;
                turned.rotate_left(6);
                (peer, guest, bare.flow.ports.rotate_left(16), turned)
            }
        };
        let (tcp_len, tcp_header) = match timestamps {
            Some(_) => (HEADER + STAMPS, STAMPED_HEADER),
            None => (HEADER, BARE_HEADER),
        };
        let ip_len = (IPV4 + tcp_len) as u32;
        let mut buffer = maker.pool.buffer(Self::HEADROOM + STAMPED);
        let (bytes, facts) = buffer.parts_mut();
        *facts = Facts {
            source: (bare.direction == Direction::ToPeer).then_some(maker.guest),
            len: ETHERNET as u32 + ip_len,
            start: Self::HEADROOM as u16,
            network_start: (Self::HEADROOM + ETHERNET) as u16,
            headers: HEADERS,
            class: Class::Lowest,
            destination: Destination::PlainIpv4,
            has_flow: true,
            is_plain: true,
            flow: mapped(destination),
            offload: Offload {
                // The checksum is left to the NIC.
                checksum: Some(Checksum {
                    start: TRANSPORT as u16,
                    offset: CHECKSUM as u16,
                }),
                gso: None,
            },
            connection: Connection(bare.hash),
        };
        // Bytes in the buffer behind a shorter frame are not used.
        let place = bytes.get_mut(Self::HEADROOM..);
        let Some(frame) = place.and_then(|rest| rest.first_chunk_mut::<STAMPED>()) else {
            return Self(buffer);
        };
        put(frame, 0, stations);
        put(frame, 12, [8, 0]);
        // Sums of words of 32 bits are sums of their halves.
        let addresses = u64::from(source) + u64::from(destination);
        let rest = u32::from(hops) << 24 | u32::from(TCP) << 16;
        let rest_of_all = u64::from(ip_len + DONT_FRAGMENT);
        let checksum = !fold_words(addresses + u64::from(top) + u64::from(rest) + rest_of_all);
        put(frame, 14, (top | ip_len).to_be_bytes());
        put(frame, 18, DONT_FRAGMENT.to_be_bytes());
        put(frame, 22, (rest | u32::from(checksum)).to_be_bytes());
        put(frame, 26, source.to_be_bytes());
        put(frame, 30, destination.to_be_bytes());
        let pseudo = fold_words(addresses + u64::from(TCP) + tcp_len as u64);
        put(frame, 34, ports.to_be_bytes());
        put(frame, 38, bare.seq.0.to_be_bytes());
        put(frame, 42, bare.ack.0.to_be_bytes());
        let first = u32::from(tcp_header) << 24 | u32::from(bare.flags.0) << 16;
        put(frame, 46, (first | u32::from(bare.window)).to_be_bytes());
        put(frame, 50, (u32::from(pseudo) << 16).to_be_bytes());
        if let Some(stamps) = timestamps {
            put(frame, SHORT, STAMPS_FIRST.to_be_bytes());
            put(frame, SHORT + 4, stamps.value.to_be_bytes());
            put(frame, SHORT + 8, stamps.echo.to_be_bytes());
        }
        Self(buffer)
    }
}

/// Returns the hash of the connection of a frame whose headers are at the offsets of this layout.
#[inline]
pub(super) fn connection_hash(packet: &Packet, direction: Direction) -> Option<u32> {
    let facts = packet.facts();
    let vouched = facts.headers.vouched;
    if facts.headers != (Headers { vouched, ..HEADERS }) {
        return None;
    }
    // Bytes in the buffer behind a shorter frame are not used.
    let frame: &[u8; STAMPED] = packet.0.get(usize::from(facts.start)..)?.first_chunk()?;
    Some(hash_of(packet, &flow_of(frame, direction), direction))
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "once for every frame of TCP")]
fn hash_of(packet: &Packet, flow: &FlowId, direction: Direction) -> u32 {
    let facts = packet.facts();
    if direction == Direction::ToPeer && facts.source.is_some() {
        // The connection was hashed when the packet came in.
        return facts.connection.0;
    }
    let addresses = [flow.guest[1] as u32, flow.peer[1] as u32];
    ipv4_connection_of(packet.pool().hash(), addresses, flow.ports)
}

/// Checks the TCP checksum of a frame with this layout, in which `plain` was found.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "for each segment that is acknowledged early"
)]
pub(super) fn is_intact(packet: &Packet, plain: &Plain) -> bool {
    let facts = packet.facts();
    if facts.offload.checksum.is_some() || facts.headers.vouched {
        return true;
    }
    let options = if plain.timestamps.is_some() {
        STAMPS
    } else {
        0
    };
    let len = HEADER + options + plain.payload as usize;
    // The addresses are right before the segment.
    let start = usize::from(facts.start) + TRANSPORT - ADDRESSES;
    let segment = packet.0.get(start..start + ADDRESSES + len);
    let known = u32::from(TCP) + len as u32;
    segment.is_some_and(|segment| fold(u32::from(sum(segment)) + known) == 0xffff)
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "once for every frame of TCP")]
fn flow_of(frame: &[u8; STAMPED], direction: Direction) -> FlowId {
    let source = [0, word(frame, ETHERNET + 12).into()];
    let destination = [0, word(frame, ETHERNET + 16).into()];
    let ports = word(frame, TRANSPORT);
    let (guest, peer, ports) = match direction {
        Direction::ToPeer => (source, destination, ports),
        Direction::ToGuest => (destination, source, ports.rotate_left(16)),
    };
    FlowId {
        guest,
        peer,
        ports,
        v6: false,
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "once for every frame of TCP")]
fn link_of(frame: &[u8; STAMPED]) -> Link {
    Link {
        stations: *frame.first_chunk().unwrap_or(&[0; 12]),
        tag: 0,
        top: word(frame, ETHERNET) & 0xff_0000 & !ECN4 | 0x4500_0000,
        hops: frame[ETHERNET + 8],
    }
}

#[cfg(test)]
mod tests;
