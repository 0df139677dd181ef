//! Guests of a late host conform in real time, while virtual time is frozen.

use super::harness::{Host, LINK, check_wire, conform, frame};
use super::*;
use proptest::prelude::*;

const GUEST: GuestId = GuestId::first(0);

/// Sends frames of these lengths, which all wait at the start, from a host whose turns are late by
/// `late` after the first. `change` acts between the first turn and the second.
fn check(
    guarantee: &Guarantee,
    lengths: &[u64],
    late: Nanos,
    change: impl FnOnce(&mut Host),
) -> Nanos {
    let config = PacerConfig::strict(LINK);
    let mut host = Host::new(&config, &[*guarantee]);
    for (id, wire) in (0..).zip(lengths) {
        host.ring(0, host.now, frame(id, 0, *wire));
    }
    host.turn();
    change(&mut host);
    host.late = late;
    host.run_until(Nanos::from_secs(60));
    check_wire(&host.sent);
    let departures: Vec<_> = host
        .of(0)
        .map(|(sent, _)| (sent.in_real_time, sent.wire))
        .collect();
    assert_eq!(departures.len(), lengths.len());
    conform(&config, guarantee, &departures);
    host.pacer.stats().frozen
}

/// Less than three full frames, at twice B.
const SMALL: Guarantee = Guarantee::new(Rate::from_mbit(1000), Bytes(4000), Rate::from_mbit(2000));

#[test]
fn a_burst_behind_a_short_frame_conforms_after_a_late_turn() {
    // The short frame has its departure beyond the first batch. {B, S} fills while the time is
    // frozen, but {Bmax, frame} is nearly empty and delays the frame behind the short one. Without
    // a bound {B, S} would fill for that delay, too: 643 bytes above the curve.
    let lengths = [&[1000][..], &[1538; 6], &[84], &[1538; 12]].concat();
    let frozen = check(&SMALL, &lengths, Nanos::from_micros(100), |_| {});
    assert!(frozen > Nanos::from_micros(70), "{frozen}");
}

#[test]
fn a_frame_counts_until_it_leaves_even_after_a_change() {
    let frozen = check(&SMALL, &[1538; 20], Nanos::from_micros(100), |host| {
        let changed = host.pacer.set_guest(host.now, GUEST, Some(&SMALL));
        changed.expect("sound");
    });
    assert!(frozen > Nanos::from_micros(70), "{frozen}");
}

proptest! {
    /// Bursts of a few frames, which a late turn fills.
    #[test]
    fn every_burst_of_a_late_host_conforms(
        mbit in 100..5000_u64,
        above in 0..=100_u64,
        burst in 1538..12_000_u64,
        lengths in proptest::collection::vec(
            prop_oneof![3 => Just(1538), 2 => Just(84), 1 => 84..=1538_u64],
            1..60,
        ),
        late in 20..200_u64,
    ) {
        let bandwidth = Rate::from_mbit(mbit);
        let burst_rate = Rate(bandwidth.0 + (LINK.0 - bandwidth.0) / 100 * above);
        let guarantee = Guarantee::new(bandwidth, Bytes(burst), burst_rate);
        check(&guarantee, &lengths, Nanos::from_micros(late), |_| {});
    }
}
