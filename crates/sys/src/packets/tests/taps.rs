use super::frames::{ACK, FIN, SYN, Segment, Side, ethernet, ipv4, ipv6, tcp};
use super::*;
use crate::bpf_program::count_cost;
use std::io::IoSliceMut;
use std::time::{Duration, Instant};

const SERVER: Side = Side {
    number: 1,
    port: 80,
};
const OTHER: Side = Side {
    number: 2,
    port: 5000,
};
const PEER: Side = Side {
    number: 3,
    port: 40_000,
};

pub(super) fn link(host: &str, end: &str) -> bool {
    run(&format!("ip -n {host} tuntap add {end} mode tap vnet_hdr"))
}

/// The host, with the readers of its TAPs, which take each frame on request.
struct Taps {
    host: Host,
    ends: [tap::Tap; 3],
}

impl Taps {
    fn new() -> Option<Self> {
        let host = Host::new(Nanos(0), link)?;
        let path = path_of(&host.name);
        let ends = LINKS.map(|end| tap::Tap::open(end, Some(&path)).unwrap());
        let mut taps = Self { host, ends };
        // The bridge takes a moment until its ports forward, and learns where each side is.
        let until = Instant::now() + Duration::from_secs(10);
        for (from, to) in [(SERVER, PEER), (OTHER, PEER), (PEER, OTHER), (PEER, SERVER)] {
            loop {
                taps.send(from, &ethernet(from, to, 0x88b5, &[0; 46]));
                if taps.try_take(to).is_some() {
                    break;
                }
                assert!(Instant::now() < until, "{from:?} is not heard");
                std::thread::sleep(ms(10));
            }
        }
        taps.drain();
        for (slot, end) in (0..).zip([GUEST, NEIGHBOUR]) {
            let index = taps.host.index(end);
            taps.host.tracer.follow(index, slot).unwrap();
        }
        Some(taps)
    }

    fn of(&self, side: Side) -> &tap::Tap {
        &self.ends[usize::from(side.number) - 1]
    }

    fn send(&self, from: Side, frame: &[u8]) {
        let mut bytes = vec![0; tap::VIRTIO_HEADER_LEN];
        bytes.extend(frame);
        self.of(from).transmit(&bytes).unwrap();
    }

    /// Takes a frame as the VMM of `side` does, if there is one.
    fn try_take(&self, side: Side) -> Option<Vec<u8>> {
        let (mut header, mut frame) = ([0; tap::VIRTIO_HEADER_LEN], vec![0; 2000]);
        let mut buffers = [IoSliceMut::new(&mut header), IoSliceMut::new(&mut frame)];
        let length = self.of(side).receive(&mut buffers).ok()?;
        frame.truncate(length - tap::VIRTIO_HEADER_LEN);
        // The bridge says something now and then.
        (frame[6..11] == [2, 0, 0, 0, 0]).then_some(frame)
    }

    /// Takes the next frame.
    fn take(&self, side: Side) -> Vec<u8> {
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            if let Some(frame) = self.try_take(side) {
                return frame;
            }
            assert!(Instant::now() < until, "nothing comes");
            std::thread::yield_now();
        }
    }

    fn drain(&self) {
        std::thread::sleep(Duration::from_millis(20));
        let (mut header, mut frame) = ([0; tap::VIRTIO_HEADER_LEN], [0; 2000]);
        for end in &self.ends {
            let mut buffers = [IoSliceMut::new(&mut header), IoSliceMut::new(&mut frame)];
            while end.receive(&mut buffers).is_ok() {}
        }
    }

    /// Sends a segment all the way, where the other side takes the frame after `ring`.
    fn pass(&self, from: Side, to: Side, segment: &Segment, ring: Duration) {
        let frame = tcp(from, to, segment);
        self.send(from, &frame);
        std::thread::sleep(ring);
        assert_eq!(self.take(to), frame);
    }
}

const fn data(seq: u32, ack: u32, payload: usize) -> Segment {
    Segment {
        seq,
        ack,
        flags: ACK,
        window: 1000,
        payload,
    }
}

const NOW: Duration = Duration::ZERO;
const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A conversation of two segments, with the test's own clock before and after each of
/// the four steps.
fn converse(taps: &Taps, from: Side, to: Side) -> [u64; 8] {
    let mut times = Vec::new();
    for (from, to, segment) in [(from, to, data(100, 1, 200)), (to, from, data(1, 300, 500))] {
        let frame = tcp(from, to, &segment);
        times.push(timer::now().0);
        taps.send(from, &frame);
        times.push(timer::now().0);
        std::thread::sleep(ms(20));
        times.push(timer::now().0);
        assert_eq!(taps.take(to), frame);
        times.push(timer::now().0);
        std::thread::sleep(ms(30));
    }
    times.try_into().unwrap()
}

