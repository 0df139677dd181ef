//! Forwarding, and queues in front of ports.

use super::*;

#[test]
fn guests_reach_each_other_and_the_uplink_does_not_see_it() {
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.send(A, &a_to_b(1));
    bench.settle();
    assert_eq!(bench.sent(B), [a_to_b(1)]);
    assert!(bench.sent(UPLINK).is_empty());
    assert!(bench.sent(A).is_empty());
}

#[test]
fn unknown_addresses_use_the_uplink_and_broadcasts_reach_all_ports() {
    let mut bench = Bench::new(&PipelineConfig::default());
    let out = datagram(GATEWAY, MAC_A, (A4, FAR), 1);
    bench.send(A, &out);
    let who = ethernet(Mac::BROADCAST, MAC_A, 0x0806, &arp(1, MAC_A, A4, B4));
    bench.send(A, &who);
    bench.settle();
    assert_eq!(bench.sent(UPLINK), [out, who.clone()]);
    assert_eq!(bench.sent(B), [who]);
    assert!(bench.sent(A).is_empty());
    // From outside: for a guest, for nobody, for all.
    bench.send(UPLINK, &datagram(MAC_A, GATEWAY, (FAR, A4), 2));
    bench.send(
        UPLINK,
        &datagram(Mac([2, 8, 8, 8, 8, 8]), GATEWAY, (FAR, A4), 3),
    );
    bench.settle();
    assert_eq!(bench.sent(A).len(), 1);
    assert!(bench.sent(B).is_empty());
    assert_eq!(bench.drops(UPLINK, "same_port"), 1);
}

#[test]
fn spoofed_frames_are_dropped_and_counted() {
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.send(A, &datagram(MAC_B, MAC_A, (B4, B4), 1));
    bench.send(A, &datagram(MAC_B, MAC_B, (A4, B4), 1));
    bench.send(UPLINK, &datagram(MAC_B, MAC_A, (A4, B4), 1));
    bench.send(A, &[0; 13]);
    bench.settle();
    for port in [UPLINK, A, B] {
        assert!(bench.sent(port).is_empty());
    }
    assert_eq!(bench.drops(A, "spoofed_ip"), 1);
    assert_eq!(bench.drops(A, "spoofed_mac"), 1);
    assert_eq!(bench.drops(A, "malformed"), 1);
    assert_eq!(bench.drops(UPLINK, "mac_move"), 1);
}

#[test]
fn a_nic_queue_spaces_frames_and_the_switch_says_when_to_wake() {
    let pipeline = PipelineConfig {
        nic: Some(NicConfig {
            limit: Some(Bytes(1514)),
            ..NicConfig::new(Rate::from_mbit(1))
        }),
        ..PipelineConfig::default()
    };
    let mut bench = Bench::new(&pipeline);
    for n in 0..100 {
        bench.send(A, &datagram(GATEWAY, MAC_A, (A4, FAR), n));
    }
    let start = bench.now;
    bench.run(start + Nanos::from_millis(20));
    // 60 bytes at 1 Mbit/s are 480 us; 1514 bytes go ahead at once.
    let early = bench.wires[UPLINK].borrow().from_port.len();
    assert!((60..=70).contains(&early), "{early}");
    bench.run(start + Nanos::from_secs(1));
    let sent = bench.sent(UPLINK);
    assert_eq!(sent.len(), 100);
    assert!(sent.is_sorted(), "out of order");
    assert_eq!(
        bench.switch.poll_at(&bench.ports),
        None,
        "a timer without need"
    );
}

#[test]
fn a_full_port_keeps_its_frames_without_a_busy_loop() {
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.wires[B].borrow_mut().room = Some(3);
    for n in 0..100 {
        bench.send(A, &a_to_b(n));
    }
    bench.settle();
    assert_eq!(bench.sent(B).len(), 3);
    assert!(bench.is_full(B));
    assert_eq!(bench.switch.poll_at(&bench.ports), None);
    assert!(!bench.switch.poll(bench.now, &mut bench.ports).busy);
    // It is not offered anything before it says that there is room.
    bench.wires[B].borrow_mut().room = None;
    bench.switch.poll(bench.now, &mut bench.ports);
    assert!(bench.sent(B).is_empty());
    bench.switch.handle_writable(PortIndex(B));
    bench.settle();
    let expected: Vec<_> = (3..100).map(a_to_b).collect();
    assert_eq!(bench.sent(B), expected);
}

