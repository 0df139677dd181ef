//! Elastic flows: their rate, their effect on other flows, and their cost.

use super::harness::{
    Host, LINK, ROUNDING, Reach, Record, SentItem, check_books, check_wire, conform, excess, frame,
};
use super::*;
use crate::RateLimit;
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};

const FULL: u64 = 1538;
const B: Rate = Rate::from_mbit(1000);
const S: Bytes = Bytes(30_760);

const fn guarantee() -> Guarantee {
    Guarantee::new(B, S, LINK)
}

/// A frame of a guest's flow to a destination, by the number of its port.
pub(super) fn of(guest: u32, port: u16, id: u64) -> Record {
    Record {
        port,
        ..frame(id, guest, FULL)
    }
}

pub(super) fn host(config: &PacerConfig, guarantees: &[Guarantee]) -> Host {
    let mut host = Host::new(config, guarantees);
    // Buckets fill.
    host.now += Nanos::from_secs(1);
    host
}

/// Puts full frames of a flow into a guest's ring at a rate, and returns how many.
pub(super) fn offer(
    host: &mut Host,
    (guest, port): (u32, u16),
    rate: Rate,
    span: (Nanos, Nanos),
) -> u64 {
    let frames = rate.bytes_in(span.1 - span.0).0 / FULL;
    let mut ring: Vec<_> = host.rings[guest as usize].drain(..).collect();
    for number in 0..frames {
        let at = span.0 + rate.time_for(Bytes(number * FULL));
        // Greater than all numbers before it.
        ring.push((at, of(guest, port, at.0)));
    }
    ring.sort_by_key(|(at, _)| *at);
    host.rings[guest as usize].extend(ring);
    frames
}

pub(super) fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

pub(super) fn us(micros: u64) -> Nanos {
    Nanos::from_micros(micros)
}

/// Position of a time on the wire.
fn byte(at: Nanos) -> u64 {
    LINK.bytes_in(at).0
}

/// Share of the wire of some frames between two times, in percent.
fn share(
    sent: &[SentItem],
    (from, to): (Nanos, Nanos),
    counts: impl Fn(&SentItem, &Record) -> bool,
) -> f64 {
    let (from, to) = (byte(from), byte(to));
    let within = sent.iter().filter(|sent| (from..to).contains(&sent.at));
    let frames = within.filter(|sent| sent.frame.is_some_and(|frame| counts(sent, &frame)));
    100.0 * frames.map(|sent| sent.wire).sum::<u64>() as f64 / (to - from) as f64
}

/// Runs a host whose packet loop wakes at the requested times, and checks its accounts.
pub(super) fn run(host: &mut Host, end: Nanos) {
    while host.now < end {
        let next = (host.now + us(200)).min(end);
        host.run_until(next);
        check_books(&host.pacer);
    }
}

/// Returns the frames of each flow in order of arrival behind a network that delays only elastic
/// frames, by `wait`.
fn overtaken(sent: &[SentItem], mut wait: impl FnMut(&SentItem) -> u64) -> u64 {
    let mut arrivals: Vec<_> = sent
        .iter()
        .filter_map(|sent| {
            let frame = sent.frame?;
            let delay = if sent.is_elastic { wait(sent) } else { 0 };
            Some((sent.at + delay, frame))
        })
        .collect();
    arrivals.sort_by_key(|(at, _)| *at);
    let mut last = HashMap::new();
    let mut overtaken = 0;
    for (_, frame) in arrivals {
        let last = last.entry((frame.guest, frame.port)).or_insert(0);
        overtaken += u64::from(frame.id < *last);
        *last = frame.id.max(*last);
    }
    overtaken
}

/// Checks that the frames of each flow left in order of their numbers; and that no frame is elastic
/// while a guaranteed one of its flow waits.
pub(super) fn in_order(sent: &[SentItem]) {
    assert_eq!(overtaken(sent, |_| 0), 0);
}

