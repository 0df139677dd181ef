//! Frames byte by byte, for tests and benchmarks: plain, so that they can be checked by eye, and
//! without any of the tested code.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test program uses a part of this file"
)]

use std::net::{Ipv4Addr, Ipv6Addr};

/// Returns the header of an Ethernet frame.
pub fn header(to: [u8; 6], from: [u8; 6], ethertype: u16) -> Vec<u8> {
    [&to[..], &from, &ethertype.to_be_bytes()].concat()
}

/// Returns an Ethernet frame without FCS, padded to 60 bytes.
pub fn ethernet(to: [u8; 6], from: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&header(to, from, ethertype)[..], payload].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

/// Header of an IPv4 packet.
#[derive(Debug, Clone, Copy)]
pub struct Ipv4 {
    /// Source address.
    pub from: Ipv4Addr,
    /// Destination address.
    pub to: Ipv4Addr,
    /// Protocol of the payload.
    pub protocol: u8,
    /// DSCP and ECN.
    pub tos: u8,
    /// Identification.
    pub id: u16,
    /// Flags and offset of a fragment.
    pub fragment: u16,
    /// Time to live.
    pub ttl: u8,
    /// Words of options (no-operation).
    pub options: usize,
}

impl Ipv4 {
    /// Returns a header without options that forbids fragments.
    pub const fn new(from: Ipv4Addr, to: Ipv4Addr, protocol: u8) -> Self {
        Self {
            from,
            to,
            protocol,
            tos: 0,
            id: 0,
            fragment: 0x4000,
            ttl: 64,
            options: 0,
        }
    }

    /// Returns a packet with this payload.
    pub fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let len = 20 + 4 * self.options;
        let mut packet = vec![0x40 | (len / 4) as u8, self.tos];
        packet.extend(((len + payload.len()) as u16).to_be_bytes());
        packet.extend(self.id.to_be_bytes());
        packet.extend(self.fragment.to_be_bytes());
        packet.extend([self.ttl, self.protocol, 0, 0]);
        packet.extend(self.from.octets());
        packet.extend(self.to.octets());
        packet.resize(len, 1);
        let checksum = !plain_sum(&packet, 0);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet.extend(payload);
        packet
    }
}

/// Returns an IPv4 packet.
pub fn ipv4(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    Ipv4::new(from, to, protocol).packet(payload)
}

/// Header of an IPv6 packet.
#[derive(Debug, Clone, Copy)]
pub struct Ipv6 {
    /// Source address.
    pub from: Ipv6Addr,
    /// Destination address.
    pub to: Ipv6Addr,
    /// Kind of the next header.
    pub next: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub label: u32,
    /// Hop limit.
    pub hops: u8,
}

impl Ipv6 {
    /// Returns a header with the hop limit of neighbour discovery.
    pub const fn new(from: Ipv6Addr, to: Ipv6Addr, next: u8) -> Self {
        Self {
            from,
            to,
            next,
            traffic_class: 0,
            label: 0,
            hops: 255,
        }
    }

    /// Returns a packet with this payload.
    pub fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.label;
        let mut packet = Vec::from(first.to_be_bytes());
        packet.extend((payload.len() as u16).to_be_bytes());
        packet.extend([self.next, self.hops]);
        packet.extend(self.from.octets());
        packet.extend(self.to.octets());
        packet.extend(payload);
        packet
    }
}

/// Returns an IPv6 packet.
pub fn ipv6(from: Ipv6Addr, to: Ipv6Addr, next: u8, payload: &[u8]) -> Vec<u8> {
    Ipv6::new(from, to, next).packet(payload)
}

/// Returns a UDP datagram without checksum.
pub fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let words = [from, to, 8 + payload.len() as u16, 0];
    [words.map(u16::to_be_bytes).as_flattened(), payload].concat()
}

/// A TCP segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Segment {
    /// Source and destination port.
    pub ports: [u16; 2],
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Byte 13 of the header, AE above it.
    pub flags: u16,
    /// Window.
    pub window: u16,
    /// Options, padded to words.
    pub options: Vec<u8>,
    /// Payload.
    pub payload: Vec<u8>,
}

impl Segment {
    /// Returns the segment with a checksum of zero.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.ports.map(u16::to_be_bytes).concat();
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.ack.to_be_bytes());
        let words = 5 + self.options.len() / 4;
        bytes.extend(((words << 12) as u16 | self.flags).to_be_bytes());
        bytes.extend(self.window.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(&self.options);
        bytes.extend(&self.payload);
        bytes
    }

    /// Returns the segment with the checksum that a NIC would complete: only the sum of the pseudo
    /// header. `addresses` are those of its source and its destination.
    pub fn partial(&self, addresses: &[u8]) -> Vec<u8> {
        let mut bytes = self.bytes();
        let sum = plain_sum(addresses, 6 + bytes.len() as u64);
        bytes[16..18].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// Returns the segment with its checksum.
    pub fn complete(&self, addresses: &[u8]) -> Vec<u8> {
        let mut bytes = self.partial(addresses);
        let checksum = !plain_sum(&bytes, 0);
        bytes[16..18].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }
}

/// Returns the one's complement sum of `bytes` and `more`, by the definition.
pub fn plain_sum(bytes: &[u8], more: u64) -> u16 {
    let mut total = more;
    for pair in bytes.chunks(2) {
        total += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    }
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}
