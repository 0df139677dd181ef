//! A limit of a guaranteed guest's total traffic: it caps elastic traffic, and no other.

use super::elastic::{host, in_order, ms, of, offer, run, us};
use super::harness::{
    Host, LINK, ROUNDING, Reach, Record, SentItem, check_books, check_wire, conform, excess, frame,
};
use super::*;
use crate::RateLimit;
use proptest::prelude::*;

const FULL: u64 = 1538;
/// Without preamble, FCS and gap.
const FRAME: u64 = FULL - void::OVERHEAD.0;
const B: Rate = Rate::from_mbit(1000);
const S: Bytes = Bytes(30_760);
const GUEST: GuestId = GuestId::first(0);

const fn guarantee() -> Guarantee {
    Guarantee::new(B, S, LINK)
}

const fn limit(mbit: u64, depth: Bytes) -> RateLimit {
    RateLimit {
        rate: Rate::from_mbit(mbit),
        depth: Some(depth),
    }
}

fn capped(limit: &RateLimit) -> Host {
    let mut host = host(&PacerConfig::new(LINK), &[guarantee()]);
    host.pacer.set_cap(host.now, GUEST, Some(limit));
    host
}

/// Begin of the frames of guest 0, and their bytes without preamble, FCS and gap.
fn bytes(sent: &[SentItem]) -> Vec<(u64, u64)> {
    let frames = sent
        .iter()
        .filter_map(|sent| Some((sent.at, sent.frame?)))
        .filter(|(_, frame)| frame.guest == 0)
        .map(|(at, frame)| (at, frame.len as u64));
    frames.collect()
}

/// Checks that the traffic of guest 0 is never above a limit, its depth and one packet.
fn check_limit(limit: &RateLimit, sent: &[SentItem]) {
    let most = limit.depth().0 + FRAME;
    let over = excess(LINK, limit.rate, most, bytes(sent).into_iter());
    assert!(over < ROUNDING, "{over} over {limit:?}");
}

/// Bits per second between two times.
fn rate(sent: &[SentItem], from: Nanos, to: Nanos) -> f64 {
    let (first, last) = (LINK.bytes_in(from).0, LINK.bytes_in(to).0);
    let within = bytes(sent)
        .into_iter()
        .filter(|(at, _)| (first..last).contains(at));
    let bits = within.map(|(_, len)| len * 8).sum::<u64>();
    bits as f64 / (to - from).as_secs_f64()
}

/// Puts a message of full frames into guest 0's ring at this interval, as flow 1.
fn messages(host: &mut Host, frames: u64, every: Nanos, from: Nanos, to: Nanos) {
    let mut ring: Vec<_> = host.rings[0].drain(..).collect();
    for message in 0..(to - from).0 / every.0 {
        let at = from + Nanos(every.0 * message);
        ring.extend((0..frames).map(|id| (at, of(0, 1, 1000 * message + id + 1))));
    }
    ring.sort_by_key(|(at, _)| *at);
    host.rings[0].extend(ring);
}

#[test]
fn all_that_a_guest_sends_is_within_its_limit_and_uses_it() {
    for mbit in [1000, 1500, 5000] {
        for depth in [S, Bytes(S.0 + 2000), Bytes(mbit * 2500)] {
            let limit = limit(mbit, depth);
            let mut host = capped(&limit);
            let (start, end) = (host.now, host.now + ms(40));
            for port in [0, 2, 3] {
                offer(&mut host, (0, port), LINK, (start, end));
            }
            messages(&mut host, 10, ms(1), start + ms(14), start + ms(27));
            run(&mut host, end);
            check_wire(&host.sent);
            in_order(&host.sent);
            check_limit(&limit, &host.sent);
            for millis in [1, 15, 29] {
                let from = start + ms(millis);
                let got = rate(&host.sent, from, from + ms(10)) / limit.rate.0 as f64;
                assert!(got >= 0.98, "{limit:?}: {got} of it from {millis} ms on");
            }
        }
    }
}