#[test]
fn a_guest_alone_has_an_idle_link_within_a_millisecond() {
    for flows in [1, 2, 8] {
        for mbit in [100, 1000, 4000] {
            let guarantee = Guarantee::new(Rate::from_mbit(mbit), S, LINK);
            let mut host = host(&PacerConfig::new(LINK), &[guarantee]);
            let start = host.now;
            let end = start + ms(20);
            for port in 0..flows {
                let rate = Rate(LINK.0 / u64::from(flows));
                offer(&mut host, (0, port), rate, (start, end));
            }
            run(&mut host, end);
            check_wire(&host.sent);
            in_order(&host.sent);
            let got = share(&host.sent, (start + ms(1), end), |_, _| true);
            assert!(got >= 95.0, "{flows} flows, {mbit} Mbit/s: {got} %");
            // And in every millisecond.
            for millis in 1..20 {
                let span = (start + ms(millis), start + ms(millis + 1));
                let got = share(&host.sent, span, |_, _| true);
                assert!(
                    got >= 95.0,
                    "{flows} flows, {mbit} Mbit/s: {got} % in {millis}"
                );
            }
        }
    }
}

#[test]
fn a_guest_without_elastic_flows_gets_exactly_its_guarantee() {
    let mut host = host(&PacerConfig::strict(LINK), &[guarantee()]);
    let (start, end) = (host.now, host.now + ms(20));
    offer(&mut host, (0, 0), LINK, (start, end));
    run(&mut host, end);
    let got = share(&host.sent, (start + ms(1), end), |_, _| true);
    assert!((9.99..=10.01).contains(&got), "{got} %");
    assert_eq!(host.pacer.stats().elastic, WireCount::default());
}

/// Fills the wire with a guest without a guarantee, from a time on.
fn flood(host: &mut Host, guest: u32, span: (Nanos, Nanos)) {
    if host.rings.len() <= guest as usize {
        host.rings.resize(guest as usize + 1, VecDeque::new());
    }
    offer(host, (guest, 0), Rate(2 * LINK.0), span);
}

#[test]
fn an_elastic_guest_regains_its_bandwidth_within_drain_plus_1_ms() {
    for drain in [Nanos::ZERO, us(300), ms(1), ms(5)] {
        let config = PacerConfig {
            drain,
            ..PacerConfig::new(LINK)
        };
        let mut host = host(&config, &[guarantee()]);
        let (start, end) = (host.now, host.now + ms(60));
        offer(&mut host, (0, 0), LINK, (start, end));
        let busy = start + ms(10);
        flood(&mut host, 1, (busy, end));
        run(&mut host, end);
        check_wire(&host.sent);
        in_order(&host.sent);
        let of_guest = |_: &SentItem, frame: &Record| frame.guest == 0;
        let before = share(&host.sent, (start + ms(1), busy), of_guest);
        assert!(before >= 95.0, "{before} %");
        let back = busy + drain + ms(1);
        for millis in 0..20 {
            let span = (back + ms(millis), back + ms(millis + 1));
            let got = share(&host.sent, span, of_guest);
            assert!(got >= 9.8, "drain {drain}: {got} % in {millis}");
        }
        let elastic = |sent: &SentItem, _: &Record| sent.is_elastic;
        assert!(share(&host.sent, (back, end), elastic) < 0.01);
    }
}

