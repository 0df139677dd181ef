//! Another wire under the same guarantees, and another process on the same wire.

use super::harness::{Host, LINK, Record, check_wire, conform, excess, frame};
use super::*;
use crate::queue::{FifoConfig, FqCodelConfig, QueueConfig};
use proptest::prelude::*;

const B: Rate = Rate::from_mbit(200);
const PEAK: Rate = Rate::from_mbit(500);
const S: Bytes = Bytes(10_000);
/// Its bytes are nanoseconds.
const REAL_TIME: Rate = Rate::from_mbit(8000);

fn guarantee() -> Guarantee {
    Guarantee::new(B, S, PEAK)
}

/// A host with two guaranteed guests, and limits for two destinations of the first.
fn host() -> Host {
    let mut host = Host::new(&PacerConfig::strict(LINK), &[guarantee(), guarantee()]);
    for (destination, mbit) in [(1, 50), (2, 150)] {
        let rate = Some(Rate::from_mbit(mbit));
        host.pacer
            .set_destination(host.now, GuestId::first(0), destination, rate)
            .expect("sound");
    }
    host
}

/// Checks that frames, in real time, stay within `min(Bmax·t + frame, B·t + S)`, with `slack`
/// nanoseconds of tolerance.
fn conform_in_time(frame: u64, slack: u64, frames: &[(u64, u64)]) {
    for (rate, burst) in [(B, S.0), (PEAK, frame)] {
        let over = excess(REAL_TIME, rate, burst, frames.iter().copied());
        let slack = i128::from(slack) * i128::from(rate.0);
        assert!(over <= slack, "{over} over {burst} + {rate}·t");
    }
}

#[test]
fn departures_stand_at_their_moments_on_a_faster_link() {
    let mut host = host();
    for id in 0..40 {
        host.ring(1, host.now, frame(id, 1, 1538));
    }
    host.run_until(Nanos::from_micros(1500));
    let mut other = PacerConfig::strict(Rate::from_mbit(40_000));
    other.catch_up = Nanos::from_micros(10);
    host.pacer.reconfigure(host.now, &other).expect("sound");
    host.run_until(Nanos::from_secs(1));
    let departures: Vec<_> = host.of(1).map(|(sent, _)| sent.moment.0).collect();
    assert_eq!(departures.len(), 40);
    // After the burst, 1538 B at 200 Mbit/s, before the change and behind it.
    for pair in departures[11..].windows(2) {
        assert!((pair[1] - pair[0]).abs_diff(61_520) <= 2, "{departures:?}");
    }
}

#[test]
fn frames_held_by_the_nic_keep_their_bytes_on_a_new_link() {
    let mut host = Host::new(&PacerConfig::strict(LINK), &[]);
    for id in 0..100 {
        host.ring(0, host.now, frame(id, 0, 1538));
    }
    host.turn();
    let position = host.pacer.clock().advance(host.now).0;
    let held = host.sent.last().map_or(0, |sent| sent.at + sent.wire) - position;
    assert!(held >= 62_500);
    let slow = PacerConfig::strict(Rate::from_mbit(1000));
    host.pacer.reconfigure(host.now, &slow).expect("sound");
    let before = host.sent.len();
    host.run_until(Nanos::from_secs(1));
    assert_eq!(host.sent[before].at, position + held);
    assert_eq!(host.sent.len(), 100);
}

