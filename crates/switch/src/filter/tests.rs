mod guard;

use super::*;
use crate::forward::Forwarding;
use crate::index::PortIndex;
use crate::test_frames::*;
use proptest::prelude::*;
use std::net::Ipv4Addr;
use tailbound_dataplane::GuestId;
use tailbound_units::Nanos;

/// Checks `packet` for a guest without other guests beside it.
fn check_by(filter: &SpoofFilter, packet: &Packet) -> Result<(), Reason> {
    let mut sender = Sender {
        now: Nanos::ZERO,
        guest: GuestId::first(1),
        port: PortIndex(1),
        book: &mut AddressBook::default(),
        forwarding: &Forwarding::new(2, None, []),
    };
    filter.check(packet, &mut sender)
}

fn check(frame: &[u8]) -> Result<(), Reason> {
    let filter = SpoofFilter::new(MAC_A, addresses_of_a());
    check_by(&filter, &packet(frame, None).expect("well formed"))
}

fn from_a(ethertype: u16, payload: &[u8]) -> Result<(), Reason> {
    check(&ethernet(MAC_B, MAC_A, ethertype, payload))
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;
const NONE4: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
const NONE6: Ipv6Addr = Ipv6Addr::UNSPECIFIED;

#[test]
fn a_guest_sends_from_its_own_addresses_only() {
    let datagram = udp(1, 2, b"x");
    assert_eq!(from_a(IPV4, &ipv4(A4, B4, 17, &datagram)), Ok(()));
    assert_eq!(
        from_a(IPV4, &ipv4(B4, A4, 17, &datagram)),
        Err(Reason::SpoofedIp)
    );
    assert_eq!(from_a(IPV6, &ipv6(A6, B6, 17, &datagram)), Ok(()));
    assert_eq!(
        from_a(IPV6, &ipv6(B6, A6, 17, &datagram)),
        Err(Reason::SpoofedIp)
    );
    assert_eq!(from_a(IPV6, &ipv6(A_LINK_LOCAL, B6, 17, &datagram)), Ok(()));
    let frame = ethernet(MAC_A, MAC_B, IPV4, &ipv4(A4, B4, 17, &datagram));
    assert_eq!(check(&frame), Err(Reason::SpoofedMac));
}

#[test]
fn only_a_dhcp_client_may_have_no_ipv4_address() {
    let from_nobody = |payload: &[u8], protocol| from_a(IPV4, &ipv4(NONE4, B4, protocol, payload));
    assert_eq!(from_nobody(&udp(68, 67, b"discover"), 17), Ok(()));
    assert_eq!(
        from_nobody(&udp(67, 68, b"offer"), 17),
        Err(Reason::SpoofedIp)
    );
    assert_eq!(from_nobody(&udp(68, 68, b""), 17), Err(Reason::SpoofedIp));
    assert_eq!(from_nobody(&udp(68, 67, b""), 6), Err(Reason::SpoofedIp));
    let mut fragment = ipv4(NONE4, B4, 17, &udp(68, 67, b"discover"));
    fragment[6] = 0x20;
    assert_eq!(from_a(IPV4, &fragment), Err(Reason::SpoofedIp));
}

#[test]
fn arp_speaks_for_the_guest_alone() {
    for operation in [1, 2] {
        assert_eq!(from_a(ARP, &arp(operation, MAC_A, A4, B4)), Ok(()));
        assert_eq!(
            from_a(ARP, &arp(operation, MAC_A, B4, A4)),
            Err(Reason::SpoofedArp)
        );
        assert_eq!(
            from_a(ARP, &arp(operation, MAC_B, A4, B4)),
            Err(Reason::SpoofedArp)
        );
    }
    // An address probe claims nothing (RFC 5227).
    assert_eq!(from_a(ARP, &arp(1, MAC_A, NONE4, A4)), Ok(()));
}

#[test]
fn neighbour_advertisements_speak_for_the_guest_alone() {
    let advertise = |target, mac| from_a(IPV6, &ipv6(A6, B6, 58, &advertisement(target, mac)));
    assert_eq!(advertise(A6, MAC_A), Ok(()));
    assert_eq!(advertise(A_LINK_LOCAL, MAC_A), Ok(()));
    assert_eq!(advertise(B6, MAC_A), Err(Reason::SpoofedNeighbour));
    assert_eq!(advertise(A6, MAC_B), Err(Reason::SpoofedNeighbour));
}

#[test]
fn a_guest_is_no_router() {
    for (kind, reason) in [(134, Reason::RouterClaim), (137, Reason::Redirect)] {
        let mut message = vec![0; 40];
        message[0] = kind;
        assert_eq!(from_a(IPV6, &ipv6(A6, B6, 58, &message)), Err(reason));
        // Behind a destination options header of 8 bytes it is no other.
        let hidden = [&[58, 0, 1, 4, 0, 0, 0, 0][..], &message].concat();
        assert_eq!(from_a(IPV6, &ipv6(A6, B6, 60, &hidden)), Err(reason));
    }
}

/// Makes a fragment header before `payload`: of the only fragment, or of the first of several.
fn fragment(next: u8, more: bool, payload: &[u8]) -> Vec<u8> {
    [&[next, 0, 0, u8::from(more), 0, 0, 0, 9][..], payload].concat()
}

#[test]
fn a_fragment_hides_no_advertisement() {
    let mut router = vec![0; 40];
    router[0] = 134;
    for more in [false, true] {
        for message in [
            &router,
            &advertisement(B6, MAC_A),
            &advertisement(A6, MAC_A),
        ] {
            assert_eq!(
                from_a(IPV6, &ipv6(A6, B6, 44, &fragment(58, more, message))),
                Err(Reason::FragmentedDiscovery)
            );
        }
    }
    let options = [&[58, 0, 1, 4, 0, 0, 0, 0][..], &router].concat();
    for hidden in [
        fragment(60, false, &options),
        fragment(60, true, &options[..8]),
        fragment(17, true, &udp(1, 2, b"")[..4]),
    ] {
        assert_eq!(
            from_a(IPV6, &ipv6(A6, B6, 44, &hidden)),
            Err(Reason::HiddenHeaders)
        );
    }
    let whole = fragment(17, true, &udp(1, 2, b"the first of several"));
    assert_eq!(from_a(IPV6, &ipv6(A6, B6, 44, &whole)), Ok(()));
}

#[test]
fn only_a_dhcp_server_hands_out_addresses() {
    let server = SpoofFilter::new(MAC_A, addresses_of_a()).with_dhcp_server(true);
    for payload in [
        (IPV4, ipv4(A4, B4, 17, &udp(67, 68, b"offer"))),
        (IPV4, ipv4(A4, B4, 17, &udp(1067, 68, b"offer"))),
        (IPV6, ipv6(A6, B6, 17, &udp(547, 546, b"advertise"))),
        (
            IPV6,
            ipv6(
                A6,
                B6,
                44,
                &fragment(17, false, &udp(547, 546, b"advertise")),
            ),
        ),
    ] {
        let frame = ethernet(MAC_B, MAC_A, payload.0, &payload.1);
        assert_eq!(check(&frame), Err(Reason::DhcpServer));
        let packet = packet(&frame, None).expect("well formed");
        assert_eq!(check_by(&server, &packet), Ok(()));
    }
    // Clients, and relays among themselves.
    for (from, to) in [(68, 67), (67, 67)] {
        assert_eq!(from_a(IPV4, &ipv4(A4, B4, 17, &udp(from, to, b""))), Ok(()));
    }
    assert_eq!(from_a(IPV6, &ipv6(A6, B6, 17, &udp(546, 547, b""))), Ok(()));
}

#[test]
fn a_prefix_is_the_guests_whole() {
    let own = ["10.0.0.0/24", "fd00::/64"].map(|text| text.parse().expect("a prefix"));
    let filter = SpoofFilter::new(MAC_A, own);
    let datagram = udp(1, 2, b"x");
    let check = |ethertype, payload: &[u8]| {
        let frame = ethernet(MAC_B, MAC_A, ethertype, payload);
        check_by(&filter, &packet(&frame, None).expect("well formed"))
    };
    for (last, result) in [
        ([10, 0, 0, 0], Ok(())),
        ([10, 0, 0, 255], Ok(())),
        ([10, 0, 1, 0], Err(Reason::SpoofedIp)),
    ] {
        let payload = ipv4(last.into(), B4, 17, &datagram);
        assert_eq!(check(IPV4, &payload), result);
    }
    assert_eq!(check(ARP, &arp(2, MAC_A, [10, 0, 0, 7].into(), B4)), Ok(()));
    let inside: Ipv6Addr = "fd00::1234".parse().expect("an address");
    assert_eq!(check(IPV6, &ipv6(inside, B6, 17, &datagram)), Ok(()));
    let claim = ipv6(inside, B6, 58, &advertisement(inside, MAC_A));
    assert_eq!(check(IPV6, &claim), Ok(()));
    let outside: Ipv6Addr = "fd00:0:0:1::1".parse().expect("an address");
    assert_eq!(
        check(IPV6, &ipv6(outside, B6, 17, &datagram)),
        Err(Reason::SpoofedIp)
    );
}

#[test]
fn address_detection_and_listener_reports_need_no_address() {
    let mut solicitation = vec![135, 0, 0, 0, 0, 0, 0, 0];
    solicitation.extend(A6.octets());
    assert_eq!(from_a(IPV6, &ipv6(NONE6, B6, 58, &solicitation)), Ok(()));
    let report = [&[58, 0, 5, 2, 0, 0, 1, 0][..], &[143, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(from_a(IPV6, &ipv6(NONE6, B6, 0, &report)), Ok(()));
    let echo = [128, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        from_a(IPV6, &ipv6(NONE6, B6, 58, &echo)),
        Err(Reason::SpoofedIp)
    );
    assert_eq!(
        from_a(IPV6, &ipv6(NONE6, B6, 17, &udp(1, 2, b""))),
        Err(Reason::SpoofedIp)
    );
}

#[test]
fn tagged_frames_and_unknown_ethertypes_are_refused() {
    let inner = [&[0, 7, 0x08, 0x00][..], &ipv4(B4, A4, 17, &udp(1, 2, b""))].concat();
    for tag in [0x8100, 0x88a8] {
        assert_eq!(from_a(tag, &inner), Err(Reason::VlanTag));
    }
    assert_eq!(from_a(0x8847, &[0; 46]), Err(Reason::EtherType));
    assert_eq!(from_a(38, &[0x42; 46]), Err(Reason::EtherType));
}

#[test]
fn a_station_may_be_announced_by_reverse_arp_and_no_others() {
    const RARP: u16 = 0x8035;
    let body = |operation: u8, stations: [[u8; 6]; 2], address: [u8; 4]| {
        let [sender, target] = stations;
        let mut body = vec![0, 1, 8, 0, 6, 4, 0, operation];
        body.extend(sender);
        body.extend(address);
        body.extend(target);
        body.resize(46, 0);
        body
    };
    let (a, b) = (MAC_A.0, MAC_B.0);
    assert_eq!(from_a(RARP, &body(3, [a, a], [0; 4])), Ok(()));
    let refused = Err(Reason::EtherType);
    assert_eq!(from_a(RARP, &body(4, [a, a], [0; 4])), refused, "an answer");
    assert_eq!(from_a(RARP, &body(3, [b, a], [0; 4])), refused);
    assert_eq!(from_a(RARP, &body(3, [a, b], [0; 4])), refused);
    assert_eq!(from_a(RARP, &body(3, [a, a], [10, 0, 0, 2])), refused);
    assert_eq!(from_a(RARP, &body(3, [a, a], [0; 4])[..20]), refused);
    let mut for_another = body(3, [a, a], [0; 4]);
    for_another[24] = 10;
    assert_eq!(from_a(RARP, &for_another), refused, "10.0.0.0");
}

proptest! {
    /// States the rules in another way, on bytes: passed frames name no other guest.
    #[test]
    fn frames_that_pass_the_filter_name_no_other_guest(
        ethertype in prop_oneof![Just(IPV4), Just(IPV6), Just(ARP), Just(0x8100), any::<u16>()],
        own_mac in any::<bool>(),
        template in 0usize..8,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        noise in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let datagram = udp(68, 67, &noise);
        let payload = match template {
            0 => ipv4(A4, B4, 17, &datagram),
            1 => ipv4(NONE4, B4, 17, &datagram),
            2 => ipv6(A6, B6, 58, &advertisement(A6, MAC_A)),
            3 => ipv6(NONE6, B6, 58, &noise),
            4 => arp(2, MAC_A, A4, B4),
            5 => arp(1, MAC_A, NONE4, B4),
            6 => ipv6(A_LINK_LOCAL, B6, 0, &noise),
            _ => noise,
        };
        let mut frame = ethernet(MAC_B, if own_mac { MAC_A } else { MAC_B }, ethertype, &payload);
        for (at, value) in changes {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        let Ok(packet) = packet(&frame, None) else { return Ok(()) };
        if check_by(&SpoofFilter::new(MAC_A, addresses_of_a()), &packet).is_err() {
            return Ok(());
        }
        prop_assert_eq!(&frame[6..12], &MAC_A.0);
        match (frame[12], frame[13]) {
            (0x08, 0x00) => {
                let source: [u8; 4] = frame[26..30].try_into().unwrap();
                prop_assert!(source == A4.octets() || source == [0; 4]);
            }
            (0x86, 0xdd) => {
                let source: [u8; 16] = frame[22..38].try_into().unwrap();
                let ours = [A6.octets(), A_LINK_LOCAL.octets(), [0; 16]];
                // The guest may choose link-local addresses that no other guest has.
                let is_chosen = source[..8] == A_LINK_LOCAL.octets()[..8];
                prop_assert!(is_chosen || ours.contains(&source));
                if frame[20] == 58 && frame[54] == 136 {
                    let target: [u8; 16] = frame[62..78].try_into().unwrap();
                    prop_assert!(ours[..2].contains(&target));
                }
                prop_assert!(!(frame[20] == 58 && matches!(frame[54], 134 | 137)));
            }
            (0x08, 0x06) => {
                prop_assert_eq!(&frame[22..28], &MAC_A.0);
                let sender: [u8; 4] = frame[28..32].try_into().unwrap();
                prop_assert!(sender == A4.octets() || sender == [0; 4]);
            }
            (0x80, 0x35) => {
                prop_assert_eq!(&frame[22..28], &MAC_A.0);
                prop_assert_eq!(&frame[28..32], &[0; 4]);
                prop_assert_eq!(&frame[32..38], &MAC_A.0);
            }
            other => prop_assert!(false, "{other:?} passed"),
        }
    }
}
