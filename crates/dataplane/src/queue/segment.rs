//! Segmentation of TCP over IPv4 and IPv6, as Linux does it (Small is Better,
//! 4.2; `net/core/gso.c`, `net/ipv4/tcp_offload.c`).
//!
//! A packet of up to 64 KiB becomes packets of `gso.size` payload bytes, the last
//! one of the rest. Each carries all headers of the first: VLAN tags, IP options,
//! IPv6 extension headers, TCP options. What changes from one to the next:
//!
//! - IPv4: total length, identification (one more each), header checksum;
//! - IPv6: payload length;
//! - TCP: sequence number; FIN and PSH only on the last segment, CWR only on the
//!   first (RFC 3168, 6.1.2);
//! - TCP's checksum stays partial: the sum of the segment's own pseudo-header is
//!   in the field, and [`Packet::complete_checksum`] or the NIC adds the rest.

use crate::Frame;
use crate::packet::{GsoKind, Packet, fold, pseudo_header, sum};

/// Cuts `packet` into segments and hands each to `sink` in order. A packet that
/// is not to be segmented is handed over as it is.
pub fn segment(packet: Packet, mut sink: impl FnMut(Packet)) {
    let Some(cut) = Cut::of(&packet) else {
        return sink(packet);
    };
    for index in 0..cut.count {
        sink(cut.nth(&packet, index));
    }
}

/// The segments of `packet` as they would stand on a wire, checksums done.
pub fn on_the_wire(packet: Packet) -> Vec<Vec<u8>> {
    let mut segments = Vec::with_capacity(packet.offload().gso.map_or(1, |_| 64));
    segment(packet, |mut segment| {
        segment.complete_checksum();
        segments.push(segment.bytes().to_vec());
    });
    segments
}

/// What all segments of one packet share.
struct Cut {
    count: usize,
    /// Payload bytes of each but the last.
    size: usize,
    kind: GsoKind,
    network: usize,
    transport: usize,
    /// Where the payload starts.
    payload: usize,
    /// Sum of the IPv4 header without length, identification and checksum.
    ip_sum: u32,
    /// Identification of the first segment.
    id: u16,
    /// Sum of the pseudo-header without the length.
    pseudo: u32,
    sequence: u32,
}

/// TCP's protocol number.
const TCP: u8 = 6;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

impl Cut {
    fn of(packet: &Packet) -> Option<Self> {
        let offload = packet.offload();
        let gso = offload.gso?;
        let bytes = packet.bytes();
        let (network, transport) = packet.header_offsets();
        let (ip_sum, id) = match gso.kind {
            GsoKind::Tcp4 => ipv4_template(&bytes[network..transport]),
            GsoKind::Tcp6 => (0, 0),
        };
        let payload = usize::from(gso.header_len);
        Some(Self {
            count: packet.segments(),
            size: usize::from(gso.size),
            kind: gso.kind,
            network,
            transport,
            payload,
            ip_sum,
            id,
            pseudo: pseudo_header(packet.ip_addresses(), TCP),
            sequence: u32::from_be_bytes(*bytes[transport + 4..].first_chunk()?),
        })
    }

    fn nth(&self, packet: &Packet, index: usize) -> Packet {
        let start = self.payload + index * self.size;
        let last = index + 1 == self.count;
        let end = if last {
            packet.bytes().len()
        } else {
            start + self.size
        };
        let mut segment = packet.part(self.payload, start..end);
        let headers = &mut segment.bytes_mut()[..self.payload];
        let (ip, tcp) = headers.split_at_mut(self.transport);
        let ip = &mut ip[self.network..];
        let tcp_len = self.payload - self.transport + end - start;
        match self.kind {
            GsoKind::Tcp4 => {
                let total = (ip.len() + tcp_len) as u16;
                let id = self.id.wrapping_add(index as u16);
                let sum = !fold(self.ip_sum + u32::from(total) + u32::from(id));
                put(ip, 2, total);
                put(ip, 4, id);
                put(ip, 10, sum);
            }
            GsoKind::Tcp6 => put(ip, 4, (ip.len() - IPV6 + tcp_len) as u16),
        }
        let sequence = self.sequence.wrapping_add((index * self.size) as u32);
        tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
        if index > 0 {
            tcp[13] &= !CWR;
        }
        if !last {
            tcp[13] &= !(FIN | PSH);
        }
        put(tcp, 16, fold(self.pseudo + tcp_len as u32));
        segment
    }
}

/// The fixed IPv6 header.
const IPV6: usize = 40;

/// The sum of an IPv4 header without the fields that differ between segments, and
/// its identification.
fn ipv4_template(header: &[u8]) -> (u32, u16) {
    let word = |at| u16::from_be_bytes([header[at], header[at + 1]]);
    let whole = u32::from(sum(header));
    // One's complement: subtracting is adding the inverse.
    let without = whole + u32::from(!word(2)) + u32::from(!word(4)) + u32::from(!word(10));
    (u32::from(fold(without)), word(4))
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests;