#[test]
fn a_wire_that_breaks_a_rule_changes_nothing() {
    let mut host = host();
    for id in 0..30 {
        host.ring(0, host.now, frame(id, 0, 1538));
    }
    host.turn();
    let before = format!("{:?}", host.pacer);
    let mut refuse = |change: &dyn Fn(&mut PacerConfig)| {
        let mut config = PacerConfig::strict(LINK);
        change(&mut config);
        let refused = host.pacer.reconfigure(host.now, &config);
        assert_eq!(format!("{:?}", host.pacer), before);
        refused.expect_err("a rule is broken").to_string()
    };
    assert!(refuse(&|c| c.link = Rate(0)).starts_with("link 0bit/s"));
    assert_eq!(
        refuse(&|c| c.link = Rate::from_mbit(499)),
        "rate 500Mbit/s is above the link's, 499Mbit/s"
    );
    assert_eq!(
        refuse(&|c| c.frame = Bytes(10_001)),
        "burst 10KB is below one frame on the wire, 10.001KB"
    );
    assert!(refuse(&|c| c.batch = Nanos::from_millis(3)).starts_with("horizon 2ms"));
    // Either fits alone.
    let both = PacerConfig {
        batch: Nanos::from_micros(100),
        ..PacerConfig::strict(Rate::from_mbit(500))
    };
    host.pacer.reconfigure(host.now, &both).expect("400 of 500");
    let more = Guarantee::new(PEAK, S, PEAK);
    let refused = host
        .pacer
        .set_guest(host.now, GuestId::first(1), Some(&more));
    assert!(matches!(refused, Err(PacerError::SumAboveLink { .. })));
}

#[test]
fn a_limit_that_the_new_wire_cannot_count_becomes_the_nearest_and_a_closed_one_stays() {
    let mut host = host();
    let now = host.now;
    for (destination, rate) in [(3, 20_000), (4, LINK.0), (5, 0)] {
        host.pacer
            .set_destination(now, GuestId::first(0), destination, Some(Rate(rate)))
            .expect("between 10 kbit/s and the link");
    }
    let mut rates = |mbit| {
        let config = PacerConfig {
            batch: Nanos::from_micros(100),
            ..PacerConfig::strict(Rate::from_mbit(mbit))
        };
        host.pacer.reconfigure(now, &config).expect("400 of it");
        let mut rates = Vec::new();
        for destination in 3..=5 {
            let frame = Record {
                destination,
                ..frame(0, 0, 84)
            };
            host.pacer.enqueue(now, frame);
        }
        host.pacer.batch(now).for_each(drop);
        host.pacer
            .destinations_used(now, |used| rates.push(used.rate.0));
        rates
    };
    assert_eq!(rates(100_000), [100_000, LINK.0, 0]);
    assert_eq!(rates(1000), [100_000, 1_000_000_000, 0]);
}

#[test]
fn a_removed_limit_stays_removed_after_a_wire_change() {
    let mut host = host();
    let (now, guest) = (host.now, GuestId::first(0));
    let mut limit = |rate| {
        let set = host.pacer.set_destination(now, guest, 3, rate);
        set.expect("sound");
        for id in 0..30 {
            let frame = Record {
                destination: 3,
                ..frame(id, 0, 1538)
            };
            host.pacer.enqueue(now, frame);
        }
    };
    limit(Some(Rate::from_mbit(1)));
    limit(None);
    let other = PacerConfig::strict(Rate::from_mbit(5000));
    host.pacer.reconfigure(now, &other).expect("400 of it");
    host.run_until(now + Nanos::from_secs(1));
    assert_eq!(host.of(0).count(), 60);
}

/// A NIC with launch times sends frames in order: the departures of frames that it holds are a
/// lower bound for those after the change.
#[test]
fn frames_on_a_faster_link_depart_after_those_held_by_the_nic() {
    let wire = |mbit, batch| PacerConfig {
        batch: Nanos::from_micros(batch),
        voids: false,
        catch_up: Nanos::ZERO,
        ..PacerConfig::strict(Rate::from_mbit(mbit))
    };
    let mut host = host();
    host.pacer
        .reconfigure(host.now, &wire(1000, 38))
        .expect("sound");
    // The NIC holds a full frame of another guest.
    for (id, (wire, destination)) in (0..).zip([(1142, 0), (379, 0), (1305, 1), (84, 1), (1221, 3)])
    {
        let frame = Record {
            destination,
            ..frame(id, 0, wire)
        };
        host.ring(0, host.now, frame);
    }
    host.run_until(host.now + Nanos(21_145));
    host.ring(1, host.now, frame(5, 1, 84));
    host.run_until(host.now + Nanos(1));
    assert_eq!(host.of(1).count(), 1);
    host.ring(1, host.now, frame(6, 1, 84));
    host.pacer
        .reconfigure(host.now, &wire(2500, 20))
        .expect("sound");
    host.run_until(host.now + Nanos::from_secs(1));
    let moments: Vec<_> = host.of(1).map(|(sent, _)| sent.moment).collect();
    assert_eq!(moments.len(), 2);
    assert!(moments.is_sorted(), "{moments:?}");
}

