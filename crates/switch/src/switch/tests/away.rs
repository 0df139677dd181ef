//! Guests that are away, and guests that arrive.

use super::paced::{self, guarantee};
use super::*;
use crate::port::{Arrival, Presence};
use smoltcp::wire::{Icmpv6Packet, Ipv6Packet};
use std::collections::BTreeSet;
use std::net::Ipv6Addr;

/// Makes a bench on which A is away, at the first query of its card.
fn away(config: SwitchConfig) -> Bench {
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.switch = Switch::new(config).expect("no rule is broken");
    bench.wires[A].borrow_mut().presence = Presence::Away;
    bench.switch.look_for_guests(bench.now, &bench.ports);
    bench
}

fn plain() -> SwitchConfig {
    config(&PipelineConfig::default())
}

impl Bench {
    fn set_presence(&mut self, port: usize, presence: Presence) {
        self.wires[port].borrow_mut().presence = presence;
        self.switch.handle_readable(PortIndex(port));
        self.settle();
    }
}

fn b_to_a(n: u16) -> Vec<u8> {
    datagram(MAC_A, MAC_B, (B4, A4), n)
}

/// Makes a frame that A sends from elsewhere.
fn from_elsewhere(n: u16) -> Vec<u8> {
    a_to_b(n)
}

fn here(arrival: u32) -> Presence {
    Presence::Here(Arrival(arrival))
}

#[test]
fn frames_for_an_absent_guest_leave_by_the_uplink_unqueued() {
    let mut bench = away(plain());
    assert_eq!(bench.port(A).link, Link::Away);
    bench.send(B, &b_to_a(1));
    bench.settle();
    assert_eq!(bench.sent(UPLINK), [b_to_a(1)]);
    // Its frames arrive from there, and frames to it from there are lost.
    bench.send(UPLINK, &from_elsewhere(2));
    bench.send(UPLINK, &datagram(MAC_A, GATEWAY, (FAR, A4), 3));
    bench.settle();
    assert_eq!(bench.sent(B), [from_elsewhere(2)]);
    assert_eq!(bench.drops(A, "away"), 1);
    // What is for all is for those that are here.
    let to_all = ethernet(Mac::BROADCAST, MAC_B, 0x0806, &arp(1, MAC_B, B4, A4));
    bench.send(B, &to_all);
    bench.settle();
    assert_eq!(bench.sent(UPLINK), [to_all]);
    assert!(bench.sent(A).is_empty());
    assert_eq!(bench.port(A).backlog_packets, 0);
    assert_eq!(bench.drops(UPLINK, "mac_move"), 0);
    // Nobody here can have its address meanwhile.
    let mut config = plain();
    config.guests[1].filter = None;
    bench
        .switch
        .reconfigure(bench.now, config)
        .expect("no rule");
    bench.send(B, &ethernet(GATEWAY, MAC_A, 0x0806, &arp(1, MAC_A, A4, B4)));
    bench.settle();
    assert_eq!(bench.drops(B, "mac_move"), 1);
}

#[test]
fn a_guest_that_arrives_is_announced_by_all_known_addresses() {
    let mut bench = away(plain());
    // One that it chose where it was.
    let chosen = Ipv6Addr::new(0xfe80, 0, 0, 0, 0x1234, 0x5678, 0x9abc, 0xdef0);
    let body = ipv6(chosen, B6, 58, &advertisement(chosen, MAC_A));
    bench.send(UPLINK, &ethernet(MAC_B, MAC_A, 0x86dd, &body));
    bench.settle();
    bench.sent(B);
    bench.set_presence(A, here(1));
    let told = bench.sent(UPLINK);
    assert!(bench.sent(A).is_empty() && bench.sent(B).is_empty());
    assert!(told.iter().all(|frame| frame[6..12] == MAC_A.0));
    assert_eq!(told[0][12..14], [0x80, 0x35]);
    let arp: Vec<_> = told.iter().filter(|f| f[12..14] == [8, 6]).collect();
    assert_eq!(arp.len(), 1);
    assert_eq!(
        (&arp[0][28..32], &arp[0][38..42]),
        (&A4.octets()[..], &A4.octets()[..])
    );
    let mut addresses = BTreeSet::new();
    for frame in told.iter().filter(|frame| frame[12..14] == [0x86, 0xdd]) {
        assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 1]);
        let ip = Ipv6Packet::new_checked(&frame[14..]).expect("IPv6");
        let message = Icmpv6Packet::new_checked(ip.payload()).expect("ICMPv6");
        assert!(message.verify_checksum(&ip.src_addr(), &ip.dst_addr()));
        assert_eq!(
            (ip.hop_limit(), message.target_addr()),
            (255, ip.src_addr())
        );
        addresses.insert(ip.src_addr());
    }
    assert_eq!(addresses, [A6, A_LINK_LOCAL, chosen].into());
    assert_eq!(told.len(), 1 + 1 + 3);
    // The guest is here: it receives its frames, and keeps its chosen address.
    bench.send(UPLINK, &datagram(MAC_A, GATEWAY, (FAR, A4), 3));
    bench.send(A, &ethernet(MAC_B, MAC_A, 0x86dd, &body));
    bench.settle();
    assert_eq!((bench.sent(A).len(), bench.sent(B).len()), (1, 1));
    // Once more where its monitor asks, and not where nothing has changed.
    bench.set_presence(A, here(1));
    assert!(bench.sent(UPLINK).is_empty());
    bench.set_presence(A, here(2));
    assert_eq!(bench.sent(UPLINK).len(), 5);
}

