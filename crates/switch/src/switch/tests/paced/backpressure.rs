//! Guests that send more than they are guaranteed, and uplinks that take less.

use super::*;

#[test]
fn a_backlogged_guest_gets_its_rate_and_no_more() {
    let mut bench = bench(paced(&wire(), Some(guarantee(100)), None));
    let start = bench.now;
    for n in 0..2000 {
        bench.send(A, &full(A, n));
    }
    let mut seen = OnTheWire::default();
    bench.run(start + Nanos::from_millis(100));
    // What A could not send yet is still with its port.
    assert!(bench.wires[A].borrow().to_port.len() > 900);
    assert!(!bench.is_read(A));
    seen.take(&bench);
    seen.check(A, &guarantee(100));
    let sent = seen.frames.len() as u64 * FULL;
    let expected =
        guarantee(100).burst.0 + Rate::from_mbit(100).bytes_in(Nanos::from_millis(100)).0;
    assert!(
        sent.abs_diff(expected) <= expected / 1000 + FULL,
        "{sent} of {expected}"
    );
    bench.run(start + Nanos::from_millis(300));
    seen.take(&bench);
    assert_eq!(seen.numbers(A), (0..2000).collect::<Vec<_>>());
    let uplink = bench.pacing();
    assert_eq!(uplink.stats.guaranteed.packets, 2000);
    assert_eq!(bench.port(UPLINK).sent.0, 2000, "voids are counted apart");
    assert_eq!(uplink.voids.0, uplink.stats.voids.packets);
    assert!(uplink.voids.1 > 2000 * FULL);
    assert!(bench.guest_pacing(A).stats.unread > 0);
    assert!(uplink.lateness.count() > 0);
}

#[test]
fn a_guest_whose_port_is_left_unread_sends_nothing_to_its_neighbours_and_holds_none_up() {
    let mut bench = bench(paced(&wire(), Some(guarantee(10)), None));
    // Enough to meet backpressure within a burst, with one frame for B in its middle.
    for n in 0..24 {
        bench.send(A, &full(A, n));
    }
    bench.send(A, &a_to_b(7));
    for n in 24..200 {
        bench.send(A, &full(A, n));
    }
    bench.send(A, &a_to_b(8));
    bench.settle();
    assert!(!bench.switch.parts.table.is_open(PortIndex(A)) && bench.guest_pacing(A).unread);
    // Its frames leave in order, for all destinations.
    assert!(bench.sent(B).is_empty());
    // B is not held up by A.
    bench.send(B, &full(B, 0));
    bench.run(bench.now + Nanos::from_micros(100));
    let mut seen = OnTheWire::default();
    seen.take(&bench);
    assert_eq!(seen.numbers(B), [0]);
    bench.run(bench.now + Nanos::from_secs(1));
    assert_eq!(bench.sent(B), [a_to_b(7), a_to_b(8)]);
}

#[test]
fn a_short_frame_that_would_fit_does_not_overtake_a_long_one_that_was_not_taken() {
    // A long frame takes more than half of the horizon, a short one little of it.
    let guarantee = Guarantee {
        horizon: Nanos::from_micros(2500),
        ..guarantee(10)
    };
    let mut bench = bench(paced(&wire(), Some(guarantee), None));
    for n in 0..BURST as u32 {
        bench.send(A, &frame(A, n, if n % 2 == 0 { 1472 } else { 4 }));
    }
    bench.run(bench.now + Nanos::from_secs(1));
    let mut seen = OnTheWire::default();
    seen.take(&bench);
    assert_eq!(seen.numbers(A), (0..BURST as u32).collect::<Vec<_>>());
}

#[test]
fn an_uplink_that_returns_sends_within_the_guarantees() {
    let mut bench = bench(paced(&wire(), Some(guarantee(100)), None));
    let start = bench.now;
    for n in 0..4000 {
        bench.send(A, &full(A, n));
    }
    let mut seen = OnTheWire::default();
    bench.run(start + Nanos::from_millis(20));
    seen.take(&bench);
    let before = seen.frames.len();
    bench.wires[UPLINK].borrow_mut().gone = true;
    let gone = bench.run(start + Nanos::from_millis(21));
    assert_eq!(gone.len(), 1);
    // Half a second without an uplink: what A sends is lost, and counted.
    bench.run(start + Nanos::from_millis(500));
    assert!(
        bench.wires[A].borrow().to_port.is_empty(),
        "its port is read"
    );
    assert!(bench.drops(UPLINK, "port_missing") > 3000);
    for n in 4000..6000 {
        bench.send(A, &full(A, n));
    }
    bench.wires[UPLINK].borrow_mut().gone = false;
    let (port, wire) = MemoryPort::new();
    bench.ports[UPLINK] = Some(Box::new(port));
    bench.wires[UPLINK] = wire;
    bench.switch.handle_writable(PortIndex(UPLINK));
    bench.run(start + Nanos::from_millis(600));
    seen.take(&bench);
    let after = &seen.frames[before..];
    assert!(after.len() > 780, "{} frames", after.len());
    seen.check(A, &guarantee(100));
    assert!(seen.numbers(A).is_sorted(), "nothing overtakes");
}

