use super::*;
use proptest::prelude::*;

/// Hands over frames of `len` as early as it may until `end`; bytes handed over.
fn saturate(nic: &mut Nic, len: usize, end: Nanos) -> u64 {
    let (mut now, mut sent) = (Nanos::ZERO, 0);
    while now < end {
        while nic.admits(now) {
            nic.sent(now, len, 1);
            sent += len as u64;
        }
        now = nic.admits_at();
    }
    sent
}

#[test]
fn the_default_limit_is_the_papers_at_1_gbit_s() {
    assert_eq!(NicConfig::new(Rate::from_mbit(1000)).limit(), Bytes(37_500));
    assert_eq!(NicConfig::new(Rate::from_mbit(100)).limit(), Bytes(3_750));
    assert_eq!(NicConfig::new(Rate::from_mbit(10)).limit(), Bytes(1_514));
}

#[test]
fn one_frame_may_overshoot_the_limit_and_no_more() {
    let mut nic = Nic::new(&NicConfig::new(Rate::from_mbit(100)));
    let now = Nanos::from_secs(1);
    let mut frames = 0;
    while nic.admits(now) {
        nic.sent(now, 1514, 1);
        frames += 1;
    }
    assert_eq!(frames, 3);
    assert_eq!(nic.outstanding(now), Bytes(4542));
    // 792 bytes over the limit, and then less than it.
    assert_eq!(nic.admits_at(), now + Nanos(792 * 80 + 1));
    assert!(!nic.admits(now + Nanos(792 * 80)));
    assert!(nic.admits(nic.admits_at()));
}

#[test]
fn a_64_kb_packet_is_admitted_and_then_blocks() {
    let mut nic = Nic::new(&NicConfig::new(Rate::from_mbit(1000)));
    assert!(nic.admits(Nanos(1)));
    nic.sent(Nanos(1), 65_000, 1);
    assert!(!nic.admits(Nanos(1)));
    assert_eq!(nic.admits_at(), Nanos(1 + (65_000 - 37_500) * 8 + 1));
}

#[test]
fn ethernets_overhead_is_paid_for_each_frame() {
    let mut nic = Nic::new(&NicConfig {
        overhead: Bytes(24),
        ..NicConfig::new(Rate::from_mbit(1000))
    });
    let sent = saturate(&mut nic, 60, Nanos::from_millis(10));
    let expected = 1_250_000 * 60 / 84;
    assert!(sent.abs_diff(expected) < 37_500, "{sent}, not {expected}");
}

#[test]
fn a_rate_change_keeps_the_outstanding_bytes() {
    let mut nic = Nic::new(&NicConfig::new(Rate::from_mbit(100)));
    nic.sent(Nanos(0), 10_000, 1);
    nic.reconfigure(
        Nanos::from_micros(80),
        &NicConfig::new(Rate::from_mbit(1000)),
    );
    assert_eq!(nic.outstanding(Nanos::from_micros(80)), Bytes(9_000));
    assert_eq!(nic.outstanding(Nanos::from_micros(81)), Bytes(8_875));
}

proptest! {
    /// Over any rate and frame size, what goes out is what the wire sends: no
    /// remainder is lost and none is won.
    #[test]
    fn a_saturated_wire_keeps_its_rate_exactly(
        rate in 1_000_000u64..100_000_000_000,
        len in 60usize..65_000,
    ) {
        let config = NicConfig::new(Rate(rate));
        let mut nic = Nic::new(&config);
        let end = Rate(rate).time_for(Bytes(2000 * len as u64));
        let sent = saturate(&mut nic, len, end);
        let wire = Rate(rate).bytes_in(end).0;
        prop_assert!(sent >= wire, "{sent} of {wire}");
        // Beyond what the wire sent there is only the limit and one frame.
        prop_assert!(sent <= wire + config.limit().0 + 2 * len as u64);
    }

    #[test]
    fn repeated_admission_queries_change_no_outstanding_bytes(
        steps in prop::collection::vec((0u64..100_000, 60usize..1514), 1..100),
    ) {
        let config = NicConfig::new(Rate(123_456_789));
        let (mut asked, mut plain) = (Nic::new(&config), Nic::new(&config));
        let mut now = Nanos::ZERO;
        for (gap, len) in steps {
            for part in 1..=7 {
                asked.admits(now + Nanos(gap * part / 7));
            }
            now += Nanos(gap);
            asked.sent(now, len, 1);
            plain.sent(now, len, 1);
            prop_assert_eq!(asked.outstanding, plain.outstanding);
        }
    }
}