#[test]
fn a_port_that_vanishes_leaves_other_ports_working() {
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.wires[B].borrow_mut().gone = true;
    bench.send(A, &a_to_b(1));
    bench.send(A, &datagram(GATEWAY, MAC_A, (A4, FAR), 1));
    let gone = bench.settle();
    assert_eq!(gone.len(), 1);
    assert_eq!(gone[0].0, PortIndex(B));
    assert_eq!(bench.sent(UPLINK).len(), 1);
    bench.send(A, &a_to_b(2));
    bench.settle();
    assert_eq!(bench.drops(B, "port_missing"), 1);
    assert_eq!(bench.port(B).link, Link::Down);
    // It returns.
    let (port, wire) = MemoryPort::new();
    bench.ports[B] = Some(Box::new(port));
    bench.wires[B] = wire;
    bench.switch.handle_readable(PortIndex(B));
    bench.send(A, &a_to_b(3));
    bench.settle();
    assert!(bench.sent(B).contains(&a_to_b(3)));
}

#[test]
fn one_busy_port_does_not_starve_another_and_a_turn_is_bounded() {
    let mut bench = Bench::new(&PipelineConfig {
        queue: QueueConfig::Fifo(FifoConfig {
            packets: 10_000,
            ..FifoConfig::default()
        }),
        ..PipelineConfig::default()
    });
    for n in 0..1000 {
        bench.send(A, &datagram(GATEWAY, MAC_A, (A4, FAR), n));
    }
    bench.send(B, &datagram(GATEWAY, MAC_B, (B4, FAR), 0));
    let turn = bench.switch.poll(bench.now, &mut bench.ports);
    assert!(turn.busy);
    let sent = bench.sent(UPLINK);
    assert!(sent.len() <= 2 * BURST);
    assert!(sent.contains(&datagram(GATEWAY, MAC_B, (B4, FAR), 0)));
}

#[test]
fn a_long_queue_is_sent_in_turns_of_two_bursts() {
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.wires[B].borrow_mut().room = Some(0);
    for n in 0..500 {
        bench.send(A, &a_to_b(n));
    }
    bench.settle();
    bench.wires[B].borrow_mut().room = None;
    bench.switch.handle_writable(PortIndex(B));
    assert!(bench.switch.poll(bench.now, &mut bench.ports).busy);
    assert_eq!(bench.sent(B).len(), 2 * BURST);
    bench.settle();
    assert_eq!(bench.sent(B).len(), 500 - 2 * BURST);
}

#[test]
fn stations_of_an_unfiltered_guest_survive_a_reload() {
    let mut bench = Bench::new(&PipelineConfig::default());
    let mut config = config(&PipelineConfig::default());
    config.guests[B - A].filter = None;
    bench
        .switch
        .reconfigure(bench.now, config.clone())
        .expect("no rule is broken");
    let nested = Mac([2, 7, 7, 7, 7, 7]);
    bench.send(B, &datagram(MAC_A, nested, (FAR, A4), 1));
    bench.settle();
    assert_eq!(bench.sent(A).len(), 1);
    // A and B change places.
    config.guests.swap(0, 1);
    bench.ports.swap(A, B);
    bench.wires.swap(A, B);
    bench
        .switch
        .reconfigure(bench.now, config)
        .expect("no rule is broken");
    let answer = datagram(nested, GATEWAY, (FAR, B4), 2);
    bench.send(UPLINK, &answer);
    bench.settle();
    assert_eq!(bench.sent(A), [answer]);
}

#[test]
fn a_change_of_the_configuration_keeps_packets_counters_and_stations() {
    let slow = PipelineConfig {
        nic: Some(NicConfig {
            limit: Some(Bytes(1514)),
            ..NicConfig::new(Rate(1000))
        }),
        ..PipelineConfig::default()
    };
    let mut bench = Bench::new(&slow);
    for n in 0..60 {
        bench.send(A, &datagram(GATEWAY, MAC_A, (A4, FAR), n));
    }
    bench.settle();
    let before = bench.sent(UPLINK).len();
    assert!(before < 60);
    // Guest B leaves, the uplink gets a meter and its speed back.
    let fast = PipelineConfig {
        meter: Some(MeterConfig::default()),
        classes: Some(Classes::of(Fabric::SmallFlowsFirst)),
        ..PipelineConfig::default()
    };
    let mut config = config(&fast);
    config.guests.pop();
    bench.ports.pop();
    bench
        .switch
        .reconfigure(bench.now, config)
        .expect("no rule is broken");
    bench.settle();
    assert_eq!(before + bench.sent(UPLINK).len(), 60);
    assert_eq!(bench.port(UPLINK).sent.0, 60);
    assert_eq!(bench.port(A).received.0, 60);
    let waits: u64 = bench
        .guest(A)
        .sojourns
        .iter()
        .map(|s| s.histogram.count())
        .sum();
    assert_eq!(waits, 60);
}

#[test]
fn a_guest_that_comes_new_does_not_inherit_the_number_of_one_that_left() {
    let mut bench = Bench::new(&PipelineConfig::default());
    let mut config = config(&PipelineConfig::default());
    config.guests[B - A].name = "C".to_owned();
    bench
        .switch
        .reconfigure(bench.now, config)
        .expect("no rule is broken");
    let ids: Vec<_> = bench.switch.guests().map(|(id, _)| id).collect();
    assert_eq!(ids, [GuestId::first(0), GuestId::first(2)]);
}

