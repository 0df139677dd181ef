//! Queues by destination: their effect on each other, and their memory.

use super::harness::{
    Host, LINK, ROUNDING, Record, check_books, check_wire, conform, excess, frame,
};
use super::*;
use proptest::prelude::*;
use std::cell::Cell;

const FULL: u64 = 1538;
const B: Rate = Rate::from_mbit(1000);

fn to(destination: u128, id: u64, wire: u64) -> Record {
    Record {
        destination,
        ..frame(id, 0, wire)
    }
}

fn limit(host: &mut Host, destination: u128, rate: Rate) {
    let now = host.now;
    host.pacer
        .set_destination(now, GuestId::first(0), destination, Some(rate))
        .expect("sound");
}

/// A guest of 1 Gbit/s with these limits in Mbit/s, of destinations from 1 on.
fn host(limits: &[u64]) -> Host {
    let guarantee = Guarantee::new(B, Bytes(30_000), LINK);
    let mut host = Host::new(&PacerConfig::strict(LINK), &[guarantee]);
    for (destination, mbit) in (1..).zip(limits) {
        limit(&mut host, destination, Rate::from_mbit(*mbit));
    }
    // Buckets fill.
    host.now += Nanos::from_secs(1);
    host
}

/// Returns the departing traffic in a second, in Mbit/s by destination, if the guest offers 2
/// Gbit/s of full frames, in runs of `run` to each destination in turn.
fn offered_in_runs(host: &mut Host, run: u64, millis: u64) -> Vec<f64> {
    let start = host.now;
    let frames = Rate::from_mbit(2000).bytes_in(Nanos::from_millis(millis)).0 / FULL;
    for id in 0..frames {
        let at = start + Rate::from_mbit(2000).time_for(Bytes(id * FULL));
        host.ring(0, at, to(1 + u128::from(id / run % 8), id, FULL));
    }
    host.run_until(start + Nanos::from_millis(millis));
    check_books(&host.pacer);
    // Bursts are over after a tenth.
    let from = LINK
        .bytes_in(start.saturating_add(Nanos::from_millis(millis / 10)))
        .0;
    let to = LINK.bytes_in(host.now).0;
    (1..=8)
        .map(|destination| {
            let frames = host.of(0).filter(|(sent, frame)| {
                frame.destination == destination && (from..to).contains(&sent.at)
            });
            let bytes: u64 = frames.map(|(sent, _)| sent.wire).sum();
            bytes as f64 * LINK.0 as f64 / 1e6 / (to - from) as f64
        })
        .collect()
}

/// The table in docs/explanation/dataplane.md: `cargo test -p tailbound-dataplane --lib
/// slow_closed_and_silent -- --nocapture`.
#[test]
fn slow_closed_and_silent_destinations_cost_the_others_nothing() {
    let rows: [(&str, [u64; 8]); 4] = [
        ("eight equal", [125; 8]),
        ("one of 1 Mbit/s", [1, 143, 143, 143, 143, 143, 142, 142]),
        ("one closed", [0, 143, 143, 143, 143, 143, 143, 142]),
        ("three slower", [10, 20, 50, 184, 184, 184, 184, 184]),
    ];
    for (name, limits) in rows {
        let mut got = Vec::new();
        for run in [1, 8, 44] {
            let mut host = host(&limits);
            if limits[0] == 0 {
                // Its bucket is spent.
                for id in 0..20 {
                    host.ring(0, host.now, to(1, id, FULL));
                }
                host.run_until(host.now + Nanos::from_millis(100));
            }
            let rates = offered_in_runs(&mut host, run, 300);
            for (rate, limit) in rates.iter().zip(limits) {
                let least = 0.98 * limit as f64;
                assert!(*rate >= least, "{name}, {run}: {rates:?} of {limits:?}");
            }
            let all = limits.iter().sum::<u64>() as f64;
            let share = 100.0 * rates.iter().sum::<f64>() / all;
            assert!(share >= 99.0, "{name}, runs of {run}: {share} %");
            got.push(format!("{share:.1} %"));
        }
        println!("| {name} | {} |", got.join(" | "));
    }
}