fn between(time: Nanos, bounds: &[u64]) {
    // A first sight may be 64 ns early.
    let bounds = bounds[0] - 64..=bounds[1];
    assert!(bounds.contains(&time.0), "{time:?} {bounds:?}");
}

#[test]
fn a_request_served_by_a_vm_has_all_its_times() {
    let Some(mut taps) = Taps::new() else { return };
    let own = converse(&taps, PEER, SERVER);
    let requests = taps.host.slow_requests();
    let [request] = requests.as_slice() else {
        panic!("{requests:?}");
    };
    assert_eq!((request.kind, request.slot), (Kind::Served, 0));
    assert_eq!(request.guest.to_string(), "10.9.0.1:80");
    assert_eq!(request.peer.to_string(), "10.9.0.3:40000");
    assert_eq!(request.began, request.times[0]);
    for (time, at) in request.times.into_iter().zip([0, 0, 2, 4, 4]) {
        between(time, &own[at..]);
    }
    assert!(request.times.is_sorted());
    assert_eq!(request.occupant, Occupant::OnlyItself);
    let measured = taps.host.read(0);
    assert_eq!(
        (measured.served.begun, measured.served.whole.count()),
        (1, 1)
    );
    assert_eq!(measured.made.begun, 0);
    assert_eq!(measured.ring.count(), 1);
    assert!(measured.ring.longest >= 20_000_000);
    assert_eq!(taps.host.read(1).segments, Both::default());
}

#[test]
fn a_request_made_by_a_vm_is_timed_beyond_the_host() {
    let Some(mut taps) = Taps::new() else { return };
    let client = Side {
        port: 40_000,
        ..SERVER
    };
    let server = Side { port: 80, ..PEER };
    let own = converse(&taps, client, server);
    let requests = taps.host.slow_requests();
    let [request] = requests.as_slice() else {
        panic!("{requests:?}");
    };
    assert_eq!(request.kind, Kind::Made);
    for (time, at) in request.times.into_iter().zip([0, 0, 4, 4, 6]) {
        between(time, &own[at..]);
    }
    let outer = taps.host.read(0).round_trip_outer;
    assert_eq!(outer.count(), 1);
    assert!(outer.longest >= 50_000_000);
}

#[test]
fn retransmissions_and_closed_windows_have_a_direction() {
    let Some(taps) = Taps::new() else { return };
    let syn = Segment {
        flags: SYN,
        ..data(99, 0, 0)
    };
    taps.pass(PEER, SERVER, &syn, NOW);
    taps.pass(PEER, SERVER, &data(100, 1, 200), NOW);
    // Twice again; and a byte that only asks whether anybody is there.
    taps.pass(PEER, SERVER, &data(100, 1, 200), NOW);
    taps.pass(PEER, SERVER, &data(200, 1, 100), NOW);
    taps.pass(PEER, SERVER, &data(299, 1, 1), NOW);
    taps.pass(SERVER, PEER, &data(1, 300, 50), NOW);
    // The window is closed for a while.
    let closed = Segment {
        window: 0,
        ..data(51, 300, 0)
    };
    taps.pass(SERVER, PEER, &closed, NOW);
    taps.pass(SERVER, PEER, &closed, ms(20));
    taps.pass(SERVER, PEER, &data(51, 300, 0), NOW);
    let fin = Segment {
        flags: FIN | ACK,
        ..data(300, 51, 0)
    };
    taps.pass(PEER, SERVER, &fin, NOW);
    let measured = taps.host.read(0);
    let retransmitted = Both {
        inward: 2,
        outward: 0,
    };
    assert_eq!(measured.retransmitted, retransmitted);
    let segments = Both {
        inward: 5,
        outward: 1,
    };
    assert_eq!(measured.segments, segments);
    let shut = Both {
        inward: 0,
        outward: 1,
    };
    assert_eq!(measured.closed, shut);
    assert!(measured.closed_time.outward.0 >= 20_000_000);
    assert_eq!(measured.closed_time.inward, Nanos(0));
}

/// A connection on which the guest sends to a peer, and the peer acknowledges.
struct Transfer {
    taps: Taps,
    side: Side,
}

impl Transfer {
    fn acknowledge(&self, ack: u32, window: u16) {
        let segment = Segment {
            window,
            ..data(1, ack, 0)
        };
        self.taps.pass(PEER, self.side, &segment, NOW);
    }

    fn send(&self, seq: u32) {
        self.taps.pass(self.side, PEER, &data(seq, 1, 1000), NOW);
    }

