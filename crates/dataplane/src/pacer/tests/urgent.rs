//! Delay classes on the wire of one host.

use super::harness::{Host, LINK, frame};
use super::*;
use crate::Mark;
use proptest::prelude::*;

/// A burst of ten frames at the link's rate.
fn guarantee(class: Option<u8>) -> Guarantee {
    let mut guarantee = Guarantee::new(Rate::from_mbit(500), Bytes(15_380), LINK);
    let mark = Mark { dscp: 48, pcp: 6 };
    guarantee.class = class.and_then(|number| DelayClass::new(number, mark));
    guarantee
}

/// The longest time between the departure of a frame of a guest and its beginning on the wire, in
/// bytes of the wire.
fn latest(host: &Host, guest: u32) -> u64 {
    let late = host
        .of(guest)
        .filter_map(|(sent, _)| Some(sent.at - sent.departure?));
    late.max().unwrap_or_default()
}

/// Guests of these classes burst at different times; best effort fills the rest.
fn run(classes: &[Option<u8>], steps: &[(u32, u64, u64)]) -> Host {
    let guarantees: Vec<_> = classes.iter().map(|class| guarantee(*class)).collect();
    let mut host = Host::new(&PacerConfig::strict(LINK), &guarantees);
    let mut id = 0;
    for (guest, frames, micros) in steps {
        for _ in 0..*frames {
            host.ring(*guest as usize, host.now, frame(id, *guest, 1538));
            id += 1;
        }
        let end = host.now + Nanos::from_micros(*micros);
        host.run_until(end);
    }
    host.run_until(host.now + Nanos::from_millis(10));
    host
}

#[test]
fn a_lower_class_makes_a_higher_one_late_by_a_frame() {
    let steps: Vec<_> = (0..7).map(|guest| (guest, 10, 0)).collect();
    let without = run(&[None; 7], &steps);
    assert!(latest(&without, 6) > 10 * 1538, "{}", latest(&without, 6));
    let mut classes = [None; 7];
    classes[6] = Some(1);
    classes[5] = Some(2);
    let with = run(&classes, &steps);
    assert!(latest(&with, 6) <= 1538, "{}", latest(&with, 6));
    // Ten frames of the class above it, and one that is on the wire.
    assert!(latest(&with, 5) <= 11 * 1538, "{}", latest(&with, 5));
    assert!(latest(&with, 0) > 11 * 1538);
    for guest in 0..7 {
        assert_eq!(with.of(guest).count(), 10);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_class_waits_for_itself_and_higher_ones_and_one_frame(
        steps in prop::collection::vec((0_u32..6, 1_u64..12, 0_u64..120), 1..40),
    ) {
        let classes = [None, None, Some(2), Some(2), Some(1), None];
        let host = run(&classes, &steps);
        // Alone in its class: one frame of any other.
        prop_assert!(latest(&host, 4) <= 1538);
        let all: u64 = steps.iter().map(|(_, frames, _)| frames).sum();
        let sent: usize = (0..6).map(|guest| host.of(guest).count()).sum();
        prop_assert_eq!(sent as u64, all);
    }
}

#[test]
fn a_guest_changes_its_class_with_frames_on_the_way() {
    let mut host = Host::new(&PacerConfig::strict(LINK), &[guarantee(None); 3]);
    for id in 0..60 {
        host.ring(
            (id % 3) as usize,
            host.now,
            frame(id, (id % 3) as u32, 1538),
        );
    }
    for (guest, class) in [
        (0, Some(1)),
        (1, Some(2)),
        (0, None),
        (2, Some(1)),
        (0, Some(2)),
    ] {
        host.run_until(host.now + Nanos::from_micros(70));
        host.pacer
            .set_guest(host.now, GuestId::first(guest), Some(&guarantee(class)))
            .expect("sound");
    }
    host.pacer
        .set_guest(host.now, GuestId::first(1), None)
        .expect("sound");
    host.run_until(host.now + Nanos::from_millis(20));
    assert_eq!(host.of(0).count(), 20);
    assert_eq!(host.of(2).count(), 20);
    assert_eq!(host.pacer.poll_at(), None);
}
