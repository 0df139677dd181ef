//! Guests that exceed the room of queues, or cause much work with few packets.

use super::*;

#[test]
fn a_guest_whose_frames_find_no_room_is_read_no_faster_than_the_link() {
    const FRAMES: u32 = 3000;
    let mut wire = wire();
    wire.best_effort = QueueConfig::Fifo(FifoConfig {
        packets: 100,
        ..FifoConfig::default()
    });
    let mut bench = bench(paced(&wire, Some(guarantee(400)), None));
    for n in 0..FRAMES {
        bench.send(B, &full(B, n));
        bench.send(A, &full(A, n));
    }
    let start = bench.now;
    bench.run(start + Nanos::from_millis(10));
    // The link carries 813 frames in that time, and one of B's fits between two of
    // A's. B's queue holds 100: the rest of each burst is lost.
    let left = bench.wires[B].borrow().to_port.len();
    let read = FRAMES as usize - left;
    assert!((420..=813 + 5 * BURST).contains(&read), "{read} read");
    assert!(bench.drops(UPLINK, "queue_full") > 300);
    let mut seen = OnTheWire::default();
    seen.take(&bench);
    let sent = seen.numbers(B).len();
    assert!((460..=500).contains(&sent), "{sent} sent of what is left");
    assert!(
        seen.numbers(A).len() > 320,
        "the other guest does not notice"
    );
}

#[test]
fn a_guest_that_spoofs_is_read_no_faster_than_the_link() {
    let mut bench = bench(paced(&wire(), Some(guarantee(400)), None));
    for n in 0..3000 {
        // In the name of A.
        bench.send(B, &full(A, n));
    }
    bench.run(bench.now + Nanos::from_millis(10));
    let read = bench.drops(B, "spoofed_mac");
    assert!((500..=813 + BURST as u64).contains(&read), "{read} read");
}

/// Segments that one turn may cut for one port: its share is less than one such packet,
/// so that a turn takes one and leaves the next.
const TURN: usize = CRUMBS;
/// Segments of one packet of [`crumbs`]: the maximum.
const CRUMBS: usize = 512;

/// Makes a TCP packet that its guest leaves to be segmented at one byte.
fn crumbs(guest: usize) -> (Vec<u8>, Option<[u8; 10]>) {
    let (frame, virtio) = tcp(guest, 0, CRUMBS, 1);
    (frame, Some(virtio))
}

impl Bench {
    fn send_crumbs(&mut self, guest: usize, count: usize) {
        let packets = (0..count).map(|_| crumbs(guest));
        self.wires[guest].borrow_mut().to_port.extend(packets);
        self.switch.handle_readable(PortIndex(guest));
    }

    /// Returns the number of frames that went to the uplink, or wait for it.
    fn cut(&mut self) -> usize {
        let uplink = self.port(UPLINK);
        uplink.sent.0 as usize + uplink.backlog_packets
    }
}

#[test]
fn a_turn_cuts_a_few_hundred_segments_however_small_a_guest_wants_them() {
    let mut paced_uplink = paced(&wire(), None, None);
    pacing(&mut paced_uplink).pacer.best_effort = roomy();
    let segmenting = config(&PipelineConfig {
        segment: true,
        queue: roomy(),
        ..PipelineConfig::default()
    });
    for config in [paced_uplink, segmenting] {
        let mut bench = bench(config.clone());
        bench.send_crumbs(B, BURST);
        let (mut turns, mut before) = (0, 0);
        while before < BURST * CRUMBS {
            let turn = bench.switch.poll(bench.now, &mut bench.ports);
            let cut = bench.cut();
            assert!(cut - before <= TURN, "{} in a turn", cut - before);
            assert!(turn.busy || cut == BURST * CRUMBS, "the rest is forgotten");
            before = cut;
            turns += 1;
            assert!(turns <= BURST, "too little in a turn");
            if turns == 2 {
                // A reload finds packets that are read and not yet forwarded.
                let same = config.clone();
                bench
                    .switch
                    .reconfigure(bench.now, same)
                    .expect("no rule is broken");
            }
        }
        bench.run(bench.now + Nanos::from_secs(1));
        let sent = bench
            .sent(UPLINK)
            .into_iter()
            .filter(|frame| read(frame).is_some());
        assert_eq!(sent.count(), BURST * CRUMBS);
    }
}

#[test]
fn a_drain_forwards_all_frames_that_were_read() {
    let mut bench = bench(config(&PipelineConfig {
        segment: true,
        queue: roomy(),
        ..PipelineConfig::default()
    }));
    bench.send_crumbs(B, 4);
    bench.switch.poll(bench.now, &mut bench.ports);
    assert!(bench.cut() < 4 * CRUMBS);
    for _ in 0..CRUMBS {
        bench.switch.drain(bench.now, &mut bench.ports);
    }
    assert_eq!(bench.switch.waiting(&bench.ports), 0);
    assert_eq!(bench.sent(UPLINK).len(), 4 * CRUMBS);
}

#[test]
fn a_turn_cuts_a_few_hundred_segments_however_much_a_guest_is_guaranteed() {
    let guarantee = Guarantee {
        horizon: Nanos::from_millis(20),
        ..guarantee(900)
    };
    let mut bench = bench(paced(&wire(), Some(guarantee), None));
    bench.send_crumbs(A, 2 * BURST);
    let mut before = 0;
    while before < 2 * BURST * CRUMBS {
        bench.switch.poll(bench.now, &mut bench.ports);
        let cut = bench.cut();
        // The frames that were offered again, and the received ones.
        assert!(cut - before <= 2 * TURN, "{} in a turn", cut - before);
        before = cut;
        bench.now += Nanos::from_micros(50);
        assert!(bench.now < Nanos::from_secs(2), "{cut} of all");
    }
}

#[test]
fn a_guest_that_has_its_packets_cut_small_is_read_no_faster_than_the_link() {
    let mut wire = wire();
    wire.best_effort = QueueConfig::Fifo(FifoConfig {
        packets: 100,
        ..FifoConfig::default()
    });
    let mut bench = bench(paced(&wire, Some(guarantee(400)), None));
    bench.send_crumbs(B, 1000);
    bench.run(bench.now + Nanos::from_millis(10));
    // The link carries 813 full frames in that time.
    let read = (1000 - bench.wires[B].borrow().to_port.len()) * CRUMBS;
    assert!(read <= BURST * CRUMBS, "{read} segments read");
    assert!(bench.drops(UPLINK, "queue_full") as usize <= 813 + TURN);
}

/// Makes a queue that holds all frames of a test.
fn roomy() -> QueueConfig {
    QueueConfig::Fifo(FifoConfig {
        packets: 1 << 20,
        ..FifoConfig::default()
    })
}
