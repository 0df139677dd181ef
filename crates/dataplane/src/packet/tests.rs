use super::*;
use crate::testing::packet;
use crate::testing::tcp::Tcp;
use crate::{Fabric, HashKeys};
use proptest::prelude::*;
use smoltcp::wire::{Ipv4Packet, Ipv6Packet, TcpPacket};

fn small(v6: bool) -> Tcp {
    Tcp {
        v6,
        payload: 100,
        gso: 0,
        ..Tcp::default()
    }
}

fn refused(frame: &[u8], virtio: [u8; 10]) -> &'static str {
    packet(frame, Some(virtio))
        .expect_err("must be refused")
        .reason()
}

#[test]
fn a_frame_comes_out_as_it_went_in() {
    for v6 in [false, true] {
        let tcp = small(v6);
        let mut packet = packet(&tcp.frame(), Some(tcp.virtio())).expect("well formed");
        assert_eq!(packet.bytes(), tcp.frame());
        assert_eq!(packet.destination_mac(), [2, 0, 0, 0, 0, 2]);
        assert_eq!(packet.source_mac(), [2, 0, 0, 0, 0, 1]);
        assert_eq!(packet.ip_source().is_some_and(|ip| ip.is_ipv6()), v6);
        let written = packet.with_virtio_header();
        assert_eq!(written[VIRTIO_HEADER..], tcp.frame());
        assert_eq!(written[0], 1);
        assert_eq!(written[6..10], tcp.virtio()[6..10]);
    }
}

#[test]
fn a_gso_packet_asks_for_the_same_again_on_the_way_out() {
    let tcp = Tcp {
        flags: 0x90,
        ..Tcp::default()
    };
    let mut packet = packet(&tcp.frame(), Some(tcp.virtio())).expect("well formed");
    assert_eq!(packet.segments(), 45);
    assert_eq!(packet.with_virtio_header()[..VIRTIO_HEADER], tcp.virtio());
}

#[test]
fn gso_without_a_partial_checksum_gets_one() {
    // The sum is still to be made partial; virtio allows both.
    let tcp = Tcp::default();
    let mut frame = tcp.frame();
    frame[tcp.transport() + 16..tcp.transport() + 18].copy_from_slice(&[0xab, 0xcd]);
    let mut virtio = tcp.virtio();
    virtio[0] = 0;
    virtio[6..10].fill(0);
    let mut packet = packet(&frame, Some(virtio)).expect("well formed");
    assert_eq!(packet.bytes(), tcp.frame());
    assert_eq!(packet.with_virtio_header()[..VIRTIO_HEADER], tcp.virtio());
}

#[test]
fn a_short_frame_moves_to_a_small_buffer() {
    let pool = Pool::new();
    let frame = small(false).frame();
    let mut buffer = pool.buffer(Pool::LARGE);
    buffer[16..16 + frame.len()].copy_from_slice(&frame);
    let packet = Packet::new(buffer, 16, frame.len(), None, None).expect("well formed");
    assert_eq!(pool.free(), [0, 0, 0, 1]);
    assert_eq!(packet.bytes(), frame);
}

#[test]
fn tags_are_overwritten_and_everything_else_is_kept() {
    for v6 in [false, true] {
        let tcp = Tcp {
            // The guest asks for CS7 and sends ECT(0); the inner tag asks for PCP 7.
            tos: 0xe2,
            tags: vec![(0x88a8, 0x0123), (0x8100, 0xf456)],
            ..small(v6)
        };
        let mut packet = packet(&tcp.frame(), None).expect("well formed");
        for (class, dscp, pcp) in [
            (Class::Guaranteed, 46, 5),
            (Class::Small, 18, 2),
            (Class::Lowest, 0, 0),
        ] {
            packet.set_class(class, Mark { dscp, pcp });
            assert_eq!(packet.class(), class);
            let bytes = packet.bytes();
            if v6 {
                let ip = Ipv6Packet::new_checked(&bytes[22..]).expect("IPv6");
                assert_eq!(ip.traffic_class(), dscp << 2 | 2);
                assert_eq!(ip.flow_label(), 0);
            } else {
                let ip = Ipv4Packet::new_checked(&bytes[22..]).expect("IPv4");
                assert_eq!((ip.dscp(), ip.ecn()), (dscp, 2));
                assert!(ip.verify_checksum());
            }
            assert_eq!(bytes[14..16], [pcp << 5 | 0x01, 0x23]);
            assert_eq!(bytes[18..20], [pcp << 5 | 0x14, 0x56], "DEI is kept");
            assert_eq!(bytes[..14], tcp.frame()[..14]);
        }
    }
}