/// One step of a random history.
#[derive(Debug, Clone)]
enum Step {
    Send(u32, u64, u8),
    Wire(PacerConfig),
    /// Converts this number of limits.
    Translate(usize),
    Pass(u64),
    /// Stops the host for this time.
    Stall(u64),
}

/// The longest configured frame on the wire, in bytes.
const MAX_FRAME: u64 = 1600;

fn wire() -> impl Strategy<Value = PacerConfig> {
    let link = prop_oneof![Just(1000), Just(2500), Just(10_000), Just(100_000_u64)];
    let queue = prop_oneof![
        Just(QueueConfig::Fifo(FifoConfig::default())),
        Just(QueueConfig::FqCodel(FqCodelConfig::default()))
    ];
    (
        link,
        20..200_u64,
        any::<bool>(),
        1538..=MAX_FRAME,
        0..1000_u64,
        queue,
    )
        .prop_map(
            |(mbit, batch, voids, frame, catch_up, best_effort)| PacerConfig {
                batch: Nanos::from_micros(batch),
                voids,
                frame: Bytes(frame),
                catch_up: Nanos::from_micros(catch_up),
                best_effort,
                ..PacerConfig::strict(Rate::from_mbit(mbit))
            },
        )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3_u32, 84..=1538_u64, 0..4_u8).prop_map(|(g, wire, to)| Step::Send(g, wire, to)),
        1 => wire().prop_map(Step::Wire),
        1 => (0..3_usize).prop_map(Step::Translate),
        2 => (0..300_000_u64).prop_map(Step::Pass),
        1 => (0..3_000_000_u64).prop_map(Step::Stall),
    ]
}