#[test]
fn sojourns_count_for_the_local_sender_or_else_the_receiver() {
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.send(A, &a_to_b(1));
    bench.send(UPLINK, &datagram(MAC_B, GATEWAY, (FAR, B4), 2));
    bench.settle();
    let snapshot = bench.switch.snapshot(&mut bench.ports);
    let count = |port: usize, direction| -> u64 {
        let of = snapshot.guests[port - A]
            .sojourns
            .iter()
            .filter(|s| s.direction == direction);
        of.map(|s| s.histogram.count()).sum()
    };
    assert_eq!((count(A, "sent"), count(A, "received")), (1, 0));
    assert_eq!((count(B, "sent"), count(B, "received")), (0, 1));
}

#[test]
fn a_warm_loop_takes_no_new_buffers() {
    let mut bench = Bench::new(&PipelineConfig::default());
    for n in 0..10 {
        bench.send(A, &a_to_b(n));
    }
    bench.settle();
    let free = bench.switch.parts.receiver.pool().free();
    for round in 0..100 {
        for n in 0..10 {
            bench.send(A, &a_to_b(n + round));
        }
        bench.settle();
    }
    assert_eq!(bench.switch.parts.receiver.pool().free(), free);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// With any frames from a guest and from outside: nothing panics, no frame goes back to its
    /// origin, and the other guest sees A's frames only in A's name.
    #[test]
    fn hostile_frames_reach_no_guest_in_another_guests_name(
        frames in prop::collection::vec(
            (
                prop_oneof![Just(UPLINK), Just(A)],
                prop_oneof![Just(MAC_B.0), Just(Mac::BROADCAST.0), any::<[u8; 6]>()],
                prop_oneof![Just(MAC_A.0), Just(MAC_B.0), Just(GATEWAY.0), any::<[u8; 6]>()],
                prop::collection::vec(any::<u8>(), 0..80),
                prop::option::of(any::<[u8; 10]>()),
            ),
            1..60,
        ),
        shorten in any::<prop::sample::Index>(),
    ) {
        let mut bench = Bench::new(&PipelineConfig::default());
        let count = frames.len();
        for (i, (port, to, from, payload, virtio)) in frames.into_iter().enumerate() {
            let mut frame = [&to[..], &from, &payload].concat();
            if i == shorten.index(count) {
                frame.truncate(10);
            }
            bench.wires[port].borrow_mut().to_port.push_back((frame, virtio));
            bench.switch.handle_readable(PortIndex(port));
        }
        bench.settle();
        for frame in bench.sent(B) {
            let source = &frame[6..12];
            prop_assert_ne!(source, &MAC_B.0);
        }
        for frame in bench.sent(A) {
            prop_assert_ne!(&frame[6..12], &MAC_A.0);
        }
    }
}

/// A port whose device is busy until some time: frames stay in it until then.
struct BusyPort {
    port: MemoryPort,
    wire: WireEnd,
    taken: Vec<Vec<u8>>,
    until: Nanos,
}

impl Port for BusyPort {
    fn receive(&mut self, now: Nanos, pool: &Pool, burst: &mut Burst) -> std::io::Result<More> {
        self.port.receive(now, pool, burst)
    }

    fn transmit(
        &mut self,
        now: Nanos,
        out: &mut VecDeque<Outgoing>,
    ) -> std::io::Result<TransmitResult> {
        let sent = self.port.transmit(now, out)?;
        let taken = std::mem::take(&mut self.wire.borrow_mut().from_port);
        self.taken.extend(taken.into_iter().map(|(_, frame)| frame));
        Ok(sent)
    }

    fn flush(&mut self, now: Nanos) -> std::io::Result<()> {
        if now >= self.until {
            let taken = self.taken.drain(..).map(|frame| (now, frame));
            self.wire.borrow_mut().from_port.extend(taken);
        }
        Ok(())
    }

    fn flush_at(&self) -> Option<Nanos> {
        (!self.taken.is_empty()).then_some(self.until)
    }
}

#[test]
fn frames_for_a_busy_device_are_retried_without_new_frames() {
    let mut bench = Bench::new(&PipelineConfig::default());
    let (port, wire) = MemoryPort::new();
    let until = bench.now + Nanos::from_micros(200);
    bench.ports[B] = Some(Box::new(BusyPort {
        port,
        wire: wire.clone(),
        taken: Vec::new(),
        until,
    }));
    bench.wires[B] = wire;
    let frame = datagram(MAC_B, MAC_A, (A4, B4), 1);
    bench.send(A, &frame);
    bench.settle();
    assert_eq!(bench.sent(B), [] as [Vec<u8>; 0]);
    bench.run(until);
    assert_eq!(bench.sent(B), [frame]);
}
