//! Traffic between guaranteed guests of one host.

use super::*;

/// B as the destination of frames to its station.
const STATION_B: u128 = FlowKey::station(MAC_B.0);

/// A full frame from A to B.
fn to_b(n: u32) -> Vec<u8> {
    sized_to_b(n, 1472)
}

fn sized_to_b(n: u32, len: usize) -> Vec<u8> {
    let mut payload = n.to_be_bytes().to_vec();
    payload.resize(len, 0);
    ethernet(
        MAC_B,
        MAC_A,
        0x0800,
        &ipv4(A4, B4, 17, &udp(1, 2, &payload)),
    )
}

/// Returns the numbers of the frames that arrived at B from A.
fn numbers(frames: &[Vec<u8>]) -> Vec<u32> {
    let number = |frame: &Vec<u8>| {
        let number = frame[42..46].first_chunk().expect("four bytes");
        u32::from_be_bytes(*number)
    };
    frames.iter().map(number).collect()
}

impl Bench {
    /// Limits A's rate to B, as the hose does for VMs of one tenant.
    fn limit(&mut self, rate: Rate) {
        let now = self.now;
        self.switch.set_limited_by_station(MAC_B, true);
        let pacer = self.switch.pacer().expect("the uplink is paced");
        pacer
            .set_destination(now, GuestId::first(0), STATION_B, Some(rate))
            .expect("no rule is broken");
    }

    /// Returns the number of frames that A has sent to B, and their bytes on the wire.
    fn local(&mut self) -> (u64, u64) {
        let local = self.pacing().stats.local;
        (local.packets, local.bytes.0)
    }
}

/// Makes a bench after a second of rest, so that buckets are full.
fn rested(config: SwitchConfig) -> Bench {
    let mut bench = bench(config);
    bench.run(bench.now + Nanos::from_secs(1));
    bench
}

#[test]
fn local_frames_keep_the_guest_rate_and_bypass_the_uplink() {
    // {B, S}, with ten full frames for S, and a Bmax that is not asked for here.
    let slow = Guarantee::new(Rate::from_mbit(100), Bytes(15_380), Rate::from_mbit(100));
    let mut bench = rested(paced(&wire(), Some(slow), None));
    let start = bench.now;
    for n in 0..200 {
        bench.send(A, &to_b(n));
    }
    bench.run(start + Nanos::from_micros(50));
    assert_eq!(bench.sent(B).len(), 10);
    // 123 us a frame.
    bench.run(start + Nanos::from_millis(10));
    let sent = bench.sent(B);
    assert!((80..=82).contains(&sent.len()), "{}", sent.len());
    bench.run(start + Nanos::from_secs(1));
    assert_eq!(
        numbers(&sent),
        (10..10 + sent.len() as u32).collect::<Vec<_>>()
    );
    assert_eq!(bench.local(), (200, 200 * FULL));
    assert!(bench.sent(UPLINK).is_empty(), "no void either");
}

#[test]
fn local_and_uplink_traffic_together_conform() {
    let guarantee = guarantee(100);
    let mut bench = rested(paced(&wire(), Some(guarantee), None));
    let start = bench.now;
    for n in 0..300 {
        bench.send(A, &if n % 3 == 0 { full(A, n) } else { to_b(n) });
    }
    bench.run(start + Nanos::from_millis(20));
    let (here, there) = (bench.sent(B), bench.sent(UPLINK));
    let there = there.iter().filter(|frame| read(frame).is_some()).count();
    let all = (here.len() + there) as u64 * FULL;
    let may = 15_380 + guarantee.bandwidth.bytes_in(Nanos::from_millis(20)).0;
    assert!(
        (may - 3 * FULL..=may + FULL).contains(&all),
        "{all} of {may}"
    );
    assert!(here.len() > 3 * there / 2 && there > 40, "{there}");
}

#[test]
fn a_local_pair_keeps_its_rate_and_precedes_a_flood() {
    let mut bench = rested(paced(&wire(), Some(guarantee(500)), Some(guarantee(500))));
    bench.limit(Rate::from_mbit(100));
    // A station outside floods B, which takes little.
    bench.wires[B].borrow_mut().room = Some(0);
    for n in 0..200 {
        bench.send(UPLINK, &datagram(MAC_B, GATEWAY, (FAR, B4), n));
    }
    let start = bench.now;
    for n in 0..300 {
        bench.send(A, &to_b(n));
    }
    bench.run(start + Nanos::from_millis(2));
    bench.wires[B].borrow_mut().room = Some(64);
    bench.switch.handle_writable(PortIndex(B));
    bench.run(start + Nanos::from_millis(3));
    let sent = bench.sent(B);
    let from_a = |frame: &&Vec<u8>| frame[6..12] == MAC_A.0;
    // 32 frames were offered to the port before.
    let first = sent.iter().skip(BURST).take_while(from_a).count();
    // Ten of S, and two milliseconds of its own rate.
    assert!((16..=18).contains(&first), "{first} of {}", sent.len());
    let one = sent.iter().find(from_a).expect("some are A's");
    assert_eq!(one[15] >> 2, 46, "what was promised is high here too");
    bench.wires[B].borrow_mut().room = None;
    bench.switch.handle_writable(PortIndex(B));
    bench.run(start + Nanos::from_secs(1));
    let used = &mut Vec::new();
    let (now, (frames, bytes)) = (bench.now, bench.local());
    assert!(frames > 200, "{frames}");
    let pacer = bench.switch.pacer().expect("the uplink is paced");
    pacer.destinations_used(now, |one| used.push((one.flow.destination, one.taken.0)));
    assert_eq!(
        used,
        &[(STATION_B, bytes)],
        "the hose sees that it is in use"
    );
}