#[test]
fn a_flow_whose_rate_conforms_again_is_guaranteed_again() {
    let mut host = host(&PacerConfig::new(LINK), &[guarantee()]);
    let start = host.now;
    let (slow, end) = (start + ms(5), start + ms(30));
    offer(&mut host, (0, 0), Rate::from_mbit(5000), (start, slow));
    let frames = Rate::from_mbit(900).bytes_in(end - slow).0 / FULL;
    for id in 0..frames {
        let at = slow + Rate::from_mbit(900).time_for(Bytes(id * FULL));
        host.ring(0, at, of(0, 0, at.0));
    }
    run(&mut host, slow);
    assert_eq!(host.pacer.elastic_flows(GuestId::first(0)), 1);
    run(&mut host, end);
    assert_eq!(host.pacer.elastic_flows(GuestId::first(0)), 0);
    // A window or two, and the drain.
    let elastic = |sent: &SentItem, _: &Record| sent.is_elastic;
    assert!(share(&host.sent, (slow + ms(4), end), elastic) < 0.01);
    in_order(&host.sent);
}

#[test]
fn low_queues_no_longer_than_drain_reorder_no_frames() {
    let config = PacerConfig::new(LINK);
    let drain = byte(config.drain);
    let mut host = host(&config, &[guarantee()]);
    let start = host.now;
    // The flow is elastic repeatedly, as others come and go, and as its rate changes.
    for phase in 0..12 {
        let from = start + ms(10 * phase);
        let rate = Rate::from_mbit(if phase % 3 == 2 { 700 } else { 8000 });
        let span = rate.bytes_in(ms(10)).0 / FULL;
        for id in 0..span {
            let at = from + rate.time_for(Bytes(id * FULL));
            host.ring(0, at, of(0, (id % 3) as u16, at.0));
        }
        if phase % 4 == 1 {
            flood(&mut host, 1, (from + ms(3), from + ms(8)));
        }
    }
    run(&mut host, start + ms(120));
    let elastic = host.sent.iter().filter(|sent| sent.is_elastic).count();
    let guaranteed = host.of(0).filter(|(sent, _)| !sent.is_elastic).count();
    assert!(
        elastic > 10_000 && guaranteed > 3000,
        "{elastic} and {guaranteed}"
    );
    // A queue that grows and shrinks, and stays in order.
    let mut leaves = 0;
    let waits = |sent: &SentItem| {
        let most = sent.at + drain;
        let now = sent.at + (sent.at / 7) % drain;
        leaves = now.max(leaves + 1).min(most);
        leaves - sent.at
    };
    assert_eq!(overtaken(&host.sent, waits), 0);
    // Always at the maximum delay.
    assert_eq!(overtaken(&host.sent, |_| drain), 0);
    // Frames that stay in the network for longer are overtaken: `drain` preserves the order.
    assert!(overtaken(&host.sent, |_| 3 * drain) > 0);
}

#[test]
fn the_burst_stays_whole_for_the_other_flows() {
    let mut host = host(&PacerConfig::new(LINK), &[guarantee()]);
    let (start, end) = (host.now, host.now + ms(30));
    offer(&mut host, (0, 0), LINK, (start, end));
    // A message of S now and then: its frames go at Bmax.
    let frames = S.0 / FULL;
    for message in 1..10_u64 {
        for id in 0..frames {
            let at = start + ms(3 * message);
            host.ring(0, at, of(0, 1, 1000 * message + id));
        }
    }
    let mut ring: Vec<_> = host.rings[0].drain(..).collect();
    ring.sort_by_key(|(at, _)| *at);
    host.rings[0].extend(ring);
    run(&mut host, end);
    for message in 1..10_u64 {
        let came = byte(start + ms(3 * message));
        let own: Vec<_> = host
            .of(0)
            .filter(|(_, frame)| frame.port == 1 && frame.id / 1000 == message)
            .collect();
        assert_eq!(own.len() as u64, frames);
        for (sent, frame) in own {
            let departure = sent.departure.expect("it is guaranteed");
            let most = came + frame.id % 1000 * FULL + 62_500 + FULL;
            assert!(departure <= most, "{} later", departure - most);
        }
    }
}

