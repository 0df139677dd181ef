//! Limits by destination.

use super::harness::{Host, LINK, ROUNDING, Record, SentItem, check_wire, excess, frame};
use super::*;
use proptest::prelude::*;
use tailbound_units::Position;

fn to(destination: u128, id: u64, wire: u64) -> Record {
    Record {
        destination,
        ..frame(id, 0, wire)
    }
}

fn host(limits: &[(u128, u64)]) -> Host {
    let b = Rate::from_mbit(1000);
    let guarantee = Guarantee {
        mark: None,
        ..Guarantee::new(b, Bytes(3076), b)
    };
    let mut host = Host::new(&PacerConfig::strict(LINK), &[guarantee]);
    for &(destination, mbit) in limits {
        host.pacer
            .set_destination(
                host.now,
                GuestId::first(0),
                destination,
                Some(Rate::from_mbit(mbit)),
            )
            .expect("sound");
    }
    host
}

/// Bits per second to a destination, from its tenth frame on.
fn rate(host: &Host, destination: u128) -> u64 {
    let frames: Vec<_> = host
        .of(0)
        .filter(|(_, frame)| frame.destination == destination)
        .map(|(sent, _)| (sent.at, sent.wire))
        .collect();
    let steady = &frames[10..];
    let bytes: u64 = steady[1..].iter().map(|(_, wire)| wire).sum();
    bytes * LINK.0 / (steady[steady.len() - 1].0 - steady[0].0)
}

#[test]
fn each_destination_gets_its_rate_and_a_slow_one_holds_up_no_other() {
    let mut host = host(&[(1, 100), (2, 300), (3, 600)]);
    // Rings are in order of coming; each destination's share is as its rate.
    for id in 0..6000 {
        let destination = match id % 10 {
            0 => 1,
            1..4 => 2,
            _ => 3,
        };
        host.ring(0, host.now, to(destination, id, 1538));
    }
    host.run_until(Nanos::from_secs(1));
    check_wire(&host.sent);
    for (destination, mbit) in [(1, 100), (2, 300), (3, 600)] {
        let got = rate(&host, destination);
        assert!(
            got.abs_diff(mbit * 1_000_000) < mbit * 5_000,
            "{destination}: {got}"
        );
    }
}

#[test]
fn a_destination_without_a_limit_goes_past_one_that_waits() {
    let mut host = host(&[(1, 1)]);
    for id in 0..3 {
        host.ring(0, host.now, to(1, id, 1538));
        host.ring(0, host.now, to(2, 10 + id, 1538));
    }
    host.pacer
        .set_guest(
            host.now,
            GuestId::first(0),
            Some(&Guarantee {
                horizon: Nanos::from_millis(50),
                ..*host.pacer.guarantee(GuestId::first(0)).expect("guaranteed")
            }),
        )
        .expect("sound");
    host.run_until(Nanos::from_secs(1));
    let ids: Vec<_> = host.of(0).map(|(_, frame)| frame.id).collect();
    // Turns are weighted: the guest's whole rate beside a thousandth of it.
    assert_eq!(ids, [0, 10, 11, 1, 12, 2]);
}

#[test]
fn the_guest_rate_holds_when_destination_rates_exceed_it() {
    let mut host = host(&[(1, 900), (2, 900), (3, 900)]);
    for id in 0..3000 {
        host.ring(
            0,
            host.now,
            to(1 + u128::from(id % 3), id, 84 + id * 7 % 1455),
        );
    }
    host.run_until(Nanos::from_secs(1));
    let departures = host
        .of(0)
        .map(|(sent, _)| (sent.departure.expect("guaranteed"), sent.wire));
    assert!(excess(LINK, Rate::from_mbit(1000), 3076, departures) < ROUNDING);
    assert_eq!(host.of(0).count(), 3000);
}