#[test]
fn destinations_that_contend_get_shares_as_their_rates() {
    let mut host = host(&[900, 300, 600]);
    let mut before = 0;
    // Independent of `is_read`: all three are backlogged.
    for id in 0..30_000 {
        host.pacer
            .enqueue(host.now, to(1 + u128::from(id % 3), id, FULL));
        if id % 200 == 0 {
            host.run_until(host.now + Nanos::from_millis(1));
        }
        if id == 10_000 {
            before = host.sent.len();
        }
    }
    for (destination, share) in [(1, 500), (2, 167), (3, 333)] {
        let sent = host.sent[before..].iter().filter(|sent| {
            sent.frame
                .is_some_and(|frame| frame.destination == destination)
        });
        let mbit = sent.map(|sent| sent.wire).sum::<u64>() * 8 / 99_000;
        assert!(mbit.abs_diff(share) <= 10, "{mbit} of {share} Mbit/s");
    }
}

#[test]
fn a_thousand_closed_destinations_leave_room_for_one_that_is_open() {
    let mut host = host(&[500]);
    for destination in 2..1002 {
        limit(&mut host, destination, Rate(0));
    }
    host.now += Nanos::from_secs(1);
    // A burst is 19 frames: three more to each.
    for id in 0..22_000 {
        host.ring(0, host.now, to(2 + u128::from(id % 1000), id, FULL));
    }
    host.run_until(host.now + Nanos::from_secs(1));
    check_books(&host.pacer);
    let before = host.sent.len();
    for id in 0..2000 {
        host.ring(0, host.now + Nanos(id * 30_000), to(1, id, FULL));
    }
    host.run_until(host.now + Nanos::from_millis(100));
    let sent = host.sent[before..]
        .iter()
        .filter(|sent| sent.frame.is_some());
    assert_eq!(sent.count(), 2000);
    check_books(&host.pacer);
}

#[test]
fn a_destination_over_its_share_is_marked_and_drops_oldest_frames() {
    let mut host = host(&[1]);
    host.pacer
        .set_guest(
            host.now,
            GuestId::first(0),
            Some(&Guarantee {
                mark: None,
                ..*host.pacer.guarantee(GuestId::first(0)).expect("guaranteed")
            }),
        )
        .expect("sound");
    for id in 0..1000 {
        host.ring(0, host.now, to(1, id, FULL));
    }
    host.run_until(host.now + Nanos::from_millis(5));
    assert!(host.rings[0].is_empty(), "nothing is left in the ring");
    let stats = host
        .pacer
        .guest_stats(GuestId::first(0))
        .expect("guaranteed");
    // A quarter of the guest's memory for 20 ms.
    let waiting = host.pacer.waiting() as u64;
    assert!((350..410).contains(&waiting), "{waiting}");
    host.run_until(host.now + Nanos::from_secs(30));
    let sent: Vec<_> = host.of(0).map(|(_, frame)| frame).collect();
    assert!(sent.is_sorted_by_key(|frame| frame.id));
    assert_eq!(sent.len() as u64 + stats.dropped, 1000);
    assert_eq!(
        sent.last().map(|frame| frame.id),
        Some(999),
        "the newest stay"
    );
    assert!(sent.last().is_some_and(|frame| frame.marked));
    assert!(stats.marked > 500);
}

#[test]
fn a_backlogged_destination_is_shortened_by_codel() {
    let mut host = host(&[50]);
    // 100 Mbit/s without end: within its share it could wait 70 ms.
    for id in 0..20_000 {
        host.ring(0, host.now + Nanos(id * 123_000), to(1, id, FULL));
    }
    let last = host.now + Nanos::from_secs(2);
    host.run_until(last);
    let stats = host.pacer.stats();
    assert!(stats.drops.over_delay == 0, "all take marks: {stats:?}");
    let marked = host.of(0).filter(|(_, frame)| frame.marked).count();
    assert!(marked > 100, "{marked}");
}

