use super::*;
use crate::Frame;
use crate::testing::packet;
use crate::testing::tcp::Tcp;
use proptest::prelude::*;
use smoltcp::wire::{IpAddress, Ipv4Packet, Ipv6Packet, TcpPacket};

fn cut(tcp: &Tcp) -> Vec<Packet> {
    let mut segments = Vec::new();
    let whole = packet(&tcp.frame(), Some(tcp.virtio())).expect("well formed");
    segment(whole, |segment| segments.push(segment));
    segments
}

/// Everything that must hold for each segment, read by smoltcp's own parsers.
fn check(tcp: &Tcp) {
    let whole = tcp.frame();
    let segments = cut(tcp);
    let size = usize::from(tcp.gso);
    assert_eq!(segments.len(), tcp.payload.div_ceil(size));
    let last = segments.len() - 1;
    let mut payload = Vec::new();
    for (index, mut segment) in segments.into_iter().enumerate() {
        assert!(segment.offload().gso.is_none());
        assert!(segment.offload().checksum.is_some(), "stays partial");
        segment.complete_checksum();
        let bytes = segment.bytes();
        assert_eq!(
            bytes[..tcp.network()],
            whole[..tcp.network()],
            "Ethernet and VLAN tags"
        );
        let (source, destination, checked) = ip(tcp, index, bytes);
        let read = TcpPacket::new_checked(checked).expect("TCP");
        assert!(read.verify_checksum(&source, &destination), "TCP checksum");
        assert_eq!(
            read.seq_number().0 as u32,
            tcp.sequence.wrapping_add((index * size) as u32)
        );
        assert_eq!(read.cwr(), tcp.flags & CWR != 0 && index == 0);
        assert_eq!(read.psh(), tcp.flags & PSH != 0 && index == last);
        assert_eq!(read.fin(), tcp.flags & FIN != 0 && index == last);
        let others = !(CWR | PSH | FIN);
        assert_eq!(bytes[tcp.transport() + 13] & others, tcp.flags & others);
        assert_eq!(
            bytes[tcp.transport() + 18..tcp.header_len()],
            whole[tcp.transport() + 18..tcp.header_len()],
            "urgent pointer and TCP options"
        );
        let expected = if index < last {
            size
        } else {
            tcp.payload - last * size
        };
        assert_eq!(read.payload().len(), expected);
        payload.extend_from_slice(read.payload());
    }
    assert_eq!(payload, whole[tcp.header_len()..]);
}

/// Checks the IP header of one segment; its addresses and payload.
fn ip<'a>(tcp: &Tcp, index: usize, bytes: &'a [u8]) -> (IpAddress, IpAddress, &'a [u8]) {
    let header = &bytes[tcp.network()..];
    let transport = &bytes[tcp.transport()..];
    if tcp.v6 {
        let read = Ipv6Packet::new_checked(header).expect("IPv6");
        assert_eq!(read.total_len(), header.len());
        assert_eq!(read.traffic_class(), tcp.tos);
        let extensions = tcp.network() + 40..tcp.transport();
        assert_eq!(bytes[extensions.clone()], tcp.frame()[extensions]);
        (read.src_addr().into(), read.dst_addr().into(), transport)
    } else {
        let read = Ipv4Packet::new_checked(header).expect("IPv4");
        assert!(read.verify_checksum(), "header checksum");
        assert_eq!(usize::from(read.total_len()), header.len());
        assert_eq!(read.ident(), tcp.id.wrapping_add(index as u16));
        assert!(read.dont_frag());
        let options = tcp.network() + 20..tcp.transport();
        assert_eq!(bytes[options.clone()], tcp.frame()[options]);
        (read.src_addr().into(), read.dst_addr().into(), transport)
    }
}

