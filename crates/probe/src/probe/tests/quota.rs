//! The CPU quota of the probe's control group.

use super::*;

/// A quota of a tenth of a CPU, which was used up before the probe began.
fn tenth() -> QuotaTime {
    QuotaTime {
        runtime: MS(10),
        period: MS(100),
        throttled: Nanos::from_secs(77),
    }
}

#[test]
fn a_quota_that_makes_sleeps_late_is_named_and_not_a_busy_guest() {
    let mut guest = Guest::new(EARLY);
    guest.quota = Some(tenth());
    guest.restart(EARLY);
    for _ in 0..65 {
        guest.sleeps(10);
        assert_eq!(guest.throttled(), None);
    }
    assert_eq!(
        line(guest.throttled()),
        "INCONCLUSIVE  quota 10ms/100ms used up: 66 of 66 late by it"
    );
    assert_eq!(guest.counts(), [0, 0, 0]);
    assert_eq!(guest.probe.counts().quota, 66);
    let note = Note::Quota {
        runtime: MS(10),
        period: MS(100),
    };
    assert_eq!(guest.probe.notes(), [note]);
}

#[test]
fn an_unused_quota_excuses_no_late_sleep() {
    let mut guest = Guest::new(EARLY);
    guest.quota = Some(tenth());
    guest.restart(EARLY);
    let verdict = (0..66).find_map(|_| guest.ours());
    assert_eq!(
        line(verdict),
        "INCONCLUSIVE  guest busy, CPU 0 %: 66 of 66 late may be its own"
    );
    assert_eq!(guest.probe.counts().quota, 0);
    assert!(guest.probe.notes().is_empty());
}

#[test]
fn a_quota_does_not_hide_bad_neighbours() {
    let mut guest = Guest::new(EARLY);
    guest.quota = Some(tenth());
    guest.restart(EARLY);
    for _ in 0..60 {
        assert_eq!(guest.throttled(), None);
    }
    let verdict = (0..66).find_map(|_| guest.stolen());
    assert_eq!(
        line(verdict),
        "BAD  66 of 126 sleeps late, 66 of them stolen"
    );
}
