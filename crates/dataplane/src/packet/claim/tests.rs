use super::*;
use crate::testing::packet;

const NOBODY: [u8; 16] = [0; 16];
const SOMEBODY: [u8; 16] = [0xfd; 16];

/// Returns the claim of an IPv6 packet of `payload` behind the headers named `next`.
fn claim_from(source: [u8; 16], next: u8, payload: &[u8]) -> Option<Claim> {
    let mut frame = [2; 12].to_vec();
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend((payload.len() as u16).to_be_bytes());
    frame.extend([next, 255]);
    frame.extend(source);
    frame.extend([0xfe; 16]);
    frame.extend(payload);
    packet(&frame, None).expect("well formed").claim()
}

fn claim(next: u8, payload: &[u8]) -> Option<Claim> {
    claim_from(SOMEBODY, next, payload)
}

/// A fragment header with `offset` in units of 8 bytes.
fn fragment(next: u8, offset: u16, more: bool, rest: &[u8]) -> Vec<u8> {
    let place = (offset << 3 | u16::from(more)).to_be_bytes();
    [&[next, 0], &place[..], &[0, 0, 0, 7], rest].concat()
}

/// An `ICMPv6` message for a target.
fn message(kind: u8) -> Vec<u8> {
    let mut message = vec![0; 32];
    message[0] = kind;
    message
}

fn udp(from: u16, to: u16) -> Vec<u8> {
    [from, to, 12, 0].map(u16::to_be_bytes).concat()
}

const DESTINATION_OPTIONS: [u8; 8] = [58, 0, 1, 4, 0, 0, 0, 0];

#[test]
fn neighbour_discovery_is_found_in_first_and_atomic_fragments() {
    for more in [false, true] {
        for kind in 133..=137 {
            let whole = fragment(58, 0, more, &message(kind));
            assert_eq!(claim(44, &whole), Some(Claim::FragmentedDiscovery));
            // Behind destination options ahead of the fragment header.
            let behind = [&[44, 0, 1, 4, 0, 0, 0, 0][..], &whole].concat();
            assert_eq!(claim(60, &behind), Some(Claim::FragmentedDiscovery));
            // Behind an authentication header in the fragment.
            let ah = [&[58, 4][..], &[0; 22], &message(kind)].concat();
            let behind = fragment(51, 0, more, &ah);
            assert_eq!(claim(44, &behind), Some(Claim::FragmentedDiscovery));
        }
        for kind in [128, 129, 3, 143] {
            let echo = fragment(58, 0, more, &message(kind));
            assert_eq!(claim(44, &echo), None, "type {kind}");
        }
    }
}

#[test]
fn a_first_fragment_shows_all_headers_of_its_packet() {
    let hidden = Some(Claim::HiddenHeaders);
    let echo = message(128);
    for len in 0..4 {
        assert_eq!(claim(44, &fragment(58, 0, true, &echo[..len])), hidden);
    }
    for len in 0..8 {
        let cut = &udp(1, 2)[..len];
        assert_eq!(claim(44, &fragment(17, 0, true, cut)), hidden);
        assert_eq!(claim(44, &fragment(17, 0, true, &[])[..len]), hidden);
    }
    assert_eq!(claim(44, &fragment(17, 0, true, &udp(1, 2))), None);
    let mut tcp = vec![0; 24];
    tcp[12] = 0x60;
    assert_eq!(claim(44, &fragment(6, 0, true, &tcp)), None);
    assert_eq!(claim(44, &fragment(6, 0, true, &tcp[..20])), hidden);
    assert_eq!(claim(44, &fragment(6, 0, true, &[])), hidden);
    // An unknown header ends the chain (ESP, no next header).
    assert_eq!(claim(44, &fragment(50, 0, true, &[1])), None);
    assert_eq!(claim(44, &fragment(59, 0, false, &[])), None);
}

#[test]
fn a_first_fragment_that_an_overlap_could_alter_has_hidden_headers() {
    // Options, then an echo in the first fragment; a second one at offset 8 could put
    // an advertisement in its place where a receiver takes overlaps (RFC 5722).
    let first = [&DESTINATION_OPTIONS[..], &message(128)].concat();
    let hidden = Some(Claim::HiddenHeaders);
    for next in [0, 43, 44, 60, 135, 139, 140] {
        assert_eq!(claim(44, &fragment(next, 0, true, &first)), hidden);
        assert_eq!(claim(44, &fragment(next, 1, false, &first)), hidden);
    }
    let ah = [&[60, 4][..], &[0; 22], &first].concat();
    assert_eq!(claim(44, &fragment(51, 0, true, &ah)), None);
    // Later fragments contain no headers, and reveal no type.
    for next in [58, 17, 6] {
        assert_eq!(claim(44, &fragment(next, 1, false, &message(134))), None);
    }
}

#[test]
fn a_dhcp_server_is_known_by_the_port_that_clients_listen_on() {
    let server = Some(Claim::DhcpServer);
    for source in [547, 1, 546] {
        assert_eq!(claim(17, &udp(source, 546)), server);
        assert_eq!(claim(44, &fragment(17, 0, true, &udp(source, 546))), server);
    }
    for destination in [547, 68, 67] {
        assert_eq!(claim(17, &udp(546, destination)), None);
    }
    assert_eq!(claim(17, &udp(547, 546)[..3]), None, "no port");
}

#[test]
fn a_dhcp_server_is_detected_over_ipv4_and_in_first_fragments() {
    const MORE: u16 = 0x2000;
    let v4 = |flags: u16, protocol: u8, payload: &[u8]| {
        let mut frame = [2; 12].to_vec();
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + payload.len() as u16).to_be_bytes());
        frame.extend([0, 1]);
        frame.extend(flags.to_be_bytes());
        frame.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(payload);
        packet(&frame, None).expect("well formed").claim()
    };
    for flags in [0, MORE] {
        assert_eq!(v4(flags, 17, &udp(67, 68)), Some(Claim::DhcpServer));
        assert_eq!(v4(flags, 17, &udp(7, 68)), Some(Claim::DhcpServer));
        assert_eq!(v4(flags, 17, &udp(68, 67)), None);
        assert_eq!(v4(flags, 6, &[0; 40]), None);
    }
    assert_eq!(v4(MORE, 17, &udp(67, 68)[..4]), Some(Claim::HiddenHeaders));
    assert_eq!(
        v4(1, 17, &udp(67, 68)),
        None,
        "a later fragment has no ports"
    );
}

#[test]
fn a_solicitation_from_the_unspecified_address_is_tentative() {
    let solicitation = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &SOMEBODY].concat();
    let tentative = Some(Claim::Tentative(SOMEBODY.into()));
    assert_eq!(claim_from(NOBODY, 58, &solicitation), tentative);
    assert_eq!(claim_from(SOMEBODY, 58, &solicitation), None);
    assert_eq!(claim_from(NOBODY, 58, &solicitation[..20]), None);
}
