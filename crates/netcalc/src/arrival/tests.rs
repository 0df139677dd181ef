use super::*;
use crate::service::ServiceCurve;
use crate::testing::{
    arrival, buckets, greatest, joints, least, lines, pieces, ratio, service, time, whole,
};
use proptest::prelude::*;

const MBIT: u64 = 1_000_000;

#[test]
fn a_burst_limited_sender_starts_fast_and_goes_on_slowly() {
    let curve = ArrivalCurve::burst_limited(
        Rate(200 * MBIT),
        Bytes(15_000),
        Rate(1_000 * MBIT),
        Bytes(1_500),
    )
    .unwrap();
    // 13,500 B at 800 Mbit/s above the average: 135 us.
    assert_eq!(curve.knee(0).unwrap(), Some(whole(135_000)));
    assert_eq!(curve.at(Ratio::ZERO).unwrap(), Bytes(1_500).into());
    let at_knee = Bytes(1_500 + 16_875).into();
    assert_eq!(curve.at(whole(135_000)).unwrap(), at_knee);
    // Twice as long: 3,375 B more at the average rate.
    assert_eq!(
        curve.at(whole(270_000)).unwrap(),
        Bytes(18_375 + 3_375).into()
    );
}

#[test]
fn a_burst_rate_at_the_average_leaves_one_bucket() {
    let rate = Rate(200 * MBIT);
    let curve = ArrivalCurve::burst_limited(rate, Bytes(9_000), rate, Bytes(1_500)).unwrap();
    assert_eq!(curve, ArrivalCurve::token_bucket(rate, Bytes(1_500)));
}

#[test]
fn silos_egress_curve_grows_by_the_traffic_of_a_full_queue() {
    // {B, S} behind a queue capacity of c: {B, S + B·c}; 250 Mbit/s for 80 us
    // are 2,500 B.
    let curve = ArrivalCurve::token_bucket(Rate(250 * MBIT), Bytes(15_000));
    let behind = curve.delayed(Nanos::from_micros(80).into()).unwrap();
    assert_eq!(
        behind,
        ArrivalCurve::token_bucket(Rate(250 * MBIT), Bytes(17_500))
    );
}

#[test]
fn the_exact_output_of_a_token_bucket_is_b_plus_r_times_t() {
    // r = 3, b = 7, R = 5, T = 11: b + r·T = 40.
    let output = arrival(&[(3, 7)]).output(&service(&[(5, 55)])).unwrap();
    assert_eq!(output, Some(arrival(&[(3, 40)])));
    // Tighter than what the delay of T + b/R = 12.4 gives: 7 + 37.2.
    let delayed = arrival(&[(3, 7)]).delayed(ratio(62, 5)).unwrap();
    assert_eq!(delayed.long_run().burst, ratio(221, 5));
}

#[test]
fn a_slow_enough_burst_comes_out_as_it_went_in_but_shifted() {
    // min(4t + 1, 2t + 9) behind R = 5, T = 3: the curve, shifted to the left.
    let output = arrival(&[(4, 1), (2, 9)])
        .output(&service(&[(5, 15)]))
        .unwrap();
    assert_eq!(output, Some(arrival(&[(4, 13), (2, 15)])));
}

#[test]
fn a_server_too_slow_for_the_average_has_no_output_bound() {
    assert_eq!(
        arrival(&[(6, 1)]).output(&service(&[(5, 0)])).unwrap(),
        None
    );
    let exactly = arrival(&[(5, 1)]).output(&service(&[(5, 0)])).unwrap();
    assert_eq!(exactly, Some(arrival(&[(5, 1)])));
    assert_eq!(
        arrival(&[(6, 1)]).output(&ServiceCurve::NOTHING).unwrap(),
        None
    );
}

#[test]
fn feeding_links_limit_a_burst_but_not_the_average() {
    let burst = ArrivalCurve::token_bucket(Rate(100 * MBIT), Bytes(800_000));
    let fed = burst
        .over_links(Rate(20_000 * MBIT).into(), 2, Bytes(1_500))
        .unwrap();
    assert_eq!(fed.at(Ratio::ZERO).unwrap(), Bytes(3_000).into());
    assert_eq!(fed.long_run(), burst.long_run());
}

