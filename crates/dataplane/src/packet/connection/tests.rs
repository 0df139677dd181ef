use super::*;
use crate::testing::tcp::Tcp;
use crate::{Frame, GuestId, HashKeys, Packet, Pool};
use proptest::prelude::*;

fn read(pool: &Pool, frame: &[u8]) -> Packet {
    let mut buffer = pool.buffer(Packet::HEADROOM + frame.len());
    buffer[Packet::HEADROOM..][..frame.len()].copy_from_slice(frame);
    Packet::new(
        buffer,
        Packet::HEADROOM,
        frame.len(),
        None,
        Some(GuestId::first(0)),
    )
    .expect("well formed")
}

fn of(pool: &Pool, frame: &[u8]) -> Connection {
    read(pool, frame).connection()
}

fn tcp(v6: bool) -> Tcp {
    Tcp {
        v6,
        payload: 100,
        gso: 0,
        ..Tcp::default()
    }
}

#[test]
fn every_part_of_the_five_tuple_counts_and_nothing_else() {
    let pool = Pool::new();
    for v6 in [false, true] {
        let tcp = tcp(v6);
        let frame = tcp.frame();
        let same = of(&pool, &frame);
        let changed = |at: usize| {
            let mut frame = frame.clone();
            frame[at] ^= 0x40;
            of(&pool, &frame)
        };
        let ip = tcp.network();
        let addresses = if v6 {
            ip + 8..ip + 40
        } else {
            ip + 12..ip + 20
        };
        let ports = tcp.transport()..tcp.transport() + 4;
        for at in addresses.chain(ports) {
            assert_ne!(changed(at), same, "byte {at}");
        }
        // MAC addresses, sequence and payload.
        for at in [0, 6, tcp.transport() + 4, frame.len() - 1] {
            assert_eq!(changed(at), same, "byte {at}");
        }
        let mut udp = frame.clone();
        udp[if v6 { ip + 6 } else { ip + 9 }] = UDP;
        assert_ne!(of(&pool, &udp), same);
        let mut tagged = Tcp {
            tags: vec![(0x8100, 5)],
            ..tcp.clone()
        };
        tagged.ip_options = 1;
        assert_eq!(of(&pool, &tagged.frame()), same, "tags and options");
    }
}

#[test]
fn frames_without_ports_hash_by_ip_address_or_else_by_mac() {
    let pool = Pool::new();
    let tcp = tcp(false);
    let ports = tcp.transport();
    let differ = |frame: &[u8], at: usize| {
        let mut other = frame.to_vec();
        other[at] ^= 1;
        of(&pool, frame) != of(&pool, &other)
    };
    let mut fragment = tcp.frame();
    // More fragments: the next ones have no ports, and belong to the same connection.
    fragment[20] = 0x20;
    assert!(!differ(&fragment, ports) && differ(&fragment, 26));
    let mut icmp = tcp.frame();
    icmp[23] = 1;
    assert!(!differ(&icmp, ports) && differ(&icmp, 26));
    let mut other = vec![2; 60];
    other[12..14].copy_from_slice(&[0x88, 0xb5]);
    assert!(differ(&other, 0) && differ(&other, 11) && differ(&other, 13));
    assert!(!differ(&other, 30));
}

#[test]
fn outside_frames_hash_by_their_sender_only() {
    let pool = Pool::new();
    let of = |frame: &[u8]| {
        let mut buffer = pool.buffer(Packet::HEADROOM + frame.len());
        buffer[Packet::HEADROOM..][..frame.len()].copy_from_slice(frame);
        let packet = Packet::new(buffer, Packet::HEADROOM, frame.len(), None, None);
        packet.expect("well formed").connection()
    };
    let differ = |frame: &[u8], at: usize| {
        let mut other = frame.to_vec();
        other[at] ^= 1;
        of(frame) != of(&other)
    };
    let (v4, v6) = (tcp(false), tcp(true));
    let mut other = vec![2; 60];
    other[12..14].copy_from_slice(&[0x88, 0xb5]);
    let frames = [
        (v4.frame(), 26..30, v4.transport()),
        (v6.frame(), 22..38, v6.transport()),
        (other, 6..12, 30),
    ];
    for (frame, sender, behind) in frames {
        for at in sender.clone() {
            assert!(differ(&frame, at), "byte {at}");
        }
        for at in [0, sender.end, behind] {
            assert!(!differ(&frame, at), "byte {at}");
        }
    }
}

#[test]
fn segments_and_copies_keep_their_packets_connection() {
    let pool = Pool::new();
    let tcp = Tcp::default();
    let frame = tcp.frame();
    let mut buffer = pool.buffer(Packet::HEADROOM + frame.len());
    buffer[Packet::HEADROOM..][..frame.len()].copy_from_slice(&frame);
    let packet = Packet::new(buffer, 16, frame.len(), Some(tcp.virtio()), None);
    let mut packet = packet.expect("well formed");
    let connection = packet.connection();
    assert_eq!(packet.duplicate().connection(), connection);
    packet.add_priority_tag(crate::Classes::default().mark(crate::Class::Lowest));
    packet.segment(|segment| assert_eq!(segment.connection(), connection));
}

#[test]
fn connections_meet_no_more_often_than_at_random() {
    const BITS: u32 = 10;
    let frame = tcp(false).frame();
    let headers = Headers::parse(&frame).expect("well formed");
    // Each changes another piece: addresses, ports, both.
    for at in [29, 33, 35, 37] {
        const PAIRS: u32 = 30_000;
        let mut met = 0;
        // One pair a key: pairs of one key do not meet independently.
        for n in 0..PAIRS {
            let hash = ConnectionHash::new(HashKeys::random());
            let of = |i: u8| {
                let mut frame = frame.clone();
                frame[at] ^= i;
                connection(&hash, &frame, headers).0
            };
            let other = (n % 255) as u8 + 1;
            met += u32::from((of(0) ^ of(other)).trailing_zeros() >= BITS);
        }
        assert!(met < 2 * (PAIRS >> BITS), "{met} of {PAIRS} at byte {at}");
    }
}

proptest! {
    #[test]
    fn the_connection_hash_of_any_frame_is_deterministic(
        bytes in prop::collection::vec(any::<u8>(), 14..120),
        kind in prop::sample::select(vec![[8u8, 0], [0x86, 0xdd], [8, 6], [0x81, 0]]),
    ) {
        let mut bytes = bytes;
        bytes[12..14].copy_from_slice(&kind);
        if let Ok(headers) = Headers::parse(&bytes) {
            let hash = ConnectionHash::new(HashKeys::FIXED);
            prop_assert_eq!(
                connection(&hash, &bytes, headers),
                connection(&hash, &bytes.clone(), headers)
            );
        }
    }
}
