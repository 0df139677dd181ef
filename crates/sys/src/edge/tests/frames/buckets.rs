//! Departure times are those of the exact buckets.

use super::*;
use proptest::prelude::*;
use tailbound_units::exact::{BYTE_IN_NANOS, TokenBucket};
use tailbound_units::{Bytes, Nanos, Rate, WireBytes};

const FULL_FRAME: Bytes = Bytes(1538);

fn bucket(rate: u64, burst: u64) -> Bucket {
    Bucket {
        rate: Rate(rate),
        burst: Bytes(burst),
    }
}

fn exact(bucket: Bucket, now: Nanos) -> TokenBucket<Nanos> {
    let burst = WireBytes(bucket.burst.0);
    let full = TokenBucket::new(BYTE_IN_NANOS, bucket.rate, burst);
    full.expect("a rate").empty(now)
}

/// A frame of `len` bytes from the guest that arrives at `now`.
fn frame(len: usize, now: Nanos) -> Input {
    Input {
        frame: vec![0; len],
        from: GUEST,
        tstamp: now.0,
        ..Input::default()
    }
}

/// The chain as it should be.
struct Model {
    buckets: Vec<TokenBucket<Nanos>>,
    horizon: Nanos,
}

impl Model {
    /// Returns when a frame leaves; `None` if it may not.
    fn pass(&mut self, now: Nanos, wire: u64) -> Option<Nanos> {
        let mut leaves = now;
        let mut undo = Vec::new();
        for bucket in &mut self.buckets {
            let full = bucket.full_at().max(leaves);
            let charged = bucket.charge(leaves, WireBytes(wire));
            // Longer than the bucket is deep: once it is full.
            let is_long = wire > bucket.burst().0;
            leaves = if is_long { full } else { charged.leaves };
            undo.push(charged);
        }
        if leaves > now.saturating_add(self.horizon) {
            for (bucket, charged) in self.buckets.iter_mut().zip(undo) {
                bucket.refund(charged);
            }
            return None;
        }
        Some(leaves)
    }
}

fn expected(leaves: Option<Nanos>, now: Nanos) -> (bool, Option<u64>) {
    let time = leaves.map(|leaves| if leaves > now { leaves.0 } else { 0 });
    (leaves.is_none(), time)
}

fn observed(outcome: &Outcome) -> (bool, Option<u64>) {
    let is_dropped = outcome.is_dropped;
    (is_dropped, (!is_dropped).then_some(outcome.tstamp))
}

#[test]
fn departures_are_exact_to_the_nanosecond() {
    let Some(programs) = Programs::load(Clock::OfTests) else {
        return;
    };
    let programs = std::cell::RefCell::new(programs);
    let rate = || {
        prop_oneof![
            Just(100_000_000_u64),
            Just(1_000_000_000),
            Just(40_000_000_000),
            1_000_000_u64..100_000_000_000,
        ]
    };
    let case = (
        (rate(), rate(), rate()),
        (64_u64..2_000, 64_u64..100_000),
        0_u64..100_000_000,
        prop::collection::vec((0_u64..300_000, 15_usize..1515), 1..60),
        0_usize..4,
    );
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let result = runner.run(&case, |(rates, bursts, horizon, frames, chain)| {
        let programs = &mut *programs.borrow_mut();
        let limit = (chain != 1).then_some(bucket(rates.0, bursts.0));
        let guaranteed = (chain > 0).then_some(bucket(rates.1, bursts.1));
        let peak = (chain > 1).then_some(bucket(rates.2, FULL_FRAME.0));
        let rules = GuestRules {
            outward: limit,
            guarantee: guaranteed.map(|bucket| Guarantee {
                bucket,
                peak: peak.map(|it| it.rate),
                frame: FULL_FRAME,
                packet: None,
            }),
            horizon: Some(Nanos(horizon)),
            ..GuestRules::default()
        };
        programs.start(GUEST, &rules);
        let mut now = Nanos(1_000_000_000);
        let first = now.saturating_add(Nanos(frames[0].0));
        let wanted = [limit, guaranteed, peak].into_iter().flatten();
        let mut model = Model {
            buckets: wanted.map(|it| exact(it, first)).collect(),
            horizon: Nanos(horizon),
        };
        let slot = programs.rules(GUEST).slot + 1;
        for (gap, len) in frames {
            now = now.saturating_add(Nanos(gap));
            // Some frames name the slot, some do not, and some name another guest's.
            let slot = [slot, 0, slot + 1][len % 3];
            let frame = Input {
                slot,
                ..frame(len, now)
            };
            let outcome = run_on(&programs.to_uplink, &frame);
            let wire = len.max(60) as u64 + 24;
            prop_assert_eq!(observed(&outcome), expected(model.pass(now, wire), now));
        }
        Ok(())
    });
    result.expect("the exact buckets");
}

