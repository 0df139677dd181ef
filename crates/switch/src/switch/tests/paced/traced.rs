//! The frames of one guest, each with its times.

use super::*;
use crate::{Traced, TracedFrame, Wait};
use tailbound_dataplane::shaper::WindowConfig;
use tailbound_dataplane::{Class, ShaperConfig};

/// 1,538 bytes on the wire in 246.08 us.
const RATE: u64 = 50;

fn traced(bench: &mut Bench) -> Traced {
    bench.switch.end_trace().expect("one was begun")
}

/// Sends from both A and B: a burst of A's bucket and one frame of B's.
fn send(bench: &mut Bench, frames: u32) {
    for n in 0..frames {
        bench.send(A, &full(A, n));
    }
    bench.send(B, &full(B, 0));
}

fn begun(most: usize) -> Bench {
    let config = paced(&wire(), Some(guarantee(RATE)), Some(guarantee(RATE)));
    let mut bench = bench(config);
    // Buckets fill.
    bench.run(bench.now + Nanos::from_secs(1));
    let id = bench.switch.guests().next().expect("A").0;
    bench.switch.begin_trace(id, most);
    bench
}

#[test]
fn a_trace_reports_the_times_of_each_frame() {
    let mut bench = begun(100);
    let came = bench.now;
    send(&mut bench, 14);
    bench.run(came + Nanos::from_millis(10));
    let Traced { frames, missed } = traced(&mut bench);
    assert_eq!((frames.len(), missed), (14, 0), "and none of B's");
    let sent = bench.wires[UPLINK].borrow().from_port.clone();
    let own = sent
        .iter()
        .filter(|(_, frame)| frame[6..12] == MAC_A.0 && frame[..6] == GATEWAY.0);
    for (n, (frame, (at, bytes))) in frames.iter().zip(own).enumerate() {
        let expected = TracedFrame {
            wait: Wait::Uplink,
            class: Class::Guaranteed,
            bytes: bytes.len() as u32,
            peer: Some(FAR.into()),
            enqueued: came,
            released: *at,
            begins: frame.begins,
            taken: Some(*at),
        };
        assert_eq!(*frame, expected, "{n}");
        let begins = frame.begins.expect("it is paced");
        assert!(begins >= frame.released, "{n}");
    }
    // Ten leave at once, by Bmax; the others as {B, S} lets them: exactly, as the wire is idle.
    let begins: Vec<_> = frames.iter().filter_map(|frame| frame.begins).collect();
    let gaps = begins.windows(2).map(|two| two[1].since(two[0]).0);
    let gaps: Vec<_> = gaps.collect();
    assert!(gaps[..9].iter().all(|gap| *gap < 26_000), "{gaps:?}");
    for gap in &gaps[10..] {
        assert!((246_070..=246_090).contains(gap), "{gaps:?}");
    }
    assert!(bench.switch.end_trace().is_none(), "it has ended");
}

#[test]
fn a_trace_times_frames_after_a_full_port_and_is_bounded() {
    let mut bench = begun(2);
    let came = bench.now;
    bench.wires[UPLINK].borrow_mut().room = Some(1);
    send(&mut bench, 3);
    bench.run(came + Nanos::from_millis(1));
    assert!(bench.switch.is_trace_full());
    bench.wires[UPLINK].borrow_mut().room = None;
    bench.switch.handle_writable(PortIndex(UPLINK));
    let late = bench.now;
    bench.run(late + Nanos::from_millis(1));
    let Traced { frames, missed } = traced(&mut bench);
    assert_eq!((frames.len(), missed), (2, 1));
    let taken: Vec<_> = frames.iter().map(|frame| frame.taken).collect();
    assert_eq!(taken, [Some(came), Some(late)]);
}

#[test]
fn a_trace_reports_each_queue_that_held_a_frame() {
    let mut config = config(&PipelineConfig::default());
    config.guests[0].limit = Some(ShaperConfig::SmoothWindow(WindowConfig::new(
        Rate::from_mbit(4),
    )));
    let mut bench = bench(config);
    let id = bench.switch.guests().next().expect("A").0;
    bench.switch.begin_trace(id, 100);
    for n in 0..4 {
        bench.send(A, &full(A, n));
    }
    bench.send(A, &a_to_b(1));
    // Frames to A from outside and from B, and frames past A.
    let answer = |to, address| datagram(to, GATEWAY, (FAR, address), 1);
    bench.send(UPLINK, &answer(MAC_A, A4));
    bench.send(UPLINK, &answer(MAC_B, B4));
    bench.send(B, &datagram(MAC_A, MAC_B, (B4, A4), 1));
    bench.run(bench.now + Nanos::from_secs(1));
    let frames = traced(&mut bench).frames;
    let peers = |wait| {
        let of = frames.iter().filter(move |frame| frame.wait == wait);
        of.map(|frame| frame.peer.expect("it is IP"))
            .collect::<Vec<_>>()
    };
    let [far, b]: [std::net::IpAddr; 2] = [FAR.into(), B4.into()];
    assert_eq!(peers(Wait::Limit), [far, far, far, far, b]);
    assert_eq!(peers(Wait::Uplink), [far; 4]);
    assert_eq!(peers(Wait::Port), [b]);
    assert_eq!(peers(Wait::Inward), [far, b]);
    let waited = frames
        .iter()
        .any(|frame| frame.wait == Wait::Limit && frame.released > frame.enqueued);
    assert!(waited, "{frames:?}");
    // Frames of a guaranteed guest to others here wait in the pacer.
    let mut bench = begun(100);
    bench.send(A, &a_to_b(1));
    bench.run(bench.now + Nanos::from_millis(1));
    let waits: Vec<_> = traced(&mut bench).frames;
    let waits: Vec<_> = waits.iter().map(|frame| frame.wait).collect();
    assert_eq!(waits, [Wait::Local, Wait::Port]);
}

#[test]
fn frames_lost_with_the_uplink_have_no_departure_in_the_trace() {
    let mut bench = begun(100);
    bench.wires[UPLINK].borrow_mut().room = Some(0);
    send(&mut bench, 2);
    bench.run(bench.now + Nanos::from_millis(1));
    bench.ports[UPLINK] = None;
    bench.run(bench.now + Nanos::from_millis(1));
    let (port, wire) = MemoryPort::new();
    bench.ports[UPLINK] = Some(Box::new(port));
    bench.wires[UPLINK] = wire;
    bench.switch.handle_opened(PortIndex(UPLINK));
    let back = bench.now;
    bench.send(A, &full(A, 2));
    bench.run(back + Nanos::from_millis(1));
    let taken = traced(&mut bench).frames;
    let taken: Vec<_> = taken.iter().map(|frame| frame.taken).collect();
    assert_eq!(taken[..2], [None, None]);
    assert!(taken[2] >= Some(back), "{taken:?}");
}
