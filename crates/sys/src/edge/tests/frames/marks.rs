//! Tags and marks of frames.

use super::*;
use crate::edge::raw::RawUplink;
use std::net::{Ipv4Addr, Ipv6Addr};
use tailbound_dataplane::testing::frames::{Ipv4, ethernet, ipv4, ipv6, udp};
use tailbound_units::{Bytes, Rate};

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

#[test]
fn all_ip_frames_get_the_tag_and_nothing_else_changes() {
    let Some(mut programs) = Programs::load(Clock::Monotonic) else {
        return;
    };
    let tag = Tag {
        dscp: 46,
        pcp: None,
    };
    let rules = GuestRules {
        tag: Some(tag),
        ..GuestRules::default()
    };
    programs.start(GUEST, &rules);
    let (a4, b4) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let four = |tos| {
        let header = Ipv4 {
            tos,
            ..Ipv4::new(a4, b4, 17)
        };
        ethernet(B, A, 0x0800, &header.packet(&udp(1, 2, b"x")))
    };
    let six = |class: u8| {
        let (from, to) = (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        let mut packet = ipv6(from, to, 17, &udp(1, 2, b"x"));
        packet[0] = 0x60 | class >> 4;
        packet[1] = class << 4 | 0xa;
        ethernet(B, A, 0x86dd, &packet)
    };
    let after = |frame: Vec<u8>| {
        let input = Input {
            frame,
            ..Input::default()
        };
        run_on(&programs.from_guest, &input).frame
    };
    for class in [0, 3, 0x48, 0xb8, 0xff] {
        let wanted = 46 << 2 | class & 3;
        assert_eq!(after(four(class)), four(wanted), "class {class}");
        assert_eq!(after(six(class)), six(wanted), "class {class}");
    }
    let other = ethernet(B, A, 0x0806, &[7; 28]);
    assert_eq!(after(other.clone()), other);
}

#[test]
fn a_mark_names_the_guest_where_a_router_hides_it() {
    let Some(mut programs) = Programs::load(Clock::OfTests) else {
        return;
    };
    let uplink = RawUplink {
        mark: 0xff00,
        bridge: 0,
    };
    let uplinks = &mut programs.edge.maps.uplinks;
    uplinks.insert(1, uplink, 0).expect("a map");
    let limit = Bucket {
        rate: Rate::from_mbit(8),
        burst: Bytes(84),
    };
    let rules = |mark| GuestRules {
        mark: Some(mark),
        outward: Some(limit),
        ..GuestRules::default()
    };
    programs.start(NEIGHBOUR, &rules(0x0300));
    // This clears the entry of the interface of both roles.
    programs.start(GUEST, &GuestRules::default());
    let uplinks = &mut programs.edge.maps.uplinks;
    uplinks.insert(1, uplink, 0).expect("a map");
    programs.change(GUEST, &rules(0x0500));
    let address = Ipv4Addr::LOCALHOST;
    let payload = ipv4(address, address, 17, &udp(1, 2, b"x"));
    let mut input = Input {
        frame: ethernet(B, A, 0x0800, &payload),
        mark: 0x10_ff07,
        tstamp: 1_000_000,
        ..Input::default()
    };
    let marked = run_on(&programs.from_guest, &input);
    assert_eq!(marked.mark, 0x10_0507, "other bits stay");
    input.from = 99;
    for (mark, leaves) in [
        (0x10_0307, 1_084_000),
        (0x0500, 1_084_000),
        (0x0700, 0),
        (0x0003, 0),
    ] {
        input.mark = mark;
        let outcome = run_on(&programs.to_uplink, &input);
        assert_eq!(outcome.tstamp, leaves, "{mark:#x}");
    }
}
