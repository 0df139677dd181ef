//! Shares of ports of the thread's time.

use super::*;
use crate::mac::Mac;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Segments of a packet of [`crumbs`], close to the maximum.
const CRUMBS: usize = 500;
/// Frames of `B` in one of its turns: a burst.
const TURN: u64 = BURST as u64;

/// Makes a TCP packet of A to be segmented at one byte.
fn crumbs() -> (Vec<u8>, Option<[u8; 10]>) {
    let segment = [&[0; 12][..], &[5 << 4, 0x10], &[0; 6], &[0; CRUMBS]].concat();
    let frame = ethernet(GATEWAY, MAC_A, 0x0800, &ipv4(A4, FAR, 6, &segment));
    let mut virtio = [1, 1, 0, 0, 0, 0, 34, 0, 16, 0];
    virtio[2..4].copy_from_slice(&54u16.to_le_bytes());
    virtio[4..6].copy_from_slice(&1u16.to_le_bytes());
    (frame, Some(virtio))
}

fn segmenting() -> PipelineConfig {
    PipelineConfig {
        segment: true,
        queue: QueueConfig::Fifo(FifoConfig {
            packets: 1 << 20,
            memory: Bytes(1 << 40),
        }),
        ..PipelineConfig::default()
    }
}

/// A guest with packets to be segmented into 500 segments gets no more of the thread than a guest
/// with single frames, at any time while both have something to send. Between two turns of the
/// other guest, at most one such packet is segmented.
#[test]
fn a_packet_of_500_segments_is_paid_for_by_the_guest_that_sends_it() {
    let mut bench = Bench::new(&segmenting());
    for n in 0..20_000u16 {
        bench.send(B, &datagram(GATEWAY, MAC_B, (B4, FAR), n));
    }
    bench.wires[A]
        .borrow_mut()
        .to_port
        .extend((0..4000).map(|_| crumbs()));
    bench.switch.handle_readable(PortIndex(A));
    let (mut cut, mut read) = (0, 0);
    for turn in 0..500 {
        bench.switch.poll(bench.now, &mut bench.ports);
        let now_cut = bench.port(A).received.0 * CRUMBS as u64;
        let now_read = bench.port(B).received.0;
        assert_eq!(now_read - read, TURN, "B is served in each turn");
        assert!(
            now_cut - cut <= CRUMBS as u64,
            "{} in a turn",
            now_cut - cut
        );
        (cut, read) = (now_cut, now_read);
        // A segment costs as much as a frame of B and a bit more, a full one a third.
        let share = (turn + 1) * TURN * 4 / 3 + CRUMBS as u64;
        assert!(cut <= share, "{cut} segments beside {read} frames");
    }
    assert!(cut > read, "A has its share too: {cut} beside {read}");
}

/// A guest that is alone does not wait for the next round of shares.
#[test]
fn a_lone_guest_has_one_packet_segmented_per_turn() {
    let mut bench = Bench::new(&segmenting());
    bench.wires[A]
        .borrow_mut()
        .to_port
        .extend((0..100).map(|_| crumbs()));
    bench.switch.handle_readable(PortIndex(A));
    for turn in 0..100 {
        bench.switch.poll(bench.now, &mut bench.ports);
        let port = bench.port(A);
        assert_eq!((port.received.0, port.drops), (turn + 1, Vec::new()));
    }
}