#[test]
fn an_overflow_is_an_error() {
    let huge = arrival(&[(1, i128::MAX)]);
    assert_eq!(huge.sum(&huge), Err(Overflow));
    assert_eq!(huge.times(2), Err(Overflow));
    assert_eq!(huge.at(whole(1)), Err(Overflow));
    assert_eq!(huge.delayed(whole(1)), Err(Overflow));
}

proptest! {
    #[test]
    fn the_least_of_buckets_is_their_least_at_each_time(buckets in buckets(), time in time()) {
        let curve = arrival(&buckets);
        prop_assert_eq!(curve.at(time).unwrap(), least(&buckets, time));
        for pair in curve.buckets().windows(2) {
            prop_assert!(pair[0].rate > pair[1].rate && pair[0].burst < pair[1].burst);
        }
        for index in 2..curve.buckets().len() {
            prop_assert!(curve.knee(index - 2).unwrap() < curve.knee(index - 1).unwrap());
        }
    }

    #[test]
    fn sums_minima_and_shifts_are_pointwise(
        a in buckets(), b in buckets(), time in time(), shift in time(), count in 0..5_u64,
    ) {
        let (x, y) = (arrival(&a), arrival(&b));
        let (at_x, at_y) = (least(&a, time), least(&b, time));
        let sum = x.sum(&y).unwrap();
        prop_assert_eq!(sum.at(time).unwrap(), at_x.plus(at_y).unwrap());
        prop_assert_eq!(&ArrivalCurve::total([&x, &y, &x]).unwrap(), &sum.sum(&x).unwrap());
        prop_assert_eq!(&ArrivalCurve::least(sum.buckets().to_vec()).unwrap(), &sum);
        prop_assert_eq!(x.min(&y).unwrap().at(time).unwrap(), at_x.min(at_y));
        let times = x.times(count).unwrap().at(time).unwrap();
        prop_assert_eq!(times, at_x.times(whole(i128::from(count))).unwrap());
        let later = least(&a, time.plus(shift).unwrap());
        prop_assert_eq!(x.delayed(shift).unwrap().at(time).unwrap(), later);
    }

    #[test]
    fn the_excess_over_a_rate_is_the_greatest_difference(a in buckets(), rate in 0..25_i128) {
        let curve = arrival(&a);
        let excess = curve.excess(whole(rate)).unwrap();
        if curve.long_run().rate > whole(rate) {
            prop_assert_eq!(excess, Bound::Unbounded);
        } else {
            let worst = joints(&a).into_iter().map(|time| {
                least(&a, time).minus(whole(rate).times(time).unwrap()).unwrap()
            });
            prop_assert_eq!(excess, Bound::Finite(worst.max().unwrap()));
        }
    }

    #[test]
    fn the_output_is_the_deconvolution_by_its_definition(
        a in buckets(), b in pieces(), time in time(),
    ) {
        let (curve, served) = (arrival(&a), service(&b));
        let output = curve.output(&served).unwrap();
        let fastest = served.long_run().unwrap().rate;
        prop_assert_eq!(output.is_none(), curve.long_run().rate > fastest);
        let Some(output) = output else { return Ok(()) };
        // sup over s of a(t + s) - b(s): at a joint of one or of the other.
        let ours = joints(&a).into_iter().map(|joint| joint.minus(time).unwrap());
        let worst = ours.chain(joints(&lines(&b))).filter(|s| !s.is_negative()).map(|s| {
            least(&a, time.plus(s).unwrap()).minus(greatest(&b, s)).unwrap()
        });
        let expected = if curve.is_none() { Ratio::ZERO } else { worst.max().unwrap() };
        prop_assert_eq!(output.at(time).unwrap(), expected);
    }

    #[test]
    fn the_check_without_division_agrees_with_the_delay(
        a in buckets(), rate in 1..25_u64, latency in 0..20_u64, limit in 0..60_u64,
    ) {
        let curve = arrival(&a);
        let served = ServiceCurve::rate_latency(Rate(rate), Nanos(latency));
        let delay = curve.delay(&served).unwrap();
        let expected = delay <= Bound::Finite(Nanos(limit).into());
        let found = curve.is_served_within(Rate(rate), Nanos(latency), Nanos(limit)).unwrap();
        prop_assert_eq!(found, expected);
    }
}