#[test]
fn a_mark_says_the_class_that_it_has_in_the_fabric() {
    let three = Classes::of(Fabric::ThreeClasses);
    let class = |tcp: &Tcp, classes| {
        let mut packet = packet(&tcp.frame(), None).expect("well formed");
        assert_eq!(packet.class(), Class::Lowest);
        packet.read_class(classes);
        packet.class()
    };
    for (v6, class_of) in [false, true]
        .into_iter()
        .flat_map(|v6| Class::ALL.map(|it| (v6, it)))
    {
        let marked = Tcp {
            tos: three.mark(class_of).dscp << 2,
            ..small(v6)
        };
        assert_eq!(class(&marked, three), class_of);
        let in_two = class(&marked, Classes::of(Fabric::SmallFlowsFirst));
        assert_eq!(in_two == Class::Small, class_of == Class::Guaranteed);
        assert_ne!(in_two, Class::Guaranteed);
    }
    let mut arp = vec![0; 60];
    arp[12..18].copy_from_slice(&[0x81, 0, 2 << 5, 0, 0x12, 0x34]);
    let mut arp = packet(&arp, None).expect("well formed");
    arp.read_class(three);
    assert_eq!(arp.class(), Class::Small);
}

#[test]
fn only_ecn_capable_packets_are_marked() {
    for v6 in [false, true] {
        for (ecn, taken) in [(0, false), (1, true), (2, true), (3, true)] {
            let tcp = Tcp {
                tos: ecn,
                ..small(v6)
            };
            let mut packet = packet(&tcp.frame(), None).expect("well formed");
            assert_eq!(packet.mark_congestion(), taken);
            if v6 {
                let ip = Ipv6Packet::new_checked(&packet.bytes()[14..]).expect("IPv6");
                assert_eq!(ip.traffic_class(), if taken { 3 } else { 0 });
            } else {
                let ip = Ipv4Packet::new_checked(&packet.bytes()[14..]).expect("IPv4");
                assert_eq!(ip.ecn(), if taken { 3 } else { 0 });
                assert!(ip.verify_checksum());
            }
        }
    }
}

#[test]
fn a_completed_checksum_verifies_and_ignores_padding() {
    for v6 in [false, true] {
        let tcp = small(v6);
        let mut frame = tcp.frame();
        frame.extend([0xee; 6]);
        let mut packet = packet(&frame, Some(tcp.virtio())).expect("well formed");
        packet.complete_checksum();
        assert_eq!(packet.offload(), Offload::NONE);
        let (source, destination) = (packet.ip_source(), packet.ip_destination());
        let end = packet.bytes().len() - 6;
        let read = TcpPacket::new_checked(&packet.bytes()[tcp.transport()..end]).expect("TCP");
        assert!(read.verify_checksum(
            &source.expect("IP").into(),
            &destination.expect("IP").into()
        ));
    }
}

/// UDP over IPv4 whose payload is chosen so that the checksum comes out as 0.
#[test]
fn a_checksum_of_zero_is_sent_as_all_ones() {
    let mut frame = small(false).frame();
    frame.truncate(14 + 20 + 10);
    frame[14 + 9] = 17;
    frame[14 + 2..14 + 4].copy_from_slice(&30u16.to_be_bytes());
    let udp = 34;
    frame[udp..].copy_from_slice(&[0, 1, 0, 2, 0, 10, 0, 0, 0, 0]);
    let rest = !crate::testing::frames::plain_sum(&frame[udp..], 0);
    frame[udp + 8..].copy_from_slice(&rest.to_be_bytes());
    let virtio = [1, 0, 0, 0, 0, 0, 34, 0, 6, 0];
    let mut packet = packet(&frame, Some(virtio)).expect("well formed");
    packet.complete_checksum();
    assert_eq!(packet.bytes()[udp + 6..udp + 8], [0xff, 0xff]);
}

