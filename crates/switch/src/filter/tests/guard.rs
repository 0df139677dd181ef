//! Frames by which a guest would be more to the network than a station: each is dropped, and each
//! passes where its key allows it, and no other key does.

use super::*;
use crate::filter::GuardConfig;

const GROUP4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 18);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// An option of neighbour discovery that names a station: as the source (1) or the target (2).
fn option(kind: u8, mac: Mac) -> Vec<u8> {
    [&[kind, 1][..], &mac.0].concat()
}

/// Neighbour discovery: a solicitation (135) or an advertisement (136) for `target`, or a router
/// solicitation (133) without one.
fn discovery(kind: u8, target: Option<Ipv6Addr>, options: &[Vec<u8>]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.iter().flat_map(Ipv6Addr::octets));
    message.extend(options.concat());
    message
}

/// An IPv4 packet with options in its header.
fn ipv4_with(options: &[u8], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = ipv4(A4, B4, protocol, &[options, payload].concat());
    packet[0] = 0x45 + (options.len() / 4) as u8;
    packet
}

/// A fragment of an IPv4 packet that begins at `offset`, in units of 8 bytes.
fn ipv4_fragment(offset: u16, more: bool, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = ipv4(A4, B4, protocol, payload);
    let place = offset | if more { 0x2000 } else { 0 };
    packet[6..8].copy_from_slice(&place.to_be_bytes());
    packet
}

/// Behind a hop-by-hop header with a router alert, as MLD is.
fn alerted(message: &[u8]) -> Vec<u8> {
    [&[58, 0, 5, 2, 0, 0, 1, 0][..], message].concat()
}

/// Returns the roles that one key permits.
fn only(key: &str) -> GuardConfig {
    let mut guard = GuardConfig::default();
    let value = match key {
        "stations" => &mut guard.stations,
        "group_queries" => &mut guard.group_queries,
        "vrrp" => &mut guard.vrrp,
        "hsrp" => &mut guard.hsrp,
        "ospf" => &mut guard.ospf,
        "redirects" => &mut guard.redirects,
        "source_routes" => &mut guard.source_routes,
        "tiny_fragments" => &mut guard.tiny_fragments,
        _ => panic!("{key}?"),
    };
    *value = true;
    guard
}

/// A frame, why it is dropped, and the key that allows it.
type Case = (&'static str, u16, Vec<u8>, Reason, &'static str);

#[expect(clippy::too_many_lines, reason = "a table")]
fn cases() -> Vec<Case> {
    let v6 = |next: u8, payload: &[u8]| ipv6(A6, GROUP6, next, payload);
    let own = || option(1, MAC_A);
    let ask = |options: &[Vec<u8>]| v6(58, &discovery(135, Some(B6), options));
    let tell = |options: &[Vec<u8>]| v6(58, &discovery(136, Some(A6), options));
    let router = |options: &[Vec<u8>]| v6(58, &discovery(133, None, options));
    let query = [130, 0, 0, 0, 0, 0, 0, 0];
    let icmp6 = |kind: u8| v6(58, &discovery(kind, Some(B6), &[]));
    let source_route = |kind: u8| vec![1, kind, 7, 4, 10, 0, 0, 9];
    vec![
        (
            "a neighbour solicitation in another station's name",
            IPV6,
            ask(&[option(1, MAC_B)]),
            Reason::SpoofedSolicitation,
            "stations",
        ),
        (
            "one with a second name",
            IPV6,
            ask(&[own(), option(1, MAC_B)]),
            Reason::SpoofedSolicitation,
            "stations",
        ),
        (
            "one with an option that is no source's",
            IPV6,
            ask(&[option(2, MAC_B)]),
            Reason::SpoofedSolicitation,
            "stations",
        ),
        (
            "one whose name is behind an option that ends nowhere",
            IPV6,
            ask(&[vec![14, 0, 0, 0, 0, 0, 0, 0], option(1, MAC_B)]),
            Reason::SpoofedSolicitation,
            "stations",
        ),
        (
            "one whose name is behind another option",
            IPV6,
            ask(&[vec![14, 1, 0, 0, 0, 0, 0, 0], option(1, MAC_B)]),
            Reason::SpoofedSolicitation,
            "stations",
        ),
        (
            "a router solicitation in another station's name",
            IPV6,
            router(&[option(1, MAC_B)]),
            Reason::SpoofedSolicitation,
            "stations",
        ),
        (
            "an advertisement for another station",
            IPV6,
            tell(&[option(2, MAC_B)]),
            Reason::SpoofedNeighbour,
            "stations",
        ),
        (
            "one with a second target",
            IPV6,
            tell(&[option(2, MAC_A), option(2, MAC_B)]),
            Reason::SpoofedNeighbour,
            "stations",
        ),
        (
            "one with another source",
            IPV6,
            tell(&[option(2, MAC_A), option(1, MAC_B)]),
            Reason::SpoofedNeighbour,
            "stations",
        ),
        (
            "a query of MLD",
            IPV6,
            v6(0, &alerted(&query)),
            Reason::GroupQuery,
            "group_queries",
        ),
        (
            "one in a fragment",
            IPV6,
            v6(44, &fragment(58, true, &query)),
            Reason::GroupQuery,
            "group_queries",
        ),
        (
            "a query of IGMP",
            IPV4,
            ipv4_with(&[148, 4, 0, 0], 2, &[0x11, 100, 0, 0, 0, 0, 0, 0]),
            Reason::GroupQuery,
            "group_queries",
        ),
        (
            "one in a first fragment",
            IPV4,
            ipv4_fragment(0, true, 2, &[0x11, 100, 0, 0, 0, 0, 0, 0]),
            Reason::GroupQuery,
            "group_queries",
        ),
        (
            "VRRP",
            IPV4,
            ipv4(A4, GROUP4, 112, &[0x31, 1, 255, 1, 0, 100, 0, 0]),
            Reason::Vrrp,
            "vrrp",
        ),
        (
            "VRRP over IPv6",
            IPV6,
            v6(112, &[0x31, 1, 255, 1, 0, 100, 0, 0]),
            Reason::Vrrp,
            "vrrp",
        ),
        (
            "HSRP",
            IPV4,
            ipv4(A4, GROUP4, 17, &udp(1985, 1985, &[0; 20])),
            Reason::Hsrp,
            "hsrp",
        ),
        (
            "HSRP over IPv6",
            IPV6,
            v6(17, &udp(2029, 2029, &[0; 20])),
            Reason::Hsrp,
            "hsrp",
        ),
        (
            "a hello of OSPF",
            IPV4,
            ipv4(A4, GROUP4, 89, &[2, 1, 0, 44]),
            Reason::Ospf,
            "ospf",
        ),
        (
            "a hello of OSPF over IPv6",
            IPV6,
            v6(89, &[3, 1, 0, 36]),
            Reason::Ospf,
            "ospf",
        ),
        (
            "a redirect",
            IPV4,
            ipv4(A4, B4, 1, &[5, 1, 0, 0, 10, 77, 0, 1]),
            Reason::Redirect,
            "redirects",
        ),
        (
            "a redirect over IPv6",
            IPV6,
            icmp6(137),
            Reason::Redirect,
            "redirects",
        ),
        (
            "a loose source route",
            IPV4,
            ipv4_with(&source_route(131), 17, &udp(1, 2, b"x")),
            Reason::SourceRoute,
            "source_routes",
        ),
        (
            "a strict source route",
            IPV4,
            ipv4_with(&source_route(137), 6, &[0; 20]),
            Reason::SourceRoute,
            "source_routes",
        ),
        (
            "a first fragment of TCP without its flags",
            IPV4,
            ipv4_fragment(0, true, 6, &[0; 8]),
            Reason::TinyFragment,
            "tiny_fragments",
        ),
        (
            "one that would replace them",
            IPV4,
            ipv4_fragment(1, false, 6, &[0; 40]),
            Reason::TinyFragment,
            "tiny_fragments",
        ),
    ]
}

