use super::*;
use proptest::prelude::*;

const LINK: Rate = Rate::from_mbit(10_000);

fn bucket(mbit: u64, burst: u64) -> TokenBucket<Position> {
    TokenBucket::on_wire(LINK, Rate::from_mbit(mbit), WireBytes(burst)).expect("a sound bucket")
}

#[test]
fn a_burst_passes_at_once_and_later_frames_wait_for_the_rate() {
    let mut bucket = bucket(1000, 3 * 1538);
    for _ in 0..3 {
        assert_eq!(charge(&mut bucket, 7000, 1538), 7000);
    }
    // One frame takes 15,380 bytes of a wire that is ten times as fast.
    assert_eq!(charge(&mut bucket, 7000, 1538), 7000 + 15_380);
    assert_eq!(charge(&mut bucket, 7000, 1538), 7000 + 2 * 15_380);
    // Half of one burst has come back.
    assert_eq!(charge(&mut bucket, 7000 + 60_000, 1538), 67_000);
}

#[test]
fn a_remainder_is_carried_and_not_lost() {
    // 100 B at 3 Gbit/s: 333 1/3 bytes of the wire each.
    let mut bucket = bucket(3000, 100);
    let stamps: Vec<_> = (0..7).map(|_| charge(&mut bucket, 0, 100)).collect();
    assert_eq!(stamps, [0, 334, 667, 1000, 1334, 1667, 2000]);
}

#[test]
fn a_bucket_that_could_not_be_counted_is_refused() {
    assert!(TokenBucket::on_wire(LINK, Rate(0), WireBytes(1)).is_none());
    assert!(TokenBucket::on_wire(LINK, Rate(1), WireBytes(u64::MAX)).is_none());
    assert!(TokenBucket::on_wire(LINK, LINK, WireBytes(1 << 40)).is_some());
}

#[test]
fn a_filled_bucket_holds_at_most_its_burst() {
    let mut bucket = bucket(1000, 3 * 1538).empty(Position(7000));
    bucket.fill(WireBytes(1538), Position(7000));
    assert_eq!(bucket.tokens(Position(7000)), WireBytes(1538));
    assert_eq!(charge(&mut bucket, 7000, 1538), 7000);
    assert_eq!(charge(&mut bucket, 7000, 1538), 7000 + 15_380);
    // What was charged beyond what it held is paid first.
    bucket.fill(WireBytes(2 * 1538), Position(7000));
    assert_eq!(bucket.tokens(Position(7000)), WireBytes(1538));
    bucket.fill(WireBytes(u64::MAX), Position(7000));
    assert_eq!(bucket.tokens(Position(7000)), WireBytes(3 * 1538));
}

/// The departure time of a frame; another frame that was charged before and refunded has no effect.
fn charge(bucket: &mut TokenBucket<Position>, arrival: u64, len: u64) -> u64 {
    let other = bucket.charge(Position(arrival + 1_000_000), WireBytes(1000));
    bucket.refund(other);
    bucket.charge(Position(arrival), WireBytes(len)).leaves.0
}

/// No drift: after any frames, any number of times, the bucket is full again at
/// exactly the sum of what was charged.
fn drift(rate: u64, lens: impl Iterator<Item = u64>) -> i128 {
    let mut bucket =
        TokenBucket::on_wire(LINK, Rate(rate), WireBytes(9000)).expect("a sound bucket");
    let mut charged = 0;
    for len in lens {
        charge(&mut bucket, 0, len);
        charged += i128::from(len) * i128::from(LINK.0);
    }
    i128::from(bucket.due.0) * i128::from(rate) + i128::from(bucket.rest) - charged
}

/// `cargo test --release -p tailbound-units --lib -- --ignored drift`
#[test]
#[ignore = "a minute without optimisation"]
fn there_is_no_drift_over_a_billion_frames() {
    assert_eq!(
        drift(1_234_567_891, (0..1_000_000_000).map(|i| 84 + i % 1455)),
        0
    );
}

