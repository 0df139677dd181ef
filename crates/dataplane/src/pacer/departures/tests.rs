//! Departures against an ordered set.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tailbound_units::WireBytes;

/// Departures beside an ordered set: by time, and by order of insertion.
struct Both {
    departures: Departures,
    expected: BTreeMap<(Position, u64), GuestIndex>,
    inserted: u64,
}

impl Both {
    fn insert(&mut self, guest: GuestIndex, departure: Position, floor: Position) {
        let departures = &self.departures;
        let last = if self.expected.is_empty() {
            departures.position.max(floor.min(departure))
        } else {
            departures.position
        };
        self.inserted += 1;
        let key = (departure.max(last), self.inserted);
        self.expected.insert(key, guest);
        self.departures.insert(guest, departure, floor);
    }

    fn depart(&mut self) -> Option<(GuestIndex, Position)> {
        let expected = self.expected.pop_first();
        let expected = expected.map(|((departure, _), guest)| (guest, departure));
        let first = self.departures.first();
        let departed = (first != Position::NEVER).then(|| (self.departures.depart(first), first));
        assert_eq!(departed, expected);
        departed
    }

    /// Takes the first out.
    fn pop(&mut self) -> Option<(GuestIndex, Position)> {
        let departed = self.depart()?;
        self.departures.leave();
        Some(departed)
    }

    /// Sets the next departure of the first guest, `ahead` after its present one.
    fn again(&mut self, ahead: u64) -> Option<Position> {
        let (guest, position) = self.depart()?;
        let departure = position + WireBytes(ahead);
        self.inserted += 1;
        self.expected.insert((departure, self.inserted), guest);
        self.departures.depart_again(guest, departure);
        Some(position)
    }

    fn remove(&mut self, guest: GuestIndex) {
        self.departures.remove(guest);
        self.expected.retain(|_, known| *known != guest);
    }

    fn has(&self, guest: GuestIndex) -> bool {
        self.expected.values().any(|known| *known == guest)
    }
}

const GUESTS: usize = 60;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A guest is added that departs this long after the last departure.
    Insert(GuestIndex, u64),
    Pop,
    /// The first guest departs again, this long after its last departure.
    Again(u64),
    Remove(GuestIndex),
    /// Departures within this time after the last one are in the row.
    Expect(u64),
}

fn guest() -> impl Strategy<Value = GuestIndex> {
    (0..GUESTS).prop_map(GuestIndex::new)
}

fn step() -> impl Strategy<Value = Step> {
    // Few different values, so that many departures are equal.
    let ahead = || prop_oneof![0..8_u64, (0..40_u64).prop_map(|n| n * 1538), 0..1_u64 << 30];
    prop_oneof![
        4 => (guest(), ahead()).prop_map(|(guest, ahead)| Step::Insert(guest, ahead)),
        2 => Just(Step::Pop),
        4 => ahead().prop_map(Step::Again),
        1 => guest().prop_map(Step::Remove),
        1 => ahead().prop_map(Step::Expect),
    ]
}

proptest! {
    /// Guests leave in the order of their departures, and those with equal departures in order of
    /// insertion, from the row or the wheel.
    #[test]
    fn guests_leave_in_order(steps in prop::collection::vec(step(), 0..400)) {
        let mut both = Both {
            departures: Departures::new(),
            expected: BTreeMap::new(),
            inserted: 0,
        };
        both.departures.reserve(GUESTS);
        both.departures.expect_until(Position(100_000));
        let mut last = Position::ZERO;
        for step in steps {
            match step {
                Step::Insert(guest, ahead) if !both.has(guest) => {
                    both.insert(guest, last + WireBytes(ahead), last);
                }
                Step::Remove(guest) if both.has(guest) => both.remove(guest),
                Step::Pop => last = both.pop().map_or(last, |(_, departure)| departure),
                Step::Again(ahead) => {
                    last = both.again(ahead).unwrap_or(last);
                }
                Step::Expect(ahead) => both.departures.expect_until(last + WireBytes(ahead)),
                Step::Insert(..) | Step::Remove(_) => {}
            }
        }
        while both.pop().is_some() {}
    }
}

#[test]
fn a_full_row_leaves_the_rest_to_the_wheel() {
    let mut both = Both {
        departures: Departures::new(),
        expected: BTreeMap::new(),
        inserted: 0,
    };
    both.departures.reserve(GUESTS);
    both.departures.expect_until(Position(1 << 20));
    // All at once, and then the others backwards.
    for guest in 0..30 {
        both.insert(GuestIndex::new(guest), Position(5000), Position(1000));
    }
    for guest in 30..GUESTS {
        let departure = Position(6000 - guest as u64);
        both.insert(GuestIndex::new(guest), departure, Position(1000));
    }
    assert!(!both.departures.wheel.is_empty());
    while both.pop().is_some() {}
}
