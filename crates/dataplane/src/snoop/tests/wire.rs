//! TCP segments as bytes: slow and plain, so that it can be checked by eye.

use crate::testing::frames::{Ipv4, Ipv6, Segment, plain_sum};
use crate::{GuestId, HashKeys, Packet, Pool};

/// The guest of all tests here.
pub(super) const GUEST: GuestId = GuestId::first(3);

/// A segment as it stands on a wire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tcp {
    pub(super) to_guest: bool,
    pub(super) v6: bool,
    /// The peer's port.
    pub(super) port: u16,
    pub(super) tag: Option<u16>,
    pub(super) traffic_class: u8,
    pub(super) hops: u8,
    pub(super) seq: u32,
    pub(super) ack: u32,
    /// Byte 13 of the header, AE above it.
    pub(super) flags: u16,
    pub(super) window: u16,
    /// All options without padding.
    pub(super) options: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const GUEST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];

impl Tcp {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let (stations, hosts, ports) = if self.to_guest {
            ([GUEST_MAC, PEER_MAC], [9, 3], [self.port, 80])
        } else {
            ([PEER_MAC, GUEST_MAC], [3, 9], [80, self.port])
        };
        let mut options = self.options.clone();
        options.resize(options.len().next_multiple_of(4), 1);
        let segment = Segment {
            ports,
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            options,
            payload: self.payload.clone(),
        };
        let mut frame = stations.concat();
        if let Some(tag) = self.tag {
            frame.extend([0x8100, tag].map(u16::to_be_bytes).concat());
        }
        if self.v6 {
            frame.extend([0x86, 0xdd]);
            frame.extend(self.ipv6(hosts, &segment));
        } else {
            frame.extend([8, 0]);
            frame.extend(self.ipv4(hosts, &segment));
        }
        frame
    }

    fn ipv4(&self, hosts: [u8; 2], segment: &Segment) -> Vec<u8> {
        let [from, to] = hosts.map(|host| [0xfd, 0xfd, 0xfd, host]);
        let header = Ipv4 {
            tos: self.traffic_class,
            id: 7,
            ttl: self.hops,
            ..Ipv4::new(from.into(), to.into(), 6)
        };
        header.packet(&segment.complete(&[from, to].concat()))
    }

    fn ipv6(&self, hosts: [u8; 2], segment: &Segment) -> Vec<u8> {
        let [from, to] = hosts.map(|host| {
            let mut address = [0xfd; 16];
            address[15] = host;
            address
        });
        let header = Ipv6 {
            traffic_class: self.traffic_class,
            label: 0xabcde,
            hops: self.hops,
            ..Ipv6::new(from.into(), to.into(), 6)
        };
        header.packet(&segment.complete(&[from, to].concat()))
    }

    pub(super) fn packet(&self, pool: &Pool) -> Packet {
        packet(pool, &self.bytes(), None, (!self.to_guest).then_some(GUEST))
    }

    /// The same; a frame with more payload is yet to be cut into segments of `size`.
    pub(super) fn packet_of(&self, pool: &Pool, size: u16) -> Packet {
        if self.payload.len() <= usize::from(size) || !self.to_guest {
            return self.packet(pool);
        }
        let bytes = self.bytes();
        let virtio = self.virtio(size, bytes.len());
        packet(pool, &bytes, Some(virtio), None)
    }

    /// A virtio header for a frame of `len` bytes that must be cut into segments of `size`.
    pub(super) fn virtio(&self, size: u16, len: usize) -> [u8; 10] {
        let network = if self.tag.is_some() { 18 } else { 14 };
        let transport = network + if self.v6 { 40 } else { 20 };
        let header = (len - self.payload.len()) as u16;
        let mut virtio = [0; 10];
        virtio[..2].copy_from_slice(&[1, if self.v6 { 4 } else { 1 }]);
        virtio[2..4].copy_from_slice(&header.to_le_bytes());
        virtio[4..6].copy_from_slice(&size.to_le_bytes());
        virtio[6..8].copy_from_slice(&(transport as u16).to_le_bytes());
        virtio[8..10].copy_from_slice(&16_u16.to_le_bytes());
        virtio
    }

    /// Reads a frame back, and checks every checksum in it.
    pub(super) fn read(mut packet: Packet) -> Self {
        packet.complete_checksum();
        let bytes = packet.bytes();
        let mut tcp = Self {
            to_guest: bytes[..6] == GUEST_MAC,
            ..Self::default()
        };
        let (to, from) = if tcp.to_guest {
            (GUEST_MAC, PEER_MAC)
        } else {
            (PEER_MAC, GUEST_MAC)
        };
        assert_eq!(bytes[..12], [to, from].concat(), "stations");
        let mut network = 14;
        if bytes[12..14] == [0x81, 0] {
            tcp.tag = Some(u16::from_be_bytes([bytes[14], bytes[15]]));
            network = 18;
        }
        let ip = &bytes[network..];
        tcp.v6 = bytes[network - 2..network] == [0x86, 0xdd];
        let (addresses, header, end) = if tcp.v6 {
            tcp.traffic_class = ip[0] << 4 | ip[1] >> 4;
            tcp.hops = ip[7];
            assert_eq!(ip[1..4], [(tcp.traffic_class << 4) | 0xa, 0xbc, 0xde]);
            let len = u16::from_be_bytes([ip[4], ip[5]]);
            (&ip[8..40], 40, 40 + usize::from(len))
        } else {
            assert_eq!(plain_sum(&ip[..20], 0), 0xffff, "the IP header's checksum");
            tcp.traffic_class = ip[1];
            tcp.hops = ip[8];
            let len = u16::from_be_bytes([ip[2], ip[3]]);
            (&ip[12..20], 20, usize::from(len))
        };
        assert_eq!(end, ip.len(), "the IP header's length");
        let segment = &ip[header..];
        let pseudo = plain_sum(addresses, 6 + segment.len() as u64);
        assert_eq!(plain_sum(segment, pseudo.into()), 0xffff, "TCP's checksum");
        let word = |at: usize| u32::from_be_bytes(segment[at..at + 4].try_into().expect("4"));
        tcp.port = if tcp.to_guest {
            (word(0) >> 16) as u16
        } else {
            word(0) as u16
        };
        (tcp.seq, tcp.ack) = (word(4), word(8));
        let header = usize::from(segment[12] >> 4) * 4;
        tcp.flags = u16::from(segment[12] & 1) << 8 | u16::from(segment[13]);
        tcp.window = (word(12)) as u16;
        tcp.options = segment[20..header].to_vec();
        tcp.payload = segment[header..].to_vec();
        tcp
    }
}

pub(super) fn pool() -> Pool {
    Pool::with_keys(HashKeys::FIXED)
}

pub(super) fn packet(
    pool: &Pool,
    frame: &[u8],
    virtio: Option<[u8; 10]>,
    source: Option<GuestId>,
) -> Packet {
    let mut buffer = pool.buffer(Packet::HEADROOM + frame.len());
    buffer[Packet::HEADROOM..Packet::HEADROOM + frame.len()].copy_from_slice(frame);
    Packet::new(buffer, Packet::HEADROOM, frame.len(), virtio, source).expect("well formed")
}