proptest! {
    /// No frame is lost or overtakes one of its flow, and guests conform in real time, for any
    /// changes of the wire and any delays of the host.
    #[test]
    fn wire_changes_lose_no_frames_and_guests_still_conform(
        steps in proptest::collection::vec(step(), 1..400),
    ) {
        let mut host = host();
        let mut sent = 0;
        for (id, step) in (0..).zip(steps) {
            match step {
                Step::Send(guest, wire, to) => {
                    let frame = Record { destination: to.into(), ..frame(id, guest, wire) };
                    host.ring(guest as usize, host.now, frame);
                    sent += 1;
                }
                Step::Wire(config) => host.pacer.reconfigure(host.now, &config).expect("sound"),
                Step::Translate(limits) => drop(host.pacer.translate(limits)),
                Step::Pass(nanos) => host.run_until(host.now + Nanos(nanos)),
                Step::Stall(nanos) => host.now += Nanos(nanos),
            }
        }
        host.run_until(host.now + Nanos::from_secs(10));
        let frames = host.sent.iter().filter(|sent| sent.frame.is_some()).count();
        prop_assert_eq!(frames, sent);
        prop_assert_eq!(host.pacer.stats().drops, PacerDrops::default());
        prop_assert_eq!((host.pacer.waiting(), host.pacer.best_effort().packets), (0, 0));
        for guest in 0..3 {
            for destination in 0..4 {
                let flow = host.of(guest).filter(|(_, frame)| frame.destination == destination);
                prop_assert!(flow.map(|(_, frame)| frame.id).is_sorted());
            }
        }
        for guest in 0..2 {
            let departures: Vec<_> = host.of(guest).map(|(sent, _)| (sent.moment.0, sent.wire)).collect();
            prop_assert!(departures.is_sorted_by_key(|(at, _)| *at));
            // Two buckets and a change round up to a byte, 8 ns at 1 Gbit/s.
            conform_in_time(MAX_FRAME, 3 * 8 + 1, &departures);
        }
    }

    /// Limits that are converted one by one have the same departures as those that are converted
    /// together. On a faster wire this holds at any time of conversion.
    #[test]
    fn limits_hold_whether_they_are_translated_at_once_or_one_by_one(
        frames in proptest::collection::vec((84..=1538_u64, 0..5_u8), 1..120),
        before in 0..3_000_000_u64,
        mbit in prop_oneof![Just(1000_u64), Just(2500), Just(40_000)],
        later in 0..5_000_000_u64,
    ) {
        let departures = |pieces: usize, later: Nanos| {
            let mut host = host();
            host.pacer
                .set_destination(host.now, GuestId::first(0), 3, Some(Rate(0)))
                .expect("sound");
            for (id, (wire, to)) in (0..).zip(&frames) {
                let frame = Record { destination: (*to).into(), ..frame(id, 0, *wire) };
                host.ring(0, host.now, frame);
            }
            host.run_until(Nanos(before));
            let config = PacerConfig {
                batch: Nanos::from_micros(100),
                ..PacerConfig::strict(Rate::from_mbit(mbit))
            };
            host.pacer.reconfigure(host.now, &config).expect("sound");
            let (now, guest) = (host.now, GuestId::first(0));
            host.run_until(now + later);
            while !host.pacer.translate(pieces) {}
            host.run_until(now + Nanos::from_millis(5));
            host.pacer.set_destination(host.now, guest, 3, Some(B)).expect("sound");
            host.run_until(now + Nanos::from_secs(10));
            let sent = host.of(0).map(|(sent, frame)| (frame.id, sent.departure));
            sent.collect::<Vec<_>>()
        };
        let at_once = departures(usize::MAX, Nanos::ZERO);
        prop_assert_eq!(at_once.len(), frames.len());
        prop_assert_eq!(&departures(1, Nanos::ZERO), &at_once);
        if mbit > 10_000 {
            prop_assert_eq!(&departures(1, Nanos(later)), &at_once);
        }
    }

    /// A new process does not know the earlier traffic: the guest's bytes conform as if there had
    /// been one process.
    #[test]
    fn a_restart_gives_no_burst_a_second_time(
        guarantee in (1..9000_u64, 1538..100_000_u64, 0..=100_u64).prop_map(|(mbit, burst, above)| {
            let peak = Rate::from_mbit(mbit + (10_000 - mbit) * above / 100);
            Guarantee::new(Rate::from_mbit(mbit), Bytes(burst), peak)
        }),
        lens in proptest::collection::vec(84..=1538_u64, 50..500),
        restarts in proptest::collection::vec((0..3_000_000_u64, 60_000..1_000_000_u64), 0..6),
    ) {
        let config = PacerConfig::strict(LINK);
        let mut host = Host::new(&config, &[guarantee]);
        for (id, wire) in (0..).zip(lens) {
            host.ring(0, host.now, frame(id, 0, wire));
        }
        for (runs, stands) in restarts {
            host.run_until(host.now + Nanos(runs));
            prop_assert_eq!(host.pacer.stats().frozen, Nanos::ZERO);
            // At least the time of the NIC's maximum contents: a batch and a frame.
            host.now += Nanos(stands);
            host.pacer = Pacer::new(&config).expect("sound");
            host.pacer.set_guest(host.now, GuestId::first(0), Some(&guarantee)).expect("sound");
        }
        host.run_until(host.now + Nanos::from_secs(20));
        check_wire(&host.sent);
        let departures: Vec<_> = host.of(0).map(|(sent, _)| (sent.departure.expect("guaranteed"), sent.wire)).collect();
        conform(&config, &guarantee, &departures);
    }

    /// After a start with empty buckets, the guest's traffic is limited to the tokens since then.
    #[test]
    fn a_guest_starts_with_nothing(
        mbit in 1..=10_000_u64,
        burst in 1538..1_000_000_u64,
        lens in proptest::collection::vec(84..=1538_u64, 1..200),
    ) {
        let mut host = Host::new(&PacerConfig::strict(LINK), &[]);
        let guarantee = Guarantee::new(Rate::from_mbit(mbit), Bytes(burst), LINK);
        host.pacer.set_guest(host.now, GuestId::first(0), Some(&guarantee)).expect("sound");
        let start = host.pacer.clock().advance(host.now).0;
        for (id, wire) in (0..).zip(lens) {
            host.ring(0, host.now, frame(id, 0, wire));
        }
        host.run_until(host.now + Nanos::from_secs(20));
        // An interval that begins at `start` with a burst of nothing.
        let mut sent = 0;
        for (frame, _) in host.of(0) {
            sent += u128::from(frame.wire) * u128::from(LINK.0);
            let earned = u128::from(frame.at - start) * u128::from(guarantee.bandwidth.0);
            prop_assert!(sent <= earned);
        }
        prop_assert_eq!(host.pacer.waiting(), 0);
    }
}