/// A random history of one guest with limits, and of another without.
#[derive(Debug, Clone)]
struct LimitsHistory {
    limits: Vec<u64>,
    b: u64,
    s: u64,
    peak: u64,
    frames: Vec<(u128, u64, u64)>,
    /// Frames for the closed one, each before a frame of the others.
    closed: Vec<usize>,
}

fn offered() -> impl Strategy<Value = LimitsHistory> {
    let limits = proptest::collection::vec(1..800_u64, 1..6);
    let frames = proptest::collection::vec((1..8_u128, 84..=FULL, 0..60_u64), 1..250);
    (limits, 50..2000_u64, FULL..40_000, 0..=100_u64, frames)
        .prop_flat_map(|(limits, b, s, above, frames)| {
            let closed = proptest::collection::vec(0..frames.len(), 0..120);
            (Just((limits, b, s, above, frames)), closed)
        })
        .prop_map(|((limits, b, s, above, frames), closed)| LimitsHistory {
            limits,
            b,
            s,
            peak: b + (10_000 - b) * above / 100,
            frames,
            closed,
        })
}

const CLOSED: u128 = 99;

/// Departures in a loop with a turn every 10 us, with or without frames for the closed destination.
fn departures(offered: &LimitsHistory, with_closed: bool) -> Host {
    let guarantee = Guarantee {
        mark: None,
        ..Guarantee::new(
            Rate::from_mbit(offered.b),
            Bytes(offered.s),
            Rate::from_mbit(offered.peak),
        )
    };
    let mut host = Host::new(&PacerConfig::strict(LINK), &[guarantee, guarantee]);
    for (destination, mbit) in (1..).zip(&offered.limits) {
        limit(&mut host, destination, Rate::from_mbit(*mbit));
    }
    limit(&mut host, CLOSED, Rate(0));
    for id in 0..40 {
        host.ring(0, host.now, to(CLOSED, 1_000_000 + id, FULL));
    }
    host.run_until(Nanos::from_secs(5));
    let mut at = host.now;
    let (guest, closed) = (Cell::new(0), offered.closed.iter());
    for (n, (id, (destination, wire, gap))) in (0..).zip(&offered.frames).enumerate() {
        at += Nanos(gap * 1000);
        let here = closed.clone().filter(|place| **place == n);
        for _ in here.filter(|_| with_closed) {
            host.ring(0, at, to(CLOSED, id, FULL));
        }
        guest.set(u32::from(*destination == 7));
        let frame = Record {
            guest: guest.get(),
            ..to(*destination, id, *wire)
        };
        host.ring(guest.get() as usize, at, frame);
    }
    for _ in 0..3000 {
        host.turn();
        host.now += Nanos::from_micros(10);
    }
    host.run_until(host.now + Nanos::from_secs(20));
    check_books(&host.pacer);
    host
}