#[test]
fn truncated_headers_are_refused_wherever_the_frame_ends() {
    for v6 in [false, true] {
        let tcp = Tcp {
            tags: vec![(0x8100, 5)],
            ip_options: 2,
            ..small(v6)
        };
        let frame = tcp.frame();
        for len in 0..frame.len() {
            assert_eq!(
                packet(&frame[..len], None).expect_err("truncated").reason(),
                "truncated",
                "at {len}"
            );
        }
    }
}

#[test]
fn lying_ip_headers_are_refused() {
    let change = |v6: bool, at: usize, value: u8| {
        let mut frame = small(v6).frame();
        frame[14 + at] = value;
        packet(&frame, None).map(|_| ()).map_err(Malformed::reason)
    };
    assert_eq!(change(false, 0, 0x55), Err("ip_version"));
    assert_eq!(change(false, 0, 0x44), Err("truncated"));
    assert_eq!(change(false, 0, 0x4f), Ok(()), "options of 40 bytes");
    assert_eq!(change(false, 2, 0xff), Err("truncated"));
    assert_eq!(
        change(false, 2, 0),
        Ok(()),
        "shorter than the frame: padding"
    );
    assert_eq!(change(true, 0, 0x40), Err("ip_version"));
    assert_eq!(change(true, 4, 0xff), Err("truncated"));
    assert_eq!(
        change(true, 6, 60),
        Err("truncated"),
        "an extension too long"
    );
}

#[test]
fn too_many_extension_headers_are_refused() {
    let with = |ip_options| {
        let tcp = Tcp {
            ip_options,
            ..small(true)
        };
        packet(&tcp.frame(), None)
            .map(|_| ())
            .map_err(Malformed::reason)
    };
    assert_eq!(with(8), Ok(()));
    assert_eq!(with(9), Err("extensions"));
}

/// Every field of a virtio header, set wrong, on packets that are right.
#[test]
fn hostile_virtio_headers_are_refused_with_the_reason() {
    let tcp = Tcp::default();
    let frame = tcp.frame();
    let set = |at: usize, value: &[u8]| {
        let mut virtio = tcp.virtio();
        virtio[at..at + value.len()].copy_from_slice(value);
        virtio
    };
    let cases: [(&str, [u8; 10]); 13] = [
        ("virtio_flags", set(0, &[0x05])),
        ("gso_type", set(1, &[3])),
        ("gso_type", set(1, &[0x21])),
        ("gso_mismatch", set(1, &[5])),
        ("gso_mismatch", set(1, &[4])),
        ("header_length", set(2, &[0xff, 0xff])),
        ("gso_size", set(4, &[0, 0])),
        ("gso_size", set(4, &[100, 0])),
        ("checksum_place", set(6, &[0, 0])),
        ("checksum_place", set(6, &[35, 0])),
        ("checksum_place", set(6, &[0xff, 0xff])),
        ("checksum_place", set(8, &[14, 0])),
        ("checksum_place", set(8, &[0xff, 0xff])),
    ];
    for (reason, virtio) in cases {
        assert_eq!(refused(&frame, virtio), reason, "{virtio:?}");
    }

    let mut padded = frame.clone();
    padded.push(0);
    assert_eq!(refused(&padded, tcp.virtio()), "gso_mismatch");

    let mut udp = frame.clone();
    udp[14 + 9] = 17;
    assert_eq!(refused(&udp, set(8, &[6, 0])), "tunnel");
    udp[14 + 9] = 132;
    assert_eq!(refused(&udp, set(8, &[6, 0])), "not_tcp");

    let mut fragment = frame.clone();
    fragment[14 + 6] = 0x20;
    assert_eq!(refused(&fragment, tcp.virtio()), "checksum_place");

    let mut long_tcp_header = frame;
    long_tcp_header[14 + 20 + 12] = 0x40;
    assert_eq!(refused(&long_tcp_header, tcp.virtio()), "truncated");
}