#[test]
fn a_chosen_address_stays_reserved_for_a_guest_that_migrates() {
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.settle();
    let chosen = Ipv6Addr::new(0xfe80, 0, 0, 0, 0x1234, 0x5678, 0x9abc, 0xdef0);
    let claims = |mac, to| {
        let body = ipv6(chosen, B6, 58, &advertisement(chosen, mac));
        ethernet(to, mac, 0x86dd, &body)
    };
    bench.send(A, &claims(MAC_A, GATEWAY));
    bench.settle();
    assert_eq!(bench.sent(UPLINK).len(), 1);
    bench.set_presence(A, Presence::Away);
    bench.send(B, &claims(MAC_B, GATEWAY));
    bench.send(UPLINK, &claims(MAC_A, MAC_B));
    bench.settle();
    bench.send(B, &claims(MAC_B, GATEWAY));
    bench.settle();
    assert_eq!(
        bench.drops(B, "spoofed_ip"),
        2,
        "neither as it left nor then"
    );
    bench.set_presence(A, here(1));
    bench.sent(UPLINK);
    bench.send(A, &claims(MAC_A, GATEWAY));
    bench.settle();
    assert_eq!(bench.sent(UPLINK).len(), 1, "it came back with it");
}

#[test]
fn a_guest_that_arrives_starts_with_empty_buckets() {
    let mut bench = away(paced::paced(&paced::wire(), Some(guarantee(100)), None));
    // Long enough for full ones.
    bench.run(Nanos::from_secs(3));
    bench.set_presence(A, here(1));
    let start = bench.now;
    for n in 0..40 {
        bench.send(A, &paced::full(A, n));
    }
    bench.run(start + Nanos::from_secs(1));
    let sent = std::mem::take(&mut bench.wires[UPLINK].borrow_mut().from_port);
    let mut bits = 0;
    for (at, frame) in sent.iter().filter(|(_, frame)| frame[6..12] == MAC_A.0) {
        bits += 8 * (frame.len().max(60) as u64 + 24);
        // A frame's worth comes with the link.
        let most = Rate::from_mbit(100).bytes_in(at.since(start)).0 * 8 + 2 * 8 * 1538;
        assert!(
            bits <= most,
            "{bits} bits {:?} after it came",
            at.since(start)
        );
    }
    assert!(bits > 40 * 8 * 1500);
}

#[test]
fn repeated_arrivals_are_charged_for_their_announcements() {
    let mut config = plain();
    let budget = BudgetConfig {
        rate: Rate::from_mbit(1),
        burst: Bytes(1_000),
    };
    config.guests[0].groups = Some(budget);
    let mut bench = away(config);
    for arrival in 1..1_000 {
        bench.set_presence(A, Presence::Away);
        bench.set_presence(A, here(arrival));
    }
    let told = bench.sent(UPLINK).len();
    assert!((3..=12).contains(&told), "{told} frames");
    assert_eq!(bench.drops(A, "group_budget"), 999 * 4 - told as u64);
}