/// A broadcast is charged to its sender for all its copies.
#[test]
fn a_broadcast_is_paid_for_as_often_as_it_is_copied() {
    const GUESTS: usize = 64;
    let mut config = config(&segmenting());
    let mut bench = Bench::new(&segmenting());
    for n in 2..GUESTS as u8 {
        config.guests.push(GuestConfig::new(
            format!("guest-{n}"),
            Mac([2, 0, 0, 0, 1, n]),
        ));
        let (port, wire) = MemoryPort::new();
        bench.ports.push(Some(Box::new(port)));
        bench.wires.push(wire);
    }
    bench.switch = Switch::new(config).expect("no rule is broken");
    for n in 0..20_000u16 {
        bench.send(B, &datagram(GATEWAY, MAC_B, (B4, FAR), n));
    }
    let who = ethernet(Mac::BROADCAST, MAC_A, 0x0806, &arp(1, MAC_A, A4, B4));
    for _ in 0..20_000 {
        bench.send(A, &who);
    }
    for _ in 0..300 {
        bench.switch.poll(bench.now, &mut bench.ports);
    }
    let copies = bench.port(A).received.0 * GUESTS as u64;
    let read = bench.port(B).received.0;
    assert_eq!(read, 300 * TURN);
    assert!(
        copies <= read * 4 / 3 + GUESTS as u64,
        "{copies} beside {read}"
    );
}

/// Two guests with neighbouring ports flood a third one's short queue, which has room for eight
/// frames per turn: the guest that is served first takes the room. Sixty others are idle.
#[test]
fn flooding_guests_are_served_first_equally_often() {
    let mut config = config(&PipelineConfig::default());
    config.guests[B - A].pipeline.queue = QueueConfig::Fifo(FifoConfig {
        packets: 64,
        ..FifoConfig::default()
    });
    let mut bench = Bench::new(&PipelineConfig::default());
    let mac = |n: u8| Mac([2, 0, 0, 0, 1, n]);
    for n in 3..63 {
        config
            .guests
            .push(GuestConfig::new(format!("guest-{n}"), mac(n)));
        let (port, wire) = MemoryPort::new();
        bench.ports.push(Some(Box::new(port)));
        bench.wires.push(wire);
    }
    bench.switch = Switch::new(config).expect("no rule is broken");
    let flooders = [20, 21, 40];
    for n in flooders {
        let frame = datagram(MAC_B, mac(n), (FAR, B4), 0);
        for _ in 0..20_000 {
            bench.send(usize::from(n), &frame);
        }
    }
    for _ in 0..600 {
        bench.wires[B].borrow_mut().room = Some(8);
        bench.switch.handle_writable(PortIndex(B));
        bench.switch.poll(bench.now, &mut bench.ports);
    }
    let sent = bench.sent(B);
    for n in flooders {
        let own = sent.iter().filter(|frame| frame[6..12] == mac(n).0);
        let percent = 100 * own.count() / sent.len();
        assert!((30..=37).contains(&percent), "{percent} % are of {n}");
    }
}

/// A port with a number of descriptors for each frame, in both directions.
struct Pieces(MemoryPort, usize);

impl Port for Pieces {
    fn receive(&mut self, now: Nanos, pool: &Pool, burst: &mut Burst) -> std::io::Result<More> {
        let more = self.0.receive(now, pool, burst)?;
        burst.pieces += burst.frames.len() * self.1;
        Ok(more)
    }

    fn transmit(
        &mut self,
        now: Nanos,
        outgoing: &mut VecDeque<Outgoing>,
    ) -> std::io::Result<TransmitResult> {
        let sent = self.0.transmit(now, outgoing)?;
        Ok(TransmitResult {
            pieces: sent.packets as usize * self.1,
            ..sent
        })
    }
}

impl Bench {
    /// Replaces a guest's port by a card with a number of descriptors for each frame.
    fn set_pieces(&mut self, guest: usize, pieces: usize) {
        let (port, wire) = MemoryPort::new();
        self.ports[guest] = Some(Box::new(Pieces(port, pieces)));
        self.wires[guest] = wire;
    }
}

