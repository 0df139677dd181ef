//! Budgets of guests for traffic that others pay for.

use super::*;
use crate::port::{BURST, MemoryPort};

/// Sets every guest's default budgets.
fn budgets(config: &mut SwitchConfig) {
    for guest in &mut config.guests {
        guest.groups = Some(BudgetConfig::default());
        guest.unknown = Some(BudgetConfig::default());
    }
}

/// Makes a switch of an uplink, A, and `others` other guests, each with its budgets.
fn bench_of(others: u8) -> Bench {
    let mut config = config(&PipelineConfig::default());
    let more = (2..=others).map(|n| {
        let mac = Mac([2, 7, 0, 0, 0, n]);
        GuestConfig::new(format!("other{n}"), mac)
    });
    config.guests.extend(more);
    budgets(&mut config);
    let (ports, wires) = (0..=config.guests.len())
        .map(|_| {
            let (port, wire) = MemoryPort::new();
            (Some(Box::new(port) as Box<dyn Port>), wire)
        })
        .unzip();
    Bench {
        switch: Switch::new(config).expect("no rule is broken"),
        ports,
        wires,
        now: Nanos::from_secs(1),
    }
}

fn broadcast_arp_request() -> Vec<u8> {
    ethernet(Mac::BROADCAST, MAC_A, 0x0806, &arp(1, MAC_A, A4, B4))
}

/// Floods `frame` from A at 100,000 a second for two seconds of virtual time.
fn flood(bench: &mut Bench, frame: &[u8]) {
    let start = bench.now;
    for burst in 0..200_000 / BURST as u64 {
        for _ in 0..BURST {
            bench.send(A, frame);
        }
        bench.run(start + Nanos(burst * BURST as u64 * 10_000));
    }
    bench.run(start + Nanos::from_secs(2));
}

/// Returns the number of frames that a budget permits in two seconds, with 84 bytes each on the
/// wire.
fn allowed() -> u64 {
    let budget = BudgetConfig::default();
    let bytes = budget.burst + budget.rate.bytes_in(Nanos::from_secs(2));
    bytes.0 / 84
}

#[test]
fn a_broadcast_flood_is_held_to_its_guests_budget_however_many_guests_there_are() {
    for others in [1, 8, 100] {
        let mut bench = bench_of(others);
        flood(&mut bench, &broadcast_arp_request());
        let copies: usize = (0..bench.wires.len())
            .map(|port| bench.sent(port).len())
            .sum();
        let copies = copies as u64;
        let frame = u64::from(others) + 1;
        assert!(copies <= allowed() + frame, "{others}: {copies} copies");
        let least = allowed() * 999 / 1000 - frame;
        assert!(copies >= least, "{others}: {copies} copies");
        let passed = copies / frame;
        assert_eq!(bench.drops(A, "group_budget"), 200_000 - passed);
        // The others' broadcasts, and unicast of the flooder, are not concerned.
        bench.send(
            B,
            &ethernet(Mac::BROADCAST, MAC_B, 0x0806, &arp(1, MAC_B, B4, A4)),
        );
        bench.send(A, &a_to_b(1));
        bench.settle();
        assert_eq!(bench.sent(A).len(), 1);
        assert_eq!(bench.sent(B), [a_to_b(1)]);
    }
}

#[test]
fn a_multicast_frame_pays_for_every_copy_of_its_bytes() {
    let mut bench = bench_of(8);
    let group = Mac([1, 0, 0x5e, 0, 0, 1]);
    let payload = udp(1, 2, &[7; 1472]);
    let frame = ethernet(group, MAC_A, 0x0800, &ipv4(A4, B4, 17, &payload));
    for _ in 0..1000 {
        bench.send(A, &frame);
    }
    bench.settle();
    let passed = bench.sent(B).len() as u64;
    let expected = BudgetConfig::default().burst.0.div_ceil(9 * 1538);
    assert_eq!(passed, expected);
}

/// The outside has one budget, apart from the guests'.
#[test]
fn a_broadcast_flood_from_outside_is_held_to_the_budget_of_the_uplink() {
    const COPIES: u64 = 9;
    let arp = ethernet(Mac::BROADCAST, GATEWAY, 0x0806, &arp(1, GATEWAY, FAR, A4));
    let flood = |outside| {
        let mut bench = bench_of(COPIES as u8 - 1);
        bench.switch.parts.admission.set_outside(outside);
        for _ in 0..20_000 {
            bench.send(UPLINK, &arp);
        }
        bench.settle();
        let passed = bench.sent(A).len() as u64;
        assert_eq!(bench.sent(B).len() as u64, passed);
        assert_eq!(bench.drops(UPLINK, "group_budget"), 20_000 - passed);
        // A guest's broadcasts, and frames to one guest, are not affected.
        bench.send(A, &broadcast_arp_request());
        bench.send(UPLINK, &datagram(MAC_A, GATEWAY, (FAR, A4), 1));
        bench.settle();
        assert_eq!([bench.sent(A).len(), bench.sent(B).len()], [1, 1]);
        passed
    };
    let budget = BudgetConfig::default();
    let passed = flood(Some(budget));
    assert_eq!(passed, budget.burst.0.div_ceil(COPIES * 84));
    assert_eq!(flood(None), 20_000, "its twin, without one");
}

