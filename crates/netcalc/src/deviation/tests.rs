use super::*;
use crate::testing::{
    arrival, buckets, greatest, joints, least, lines, pieces, ratio, service, whole,
};
use proptest::prelude::*;

#[test]
fn a_token_bucket_at_a_rate_latency_server_has_the_textbook_bounds() {
    // r = 3, b = 7, R = 5, T = 11: T + b/R and b + r·T. Swapping any two of the
    // numbers gives something else.
    let (curve, server) = (arrival(&[(3, 7)]), service(&[(5, 55)]));
    assert_eq!(curve.delay(&server), Ok(Bound::Finite(ratio(62, 5))));
    assert_eq!(curve.backlog(&server), Ok(Bound::Finite(whole(40))));
}

#[test]
fn a_variable_bit_rate_flow_waits_longest_at_its_knee() {
    // IntServ's T-SPEC (p, M, r, b) = (8, 2, 3, 17) at R = 5, T = 4 (Le Boudec
    // and Thiran, 1.4): delay M/R + (b - M)/(p - r)·(p - R)/R + T.
    let (curve, server) = (arrival(&[(8, 2), (3, 17)]), service(&[(5, 20)]));
    assert_eq!(
        curve.delay(&server),
        Ok(Bound::Finite(ratio(2 + 3 * 3 + 20, 5)))
    );
    // Here T = 4 is after the knee at 3, so the backlog is b + r·T.
    assert_eq!(curve.backlog(&server), Ok(Bound::Finite(whole(29))));
    // With T = 1 it is before: at the knee, 26 - 5·2.
    let early = service(&[(5, 5)]);
    assert_eq!(curve.backlog(&early), Ok(Bound::Finite(whole(16))));
}

#[test]
fn silos_figure_5_needs_400_kb_or_300_kb() {
    use tailbound_units::{Bytes, Nanos, Rate};
    let gbit = 1_000_000_000;
    let port = ServiceCurve::rate_latency(Rate(10 * gbit), Nanos(0));
    // Eight or six bursts of 100 KB come through two links of 10 Gbit/s.
    let needed = |senders: u64, rate: Rate| {
        let bursts = ArrivalCurve::token_bucket(rate, Bytes(senders * 100_000));
        let fed = bursts
            .over_links(Rate(20 * gbit).into(), 0, Bytes(0))
            .unwrap();
        fed.backlog(&port)
            .unwrap()
            .finite()
            .unwrap()
            .to_bytes()
            .unwrap()
    };
    assert_eq!(needed(8, Rate(0)), Bytes(400_000));
    assert_eq!(needed(6, Rate(0)), Bytes(300_000));
    // The paper leaves out what the senders' average rate adds meanwhile: 1
    // Gbit/s to one receiver, 3 Gbit/s to three.
    assert_eq!(needed(8, Rate(gbit)), Bytes(421_053));
    assert_eq!(needed(6, Rate(3 * gbit)), Bytes(352_942));
}

#[test]
fn a_full_server_is_stable_and_an_overfull_one_is_not() {
    let server = service(&[(5, 10)]);
    assert_eq!(
        arrival(&[(5, 7)]).delay(&server),
        Ok(Bound::Finite(ratio(17, 5)))
    );
    assert_eq!(
        arrival(&[(5, 7)]).backlog(&server),
        Ok(Bound::Finite(whole(17)))
    );
    assert_eq!(arrival(&[(6, 0)]).delay(&server), Ok(Bound::Unbounded));
    assert_eq!(arrival(&[(6, 0)]).backlog(&server), Ok(Bound::Unbounded));
    assert_eq!(
        arrival(&[(0, 1)]).delay(&ServiceCurve::NOTHING),
        Ok(Bound::Unbounded)
    );
}

#[test]
fn without_traffic_nothing_waits() {
    let nothing = ArrivalCurve::none();
    let server = service(&[(5, 10)]);
    assert_eq!(nothing.delay(&server), Ok(Bound::Finite(Ratio::ZERO)));
    assert_eq!(nothing.backlog(&server), Ok(Bound::Finite(Ratio::ZERO)));
}

/// Returns the latest time at which `data` is served: the maximum over the pieces.
fn served_at(pieces: &[(i128, i128)], data: Ratio) -> Ratio {
    let times = pieces
        .iter()
        .map(|&(rate, offset)| data.plus(whole(offset)).unwrap().over(whole(rate)).unwrap());
    times.min().unwrap()
}

proptest! {
    #[test]
    fn both_distances_agree_with_trying_every_joint(a in buckets(), b in pieces()) {
        let (curve, server) = (arrival(&a), service(&b));
        let fastest = server.long_run().unwrap().rate;
        if curve.long_run().rate > fastest {
            prop_assert_eq!(curve.delay(&server).unwrap(), Bound::Unbounded);
            prop_assert_eq!(curve.backlog(&server).unwrap(), Bound::Unbounded);
            return Ok(());
        }
        let both: Vec<_> = joints(&a).into_iter().chain(joints(&lines(&b))).collect();
        let differences = both.iter().map(|&time| {
            least(&a, time).minus(greatest(&b, time)).unwrap()
        });
        let expected = Bound::Finite(differences.max().unwrap());
        prop_assert_eq!(curve.backlog(&server).unwrap(), expected);

        // The delay has its joints at those of the arrival curve, and where that
        // reaches a height at which the service curve has one.
        let mut times = joints(&a);
        for joint in joints(&lines(&b)) {
            let height = greatest(&b, joint);
            for &(rate, burst) in a.iter().filter(|(rate, _)| *rate > 0) {
                let time = height.minus(whole(burst)).unwrap().over(whole(rate)).unwrap();
                times.extend((!time.is_negative()).then_some(time));
            }
        }
        let delays = times.into_iter().map(|time| {
            served_at(&b, least(&a, time)).minus(time).unwrap()
        });
        let expected = if curve.is_none() { Ratio::ZERO } else { delays.max().unwrap() };
        prop_assert_eq!(curve.delay(&server).unwrap(), Bound::Finite(expected));
    }

    #[test]
    fn more_traffic_or_less_service_never_gives_a_smaller_bound(
        a in buckets(), more in buckets(), b in pieces(), less in buckets(),
    ) {
        let (curve, server) = (arrival(&a), service(&b));
        let greater = curve.sum(&arrival(&more)).unwrap();
        let weaker = server.left_over_priority(&arrival(&less), tailbound_units::Bytes(0)).unwrap();
        prop_assert!(greater.delay(&server).unwrap() >= curve.delay(&server).unwrap());
        prop_assert!(greater.backlog(&server).unwrap() >= curve.backlog(&server).unwrap());
        prop_assert!(curve.delay(&weaker).unwrap() >= curve.delay(&server).unwrap());
        prop_assert!(curve.backlog(&weaker).unwrap() >= curve.backlog(&server).unwrap());
    }
}
