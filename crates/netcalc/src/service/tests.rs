use super::*;
use crate::testing::{arrival, buckets, greatest, least, pieces, ratio, service, time, whole};
use proptest::prelude::*;

#[test]
fn fifo_leaves_the_rest_of_the_rate_after_the_cross_bursts_time() {
    // R = 5, T = 11, cross r = 2, b = 7: 3 after 11 + 7/5.
    let cross = arrival(&[(2, 7)]).long_run();
    let left = service(&[(5, 55)]).left_over_fifo(cross).unwrap();
    let [piece] = left.pieces() else {
        panic!("{left:?}")
    };
    assert_eq!(piece.rate, whole(3));
    assert_eq!(piece.latency().unwrap(), ratio(62, 5));
}

#[test]
fn a_lower_priority_waits_for_the_higher_ones_and_for_their_sum() {
    // R = 5, T = 11, higher r = 2, b = 7: (R·T + b) / (R - r).
    let left = service(&[(5, 55)])
        .left_over_priority(&arrival(&[(2, 7)]), Bytes(0))
        .unwrap();
    let [piece] = left.pieces() else {
        panic!("{left:?}")
    };
    assert_eq!(piece.rate, whole(3));
    assert_eq!(piece.latency().unwrap(), ratio(62, 3));
}

#[test]
fn the_highest_priority_waits_for_one_lower_frame() {
    let link = ServiceCurve::rate_latency(Rate(1_000_000_000), Nanos(700));
    let left = link
        .left_over_priority(&ArrivalCurve::none(), Bytes(1_500))
        .unwrap();
    assert_eq!(left, link.after(Bytes(1_500)).unwrap());
    assert_eq!(left.long_run().unwrap().latency().unwrap(), whole(12_700));
}

#[test]
fn a_server_filled_by_others_has_no_service_left() {
    let server = service(&[(5, 55)]);
    assert_eq!(
        server.left_over_priority(&arrival(&[(5, 1)]), Bytes(0)),
        Ok(ServiceCurve::NOTHING)
    );
    assert_eq!(
        server.left_over_fifo(arrival(&[(6, 1)]).long_run()),
        Ok(ServiceCurve::NOTHING)
    );
    assert_eq!(
        ServiceCurve::rate_latency(Rate(0), Nanos(1)),
        ServiceCurve::NOTHING
    );
}

proptest! {
    #[test]
    fn the_greatest_of_pieces_is_their_greatest_at_each_time(
        pieces in pieces(), time in time(), data in 0..99_i128,
    ) {
        let curve = service(&pieces);
        prop_assert_eq!(curve.at(time).unwrap(), greatest(&pieces, time));
        for index in 1..curve.pieces().len() {
            prop_assert!(curve.start_of(index - 1).unwrap() < curve.start_of(index).unwrap());
        }
        let when = curve.time_for(whole(data)).unwrap().unwrap();
        prop_assert_eq!(greatest(&pieces, when), whole(data));
        // And not earlier.
        let before = when.minus(ratio(1, 1_000)).unwrap();
        prop_assert!(data == 0 || greatest(&pieces, before) < whole(data));
    }

    #[test]
    fn left_over_curves_agree_with_their_definitions(
        own in pieces(), others in buckets(), cross in (0..20_i128, 0..40_i128),
        blocking in 0..3_u64, time in time(),
    ) {
        let server = service(&own);
        let nanobits = Ratio::from(Bytes(blocking));
        let left = server.left_over_priority(&arrival(&others), Bytes(blocking)).unwrap();
        let rest = greatest(&own, time).minus(least(&others, time)).unwrap();
        let rest = rest.minus(nanobits).unwrap().max(Ratio::ZERO);
        prop_assert_eq!(left.at(time).unwrap(), rest);

        let left = server.left_over_fifo(arrival(&[cross]).long_run()).unwrap();
        let theta = server.time_for(whole(cross.1)).unwrap().unwrap();
        let since = time.minus(theta).unwrap();
        let rest = if since > Ratio::ZERO {
            greatest(&own, time).minus(least(&[cross], since)).unwrap().max(Ratio::ZERO)
        } else {
            Ratio::ZERO
        };
        prop_assert_eq!(left.at(time).unwrap(), rest);
    }
}
