use super::*;
use crate::GuestId;
use crate::testing::Record;
use proptest::prelude::*;

fn key(guest: u32, destination: u128) -> FlowKey {
    FlowKey {
        source: GuestId::first(guest),
        destination,
    }
}

fn meter() -> Meter {
    Meter::new(&MeterConfig::default())
}

/// Sends packets of `len` every `gap` from `from` to `to`; how many were high.
fn send(meter: &mut Meter, len: usize, gap: Nanos, from: Nanos, to: Nanos) -> u64 {
    let (mut now, mut high) = (from, 0);
    while now < to {
        high += u64::from(meter.is_of_small_flow(now, key(1, 2), len));
        now += gap;
    }
    high
}

const START: Nanos = Nanos::from_secs(5);

#[test]
fn a_burst_is_high_until_the_bucket_is_empty() {
    let mut meter = meter();
    // 30 KB are 20 packets of 1500 bytes, all at once.
    assert_eq!(
        send(&mut meter, 1500, Nanos(1), START, START + Nanos(30)),
        20
    );
}

#[test]
fn a_64_kb_packet_needs_tokens_for_all_its_bytes() {
    assert!(
        !meter().is_of_small_flow(START, key(1, 2), 65_000),
        "more than any burst"
    );
    let mut meter = meter();
    assert!(meter.is_of_small_flow(START, key(1, 2), 30_000));
    assert!(!meter.is_of_small_flow(START, key(1, 2), 1));
}

#[test]
fn flows_do_not_share_a_bucket() {
    let mut meter = meter();
    meter.is_of_small_flow(START, key(1, 2), 65_000);
    assert!(meter.is_of_small_flow(START, key(1, 3), 100));
    assert!(meter.is_of_small_flow(START, key(2, 2), 100));
    assert!(!meter.is_of_small_flow(START, key(1, 2), 100));
    assert_eq!(meter.flows(), 3);
}

#[test]
fn a_flow_below_the_rate_is_always_high() {
    let mut meter = meter();
    // 1500 bytes in 1.2 ms are 10 Mbit/s exactly.
    let gap = Nanos::from_micros(1200);
    let packets = 10_000;
    let end = START + Nanos(gap.0 * packets);
    assert_eq!(send(&mut meter, 1500, gap, START, end), packets);
}

#[test]
fn a_flow_above_the_rate_does_not_flap() {
    // 1 % above the rate, for a minute: the burst lasts a while, then it is low
    // for good.
    let mut meter = meter();
    let gap = Nanos(1_188_000);
    send(&mut meter, 1500, gap, START, START + Nanos::from_secs(60));
    assert_eq!(meter.stats().demoted, 1);
    assert_eq!(meter.stats().promoted, 0);
}

#[test]
fn a_low_flow_that_falls_silent_is_high_at_the_next_check() {
    let mut meter = meter();
    // Ten times the rate: deep in debt at once.
    let gap = Nanos::from_micros(120);
    let busy = START + Nanos::from_millis(350);
    send(&mut meter, 1500, gap, START, busy);
    assert_eq!(meter.stats().promoted, 0);
    // 35 ms later the bucket would do, 37 ms later it does. A check is due.
    let soon = busy + Nanos::from_millis(30);
    assert!(!meter.is_of_small_flow(soon, key(1, 2), 100));
    let late = busy + Nanos::from_millis(140);
    assert!(meter.is_of_small_flow(late, key(1, 2), 100));
    assert_eq!(meter.stats().promoted, 1);
}

#[test]
fn a_low_flow_is_not_checked_before_its_time() {
    let mut meter = meter();
    meter.is_of_small_flow(START, key(1, 2), 65_000);
    // The bucket is full again after 48 ms, the check due after 100.
    for ms in [50, 70, 99] {
        let now = START + Nanos::from_millis(ms);
        assert!(!meter.is_of_small_flow(now, key(1, 2), 100));
    }
    let now = START + Nanos::from_millis(100);
    assert!(meter.is_of_small_flow(now, key(1, 2), 100));
}

#[test]
fn a_low_flow_that_slows_down_becomes_high_and_stays_so() {
    let mut meter = meter();
    let slow_from = START + Nanos::from_millis(500);
    send(&mut meter, 1500, Nanos::from_micros(120), START, slow_from);
    // Half the rate: 45 KB of surplus take 72 ms.
    let gap = Nanos::from_micros(2400);
    let settled = slow_from + Nanos::from_millis(200);
    send(&mut meter, 1500, gap, slow_from, settled);
    let end = settled + Nanos::from_secs(10);
    let before = meter.stats().bulk;
    send(&mut meter, 1500, gap, settled, end);
    assert_eq!(meter.stats().bulk, before);
    assert_eq!(meter.stats().promoted, 1);
}

#[test]
fn high_traffic_never_exceeds_rate_and_burst() {
    // Bursts of 100 KB every 150 ms: only a bucket's worth of each is high.
    let mut meter = meter();
    let mut high = 0;
    for burst in 0..100 {
        let from = START + Nanos::from_millis(150 * burst);
        high += send(&mut meter, 1000, Nanos(1), from, from + Nanos(100));
    }
    assert!(high * 1000 <= 30_000 * 100, "{high} KB");
    assert!(high >= 29 * 100, "{high} KB");
}