#[test]
fn frames_between_guests_obey_both_outward_and_inward_limits() {
    let Some(mut programs) = Programs::load(Clock::OfTests) else {
        return;
    };
    let (inward, outward) = (bucket(50_000_000, 9_000), bucket(80_000_000, 3_000));
    let receiver = GuestRules {
        inward: Some(inward),
        ..GuestRules::default()
    };
    let sender = GuestRules {
        outward: Some(outward),
        ..GuestRules::default()
    };
    programs.start(GUEST, &receiver);
    programs.start(NEIGHBOUR, &sender);
    let start = Nanos::from_secs(5);
    let (mut of_sender, mut of_receiver) = (exact(outward, start), exact(inward, start));
    for number in 0..100 {
        let now = start.saturating_add(Nanos(number * 1_000));
        let mut input = frame(1514, now);
        input.from = NEIGHBOUR;
        let between = of_sender.charge(now, WireBytes(1538)).leaves;
        let leaves = of_receiver.charge(between, WireBytes(1538)).leaves;
        let outcome = run_on(&programs.to_guest, &input);
        assert_eq!(
            observed(&outcome),
            expected(Some(leaves), now),
            "frame {number}"
        );
    }
}

#[test]
fn a_change_keeps_the_tokens() {
    let Some(mut programs) = Programs::load(Clock::OfTests) else {
        return;
    };
    let steps = [
        bucket(1_000_000_000, 15_000),
        bucket(10_000_000, 15_000),
        bucket(7_123_456_789, 30_000),
        bucket(333_333_333, 4_000),
    ];
    let rules = |bucket| GuestRules {
        outward: Some(bucket),
        horizon: Some(MAX_HORIZON),
        ..GuestRules::default()
    };
    programs.start(GUEST, &rules(steps[0]));
    let mut now = Nanos::from_secs(2);
    let mut model = exact(steps[0], now);
    for round in 0..12 {
        for _ in 0..7 {
            let outcome = run_on(&programs.to_uplink, &frame(1514, now));
            let leaves = model.charge(now, WireBytes(1538)).leaves;
            assert_eq!(
                observed(&outcome),
                expected(Some(leaves), now),
                "round {round}"
            );
            now = now.saturating_add(Nanos(20_000));
        }
        let new = steps[(round + 1) % 4];
        programs.change(GUEST, &rules(new));
        model.reconfigure(&exact(new, now), now, now);
    }
}

#[test]
fn a_packet_of_gso_is_charged_by_its_frames() {
    let Some(mut programs) = Programs::load(Clock::OfTests) else {
        return;
    };
    let rules = GuestRules {
        outward: Some(bucket(8_000_000, 10_000)),
        horizon: Some(MAX_HORIZON),
        ..GuestRules::default()
    };
    let now = Nanos::from_secs(1);
    // 8 Mbit/s: a byte each microsecond; the bucket is empty.
    let mut waits = |input: Input| {
        programs.start(GUEST, &rules);
        let outcome = run_on(&programs.to_uplink, &input);
        outcome.tstamp - now.0
    };
    assert_eq!(waits(frame(60, now)), 84_000);
    assert_eq!(waits(frame(15, now)), 84_000);
    assert_eq!(waits(frame(1514, now)), 1_538_000);
    // Ten segments of 144 B behind 66 B of headers.
    let mut packet = frame(1_506, now);
    (packet.wire_len, packet.segments, packet.segment_size) = (2_100, 10, 144);
    assert_eq!(waits(packet.clone()), 2_340_000);
    // Their number is unknown where a guest's kernel did not count them.
    packet.segments = 0;
    assert_eq!(waits(packet), 2_340_000 + 24_000);
}

/// A packet of `segments` segments of `size` bytes, behind 66 bytes of headers each.
fn offloaded(segments: u32, size: u32, now: Nanos) -> Input {
    Input {
        wire_len: segments * (size + 66),
        segments,
        segment_size: size,
        ..frame(60, now)
    }
}

