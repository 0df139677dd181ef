//! Bursts: one look-up for a burst has the same results as one for each frame.

use super::harness::{LINK, Reach, Record, check_books, packet};
use super::*;
use proptest::prelude::*;

/// Frames of four guests, the last without a guarantee, to limited destinations, a closed
/// one and others, some of them here; short, full or to be cut.
fn frames() -> impl Strategy<Value = Vec<Record>> {
    let lens = prop_oneof![2 => Just(60), 6 => Just(1514), 1 => 1515..20_000_usize];
    let run = (0..4_u32, 0..5_u128, lens, 0..8_u8, 1..12_usize);
    prop::collection::vec(run, 0..8).prop_map(|runs| {
        let runs = runs.into_iter();
        let frames = runs.map(|(guest, destination, len, kind, count)| {
            let frame = Record {
                destination,
                takes_marks: kind % 2 == 0,
                reach: if kind == 7 {
                    Reach::Here
                } else {
                    Reach::Beyond
                },
                ..packet(0, guest, len)
            };
            std::iter::repeat_n(frame, count)
        });
        frames.flatten().collect()
    })
}

fn pacer() -> Pacer<Record> {
    let config = PacerConfig {
        memory: Bytes(2 << 20),
        ..PacerConfig::new(LINK)
    };
    let mut pacer = Pacer::with_keys(&config, HashKeys::FIXED).expect("sound");
    for (slot, mbit) in [(0, 100), (1, 1000), (2, 5000)] {
        let id = GuestId::first(slot);
        let guarantee = Guarantee::new(Rate::from_mbit(mbit), Bytes(15_000), LINK);
        let set = pacer.set_guest(Nanos::ZERO, id, Some(&guarantee));
        set.expect("sound");
        for (destination, mbit) in [(1, 50), (2, 400), (3, 0)] {
            let rate = Some(Rate::from_mbit(mbit));
            let set = pacer.set_destination(Nanos::ZERO, id, destination, rate);
            set.expect("sound");
        }
    }
    pacer
}

/// An item that was passed on: its frame, its departure or length, its begin, its waiting time, and
/// its mark.
type PassedItem = (u64, u64, u64, Nanos, bool);

/// All visible results of a pacer until `end`, with the guests whose rings may be read again.
fn seen(pacer: &mut Pacer<Record>, mut now: Nanos, end: Nanos) -> (Vec<PassedItem>, Vec<GuestId>) {
    let (mut seen, mut again) = (Vec::new(), Vec::new());
    loop {
        pacer.batch(now).for_each(|paced| {
            let (frame, departure, at, waited) = match paced {
                WireItem::Guaranteed {
                    frame,
                    departure,
                    at,
                    sojourn,
                } => (frame, departure.0, at.0, sojourn),
                WireItem::BestEffort { frame, at, sojourn } => (frame, 1, at.0, sojourn),
                WireItem::Elastic { frame, at, sojourn } => (frame, 2, at.0, sojourn),
                WireItem::Local {
                    frame,
                    departure,
                    sojourn,
                } => (frame, departure.0, 0, sojourn),
                WireItem::Void { wire, at } => {
                    return seen.push((0, wire.0, at.0, Nanos::ZERO, false));
                }
            };
            seen.push((frame.id, departure, at, waited, frame.marked));
        });
        pacer.drain_read_again(|guest| again.push(guest));
        match pacer.poll_at() {
            Some(at) if at < end => now = at.max(now),
            _ => return (seen, again),
        }
    }
}

/// Counters of the pacer and of each guest.
fn counted(pacer: &Pacer<Record>) -> (PacerStats, [Option<GuestStats>; 3]) {
    let of = |slot| pacer.guest_stats(GuestId::first(slot));
    (pacer.stats(), [0, 1, 2].map(of))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn frames_depart_as_if_they_had_come_one_by_one(
        bursts in prop::collection::vec((frames(), 1..300_u64), 1..12),
    ) {
        let (mut one_by_one, mut together) = (pacer(), pacer());
        let (mut now, mut id) = (Nanos::from_millis(1), 0);
        for (mut frames, micros) in bursts {
            for frame in &mut frames {
                id += 1;
                frame.id = id;
                one_by_one.enqueue(now, *frame);
            }
            let mut prepared = Vec::new();
            together.enqueue_burst(now, frames.iter().copied(), |frame, frame_guarantee, _| {
                prepared.push((frame.id, frame.guest, frame_guarantee == FrameGuarantee::BestEffort));
            });
            let each = frames.iter().map(|frame| (frame.id, frame.guest, frame.guest == 3));
            prop_assert_eq!(prepared, each.collect::<Vec<_>>());
            check_books(&together);
            let end = now + Nanos::from_micros(micros);
            prop_assert_eq!(seen(&mut one_by_one, now, end), seen(&mut together, now, end));
            prop_assert_eq!(counted(&one_by_one), counted(&together));
            now = end;
        }
    }
}
