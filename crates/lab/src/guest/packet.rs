//! Frames that loads compose themselves, and a parser for the received frames of measuring loads.
//! Pure.

use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use tailbound_sys::tap::VIRTIO_HEADER_LEN;

/// Length of an Ethernet header, in bytes without tag and FCS.
pub(super) const ETHERNET: usize = 14;
const TAG: usize = 4;
const IPV4: usize = 20;
const UDP: usize = 8;
const TCP: usize = 20;
/// Preamble, FCS and gap; the shortest frame has 84 B on the wire.
const OVERHEAD: u64 = 24;
const SHORTEST: u64 = 84;
const TCP_PROTOCOL: u8 = 6;
const UDP_PROTOCOL: u8 = 17;
/// The segments of a large packet: the payload of a frame without options.
const SEGMENT: u16 = 1460;
/// 802.1Q, priority 7, VLAN 0: a priority tag of the highest class.
const TOP_PRIORITY: [u8; TAG] = [0x81, 0x00, 0xe0, 0x00];
/// Expedited forwarding (RFC 3246), in the place of the DSCP.
const EXPEDITED: u8 = 46 << 2;
/// `virtio_net_hdr`: a checksum to be completed, segments of TCP over IPv4.
const NEEDS_CHECKSUM: u8 = 1;
const SEGMENTED_TCP4: u8 = 1;

/// The longest IP packet that the host does not segment.
const MTU: u64 = 1500;

/// Returns the bytes on the wire of an Ethernet frame of `len` bytes without FCS.
pub(crate) const fn on_wire(len: u64) -> u64 {
    let wire_len = len + OVERHEAD;
    if wire_len < SHORTEST {
        SHORTEST
    } else {
        wire_len
    }
}

/// One end of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its IP address.
    pub ip: Ipv4Addr,
}

/// Differences of a load's frames from honest ones and from each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Manner {
    /// No difference: one flow to one destination.
    #[default]
    Plain,
    /// Each frame claims the highest class: by its DSCP, and every other frame also by an 802.1Q
    /// tag.
    Tagged,
    /// Each frame belongs to another one of `FLOWS` flows, each to an address of its own.
    Flows,
    /// Each frame has another destination MAC address that no guest has.
    UnknownMacs,
}

/// Number of flows of [`Manner::Flows`].
const FLOWS: u32 = 100_000;

/// Builds the `number`-th frame of a load, behind its virtio header. `packet` is the length of the
/// IP packet; a packet above [`MTU`] is a TCP packet that the host segments, others are UDP.
pub(super) fn frame(manner: Manner, from: End, to: End, packet: u16, number: u32) -> Vec<u8> {
    let flow = number % FLOWS;
    let mut to = to;
    match manner {
        Manner::Flows => {
            to.ip = Ipv4Addr::from((u32::from(to.ip) & 0xff00_0000) | 0x0080_0000 | flow);
        }
        Manner::UnknownMacs => {
            let [a, b, c, d] = number.to_be_bytes();
            to.mac = [2, 0xff, a, b, c, d];
        }
        Manner::Plain | Manner::Tagged => {}
    }
    let large = u64::from(packet) > MTU;
    let claims = manner == Manner::Tagged;
    let tag = (claims && number.is_multiple_of(2)).then_some(TOP_PRIORITY);
    let network = ETHERNET + tag.map_or(0, |tag| tag.len());
    let transport = network + IPV4;

    let mut bytes = vec![0; VIRTIO_HEADER_LEN];
    if large {
        bytes[0] = NEEDS_CHECKSUM;
        bytes[1] = SEGMENTED_TCP4;
        // These fields have this computer's byte order (virtio-net before 1.0).
        bytes[2..4].copy_from_slice(&((transport + TCP) as u16).to_ne_bytes());
        bytes[4..6].copy_from_slice(&SEGMENT.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(transport as u16).to_ne_bytes());
        bytes[8..10].copy_from_slice(&16u16.to_ne_bytes());
    }
    bytes.extend(to.mac);
    bytes.extend(from.mac);
    bytes.extend(
        tag.unwrap_or_default()
            .iter()
            .take(tag.map_or(0, |tag| tag.len())),
    );
    bytes.extend([0x08, 0x00]);

    let service = if claims { EXPEDITED } else { 0 };
    let protocol = if large { TCP_PROTOCOL } else { UDP_PROTOCOL };
    bytes.extend(ip_header([from.ip, to.ip], packet, service, protocol));

    let ports = [9_000 + (flow / 1000) as u16, 10_000 + (flow % 1000) as u16];
    let [source, destination] = ports.map(u16::to_be_bytes);
    bytes.extend(source);
    bytes.extend(destination);
    let payload = usize::from(packet).saturating_sub(IPV4);
    if large {
        let mut rest = [0; TCP - 4];
        rest[8] = 0x50;
        rest[9] = 0x10;
        // The sum of the pseudo-header; the segmenting program completes it.
        let mut pseudo = [0; 12];
        pseudo[..4].copy_from_slice(&from.ip.octets());
        pseudo[4..8].copy_from_slice(&to.ip.octets());
        pseudo[9] = TCP_PROTOCOL;
        pseudo[10..].copy_from_slice(&(payload as u16).to_be_bytes());
        rest[12..14].copy_from_slice(&self::sum(&pseudo).to_be_bytes());
        bytes.extend(rest);
    } else {
        bytes.extend((payload as u16).to_be_bytes());
        // No checksum (RFC 768).
        bytes.extend([0, 0]);
    }
    bytes.resize(
        VIRTIO_HEADER_LEN + network + usize::from(packet).max(IPV4 + UDP),
        0x5a,
    );
    bytes
}