#[test]
fn a_flow_keeps_its_order_when_its_limit_goes_and_comes_back() {
    let mut host = host(&[(1, 10), (2, 10)]);
    let mut id = 0;
    for round in 0..60 {
        for _ in 0..3 {
            for destination in [1, 2, 3] {
                host.ring(0, host.now, to(destination, id, 800));
                id += 1;
            }
        }
        let rate = (round % 3 != 0).then(|| Rate::from_mbit(5 + 40 * (round % 7)));
        let now = host.now;
        host.pacer
            .set_destination(now, GuestId::first(0), 1 + u128::from(round % 2), rate)
            .expect("sound");
        host.run_until(now + Nanos::from_micros(700));
    }
    host.run_until(Nanos::from_secs(5));
    assert_eq!(host.of(0).count() as u64, id);
    for destination in [1, 2, 3] {
        let ids = host
            .of(0)
            .filter(|(_, frame)| frame.destination == destination);
        assert!(ids.map(|(_, frame)| frame.id).is_sorted());
    }
}

fn uses(host: &mut Host) -> Vec<(u128, u64, bool)> {
    let mut uses = Vec::new();
    host.pacer.destinations_used(host.now, |used| {
        assert_eq!(used.flow.source, GuestId::first(0));
        uses.push((used.flow.destination, used.taken.0, used.backlogged));
    });
    uses.sort_unstable();
    uses
}

#[test]
fn a_destination_is_named_while_it_is_used_and_while_its_frames_wait() {
    let mut host = host(&[(1, 100), (2, 300), (3, 600)]);
    assert_eq!(uses(&mut host), []);
    // A burst of two frames is free; the third waits 123 us for its limit.
    for (id, destination) in [(0, 1), (1, 1), (2, 1), (3, 2), (4, 4)] {
        host.ring(0, host.now, to(destination, id, 1538));
    }
    host.turn();
    host.run_until(host.now + Nanos::from_micros(90));
    assert_eq!(uses(&mut host), [(1, 2 * 1538, true), (2, 1538, false)]);
    host.now += Nanos::from_micros(1);
    assert_eq!(uses(&mut host), [(1, 0, true)]);
    host.run_until(host.now + Nanos::from_millis(1));
    // The flow waited recently, and does no longer.
    assert_eq!(uses(&mut host), [(1, 1538, true)]);
    assert_eq!(uses(&mut host), []);
}

#[test]
fn a_flow_is_named_with_its_first_frame_that_waits_and_once_a_query() {
    let mut host = host(&[(1, 100), (2, 300)]);
    let waits = |host: &mut Host| -> Vec<_> {
        let flows = host.pacer.flows_that_wait();
        flows.map(|waiting| waiting.flow.destination).collect()
    };
    for (id, destination) in [(0, 1), (1, 1), (2, 2)] {
        host.ring(0, host.now, to(destination, id, 1538));
    }
    host.turn();
    assert_eq!(waits(&mut host), []);
    // The burst is two frames.
    for id in 3..20 {
        host.ring(0, host.now, to(1, id, 1538));
    }
    host.turn();
    assert_eq!(waits(&mut host), [1]);
    host.run_until(host.now + Nanos::from_millis(1));
    // It still waits, as a query of its use shows.
    assert!(uses(&mut host)[0].2);
    host.run_until(host.now + Nanos::from_micros(200));
    assert_eq!(waits(&mut host), []);
    host.run_until(host.now + Nanos::from_millis(5));
    uses(&mut host);
    uses(&mut host);
    for id in 20..23 {
        host.ring(0, host.now, to(1, id, 1538));
    }
    host.turn();
    assert_eq!(waits(&mut host), [1]);
}

fn lacks(host: &mut Host) -> Vec<(u128, u64)> {
    let mut lacks = Vec::new();
    host.pacer.destinations_used(host.now, |used| {
        lacks.push((used.flow.destination, used.lacks.0));
    });
    lacks.sort_unstable();
    lacks
}