    fn held(&self) -> Both<Nanos> {
        self.taps.host.read(0).held_time
    }
}

#[test]
fn a_receiver_that_reads_late_holds_its_sender_back_without_a_closed_window() {
    let Some(taps) = Taps::new() else { return };
    let side = Side { port: 90, ..SERVER };
    let to = Transfer { taps, side };
    // Units of 4 bytes, which the peer said long ago.
    to.acknowledge(1, 500);
    to.send(1);
    to.acknowledge(1001, 250);
    to.send(1001);
    std::thread::sleep(ms(60));
    let before = to.held();
    to.acknowledge(2001, 500);
    let held = to.held();
    let time = held.inward.0 - before.inward.0;
    assert!((40_000_000..200_000_000).contains(&time), "{held:?}");
    assert_eq!(held.outward, Nanos(0));
    // The window is wholly open again after each wait: that is the path's.
    to.send(2001);
    to.send(3001);
    std::thread::sleep(ms(60));
    to.acknowledge(4001, 500);
    assert_eq!(to.held(), held);
    // Room for another segment is left: the guest has no more to send.
    to.acknowledge(4001, 600);
    to.send(4001);
    to.acknowledge(5001, 350);
    std::thread::sleep(ms(60));
    to.acknowledge(5001, 600);
    assert_eq!(to.held(), held);
}

#[test]
fn no_receiver_is_slow_while_the_scale_of_its_window_is_not_known() {
    let Some(taps) = Taps::new() else { return };
    let side = Side { port: 91, ..SERVER };
    let to = Transfer { taps, side };
    to.acknowledge(1, 500);
    to.send(1);
    // It may have units of 16 KiB, and have read all.
    to.acknowledge(1001, 500);
    to.send(1001);
    to.send(2001);
    std::thread::sleep(ms(60));
    to.acknowledge(2001, 200);
    assert_eq!(to.held(), Both::default());
}

#[test]
fn a_window_that_stays_closed_is_counted_once_a_second() {
    let Some(taps) = Taps::new() else { return };
    let side = Side { port: 92, ..SERVER };
    let to = Transfer { taps, side };
    to.acknowledge(1, 500);
    to.send(1);
    to.acknowledge(1001, 0);
    let begun = timer::now();
    std::thread::sleep(ms(1_100));
    to.acknowledge(1001, 0);
    let time = to.held().inward;
    assert!(time >= Nanos::from_secs(1), "{time:?}");
    to.acknowledge(1001, 0);
    assert_eq!(to.held().inward, time);
    std::thread::sleep(ms(100));
    to.acknowledge(1001, 500);
    let (time, most) = (to.held().inward, timer::now().since(begun));
    assert!(
        time >= Nanos::from_millis(1_200) && time <= most,
        "{time:?}"
    );
}

#[test]
fn a_sequence_number_may_wrap() {
    let Some(taps) = Taps::new() else { return };
    taps.pass(PEER, SERVER, &data(u32::MAX - 150, 1, 100), NOW);
    taps.pass(PEER, SERVER, &data(u32::MAX - 50, 1, 100), NOW);
    assert_eq!(taps.host.read(0).retransmitted, Both::default());
    taps.pass(PEER, SERVER, &data(u32::MAX - 50, 1, 100), NOW);
    assert_eq!(taps.host.read(0).retransmitted.inward, 1);
}

#[test]
fn frames_that_are_not_taken_are_dropped_by_their_ring() {
    let Some(taps) = Taps::new() else { return };
    // A TAP's ring has 500 places here, and its queue before it 1,000.
    for seq in 0..3000 {
        taps.send(PEER, &tcp(PEER, SERVER, &data(seq * 10, 1, 10)));
    }
    let drops = taps.host.drops(0, Direction::In);
    let total: u64 = drops.iter().map(|(_, count)| count).sum();
    assert!(total >= 500, "{drops:?}");
    assert!(taps.host.drops(1, Direction::In).is_empty());
    let named = drops.iter().any(|(name, _)| name == "full_ring");
    let old = drops.iter().all(|(name, _)| name.is_empty());
    assert!(named || old, "{drops:?}");
}

/// Sends frames of the guest, and returns how many of them were segments of TCP with data.
fn segments_of(taps: &Taps, frames: &[Vec<u8>]) -> u64 {
    let before = taps.host.read(0);
    for frame in frames {
        taps.send(SERVER, frame);
    }
    let after = taps.host.read(0);
    let packets = after.packets.outward - before.packets.outward;
    assert_eq!(packets, frames.len() as u64);
    after.segments.outward - before.segments.outward
}

