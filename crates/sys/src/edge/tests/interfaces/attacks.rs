//! Attacks of a container on its neighbours, as frames from its end of a veth: the kernel has taken VLAN
//! tags off by the time at which the programs run, and passes runts. `frames/guard.rs` compares single
//! frames of the same kinds, and changed ones, with the decisions of the switch.

use super::*;
use crate::packet::{Batch, Socket};
use crate::tap::VIRTIO_HEADER_LEN;
use std::net::Ipv6Addr;
use std::time::Instant;
use tailbound_dataplane::testing::frames::{Ipv4, ethernet, header, ipv4, ipv6, udp};

const GROUP: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
const VICTIM: [u8; 6] = [2, 0, 0, 0, 0, 9];
const LINK: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 2);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const ALL: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

/// A frame, and the reason of its drop; `None` if it passes.
type Attack = (&'static str, Vec<u8>, Option<DropReason>);

fn own(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    ethernet(GROUP, MAC, ethertype, payload)
}

fn datagram(from: Ipv4Addr, ports: [u16; 2]) -> Vec<u8> {
    ipv4(from, HOST, 17, &udp(ports[0], ports[1], b"attack"))
}

fn arp(operation: u8, mac: [u8; 6], ip: Ipv4Addr) -> Vec<u8> {
    let head = [0, 1, 8, 0, 6, 4, 0, operation];
    let packet = [&head[..], &mac, &ip.octets(), &VICTIM, &HOST.octets()].concat();
    own(ARP, &packet)
}

/// A message of `ICMPv6` with a target, and an option that names a station.
fn discovery(kind: u8, target: Ipv6Addr, option: u8, station: [u8; 6]) -> Vec<u8> {
    let head = [kind, 0, 0, 0, 0, 0, 0, 0];
    let message = [&head[..], &target.octets(), &[option, 1], &station].concat();
    own(IPV6, &ipv6(LINK, ALL, 58, &message))
}

fn fragment(protocol: u8, offset: u16, payload: &[u8]) -> Vec<u8> {
    let header = Ipv4 {
        // More fragments follow.
        fragment: 0x2000 | offset,
        ..Ipv4::new(OWN, HOST, protocol)
    };
    own(IPV4, &header.packet(payload))
}

fn fragment6(next: u8, payload: &[u8]) -> Vec<u8> {
    let head = [next, 0, 0, 1, 0, 0, 0, 9];
    own(IPV6, &ipv6(LINK, ALL, 44, &[&head[..], payload].concat()))
}

/// Other stations' names in Ethernet, IP, ARP and neighbour discovery.
fn names() -> Vec<Attack> {
    let frame = datagram(OWN, [1, 2]);
    let advertisement = |station| discovery(136, LINK, 2, station);
    vec![
        ("own name", own(IPV4, &frame), None),
        (
            "MAC",
            ethernet(GROUP, VICTIM, IPV4, &frame),
            Some(DropReason::SpoofedMac),
        ),
        (
            "IPv4",
            own(IPV4, &datagram(OTHERS, [1, 2])),
            Some(DropReason::SpoofedIp),
        ),
        (
            "IPv6",
            own(IPV6, &ipv6(ROUTER, ALL, 59, &[])),
            Some(DropReason::SpoofedIp),
        ),
        (
            "ARP request",
            arp(1, MAC, HOST),
            Some(DropReason::SpoofedArp),
        ),
        (
            "ARP answer",
            arp(2, MAC, HOST),
            Some(DropReason::SpoofedArp),
        ),
        (
            "ARP station",
            arp(2, VICTIM, OWN),
            Some(DropReason::SpoofedArp),
        ),
        (
            "neighbour",
            discovery(136, ROUTER, 2, MAC),
            Some(DropReason::SpoofedNeighbour),
        ),
        (
            "station",
            advertisement(VICTIM),
            Some(DropReason::SpoofedNeighbour),
        ),
        ("own station", advertisement(MAC), None),
        (
            "question",
            discovery(135, ROUTER, 1, VICTIM),
            Some(DropReason::SpoofedSolicitation),
        ),
    ]
}

/// Messages of routers, servers and queriers.
fn roles() -> Vec<Attack> {
    let of = |protocol, first| own(IPV4, &ipv4(OWN, HOST, protocol, &[first; 24]));
    let ports = |from, to| own(IPV4, &datagram(OWN, [from, to]));
    vec![
        (
            "router",
            discovery(134, ROUTER, 1, MAC),
            Some(DropReason::RouterClaim),
        ),
        ("redirect", of(1, 5), Some(DropReason::Redirect)),
        (
            "redirect6",
            discovery(137, ROUTER, 2, MAC),
            Some(DropReason::Redirect),
        ),
        ("IGMP query", of(2, 0x11), Some(DropReason::GroupQuery)),
        (
            "MLD query",
            discovery(130, ROUTER, 1, MAC),
            Some(DropReason::GroupQuery),
        ),
        ("OSPF", of(89, 2), Some(DropReason::Ospf)),
        ("VRRP", of(112, 0x21), Some(DropReason::Vrrp)),
        ("HSRP", ports(1985, 1985), Some(DropReason::Hsrp)),
        ("DHCP server", ports(67, 68), Some(DropReason::DhcpServer)),
    ]
}

/// VLANs, other protocols and tunnels. The address outside of a tunnel is checked, as by a bridge.
fn coats() -> Vec<Attack> {
    let tagged = |outer: u16, from| {
        let inner = [0, 5, 8, 0];
        own(outer, &[&inner[..], &datagram(from, [1, 2])].concat())
    };
    let stacked = {
        let tags = [0, 5, 0x81, 0, 0, 6, 8, 0];
        own(0x88a8, &[&tags[..], &datagram(OTHERS, [1, 2])].concat())
    };
    let tunnel = |from, protocol| own(IPV4, &ipv4(from, HOST, protocol, &datagram(OTHERS, [1, 2])));
    let is_tag = Some(DropReason::VlanTag);
    let mut all = vec![
        ("VLAN", tagged(0x8100, OWN), is_tag),
        ("spoofed in a VLAN", tagged(0x8100, OTHERS), is_tag),
        ("service VLAN", tagged(0x88a8, OTHERS), is_tag),
        ("QinQ", stacked, is_tag),
        ("VXLAN", own(IPV4, &datagram(OWN, [4789, 4789])), None),
    ];
    for protocol in [4, 41, 47, 50] {
        all.push(("tunnel", tunnel(OWN, protocol), None));
        all.push((
            "spoofed tunnel",
            tunnel(OTHERS, protocol),
            Some(DropReason::SpoofedIp),
        ));
    }
    // PPPoE, MPLS, 802.1X, LLDP, LLC.
    for other in [0x8863, 0x8864, 0x8847, 0x888e, 0x88cc, 38] {
        let frame = own(other, &datagram(OWN, [1, 2]));
        all.push(("other protocol", frame, Some(DropReason::EtherType)));
    }
    all
}

/// Fragments, options, and lengths that lie.
fn shapes() -> Vec<Attack> {
    let options = |route: u8| {
        let header = Ipv4 {
            options: 1,
            ..Ipv4::new(OWN, HOST, 17)
        };
        let mut packet = header.packet(&udp(1, 2, b"x"));
        packet[20..24].copy_from_slice(&[route, 4, 4, 0]);
        own(IPV4, &packet)
    };
    let mut long = own(IPV4, &datagram(OWN, [1, 2]));
    long[16] = 9;
    let runt = |ethertype, len| {
        let mut frame = header(GROUP, MAC, ethertype);
        frame.resize(len, 0x45);
        frame
    };
    let malformed = Some(DropReason::Malformed);
    vec![
        ("source route", options(131), Some(DropReason::SourceRoute)),
        ("strict route", options(137), Some(DropReason::SourceRoute)),
        ("other option", options(7), None),
        (
            "no TCP flags",
            fragment(6, 0, &[0; 8]),
            Some(DropReason::TinyFragment),
        ),
        (
            "other TCP flags",
            fragment(6, 1, &[0; 8]),
            Some(DropReason::TinyFragment),
        ),
        (
            "no ports",
            fragment(17, 0, &[0; 4]),
            Some(DropReason::HiddenHeaders),
        ),
        ("later fragment", fragment(17, 9, &[0; 16]), None),
        (
            "hidden options",
            fragment6(60, &[0; 16]),
            Some(DropReason::HiddenHeaders),
        ),
        (
            "no ports6",
            fragment6(17, &[0; 4]),
            Some(DropReason::HiddenHeaders),
        ),
        (
            "discovery",
            fragment6(58, &[134; 24]),
            Some(DropReason::FragmentedDiscovery),
        ),
        ("long packet", long, malformed),
        ("IPv4 runt", runt(IPV4, 30), malformed),
        ("IPv6 runt", runt(IPV6, 40), malformed),
        ("ARP runt", runt(ARP, 20), malformed),
    ]
}

#[test]
fn attacks_are_dropped_by_their_reasons_on_a_real_interface() {
    let Some(net) = Net::new() else { return };
    let Some(mut edge) = net.open() else { return };
    net.host(|| edge.attach_guest(INDEX, &rules()))
        .expect("an interface");
    let guest = net.path("g");
    let socket = netns::within(&guest, || Socket::open("eth0", None));
    let socket = socket.expect("a namespace").expect("an interface");
    let mut batch = Batch::new();
    let mut wrong = Vec::new();
    for (name, frame, reason) in [names(), roles(), coats(), shapes()].concat() {
        let before = edge.counters(INDEX).expect("a guest");
        let sent = [&[0; VIRTIO_HEADER_LEN][..], &frame].concat();
        // The interface delivers in the sender's context, or soon after it.
        socket
            .transmit(&mut batch, [&sent[..]].into_iter())
            .expect(name);
        let until = Instant::now() + Duration::from_millis(if reason.is_some() { 500 } else { 5 });
        let mut after = edge.counters(INDEX).expect("a guest");
        while after.dropped() == before.dropped() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
            after = edge.counters(INDEX).expect("a guest");
        }
        let counted = DropReason::ALL.into_iter();
        let counted = counted.filter(|it| after.drops(*it) != before.drops(*it));
        let counted: Vec<_> = counted.collect();
        let wanted: Vec<_> = reason.into_iter().collect();
        if counted != wanted {
            wrong.push(format!("{name}: {counted:?} instead of {wanted:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
