//! Held against fractions of whole numbers of 128 bits.

use super::*;
use crate::WireBytes;
use proptest::prelude::*;

/// Rates and times whose products are often beyond 64 bits.
fn large() -> impl Strategy<Value = u64> {
    prop_oneof![0..2_000_u64, 0..1_000_000_000_000_u64, any::<u64>()]
}

proptest! {
    #[test]
    fn quotients_add_up_to_the_quotient_of_the_sum(
        amounts in proptest::collection::vec(0..1_000_000_000_000_000_u64, 1..100),
        factor in 1..=1_000_000_000_000_u64,
        divisor in prop_oneof![Just(BYTE_IN_NANOS), Just(BYTE_IN_PICOS), 1..=1_000_000_000_000_u64],
    ) {
        let (mut carry, mut whole, mut exact) = (Carry::default(), 0_u128, 0_u128);
        for amount in amounts {
            exact += u128::from(amount) * u128::from(factor);
            // A clock's moments fit into 64 bits.
            prop_assume!(u128::from(amount) * u128::from(factor) / u128::from(divisor) < 1 << 62);
            whole += u128::from(carry.divide(amount, factor, divisor));
            prop_assert_eq!(whole, exact / u128::from(divisor));
            prop_assert_eq!(carry.is_some(), exact % u128::from(divisor) > 0);
        }
    }

    #[test]
    fn a_quotient_saturates(amount in large(), factor in large(), divisor in 1..=u64::MAX) {
        let exact = u128::from(amount) * u128::from(factor) / u128::from(divisor);
        let quotient = Carry::default().divide(amount, factor, divisor);
        prop_assert_eq!(u128::from(quotient), exact.min(u64::MAX.into()));
    }

    /// The backlog is the sum of the arrivals less the work done while there was a backlog, in
    /// fractions of a byte, by definition.
    #[test]
    fn outstanding_work_is_exact(
        rate in 1..=1_000_000_000_000_u64,
        steps in proptest::collection::vec((0..3_000_000_u64, 0..100_000_u64), 1..200),
    ) {
        let (mut outstanding, mut exact) = (Work::ZERO, 0_i128);
        for (nanos, bytes) in steps {
            outstanding = outstanding.less(Work::done(Rate(rate), Nanos(nanos)));
            exact = (exact - i128::from(rate) * i128::from(nanos)).max(0);
            outstanding = outstanding.plus(Work::of(Bytes(bytes)));
            exact += i128::from(bytes) * 8_000_000_000;
            prop_assert_eq!(i128::from(outstanding.0), exact);
            let up = (exact + 7_999_999_999) / 8_000_000_000;
            prop_assert_eq!(i128::from(outstanding.bytes().0), up);
            prop_assert_eq!(i128::from(outstanding.time(Rate(rate)).0), exact / i128::from(rate));
        }
    }

    #[test]
    fn work_saturates(bytes in large(), nanos in large(), rate in large()) {
        let most = u128::from(u64::MAX);
        prop_assert_eq!(u128::from(Work::of(Bytes(bytes)).0), (u128::from(bytes) * 8_000_000_000).min(most));
        let done = u128::from(nanos) * u128::from(rate);
        prop_assert_eq!(u128::from(Work::done(Rate(rate), Nanos(nanos)).0), done.min(most));
        prop_assert_eq!(Work(bytes).plus(Work(nanos)).0, bytes.saturating_add(nanos));
        prop_assert_eq!(Work(bytes).less(Work(nanos)).0, bytes.saturating_sub(nanos));
    }

    /// The two forms of a bucket are one: a frame may leave by virtual scheduling at
    /// the first nanosecond at which the leaky bucket has room for it.
    #[test]
    fn a_leaky_bucket_is_a_token_bucket(
        rate in 1_000_000..=1_000_000_000_000_u64,
        burst in 1538..100_000_u64,
        frames in proptest::collection::vec((84..=1538_u64, 0..200_000_u64), 1..200),
    ) {
        let rate = Rate(rate);
        let mut bucket = TokenBucket::<Nanos>::new(BYTE_IN_NANOS, rate, WireBytes(burst)).expect("sound");
        let (mut owed, mut at, mut arrival) = (Work::ZERO, Nanos::ZERO, Nanos::ZERO);
        for (len, gap) in frames {
            arrival = arrival.max(at) + Nanos(gap);
            owed = owed.less(Work::done(rate, arrival - at));
            at = arrival;
            let cost = Work::of(Bytes(len));
            let over = owed.plus(cost).less(Work::of(Bytes(burst)));
            let mut wait = over.time(rate);
            if Work::done(rate, wait) < over {
                wait += Nanos(1);
            }
            owed = owed.less(Work::done(rate, wait)).plus(cost);
            at += wait;
            prop_assert_eq!(bucket.charge(arrival, WireBytes(len)).leaves, at);
        }
    }
}
