//! Delay classes: guaranteed classes above the ordinary one.

use serde::{Deserialize, Serialize};
use tailbound_classes::Mark;

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
    pub(super) const ALL: [Self; DELAY_CLASSES + 1] = [Self(1), Self(2), Self(0)];

    #[inline(always)]
    pub(super) fn of(class: Option<DelayClass>) -> Self {
        class.map_or(Self::ORDINARY, |class| Self(class.rank))
    }

    /// The place of a delay class among all of them; `None` for the ordinary one.
    #[inline(always)]
    pub(super) fn place(self) -> Option<usize> {
        usize::from(self.0).checked_sub(1)
    }
}