/// A packet in VXLAN as the kernel hands it over: the type is that of the inner packet,
/// the headers are those of the tunnel, the checksum is inside.
#[test]
fn segmentation_inside_a_tunnel_is_refused_as_unsupported() {
    let inner = Tcp::default();
    let mut frame = inner.frame();
    let payload = frame.split_off(14);
    let outer_len = (20 + 8 + 8 + 14 + payload.len()) as u16;
    frame.extend([0x45, 0]);
    frame.extend(outer_len.to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2]);
    frame.extend(
        [4800u16, 4789, outer_len - 20, 0]
            .map(u16::to_be_bytes)
            .concat(),
    );
    frame.extend([8, 0, 0, 0, 0, 0, 1, 0]);
    frame.extend(&inner.frame()[..14]);
    frame.extend(&payload);
    let start = 14 + 20 + 8 + 8 + 14 + 20;
    for gso_type in [1, 5] {
        let offset = if gso_type == 1 { 16 } else { 6 };
        let virtio = [1, gso_type, 0, 0, 0xa8, 5, start, 0, offset, 0];
        let refused = packet(&frame, Some(virtio)).expect_err("not cut here");
        assert!(refused.is_unsupported_segmentation(), "{refused}");
        // By GRE and IP in IP there is no other sign.
        for protocol in [4, 41, 47] {
            let mut other = frame.clone();
            other[14 + 9] = protocol;
            let refused = packet(&other, Some(virtio)).expect_err("not cut here");
            assert!(refused.is_unsupported_segmentation(), "{refused}");
        }
    }
    let fragments = [1, 3, 0, 0, 0xa8, 5, 34, 0, 6, 0];
    let refused = packet(&frame, Some(fragments)).expect_err("not cut here");
    assert!(refused.is_unsupported_segmentation(), "{refused}");
}

#[test]
fn a_checksum_request_over_address_fields_is_refused() {
    // ARP: the sum would be written over the sender's address later.
    let mut frame = vec![0xff; 12];
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend([0; 20]);
    assert_eq!(
        refused(&frame, [1, 0, 0, 0, 0, 0, 14, 0, 14, 0]),
        "checksum_place"
    );
    // Neighbour advertisement: only ICMPv6's own field, not its target.
    let mut icmp = small(true).frame();
    icmp[14 + 6] = 58;
    assert_eq!(
        refused(&icmp, [1, 0, 0, 0, 0, 0, 54, 0, 8, 0]),
        "checksum_place"
    );
    assert!(packet(&icmp, Some([1, 0, 0, 0, 0, 0, 54, 0, 2, 0])).is_ok());
}

#[test]
fn a_frame_must_lie_in_its_buffer_behind_the_headroom() {
    let pool = Pool::new();
    for (start, len) in [(0, 60), (9, 60), (2000, 60), (usize::MAX, 60), (16, 70_000)] {
        let refused = Packet::new(pool.buffer(100), start, len, None, None);
        assert!(matches!(refused, Err(Malformed::Bounds { .. })));
    }
}

#[test]
fn claims_about_addresses_are_found() {
    let mut arp = vec![0xff; 12];
    arp.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    arp.extend([2, 0, 0, 0, 0, 9, 10, 77, 0, 9]);
    arp.extend([0; 10]);
    let claim = Claim::Address {
        ip: "10.77.0.9".parse().expect("an address"),
        station: Station::At([2, 0, 0, 0, 0, 9]),
    };
    let found = packet(&arp, None).expect("well formed");
    assert_eq!(found.claim(), Some(claim));
    assert_eq!(found.flow(), None);
    arp[15] = 6;
    assert_eq!(
        packet(&arp, None).map_err(Malformed::reason).err(),
        Some("arp")
    );

    // Behind an extension header, with a target link-layer address.
    let mut tcp = Tcp {
        ip_options: 1,
        options: 0,
        payload: 12,
        ..small(true)
    };
    let mut frame = tcp.frame();
    let icmp = tcp.transport();
    frame[icmp - 8] = 58;
    frame[icmp..].fill(0);
    frame[icmp] = 136;
    frame[icmp + 8..icmp + 24].fill(0xfe);
    frame[icmp + 24..].copy_from_slice(&[2, 1, 2, 0, 0, 0, 0, 7]);
    let claim = |frame: &[u8]| packet(frame, None).expect("well formed").claim();
    assert_eq!(
        claim(&frame),
        Some(Claim::Address {
            ip: IpAddr::from([0xfe; 16]),
            station: Station::At([2, 0, 0, 0, 0, 7]),
        })
    );
    frame[icmp] = 134;
    assert_eq!(claim(&frame), Some(Claim::Router));
    frame[icmp] = 128;
    assert_eq!(claim(&frame), None);
    tcp.ip_options = 0;
    assert_eq!(claim(&tcp.frame()), None);
}

