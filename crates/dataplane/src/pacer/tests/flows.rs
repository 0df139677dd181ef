//! Flows of one line: their order, their shares, and the waiting of small ones.

use super::harness::{Host, LINK, Record, check_books, check_wire, conform, excess, frame};
use super::*;
use proptest::prelude::*;

const FULL: u64 = 1538;
/// A frame without data, on the wire.
const SHORT: u64 = 84;
const B: Rate = Rate::from_mbit(1000);
const S: u64 = 30_000;

/// A frame of one connection to destination 1.
fn of_flow(port: u16, id: u64, wire: u64) -> Record {
    Record {
        port,
        ..frame(id, 0, wire)
    }
}

/// A guest of 1 Gbit/s whose destination 1 has a limit of 100 Mbit/s, and an empty bucket.
fn host() -> Host {
    let guarantee = Guarantee::new(B, Bytes(S), LINK);
    let mut host = Host::new(&PacerConfig::strict(LINK), &[guarantee]);
    host.pacer
        .set_destination(host.now, GuestId::first(0), 1, Some(Rate::from_mbit(100)))
        .expect("sound");
    for id in 0..S / FULL {
        host.pacer.enqueue(host.now, of_flow(0, id, FULL));
    }
    host.run_until(Nanos::from_secs(1));
    for id in 0..S / FULL {
        host.pacer.enqueue(host.now, of_flow(0, id, FULL));
    }
    host.run_until(host.now + Nanos::from_micros(400));
    assert_eq!(host.pacer.waiting(), 0);
    host.sent.clear();
    host
}

#[test]
fn an_acknowledgement_waits_for_the_first_frame_of_its_line_only() {
    for flows in [1, 3, 12] {
        let mut host = host();
        for id in 0..120 {
            let port = (id % flows) as u16;
            host.pacer.enqueue(host.now, of_flow(port, id, FULL));
        }
        // Each flow of data has had its turn.
        host.run_until(host.now + Nanos::from_millis(3));
        let sent = host.of(0).count();
        for id in 0..10 {
            host.pacer.enqueue(host.now, of_flow(99, id, SHORT));
        }
        host.run_until(host.now + Nanos::from_secs(1));
        check_books(&host.pacer);
        let mut order = host.of(0).map(|(_, frame)| frame.port == 99);
        let first = order.position(|is_short| is_short).expect("it leaves");
        // One has a departure, and one may have been released.
        assert!(first <= sent + 2, "{first} of {sent} of {flows} flows");
        assert!(order.take(9).all(|is_short| is_short), "a quantum has room");
        assert_eq!(host.of(0).count(), 130, "nothing is lost");
    }
}

#[test]
fn flows_that_come_together_wait_for_a_quantum_of_each_other() {
    let mut host = host();
    for port in 0..12 {
        for id in 0..10 {
            host.pacer.enqueue(host.now, of_flow(port, id, FULL));
        }
    }
    host.pacer.enqueue(host.now, of_flow(99, 0, SHORT));
    host.run_until(host.now + Nanos::from_secs(1));
    let mut frames = host.of(0);
    let first = frames.position(|(_, frame)| frame.port == 99);
    let first = first.expect("it leaves");
    assert!(first <= 2 + 12, "{first} frames of 12 flows");
}

/// A flow that always has one waiting frame is new whenever its last one has left.
#[test]
fn a_flow_of_single_frames_does_not_starve_the_others() {
    let mut host = host();
    for id in 0..100 {
        host.pacer.enqueue(host.now, of_flow(1, id, FULL));
    }
    let (mut id, mut seen) = (0, 0);
    let end = host.now + Nanos::from_millis(20);
    while host.now < end {
        let left = host.of(0).filter(|(_, frame)| frame.port == 2).count();
        while id - seen < 1 || left as u64 == id {
            host.pacer.enqueue(host.now, of_flow(2, id, FULL));
            id += 1;
            seen = left as u64;
        }
        host.run_until(host.now + Nanos::from_micros(20));
    }
    let count = |port| host.of(0).filter(|(_, frame)| frame.port == port).count();
    let (bulk, single) = (count(1), count(2));
    // 100 Mbit/s for 20 ms, and the tokens of the bucket.
    assert!((155..=170).contains(&(bulk + single)), "{bulk} + {single}");
    assert!(bulk.abs_diff(single) <= 3, "{bulk} and {single}");
}

#[test]
fn backlogged_flows_get_equal_bytes_for_any_lengths_of_their_frames() {
    let mut host = host();
    for id in 0..60 {
        host.pacer.enqueue(host.now, of_flow(1, id, FULL));
    }
    for id in 0..300 {
        host.pacer.enqueue(host.now, of_flow(2, id, 300));
    }
    host.run_until(host.now + Nanos::from_millis(8));
    let bytes = |port| {
        let frames = host.of(0).filter(|(_, frame)| frame.port == port);
        frames.map(|(sent, _)| sent.wire).sum::<u64>()
    };
    assert!(bytes(1) > 30 * FULL, "{}", bytes(1));
    assert!(
        bytes(1).abs_diff(bytes(2)) <= 2 * FULL,
        "{} and {}",
        bytes(1),
        bytes(2)
    );
}

