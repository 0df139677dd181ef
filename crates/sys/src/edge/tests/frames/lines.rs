//! Buckets of destinations, before the splitter: the same departures as the exact buckets.

use super::*;
use crate::edge::raw::{Line, LineKey, LineSide, Split};
use crate::edge::{EdgeRates, GrantedRate, RatePlace};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tailbound_dataplane::testing::frames::{ethernet, ipv4, udp};
use tailbound_units::exact::{BYTE_IN_NANOS, TokenBucket};
use tailbound_units::{Bytes, Nanos, Rate, WireBytes};

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const HORIZON: Nanos = Nanos(50_000_000);

fn station(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 9, number]
}

fn exact(bucket: Bucket, now: Nanos) -> TokenBucket<Nanos> {
    let burst = WireBytes(bucket.burst.0);
    let full = TokenBucket::new(BYTE_IN_NANOS, bucket.rate, burst);
    full.expect("a rate").empty(now)
}

impl Programs {
    /// Writes buckets for destinations of the guest, without a splitter.
    fn split(&mut self, buckets: &[Bucket]) {
        let before = self.rules(GUEST);
        let split = &mut self.edge.maps.split;
        for (number, bucket) in buckets.iter().enumerate() {
            let key = LineKey::new(before.slot, station(number as u8));
            let line = Line::new(*bucket, &before, number as u32).expect("a right bucket");
            if split.lines.get(&key, 0).is_err() {
                let side = LineSide::default();
                split.sides.set(line.place, side, 0).expect("a map");
            }
            split.lines.insert(key, line, 0).expect("a map");
        }
        let mut rules = before;
        rules.succeed(Some(&before), before.slot);
        rules.split(Split::Before);
        self.edge.place(GUEST, &rules).expect("writable maps");
    }

    /// A frame of `len` bytes to a destination, as it arrives at the splitter.
    fn to(&self, number: u8, len: usize, now: Nanos) -> Input {
        Input {
            frame: ethernet(station(number), A, 0x0800, &vec![0; len]),
            mark: GUEST,
            slot: self.rules(GUEST).slot + 1,
            tstamp: now.0,
            ..Input::default()
        }
    }
}

fn with_horizon() -> GuestRules {
    GuestRules {
        horizon: Some(HORIZON),
        ..GuestRules::default()
    }
}

#[test]
fn each_destination_has_the_departures_of_its_own_exact_bucket() {
    let Some(programs) = Programs::load(Clock::OfTests) else {
        return;
    };
    let programs = std::cell::RefCell::new(programs);
    let bucket = || {
        (1_000_000_u64..10_000_000_000, 64_u64..50_000).prop_map(|(rate, burst)| Bucket {
            rate: Rate(rate),
            burst: Bytes(burst),
        })
    };
    let case = (
        prop::collection::vec(bucket(), 1..4),
        bucket(),
        prop::collection::vec((0_u64..400_000, 1_usize..1501, 0_u8..5), 1..80),
    );
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let result = runner.run(&case, |(buckets, other, frames)| {
        let programs = &mut *programs.borrow_mut();
        programs.start(GUEST, &with_horizon());
        programs.split(&buckets);
        let mut buckets = buckets;
        let mut models: BTreeMap<u8, TokenBucket<Nanos>> = BTreeMap::new();
        let (mut now, half) = (Nanos::from_secs(1), frames.len() / 2);
        for (at, (gap, len, number)) in frames.into_iter().enumerate() {
            now = now.saturating_add(Nanos(gap));
            if at == half {
                // Another rate in the middle: the tokens stay.
                buckets[0] = other;
                programs.split(&buckets);
            }
            let outcome = run_on(&programs.to_splitter, &programs.to(number, len, now));
            let Some(bucket) = buckets.get(usize::from(number)) else {
                prop_assert_eq!((outcome.is_dropped, outcome.tstamp), (false, 0));
                continue;
            };
            let model = models.entry(number).or_insert_with(|| exact(*bucket, now));
            if model.rate() != bucket.rate || model.burst().0 != bucket.burst.0 {
                // Frames that wait keep their times.
                let last = Nanos(model.full_at().0.saturating_sub(model.fill_time()));
                let at = last.max(now);
                model.reconfigure(&exact(*bucket, at), at, at);
            }
            let wire = (len + 14).max(60) as u64 + 24;
            let full = model.full_at().max(now);
            let charged = model.charge(now, WireBytes(wire));
            let leaves = if wire > bucket.burst.0 {
                full
            } else {
                charged.leaves
            };
            let is_late = leaves > now.saturating_add(HORIZON);
            prop_assert_eq!(outcome.is_dropped, is_late);
            if is_late {
                model.refund(charged);
            } else {
                let time = if leaves > now { leaves.0 } else { 0 };
                prop_assert_eq!(outcome.tstamp, time);
            }
        }
        Ok(())
    });
    result.expect("the exact buckets");
}

