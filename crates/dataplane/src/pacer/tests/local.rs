//! Frames between guests of one host: in one sum with the other frames, beside the wire.

use super::harness::{
    Host, LINK, ROUNDING, Reach, Record, SentItem, check_books, check_wire, conform, excess, frame,
};
use super::*;
use proptest::prelude::*;

const FULL: u64 = 1538;
/// The destinations that are on this host.
const HERE: std::ops::Range<u128> = 10..20;

fn to(destination: u128, id: u64, wire: u64) -> Record {
    Record {
        destination,
        reach: if HERE.contains(&destination) {
            Reach::Here
        } else {
            Reach::Beyond
        },
        ..frame(id, 0, wire)
    }
}

fn limit(host: &mut Host, destination: u128, mbit: u64) {
    let rate = Some(Rate::from_mbit(mbit));
    let set = host
        .pacer
        .set_destination(host.now, GuestId::first(0), destination, rate);
    assert_eq!(set, Ok(()));
}

fn host(guarantee: Guarantee) -> Host {
    let mut host = Host::new(&PacerConfig::strict(LINK), &[guarantee; 2]);
    host.now += Nanos::from_secs(1);
    host
}

fn numbers(local: &[(u64, Record)]) -> Vec<u64> {
    local.iter().map(|(_, frame)| frame.id).collect()
}

#[test]
fn a_local_burst_leaves_off_the_wire_and_later_frames_keep_b() {
    let slow = Rate::from_mbit(100);
    let mut host = host(Guarantee::new(slow, Bytes(10 * FULL), slow));
    let start = host.now;
    for id in 0..30 {
        host.ring(0, start, to(10, id, FULL));
    }
    host.turn();
    assert_eq!(numbers(&host.local), (0..10).collect::<Vec<_>>());
    // 123 us a frame.
    host.run_until(start + Nanos::from_millis(1));
    assert_eq!(host.local.len(), 18);
    host.run_until(start + Nanos::from_millis(3));
    assert_eq!(numbers(&host.local), (0..30).collect::<Vec<_>>());
    assert!(host.sent.is_empty(), "no void goes ahead of them");
    let stats = host.pacer.stats();
    assert_eq!((stats.local.packets, stats.local.bytes.0), (30, 30 * FULL));
    assert_eq!(stats.guaranteed, WireCount::default());
    assert_eq!(stats.frozen, Nanos::ZERO);
    assert_eq!(host.pacer.poll_at(), None);
}

#[test]
fn lines_here_and_elsewhere_take_turns_by_their_rates() {
    let mut host = host(Guarantee::new(Rate::from_mbit(1000), Bytes(30_000), LINK));
    limit(&mut host, 1, 900);
    limit(&mut host, 10, 300);
    limit(&mut host, 11, 600);
    let mut before = 0;
    for id in 0..30_000 {
        let destination = [1, 10, 11][id as usize % 3];
        host.pacer.enqueue(host.now, to(destination, id, FULL));
        if id % 200 == 0 {
            host.run_until(host.now + Nanos::from_millis(1));
        }
        if id == 10_000 {
            before = host.local.len();
        }
    }
    let mbit = |destination: u128| {
        let frames = host.local[before..].iter();
        let count = frames.filter(|(_, frame)| frame.destination == destination);
        count.count() as u64 * FULL * 8 / 99_000
    };
    assert!(mbit(10).abs_diff(167) <= 10, "{}", mbit(10));
    assert!(mbit(11).abs_diff(333) <= 10, "{}", mbit(11));
}

#[test]
fn queued_local_frames_stay_off_the_wire_when_the_guarantee_ends() {
    let mut host = host(Guarantee::new(Rate::from_mbit(10), Bytes(FULL), LINK));
    limit(&mut host, 10, 1);
    for id in 0..40 {
        let destination = [10, 11, 1][id as usize % 3];
        host.pacer.enqueue(host.now, to(destination, id, FULL));
    }
    host.turn();
    let now = host.now;
    assert_eq!(host.pacer.set_guest(now, GuestId::first(0), None), Ok(()));
    let mut freed = Vec::new();
    host.pacer.drain_freed(|frame| freed.push((0, frame)));
    for destination in [10, 11] {
        let all = host.local.iter().chain(&freed);
        let flow = all.filter(|(_, frame)| frame.destination == destination);
        let flow: Vec<_> = flow.map(|(_, frame)| frame.id).collect();
        assert!(flow.is_sorted(), "{flow:?}");
    }
    host.run_until(now + Nanos::from_secs(1));
    let left = host.of(0).map(|(_, frame)| frame.destination);
    assert!(left.eq(std::iter::repeat_n(1, 13)));
    assert_eq!(host.local.len() + freed.len(), 27);
    assert_eq!(host.pacer.waiting(), 0);
}

