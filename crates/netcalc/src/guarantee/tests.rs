use super::*;
use tailbound_units::Nanos;

const GBIT: u64 = 1_000_000_000;

fn figure_5() -> Guarantee {
    Guarantee {
        bandwidth: Rate(GBIT),
        burst: Bytes(100_000),
        burst_rate: Rate(10 * GBIT),
        bursts: Bursts::PerReceiver,
        burst_in: None,
    }
}

#[test]
fn the_curve_across_a_cut_has_the_bursts_of_senders_and_pairs() {
    let frame = Bytes(1_500);
    let cut = |senders| figure_5().across(senders, 9, frame).unwrap();
    let bucket = |rate, burst| TokenBucket::new(Rate(rate * GBIT), Bytes(burst));
    // All to one: a burst each. The burst rate gives way to that at once.
    assert_eq!(cut(8).buckets(), [bucket(80, 12_000), bucket(1, 800_000)]);
    // All of them may burst at once, then each sends its average, until three pairs of each have
    // no burst left.
    let six = [bucket(60, 9_000), bucket(6, 600_000), bucket(3, 1_800_000)];
    assert_eq!(cut(6).buckets(), six);
    assert_eq!(cut(2).buckets(), [bucket(20, 3_000), bucket(2, 200_000)]);
}

#[test]
fn a_subtree_with_k_bursts_has_k_of_each_sender() {
    let cut = |bursts, senders| {
        let guarantee = Guarantee {
            bursts,
            ..figure_5()
        };
        guarantee.across(senders, 9, Bytes(1_500)).unwrap()
    };
    let bucket = |rate, burst| TokenBucket::new(Rate(rate * GBIT), Bytes(burst));
    // Silo's curve: the senders' bursts at the receivers' rates.
    let six = [bucket(60, 9_000), bucket(3, 600_000)];
    assert_eq!(cut(Bursts::ONE, 6).buckets(), six);
    let twice = [bucket(60, 9_000), bucket(6, 600_000), bucket(3, 1_200_000)];
    assert_eq!(cut(Bursts::PerSubtree(2), 6).buckets(), twice);
    // Three receivers have no more than three bursts, and few senders no more than their own.
    for (bursts, senders) in [(3, 6), (100, 6), (1, 8), (1, 2), (5, 4)] {
        let of_pairs = cut(Bursts::PerReceiver, senders);
        assert_eq!(cut(Bursts::PerSubtree(bursts), senders), of_pairs);
    }
}

#[test]
fn receivers_limit_the_bursts_that_come_to_them() {
    let cut = |burst_in, senders| {
        let guarantee = Guarantee {
            burst_in: Some(Bytes(burst_in)),
            ..figure_5()
        };
        guarantee.across(senders, 9, Bytes(1_500)).unwrap()
    };
    let bucket = |rate, burst| TokenBucket::new(Rate(rate * GBIT), Bytes(burst));
    let one = [bucket(80, 12_000), bucket(1, 300_000)];
    assert_eq!(cut(300_000, 8).buckets(), one);
    let three = [bucket(60, 9_000), bucket(6, 600_000), bucket(3, 900_000)];
    assert_eq!(cut(300_000, 6).buckets(), three);
    // (N-1)·S is the default, and so is more; few senders have no more than their own bursts.
    for (burst_in, senders) in [(800_000, 8), (800_000, 6), (1 << 40, 6), (300_000, 2)] {
        let free = figure_5().across(senders, 9, Bytes(1_500)).unwrap();
        assert_eq!(cut(burst_in, senders), free);
    }
}

#[test]
fn a_cut_with_an_empty_side_has_no_traffic() {
    for senders in [0, 9, 10] {
        assert!(
            figure_5()
                .across(senders, 9, Bytes(1_500))
                .unwrap()
                .is_none()
        );
    }
}

#[test]
fn one_machines_curve_is_the_burst_limited_one() {
    let guarantee = figure_5();
    let expected =
        ArrivalCurve::burst_limited(Rate(GBIT), Bytes(100_000), Rate(10 * GBIT), Bytes(1_500));
    assert_eq!(guarantee.curve(Bytes(1_500)), expected);
}

#[test]
fn a_queue_bound_follows_from_a_guarantee() {
    // A 10 Gbit/s port whose 100 KB buffer is worth 80 us (4.2.1): one machine's
    // burst at twice its rate fills (100,000 - 1,500)·(20 - 10)/(20 - 1) bytes
    // and the frame that came first.
    let guarantee = Guarantee {
        burst_rate: Rate(20 * GBIT),
        ..figure_5()
    };
    let curve = guarantee.curve(Bytes(1_500)).unwrap();
    let held = |limit| curve.is_served_within(Rate(10 * GBIT), Nanos(0), Nanos(limit));
    // 53,342.1 bytes take 42,673.7 ns.
    assert_eq!(held(42_673), Ok(false));
    assert_eq!(held(42_674), Ok(true));
    assert_eq!(held(80_000), Ok(true));
}

#[test]
fn a_message_beyond_the_burst_leaves_at_the_bandwidth() {
    let time = |message| figure_5().time_for(Bytes(message), Bytes(1_500));
    assert_eq!(time(100_000), Nanos::from_micros(80));
    assert_eq!(time(150_000), Nanos::from_micros(80 + 400));
    let bare = Guarantee {
        burst: Bytes(0),
        ..figure_5()
    };
    let time = bare.time_for(Bytes(2_750), Bytes(1_500));
    assert_eq!(time, Nanos(1_200 + 10_000));
    assert_eq!(bare.time_for(Bytes(0), Bytes(1_500)), Nanos::ZERO);
}

#[test]
fn a_machine_has_its_own_burst_at_its_burst_rate() {
    let bucket = |rate, burst| TokenBucket::new(Rate(rate * GBIT), Bytes(burst));
    let curve = figure_5().curve(Bytes(1_500)).unwrap();
    assert_eq!(curve.buckets(), [bucket(10, 1_500), bucket(1, 100_000)]);
}