#[test]
fn a_destination_is_named_until_its_bucket_is_full_again() {
    let mut host = host(&[(1, 100)]);
    limit(&mut host, 2, Some(Rate(0)));
    for (id, destination) in [(0, 1), (1, 1), (2, 2)] {
        host.ring(0, host.now, to(destination, id, 1538));
    }
    host.turn();
    host.run_until(host.now + Nanos::from_micros(100));
    // 123 us for each frame; what is closed does not fill.
    let [(1, first), (2, 1538)] = lacks(&mut host)[..] else {
        panic!("both lack something");
    };
    assert!((1538..=2 * 1538 - 1000).contains(&first), "{first}");
    host.now += Nanos::from_micros(200);
    assert_eq!(lacks(&mut host), [(1, 0), (2, 1538)]);
    assert_eq!(lacks(&mut host), [(2, 1538)]);
    limit(&mut host, 2, Some(Rate::from_mbit(100)));
    host.now += Nanos::from_micros(124);
    assert_eq!(lacks(&mut host), [(2, 0)]);
    assert_eq!(lacks(&mut host), []);
    // Also if the limit was another pacer's before, which reported its level.
    host.pacer.empty_buckets(host.now, GuestId::first(0));
    assert_eq!(lacks(&mut host), [(1, 3076), (2, 3076)]);
}

fn limit(host: &mut Host, destination: u128, rate: Option<Rate>) {
    let now = host.now;
    host.pacer
        .set_destination(now, GuestId::first(0), destination, rate)
        .expect("sound");
}

#[test]
fn a_closed_destination_takes_its_burst_and_asks_for_a_rate() {
    let mut host = host(&[]);
    limit(&mut host, 1, Some(Rate(0)));
    // S is 3076 B, a message that does not wait.
    for id in 0..4 {
        host.ring(0, host.now, to(1, id, 1538));
    }
    host.run_until(Nanos::from_secs(1));
    assert_eq!((host.of(0).count(), host.pacer.waiting()), (2, 2));
    assert!(host.pacer.is_read(GuestId::first(0)));
    // Frames that wait for a rate cause no wake-up.
    assert_eq!(host.pacer.poll_at(), None);
    host.pacer.destinations_used(host.now, |used| {
        let FlowUse {
            rate,
            taken,
            backlogged,
            ..
        } = used;
        assert_eq!((rate, taken.0, backlogged), (Rate(0), 3076, true));
    });
    assert_eq!(uses(&mut host), [(1, 0, true)]);
    // Other destinations do not wait for it.
    host.ring(0, host.now, to(2, 8, 1538));
    host.run_until(host.now + Nanos::from_millis(1));
    assert_eq!(host.of(0).count(), 3);
    // A frame each 12.3 us, the first when it has been earned.
    limit(&mut host, 1, Some(Rate::from_mbit(1000)));
    let start = host.pacer.core.chain.wire.position().0;
    let before = host.sent.len();
    host.run_until(host.now + Nanos::from_millis(5));
    let departures = host.sent[before..].iter().filter_map(|sent| sent.departure);
    assert_eq!(
        departures.collect::<Vec<_>>(),
        [start + 15_380, start + 30_760]
    );
}

#[test]
fn segments_of_a_large_packet_go_to_a_closed_destination_as_far_as_its_burst() {
    let mut host = host(&[]);
    let more = Guarantee::new(LINK, Bytes(20_000), LINK);
    host.pacer
        .set_guest(host.now, GuestId::first(0), Some(&more))
        .expect("sound");
    host.now += Nanos::from_secs(1);
    limit(&mut host, 1, Some(Rate(0)));
    let large = Record {
        len: 30_000,
        ..to(1, 7, 1538)
    };
    host.ring(0, host.now, large);
    host.run_until(Nanos::from_secs(2));
    assert_eq!((host.of(0).count(), host.pacer.waiting()), (13, 8));
}

