use super::*;

fn id(bench: &Bench, port: usize) -> GuestId {
    let mut guests = bench.switch.guests();
    guests.nth(port - A).expect("there is one").0
}

fn set_drained(bench: &mut Bench, port: usize, drained: bool) {
    let guest = id(bench, port);
    let mut guest = bench.switch.guest_mut(guest).expect("it is there");
    guest.set_drained(drained, &bench.ports);
}

#[test]
fn a_drained_guest_sends_nothing_and_still_receives() {
    let mut bench = bench(paced(&wire(), None, None));
    bench.send(A, &a_to_b(1));
    bench.settle();
    assert_eq!(bench.sent(B).len(), 1);
    set_drained(&mut bench, A, true);
    for n in 2..100 {
        bench.send(A, &a_to_b(n));
        // Nothing is to be done for it: no turn is busy for ever.
        bench.settle();
    }
    assert!(!bench.is_read(A) && bench.is_read(B));
    assert!(bench.sent(B).is_empty());
    bench.send(B, &datagram(MAC_A, MAC_B, (B4, A4), 1));
    bench.settle();
    assert_eq!(bench.sent(A).len(), 1);
    let same = paced(&wire(), None, None);
    bench
        .switch
        .reconfigure(bench.now, same)
        .expect("no rule is broken");
    bench.settle();
    assert!(bench.guest(A).drained && bench.sent(B).is_empty());
    set_drained(&mut bench, A, false);
    bench.settle();
    assert_eq!(bench.sent(B).len(), 98);
    assert!(bench.is_read(A) && !bench.guest(A).drained);
}

#[test]
fn queued_frames_of_a_drained_guest_leave_at_its_guarantee() {
    let mut bench = bench(paced(&wire(), Some(guarantee(10)), None));
    for n in 0..60 {
        bench.send(A, &full(A, n));
    }
    bench.settle();
    set_drained(&mut bench, A, true);
    bench.settle();
    let guest = id(&bench, A);
    let unread = bench.wires[A].borrow().to_port.len();
    assert!(unread > 0, "some are left in the guest's own queue");
    let waits = |bench: &Bench| bench.switch.guest(guest).is_some_and(GuestRef::waits);
    assert!(waits(&bench) && bench.switch.waits_for_uplink(&bench.ports));
    assert!(bench.guest_pacing(A).held > Bytes(0));
    bench.run(bench.now + Nanos::from_secs(1));
    assert!(!waits(&bench) && !bench.switch.waits_for_uplink(&bench.ports));
    assert_eq!(bench.wires[A].borrow().to_port.len(), unread);
    assert_eq!(bench.port(UPLINK).sent.0, 60 - unread as u64);
}

#[test]
fn a_reload_that_is_cancelled_leaves_no_trace() {
    let mut bench = bench(paced(&wire(), Some(guarantee(10)), None));
    let with_another = || {
        let mut config = paced(&wire(), Some(guarantee(10)), None);
        let another = GuestConfig::new("C", Mac([2, 0, 0, 0, 0, 0xc]));
        config.guests.push(another);
        config
    };
    for _ in 0..100 {
        let plan = SwitchPlan::new(with_another(), ["A", "B"]);
        let mut reload = Switch::begin_reload(plan);
        while !bench.switch.prepare(&mut reload, 1).expect("no rule") {}
        bench.switch.cancel(&mut reload);
        bench.send(A, &a_to_b(1));
        bench.run(bench.now + Nanos::from_secs(1));
        assert_eq!(bench.sent(B).len(), 1);
    }
    let (port, _wire) = MemoryPort::new();
    bench.ports.push(Some(Box::new(port)));
    bench
        .switch
        .reconfigure(bench.now, with_another())
        .expect("no rule is broken");
    let slots: Vec<_> = bench.switch.guests().map(|(id, _)| id.slot()).collect();
    assert_eq!(slots, [0, 1, 2]);
}