#[test]
fn elastic_flows_are_no_demand() {
    let mut host = host(&PacerConfig::new(LINK), &[guarantee()]);
    let guest = GuestId::first(0);
    for destination in [1, 2] {
        let set = host
            .pacer
            .set_destination(host.now, guest, destination, Some(B));
        set.expect("sound");
    }
    host.now += Nanos::from_secs(1);
    let (start, end) = (host.now, host.now + ms(20));
    offer(&mut host, (0, 0), LINK, (start, end));
    for id in 0..20 {
        let at = start + ms(id);
        let small = Record {
            destination: 2,
            ..of(0, 9, id)
        };
        host.ring(0, at, small);
    }
    let mut ring: Vec<_> = host.rings[0].drain(..).collect();
    ring.sort_by_key(|(at, _)| *at);
    host.rings[0].extend(ring);
    run(&mut host, start + ms(2));
    host.pacer.destinations_used(host.now, |_| {});
    run(&mut host, end);
    let mut used = Vec::new();
    host.pacer.destinations_used(host.now, |one| {
        used.push((one.flow.destination, one.taken.0));
    });
    assert_eq!(
        used,
        [(2, 18 * FULL)],
        "a destination that is elastic alone"
    );
    assert!(host.pacer.stats().elastic.packets > 10_000);
}

#[test]
fn others_depart_as_without_and_begin_a_frame_later_at_most() {
    let guarantees = [
        guarantee(),
        Guarantee::new(Rate::from_mbit(2000), S, LINK),
        Guarantee::new(Rate::from_mbit(300), S, Rate::from_mbit(3000)),
    ];
    let watch = |config: &PacerConfig| {
        let mut host = host(config, &guarantees);
        let (start, end) = (host.now, host.now + ms(20));
        // The others always have frames waiting, for a destination that takes 95 % of what
        // they are guaranteed: so none of them has an elastic flow.
        for guest in [1, 2] {
            let rate = guarantees[guest as usize].bandwidth.percent(95);
            let id = GuestId::first(guest);
            let set = host.pacer.set_destination(start, id, 1, Some(rate));
            set.expect("sound");
            for id in 0..4000 {
                host.ring(guest as usize, start, of(guest, 0, id));
            }
        }
        offer(&mut host, (0, 0), LINK, (start, end));
        run(&mut host, end);
        check_wire(&host.sent);
        host
    };
    let with = watch(&PacerConfig::new(LINK));
    let without = watch(&PacerConfig::strict(LINK));
    for guest in [1, 2] {
        let with: Vec<_> = with.of(guest).collect();
        let without: Vec<_> = without.of(guest).collect();
        let lengths = (with.len(), without.len());
        assert!(
            lengths.1 > 300 && lengths.0.abs_diff(lengths.1) < 60,
            "{lengths:?}"
        );
        for ((one, _), (other, _)) in with.iter().zip(&without) {
            assert_eq!(one.departure, other.departure);
            assert!(one.at <= other.at + FULL, "{one:?} and {other:?}");
        }
    }
    assert!(with.pacer.stats().elastic.packets > 8000);
}

#[test]
fn frames_that_come_now_and_then_depart_a_batch_and_a_frame_later_at_most() {
    // Frames that arrive while a batch is on the wire are scheduled from its end on, for any
    // contents: elastic frames fill it if no others do.
    let watch = |config: &PacerConfig| {
        let guarantees = [guarantee(), Guarantee::new(B, S, LINK)];
        let mut host = host(config, &guarantees);
        let (start, end) = (host.now, host.now + ms(50));
        offer(&mut host, (0, 0), LINK, (start, end));
        for id in 0..400 {
            // 98 Mbit/s, at moments that fit nothing else's.
            host.ring(1, start + Nanos(id * 123_457), of(1, 0, id));
        }
        run(&mut host, end);
        host.of(1).map(|(sent, _)| sent).collect::<Vec<_>>()
    };
    let with = watch(&PacerConfig::new(LINK));
    let without = watch(&PacerConfig::strict(LINK));
    assert_eq!((with.len(), without.len()), (400, 400));
    for (one, other) in with.iter().zip(&without) {
        let (one, other) = (one.departure.expect("guaranteed"), other.departure);
        let other = other.expect("guaranteed");
        assert!(one <= other + 62_500 + FULL, "{one} and {other}");
    }
}

