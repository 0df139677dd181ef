//! Flows that exceed their guest's guarantee, on an idle link.

use super::*;

/// The share of a guest's frames of the link in a millisecond, in percent, and their DSCPs.
#[derive(Debug)]
struct Millisecond {
    share: f64,
    dscps: Vec<u8>,
}

/// Runs guests that offer the link's rate or nothing, millisecond by millisecond, and returns A's
/// sent frames.
fn watch(wire: &PacerConfig, offers: &[(bool, bool)]) -> (Bench, Vec<Millisecond>, Vec<u32>) {
    let mut bench = bench(paced(wire, Some(guarantee(100)), None));
    // Its bucket fills.
    bench.run(bench.now + Nanos::from_secs(1));
    let start = bench.now;
    let mut numbers = [0, 0];
    for (millis, (a, b)) in (0..).zip(offers) {
        for step in 0..20_u64 {
            let until = start + Nanos::from_millis(millis) + Nanos::from_micros(50 * (step + 1));
            for (guest, offers) in [(A, a), (B, b)] {
                // 4 frames in 50 us are 984 Mbit/s.
                for _ in 0..if *offers { 4 } else { 0 } {
                    let number = &mut numbers[guest - A];
                    bench.send(guest, &full(guest, *number));
                    *number += 1;
                }
            }
            bench.run(until);
        }
    }
    let sent = std::mem::take(&mut bench.wires[UPLINK].borrow_mut().from_port);
    let mut own = Vec::new();
    let mut seen: Vec<_> = offers
        .iter()
        .map(|_| Millisecond {
            share: 0.0,
            dscps: Vec::new(),
        })
        .collect();
    for (at, frame) in sent {
        let Some((A, number)) = read(&frame) else {
            continue;
        };
        own.push(number);
        let Some(within) = seen.get_mut((at.since(start).0 / 1_000_000) as usize) else {
            continue;
        };
        within.share += 100.0 * FULL as f64 / LINK.bytes_in(Nanos::from_millis(1)).0 as f64;
        within.dscps.push(frame[15] >> 2);
    }
    (bench, seen, own)
}

#[test]
fn elastic_flows_use_an_idle_link_and_yield_a_busy_one() {
    let offers = [(true, false); 10].into_iter();
    let offers: Vec<_> = offers.chain([(true, true); 20]).collect();
    let (mut bench, seen, own) = watch(&PacerConfig::new(LINK), &offers);
    for (millis, within) in seen.iter().enumerate().take(10).skip(1) {
        assert!(within.share >= 95.0, "{millis}: {within:?}");
        assert!(
            within.dscps.iter().all(|dscp| *dscp == 0),
            "{millis}: {within:?}"
        );
    }
    // `drain` and a millisecond later.
    for (millis, within) in seen.iter().enumerate().skip(12) {
        assert!(within.share >= 9.0, "{millis}: {within:?}");
        assert!(
            within.dscps.iter().all(|dscp| *dscp == 46),
            "{millis}: {within:?}"
        );
    }
    let rate: f64 = seen[12..].iter().map(|within| within.share).sum();
    assert!(rate >= 0.98 * 10.0 * (seen.len() - 12) as f64, "{rate}");
    assert!(own.is_sorted(), "no frame overtakes another");
    let pacing = bench.guest_pacing(A);
    assert!(pacing.stats.elastic.packets > 700, "{pacing:?}");
    assert_eq!(pacing.elastic_flows, 0);
    assert_eq!(bench.pacing().stats.elastic, pacing.stats.elastic);
}

#[test]
fn a_guest_on_a_strict_pacer_gets_its_guarantee_and_no_more() {
    let strict = PacerConfig::strict(LINK);
    let (mut bench, seen, own) = watch(&strict, &[(true, false); 20]);
    for within in seen.iter().skip(2) {
        assert!((8.0..=12.5).contains(&within.share), "{within:?}");
        assert!(within.dscps.iter().all(|dscp| *dscp == 46), "{within:?}");
    }
    assert!(own.is_sorted());
    assert_eq!(bench.pacing().stats.elastic.packets, 0);
}