#[test]
fn descriptors_are_paid_for_by_the_guest_that_sends_them() {
    const PIECES: u64 = 500;
    let mut bench = Bench::new(&segmenting());
    bench.set_pieces(A, PIECES as usize);
    for n in 0..20_000u16 {
        bench.send(B, &datagram(GATEWAY, MAC_B, (B4, FAR), n));
        bench.send(A, &datagram(GATEWAY, MAC_A, (A4, FAR), n));
    }
    for _ in 0..300 {
        bench.switch.poll(bench.now, &mut bench.ports);
    }
    let (a, b) = (bench.port(A).received.0, bench.port(B).received.0);
    assert_eq!(b, 300 * TURN, "B is served in each turn");
    // Each descriptor costs an 80th of a frame.
    let most = b * 4 / 3 / (1 + PIECES / 80) + TURN;
    assert!(a <= most, "{a} beside {b}, {most} at most");
    assert!(a >= most / 3, "A has its share too: {a} beside {b}");
}

#[test]
fn descriptors_of_a_receiver_are_paid_for_by_that_receiver() {
    const PIECES: usize = 256;
    let mut bench = Bench::new(&segmenting());
    bench.set_pieces(A, PIECES);
    let flood = datagram(MAC_A, GATEWAY, (FAR, A4), 0);
    for n in 0..40_000u16 {
        bench.send(UPLINK, &flood);
        bench.send(B, &datagram(GATEWAY, MAC_B, (B4, FAR), n));
    }
    let mut most = 0;
    let mut before = 0;
    for _ in 0..300 {
        bench.switch.poll(bench.now, &mut bench.ports);
        let sent = bench.port(A).sent.0;
        most = most.max(sent - before);
        before = sent;
    }
    assert_eq!(
        bench.port(B).received.0,
        300 * TURN,
        "B pays nothing for it"
    );
    // A burst is paid for afterwards.
    assert!(most <= TURN, "{most} in one turn");
    let share = 300 * TURN * 80 / PIECES as u64 * 4 / 3 + TURN;
    assert!(before <= share, "{before} frames, {share} at most");
    assert!(before >= share / 2, "{before} frames, {share} at most");
    // No other port has work: this one has the whole thread.
    for wire in [UPLINK, B] {
        bench.wires[wire].borrow_mut().to_port.clear();
    }
    let waiting = bench.port(UPLINK).received.0 - before;
    let drops = bench.drops(A, "queue_full");
    bench.settle();
    assert_eq!(bench.port(A).sent.0, before + waiting - drops);
}

/// The virtual time, which advances with work, and the number of times that the thread slept.
#[derive(Debug, Default, Clone)]
struct Watch(Arc<AtomicU64>, Arc<AtomicU64>);

impl Watch {
    fn pass(&self, time: Nanos) {
        self.0.fetch_add(time.0, Ordering::Relaxed);
    }
}

impl Stopwatch for Watch {
    fn now(&mut self) -> Nanos {
        Nanos(self.0.load(Ordering::Relaxed))
    }

    fn switches(&mut self) -> Switches {
        Switches {
            waits: self.1.load(Ordering::Relaxed),
            losses: 0,
        }
    }
}

/// A port that takes a given time for each frame sent to it.
struct Slow(MemoryPort, Nanos, Watch);

impl Port for Slow {
    fn receive(&mut self, now: Nanos, pool: &Pool, burst: &mut Burst) -> std::io::Result<More> {
        let more = self.0.receive(now, pool, burst)?;
        self.2.pass(Nanos(1000 * burst.frames.len() as u64));
        Ok(more)
    }

    fn transmit(
        &mut self,
        now: Nanos,
        outgoing: &mut VecDeque<Outgoing>,
    ) -> std::io::Result<TransmitResult> {
        let sent = self.0.transmit(now, outgoing)?;
        self.2.pass(Nanos(self.1.0 * sent.packets));
        Ok(sent)
    }
}