fn check_with(guard: GuardConfig, ethertype: u16, payload: &[u8]) -> Result<(), Reason> {
    let filter = SpoofFilter::new(MAC_A, addresses_of_a()).with_guard(guard);
    let frame = ethernet(MAC_B, MAC_A, ethertype, payload);
    check_by(&filter, &packet(&frame, None).expect("well formed"))
}

#[test]
fn a_guest_is_a_station_and_no_part_of_the_network() {
    for (what, ethertype, payload, reason, _) in cases() {
        let result = check_with(GuardConfig::default(), ethertype, &payload);
        assert_eq!(result, Err(reason), "{what}");
    }
}

#[test]
fn each_guard_key_allows_its_own_frames_only() {
    for (what, ethertype, payload, reason, key) in cases() {
        let all = GuardConfig::default().keys().map(|(key, _)| key);
        for other in all {
            let guard = only(other);
            assert!(guard.keys().contains(&(other, true)));
            let result = check_with(guard, ethertype, &payload);
            let expected = if other == key { Ok(()) } else { Err(reason) };
            assert_eq!(result, expected, "{what} with {other}");
        }
        assert_eq!(
            check_with(GuardConfig::EVERYTHING, ethertype, &payload),
            Ok(()),
            "{what}"
        );
    }
}

#[test]
fn frames_of_ordinary_stations_pass_the_guard() {
    let tcp = [0; 24];
    for (what, ethertype, payload) in [
        (
            "a solicitation",
            IPV6,
            ipv6(
                A6,
                GROUP6,
                58,
                &discovery(135, Some(B6), &[option(1, MAC_A)]),
            ),
        ),
        (
            "one that names nobody",
            IPV6,
            ipv6(A6, B6, 58, &discovery(135, Some(B6), &[])),
        ),
        (
            "one that names itself twice",
            IPV6,
            ipv6(
                A6,
                GROUP6,
                58,
                &discovery(135, Some(B6), &[option(1, MAC_A), option(1, MAC_A)]),
            ),
        ),
        (
            "a router solicitation",
            IPV6,
            ipv6(A6, GROUP6, 58, &discovery(133, None, &[option(1, MAC_A)])),
        ),
        (
            "a report of IGMP",
            IPV4,
            ipv4_with(&[148, 4, 0, 0], 2, &[0x22, 0, 0, 0, 0, 0, 0, 1]),
        ),
        (
            "a report of MLD",
            IPV6,
            ipv6(A6, GROUP6, 0, &alerted(&[143, 0, 0, 0, 0, 0, 0, 0])),
        ),
        (
            "an echo request",
            IPV4,
            ipv4(A4, B4, 1, &[8, 0, 0, 0, 0, 0, 0, 0]),
        ),
        (
            "a recorded route, which sends nothing elsewhere",
            IPV4,
            ipv4_with(&[7, 7, 4, 0, 0, 0, 0, 0], 17, &udp(1, 2, b"x")),
        ),
        (
            "a first fragment of TCP",
            IPV4,
            ipv4_fragment(0, true, 6, &tcp),
        ),
        ("its next one", IPV4, ipv4_fragment(3, false, 6, &tcp)),
    ] {
        let result = check_with(GuardConfig::default(), ethertype, &payload);
        assert_eq!(result, Ok(()), "{what}");
    }
}