#[test]
fn a_full_line_loses_frames_of_its_largest_flow() {
    let mut host = host();
    for id in 0..40 {
        host.pacer.enqueue(host.now, of_flow(7, id, SHORT));
    }
    for id in 0..2000 {
        host.pacer.enqueue(host.now, of_flow(1, id, FULL));
    }
    check_books(&host.pacer);
    let dropped = host.pacer.stats().drops.over_share;
    assert!(dropped > 1000, "{dropped}");
    host.run_until(host.now + Nanos::from_secs(2));
    let small = host.of(0).filter(|(_, frame)| frame.port == 7).count();
    assert_eq!(small, 40, "a small flow loses nothing");
    assert_eq!(host.of(0).count() as u64 + dropped, 2040, "all are counted");
}

/// `CoDel` judges each flow by itself: acknowledgements that never wait do not hide the data that do.
#[test]
fn codel_judges_each_flow_of_a_line_by_itself() {
    let mut host = host();
    let start = host.now;
    let takes_no_marks = |record: Record| Record {
        takes_marks: false,
        ..record
    };
    for id in 0..8000 {
        // 150 % of the limit.
        let at = start + Rate::from_mbit(150).time_for(Bytes(id * FULL));
        host.ring(0, at, takes_no_marks(of_flow(1, id, FULL)));
        host.ring(0, at, takes_no_marks(of_flow(2, id, SHORT)));
    }
    host.run_until(start + Nanos::from_secs(2));
    let judged = host.pacer.stats().drops.over_delay;
    assert!(judged > 20, "{judged}");
    let short = host.of(0).filter(|(_, frame)| frame.port == 2).count();
    assert_eq!(short, 8000, "it does not wait");
    assert_eq!(host.of(0).count() as u64 + host.dropped(), 16_000);
}

/// Frames of flows to one destination or to all others, with gaps.
fn offered() -> impl Strategy<Value = Vec<(u16, u64, u64, bool)>> {
    let wire = prop_oneof![Just(SHORT), Just(FULL), SHORT..=FULL];
    proptest::collection::vec((0..40_u16, wire, 0..30_u64, any::<bool>()), 1..400)
}

/// Sends frames, and returns the host.
fn sent(offered: &[(u16, u64, u64, bool)], one_flow: bool) -> Host {
    let mut host = host();
    let mut at = host.now;
    for (id, &(port, wire, gap, is_limited)) in (0..).zip(offered) {
        at += Nanos(gap * 1000);
        let port = if one_flow { 0 } else { port };
        let record = Record {
            destination: if is_limited { 1 } else { 2 },
            ..of_flow(port, id, wire)
        };
        host.ring(0, at, record);
    }
    for turn in 0..2000 {
        host.turn();
        host.now += Nanos::from_micros(10);
        if turn % 50 == 0 {
            check_books(&host.pacer);
        }
    }
    host.run_until(host.now + Nanos::from_secs(20));
    check_books(&host.pacer);
    host
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// For any flows: no frame is lost, each flow keeps its order, and all curves hold.
    #[test]
    fn flows_keep_their_order_and_the_line_its_curves(offered in offered()) {
        let host = sent(&offered, false);
        prop_assert_eq!(host.of(0).count() as u64 + host.dropped(), offered.len() as u64);
        for port in 0..40 {
            for destination in [1, 2] {
                let flow = host.of(0).filter(|(_, frame)| {
                    (frame.port, frame.destination) == (port, destination)
                });
                prop_assert!(flow.map(|(_, frame)| frame.id).is_sorted());
            }
        }
        let departures = |destination: Option<u128>| {
            let frames = host.of(0).filter(move |(_, frame)| destination.is_none_or(|d| d == frame.destination));
            frames.map(|(sent, _)| (sent.departure.expect("guaranteed"), sent.wire)).collect::<Vec<_>>()
        };
        let guarantee = Guarantee::new(B, Bytes(S), LINK);
        conform(&PacerConfig::strict(LINK), &guarantee, &departures(None));
        let over = excess(LINK, Rate::from_mbit(100), S + 2 * FULL, departures(Some(1)).into_iter());
        prop_assert!(over < 2 * super::harness::ROUNDING, "{}", over);
        check_wire(&host.sent);
    }

    /// The line works as long as it has frames, and at the same times: with frames of one length
    /// the departures are those of a single flow.
    #[test]
    fn flows_change_no_departure_of_their_line(offered in offered()) {
        let offered: Vec<_> = offered.into_iter().map(|(port, _, gap, is_limited)| {
            (port, FULL, gap, is_limited)
        }).collect();
        let departures = |host: &Host| {
            let frames = host.of(0);
            frames.map(|(sent, frame)| (sent.departure, frame.destination)).collect::<Vec<_>>()
        };
        prop_assert_eq!(departures(&sent(&offered, false)), departures(&sent(&offered, true)));
    }
}
