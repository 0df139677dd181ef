use super::*;
use proptest::prelude::*;

#[test]
fn a_byte_of_10_gbit_s_takes_four_fifths_of_a_nanosecond() {
    let mut clock = WireClock::new(Rate::from_mbit(10_000));
    assert_eq!(clock.advance(Nanos(8)), Position(10));
    // The 11th byte began at 8.8 ns.
    assert_eq!(clock.advance(Nanos(9)), Position(12));
    assert_eq!(clock.moment(Position(11)), Nanos(9));
    assert_eq!(clock.moment(Position(10)), Nanos(8));
}

#[test]
fn virtual_time_that_was_frozen_is_later_by_as_much() {
    let mut clock = WireClock::new(Rate::from_mbit(10_000));
    clock.advance(Nanos(1000));
    clock.freeze_at(Position(250));
    assert_eq!(clock.advance(Nanos(1000)), Position(250));
    assert_eq!(clock.frozen(), Nanos(800));
    assert_eq!(clock.advance(Nanos(1008)), Position(260));
    assert_eq!(clock.moment(Position(260)), Nanos(1008));
}

#[test]
fn no_moment_overflows() {
    for rate in [1_000_000, 1_000_000_000_000] {
        let mut clock = WireClock::new(Rate(rate));
        assert!(clock.advance(Nanos(1)) < clock.advance(Nanos::from_secs(1)));
        assert!(clock.advance(Nanos::MAX) <= END + WireBytes(1));
        assert!(clock.advance(Nanos::MAX) <= END + WireBytes(1));
        clock.moment(Position::NEVER);
    }
}

proptest! {
    #[test]
    fn positions_are_exact_however_often_they_are_asked_for(
        rate in 1_000_000..=1_000_000_000_000_u64,
        steps in proptest::collection::vec(prop_oneof![0..2000_u64, 0..1_000_000_000_000_u64], 1..100),
    ) {
        let mut clock = WireClock::new(Rate(rate));
        let mut now = 0;
        for step in steps {
            now += step;
            let position = clock.advance(Nanos(now));
            let exact = (u128::from(now) * u128::from(rate)).div_ceil(u128::from(BYTE));
            prop_assert_eq!(u128::from(position.0), exact);
            // A byte begins at the first nanosecond from which on it is reached.
            let moment = clock.moment(position);
            prop_assert!(moment >= Nanos(now));
            for ahead in [0, 1, 2, 84, 62_500, 1 << 31, 1 << 40, u64::MAX >> 2] {
                for position in [position + WireBytes(ahead), position.saturating_sub(WireBytes(ahead))] {
                    let exact = clock.moment(position).max(clock.now());
                    prop_assert_eq!(clock.moment_from_now(position), exact);
                }
            }
            let mut after = clock;
            prop_assert!(after.advance(moment) >= position);
        }
    }
}