#[test]
fn a_limit_lowered_to_zero_stops_frames_at_once() {
    let mut host = host(&[(1, 100)]);
    let large = Record {
        len: 60_000,
        ..to(1, 7, 1538)
    };
    host.ring(0, host.now, large);
    host.run_until(host.now + Nanos::from_millis(1));
    // A burst, and one each 123 us.
    let sent = host.of(0).count();
    assert_eq!(sent, 2 + 8);
    limit(&mut host, 1, Some(Rate(0)));
    host.run_until(Nanos::from_secs(1));
    assert_eq!(host.of(0).count(), sent);
    limit(&mut host, 1, Some(Rate::from_mbit(100)));
    host.run_until(Nanos::from_secs(2));
    assert_eq!(host.of(0).count(), 42);
    let sent = host.of(0).map(|(sent, _)| (sent.at, sent.wire));
    assert!(excess(LINK, Rate::from_mbit(100), 3076, sent) < ROUNDING);
}

#[test]
fn a_destination_is_not_closed_and_opened_for_a_burst() {
    let mut host = host(&[(1, 100)]);
    for id in 0..300 {
        host.ring(0, host.now, to(1, id, 1538));
    }
    for round in 0..100_u64 {
        let rate = Rate::from_mbit(if round % 2 == 0 { 0 } else { 100 });
        limit(&mut host, 1, Some(rate));
        host.run_until(host.now + Nanos::from_micros(400));
    }
    limit(&mut host, 1, Some(Rate::from_mbit(100)));
    host.run_until(Nanos::from_secs(1));
    let sent: Vec<_> = host.of(0).map(|(sent, _)| (sent.at, sent.wire)).collect();
    assert_eq!(sent.len(), 300);
    let over = excess(LINK, Rate::from_mbit(100), 3076, sent.iter().copied());
    assert!(over < ROUNDING, "{over}");
}

#[test]
fn a_large_packet_at_a_tiny_rate_leaves_when_the_rate_is_raised() {
    let mut host = host(&[]);
    limit(&mut host, 1, Some(Rate(10_000)));
    let large = Record {
        len: 60_000,
        ..to(1, 7, 1538)
    };
    host.pacer.enqueue(host.now, large);
    host.run_until(Nanos::from_millis(2));
    assert_eq!(host.of(0).count(), 2);
    limit(&mut host, 1, Some(Rate::from_mbit(100)));
    // 61 KB at 100 Mbit/s.
    host.run_until(Nanos::from_millis(7));
    assert_eq!(host.of(0).count(), 42);
    check_wire(&host.sent);
}

#[test]
fn a_flow_whose_limit_comes_and_goes_keeps_its_order_and_obeys_at_once() {
    let mut host = host(&[(1, 1)]);
    let send = |host: &mut Host, id| host.pacer.enqueue(host.now, to(1, id, 1538));
    let large = Record {
        len: 6000,
        ..to(1, 0, 1538)
    };
    host.pacer.enqueue(host.now, large);
    limit(&mut host, 1, Some(Rate::from_mbit(500)));
    send(&mut host, 3);
    limit(&mut host, 1, None);
    send(&mut host, 4);
    // Those that have not left wait for it, too; its bucket is full.
    limit(&mut host, 1, Some(Rate(10_000)));
    host.run_until(Nanos::from_millis(2));
    let ids = |host: &Host| host.of(0).map(|(_, frame)| frame.id).collect::<Vec<_>>();
    assert_eq!(ids(&host), [0; 3]);
    host.run_until(Nanos::from_secs(20));
    assert_eq!(ids(&host), [0, 0, 0, 0, 0, 3, 4]);
}