/// A guest whose kernel takes 700 us for each frame sent to it, beside one that takes 1 us, both
/// flooded from outside while B sends: B and its flood wait for one frame of A's, and A has its
/// share of the time.
#[test]
fn time_that_a_receiver_takes_is_paid_for_by_that_receiver() {
    const DEAR: Nanos = Nanos::from_micros(700);
    let watch = Watch::default();
    let mut bench = Bench::new(&segmenting());
    for (index, time) in [Nanos(1000), DEAR, Nanos(1000)].into_iter().enumerate() {
        let (port, wire) = MemoryPort::new();
        bench.ports[index] = Some(Box::new(Slow(port, time, watch.clone())));
        bench.wires[index] = wire;
    }
    bench.switch.set_stopwatch(Box::new(watch.clone()));
    let second = Nanos::from_secs(1);
    let mut longest = Nanos::ZERO;
    let mut turns = 0u64;
    while watch.clone().now() < second {
        // There is always more of each.
        for _ in 0..BURST / 2 {
            bench.send(UPLINK, &datagram(MAC_A, GATEWAY, (FAR, A4), 0));
            bench.send(UPLINK, &datagram(MAC_B, GATEWAY, (FAR, B4), 0));
            bench.send(B, &datagram(GATEWAY, MAC_B, (B4, FAR), 0));
        }
        let before = watch.clone().now();
        bench.switch.poll(bench.now, &mut bench.ports);
        // What it has to learn first.
        if turns > 100 {
            longest = longest.max(watch.clone().now().since(before));
        }
        turns += 1;
    }
    let of_a = Nanos(DEAR.0 * bench.port(A).sent.0);
    assert!(longest < Nanos::from_millis(1), "a turn took {longest:?}");
    assert!(of_a.0 * 10 <= second.0 * 8, "A had {of_a:?} of {second:?}");
    assert!(
        of_a.0 * 4 >= second.0,
        "A has its share: {of_a:?} of {second:?}"
    );
}

/// A port in which the thread sleeps for 300 ms at each burst, and that shares memory or does not.
struct Asleep(MemoryPort, Watch, bool);

impl Port for Asleep {
    fn shares_memory(&self) -> bool {
        self.2
    }

    fn receive(&mut self, now: Nanos, pool: &Pool, burst: &mut Burst) -> std::io::Result<More> {
        self.0.receive(now, pool, burst)
    }

    fn transmit(
        &mut self,
        now: Nanos,
        outgoing: &mut VecDeque<Outgoing>,
    ) -> std::io::Result<TransmitResult> {
        let sent = self.0.transmit(now, outgoing)?;
        if sent.packets > 0 {
            self.1.pass(Nanos::from_millis(300));
            self.1.1.fetch_add(1, Ordering::Relaxed);
        }
        Ok(sent)
    }
}

/// Returns how often the thread sleeps in two minutes, in each of which A gets frames all the time.
fn stalls_of(shares_memory: bool) -> u64 {
    let watch = Watch::default();
    let mut bench = Bench::new(&segmenting());
    let (port, wire) = MemoryPort::new();
    bench.ports[A] = Some(Box::new(Asleep(port, watch.clone(), shares_memory)));
    bench.wires[A] = wire;
    bench.switch.set_stopwatch(Box::new(watch.clone()));
    let end = Nanos::from_secs(130);
    let mut sent = 0;
    while bench.now < end {
        bench.send(UPLINK, &datagram(MAC_A, GATEWAY, (FAR, A4), 0));
        bench.send(UPLINK, &datagram(MAC_B, GATEWAY, (FAR, B4), 0));
        sent += 1;
        bench.switch.poll(bench.now, &mut bench.ports);
        watch.pass(Nanos::from_millis(10));
        bench.now = watch.clone().now();
    }
    assert!(bench.port(B).sent.0 >= sent - 1, "{sent} were sent");
    assert!(bench.port(A).sent.0 > 0);
    watch.1.load(Ordering::Relaxed)
}

/// A's VMM punches holes into its memory: the thread sleeps twice, and then once a minute. A port that
/// shares no memory is not left alone, as the host itself is short of memory.
#[test]
fn a_port_in_which_the_thread_sleeps_again_and_again_is_left_alone_if_it_shares_memory() {
    assert_eq!(stalls_of(true), 4);
    assert!(stalls_of(false) > 100);
}