/// Guaranteed frames depart no later than without a cap of elastic traffic.
#[test]
fn a_rate_limit_delays_no_guaranteed_frame() {
    let run_with = |limit: Option<&RateLimit>| {
        let mut host = host(&PacerConfig::new(LINK), &[guarantee()]);
        host.pacer.set_cap(host.now, GUEST, limit);
        let (start, end) = (host.now, host.now + ms(60));
        offer(&mut host, (0, 0), LINK, (start, end));
        // Messages of S, and between them single frames.
        messages(&mut host, S.0 / FULL, ms(5), start + ms(20), end);
        run(&mut host, end);
        let own = host.of(0).filter(|(_, frame)| frame.port == 1);
        let departures: Vec<_> = own
            .map(|(sent, frame)| (frame.id, sent.departure))
            .collect();
        (departures, host.pacer.stats().elastic.packets)
    };
    let (free, beside) = run_with(None);
    assert_eq!(free.len() as u64, 8 * (S.0 / FULL));
    assert!(free.iter().all(|(_, departure)| departure.is_some()));
    for mbit in [1100, 1500, 3000] {
        let limit = limit(mbit, Bytes(mbit * 2500));
        let (departures, elastic) = run_with(Some(&limit));
        let later = departures
            .iter()
            .zip(&free)
            .filter(|(own, free)| own > free);
        assert_eq!(departures.len(), free.len());
        assert_eq!(later.count(), 0, "{mbit} Mbit/s");
        assert!(elastic * 2 < beside, "{elastic} of {beside}");
    }
}

#[test]
fn a_limit_holds_from_the_moment_on_that_it_is_set() {
    let mut host = capped(&limit(2000, Bytes(40_000)));
    let start = host.now;
    offer(&mut host, (0, 0), LINK, (start, start + ms(100)));
    run(&mut host, start + ms(20));
    for mbit in [4000, 1500, 8000] {
        let limit = limit(mbit, Bytes(40_000));
        host.pacer.set_cap(host.now, GUEST, Some(&limit));
        let (from, before) = (host.now, host.sent.len());
        run(&mut host, from + ms(10));
        check_limit(&limit, &host.sent[before..]);
        let got = rate(&host.sent, from + ms(1), from + ms(10)) / limit.rate.0 as f64;
        assert!(got >= 0.98, "{mbit} Mbit/s: {got} of it");
        assert_eq!(host.pacer.cap(GUEST).map(|cap| cap.limit), Some(limit));
    }
    host.pacer.set_cap(host.now, GUEST, None);
    assert_eq!(host.pacer.cap(GUEST), None);
    let from = host.now;
    run(&mut host, from + ms(10));
    let got = rate(&host.sent, from + ms(1), from + ms(10)) / LINK.0 as f64;
    assert!(got >= 0.95, "{got} of the link without a limit");
    in_order(&host.sent);
}

/// A flow that is elastic because of the limit's depth gets the rest of the limit beside the
/// others' guaranteed frames; if these want more than the guarantee, all flows share it.
#[test]
fn guaranteed_frames_precede_elastic_frames_of_the_same_guest() {
    let shares = |other: Rate| {
        let limit = limit(1100, Bytes(1_000_000));
        let mut host = capped(&limit);
        let (start, end) = (host.now, host.now + ms(50));
        offer(&mut host, (0, 0), LINK, (start, end));
        let busy = start + ms(20);
        messages(&mut host, S.0 / FULL, us(1), busy, busy + us(1));
        offer(&mut host, (0, 1), other, (busy, end));
        run(&mut host, end);
        check_limit(&limit, &host.sent);
        let mut sums = [0; 2];
        for (sent, frame) in host.of(0) {
            if sent.at >= LINK.bytes_in(busy + ms(10)).0 {
                sums[usize::from(frame.port)] += frame.len as u64 * 8 * 50;
            }
        }
        sums
    };
    let [elastic, guaranteed] = shares(B.percent(95));
    let of_frames = B.percent(95).0 * FRAME / FULL;
    assert!(guaranteed.abs_diff(of_frames) < B.0 / 100, "{guaranteed}");
    let left = Rate::from_mbit(1100).0 - of_frames;
    assert!(elastic.abs_diff(left) < B.0 / 100, "{elastic} of {left}");
    let both = shares(LINK);
    assert!(both.iter().all(|got| *got > B.0 / 3), "{both:?}");
    assert!(both.iter().sum::<u64>() > B.0 * 107 / 100, "{both:?}");
}