#[test]
fn a_wire_change_keeps_the_schedule_of_local_frames() {
    let slow = Rate::from_mbit(100);
    let mut host = host(Guarantee::new(slow, Bytes(FULL), slow));
    let start = host.now;
    for id in 0..20 {
        host.ring(0, start, to(10, id, FULL));
    }
    host.run_until(start + Nanos::from_millis(1));
    assert_eq!(host.local.len(), 9);
    let slower = PacerConfig::strict(Rate::from_mbit(1000));
    assert_eq!(host.pacer.reconfigure(host.now, &slower), Ok(()));
    check_books(&host.pacer);
    host.run_until(start + Nanos::from_millis(2));
    assert_eq!(host.local.len(), 17);
    host.run_until(start + Nanos::from_millis(3));
    assert_eq!(numbers(&host.local), (0..20).collect::<Vec<_>>());
}

#[test]
fn a_late_host_sends_no_catch_up_burst_to_local_guests() {
    let mut host = host(Guarantee::new(Rate::from_mbit(100), Bytes(FULL), LINK));
    for id in 0..2000 {
        host.ring(0, host.now, to(10, id, FULL));
    }
    host.run_until(host.now + Nanos::from_millis(10));
    let before = host.local.len();
    host.now += Nanos::from_millis(50);
    host.turn();
    assert!(host.local.len() - before <= 2);
    assert!(host.pacer.stats().frozen > Nanos::from_millis(49));
}

#[test]
fn local_bursts_delay_no_frame_on_the_wire() {
    let fast = Guarantee::new(Rate::from_mbit(4_000), Bytes(10 * FULL), LINK);
    let slow = Guarantee::new(Rate::from_mbit(300), Bytes(FULL), LINK);
    let mut host = Host::new(&PacerConfig::strict(LINK), &[fast, fast, slow]);
    host.now += Nanos::from_secs(1);
    let start = host.now;
    // The last frame to 10 is released after 49.2 us: with the first batch.
    limit(&mut host, 10, 250);
    for id in 0..11 {
        host.ring(0, start, to(10, id, FULL));
    }
    let rate = Some(Rate::from_mbit(1_000));
    let limited = host
        .pacer
        .set_destination(start, GuestId::first(1), 1, rate);
    assert_eq!(limited, Ok(()));
    // A microsecond later come a burst and a frame that is released after 13.3 us, and one
    // that departs after 41.
    host.ring(2, start, frame(0, 2, FULL));
    let later = start + Nanos::from_micros(1);
    host.ring(2, later, frame(1, 2, FULL));
    for id in 0..11 {
        host.ring(1, later, frame(id, 1, FULL));
    }
    host.turn();
    assert_eq!(host.local.len(), 11);
    host.run_until(start + Nanos::from_millis(1));
    assert_eq!((host.of(1).count(), host.of(2).count()), (11, 2));
    let late = host.pacer.stats().max_lateness;
    assert!(late <= WireBytes(FULL), "{late:?}");
}

