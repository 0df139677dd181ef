use super::super::index::LineIndex;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A wheel beside an ordered set of (departure, order of coming).
#[derive(Default)]
struct Model {
    count: usize,
    waiting: BTreeSet<(Position, LineIndex)>,
    now: Position,
}

impl Model {
    fn insert(&mut self, wheel: &mut Wheel<LineIndex>, ahead: u64) {
        let index = LineIndex::new(self.count);
        let departure = self.now + WireBytes(ahead);
        self.count += 1;
        wheel.reserve(self.count);
        self.waiting.insert((departure, index));
        wheel.insert(index, departure);
    }

    fn pop(&mut self, wheel: &mut Wheel<LineIndex>) -> bool {
        let expected = self.waiting.pop_first();
        let first = wheel.first();
        assert_eq!(
            first,
            expected.map_or(Position::NEVER, |(departure, _)| departure)
        );
        let popped = expected.map(|_| wheel.pop());
        assert_eq!(popped, expected.map(|(_, index)| index));
        self.now = expected.map_or(self.now, |(departure, _)| departure);
        self.check(wheel);
        popped.is_some()
    }

    /// Takes out the `nth` of those that wait.
    fn remove(&mut self, wheel: &mut Wheel<LineIndex>, nth: u64) {
        let count = self.waiting.len().max(1);
        let chosen = self.waiting.iter().nth(nth as usize % count).copied();
        if let Some(chosen) = chosen {
            self.waiting.remove(&chosen);
            wheel.remove(chosen.1);
        }
        self.check(wheel);
    }

    fn check(&self, wheel: &Wheel<LineIndex>) {
        let next = self.waiting.first();
        let next = next.map_or(Position::NEVER, |(departure, _)| *departure);
        assert_eq!(wheel.first(), next);
    }
}

#[test]
fn frames_with_one_departure_leave_as_they_came_wherever_they_waited() {
    let (mut wheel, mut model) = (Wheel::new(), Model::default());
    model.insert(&mut wheel, 2000);
    model.insert(&mut wheel, 1024);
    model.insert(&mut wheel, 2000);
    assert!(model.pop(&mut wheel));
    // The others are in the first level by now, where this one comes at once.
    model.insert(&mut wheel, 2000 - 1024);
    while model.pop(&mut wheel) {}
}

#[test]
fn the_last_level_turns_around() {
    let (mut wheel, mut model) = (Wheel::new(), Model::default());
    for _ in 0..40 {
        model.insert(&mut wheel, RANGE.0 - 1);
        model.insert(&mut wheel, RANGE.0 / 3);
        assert!(model.pop(&mut wheel) && model.pop(&mut wheel));
    }
    assert!(model.now > Position(10 * RANGE.0));
}

#[test]
fn an_empty_wheel_starts_at_the_given_position() {
    let mut wheel = Wheel::new();
    let floor = Position(1 << 40);
    wheel.start_from(floor);
    wheel.start_from(Position(7));
    assert_eq!(wheel.position(), floor);
    let mut model = Model {
        now: floor,
        ..Model::default()
    };
    model.insert(&mut wheel, 100);
    assert!(model.pop(&mut wheel));
}

proptest! {
    #[test]
    fn the_timing_wheel_is_a_stable_priority_queue(
        steps in proptest::collection::vec(
            (0..5_u8, prop_oneof![0..100_u64, 0..10_000_u64, 0..100_000_000_u64, 0..RANGE.0]),
            1..400,
        ),
    ) {
        let (mut wheel, mut model) = (Wheel::new(), Model::default());
        for (kind, ahead) in steps {
            // What waits may be as far ahead as all that can be scheduled.
            match kind {
                0 => { model.pop(&mut wheel); }
                1 => model.remove(&mut wheel, ahead),
                _ => model.insert(&mut wheel, ahead),
            }
        }
        while model.pop(&mut wheel) {}
    }
}
