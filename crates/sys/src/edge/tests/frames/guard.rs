//! The check decides as the switch's filter does.

use super::*;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tailbound_dataplane::testing::frames::{Ipv4, ethernet, header, ipv4, ipv6, udp};
use tailbound_switch::testing::FilteredGuest;
use tailbound_switch::{GuardConfig, Mac, Reason, SpoofFilter};
use tailbound_units::Nanos;

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];
const A4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const B4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const NONE4: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
const A6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
const NONE6: Ipv6Addr = Ipv6Addr::UNSPECIFIED;
const A_LINK: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 1);
const B_LINK: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 2);
/// In the open prefix, with an identifier that a host makes.
const CHOSEN: Ipv6Addr = Ipv6Addr::new(0xfd78, 0, 0, 0, 0x1234, 0x5678, 0x9abc, 0xdef0);
/// In it, made of the neighbour's MAC; by hand; anycast.
const OF_B: Ipv6Addr = Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0xff, 0xfe00, 2);
const BY_HAND: Ipv6Addr = Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 1);
const ANYCAST: Ipv6Addr = Ipv6Addr::new(0xfd78, 0, 0, 0, 0xfdff, 0xffff, 0xffff, 0xfffe);
const OPEN: Ipv6Addr = Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 0);

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const RARP: u16 = 0x8035;

const ROLES: [Role; 9] = [
    Role::DhcpServer,
    Role::Stations,
    Role::GroupQueries,
    Role::Vrrp,
    Role::Hsrp,
    Role::Ospf,
    Role::Redirects,
    Role::SourceRoutes,
    Role::TinyFragments,
];

/// Both sides of the comparison.
struct Pair {
    programs: Programs,
    filter: FilteredGuest,
}

impl Pair {
    fn new() -> Option<Self> {
        let programs = Programs::load(Clock::Monotonic)?;
        let filter = filter(2, Roles::default());
        let mut pair = Self { programs, filter };
        pair.start(2, Roles::default());
        Some(pair)
    }

    /// Starts the guest anew on both sides.
    fn start(&mut self, max_chosen: u32, roles: Roles) {
        let guard = Guard {
            open: vec![Prefix {
                address: IpAddr::V6(OPEN),
                length: 64,
            }],
            max_chosen,
            roles,
            ..Guard::new(A, [IpAddr::V4(A4).into(), IpAddr::V6(A6).into()])
        };
        let neighbour = Guard::new(B, [IpAddr::V4(B4).into(), IpAddr::V6(B6).into()]);
        for (ifindex, guard) in [(GUEST, guard), (NEIGHBOUR, neighbour)] {
            let fresh = GuestRules {
                guard: Some(guard),
                ..GuestRules::default()
            };
            self.programs.start(ifindex, &fresh);
        }
        self.filter = filter(max_chosen, roles);
    }

    /// Checks a frame on both sides, which must agree on the verdict and its reason.
    fn check(&mut self, frame: &[u8]) -> Result<(), Reason> {
        let wanted = self.filter.check(Nanos::ZERO, frame);
        let drops = |programs: &Programs| programs.edge.maps.dropped.get(&GUEST, 0);
        let before = drops(&self.programs).expect("a guest");
        let input = Input {
            frame: frame.to_vec(),
            ..Input::default()
        };
        let outcome = run_on(&self.programs.from_guest, &input);
        let after = drops(&self.programs).expect("a guest");
        let counted = DropReason::ALL.into_iter().zip(before.iter().zip(&after));
        let counted = counted.filter(|(_, (before, after))| before != after);
        let got: Vec<_> = counted.map(|(reason, _)| reason.label()).collect();
        let wanted_label = wanted.err().map(Reason::label);
        // The switch reads all headers before it asks for their meaning.
        if wanted == Err(Reason::Malformed) {
            assert_eq!(got.len(), 1, "{frame:02x?}");
        } else {
            let wanted: Vec<_> = wanted_label.into_iter().collect();
            assert_eq!(got, wanted, "{frame:02x?}");
        }
        assert_eq!(outcome.is_dropped, wanted.is_err());
        wanted
    }
}