#[test]
fn a_local_frame_behind_a_blocked_release_causes_no_busy_loop() {
    let at_once = Guarantee::new(Rate::from_mbit(10), Bytes(FULL), LINK);
    let limited = Guarantee::new(Rate::from_mbit(1_000), Bytes(FULL), LINK);
    let local = Guarantee::new(Rate::from_mbit(400), Bytes(FULL), LINK);
    let mut guarantees = vec![at_once; 60];
    guarantees[0] = limited;
    guarantees[1] = local;
    let mut host = Host::new(&PacerConfig::strict(LINK), &guarantees);
    host.now += Nanos::from_secs(1);
    let start = host.now;
    // The second frame to 1 is released after 24.6 us, the second to 10 departs after 30.8.
    limit(&mut host, 1, 500);
    for id in 0..2 {
        host.ring(0, start, frame(id, 0, FULL));
        let here = Record {
            guest: 1,
            ..to(10, id, FULL)
        };
        host.ring(1, start, here);
    }
    // One frame of each, all due now: 73.8 us of the wire, which is more than a batch.
    for guest in 2..60 {
        host.ring(guest as usize, start, frame(0, guest, FULL));
    }
    host.turn();
    let chain = &host.pacer.core.chain;
    let (due, release) = (chain.departures.first(), chain.releases.first());
    let (now, wire) = (
        host.pacer.core.chain.advance(host.now),
        host.pacer.core.chain.wire.taken(),
    );
    let local = host.pacer.core.chain.local.next;
    assert!(due <= now && now < release && release < local);
    assert!(
        local < now + host.pacer.core.chain.wire.batch()
            && now + host.pacer.core.chain.wire.batch() <= wire
    );

    host.run_until(start + Nanos::from_millis(1));
    assert_eq!(numbers(&host.local), [0, 1]);
    assert_eq!(host.of(0).count(), 2);
    assert_eq!(
        (2..60).map(|guest| host.of(guest).count()).sum::<usize>(),
        58
    );
}

/// A random history: of the guest under test, and of another one whose frames all go on the wire.
#[derive(Debug, Clone)]
struct LocalHistory {
    limits: Vec<(u128, u64)>,
    b: u64,
    s: u64,
    peak: u64,
    frames: Vec<(u128, u64, u64)>,
    /// Frames for the slow one, each before one of the others.
    slow: Vec<usize>,
}

fn offered() -> impl Strategy<Value = LocalHistory> {
    let limits = proptest::collection::vec((prop_oneof![1..5_u128, 10..15_u128], 1..800_u64), 1..8);
    let destination = prop_oneof![1..7_u128, 10..17_u128];
    let frames = proptest::collection::vec((destination, 84..=FULL, 0..60_u64), 1..250);
    (limits, 50..2000_u64, FULL..40_000, 0..=100_u64, frames)
        .prop_flat_map(|(limits, b, s, above, frames)| {
            let slow = proptest::collection::vec(0..frames.len(), 0..120);
            (Just((limits, b, s, above, frames)), slow)
        })
        .prop_map(|((limits, b, s, above, frames), slow)| LocalHistory {
            limits,
            b,
            s,
            peak: b + (10_000 - b) * above / 100,
            frames,
            slow,
        })
}

impl LocalHistory {
    fn guarantee(&self) -> Guarantee {
        Guarantee {
            mark: None,
            ..Guarantee::new(
                Rate::from_mbit(self.b),
                Bytes(self.s),
                Rate::from_mbit(self.peak),
            )
        }
    }
}

/// A destination here that is closed, its burst spent, or that has 1 Mbit/s.
const SLOW: u128 = 19;

/// Variants of a history that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum With {
    All,
    NothingForTheSlow,
    /// Without the first guest's frames to guests of this host.
    NothingLocal,
}

/// Departures in a loop with a turn every 10 us.
fn departures(offered: &LocalHistory, with: With) -> Host {
    let mut host = Host::new(&PacerConfig::strict(LINK), &[offered.guarantee(); 2]);
    for (destination, mbit) in &offered.limits {
        limit(&mut host, *destination, *mbit);
    }
    limit(&mut host, SLOW, 0);
    if with != With::NothingLocal {
        for id in 0..40 {
            host.ring(0, host.now, to(SLOW, 1_000_000 + id, FULL));
        }
    }
    host.run_until(Nanos::from_secs(5));
    let mut at = host.now;
    for (n, (id, (destination, wire, gap))) in (0..).zip(&offered.frames).enumerate() {
        at += Nanos(gap * 1000);
        let here = offered.slow.iter().filter(|place| **place == n);
        for _ in here.filter(|_| with == With::All) {
            host.ring(0, at, to(SLOW, id, FULL));
        }
        let guest = u32::from(*destination == 6);
        let frame = Record {
            guest,
            ..to(*destination, id, *wire)
        };
        if with != With::NothingLocal || !frame.is_local() {
            host.ring(guest as usize, at, frame);
        }
    }
    for _ in 0..3000 {
        host.turn();
        check_books(&host.pacer);
        host.now += Nanos::from_micros(10);
    }
    host.run_until(host.now + Nanos::from_secs(20));
    host
}