/// Ten thousand times slower than the guest's other traffic, whose line is never empty.
#[test]
fn the_slowest_destination_has_its_turns_beside_a_backlog() {
    let mut host = host(&[]);
    limit(&mut host, 1, Rate(100_000));
    let start = host.now;
    let count = |rate: Rate| rate.bytes_in(Nanos::from_secs(1)).0 / FULL;
    for id in 0..count(Rate::from_mbit(2000)) {
        let at = start + Rate::from_mbit(2000).time_for(Bytes(id * FULL));
        host.ring(0, at, to(2, id, FULL));
    }
    // Within its burst and its rate: these frames wait only for turns.
    for id in 0..16 {
        let at = start + Nanos::from_millis(10 + 50 * id);
        host.pacer.enqueue(host.now, to(1, id, FULL));
        host.run_until(at);
    }
    host.run_until(start + Nanos::from_secs(1));
    let sent = |destination| {
        host.of(0)
            .filter(move |(_, frame)| frame.destination == destination)
    };
    assert_eq!(sent(1).count(), 16);
    assert!(sent(2).count() as u64 >= count(B) * 99 / 100);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// A destination with rate 0 whose burst is spent changes no other departure.
    #[test]
    fn a_closed_destination_changes_no_departure_of_another(offered in offered()) {
        let of = |host: &Host| -> Vec<_> {
            let sent = host.sent.iter().filter_map(|sent| Some((sent.departure?, sent.frame?)));
            sent.filter(|(_, frame)| frame.destination != CLOSED).collect()
        };
        prop_assert_eq!(of(&departures(&offered, true)), of(&departures(&offered, false)));
    }

    /// Every prefix conforms to the whole chain, and each flow keeps its order.
    #[test]
    fn every_prefix_conforms_to_the_whole_chain(offered in offered()) {
        let host = departures(&offered, true);
        let guarantee = Guarantee::new(
            Rate::from_mbit(offered.b), Bytes(offered.s), Rate::from_mbit(offered.peak),
        );
        let departures = |destination: Option<u128>, guest: u32| -> Vec<_> {
            let frames = host.of(guest).filter(|(_, frame)| destination.is_none_or(|d| d == frame.destination));
            frames.map(|(sent, _)| (sent.departure.expect("guaranteed"), sent.wire)).collect()
        };
        for guest in 0..2 {
            conform(&PacerConfig::strict(LINK), &guarantee, &departures(None, guest));
        }
        for (destination, mbit) in (1..).zip(&offered.limits) {
            // At its turn a frame may be later than its release: by one frame, and by
            // one more until it departs.
            let over = excess(
                LINK, Rate::from_mbit(*mbit), offered.s + 2 * FULL,
                departures(Some(destination), 0).into_iter(),
            );
            prop_assert!(over < 2 * ROUNDING, "{}", over);
            let flow = host.of(0).filter(|(_, frame)| frame.destination == destination);
            prop_assert!(flow.map(|(_, frame)| frame.id).is_sorted());
        }
        check_wire(&host.sent);
    }

    /// Memory is never above its bounds for any senders and destinations; and the accounts agree.
    #[test]
    fn memory_is_never_above_its_bounds(
        steps in proptest::collection::vec((0..9_u8, 0..3_u32, 0..60_u128, 84..=60_000_u64), 1..400),
        memory in 1..8_u64,
    ) {
        let config = PacerConfig { memory: Bytes(memory << 20), ..PacerConfig::strict(LINK) };
        let guarantee = Guarantee::new(Rate::from_mbit(100), Bytes(20_000), LINK);
        let mut host = Host::new(&config, &[guarantee; 3]);
        for destination in 0..40 {
            limit(&mut host, destination, Rate::from_mbit(if destination < 30 { 0 } else { 3 }));
        }
        for (id, (kind, guest, destination, amount)) in (0..).zip(steps) {
            match kind {
                0..6 => for _ in 0..kind {
                    // Independent of `is_read`.
                    let record = Record { len: amount as usize, destination, ..frame(id, guest, 84) };
                    host.pacer.enqueue(host.now, record);
                },
                6 => host.run_until(host.now + Nanos(amount * 20)),
                7 => {
                    let rate = Rate(amount % 3 * 1_000_000);
                    let set = host.pacer.set_destination(host.now, GuestId::first(guest), destination, Some(rate));
                    prop_assert_eq!(set, Ok(()));
                }
                _ => {
                    let set = host.pacer.set_destination(host.now, GuestId::first(guest), destination, None);
                    prop_assert_eq!(set, Ok(()));
                }
            }
            check_books(&host.pacer);
            prop_assert!(host.pacer.memory() <= config.memory);
        }
    }
}
