//! Early acknowledgement at guests' memory ports: its place, and the sources of its frames.

use super::*;
use crate::port::Presence;
use tailbound_dataplane::testing::frames::Segment;
use tailbound_dataplane::{SnoopConfig, SnoopMode};

const PEER: Mac = GATEWAY;
const FLAGS_SYN_ACK: u8 = 0x12;
const ACK: u8 = 0x10;

/// A TCP segment between [`FAR`] and A, with its checksum.
fn tcp(to_guest: bool, seq: u32, ack: u32, flags: u8, payload: usize) -> Vec<u8> {
    tcp_with(5000, to_guest, seq, ack, flags, payload)
}

/// The same with this port of [`FAR`].
fn tcp_with(port: u16, to_guest: bool, seq: u32, ack: u32, flags: u8, payload: usize) -> Vec<u8> {
    let (to_mac, from_mac, from, to, ports) = if to_guest {
        (MAC_A, PEER, FAR, A4, [port, 80])
    } else {
        (PEER, MAC_A, A4, FAR, [80, port])
    };
    let segment = Segment {
        ports,
        seq,
        ack,
        flags: flags.into(),
        window: 60_000,
        options: Vec::new(),
        payload: vec![3; payload],
    };
    let segment = segment.complete(&[from.octets(), to.octets()].concat());
    ethernet(to_mac, from_mac, 0x0800, &ipv4(from, to, 6, &segment))
}

/// Returns sequence number, acknowledgement, flags and payload of each TCP frame.
fn seen(frames: &[Vec<u8>]) -> Vec<(u32, u32, u8, usize)> {
    let word =
        |frame: &[u8], at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().expect("4"));
    let tcp = frames.iter().filter(|frame| frame[23] == 6);
    tcp.map(|frame| {
        let len = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
        let header = usize::from(frame[46] >> 4) * 4;
        (
            word(frame, 38),
            word(frame, 42),
            frame[47],
            len - 20 - header,
        )
    })
    .collect()
}

/// Makes a bench with early acknowledgement for guest A, and an open connection.
fn bench(mode: SnoopMode) -> Bench {
    let mut bench = Bench::new(&PipelineConfig::default());
    let snoop = SnoopConfig {
        mode,
        ..SnoopConfig::default()
    };
    let mut config = config(&PipelineConfig::default());
    config.guests[0].snoop = Some(snoop);
    bench
        .switch
        .reconfigure(bench.now, config)
        .expect("no rule is broken");
    bench.send(A, &tcp(false, 99, 1, FLAGS_SYN_ACK, 0));
    bench.settle();
    bench.send(A, &tcp(false, 100, 1, ACK, 0));
    bench.settle();
    bench.sent(UPLINK);
    bench
}

#[test]
fn the_host_answers_while_the_guest_waits() {
    for mode in [SnoopMode::Retaining, SnoopMode::Strict] {
        let mut bench = bench(mode);
        for n in 0..3 {
            bench.send(UPLINK, &tcp(true, 1 + 1000 * n, 100, ACK, 1000));
        }
        bench.settle();
        let data = [1, 1001, 2001].map(|seq| (seq, 100, ACK, 1000));
        assert_eq!(seen(&bench.sent(A)), data, "{mode:?}");
        // Two segments of a burst share one, if the host retains them.
        let acks: &[u32] = match mode {
            SnoopMode::Retaining => &[2001, 3001],
            SnoopMode::Strict => &[1001, 2001, 3001],
        };
        let acks: Vec<_> = acks.iter().map(|ack| (100, *ack, ACK, 0)).collect();
        assert_eq!(seen(&bench.sent(UPLINK)), acks, "{mode:?}");
        // The guest's own say nothing new, but for the last.
        for ack in [1001, 2001, 3001] {
            bench.send(A, &tcp(false, 100, ack, ACK, 0));
        }
        bench.settle();
        assert_eq!(seen(&bench.sent(UPLINK)), [(100, 3001, ACK, 0)]);
        let snoop = bench.guest(A).snoop.expect("it is on");
        assert_eq!((snoop.stats.early, snoop.stats.suppressed), (3, 2));
        assert_eq!(snoop.retained, Bytes(0));
        assert_eq!(snoop.modes[0], 1, "active");
    }
}