#[test]
fn flows_are_source_guest_and_destination_address() {
    let flow = |v6| {
        packet(&small(v6).frame(), None)
            .expect("well formed")
            .flow()
    };
    let v4 = flow(false).expect("IP");
    assert_eq!(v4.destination, 0xffff_0a4d_0002);
    assert_eq!(flow(true).expect("IP").destination & 0xff, 2);
    assert_eq!(v4.source, GuestId::first(1));
}

/// Calls all methods on an accepted packet.
fn use_it(mut packet: Packet) {
    let len = packet.len();
    let claim = (packet.source_mac(), packet.ip_source(), packet.claim());
    packet.set_class(
        Class::Small,
        Classes::of(Fabric::SmallFlowsFirst).mark(Class::Small),
    );
    packet.mark_congestion();
    let mut copy = packet.duplicate();
    copy.complete_checksum();
    // The departing packet is the one that was checked against spoofing.
    assert_eq!(claim, (copy.source_mac(), copy.ip_source(), copy.claim()));
    assert_eq!(copy.with_virtio_header().len(), VIRTIO_HEADER + len);
    let expected = packet.segments();
    let mut segments = 0;
    packet.segment(|mut segment| {
        segments += 1;
        segment.complete_checksum();
        assert!(segment.len() <= len);
        assert_eq!(claim.0, segment.source_mac());
        assert_eq!(claim.1, segment.ip_source());
    });
    assert_eq!(segments, expected);
}

proptest! {
    /// Both ways make the same of a frame, and only the long one refuses any.
    #[test]
    fn the_fast_path_builds_the_same_packet_as_the_full_path(
        v6 in prop::bool::weighted(0.1),
        payload in prop_oneof![9 => 0_usize..80, 1 => 1500_usize..3000],
        start in prop_oneof![9 => Just(Packet::HEADROOM), 1 => 0_usize..3000],
        damage in prop::collection::vec((0_usize..60, any::<u8>()), 0..3),
        virtio in prop::option::of((0_u8..4, prop::collection::vec((0_usize..10, any::<u8>()), 0..2))),
        is_guests in any::<bool>(),
    ) {
        let mut frame = Tcp { v6, payload, gso: 0, ..Tcp::default() }.frame();
        for (at, value) in damage {
            frame[at] = value;
        }
        let virtio = virtio.map(|(flags, damage)| {
            let mut virtio = [0; VIRTIO_HEADER];
            virtio[0] = flags;
            for (at, value) in damage {
                virtio[at] = value;
            }
            virtio
        });
        let pool = Pool::with_keys(HashKeys::FIXED);
        let source = is_guests.then_some(GuestId::first(3));
        let [one, other] = [Packet::new, any_packet].map(|make| {
            let mut buffer = pool.buffer(Packet::HEADROOM + frame.len());
            if let Some(place) = buffer.get_mut(start..start + frame.len()) {
                place.copy_from_slice(&frame);
            }
            let packet = make(buffer, start, frame.len(), virtio, source);
            packet.map(|packet| (format!("{:?}", packet.facts()), packet.bytes().to_vec()))
        });
        prop_assert_eq!(one, other);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        virtio in any::<[u8; 10]>(),
        ethertype in prop::sample::select(vec![0x0800u16, 0x86dd, 0x0806, 0x8100, 0x1234]),
    ) {
        let mut bytes = bytes;
        if bytes.len() > 14 {
            bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
        }
        if let Ok(packet) = packet(&bytes, Some(virtio)) {
            use_it(packet);
        }
    }

    #[test]
    fn damaged_packets_never_panic(
        v6 in any::<bool>(),
        options in 0usize..4,
        gso in 0u16..600,
        damage in prop::collection::vec((0usize..120, any::<u8>()), 0..4),
        virtio_damage in prop::collection::vec((0usize..10, any::<u8>()), 0..2),
    ) {
        let tcp = Tcp { v6, ip_options: options, gso, payload: 1000, ..Tcp::default() };
        let (mut frame, mut virtio) = (tcp.frame(), tcp.virtio());
        for (at, value) in damage {
            frame[at] = value;
        }
        for (at, value) in virtio_damage {
            virtio[at] = value;
        }
        if let Ok(packet) = packet(&frame, Some(virtio)) {
            use_it(packet);
        }
    }
}
