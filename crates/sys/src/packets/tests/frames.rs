//! Frames, byte by byte.

use std::net::Ipv4Addr;

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const ACK: u8 = 16;

/// One side of a connection: its last byte is that of its addresses of both layers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side {
    pub(super) number: u8,
    pub(super) port: u16,
}

impl Side {
    pub(super) const fn mac(self) -> [u8; 6] {
        [2, 0, 0, 0, 0, self.number]
    }

    pub(super) const fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 9, 0, self.number)
    }
}

/// A segment of TCP.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
    pub(super) window: u16,
    pub(super) payload: usize,
}

impl Segment {
    pub(super) fn bytes(&self, from: Side, to: Side) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(from.port.to_be_bytes());
        bytes.extend(to.port.to_be_bytes());
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.ack.to_be_bytes());
        bytes.extend([5 << 4, self.flags]);
        bytes.extend(self.window.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.resize(20 + self.payload, b'x');
        bytes
    }
}

pub(super) fn ethernet(from: Side, to: Side, kind: u16, rest: &[u8]) -> Vec<u8> {
    let mut frame = Vec::from(to.mac());
    frame.extend(from.mac());
    frame.extend(kind.to_be_bytes());
    frame.extend(rest);
    frame
}

/// A header of IPv4 with words of options, and what follows.
pub(super) fn ipv4(
    from: Side,
    to: Side,
    options: u8,
    fragment: u16,
    protocol: u8,
    rest: &[u8],
) -> Vec<u8> {
    let size = 20 + 4 * usize::from(options);
    let total = (size + rest.len()) as u16;
    let mut packet = vec![4 << 4 | (5 + options), 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 1]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(from.address().octets());
    packet.extend(to.address().octets());
    packet.resize(size, 1);
    // A bridge may look at it (br_netfilter).
    let words = packet
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(rest);
    packet
}

/// A header of IPv6 with what follows, whose first header is of kind `next`.
pub(super) fn ipv6(from: Side, to: Side, next: u8, rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![6 << 4, 0, 0, 0];
    packet.extend((rest.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    for side in [from, to] {
        packet.extend([0xfd; 15]);
        packet.push(side.number);
    }
    packet.extend(rest);
    packet
}

pub(super) fn tcp(from: Side, to: Side, segment: &Segment) -> Vec<u8> {
    let segment = segment.bytes(from, to);
    ethernet(from, to, 0x0800, &ipv4(from, to, 0, 0, 6, &segment))
}