fn any_tcp() -> impl Strategy<Value = Tcp> {
    let tag = (prop_oneof![Just(0x8100u16), Just(0x88a8)], any::<u16>());
    (
        (any::<bool>(), prop::collection::vec(tag, 0..=2)),
        (0usize..=5, 0usize..=10, any::<u8>(), any::<u16>()),
        (any::<u32>(), any::<u8>(), 200u16..9000, 1usize..60_000),
    )
        .prop_map(|((v6, tags), (ip_options, options, tos, id), rest)| {
            let (sequence, flags, gso, payload) = rest;
            Tcp {
                v6,
                tags,
                ip_options,
                options,
                tos,
                id,
                sequence,
                flags,
                payload,
                gso,
            }
        })
        .prop_filter("is one segment already", |tcp| {
            tcp.payload > usize::from(tcp.gso)
        })
}

proptest! {
    #[test]
    fn the_wire_carries_as_much_for_a_packet_as_for_its_segments(tcp in any_tcp()) {
        let whole = packet(&tcp.frame(), Some(tcp.virtio())).expect("well formed");
        let segments: usize = cut(&tcp).iter().map(Frame::len).sum();
        prop_assert_eq!(whole.wire_len(), segments);
    }

    #[test]
    fn segments_carry_the_payload_under_right_headers(tcp in any_tcp()) {
        check(&tcp);
    }
}

#[test]
fn ids_and_sequence_numbers_wrap_around() {
    check(&Tcp {
        id: 0xffff,
        sequence: u32::MAX - 1000,
        ..Tcp::default()
    });
}

/// Without a declaration of the sender, and with `AccECN`'s.
#[test]
fn cwr_stays_on_all_where_it_may_be_a_bit_of_a_counter() {
    for ecn in [0, 0x10] {
        let tcp = Tcp {
            flags: 0x10 | CWR,
            payload: 3 * 1448,
            ..Tcp::default()
        };
        let mut virtio = tcp.virtio();
        virtio[1] = 1 | ecn;
        let mut whole = packet(&tcp.frame(), Some(virtio)).expect("well formed");
        assert_eq!(whole.with_virtio_header()[1], 1 | ecn);
        let mut flags = Vec::new();
        segment(whole, |segment| flags.push(segment.bytes()[14 + 20 + 13]));
        assert_eq!(flags, [0x10 | CWR; 3]);
    }
}

#[test]
fn fin_and_psh_stay_on_the_last_and_cwr_on_the_first() {
    let segments = cut(&Tcp {
        flags: 0x10 | FIN | PSH | CWR,
        payload: 3 * 1448,
        ..Tcp::default()
    });
    let flags: Vec<u8> = segments.iter().map(|s| s.bytes()[14 + 20 + 13]).collect();
    assert_eq!(flags, [0x10 | CWR, 0x10, 0x10 | FIN | PSH]);
}

#[test]
fn a_packet_of_one_segment_is_handed_over_as_it_is() {
    let tcp = Tcp {
        payload: 1448,
        ..Tcp::default()
    };
    let segments = cut(&tcp);
    assert_eq!(segments.len(), 1);
    assert_eq!(segments[0].bytes(), tcp.frame());
}

#[test]
fn segments_keep_class_and_source_and_lie_in_small_buffers() {
    let tcp = Tcp::default();
    let mut whole = packet(&tcp.frame(), Some(tcp.virtio())).expect("well formed");
    let class = crate::Class::Guaranteed;
    whole.set_class(class, crate::Classes::default().mark(class));
    let source = whole.source();
    segment(whole, |mut segment| {
        assert_eq!(segment.class(), class);
        assert_eq!(segment.bytes()[15], 46 << 2);
        assert_eq!(segment.source(), source);
        assert_eq!(segment.with_virtio_header()[1], 0, "no GSO any more");
    });
}

#[test]
fn a_wrong_partial_checksum_of_the_guest_is_not_passed_on() {
    let tcp = Tcp::default();
    let mut frame = tcp.frame();
    frame[tcp.transport() + 16] ^= 0xff;
    let whole = packet(&frame, Some(tcp.virtio())).expect("well formed");
    let right = packet(&tcp.frame(), Some(tcp.virtio())).expect("well formed");
    assert_eq!(on_the_wire(whole), on_the_wire(right));
}