#[test]
fn no_packet_of_gso_exceeds_the_burst_that_admission_counts() {
    const COUNTED: Bytes = Bytes(70_000);
    const BURST: Bytes = Bytes(15_000);
    let Some(mut programs) = Programs::load(Clock::OfTests) else {
        return;
    };
    let rate = Rate::from_mbit(100);
    let guarantee = Guarantee {
        bucket: bucket(rate.0, BURST.0),
        peak: Some(Rate::from_mbit(1_000)),
        frame: FULL_FRAME,
        packet: Some(COUNTED),
    };
    let rules = |packet| GuestRules {
        guarantee: Some(Guarantee {
            packet,
            ..guarantee
        }),
        ..GuestRules::default()
    };
    let start = Nanos::from_secs(1);
    // Packets of up to 65,536 bytes with their headers, from full segments to little else than headers.
    for (size, is_refused) in [(1_448, false), (512, false), (64, true), (1, true)] {
        programs.start(GUEST, &rules(Some(COUNTED)));
        let most = 65_536 / (size + 66);
        let mut leaving = Vec::new();
        let mut now = start;
        for segments in [most, most, 2, most / 2, most, most / 16] {
            let packet = offloaded(segments, size, now);
            let wire = u64::from(packet.wire_len + 24 * segments);
            let outcome = run_on(&programs.to_uplink, &packet);
            assert_eq!(outcome.is_dropped, wire > COUNTED.0, "{segments} of {size}");
            if !outcome.is_dropped {
                leaving.push((outcome.tstamp.max(now.0), wire));
            }
            now = now.saturating_add(Nanos::from_millis(7));
        }
        for (first, (begin, _)) in leaving.iter().enumerate() {
            let mut bytes = 0;
            for (end, wire) in &leaving[first..] {
                bytes += wire;
                let allowed = rate.0 * (end - begin) / 8_000_000_000 + BURST.0 + COUNTED.0;
                assert!(
                    bytes <= allowed,
                    "{bytes} of {allowed} bytes in segments of {size}"
                );
            }
        }
        let drops = programs.edge.maps.dropped.get(&GUEST, 0).expect("a guest");
        let refused = drops[DropReason::LongPacket as usize];
        assert_eq!(
            refused,
            if is_refused { 3 } else { 0 },
            "segments of {size}"
        );
    }
    programs.start(GUEST, &rules(None));
    let outcome = run_on(&programs.to_uplink, &offloaded(978, 1, start));
    assert!(!outcome.is_dropped, "without a longest packet any passes");
}

#[test]
fn frames_without_pacing_have_no_departure_time() {
    let Some(mut programs) = Programs::load(Clock::Monotonic) else {
        return;
    };
    programs.start(GUEST, &GuestRules::default());
    let received = frame(100, Nanos(1_790_000_000_000_000_000));
    let stranger = Input {
        from: 77,
        ..received.clone()
    };
    let local = Input {
        from: 0,
        ..received.clone()
    };
    for program in [&programs.to_uplink, &programs.to_guest] {
        assert_eq!(run_on(program, &received).tstamp, 0);
        assert_eq!(run_on(program, &stranger).tstamp, 0);
        // The host's own sockets pace their frames themselves.
        assert_eq!(run_on(program, &local).tstamp, received.tstamp);
    }
}

#[test]
fn no_charge_is_lost_between_cpus() {
    const FRAMES: u32 = 2_000_000;
    let Some(mut programs) = Programs::load(Clock::Monotonic) else {
        return;
    };
    let rules = GuestRules {
        outward: Some(bucket(400_000_000_000, 1_000_000)),
        horizon: Some(MAX_HORIZON),
        ..GuestRules::default()
    };
    programs.start(GUEST, &rules);
    let programs = &programs;
    let start = std::sync::Barrier::new(2);
    let send = |cpu| {
        let mut cpus = rustix::thread::CpuSet::new();
        cpus.set(cpu);
        // With a single CPU nothing is raced.
        let _ = rustix::thread::sched_setaffinity(None, &cpus);
        let input = Input {
            repeat: FRAMES,
            ..frame(1514, Nanos::ZERO)
        };
        start.wait();
        run_on(&programs.to_uplink, &input)
    };
    std::thread::scope(|scope| {
        let send = &send;
        for cpu in 0..2 {
            scope.spawn(move || send(cpu));
        }
    });
    let maps = &programs.edge.maps;
    let slot = maps.guests.get(&GUEST, 0).expect("a guest").slot;
    let [outward, _] = crate::edge::raw::sides(slot);
    let side = maps.quick.sides.get(&outward, 0).expect("a slot");
    let counters = Counters::new([0; DropReason::ALL.len()], &side, &side);
    assert_eq!(
        counters.charged_outward,
        Bytes(2 * u64::from(FRAMES) * 1_538)
    );
}