/// Departures of a guest, including its frames to guests here, in order.
fn all_of(host: &Host, guest: u32) -> Vec<(u64, Record)> {
    let wire = host.of(guest);
    let wire = wire.map(|(sent, frame)| (sent.in_real_time, frame));
    let local = host.local.iter().copied();
    let mut all: Vec<_> = wire
        .chain(local.filter(|(_, frame)| frame.guest == guest))
        .collect();
    all.sort_by_key(|(departure, _)| *departure);
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Every prefix of the traffic inside and outside the host conforms to {B, S}, that to one
    /// destination to {`B_i`, S}, and that on the wire also to {Bmax, frame}; each destination gets
    /// its frames in order.
    #[test]
    fn every_prefix_of_local_and_wire_traffic_conforms(offered in offered()) {
        let host = departures(&offered, With::All);
        let Guarantee { bandwidth, burst, .. } = offered.guarantee();
        let on_the_wire = |frames: &[(u64, Record)]| -> Vec<_> {
            frames.iter().map(|(departure, frame)| (*departure, frame.wire().0)).collect()
        };
        for guest in 0..2 {
            let all = all_of(&host, guest);
            let over = excess(LINK, bandwidth, burst.0, on_the_wire(&all).into_iter());
            prop_assert!(over < ROUNDING, "{}", over);
            let wire: Vec<_> = all.iter().copied().filter(|(_, frame)| !frame.is_local()).collect();
            conform(&PacerConfig::strict(LINK), &offered.guarantee(), &on_the_wire(&wire));
        }
        let all = all_of(&host, 0);
        for destination in 1..20 {
            let flow: Vec<_> = all.iter().copied()
                .filter(|(_, frame)| frame.destination == destination && frame.id < 1_000_000)
                .collect();
            prop_assert!(flow.iter().map(|(_, frame)| frame.id).is_sorted());
            let set = offered.limits.iter().rev().find(|(known, _)| *known == destination);
            let Some((_, mbit)) = set else { continue };
            let over = excess(
                LINK, Rate::from_mbit(*mbit), offered.s + 2 * FULL, on_the_wire(&flow).into_iter(),
            );
            prop_assert!(over < 2 * ROUNDING, "{}", over);
        }
        check_wire(&host.sent);
        let waiting = host.pacer.waiting();
        let count = host.local.len() + host.of(0).count() + host.of(1).count();
        prop_assert_eq!(count + waiting, offered.frames.len() + offered.slow.len() + 40);
    }

    /// A destination here that is closed changes no other departure, here or on the wire.
    #[test]
    fn a_closed_destination_here_changes_no_departure_of_another(offered in offered()) {
        let others = |host: &Host| -> Vec<_> {
            let all = all_of(host, 0).into_iter().chain(all_of(host, 1));
            all.filter(|(_, frame)| frame.destination != SLOW).collect()
        };
        let with = departures(&offered, With::All);
        let without = departures(&offered, With::NothingForTheSlow);
        prop_assert_eq!(others(&with), others(&without));
    }

    /// A guest's traffic to others on this host does not affect another guest's frames on the wire:
    /// each departs at the same time, and begins there, except for a gap that is too short for a
    /// void.
    #[test]
    fn local_traffic_changes_no_departure_on_the_wire(offered in offered()) {
        let mut offered = offered;
        // All frames of the first guest go to guests of this host.
        for (destination, ..) in &mut offered.frames {
            *destination += if *destination < 6 { 10 } else { 0 };
        }
        let of = |with| -> Vec<SentItem> {
            let host = departures(&offered, with);
            assert_eq!(host.of(0).count(), 0);
            host.of(1).map(|(sent, _)| sent).collect()
        };
        let (with, without) = (of(With::All), of(With::NothingLocal));
        prop_assert_eq!(with.len(), without.len());
        for (with, without) in with.iter().zip(&without) {
            prop_assert_eq!((with.departure, with.frame), (without.departure, without.frame));
            prop_assert!(with.at.abs_diff(without.at) < void::SHORTEST.0);
        }
    }
}