/// Returns the maximum by which frames exceed their burst under changing rates, each from its
/// position on: in bytes times the link's rate.
fn excess_of_steps(rates: &[(Position, Rate)], flow: &[(SentItem, Record)]) -> i128 {
    let (mut earned, mut at, mut sent) = (0_i128, rates[0].0, 0_i128);
    let (mut least, mut open, mut next) = (0, rates[0].1, 1);
    let mut worst = i128::MIN;
    for (frame, _) in flow {
        let departure = Position(frame.departure.expect("guaranteed"));
        loop {
            let step = rates.get(next);
            let until = step.map_or(departure, |(from, _)| departure.min(*from));
            earned += i128::from((until - at).0) * i128::from(open.0);
            at = until;
            if until == departure && step.is_none_or(|(from, _)| *from > departure) {
                break;
            }
            open = rates[next].1;
            next += 1;
        }
        least = least.min(sent - earned);
        sent += i128::from(frame.wire) * i128::from(LINK.0);
        worst = worst.max(sent - earned - least - 3076 * i128::from(LINK.0));
    }
    worst
}

/// Sets a destination's rate, and records its begin in `rates`.
fn step(host: &mut Host, rates: &mut Vec<(Position, Rate)>, (destination, rate): (u128, Rate)) {
    let from = host
        .pacer
        .core
        .chain
        .advance(host.now)
        .max(host.pacer.core.chain.wire.taken());
    limit(host, destination, Some(rate));
    rates.pop_if(|last| last.0 >= from);
    if rates.last().is_none_or(|last| last.1 != rate) {
        rates.push((from, rate));
    }
}

proptest! {
    /// For any sequence of rates, with closed destinations, no frame is lost, flows stay in order,
    /// none exceeds its rates, and after the last raise all frames leave as fast as that rate
    /// permits.
    #[test]
    fn queued_frames_follow_each_change_of_their_rate(
        steps in proptest::collection::vec((0..6_u8, 1..=3_u128, 84..=1500_u64, 0..5_u32), 1..200),
        destinations in 1..=3_u128,
        last in 20..300_u64,
    ) {
        let mut host = host(&[]);
        let guest = Guarantee { mark: None, ..Guarantee::new(LINK, Bytes(3076), LINK) };
        host.pacer.set_guest(host.now, GuestId::first(0), Some(&guest)).expect("sound");
        // Rates of each destination, with their begins.
        let mut rates: Vec<Vec<(Position, Rate)>> = vec![Vec::new(); 4];
        let mut set = |host: &mut Host, destination: u128, rate: Rate| {
            step(host, &mut rates[destination as usize], (destination, rate));
        };
        for destination in 1..=3 {
            set(&mut host, destination, Rate::from_mbit(50));
        }
        let (mut count, mut bytes) = (0, 0);
        for (id, (kind, destination, amount, order)) in (0..).zip(steps) {
            let destination = destination.min(destinations);
            match kind {
                0..3 => {
                    let large = kind == 0 && amount > 1000;
                    let frame = Record { len: if large { 20_000 } else { amount as usize }, ..to(destination, id, 1538) };
                    count += frame.segments();
                    bytes += frame.len as u64 + 90 * frame.segments() as u64;
                    host.ring(0, host.now, frame);
                }
                3 => host.run_until(host.now + Nanos(amount * 1000)),
                _ => set(&mut host, destination, match order {
                    0 => Rate(0),
                    order => Rate(amount * 10_u64.pow(order + 2)),
                }),
            }
        }
        for destination in 1..=3 {
            set(&mut host, destination, Rate::from_mbit(last));
        }
        let time = Rate::from_mbit(last).time_for(Bytes(bytes));
        host.run_until(host.now + time + Nanos::from_millis(5));
        prop_assert_eq!(host.of(0).count() as u64 + host.dropped(), count as u64);
        prop_assert_eq!(host.pacer.waiting(), 0);
        prop_assert_eq!(host.pacer.stats().frozen, Nanos::ZERO);
        check_wire(&host.sent);
        for (destination, rates) in rates.iter().enumerate().skip(1) {
            let flow = host.of(0).filter(|(_, frame)| frame.destination == destination as u128);
            let flow: Vec<_> = flow.collect();
            prop_assert!(flow.is_sorted_by_key(|(_, frame)| frame.id));
            let over = excess_of_steps(rates, &flow);
            prop_assert!(over < 2 * ROUNDING, "{over}");
        }
    }

    /// Each byte is reported once, in any order of calls.
    #[test]
    fn each_byte_to_a_destination_is_reported_once(
        steps in proptest::collection::vec((0..6_u8, 1..=5_u128, 84..=1538_u64), 1..300),
    ) {
        let limits: Vec<_> = (1..=5).map(|destination| (destination, 10 + 90 * destination as u64)).collect();
        let mut host = host(&limits);
        let mut told = 0;
        for (id, (kind, destination, amount)) in (0..).zip(steps) {
            match kind {
                0..3 => host.ring(0, host.now, to(destination, id, amount)),
                3 => host.run_until(host.now + Nanos(amount * 100)),
                4 => {
                    let rate = Some(Rate::from_mbit(amount / 2));
                    let set = host.pacer.set_destination(host.now, GuestId::first(0), destination, rate);
                    prop_assert_eq!(set, Ok(()));
                }
                _ => told += uses(&mut host).iter().map(|(_, taken, _)| taken).sum::<u64>(),
            }
        }
        host.run_until(host.now + Nanos::from_secs(10));
        told += uses(&mut host).iter().map(|(_, taken, _)| taken).sum::<u64>();
        let stats = host.pacer.guest_stats(GuestId::first(0)).expect("guaranteed");
        prop_assert_eq!(told, stats.taken.bytes.0);
        uses(&mut host);
        prop_assert_eq!(uses(&mut host), []);
    }
}

