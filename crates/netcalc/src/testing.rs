//! Curves for tests, small enough that every joint can be found by trying.

use crate::{ArrivalCurve, RateLatency, Ratio, ServiceCurve, TokenBucket};
use proptest::prelude::*;

pub(crate) fn whole(value: i128) -> Ratio {
    Ratio::whole(value)
}

pub(crate) fn ratio(numerator: i128, denominator: i128) -> Ratio {
    Ratio::new(numerator, denominator).unwrap()
}

/// Rates and bursts.
pub(crate) fn arrival(buckets: &[(i128, i128)]) -> ArrivalCurve {
    let buckets = buckets.iter().map(|&(rate, burst)| TokenBucket {
        rate: whole(rate),
        burst: whole(burst),
    });
    ArrivalCurve::least(buckets.collect()).unwrap()
}

/// Rates and offsets.
pub(crate) fn service(pieces: &[(i128, i128)]) -> ServiceCurve {
    let pieces = pieces.iter().map(|&(rate, offset)| RateLatency {
        rate: whole(rate),
        offset: whole(offset),
    });
    ServiceCurve::greatest(pieces.collect()).unwrap()
}

/// Buckets of an arrival curve, some of which others hide.
pub(crate) fn buckets() -> impl Strategy<Value = Vec<(i128, i128)>> {
    prop::collection::vec((0..20_i128, 0..40_i128), 1..5)
}

/// Pieces of a service curve, some of which others hide.
pub(crate) fn pieces() -> impl Strategy<Value = Vec<(i128, i128)>> {
    prop::collection::vec((1..25_i128, 0..60_i128), 1..5)
}

pub(crate) fn time() -> impl Strategy<Value = Ratio> {
    (0..200_i128, 1..8_i128).prop_map(|(a, b)| ratio(a, b))
}

/// The least of the lines at a time, from the definition.
pub(crate) fn least(buckets: &[(i128, i128)], time: Ratio) -> Ratio {
    let at = |&(rate, burst): &(i128, i128)| {
        (whole(rate).times(time).unwrap())
            .plus(whole(burst))
            .unwrap()
    };
    buckets.iter().map(at).min().unwrap()
}

/// The greatest of the lines and zero at a time, from the definition.
pub(crate) fn greatest(pieces: &[(i128, i128)], time: Ratio) -> Ratio {
    let at = |&(rate, offset): &(i128, i128)| {
        (whole(rate).times(time).unwrap())
            .minus(whole(offset))
            .unwrap()
    };
    pieces.iter().map(at).max().unwrap().max(Ratio::ZERO)
}

/// Every time, not below zero, at which two lines `rate · t + start` meet, and zero. The joints of
/// all curves of these lines are among these times.
pub(crate) fn joints(lines: &[(i128, i128)]) -> Vec<Ratio> {
    let mut times = vec![Ratio::ZERO];
    for a in lines {
        for b in lines {
            if a.0 > b.0 && b.1 >= a.1 {
                times.push(ratio(b.1 - a.1, a.0 - b.0));
            }
        }
    }
    times
}

/// The pieces of a service curve as lines, with zero.
pub(crate) fn lines(pieces: &[(i128, i128)]) -> Vec<(i128, i128)> {
    let lines = pieces.iter().map(|&(rate, offset)| (rate, -offset));
    lines.chain([(0, 0)]).collect()
}