#[test]
fn a_guest_that_does_not_read_holds_up_neither_its_sender_nor_others() {
    // B has room for little.
    let mut config = paced(&wire(), Some(guarantee(500)), None);
    config.guests[B - A].pipeline.queue = QueueConfig::Fifo(FifoConfig {
        packets: 50,
        ..FifoConfig::default()
    });
    let leave = |reads: bool| {
        let mut bench = rested(config.clone());
        if !reads {
            bench.wires[B].borrow_mut().room = Some(0);
        }
        let start = bench.now;
        for n in 0..600 {
            bench.send(A, &if n % 2 == 0 { full(A, n) } else { to_b(n) });
        }
        bench.run(start + Nanos::from_millis(100));
        let sent = std::mem::take(&mut bench.wires[UPLINK].borrow_mut().from_port);
        let sent = sent.into_iter().filter(|(_, frame)| read(frame).is_some());
        (sent.collect::<Vec<_>>(), bench.sent(B).len())
    };
    let ((with, _), (without, to_b)) = (leave(false), leave(true));
    assert_eq!((with.len(), to_b), (300, 300));
    assert_eq!(with, without);
}

#[test]
fn local_frames_do_not_wait_for_a_missing_uplink() {
    let mut bench = rested(paced(&wire(), Some(guarantee(100)), None));
    let start = bench.now;
    for n in 0..100 {
        bench.send(A, &full(A, n));
    }
    bench.run(start + Nanos::from_millis(1));
    bench.wires[UPLINK].borrow_mut().gone = true;
    bench.switch.handle_readable(PortIndex(UPLINK));
    bench.run(start + Nanos::from_millis(2));
    for n in 0..100 {
        bench.send(A, &to_b(n));
    }
    bench.run(start + Nanos::from_millis(30));
    assert_eq!(numbers(&bench.sent(B)), (0..100).collect::<Vec<_>>());
    assert!(bench.drops(UPLINK, "port_missing") > 50);
    assert_eq!(bench.switch.poll_at(&bench.ports), None);
}

#[test]
fn queued_local_frames_are_delivered_when_their_guarantee_ends() {
    let unpaced = config(&PipelineConfig::default());
    let mut gone = config(&PipelineConfig::default());
    gone.uplink = None;
    let slow = paced(&wire(), Some(guarantee(1)), None);
    for next in [paced(&wire(), None, None), unpaced, gone, slow.clone()] {
        let ends = next.guests[0].guarantee.is_none();
        let mut bench = rested(slow.clone());
        for n in 0..BURST as u32 {
            bench.send(A, &to_b(n));
        }
        bench.run(bench.now + Nanos::from_millis(1));
        assert_eq!(bench.sent(B).len(), 10);
        let (a, b) = if next.uplink.is_none() {
            bench.ports.remove(UPLINK);
            bench.wires.remove(UPLINK);
            (A - 1, B - 1)
        } else {
            (A, B)
        };
        let reloaded = bench.switch.reconfigure(bench.now, next);
        assert_eq!(reloaded, Ok(()));
        bench.send(a, &to_b(BURST as u32));
        bench.settle();
        let rest: Vec<_> = (10..=BURST as u32).collect();
        assert_eq!(numbers(&bench.sent(b)), if ends { rest } else { vec![] });
    }
}

#[test]
fn local_packets_are_segmented_and_oversized_frames_dropped() {
    let mut bench = rested(paced(&wire(), Some(guarantee(100)), None));
    let (mut frame, virtio) = tcp(A, 0, 14_600, 1460);
    frame[..6].copy_from_slice(&MAC_B.0);
    let ends = bench.now + Nanos::from_millis(10);
    bench.wires[A]
        .borrow_mut()
        .to_port
        .push_back((frame, Some(virtio)));
    bench.switch.handle_readable(PortIndex(A));
    bench.send(A, &sized_to_b(1, 1473));
    bench.run(ends);
    let sent = bench.sent(B);
    assert!(sent.iter().all(|frame| frame.len() == 1514));
    assert_eq!(sent.len(), 10);
    assert_eq!(bench.drops(UPLINK, "oversized"), 1);
}

#[test]
fn guests_that_are_guaranteed_nothing_and_groups_are_not_paced_here() {
    let mut bench = rested(paced(&wire(), None, Some(guarantee(500))));
    for n in 0..100 {
        bench.send(A, &to_b(n));
    }
    bench.settle();
    assert_eq!(bench.sent(B).len(), 100);
    let who = ethernet(Mac::BROADCAST, MAC_B, 0x0806, &arp(1, MAC_B, B4, A4));
    for _ in 0..100 {
        bench.send(B, &who);
    }
    bench.settle();
    assert_eq!(bench.sent(A).len(), 100);
    assert_eq!(bench.local(), (0, 0));
}

#[test]
fn waits_are_counted_once_for_the_sender_and_once_for_the_receiver() {
    let mut bench = rested(paced(&wire(), Some(guarantee(100)), None));
    for n in 0..12 {
        bench.send(A, &to_b(n));
    }
    bench.run(bench.now + Nanos::from_millis(10));
    let snapshot = bench.switch.snapshot(&mut bench.ports);
    let count = |port: usize, direction| -> u64 {
        let of = snapshot.guests[port - A].sojourns.iter();
        let of = of.filter(|s| s.direction == direction);
        of.map(|s| s.histogram.count()).sum()
    };
    assert_eq!((count(A, "sent"), count(A, "received")), (12, 0));
    assert_eq!((count(B, "sent"), count(B, "received")), (0, 12));
}
