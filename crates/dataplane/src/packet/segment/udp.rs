//! Segmentation of UDP: one datagram for each segment.

use super::{IPV6, ipv4_template};
use crate::packet::wire::UDP;
use crate::packet::{GsoKind, Packet, fold, pseudo_header};

/// Cuts a packet into datagrams and passes each to `sink` in order.
pub(super) fn segment(packet: &Packet, mut sink: impl FnMut(Packet)) {
    let Some(gso) = packet.offload().gso else {
        return;
    };
    let header_len = usize::from(gso.header_len);
    let (network, transport) = packet.header_offsets();
    let (headers, payload) = packet.bytes().split_at(header_len);
    let is_v4 = gso.kind == GsoKind::Udp4;
    let (ip_sum, mut id) = if is_v4 {
        ipv4_template(&headers[network..transport])
    } else {
        (0, 0)
    };
    let pseudo = pseudo_header(packet.ip_addresses(), UDP);
    let known = packet.facts_of_parts();
    for chunk in payload.chunks(usize::from(gso.size)) {
        let datagram = (header_len - transport + chunk.len()) as u16;
        let segment = packet.piece(&known, headers, chunk, |headers| {
            let (ip, udp) = headers.split_at_mut(transport);
            let ip = &mut ip[network..];
            if is_v4 {
                let len = ip.len() as u16 + datagram;
                let sum = !fold(ip_sum + u32::from(len) + u32::from(id));
                [ip[2], ip[3]] = len.to_be_bytes();
                [ip[4], ip[5]] = id.to_be_bytes();
                [ip[10], ip[11]] = sum.to_be_bytes();
                id = id.wrapping_add(1);
            } else {
                let len = (ip.len() - IPV6) as u16 + datagram;
                [ip[4], ip[5]] = len.to_be_bytes();
            }
            let partial = fold(pseudo + u32::from(datagram));
            [udp[4], udp[5]] = datagram.to_be_bytes();
            [udp[6], udp[7]] = partial.to_be_bytes();
        });
        sink(segment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;
    use crate::testing::packet;
    use proptest::prelude::*;
    use smoltcp::wire::{IpAddress, Ipv4Packet, Ipv6Packet, UdpPacket};

    /// Returns a UDP packet that needs segmentation, and its virtio header.
    fn whole(v6: bool, tagged: bool, payload: &[u8], size: u16) -> (Vec<u8>, [u8; 10]) {
        let len = (8 + payload.len()) as u16;
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        if tagged {
            frame.extend([0x81, 0, 0, 5]);
        }
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(len.to_be_bytes());
            frame.extend([17, 64]);
            frame.extend([0xfd; 32]);
        } else {
            frame.extend([8, 0, 0x45, 2]);
            frame.extend((20 + len).to_be_bytes());
            frame.extend([
                0xff, 0xfe, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2,
            ]);
        }
        let transport = frame.len() as u16;
        // The guest's sum of the pseudo-header is not trusted.
        frame.extend([4433, 443, len, 0xabcd].map(u16::to_be_bytes).concat());
        frame.extend(payload);
        let mut virtio = [1, 5, 0, 0, 0, 0, 0, 0, 6, 0];
        virtio[2..4].copy_from_slice(&(transport + 8).to_le_bytes());
        virtio[4..6].copy_from_slice(&size.to_le_bytes());
        virtio[6..8].copy_from_slice(&transport.to_le_bytes());
        (frame, virtio)
    }

    /// The datagram of a segment, whose headers are checked.
    fn datagram(v6: bool, tagged: bool, index: usize, segment: &mut Packet) -> Vec<u8> {
        assert!(segment.offload().checksum.is_some(), "stays partial");
        segment.complete_checksum();
        let ip = &segment.bytes()[if tagged { 18 } else { 14 }..];
        let (source, destination, udp): (IpAddress, IpAddress, _) = if v6 {
            let read = Ipv6Packet::new_checked(ip).expect("IPv6");
            assert_eq!(read.total_len(), ip.len());
            (read.src_addr().into(), read.dst_addr().into(), &ip[40..])
        } else {
            let read = Ipv4Packet::new_checked(ip).expect("IPv4");
            assert!(read.verify_checksum(), "header checksum");
            assert_eq!(usize::from(read.total_len()), ip.len());
            assert_eq!(read.ident(), 0xfffe_u16.wrapping_add(index as u16));
            (read.src_addr().into(), read.dst_addr().into(), &ip[20..])
        };
        let read = UdpPacket::new_checked(udp).expect("UDP");
        assert_eq!(usize::from(read.len()), udp.len());
        assert_eq!((read.src_port(), read.dst_port()), (4433, 443));
        assert_ne!(read.checksum(), 0);
        assert!(read.verify_checksum(&source, &destination), "checksum");
        read.payload().to_vec()
    }

    proptest! {
        #[test]
        fn datagrams_carry_the_payload_under_right_headers(
            v6: bool, tagged: bool, size in 200u16..1473, payload in 1usize..60_000,
        ) {
            prop_assume!(payload > usize::from(size));
            let payload: Vec<_> = (0..payload).map(|i| (i ^ (i >> 8)) as u8).collect();
            let (frame, virtio) = whole(v6, tagged, &payload, size);
            let mut packet = packet(&frame, Some(virtio)).expect("well formed");
            prop_assert_eq!(&packet.with_virtio_header()[..10], &virtio);
            let (segments, wire_len) = (packet.segments(), packet.wire_len());
            let mut cut = Vec::new();
            packet.segment(|segment| cut.push(segment));
            prop_assert_eq!(cut.len(), segments);
            prop_assert_eq!(cut.iter().map(Frame::len).sum::<usize>(), wire_len);
            let cut = cut.iter_mut().enumerate();
            let datagrams: Vec<_> = cut.map(|(index, s)| datagram(v6, tagged, index, s)).collect();
            let expected: Vec<_> = payload.chunks(usize::from(size)).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(datagrams, expected);
        }
    }

    #[test]
    fn a_packet_without_a_whole_udp_header_or_with_padding_is_refused() {
        let (frame, virtio) = whole(false, false, &[7; 3000], 1000);
        let reason = |frame: &[u8], virtio| {
            let refused = packet(frame, Some(virtio)).expect_err("must be refused");
            refused.reason()
        };
        let padded = [&frame[..], &[0]].concat();
        assert_eq!(reason(&padded, virtio), "gso_mismatch");
        let mut short = frame.clone();
        short[16..18].copy_from_slice(&27u16.to_be_bytes());
        let mut no_checksum = virtio;
        no_checksum[0] = 0;
        assert_eq!(reason(&short, no_checksum), "truncated");
        let mut none = virtio;
        none[4..6].fill(0);
        assert_eq!(reason(&frame, none), "gso_size");
        none[4] = 5;
        assert_eq!(reason(&frame, none), "gso_size");
        let mut tcp = frame.clone();
        tcp[14 + 9] = 6;
        assert_eq!(reason(&tcp, no_checksum), "gso_mismatch");
    }
}