/// Reloads add a budget, keep its spent part, and remove it.
#[test]
fn a_reload_keeps_the_spent_budget_of_the_outside() {
    let mut bench = bench_of(1);
    let arp = ethernet(Mac::BROADCAST, GATEWAY, 0x0806, &arp(1, GATEWAY, FAR, A4));
    let send = |bench: &mut Bench| {
        bench.send(UPLINK, &arp);
        bench.settle();
        bench.sent(A).len()
    };
    let with = |outside| SwitchConfig {
        outside,
        ..config(&PipelineConfig::default())
    };
    // Two guests: one frame is more than that.
    let little = BudgetConfig {
        rate: Rate(1),
        burst: Bytes(100),
    };
    for (outside, passes) in [(None, 1), (Some(little), 1), (Some(little), 0), (None, 1)] {
        let now = bench.now;
        let changed = bench.switch.reconfigure(now, with(outside));
        changed.expect("no rule is broken");
        assert_eq!(send(&mut bench), passes, "{outside:?}");
    }
}

#[test]
fn frames_to_unknown_addresses_are_held_to_a_budget() {
    let mut bench = bench_of(1);
    let far = |n: u32| {
        let [_, a, b, c] = n.to_be_bytes();
        datagram(Mac([2, 5, 5, a, b, c]), MAC_A, (A4, FAR), 1)
    };
    for n in 0..20_000 {
        bench.send(A, &far(n));
        if n % 1000 == 999 {
            bench.settle();
        }
    }
    let passed = bench.sent(UPLINK).len() as u64;
    assert_eq!(passed, BudgetConfig::default().burst.0.div_ceil(84));
    assert_eq!(bench.drops(A, "unknown_budget"), 20_000 - passed);
    // It is known once it has sent anything.
    let known = Mac([2, 5, 5, 0, 0, 1]);
    bench.send(UPLINK, &datagram(MAC_A, known, (FAR, A4), 2));
    bench.settle();
    for _ in 0..1000 {
        bench.send(A, &far(1));
        bench.settle();
    }
    assert_eq!(bench.sent(UPLINK).len(), 1000);
}

#[test]
fn a_reload_gives_no_budget_twice() {
    let mut bench = bench_of(1);
    for _ in 0..20_000 {
        bench.send(A, &broadcast_arp_request());
        bench.settle();
    }
    let spent = bench.sent(B).len();
    let mut same = config(&PipelineConfig::default());
    budgets(&mut same);
    bench
        .switch
        .reconfigure(bench.now, same.clone())
        .expect("no rule is broken");
    bench.send(A, &broadcast_arp_request());
    bench.settle();
    assert_eq!(bench.sent(B).len(), 0, "after {spent}");
    // A higher one holds at once.
    same.guests[0].groups = Some(BudgetConfig {
        rate: Rate::from_mbit(10),
        burst: Bytes(10_000_000),
    });
    bench
        .switch
        .reconfigure(bench.now, same)
        .expect("no rule is broken");
    bench.send(A, &broadcast_arp_request());
    bench.settle();
    assert_eq!(bench.sent(B).len(), 1);
}

/// Addresses that guests chose, as seen from outside: the first guest has the address.
#[test]
fn a_link_local_address_made_of_a_secret_works_and_is_not_to_be_stolen() {
    let mut bench = bench_of(1);
    let address: std::net::Ipv6Addr = "fe80::1c2d:3e4f:5a6b:7c8d".parse().expect("an address");
    let from = |mac: Mac| {
        let to = if mac == MAC_A { MAC_B } else { MAC_A };
        ethernet(to, mac, 0x86dd, &ipv6(address, B6, 17, &udp(1, 2, b"x")))
    };
    bench.send(A, &from(MAC_A));
    bench.settle();
    assert_eq!(bench.sent(B), [from(MAC_A)]);
    bench.send(B, &from(MAC_B));
    bench.settle();
    assert!(bench.sent(A).is_empty());
    assert_eq!(bench.drops(B, "spoofed_ip"), 1);
    // It stays so over a reload.
    let mut same = config(&PipelineConfig::default());
    same.guests.swap(0, 1);
    bench
        .switch
        .reconfigure(bench.now, same)
        .expect("no rule is broken");
    bench.ports.swap(1, 2);
    bench.wires.swap(1, 2);
    bench.send(A, &from(MAC_B));
    bench.settle();
    assert_eq!(bench.drops(A, "spoofed_ip"), 2);
}