#[test]
fn only_frames_to_destinations_with_buckets_go_into_the_splitter_and_once() {
    let Some(mut programs) = Programs::load(Clock::OfTests) else {
        return;
    };
    let address = std::net::Ipv4Addr::LOCALHOST;
    let packet = ipv4(address, address, 17, &udp(1, 2, b"x"));
    let run = |programs: &Programs, number, mark| {
        let input = Input {
            frame: ethernet(station(number), A, 0x0800, &packet),
            mark,
            ..Input::default()
        };
        run_on(&programs.from_guest, &input)
    };
    let bucket = Bucket {
        rate: Rate::from_mbit(10),
        burst: Bytes(3_000),
    };
    // Both ways: that of plain frames, and the other one.
    let plain = Guard::new(A, [std::net::IpAddr::V4(address).into()]);
    for guard in [None, Some(plain)] {
        programs.start(
            GUEST,
            &GuestRules {
                guard,
                ..with_horizon()
            },
        );
        programs.split(&[bucket]);
        assert!(!run(&programs, 0, 0).is_redirected, "without a splitter");
        let splitter = &mut programs.edge.maps.split.splitter;
        splitter.set(0, 1, 0).expect("a map");
        let first = run(&programs, 0, 0);
        assert!(first.is_redirected);
        assert_eq!(first.mark, GUEST);
        let second = run(&programs, 0, GUEST);
        assert!(!second.is_redirected && !second.is_dropped);
        assert_eq!(second.mark, 0);
        assert!(!run(&programs, 1, 0).is_redirected);
        let splitter = &mut programs.edge.maps.split.splitter;
        splitter.set(0, 0, 0).expect("a map");
    }
    // The host's own frames have nothing to do in the splitter.
    let own = Input {
        mark: 0,
        ..programs.to(0, 100, Nanos(1))
    };
    assert!(run_on(&programs.to_splitter, &own).is_dropped);
}

/// Without a renewal the rate falls to the lower one, and to that without a grant after the pledge.
#[test]
fn a_granted_rate_ends_with_its_lease() {
    let Some(mut programs) = Programs::load(Clock::OfTests) else {
        return;
    };
    programs.start(GUEST, &with_horizon());
    let burst = Bytes(1_538);
    let bucket = |mbit| Bucket {
        rate: Rate::from_mbit(mbit),
        burst,
    };
    programs.split(&[bucket(1), bucket(1)]);
    let ms = |ms| Nanos::from_secs(1) + Nanos::from_millis(ms);
    // A frame of 1538 B takes 0.123 ms at 100 Mbit/s, and 1.23 ms at 10 Mbit/s.
    let (quick, long) = (123_040, 1_230_400);
    let mut rates = EdgeRates::open(&programs.bpffs.pin()).expect("what is pinned");
    let mut wait = |granted: [u64; 2], now: Nanos| {
        for (number, granted) in (0..).zip(granted) {
            let slot = programs.rules(GUEST).slot;
            let key = LineKey::new(slot, station(number));
            let place = u32::from(number);
            let at = RatePlace {
                ifindex: GUEST,
                key,
                place,
            };
            let rate = GrantedRate {
                bucket: bucket(granted),
                alone: bucket(10),
                horizon: HORIZON,
            };
            let changed = rates.change(&at, &rate, now);
            changed.expect("an entry");
            let all = rates.all().expect("a map");
            assert!(all.contains(&at), "{all:?}");
        }
        rates.renew(ms(5), ms(600)).expect("a map");
        let leaves = [0, 1].map(|number| {
            let place = u32::from(number);
            let sides = &mut programs.edge.maps.split.sides;
            sides.set(place, LineSide::default(), 0).expect("a map");
            let outcome = run_on(&programs.to_splitter, &programs.to(number, 1_500, now));
            outcome.tstamp - now.0
        });
        let usage = programs.edge.maps.split.sides.get(&0, 0).expect("a map");
        let usage = usage.usage(now);
        // Rounded down.
        assert_eq!(usage.charged, burst);
        assert!(usage.lacks.0.abs_diff(2 * burst.0) <= 1, "{usage:?}");
        assert!(usage.burst.0.abs_diff(burst.0) <= 1, "{usage:?}");
        leaves
    };
    // An empty bucket lets a frame leave when it is full.
    assert_eq!(wait([100, 10], ms(5)), [quick, long]);
    assert_eq!(wait([100, 1], ms(6)), [long, 10 * long], "the lower one");
    assert_eq!(
        wait([100, 1], ms(601)),
        [long, long],
        "that without a grant"
    );
}