proptest! {
    #[test]
    fn there_is_no_drift(
        rate in 100_000..10_000_000_000_u64,
        lens in proptest::collection::vec(84..9000_u64, 1..2000),
    ) {
        prop_assert_eq!(drift(rate, lens.into_iter()), 0);
    }

    /// The definition: a frame leaves at the first byte of the wire at which the
    /// bucket holds it, with tokens as exact fractions.
    #[test]
    fn the_bucket_matches_the_definition_of_a_token_bucket(
        rate in 100_000..=10_000_000_000_u64,
        burst in 1538..100_000_u64,
        frames in proptest::collection::vec((84..=1538_u64, 0..200_000_u64), 1..500),
    ) {
        let mut bucket = TokenBucket::on_wire(LINK, Rate(rate), WireBytes(burst)).expect("a sound bucket");
        let full = i128::from(burst) * i128::from(LINK.0);
        let (mut tokens, mut at, mut arrival) = (full, 0_u64, 0_u64);
        for (len, gap) in frames {
            arrival += gap;
            let work = len * LINK.0;
            let from = at.max(arrival);
            tokens = full.min(tokens + i128::from(from - at) * i128::from(rate));
            let lacks = i128::from(work) - tokens;
            // Rounded up: rates are above zero.
            let wait = (lacks.max(0) + i128::from(rate) - 1) / i128::from(rate);
            at = from + wait as u64;
            tokens = full.min(tokens + wait * i128::from(rate)) - i128::from(work);
            prop_assert_eq!(charge(&mut bucket, arrival, len), at);
            arrival = arrival.max(at - (at - arrival).min(5000));
        }
    }

    #[test]
    fn a_change_keeps_the_tokens_as_far_as_they_fit(
        rates in (100_000..=10_000_000_000_u64, 100_000..=10_000_000_000_u64),
        bursts in (1538..100_000_u64, 1538..100_000_u64),
        frames in 0..100_usize,
    ) {
        let mut bucket = TokenBucket::on_wire(LINK, Rate(rates.0), WireBytes(bursts.0)).expect("sound");
        let mut now = 1000;
        for _ in 0..frames {
            now = charge(&mut bucket, now, 1538);
        }
        let tokens = |bucket: &TokenBucket<Position>| {
            let owed = match bucket.due.0.checked_sub(now) {
                Some(ahead) => u128::from(ahead) * u128::from(bucket.rate.get()) + u128::from(bucket.rest),
                None => 0,
            };
            bucket.capacity() - owed
        };
        let before = tokens(&bucket);
        let fresh = TokenBucket::on_wire(LINK, Rate(rates.1), WireBytes(bursts.1)).expect("sound");
        bucket.reconfigure(&fresh, Position(now), Position(now));
        prop_assert_eq!(tokens(&bucket), before.min(fresh.capacity()));
    }
}

#[test]
fn a_bucket_is_full_when_a_whole_charge_has_come_back() {
    let mut bucket = bucket(1000, 1538);
    charge(&mut bucket, 7000, 1538);
    assert_eq!(bucket.full_at(), Position(7000 + 15_380));
}

proptest! {
    /// A frame that departs when it arrives is charged as any other one no longer than the burst, if it
    /// conforms then.
    #[test]
    fn a_departing_frame_conforms_and_costs_as_any_other(
        mbit in 1_u64..10_000,
        burst in 1_600_u64..20_000,
        frames in proptest::collection::vec((0_u64..60_000, 1_u64..1_600), 1..100),
    ) {
        let (mut usual, mut now) = (bucket(mbit, burst), 1_000_000);
        let mut departing = usual;
        for (gap, len) in frames {
            now += gap;
            let (at, len) = (Position(now), WireBytes(len));
            let leaves = usual.leaves(at, len);
            let charged = departing.charge_departing(at, at, len).map(drop);
            let expected = if leaves == at { Ok(()) } else { Err(leaves) };
            prop_assert_eq!(charged, expected);
            if charged.is_ok() {
                usual.charge(at, len);
            }
            prop_assert_eq!(usual.full_at(), departing.full_at());
        }
    }
}