#[test]
fn a_guest_that_changes_flows_all_the_time_costs_bounded_work_and_memory() {
    let mut host = host(&PacerConfig::new(LINK), &[guarantee(), guarantee()]);
    let (start, end) = (host.now, host.now + ms(100));
    let frames = LINK.bytes_in(end - start).0 / FULL;
    for id in 0..frames {
        let at = start + LINK.time_for(Bytes(id * FULL));
        // Each flow has a few frames, and returns after it was forgotten.
        host.ring(0, at, of(0, (id / 3) as u16, id));
    }
    offer(&mut host, (1, 0), Rate::from_mbit(4000), (start, end));
    run(&mut host, end);
    in_order(&host.sent);
    let looked = host.pacer.elastic.looked;
    let most = (end - start).0 / 500 + 8192;
    assert!(
        looked <= most,
        "{looked} frames were looked at, {most} may be"
    );
    // The other guest has its share, as one of two that want more than half.
    let got = share(&host.sent, (start + ms(1), end), |_, frame| {
        frame.guest == 1
    });
    assert!(got >= 37.0, "{got} %");
    // All flows are forgotten after their end.
    host.rings[0].clear();
    host.rings[1].clear();
    run(&mut host, end + ms(50));
    host.ring(0, host.now, of(0, 0, 0));
    host.turn();
    assert_eq!(host.pacer.elastic_flows(GuestId::first(0)), 0);
}

#[test]
fn an_elastic_guest_keeps_its_bandwidth_on_a_nearly_full_link() {
    let mut host = host(&PacerConfig::new(LINK), &[guarantee()]);
    let (start, end) = (host.now, host.now + Nanos::from_secs(1));
    offer(&mut host, (0, 0), LINK, (start, end));
    // All but half a gigabit, with gaps.
    host.rings.resize(2, VecDeque::new());
    offer(&mut host, (1, 0), Rate::from_mbit(9500), (start, end));
    host.run_until(end);
    check_books(&host.pacer);
    // Each attempt costs the guest at most two milliseconds, and attempts become rarer.
    let got = share(&host.sent, (start, end), |_, frame| frame.guest == 0);
    assert!(got >= 9.7, "{got} %");
    let half = start + Nanos::from_millis(500);
    let got = share(&host.sent, (half, end), |_, frame| frame.guest == 0);
    assert!(got >= 9.9, "{got} %");
}

#[test]
fn frames_to_groups_and_to_guests_here_are_never_elastic() {
    let mut host = host(&PacerConfig::new(LINK), &[guarantee()]);
    let (start, end) = (host.now, host.now + ms(20));
    for id in 0..5000 {
        let here = Record {
            reach: Reach::Here,
            ..of(0, 0, id)
        };
        host.ring(0, start + Nanos(id * 1000), here);
    }
    run(&mut host, end);
    assert_eq!(host.pacer.stats().elastic, WireCount::default());
    let bytes = host.local.len() as u64 * FULL;
    let most = S.0 + B.bytes_in(end + us(50) - start).0 + FULL;
    assert!(bytes <= most, "{bytes} of {most}");
}