/// Connections that are read ahead get the same answers, and their frames stay in order.
#[test]
fn a_guest_with_more_connections_than_the_caches_hold_is_answered() {
    const PORTS: u16 = 100 + SnoopConfig::CACHED as u16;
    let mut bench = bench(SnoopMode::Retaining);
    for port in 0..PORTS {
        bench.send(A, &tcp_with(port, false, 99, 1, FLAGS_SYN_ACK, 0));
        if port % 16 == 0 {
            bench.settle();
        }
    }
    bench.settle();
    bench.sent(UPLINK);
    let before = bench.guest(A).snoop.expect("it is on").stats.early;
    // More than a burst, and the last ones repeat the first: the host answers them itself.
    let segment = |n: u16| tcp_with(n * 31 % PORTS, true, 1, 100, ACK, 1 + usize::from(n % 90));
    let frames: Vec<_> = (0..90).map(segment).collect();
    for frame in frames.iter().chain(&frames[..10]) {
        bench.send(UPLINK, frame);
    }
    bench.settle();
    assert_eq!(bench.sent(A), [&frames[..], &frames[..10]].concat());
    let answered = bench.guest(A).snoop.expect("it is on").stats.early;
    assert_eq!(answered - before, 90);
    assert!(bench.sent(UPLINK).len() >= 90);
}

/// Answers pass the same checks as the guest's own frames: its filter, and the queue of the uplink.
#[test]
fn answers_are_the_guests_frames() {
    let mut bench = bench(SnoopMode::Retaining);
    bench.wires[UPLINK].borrow_mut().room = Some(0);
    // Two share one.
    for n in 0..5 {
        bench.send(UPLINK, &tcp(true, 1 + 1000 * n, 100, ACK, 1000));
    }
    bench.settle();
    assert_eq!(bench.port(UPLINK).backlog_packets, 3);
    bench.wires[UPLINK].borrow_mut().room = None;
    bench.switch.handle_writable(PortIndex(UPLINK));
    bench.settle();
    assert_eq!(bench.sent(UPLINK).len(), 3);
    let sent = bench.guest(A).sojourns;
    let sent: u64 = sent
        .iter()
        .filter(|sojourn| sojourn.direction == "sent")
        .map(|sojourn| sojourn.histogram.count())
        .sum();
    assert_eq!(sent, 3 + 2, "as the guest's, with its two of before");
}

/// The kept decision for a guest's answers ends with its right to the address.
#[test]
fn answers_from_an_address_that_the_guest_lost_are_refused() {
    let mut bench = bench(SnoopMode::Retaining);
    bench.send(UPLINK, &tcp(true, 1, 100, ACK, 1000));
    bench.settle();
    assert_eq!(seen(&bench.sent(UPLINK)), [(100, 1001, ACK, 0)]);
    let mut config = config(&PipelineConfig::default());
    config.guests[0].snoop = Some(SnoopConfig::default());
    config.guests[0].filter = Some(SpoofFilter::new(MAC_A, vec![A6.into()]));
    bench
        .switch
        .reconfigure(bench.now, config)
        .expect("no rule is broken");
    bench.send(UPLINK, &tcp(true, 1001, 100, ACK, 1000));
    bench.settle();
    assert_eq!(seen(&bench.sent(UPLINK)), []);
    let (guest, port) = (bench.guest(A), bench.port(A));
    let early = guest.snoop.expect("it is on").stats.early;
    assert_eq!((early, bench.drops(A, "spoofed_ip")), (2, 1), "{port:?}");
}

/// With a full ring, frames in front of it may be dropped there, so none is acknowledged early.
#[test]
fn segments_before_a_full_ring_are_not_acknowledged_early() {
    for mode in [SnoopMode::Retaining, SnoopMode::Strict] {
        let mut bench = bench(mode);
        bench.wires[A].borrow_mut().room = Some(0);
        bench.send(B, &a_to_b(7));
        // What fills the place before the ring, and is no TCP.
        let mut other = datagram(MAC_A, MAC_B, (B4, A4), 1);
        other[12] = 8;
        bench.send(B, &other);
        bench.settle();
        for n in 0..3 {
            bench.send(UPLINK, &tcp(true, 1 + 1000 * n, 100, ACK, 1000));
        }
        bench.settle();
        assert_eq!(seen(&bench.sent(UPLINK)), [], "{mode:?}");
        bench.wires[A].borrow_mut().room = None;
        bench.switch.handle_writable(PortIndex(A));
        bench.settle();
        // Two share one in the first mode.
        let acks = seen(&bench.sent(UPLINK));
        let count = if mode == SnoopMode::Strict { 3 } else { 2 };
        assert_eq!(acks.len(), count, "{mode:?}");
        assert_eq!(acks.last().map(|(_, ack, ..)| *ack), Some(3001));
    }
}