/// A datagram from A to B, which does not cross the uplink.
fn to_b() -> Vec<u8> {
    datagram(MAC_B, MAC_A, (A4, B4), 1)
}

#[test]
fn an_uplink_that_vanishes_while_it_is_full_holds_up_no_guest() {
    let mut bench = bench(paced(&wire(), Some(guarantee(100)), None));
    let start = bench.now;
    bench.wires[UPLINK].borrow_mut().room = Some(0);
    for n in 0..200 {
        bench.send(A, &full(A, n));
    }
    bench.run(start + Nanos::from_millis(5));
    assert!(bench.is_full(UPLINK));
    assert!(!bench.is_read(A));
    bench.wires[UPLINK].borrow_mut().gone = true;
    bench.switch.handle_readable(PortIndex(UPLINK));
    assert_eq!(bench.run(start + Nanos::from_millis(6)).len(), 1);
    bench.send(A, &to_b());
    bench.run(start + Nanos::from_millis(500));
    assert_eq!(bench.sent(B), [to_b()]);
}

#[test]
fn a_guest_that_waits_for_an_uplink_is_read_again_once_there_is_none() {
    let mut bench = bench(paced(&wire(), Some(guarantee(100)), None));
    let start = bench.now;
    for n in 0..200 {
        bench.send(A, &full(A, n));
    }
    bench.run(start + Nanos::from_millis(1));
    assert!(!bench.is_read(A));
    let mut guests = paced(&wire(), None, None);
    guests.uplink = None;
    bench.ports.remove(UPLINK);
    bench.wires.remove(UPLINK);
    bench
        .switch
        .reconfigure(bench.now, guests)
        .expect("no rule is broken");
    let (a, b) = (A - 1, B - 1);
    bench.send(a, &to_b());
    bench.run(start + Nanos::from_millis(500));
    assert_eq!(bench.sent(b), [to_b()]);
    assert!(bench.drops(a, "unknown_destination") > 150);
}

#[test]
fn a_port_that_is_full_freezes_the_virtual_clock_and_loses_nothing() {
    let mut bench = bench(paced(&wire(), Some(guarantee(100)), None));
    for n in 0..300 {
        bench.send(A, &full(A, n));
    }
    let mut seen = OnTheWire::default();
    let mut random = 7u64;
    for _ in 0..400 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        bench.wires[UPLINK].borrow_mut().room = Some((random >> 60) as usize);
        bench.switch.handle_writable(PortIndex(UPLINK));
        bench.run(bench.now + Nanos::from_micros(100 + (random >> 50) % 500));
        seen.take(&bench);
    }
    bench.wires[UPLINK].borrow_mut().room = None;
    bench.switch.handle_writable(PortIndex(UPLINK));
    bench.run(bench.now + Nanos::from_secs(1));
    seen.take(&bench);
    assert_eq!(seen.numbers(A), (0..300).collect::<Vec<_>>());
    let uplink = bench.pacing();
    assert!(uplink.stats.frozen > Nanos::ZERO);
    seen.check(A, &guarantee(100));
}

#[test]
fn a_port_that_is_too_slow_is_given_no_batch_before_it_has_taken_the_last() {
    let mut bench = bench(paced(&wire(), Some(guarantee(400)), None));
    for n in 0..300 {
        bench.send(A, &full(A, n));
    }
    for _ in 0..200 {
        bench.wires[UPLINK].borrow_mut().room = Some(1);
        bench.switch.handle_writable(PortIndex(UPLINK));
        bench.run(bench.now + Nanos::from_millis(1));
        let held = bench.switch.parts.table[PortIndex(UPLINK)]
            .outbound
            .frames
            .len() as u64;
        let most = LINK.bytes_in(wire().batch).0 / 84 + 1;
        assert!(held <= most, "{held} frames and voids for the port");
    }
}