#[test]
fn idle_flows_leave_a_few_at_a_time() {
    let mut meter = meter();
    for destination in 0..1000 {
        meter.is_of_small_flow(START, key(1, destination), 100);
    }
    let later = START + Nanos::from_secs(10);
    meter.is_of_small_flow(later - Nanos(1), key(2, 1), 100);
    assert_eq!(meter.flows(), 1001, "not idle for 10 s yet");
    for packet in 1..=500 {
        let now = later + Nanos::from_millis(70 * packet);
        meter.is_of_small_flow(now, key(2, 1), 100);
        assert_eq!(meter.flows() as u64, 1001 - 2 * packet);
    }
    assert_eq!(meter.stats().collected, 1000);
}

#[test]
fn a_full_table_forgets_the_flow_that_was_idle_for_longest() {
    let config = MeterConfig {
        flows: 3,
        rate: Rate::from_mbit(1),
        ..MeterConfig::default()
    };
    let mut meter = Meter::new(&config);
    let at = |step: u64| START + Nanos::from_millis(70 * step);
    for (step, destination) in [(0, 1), (1, 2), (2, 3), (3, 1), (4, 4)] {
        meter.is_of_small_flow(at(step), key(1, destination), 30_000);
    }
    assert_eq!(meter.flows(), 3);
    assert_eq!(meter.stats().evicted, 1);
    // Flow 1 is known and low, flow 2 was forgotten and starts afresh.
    assert!(!meter.is_of_small_flow(at(5), key(1, 1), 30_000));
    assert!(meter.is_of_small_flow(at(5), key(1, 2), 30_000));
}

#[test]
fn non_ip_frames_of_a_guest_are_one_metered_flow() {
    let mut meter = meter();
    let mut arp = |guest| {
        let frame = Record {
            destination: None,
            ..Record::new(0, guest, 60)
        };
        meter.is_small(START, GuestId::first(guest), &frame)
    };
    let flood: Vec<_> = (0..1000).map(|_| arp(1)).collect();
    assert_eq!(flood.iter().filter(|small| **small).count(), 500);
    assert!(arp(2));
}

#[test]
fn a_new_configuration_keeps_known_flows() {
    let mut meter = meter();
    meter.is_of_small_flow(START, key(1, 1), 65_000);
    meter.is_of_small_flow(START + Nanos(1), key(1, 2), 20_000);
    meter.reconfigure(&MeterConfig {
        burst: Bytes(5_000),
        ..MeterConfig::default()
    });
    let now = START + Nanos(2);
    assert!(!meter.is_of_small_flow(now, key(1, 1), 10));
    assert!(meter.is_of_small_flow(now, key(1, 2), 5_000));
    assert!(!meter.is_of_small_flow(now, key(1, 2), 10));
    meter.reconfigure(&MeterConfig {
        flows: 1,
        ..MeterConfig::default()
    });
    assert_eq!(meter.flows(), 1);
}

#[test]
fn extreme_configurations_do_not_overflow() {
    for rate in [0, 1, u64::MAX] {
        for burst in [0, 1, u64::MAX] {
            let mut meter = Meter::new(&MeterConfig {
                rate: Rate(rate),
                burst: Bytes(burst),
                recheck: Nanos::MAX,
                idle: Nanos::MAX,
                flows: 0,
                budget: Some(Rate(burst)),
                link: Some(Rate(rate)),
            });
            for now in [0, 1, u64::MAX / 2, u64::MAX] {
                for len in [0, 1500, usize::MAX] {
                    meter.is_of_small_flow(Nanos(now), key(1, 1), len);
                }
            }
        }
    }
}

proptest! {
    /// The tokens are those of the definition, in 128 bits and without clamps in
    /// between: no remainder is lost however often packets come.
    #[test]
    fn tokens_are_exact(
        rate in 1u64..1_000_000_000_000,
        burst in 1u64..1_000_000,
        steps in prop::collection::vec((0u64..50_000_000, 0usize..70_000), 1..200),
    ) {
        let config = MeterConfig { rate: Rate(rate), burst: Bytes(burst), ..MeterConfig::default() };
        let mut meter = Meter::new(&config);
        let full = i128::from(burst) * 8_000_000_000;
        let mut tokens = full;
        let mut low_until = None;
        let mut now = START;
        for (gap, len) in steps {
            now += Nanos(gap);
            tokens = full.min(tokens + i128::from(gap) * i128::from(rate));
            let cost = len as i128 * 8_000_000_000;
            let due = low_until.is_none_or(|until| now >= until);
            let enough = tokens >= cost && (low_until.is_none() || tokens >= full / 2);
            if due {
                low_until = (!enough).then(|| now + config.recheck);
            }
            let expected = due && enough;
            prop_assert_eq!(meter.is_of_small_flow(now, key(1, 1), len), expected);
            tokens = (tokens - cost).max(-full);
        }
    }

    /// Two meters differ in the secret keys of their tables, and in nothing else.
    #[test]
    fn results_do_not_depend_on_the_keys(
        steps in prop::collection::vec((0u64..2_000_000_000, 0u32..3, 0u128..40, 60usize..20_000), 1..300),
    ) {
        let config = MeterConfig { flows: 16, ..MeterConfig::default() };
        let (mut one, mut other) = (Meter::new(&config), Meter::new(&config));
        let mut now = START;
        for (gap, guest, destination, len) in steps {
            now += Nanos(gap);
            let key = key(guest, destination);
            prop_assert_eq!(one.is_of_small_flow(now, key, len), other.is_of_small_flow(now, key, len));
        }
        prop_assert_eq!(one.stats(), other.stats());
    }
}

/// One flow more than the default `flows` evicts the oldest one.
#[test]
fn a_default_table_has_room_for_65_536_flows() {
    let mut meter = meter();
    for destination in 0..65_537 {
        meter.is_of_small_flow(START, key(1, destination), 100);
    }
    assert_eq!(meter.flows(), 65_536);
}