fn filter(max_chosen: u32, roles: Roles) -> FilteredGuest {
    let own = |v4: Ipv4Addr, v6: Ipv6Addr| [v4.into(), v6.into()];
    let open = tailbound_switch::Prefix::new(OPEN.into(), 64).expect("a prefix");
    let guard = GuardConfig {
        stations: roles.has(Role::Stations),
        group_queries: roles.has(Role::GroupQueries),
        vrrp: roles.has(Role::Vrrp),
        hsrp: roles.has(Role::Hsrp),
        ospf: roles.has(Role::Ospf),
        redirects: roles.has(Role::Redirects),
        source_routes: roles.has(Role::SourceRoutes),
        tiny_fragments: roles.has(Role::TinyFragments),
    };
    let guest = SpoofFilter::new(Mac(A), own(A4, A6))
        .with_slaac([open], max_chosen as usize)
        .with_dhcp_server(roles.has(Role::DhcpServer))
        .with_guard(guard);
    let neighbour = SpoofFilter::new(Mac(B), own(B4, B6));
    FilteredGuest::new(Mac(A), guest, Mac(B), &neighbour)
}

fn arp(operation: u16, mac: [u8; 6], ip: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4];
    packet.extend(operation.to_be_bytes());
    packet.extend(mac);
    packet.extend(ip.octets());
    packet.extend(A);
    packet.extend(if operation == 3 { NONE4 } else { B4 }.octets());
    packet
}

/// A message of neighbour discovery with options that name stations.
fn discovery(kind: u8, target: Ipv6Addr, stations: &[[u8; 6]]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    if kind != 133 {
        message.extend(target.octets());
    }
    for (number, station) in stations.iter().enumerate() {
        message.extend([1 + (number % 2) as u8, 1]);
        message.extend(station);
    }
    message
}

fn ipv4_fragment(offset: u16, more: bool, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let fragment = offset | if more { 0x2000 } else { 0 };
    let header = Ipv4 {
        fragment,
        ..Ipv4::new(A4, B4, protocol)
    };
    header.packet(payload)
}

/// Behind an extension header without contents.
fn behind(next: u8, rest: &[u8]) -> Vec<u8> {
    [&[next, 0, 1, 4, 0, 0, 0, 0][..], rest].concat()
}

fn fragment6(next: u8, place: u16, rest: &[u8]) -> Vec<u8> {
    let place = place.to_be_bytes();
    [&[next, 0, place[0], place[1], 0, 0, 0, 9][..], rest].concat()
}

/// Frames of IPv4 that reach every rule.
fn templates4() -> Vec<Vec<u8>> {
    let datagram = udp(1, 2, b"some payload of a datagram");
    let mut all = Vec::new();
    for source in [A4, B4, NONE4] {
        for ports in [(1, 2), (68, 67), (67, 68), (1, 1985)] {
            all.push(ipv4(source, B4, 17, &udp(ports.0, ports.1, b"x")));
        }
        for protocol in [1, 2, 6, 50, 89, 112] {
            all.extend([5, 0x11, 8].map(|first| ipv4(source, B4, protocol, &[first; 24])));
        }
    }
    for protocol in [1, 2, 6, 17, 89, 112] {
        for (offset, more) in [(0, true), (1, false), (1, true), (9, false)] {
            for len in [0, 4, 7, 8, 15, 16, 40] {
                all.push(ipv4_fragment(offset, more, protocol, &vec![5; len]));
            }
        }
    }
    for options in [
        [131, 4, 4, 0],
        [137, 3, 0, 0],
        [1, 1, 1, 131],
        [0, 131, 3, 0],
        [7, 4, 0, 0],
        [7, 1, 131, 3],
    ] {
        let mut packet = ipv4(A4, B4, 17, &[&options[..], &datagram].concat());
        packet[0] = 0x46;
        all.push(packet);
    }
    all.iter().map(|it| ethernet(B, A, IPV4, it)).collect()
}

/// Frames of IPv6 that reach every rule; addresses have their owners' names.
fn templates6() -> Vec<Vec<u8>> {
    let addresses = [
        A6, B6, NONE6, A_LINK, B_LINK, CHOSEN, OF_B, BY_HAND, ANYCAST,
    ];
    let mut all = Vec::new();
    for source in addresses {
        for ports in [(1, 2), (547, 546), (1, 2029)] {
            all.push(ipv6(source, B6, 17, &udp(ports.0, ports.1, b"x")));
        }
        all.push(ipv6(
            source,
            B6,
            0,
            &behind(58, &[143, 0, 0, 0, 0, 0, 0, 0]),
        ));
        all.extend([6, 50, 59, 89, 112].map(|next| ipv6(source, B6, next, &[0x50; 24])));
        for kind in [130, 133, 134, 135, 136, 137] {
            for stations in [&[][..], &[A], &[B], &[A, A], &[A, B]] {
                let message = discovery(kind, source, stations);
                all.extend([A6, NONE6].map(|from| ipv6(from, B6, 58, &message)));
            }
        }
    }
    for next in [6, 17, 44, 51, 58, 60, 89] {
        for place in [0, 1, 8, 9] {
            for rest in [&[0x50; 4][..], &[135; 8], &[0x50; 24], &[130; 24]] {
                let fragment = fragment6(next, place, rest);
                all.push(ipv6(A6, B6, 44, &fragment));
                all.push(ipv6(A6, B6, 60, &behind(44, &fragment)));
            }
        }
    }
    let mut deep = discovery(134, A6, &[]);
    let mut next = 58;
    for _ in 0..12 {
        all.push(ipv6(A6, B6, next, &deep));
        deep = behind(next, &deep);
        next = 60;
    }
    all.iter().map(|it| ethernet(B, A, IPV6, it)).collect()
}