#[test]
fn disabling_elastic_flows_loses_and_reorders_no_frames() {
    let mut host = host(&PacerConfig::new(LINK), &[guarantee()]);
    let start = host.now;
    let sent = offer(
        &mut host,
        (0, 0),
        Rate::from_mbit(3000),
        (start, start + ms(2)),
    );
    run(&mut host, start + ms(1));
    assert_eq!(host.pacer.elastic_flows(GuestId::first(0)), 1);
    let off = PacerConfig::strict(LINK);
    host.pacer.reconfigure(host.now, &off).expect("sound");
    assert_eq!(host.pacer.elastic_flows(GuestId::first(0)), 0);
    let before = host.sent.len();
    run(&mut host, start + ms(50));
    assert!(host.sent[before..].iter().all(|sent| !sent.is_elastic));
    in_order(&host.sent);
    assert_eq!(host.of(0).count() as u64, sent);
    // After the guarantee ends, elastic frames are best effort.
    let again = host.now;
    host.pacer
        .reconfigure(again, &PacerConfig::new(LINK))
        .expect("sound");
    let more = offer(
        &mut host,
        (0, 0),
        Rate::from_mbit(3000),
        (again, again + ms(2)),
    );
    run(&mut host, again + ms(1));
    assert!(host.pacer.stats().elastic.packets > 100);
    let ended = host.pacer.set_guest(host.now, GuestId::first(0), None);
    ended.expect("nothing is wrong with that");
    assert_eq!(host.pacer.waiting(), 0);
    host.run_until(again + ms(50));
    assert_eq!(host.of(0).count() as u64, sent + more);
}

#[derive(Debug, Clone)]
enum Event {
    /// Frames of a guest's flow: guest, flow, number, and length on the wire.
    Send(u32, u16, u64, u64),
    Wait(u64),
    /// Best effort.
    Flood(u64),
    /// A guest's limit to one of two destinations, in Mbit/s.
    Limit(u32, u128, Option<u64>),
    /// A guest's total limit in Mbit/s, and its depth.
    Cap(u32, Option<u64>, u64),
    Drain(u64),
    Elastic(bool),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        10 => (0..2_u32, 0..6_u16, 1..120_u64, 84..=FULL)
            .prop_map(|(guest, port, count, wire)| Event::Send(guest, port, count, wire)),
        10 => (1..1500_u64).prop_map(Event::Wait),
        2 => (1..400_u64).prop_map(Event::Flood),
        2 => (0..2_u32, 1..3_u128, prop::option::of(0..1500_u64))
            .prop_map(|(guest, to, rate)| Event::Limit(guest, to, rate)),
        1 => (0..2_u32, prop::option::of(1000..9000_u64), 30_760..200_000_u64)
            .prop_map(|(guest, rate, depth)| Event::Cap(guest, rate, depth)),
        1 => (0..3000_u64).prop_map(Event::Drain),
        1 => any::<bool>().prop_map(Event::Elastic),
    ];
    prop::collection::vec(event, 1..80)
}