/// A guest with S of ten frames, of which four may go to one destination.
fn with_credit(credit: Option<u64>) -> Guarantee {
    Guarantee {
        mark: None,
        credit: credit.map(Bytes),
        ..Guarantee::new(Rate::from_mbit(1_000), Bytes(15_380), LINK)
    }
}

/// Levels of the buckets of all destinations, in order.
fn levels(host: &mut Host) -> Vec<(u128, u64)> {
    let level = host.pacer.level(host.now, GuestId::first(0)).unwrap();
    let levels = level.destinations.iter();
    let mut levels: Vec<_> = levels.map(|it| (it.destination, it.holds.0)).collect();
    levels.sort_unstable();
    levels
}

#[test]
fn a_destination_of_a_guest_with_a_part_starts_empty_and_holds_no_more_than_that() {
    let mut host = Host::new(&PacerConfig::strict(LINK), &[with_credit(Some(6_152))]);
    let id = GuestId::first(0);
    let set = |host: &mut Host, destination, mbit| {
        let rate = Some(Rate::from_mbit(mbit));
        let set = host.pacer.set_destination(host.now, id, destination, rate);
        set.expect("sound");
    };
    set(&mut host, 1, 100);
    set(&mut host, 2, 0);
    assert_eq!(levels(&mut host), [(1, 0), (2, 0)]);
    let mut lacking = Vec::new();
    host.pacer.destinations_used(host.now, |used| {
        lacking.push((used.flow.destination, used.lacks.0));
    });
    lacking.sort_unstable();
    assert_eq!(lacking, [(1, 6_152), (2, 6_152)], "rates are requested");
    // 12,500 bytes at 100 Mbit/s.
    host.now += Nanos::from_millis(1);
    assert_eq!(levels(&mut host), [(1, 6_152), (2, 0)]);
    for frame in 0..20 {
        host.ring(0, host.now, to(1, frame, 1_538));
    }
    set(&mut host, 1, 1);
    host.run_until(host.now + Nanos::from_millis(1));
    assert_eq!(host.of(0).count(), 4);
}