/// The retransmission timer of the guest's connections is part of the switch's own timer.
#[test]
fn segments_that_the_guest_lost_are_retransmitted_while_it_runs() {
    let mut bench = bench(SnoopMode::Retaining);
    bench.send(UPLINK, &tcp(true, 1, 100, ACK, 1000));
    bench.settle();
    bench.sent(A);
    bench.run(bench.now + Nanos::from_secs(3));
    assert_eq!(seen(&bench.sent(A)), [], "it waits for its CPU");
    bench.wires[A].borrow_mut().progress = 1;
    bench.run(bench.now + Nanos::from_millis(500));
    assert_eq!(seen(&bench.sent(A)), [(1, 100, ACK, 1000)]);
    assert_eq!(bench.drain_snoop_of_a(false), Some(1000));
    bench.send(A, &tcp(false, 100, 1001, ACK, 0));
    bench.settle();
    assert_eq!(bench.drain_snoop_of_a(true), Some(0));
    bench.run(bench.now + Nanos::from_secs(300));
    assert_eq!(seen(&bench.sent(A)), []);
}

#[test]
fn peers_of_a_guest_that_is_gone_get_a_reset() {
    // Its card: nobody uses it.
    let mut gone = bench(SnoopMode::Retaining);
    gone.send(UPLINK, &tcp(true, 1, 100, ACK, 1000));
    gone.settle();
    gone.sent(UPLINK);
    gone.wires[A].borrow_mut().presence = Presence::Away;
    gone.run(gone.now + Nanos::from_secs(1));
    assert_eq!(seen(&gone.sent(UPLINK)), [(100, 1001, 0x14, 0)]);
    // It was removed.
    let mut removed = bench(SnoopMode::Retaining);
    removed.send(UPLINK, &tcp(true, 1, 100, ACK, 1000));
    removed.settle();
    removed.sent(UPLINK);
    let mut rest = config(&PipelineConfig::default());
    rest.guests.remove(0);
    removed.ports.remove(A);
    removed
        .switch
        .reconfigure(removed.now, rest)
        .expect("no rule is broken");
    removed.settle();
    assert_eq!(seen(&removed.sent(UPLINK)), [(100, 1001, 0x14, 0)]);
}

#[test]
fn early_acknowledgement_ends_when_no_byte_is_owed() {
    let mut bench = bench(SnoopMode::Retaining);
    bench.send(UPLINK, &tcp(true, 1, 100, ACK, 1000));
    bench.settle();
    bench.sent(UPLINK);
    let off = config(&PipelineConfig::default());
    bench
        .switch
        .reconfigure(bench.now, off)
        .expect("no rule is broken");
    bench.send(UPLINK, &tcp(true, 1001, 100, ACK, 1000));
    bench.settle();
    assert_eq!(seen(&bench.sent(UPLINK)), [], "nothing new is promised");
    assert!(bench.guest(A).snoop.is_some());
    bench.send(A, &tcp(false, 100, 2001, ACK, 0));
    bench.settle();
    assert!(bench.guest(A).snoop.is_none());
    assert_eq!(seen(&bench.sent(UPLINK)), [(100, 2001, ACK, 0)]);
}

/// A guest at another port cannot impersonate the peer.
#[test]
fn a_neighbour_that_says_it_is_the_peer_is_not_answered() {
    let mut bench = bench(SnoopMode::Retaining);
    let mut forged = tcp(true, 1, 100, ACK, 1000);
    forged[6..12].copy_from_slice(&MAC_B.0);
    bench.send(B, &forged);
    bench.settle();
    assert_eq!(bench.guest(A).snoop.expect("it is on").stats.early, 0);
}

impl Bench {
    /// Ends early acknowledgement for A, or continues it; returns the bytes that A lacks.
    fn drain_snoop_of_a(&mut self, undo: bool) -> Option<u64> {
        let mut guest = self.switch.guest_mut(GuestId::first(0))?;
        Some(guest.drain_snoop(undo)?.bytes)
    }
}