#[test]
fn guest_presence_survives_a_reload_and_follows_a_new_port() {
    let mut bench = away(plain());
    bench.send(UPLINK, &from_elsewhere(1));
    bench.settle();
    let changed = bench.switch.reconfigure(bench.now, {
        let mut config = plain();
        config.guests.reverse();
        config
    });
    changed.expect("no rule is broken");
    bench.ports.swap(A, B);
    bench.wires.swap(A, B);
    assert_eq!(
        bench.switch.parts.forwarding.away(MAC_A),
        Some(PortIndex(B))
    );
    bench.settle();
    bench.sent(A);
    bench.send(A, &b_to_a(2));
    bench.settle();
    assert_eq!(bench.sent(UPLINK), [b_to_a(2)]);
    // The guest is here when its port is opened: then it was here before, and is not announced.
    bench.wires[B].borrow_mut().presence = here(7);
    bench.switch.handle_opened(PortIndex(B));
    bench.settle();
    assert!(bench.sent(UPLINK).is_empty());
    bench.send(A, &b_to_a(3));
    bench.settle();
    assert_eq!(bench.sent(B), [b_to_a(3)]);
}

#[test]
fn the_first_frame_finds_a_guest_that_has_just_come() {
    let mut bench = away(plain());
    // Its card wakes nobody before the other's does.
    bench.wires[A].borrow_mut().presence = here(1);
    bench.send(B, &b_to_a(1));
    bench.settle();
    assert_eq!(bench.sent(A), [b_to_a(1)]);
    assert_eq!(bench.switch.parts.forwarding.away(MAC_A), None);
}

/// An event of a guest to which others send.
#[derive(Debug, Clone, Copy)]
enum Event {
    Leaves(usize),
    Comes(usize),
    ToGuest { from: usize, to: usize },
    Heard(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let guest = || prop_oneof![Just(A), Just(B)];
    let event = prop_oneof![
        1 => guest().prop_map(Event::Leaves),
        1 => guest().prop_map(Event::Comes),
        4 => (0..3_usize, guest()).prop_map(|(from, to)| Event::ToGuest { from, to }),
        1 => guest().prop_map(Event::Heard),
    ];
    proptest::collection::vec(event, 1..80)
}

proptest! {
    /// Each frame reaches its guest if that is here, or else the uplink once, or is counted as
    /// dropped.
    #[test]
    fn each_frame_goes_where_its_guest_is(events in events()) {
        let mut bench = away(plain());
        let mac = [Mac([0; 6]), MAC_A, MAC_B];
        let ip = [FAR, A4, B4];
        let mut is_here = [true, false, true];
        let mut arrivals = 0;
        let mut lost = [0; 3];
        for (n, event) in events.into_iter().enumerate() {
            for port in 0..3 {
                bench.sent(port);
            }
            match event {
                Event::Leaves(guest) => {
                    is_here[guest] = false;
                    bench.set_presence(guest, Presence::Away);
                }
                Event::Comes(guest) => {
                    let told = usize::from(!is_here[guest]);
                    is_here[guest] = true;
                    arrivals += 1;
                    bench.set_presence(guest, here(arrivals));
                    let first = bench.sent(UPLINK);
                    prop_assert!(first.len() >= told);
                    prop_assert!(first.iter().all(|frame| frame[6..12] == mac[guest].0));
                }
                Event::Heard(guest) if !is_here[guest] => {
                    let frame = datagram(GATEWAY, mac[guest], (ip[guest], FAR), 0);
                    bench.send(UPLINK, &frame);
                    bench.settle();
                    prop_assert_eq!(bench.drops(UPLINK, "mac_move"), 0);
                }
                Event::ToGuest { from, to } if from != to && (from == UPLINK || is_here[from]) => {
                    let source = if from == UPLINK { GATEWAY } else { mac[from] };
                    let frame = datagram(mac[to], source, (ip[from], ip[to]), n as u16);
                    bench.send(from, &frame);
                    bench.settle();
                    let got = [0, 1, 2].map(|port| bench.sent(port));
                    let expected = match (is_here[to], from) {
                        (true, _) => Some(to),
                        (false, UPLINK) => None,
                        (false, _) => Some(UPLINK),
                    };
                    lost[to] += u64::from(expected.is_none());
                    for (port, got) in got.iter().enumerate() {
                        prop_assert_eq!(got.len(), usize::from(expected == Some(port)));
                    }
                }
                Event::Heard(_) | Event::ToGuest { .. } => {}
            }
            for guest in [A, B] {
                prop_assert_eq!(bench.drops(guest, "away"), lost[guest]);
                prop_assert_eq!(bench.port(guest).backlog_packets, 0);
                let link = if is_here[guest] { Link::Up } else { Link::Away };
                prop_assert_eq!(bench.port(guest).link, link);
            }
        }
    }
}