#[test]
fn headers_are_found_behind_tags_options_and_extensions() {
    let Some(taps) = Taps::new() else { return };
    let segment = data(1, 1, 10).bytes(SERVER, PEER);
    let plain = ipv4(SERVER, PEER, 0, 0, 6, &segment);
    let options = ipv4(SERVER, PEER, 3, 0, 6, &segment);
    let tagged = [&[0, 5, 8, 0], plain.as_slice()].concat();
    let twice = [&[0, 5, 0x81, 0, 0, 6, 8, 0], plain.as_slice()].concat();
    let six = ipv6(SERVER, PEER, 6, &segment);
    // Hop by hop, destination options of 16 bytes, then TCP.
    let headers = [60, 0, 1, 4, 0, 0, 0, 0, 6, 1, 1, 12];
    let extensions = [&headers, [0; 12].as_slice(), &segment].concat();
    let extended = ipv6(SERVER, PEER, 0, &extensions);
    for (kind, packet) in [
        (0x0800, plain),
        (0x0800, options),
        (0x8100, tagged),
        (0x88a8, twice),
        (0x86dd, six),
        (0x86dd, extended),
    ] {
        let frame = ethernet(SERVER, PEER, kind, &packet);
        assert_eq!(segments_of(&taps, &[frame]), 1, "{packet:?}");
    }
}

#[test]
fn fragments_and_false_lengths_are_no_segments() {
    let Some(taps) = Taps::new() else { return };
    let segment = data(1, 1, 10).bytes(SERVER, PEER);
    for (kind, packet) in [
        // The first fragment, a later one, and one of IPv6.
        (0x0800, ipv4(SERVER, PEER, 0, 0x2000, 6, &segment)),
        (0x0800, ipv4(SERVER, PEER, 0, 5, 6, &segment)),
        (0x86dd, ipv6(SERVER, PEER, 44, &segment)),
        // Headers of TCP that are longer than their packet, shorter than one, and cut.
        (0x0800, ipv4(SERVER, PEER, 0, 0, 6, &[0xf0; 24])),
        (0x0800, ipv4(SERVER, PEER, 0, 0, 6, &[0x10; 24])),
        (0x0800, ipv4(SERVER, PEER, 0, 0, 6, &segment[..19])),
        // Extension headers without an end.
        (0x86dd, ipv6(SERVER, PEER, 0, &[0; 200])),
        (0x86dd, ipv6(SERVER, PEER, 0, &[0, 255, 0, 0])),
    ] {
        let frame = ethernet(SERVER, PEER, kind, &packet);
        assert_eq!(segments_of(&taps, &[frame]), 0, "{packet:?}");
    }
}

#[test]
fn any_bytes_of_a_guest_are_parsed_within_bounds() {
    let Some(mut taps) = Taps::new() else { return };
    let segment = data(1, 1, 10).bytes(SERVER, PEER);
    let whole = [
        ethernet(SERVER, PEER, 0x0800, &ipv4(SERVER, PEER, 2, 0, 6, &segment)),
        ethernet(SERVER, PEER, 0x86dd, &ipv6(SERVER, PEER, 6, &segment)),
    ];
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut sent = 0;
    for round in 0..4000 {
        let mut frame = whole[round % 2].clone();
        for _ in 0..=round % 5 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = 12 + (random >> 8) as usize % (frame.len() - 12);
            frame[at] = random as u8;
            if random >> 60 == 0 {
                frame.truncate(at.max(14));
            }
        }
        taps.send(SERVER, &frame);
        sent += 1;
        if round % 100 == 0 {
            taps.drain();
        }
    }
    taps.drain();
    let counted = taps.host.read(0).packets.outward;
    assert!(counted >= sent, "{counted}");
    taps.host.slow_requests();
    taps.pass(PEER, SERVER, &data(7_000_000, 1, 200), NOW);
    let side = Side { port: 81, ..SERVER };
    taps.pass(PEER, side, &data(7, 1, 200), NOW);
    taps.pass(side, PEER, &data(1, 207, 500), NOW);
    let requests = taps.host.slow_requests();
    let of = requests.iter().filter(|it| it.guest.port() == side.port);
    assert_eq!(of.count(), 1, "{requests:?}");
}