#[test]
fn another_part_of_a_guest_changes_the_depth_and_no_debt() {
    let mut host = Host::new(&PacerConfig::strict(LINK), &[with_credit(None)]);
    let id = GuestId::first(0);
    for destination in [1, 2] {
        host.pacer
            .set_destination(host.now, id, destination, Some(Rate(0)))
            .expect("sound");
    }
    host.run_until(Nanos::from_millis(1));
    host.ring(0, host.now, to(1, 0, 1_538));
    host.run_until(host.now + Nanos::from_micros(200));
    let mut change = |credit| {
        let now = host.now;
        host.pacer
            .set_guest(now, id, Some(&with_credit(credit)))
            .expect("sound");
        levels(&mut host)
    };
    assert_eq!(change(Some(6_152)), [(1, 4_614), (2, 6_152)]);
    assert_eq!(change(Some(1_538)), [(1, 0), (2, 1_538)]);
    assert_eq!(change(Some(3_076)), [(1, 1_538), (2, 3_076)]);
    assert_eq!(change(None), [(1, 13_842), (2, 15_380)]);
    let refused = host
        .pacer
        .set_guest(host.now, id, Some(&with_credit(Some(1_537))));
    let (credit, frame) = (Bytes(1_537), Bytes(1_538));
    assert_eq!(refused, Err(PacerError::CreditBelowFrame { credit, frame }));
}

#[test]
fn lent_bytes_deepen_a_destination_and_take_no_debt_with_them() {
    let mut host = Host::new(&PacerConfig::strict(LINK), &[with_credit(Some(3_076))]);
    let id = GuestId::first(0);
    for destination in [1, 2] {
        limit(&mut host, destination, Some(Rate::from_mbit(100)));
    }
    let lend = |host: &mut Host, bytes| host.pacer.lend(host.now, id, 1, Bytes(bytes));
    // Both fill, and stay so while nothing fills them any more.
    host.now += Nanos::from_millis(1);
    for destination in [1, 2] {
        limit(&mut host, destination, Some(Rate(0)));
    }
    lend(&mut host, 6_152);
    assert_eq!(levels(&mut host), [(1, 9_228), (2, 3_076)]);
    // No more than S.
    lend(&mut host, 100_000);
    assert_eq!(levels(&mut host), [(1, 15_380), (2, 3_076)]);
    lend(&mut host, 6_152);
    assert_eq!(levels(&mut host), [(1, 9_228), (2, 3_076)]);
    for frame in 0..20 {
        host.ring(0, host.now, to(1, frame, 1_538));
    }
    host.run_until(host.now + Nanos::from_millis(1));
    assert_eq!((host.of(0).count(), host.pacer.waiting()), (6, 14));
    host.pacer.destinations_used(host.now, |used| {
        if used.flow.destination == 1 {
            assert_eq!((used.lacks.0, used.queued.0), (9_228, 14 * 1_538));
        }
    });
    // A further loan does not bring spent bytes back.
    lend(&mut host, 0);
    assert_eq!(levels(&mut host), [(1, 0), (2, 3_076)]);
    // The first of two frames has a departure.
    lend(&mut host, 3_076);
    assert_eq!(levels(&mut host), [(1, 1_538), (2, 3_076)]);
    host.run_until(host.now + Nanos::from_millis(1));
    assert_eq!(host.of(0).count(), 8);
}

#[test]
fn addresses_of_one_vm_share_the_bytes_lent_to_it() {
    let mut host = Host::new(&PacerConfig::strict(LINK), &[with_credit(Some(3_076))]);
    let id = GuestId::first(0);
    let place = Place {
        host: 9,
        machine: 1,
    };
    for destination in [1, 2] {
        host.pacer.set_place(id, destination, Some(place));
        limit(&mut host, destination, Some(Rate::from_mbit(100)));
    }
    host.now += Nanos::from_millis(1);
    for destination in [1, 2] {
        limit(&mut host, destination, Some(Rate(0)));
        host.pacer.lend(host.now, id, destination, Bytes(6_152));
        for frame in 0..20 {
            host.ring(0, host.now, to(destination, frame, 1_538));
        }
    }
    host.run_until(host.now + Nanos::from_millis(1));
    assert_eq!(host.of(0).count(), 6, "two frames and four, once");
}
