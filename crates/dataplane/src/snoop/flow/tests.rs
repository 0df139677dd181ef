use super::*;

fn flow() -> Flow {
    let (link, origin) = (Link::default(), Origin::OUTSIDE);
    let mut flow = Flow::new(Stage::Open, Mode::Active, link, origin);
    flow.start(Seq(1), 10_000, &SnoopConfig::default());
    flow
}

#[test]
fn the_reach_includes_its_last_byte() {
    let flow = flow();
    for (bytes, may) in [(65_535, true), (65_536, false)] {
        let end = Seq(1) + bytes;
        assert_eq!(flow.may_place_ahead(end, Reach::Unscaled), may, "{bytes}");
    }
}

/// The clock of repetitions is of any value at the first one, also 0 and 1.
#[test]
fn an_acknowledgement_is_repeated_once_in_a_pause_from_the_first_moment_on() {
    let tick = Nanos(1 << TICK);
    for first in [Nanos::ZERO, tick, Nanos::from_secs(5)] {
        let mut flow = flow();
        let soon = first + Nanos(SnoopConfig::REPEAT.0 / 2);
        let later = first + SnoopConfig::REPEAT + tick + tick;
        let may = [first, soon, later].map(|now| flow.may_repeat(now));
        assert_eq!(may, [true, false, true], "from {first}");
        flow.forget_repeat();
        assert!(flow.may_repeat(later));
    }
}