#[test]
fn flows_are_sampled_in_both_directions() {
    let Some(mut taps) = Taps::new() else { return };
    let before = taps.host.read(0);
    taps.host.tracer.set_sampling(NO_FLOW).unwrap();
    taps.pass(PEER, SERVER, &data(1, 1, 10), NOW);
    let none = taps.host.read(0);
    assert_eq!(none.packets.inward, before.packets.inward + 1);
    assert_eq!(
        (none.segments, none.host.inward),
        (before.segments, before.host.inward)
    );
    taps.host.tracer.set_sampling(2).unwrap();
    for port in 1000..1256 {
        let peer = Side { port, ..PEER };
        taps.pass(peer, SERVER, &data(1, 1, 10), NOW);
        taps.pass(SERVER, peer, &data(1, 11, 10), NOW);
    }
    let some = taps.host.read(0);
    assert!(
        (32..100).contains(&some.segments.inward),
        "{:?}",
        some.segments
    );
    assert_eq!(some.segments.inward, some.segments.outward);
    assert_eq!(some.served.whole.count(), some.segments.inward);
    assert_eq!(some.packets.inward, none.packets.inward + 256);
}

#[test]
fn requests_across_a_tracing_pause_are_not_measured() {
    let Some(mut taps) = Taps::new() else { return };
    let before = taps.host.read(0);
    // Its answer comes in the pause.
    taps.pass(PEER, SERVER, &data(1, 1, 200), NOW);
    taps.host.tracer.pause();
    assert!(!taps.host.tracer.is_attached());
    taps.pass(SERVER, PEER, &data(1, 201, 500), NOW);
    std::thread::sleep(ms(20));
    taps.host.tracer.resume().unwrap();
    taps.host.tracer.resume().unwrap();
    // Without the pause this would be a late answer.
    taps.pass(SERVER, PEER, &data(501, 201, 500), NOW);
    assert_eq!(taps.host.slow_requests(), []);
    taps.pass(PEER, SERVER, &data(201, 1001, 200), NOW);
    taps.pass(SERVER, PEER, &data(1001, 401, 500), NOW);
    let requests = taps.host.slow_requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    let after = taps.host.read(0);
    assert_eq!(after.packets.inward, before.packets.inward + 2);
    assert_eq!(after.packets.outward, before.packets.outward + 2);
    assert_eq!(after.retransmitted, before.retransmitted);
}

#[test]
fn a_guest_that_is_counted_has_packets_and_no_flows() {
    let Some(mut taps) = Taps::new() else { return };
    let index = taps.host.index(NEIGHBOUR);
    taps.host.tracer.count(index, 1).unwrap();
    let before = taps.host.read(1);
    taps.pass(OTHER, SERVER, &data(1, 1, 200), NOW);
    taps.pass(SERVER, OTHER, &data(1, 201, 500), NOW);
    let requests = taps.host.slow_requests();
    let [request] = requests.as_slice() else {
        panic!("{requests:?}");
    };
    // It is known as the sender of what another guest served.
    assert_eq!((request.slot, request.neighbour), (0, Some(1)));
    let counted = taps.host.read(1);
    assert_eq!(counted.packets.outward, before.packets.outward + 1);
    assert_eq!(counted.packets.inward, before.packets.inward + 1);
    assert_eq!(counted.segments, before.segments);
    // A change of the sampling does not change that.
    taps.host.tracer.set_sampling(0).unwrap();
    taps.pass(OTHER, SERVER, &data(201, 501, 200), NOW);
    assert_eq!(taps.host.read(1).segments, before.segments);
}

/// Prints the cost of each frame at all tracepoints together, which includes some 48 ns at each of
/// them for counting.
#[test]
#[ignore = "a measurement, for a computer without other work"]
fn cost_of_a_frame() {
    const FRAMES: u64 = 50_000;
    let Some(mut taps) = Taps::new() else { return };
    let _counted = count_cost().unwrap();
    for shift in [0, 4, 10, NO_FLOW] {
        taps.host.tracer.set_sampling(shift).unwrap();
        for (from, to) in [(PEER, SERVER), (SERVER, PEER)] {
            let before = taps.host.tracer.cost().unwrap();
            for seq in 0..FRAMES {
                let from = Side {
                    port: 1000 + (seq % 1000) as u16,
                    ..from
                };
                taps.send(from, &tcp(from, to, &data(seq as u32, 1, 10)));
                while taps.try_take(to).is_some() {}
            }
            let after = taps.host.tracer.cost().unwrap();
            let (mut line, mut whole) = (String::new(), 0);
            for (after, before) in after.into_iter().zip(before) {
                let (time, runs) = (after.time.0 - before.time.0, after.runs - before.runs);
                let name = after.name;
                whole += time;
                let each = time.checked_div(runs).unwrap_or(0);
                line = format!("{line} {name} {runs} x {each} ns;");
            }
            let each = whole / FRAMES;
            println!("shift {shift}, from {}: {each} ns:{line}", from.number);
        }
    }
}
