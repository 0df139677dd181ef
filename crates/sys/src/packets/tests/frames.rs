//! Frames, byte by byte.

use std::net::Ipv4Addr;
use tailbound_dataplane::testing::frames::{self, Ipv4};

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
        let segment = frames::Segment {
            ports: [from.port, to.port],
            seq: self.seq,
            ack: self.ack,
            flags: self.flags.into(),
            window: self.window,
            options: Vec::new(),
            payload: vec![b'x'; self.payload],
        };
        segment.bytes()
    }
}

/// Returns a frame, of which a bridge may look at the header's checksum (`br_netfilter`).
pub(super) fn ethernet(from: Side, to: Side, kind: u16, rest: &[u8]) -> Vec<u8> {
    [frames::header(to.mac(), from.mac(), kind), rest.to_vec()].concat()
}

/// Returns an IPv4 packet with words of options.
pub(super) fn ipv4(
    from: Side,
    to: Side,
    options: usize,
    fragment: u16,
    protocol: u8,
    rest: &[u8],
) -> Vec<u8> {
    let header = Ipv4 {
        id: 1,
        fragment,
        options,
        ..Ipv4::new(from.address(), to.address(), protocol)
    };
    header.packet(rest)
}

/// Returns an IPv6 packet whose first header behind its own is of kind `next`.
pub(super) fn ipv6(from: Side, to: Side, next: u8, rest: &[u8]) -> Vec<u8> {
    let [from, to] = [from, to].map(|side| {
        let mut address = [0xfd; 16];
        address[15] = side.number;
        address
    });
    frames::ipv6(from.into(), to.into(), next, rest)
}

pub(super) fn tcp(from: Side, to: Side, segment: &Segment) -> Vec<u8> {
    let segment = segment.bytes(from, to);
    ethernet(from, to, 0x0800, &ipv4(from, to, 0, 0, 6, &segment))
}