/// Of two equal rates the bucket without a loan holds after the lease.
#[test]
fn a_loan_ends_with_its_lease() {
    let Some(mut programs) = Programs::load(Clock::OfTests) else {
        return;
    };
    programs.start(GUEST, &with_horizon());
    let bucket = |burst| Bucket {
        rate: Rate::from_mbit(10),
        burst: Bytes(burst),
    };
    programs.split(&[bucket(1_538)]);
    let ms = |ms| Nanos::from_secs(1) + Nanos::from_millis(ms);
    let mut rates = EdgeRates::open(&programs.bpffs.pin()).expect("what is pinned");
    let key = LineKey::new(programs.rules(GUEST).slot, station(0));
    let at = RatePlace {
        ifindex: GUEST,
        key,
        place: 0,
    };
    let rate = GrantedRate {
        bucket: bucket(6_152),
        alone: bucket(1_538),
        horizon: HORIZON,
    };
    let changed = rates.change(&at, &rate, ms(0));
    changed.expect("an entry");
    rates.renew(ms(5), ms(600)).expect("a map");
    for (now, burst) in [(4, 6_152), (6, 1_538), (601, 1_538)] {
        run_on(&programs.to_splitter, &programs.to(0, 100, ms(now)));
        let usage = rates.usage(&at, ms(now)).expect("a map");
        assert!(usage.burst.0.abs_diff(burst) <= 1, "{now}: {usage:?}");
    }
}

/// A bucket fills at each rate as long as that was in force, also without a frame.
#[test]
fn a_bucket_fills_at_the_rates_that_were_in_force() {
    let Some(mut programs) = Programs::load(Clock::OfTests) else {
        return;
    };
    programs.start(GUEST, &with_horizon());
    let bucket = |mbit| Bucket {
        rate: Rate::from_mbit(mbit),
        burst: Bytes(15_000),
    };
    programs.split(&[bucket(1)]);
    let ms = |ms| Nanos::from_secs(1) + Nanos::from_millis(ms);
    let mut rates = EdgeRates::open(&programs.bpffs.pin()).expect("what is pinned");
    let slot = programs.rules(GUEST).slot;
    let at = RatePlace {
        ifindex: GUEST,
        key: LineKey::new(slot, station(0)),
        place: 0,
    };
    let mut model = exact(bucket(1), ms(0));
    // The first change takes the rate of 1 Mbit/s from here on.
    for (now, mbit) in [(0, 1), (10, 4), (12, 1), (20, 8)] {
        let rate = GrantedRate {
            bucket: bucket(mbit),
            alone: bucket(1),
            horizon: HORIZON,
        };
        rates.renew(ms(100), ms(100)).expect("a map");
        let changed = rates.change(&at, &rate, ms(now));
        changed.expect("an entry");
        model.reconfigure(&exact(bucket(mbit), ms(now)), ms(now), ms(now));
    }
    let usage = rates.usage(&at, ms(21)).expect("a map");
    // 1,250 B, 1,000 B, 1,000 B and 1,000 B.
    assert_eq!(model.lacks(ms(21)).0, 15_000 - 4_250);
    assert!(usage.lacks.0.abs_diff(15_000 - 4_250) <= 1, "{usage:?}");
    let gone = RatePlace {
        key: LineKey::new(slot, station(9)),
        ..at
    };
    let rate = GrantedRate {
        bucket: bucket(1),
        alone: bucket(1),
        horizon: HORIZON,
    };
    rates
        .change(&gone, &rate, ms(22))
        .expect_err("an entry that has gone stays so");
}
