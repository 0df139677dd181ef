//! Who may have how much of the thread.

use super::*;
use crate::mac::Mac;

/// Segments of a packet of [`crumbs`], nearly as many as one may have.
const CRUMBS: usize = 500;
/// Frames of `B` that one turn of its own may be: a burst.
const TURN: u64 = BURST as u64;

/// A TCP packet of A that is to be cut to one byte a segment.
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

/// A guest that has its packets cut to 500 segments gets no more of the thread than one
/// that sends single frames, at any moment while both have something to send; and between
/// two turns of the other at most one such packet is cut.
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

/// Nobody else has work, so nobody waits for a guest's share to come round again.
#[test]
fn a_guest_alone_has_a_packet_cut_in_each_turn() {
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

/// A broadcast costs its sender what all its copies cost.
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

/// Two guests with neighbouring ports flood a third one's short queue, which has room for
/// eight frames a turn: whoever is served first in a turn has it. Sixty others are idle.
#[test]
fn neighbours_are_first_equally_often_however_many_idle_ports_there_are() {
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