/// The wheel's last level turns around every 2^40 bytes of the wire, 880 s at 10 Gbit/s.
#[test]
fn frames_after_a_long_rest_leave_in_order_where_the_wheel_turns_around() {
    const TURN: u64 = 1 << 40;
    for turns in 1..4 {
        let mut host = host();
        let before_the_turn = LINK.time_for(Bytes(turns * TURN - 15_000));
        for id in 0..4 {
            // At most `PEAK`: 30,760 B of the wire apart, the second is behind the turn.
            host.ring(1, before_the_turn, frame(id, 1, 1538));
        }
        host.run_until(before_the_turn + Nanos::from_millis(1));
        let ids: Vec<_> = host.of(1).map(|(_, record)| record.id).collect();
        assert_eq!(ids, [0, 1, 2, 3], "after {turns} turns");
        check_wire(&host.sent);
    }
}

/// Prints the time of a change to another link for 500 guests with ten limits each and a waiting
/// frame, and the time of a hundred limits.
///
/// `cargo test --release -p tailbound-dataplane --lib another_link -- --ignored --nocapture`
#[test]
#[ignore = "measures, and judges nothing"]
fn measure_a_change_to_another_link() {
    const GUESTS: u32 = 500;
    let guarantee = Guarantee::new(Rate::from_mbit(1), S, Rate::from_mbit(100));
    let mut pacer: Pacer<Record> = Pacer::new(&PacerConfig::strict(LINK)).expect("sound");
    let mut now = Nanos::ZERO;
    for limits in [0, 10] {
        for id in (0..GUESTS).map(GuestId::first) {
            pacer.set_guest(now, id, Some(&guarantee)).expect("sound");
            for destination in 0..limits {
                let rate = Some(Rate::from_mbit(1));
                pacer
                    .set_destination(now, id, destination, rate)
                    .expect("sound");
            }
            pacer.enqueue(now, frame(7, id.slot() as u32, 1538));
        }
        let mut best = [std::time::Duration::MAX; 2];
        for n in 0..50 {
            now += Nanos(1000);
            let link = if n % 2 == 0 { 20_000 } else { 10_000 };
            let config = PacerConfig::strict(Rate::from_mbit(link));
            let start = std::time::Instant::now();
            pacer.reconfigure(now, &config).expect("sound");
            best[0] = best[0].min(start.elapsed());
            let start = std::time::Instant::now();
            pacer.translate(100);
            best[1] = best[1].min(start.elapsed());
            pacer.translate(usize::MAX);
        }
        let [step, hundred] = best;
        eprintln!(
            "measured: {GUESTS} guests with {limits} limits each: {step:?}, and {hundred:?} for \
             100 lines of them"
        );
    }
}

#[test]
fn a_frame_past_the_pacer_delays_others_by_its_length() {
    let mut host = host();
    let now = host.pacer.core.start_at(host.now).0;
    // 100 B of headers and data take 124 B of the wire; a shorter frame is padded.
    host.pacer.take_wire(host.now, Bytes(100));
    host.pacer.take_wire(host.now, Bytes(20));
    host.ring(1, host.now, frame(0, 1, 1538));
    host.turn();
    let (sent, _) = host.of(1).next().expect("it was due");
    assert_eq!(sent.at, now + 124 + void::SHORTEST.0);
    assert_eq!(host.pacer.core.chain.wire.taken().0, sent.at + 1538);
}
