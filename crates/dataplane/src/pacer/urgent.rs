//! Delay classes: guests whose due frames go first.
//!
//! Each class has its own [`Departures`]. At a position of the wire the frame of the highest class
//! goes that has one due. So a frame waits for frames of its own and of higher classes, and for one
//! frame that is on the wire already, as in the switches. Pacers without guests of a delay class
//! have the departures of the ordinary class alone.

use super::Guarantee;
use super::chain::Chain;
use super::departures::Departures;
use serde::{Deserialize, Serialize};
use tailbound_classes::Mark;
use tailbound_units::Position;

/// The number of delay classes.
pub const DELAY_CLASSES: usize = 2;

/// A guaranteed class above the ordinary one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayClass {
    rank: u8,
    mark: Mark,
}

impl DelayClass {
    /// Creates the class with a number, from 1 for the highest priority on, and its mark. `None` for
    /// numbers above [`DELAY_CLASSES`].
    pub const fn new(number: u8, mark: Mark) -> Option<Self> {
        if number == 0 || number as usize > DELAY_CLASSES {
            return None;
        }
        Some(Self { rank: number, mark })
    }

    /// The number of the class, from 1 on.
    pub const fn number(self) -> u8 {
        self.rank
    }

    /// The mark of its frames.
    pub const fn mark(self) -> Mark {
        self.mark
    }
}

/// Number of a guest's class: that of a delay class, or 0 for the ordinary one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Rank(u8);

impl Rank {
    pub(super) const ORDINARY: Self = Self(0);
    /// All classes in order of priority.
    const ALL: [Self; DELAY_CLASSES + 1] = [Self(1), Self(2), Self(0)];

    #[inline(always)]
    pub(super) fn of(class: Option<DelayClass>) -> Self {
        class.map_or(Self::ORDINARY, |class| Self(class.rank))
    }
}

impl Guarantee {
    /// The class of its departures.
    #[inline(always)]
    pub(super) fn rank(&self) -> Rank {
        Rank::of(self.class)
    }
}

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

/// Departures of all delay classes.
pub(super) type UrgentDepartures = Option<Box<[Departures; DELAY_CLASSES]>>;

impl<F> Chain<F> {
    /// Returns the departures of a class.
    #[inline(always)]
    pub(super) fn departures_of(&mut self, rank: Rank) -> &mut Departures {
        match (&mut self.urgent, usize::from(rank.0).checked_sub(1)) {
            (Some(urgent), Some(place)) => &mut urgent[place],
            _ => &mut self.departures,
        }
    }

    /// Creates the departures of a class for guests below `count`, if they do not exist.
    pub(super) fn reserve_departures(&mut self, rank: Rank, count: usize) {
        if rank != Rank::ORDINARY && self.urgent.is_none() {
            self.urgent = Some(Box::new(std::array::from_fn(|_| Departures::new())));
        }
        self.departures.reserve(count);
        for departures in self.urgent.iter_mut().flat_map(|urgent| urgent.iter_mut()) {
            departures.reserve(count);
        }
    }

    /// Returns the first departure of any class; the end of time without guests.
    #[inline(always)]
    pub(super) fn first_departure(&self) -> Position {
        let first = self.departures.first();
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
        let at = self.departures.first();
        Due {
            rank: Rank::ORDINARY,
            at,
            releases: at,
        }
    }

    #[inline(never)]
    fn next_of_classes(&self, free: Position) -> Due {
        let first_of = |rank: Rank| match (&self.urgent, usize::from(rank.0).checked_sub(1)) {
            (Some(urgent), Some(place)) => urgent[place].first(),
            (None, Some(_)) => Position::NEVER,
            (_, None) => self.departures.first(),
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