/// Checks the rules of each flow of a host.
fn check_flows(sent: &[SentItem], drain: u64) {
    let mut flows: HashMap<_, (u64, u64)> = HashMap::new();
    for sent in sent {
        let Some(frame) = sent.frame.filter(|frame| frame.guest < 2) else {
            continue;
        };
        let (last, elastic_end) = flows.entry((frame.guest, frame.port)).or_default();
        assert!(frame.id >= *last, "{frame:?} was overtaken by {last}");
        *last = frame.id;
        if sent.is_elastic {
            *elastic_end = sent.at + sent.wire;
        } else if *elastic_end > 0 {
            let departure = sent.departure.expect("it is guaranteed");
            assert!(
                departure >= *elastic_end + drain,
                "{frame:?} is guaranteed too early"
            );
            *elastic_end = 0;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// For any traffic and any changes, each flow stays in order, a guaranteed frame departs at
    /// least `drain` after the last elastic one of its flow, guaranteed frames conform, and all
    /// memory is counted and bounded.
    #[test]
    fn elastic_flows_stay_in_order_and_guaranteed_frames_conform(events in events()) {
        let mut config = PacerConfig::new(LINK);
        config.best_effort = crate::QueueConfig::Fifo(crate::FifoConfig::default());
        let other = Guarantee::new(Rate::from_mbit(2500), Bytes(8_000), Rate::from_mbit(6000));
        let guarantees = [guarantee(), other];
        let mut host = host(&config, &guarantees);
        host.rings.resize(3, VecDeque::new());
        let (mut id, mut least) = (0, config.drain);
        for event in events {
            let now = host.now;
            match event {
                Event::Send(guest, port, count, wire) => {
                    for _ in 0..count {
                        id += 1;
                        let destination = u128::from(port % 3);
                        let frame = Record { destination, port, ..frame(id, guest, wire) };
                        host.ring(guest as usize, now, frame);
                    }
                }
                Event::Wait(micros) => run(&mut host, now + us(micros)),
                Event::Flood(count) => {
                    for _ in 0..count {
                        id += 1;
                        host.ring(2, now, of(2, 0, id));
                    }
                }
                Event::Limit(guest, to, mbit) => {
                    let rate = mbit.map(Rate::from_mbit);
                    let set = host.pacer.set_destination(now, GuestId::first(guest), to, rate);
                    set.expect("sound");
                }
                Event::Cap(guest, mbit, depth) => {
                    let limit = mbit.map(|mbit| RateLimit {
                        rate: Rate::from_mbit(mbit),
                        depth: Some(Bytes(depth)),
                    });
                    host.pacer.set_cap(now, GuestId::first(guest), limit.as_ref());
                }
                Event::Drain(micros) => {
                    config.drain = us(micros);
                    least = least.min(config.drain);
                    host.pacer.reconfigure(now, &config).expect("sound");
                }
                Event::Elastic(is_on) => {
                    config.work_conserving = is_on;
                    host.pacer.reconfigure(now, &config).expect("sound");
                }
            }
            check_books(&host.pacer);
        }
        for guest in 0..2 {
            for to in 1..3 {
                let open = host.pacer.set_destination(host.now, GuestId::first(guest), to, None);
                open.expect("sound");
            }
        }
        let end = host.now + Nanos::from_secs(1);
        host.run_until(end);
        check_books(&host.pacer);
        prop_assert_eq!(host.pacer.waiting(), 0);
        check_wire(&host.sent);
        check_flows(&host.sent, byte(least));
        for (guest, guarantee) in (0..).zip(&guarantees) {
            let guaranteed = host.of(guest).filter_map(|(sent, _)| Some((sent.departure?, sent.wire)));
            conform(&config, guarantee, &guaranteed.collect::<Vec<_>>());
        }
        let lost = host.dropped() + host.pacer.stats().queue.drops.total();
        let sent = host.sent.iter().filter(|sent| sent.frame.is_some()).count() as u64;
        prop_assert_eq!(sent + lost, id);
    }

    /// A constant limit applies to guaranteed traffic, for any elastic traffic.
    #[test]
    fn guaranteed_frames_conform_to_the_limit_of_a_destination(
        mbit in 50..1500_u64,
        sends in prop::collection::vec((0..4_u16, 1..60_u64, 84..=FULL, 1..400_u64), 1..60),
    ) {
        let mut host = host(&PacerConfig::new(LINK), &[guarantee()]);
        let rate = Rate::from_mbit(mbit);
        let set = host.pacer.set_destination(host.now, GuestId::first(0), 1, Some(rate));
        set.expect("sound");
        host.now += Nanos::from_secs(1);
        let mut id = 0;
        for (port, count, wire, wait) in sends {
            for _ in 0..count {
                id += 1;
                host.ring(0, host.now, Record { port, ..frame(id, 0, wire) });
            }
            let until = host.now + us(wait);
            run(&mut host, until);
        }
        let end = host.now + Nanos::from_secs(1);
        host.run_until(end);
        let guaranteed = host.of(0).filter_map(|(sent, _)| Some((sent.departure?, sent.wire)));
        // Two frames may come closer together at their turn and their departure.
        let over = excess(LINK, rate, S.0 + 2 * FULL, guaranteed);
        prop_assert!(over < ROUNDING, "{over}");
    }
}