/// Builds an IPv4 header without options of a packet of `len` bytes that must not be fragmented.
/// `service` is the byte that holds the DSCP.
fn ip_header([from, to]: [Ipv4Addr; 2], len: u16, service: u8, protocol: u8) -> [u8; IPV4] {
    let mut header = [0; IPV4];
    header[0] = 0x45;
    header[1] = service;
    header[2..4].copy_from_slice(&len.to_be_bytes());
    header[6] = 0x40;
    header[8] = 64;
    header[9] = protocol;
    header[12..16].copy_from_slice(&from.octets());
    header[16..20].copy_from_slice(&to.octets());
    let sum = !sum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// Returns the one's complement sum of an even number of bytes (RFC 1071).
pub(super) fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2);
    let sum: u32 = words
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    ((folded & 0xffff) + (folded >> 16)) as u16
}

/// An IPv4 packet in a received frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReceivedPacket<'a> {
    /// The sender's address.
    pub(crate) from: Ipv4Addr,
    /// Length of the Ethernet frame without FCS, from the IP header.
    pub(crate) len: u64,
    /// Payload of a UDP datagram, as far as it was stored; empty for other packets.
    pub(crate) data: &'a [u8],
}

/// Reads an Ethernet frame whose tag the kernel has removed; `None` if it is not IPv4.
pub(crate) fn read(frame: &[u8]) -> Option<ReceivedPacket<'_>> {
    let packet = match frame.get(12..ETHERNET)? {
        [0x08, 0x00] => frame.get(ETHERNET..)?,
        _ => return None,
    };
    let header_len = match packet.first()? {
        first if first >> 4 == 4 => usize::from(first & 0x0f) * 4,
        _ => return None,
    };
    let [high, low] = packet.get(2..4)?.try_into().ok()?;
    let from: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
    let data = match packet.get(9)? {
        &UDP_PROTOCOL => packet.get(header_len + UDP..).unwrap_or_default(),
        _ => &[],
    };
    Some(ReceivedPacket {
        from: from.into(),
        len: ETHERNET as u64 + u64::from(u16::from_be_bytes([high, low])),
        data,
    })
}

/// Builds a frame that carries a part of a message.
#[cfg(test)]
pub(crate) fn message_frame(from: End, to: End, header: super::Header) -> Vec<u8> {
    let mut frame = frame(Manner::Plain, from, to, 100, 0);
    let data = VIRTIO_HEADER_LEN + ETHERNET + IPV4 + UDP;
    header.write(&mut frame[data..]);
    frame.split_off(VIRTIO_HEADER_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FROM: End = End {
        mac: [2, 0, 0, 0, 1, 1],
        ip: Ipv4Addr::new(10, 77, 1, 1),
    };
    const TO: End = End {
        mac: [2, 0, 0, 0, 2, 2],
        ip: Ipv4Addr::new(10, 77, 2, 2),
    };
    const MANNERS: [Manner; 4] = [
        Manner::Plain,
        Manner::Tagged,
        Manner::Flows,
        Manner::UnknownMacs,
    ];

    #[test]
    fn a_frame_is_as_long_as_its_packet_and_has_a_right_checksum() {
        for manner in MANNERS {
            for packet in [28, 100, 1448, 1500, 65_000] {
                let frame = frame(manner, FROM, TO, packet, 123_456);
                // Its number is even.
                let tag = if manner == Manner::Tagged { TAG } else { 0 };
                let network = VIRTIO_HEADER_LEN + ETHERNET + tag;
                assert_eq!(frame.len(), network + usize::from(packet));
                assert_eq!(sum(&frame[network..network + IPV4]), 0xffff);
            }
        }
    }

    #[test]
    fn an_encoded_value_decodes_to_the_same_value() {
        let frame = frame(Manner::Plain, FROM, TO, 100, 0);
        let seen = read(&frame[VIRTIO_HEADER_LEN..]).unwrap();
        assert_eq!((seen.from, seen.len), (FROM.ip, 114));
        assert_eq!(seen.data, [0x5a; 72]);
    }

    #[test]
    fn flows_and_macs_differ_from_frame_to_frame() {
        for manner in [Manner::Flows, Manner::UnknownMacs] {
            let frames = [0, 1, FLOWS - 1].map(|number| frame(manner, FROM, TO, 64, number));
            assert!(frames[0] != frames[1] && frames[1] != frames[2]);
        }
        let own = [0, FLOWS].map(|number| frame(Manner::Flows, FROM, TO, 64, number));
        assert_eq!(own[0], own[1]);
    }

    #[test]
    fn the_wire_has_a_shortest_frame() {
        assert_eq!([on_wire(42), on_wire(60), on_wire(1514)], [84, 84, 1538]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = read(&bytes);
        }
    }
}
