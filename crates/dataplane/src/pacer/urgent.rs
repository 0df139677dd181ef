//! Delay classes: guests whose due frames go first.
//!
//! Each class has its own [`Departures`]. At a position of the wire the frame of the highest class
//! goes that has one due. So a frame waits for frames of its own and of higher classes, and for one
//! frame that is on the wire already, as in the switches. Pacers without guests of a delay class
//! have the departures of the ordinary class alone.

use super::class::{DELAY_CLASSES, Rank};
use super::departures::Departures;
use tailbound_units::Position;

/// The next departure on a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    /// The guest's class.
    pub(super) rank: Rank,
    /// The end of time without guests.
    pub(super) at: Position,
    /// Releases up to this position come before it: a released line may be of a higher class.
    pub(super) releases: Position,
}

/// The departures of all classes of guests.
#[derive(Debug)]
pub(super) struct AllDepartures {
    /// Guests of the ordinary class, by the departure of their frame that has one.
    pub(super) ordinary: Departures,
    /// The same of guests of each delay class; `None` as long as there was none.
    urgent: Option<Box<[Departures; DELAY_CLASSES]>>,
}

impl AllDepartures {
    pub(super) fn new() -> Self {
        Self {
            ordinary: Departures::new(),
            urgent: None,
        }
    }

    /// Returns true if there was a guest of a delay class.
    #[inline(always)]
    pub(super) const fn has_classes(&self) -> bool {
        self.urgent.is_some()
    }

    /// Returns the departures of each class.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Departures> {
        let urgent = self.urgent.iter_mut().flat_map(|urgent| urgent.iter_mut());
        urgent.chain([&mut self.ordinary])
    }

    /// Returns the departures of a class.
    #[inline(always)]
    pub(super) fn of(&mut self, rank: Rank) -> &mut Departures {
        match (&mut self.urgent, rank.place()) {
            (Some(urgent), Some(place)) => &mut urgent[place],
            _ => &mut self.ordinary,
        }
    }

    /// Creates the departures of a class for guests below `count`, if they do not exist.
    pub(super) fn reserve(&mut self, rank: Rank, count: usize) {
        if rank != Rank::ORDINARY && self.urgent.is_none() {
            self.urgent = Some(Box::new(std::array::from_fn(|_| Departures::new())));
        }
        for departures in self.all_mut() {
            departures.reserve(count);
        }
    }

    /// Returns the first departure of any class; the end of time without guests.
    #[inline(always)]
    pub(super) fn first(&self) -> Position {
        let first = self.ordinary.first();
        match &self.urgent {
            None => first,
            Some(urgent) => urgent.iter().fold(first, |first, it| first.min(it.first())),
        }
    }

    /// Returns the departure that is next on a wire that is free from `free` on: that of the highest
    /// class with a frame that is due, or the first of all. `CLASSES` is true if there are delay
    /// classes.
    #[inline(always)]
    pub(super) fn next_due<const CLASSES: bool>(&self, free: Position) -> Due {
        if CLASSES {
            return self.next_of_classes(free);
        }
        let at = self.ordinary.first();
        Due {
            rank: Rank::ORDINARY,
            at,
            releases: at,
        }
    }

    #[inline(never)]
    fn next_of_classes(&self, free: Position) -> Due {
        let first_of = |rank: Rank| match (&self.urgent, rank.place()) {
            (Some(urgent), Some(place)) => urgent[place].first(),
            (None, Some(_)) => Position::NEVER,
            (_, None) => self.ordinary.first(),
        };
        let (mut rank, mut at) = (Rank::ORDINARY, Position::NEVER);
        for other in Rank::ALL {
            let first = first_of(other);
            if first < at {
                (rank, at) = (other, first);
            }
            if first <= free {
                (rank, at) = (other, first);
                break;
            }
        }
        let releases = at.max(free);
        Due { rank, at, releases }
    }

    /// Permits guests that depart before `soon` in the rows of all delay classes.
    #[inline(never)]
    pub(super) fn expect_urgent_until(&mut self, soon: Position) {
        for departures in self.urgent.iter_mut().flat_map(|urgent| urgent.iter_mut()) {
            departures.expect_until(soon);
        }
    }
}