fn templates() -> Vec<Vec<u8>> {
    let mut all = templates4();
    all.extend(templates6());
    for operation in [1, 2, 3] {
        for (mac, ip) in [(A, A4), (A, B4), (B, A4), (A, NONE4)] {
            let payload = arp(operation, mac, ip);
            all.extend([ARP, RARP].map(|kind| ethernet(B, A, kind, &payload)));
        }
    }
    let packet = ipv4(A4, B4, 17, &udp(1, 2, b"x"));
    all.extend([0x8100, 0x88a8, 0x8847, 0x88cc, 38].map(|kind| ethernet(B, A, kind, &packet)));
    all.extend([0x8863, 0x8864, 0x888e].map(|kind| ethernet(B, A, kind, &packet)));
    // A forged source in a VLAN, in two, and in tunnels from both addresses.
    let forged = ipv4(B4, A4, 17, &udp(1, 2, b"x"));
    for tags in [&[0, 5, 8, 0][..], &[0, 5, 0x81, 0, 0, 6, 8, 0]] {
        let inner = [tags, &forged].concat();
        all.extend([0x8100, 0x88a8].map(|kind| ethernet(B, A, kind, &inner)));
    }
    for source in [A4, B4] {
        let tunnels = [4, 41, 47, 50].map(|protocol| ipv4(source, B4, protocol, &forged));
        all.extend(tunnels.map(|it| ethernet(B, A, IPV4, &it)));
        let vxlan = [
            &[8, 0, 0, 0, 0, 0, 7, 0][..],
            &ethernet(A, B, IPV4, &forged),
        ]
        .concat();
        let vxlan = ipv4(source, B4, 17, &udp(4789, 4789, &vxlan));
        all.push(ethernet(B, A, IPV4, &vxlan));
    }
    // Beyond the MTU, and shorter than the shortest frame.
    let long = ipv4(A4, B4, 17, &udp(1, 2, &[0; 3_000]));
    all.push(ethernet(B, A, IPV4, &long));
    all.push([&header(B, A, IPV4)[..], &packet].concat());
    all.push(ethernet(A, B, IPV4, &packet));
    // A length beyond the frame's.
    let mut short = ethernet(B, A, IPV4, &packet);
    short[16] = 9;
    all.push(short);
    all
}

#[test]
fn every_rule_decides_as_the_switch_does() {
    let Some(mut pair) = Pair::new() else { return };
    let mut reasons = std::collections::HashSet::new();
    let sets = ROLES.into_iter().map(|role| Roles::default().with(role));
    for roles in [Roles::default()].into_iter().chain(sets) {
        for max_chosen in [0, 1, 16] {
            pair.start(max_chosen, roles);
            for frame in templates() {
                if let Err(reason) = pair.check(&frame) {
                    reasons.insert(reason.label());
                }
            }
        }
    }
    // Three are those of the uplink and of buckets.
    assert_eq!(reasons.len(), DropReason::ALL.len() - 3, "{reasons:?}");
}

#[test]
fn changed_frames_are_decided_as_by_the_switch() {
    let Some(pair) = Pair::new() else { return };
    let pair = std::cell::RefCell::new(pair);
    let templates = templates();
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5);
    let case = (
        any::<prop::sample::Index>(),
        changes,
        0_usize..100,
        0_u32..512,
        0_u32..4,
    );
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 4096,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let result = runner.run(&case, |(template, changes, cut, roles, max_chosen)| {
        let mut frame = template.get(&templates).clone();
        for (at, value) in changes {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        // Half of them are whole.
        // The kernel runs no program on a packet without its IP header.
        let len = frame.len().saturating_sub(cut.saturating_sub(50)).max(54);
        frame.truncate(len);
        let mut pair = pair.borrow_mut();
        if max_chosen < 2 {
            let roles = ROLES.into_iter().filter(|role| roles & *role as u32 != 0);
            pair.start(max_chosen, roles.collect());
        }
        let _ = pair.check(&frame);
        Ok(())
    });
    result.expect("both decide the same");
}
