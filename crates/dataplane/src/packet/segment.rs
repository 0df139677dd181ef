//! Segmentation of TCP and UDP over IPv4 and IPv6, as in Linux (Small is Better, 4.2;
//! `net/core/gso.c`, `net/ipv4/tcp_offload.c`, `net/ipv4/udp_offload.c`).
//!
//! A packet of up to 64 KiB becomes packets of `gso.size` payload bytes, the last one with the
//! rest. Each carries all headers of the first: VLAN tags, IP options, IPv6 extension headers, TCP
//! options. These fields differ between segments:
//!
//! - IPv4: total length, identification (incremented by one), header checksum;
//! - IPv6: payload length;
//! - TCP: sequence number; FIN and PSH only on the last segment; CWR only on the first if the
//!   sender declares it an answer to a mark (RFC 3168, 6.1.2), and on all if it may be a bit of
//!   `AccECN`'s counter (RFC 9768);
//! - UDP: length;
//! - the checksum stays partial: the field holds the sum of the segment's own pseudo-header, and
//!   [`Packet::complete_checksum`] or the NIC adds the rest.

mod udp;

use super::{Cwr, GsoKind, Packet, fold, pseudo_header, sum};

/// Cuts `packet` into segments and passes each to `sink` in order. A packet that needs no
/// segmentation is passed unchanged.
#[inline]
pub fn segment(packet: Packet, mut sink: impl FnMut(Packet)) {
    let kind = packet.offload().gso.map(|gso| gso.kind);
    if let Some(GsoKind::Udp4 | GsoKind::Udp6) = kind {
        return udp::segment(&packet, sink);
    }
    let Some((mut template, header_len, size)) = Template::of(&packet) else {
        return sink(packet);
    };
    let (headers, payload) = packet.bytes().split_at(header_len);
    let known = packet.facts_of_parts();
    let mut left = payload.len();
    for chunk in payload.chunks(size) {
        left -= chunk.len();
        let segment = packet.piece(&known, headers, chunk, |headers| {
            if chunk.len() != template.payload {
                template.resize(chunk.len());
            }
            template.write(headers, left == 0);
        });
        sink(segment);
    }
}

/// Returns the segments of `packet` with complete checksums, as on a wire.
pub fn on_the_wire(packet: Packet) -> Vec<Vec<u8>> {
    let mut segments = Vec::new();
    segment(packet, |mut segment| {
        segment.complete_checksum();
        segments.push(segment.bytes().to_vec());
    });
    segments
}

/// TCP's protocol number.
const TCP: u8 = 6;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;
/// Length of the fixed IPv6 header, in bytes.
const IPV6: usize = 40;

/// Header fields of the next segment.
struct Template {
    kind: GsoKind,
    network: usize,
    transport: usize,
    /// Bytes of all headers that IP's length field includes.
    counted: usize,
    tcp_header: usize,
    /// Payload of a segment, and the values that depend on it.
    payload: usize,
    ip_len: u16,
    tcp_checksum: u16,
    /// Sum of the IPv4 header without length, identification and checksum.
    ip_sum: u32,
    /// Sum of the pseudo-header without the length.
    pseudo: u32,
    id: u16,
    sequence: u32,
    flags: u8,
    /// Flags that only the first segment has.
    first_only: u8,
}

impl Template {
    /// Returns the template, the length of all headers, and the size of a segment; `None` if the
    /// packet needs no segmentation.
    fn of(packet: &Packet) -> Option<(Self, usize, usize)> {
        let offload = packet.offload();
        let gso = offload.gso?;
        let header_len = usize::from(gso.header_len);
        let (network, transport) = packet.header_offsets();
        let headers = &packet.bytes()[..header_len];
        let (ip, tcp) = (&headers[network..transport], &headers[transport..]);
        let (ip_sum, id, uncounted) = match gso.kind {
            GsoKind::Tcp4 => {
                let (sum, id) = ipv4_template(ip);
                (sum, id, 0)
            }
            _ => (0, 0, IPV6),
        };
        let template = Self {
            kind: gso.kind,
            network,
            transport,
            counted: header_len - network - uncounted,
            tcp_header: tcp.len(),
            payload: 0,
            ip_len: 0,
            tcp_checksum: 0,
            ip_sum,
            pseudo: pseudo_header(packet.ip_addresses(), TCP),
            id,
            sequence: u32::from_be_bytes(*tcp[4..].first_chunk()?),
            flags: tcp[13],
            first_only: match gso.cwr {
                Cwr::Classic => CWR,
                Cwr::Plain | Cwr::Accurate => 0,
            },
        };
        Some((template, header_len, usize::from(gso.size)))
    }

    /// Sets the payload of the following segments: all except the last have the same size.
    fn resize(&mut self, payload: usize) {
        self.payload = payload;
        self.ip_len = (self.counted + payload) as u16;
        self.tcp_checksum = fold(self.pseudo + (self.tcp_header + payload) as u32);
    }

    /// Rewrites the headers of the next segment.
    #[inline]
    fn write(&mut self, headers: &mut [u8], last: bool) {
        let (ip, tcp) = headers.split_at_mut(self.transport);
        // Whole headers: both were read when the packet came in.
        let (Some(ip), Some(tcp)) = (
            ip[self.network..].first_chunk_mut::<20>(),
            tcp.first_chunk_mut::<20>(),
        ) else {
            return;
        };
        if self.kind == GsoKind::Tcp4 {
            let sum = !fold(self.ip_sum + u32::from(self.ip_len) + u32::from(self.id));
            [ip[2], ip[3]] = self.ip_len.to_be_bytes();
            [ip[4], ip[5]] = self.id.to_be_bytes();
            [ip[10], ip[11]] = sum.to_be_bytes();
            self.id = self.id.wrapping_add(1);
        } else {
            [ip[4], ip[5]] = self.ip_len.to_be_bytes();
        }
        [tcp[4], tcp[5], tcp[6], tcp[7]] = self.sequence.to_be_bytes();
        self.sequence = self.sequence.wrapping_add(self.payload as u32);
        tcp[13] = if last {
            self.flags
        } else {
            self.flags & !(FIN | PSH)
        };
        self.flags &= !self.first_only;
        [tcp[16], tcp[17]] = self.tcp_checksum.to_be_bytes();
    }
}

/// Returns the sum of an IPv4 header without the fields that differ between segments, and its
/// identification.
fn ipv4_template(header: &[u8]) -> (u32, u16) {
    let word = |at| u16::from_be_bytes([header[at], header[at + 1]]);
    let whole = u32::from(sum(header));
    // One's complement: subtracting is adding the inverse.
    let without = whole + u32::from(!word(2)) + u32::from(!word(4)) + u32::from(!word(10));
    (u32::from(fold(without)), word(4))
}

#[cfg(test)]
mod tests;