#[test]
fn local_frames_count_against_the_limit_without_waiting() {
    let limit = limit(1500, S);
    let mut host = capped(&limit);
    let (start, end) = (host.now, host.now + ms(40));
    offer(&mut host, (0, 0), LINK, (start, end));
    let mut ring: Vec<_> = host.rings[0].drain(..).collect();
    let here = (0..500).map(|id| {
        let frame = Record {
            reach: Reach::Here,
            ..of(0, 7, id)
        };
        (start + ms(10) + us(20 * id), frame)
    });
    ring.extend(here);
    ring.sort_by_key(|(at, _)| *at);
    host.rings[0].extend(ring);
    run(&mut host, end);
    let mut all = bytes(&host.sent);
    all.extend(host.local.iter().map(|(at, frame)| (*at, frame.len as u64)));
    all.sort_unstable();
    let over = excess(LINK, limit.rate, limit.depth().0 + FRAME, all.into_iter());
    assert!(over < ROUNDING, "{over}");
    assert_eq!(host.local.len(), 500);
    // Half of the guarantee: none of its frames waited.
    let last = host.local.last().map(|(departure, _)| *departure);
    assert!(last <= Some(LINK.bytes_in(start + ms(20)).0), "{last:?}");
}

#[test]
fn a_limit_goes_on_with_another_guarantee_and_on_another_wire() {
    let limit = limit(2000, Bytes(100_000));
    let mut host = capped(&limit);
    let start = host.now;
    offer(&mut host, (0, 0), LINK, (start, start + ms(40)));
    run(&mut host, start + ms(10));
    let other = Guarantee::new(Rate::from_mbit(500), Bytes(15_380), Rate::from_mbit(5000));
    host.pacer
        .set_guest(host.now, GUEST, Some(&other))
        .expect("sound");
    run(&mut host, start + ms(20));
    check_limit(&limit, &host.sent);
    let before = host.pacer.cap(GUEST).expect("it has one").sent;
    let slower = PacerConfig::new(Rate::from_mbit(5000));
    host.pacer.reconfigure(host.now, &slower).expect("sound");
    let from = host.now;
    host.sent.clear();
    run(&mut host, from + ms(10));
    let sent = host.pacer.cap(GUEST).expect("it has one").sent;
    let got = sent.bytes - before.bytes;
    let fair = limit.rate.bytes_in(ms(10)).0;
    assert!(got.abs_diff(fair) <= fair / 50 + FRAME, "{got} of {fair}");
    // The cap ends with the guarantee.
    host.pacer.set_guest(host.now, GUEST, None).expect("sound");
    assert_eq!(host.pacer.cap(GUEST), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// For any traffic, no interval has more than the limit, its depth and one packet; guaranteed
    /// frames conform, each flow stays in order, and all frames are counted and leave.
    #[test]
    fn no_interval_has_more_than_the_limit(
        mbit in 1000..6000_u64,
        depth in S.0..400_000,
        sends in prop::collection::vec((0..4_u16, 1..120_u64, 84..=FULL, 1..600_u64), 1..60),
    ) {
        let limit = limit(mbit, Bytes(depth));
        let mut host = capped(&limit);
        let mut id = 0;
        for (port, count, wire, wait) in sends {
            for _ in 0..count {
                id += 1;
                host.ring(0, host.now, Record { port, ..frame(id, 0, wire) });
            }
            let until = host.now + us(wait);
            run(&mut host, until);
        }
        let end = host.now + Nanos::from_secs(1);
        host.run_until(end);
        check_books(&host.pacer);
        check_wire(&host.sent);
        in_order(&host.sent);
        check_limit(&limit, &host.sent);
        prop_assert_eq!(host.pacer.waiting(), 0);
        prop_assert_eq!(host.of(0).count() as u64 + host.dropped(), id);
        let sent = host.pacer.cap(GUEST).expect("it has one").sent;
        prop_assert_eq!(sent.packets, host.of(0).count() as u64);
        let guaranteed = host.of(0).filter_map(|(sent, _)| Some((sent.departure?, sent.wire)));
        conform(&PacerConfig::new(LINK), &guarantee(), &guaranteed.collect::<Vec<_>>());
    }
}
