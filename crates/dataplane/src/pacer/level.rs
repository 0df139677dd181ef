//! Levels of buckets, for a process that continues in this pacer's place: so that no guest gets its
//! burst twice, and none loses it.

use super::core::Core;
use super::tree::Place;
use crate::{Frame, GuestId};
use tailbound_units::{Position, Rate, WireBytes};

/// Levels of a guaranteed guest's buckets at a time, in bytes on the wire, rounded down. {Bmax, one
/// frame} is not included: it is full again after one frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestLevel {
    /// Tokens in {B, S}.
    pub holds: WireBytes,
    /// Levels of the destinations that have a limit.
    pub destinations: Vec<DestinationLevel>,
}

/// Level of the bucket of a limited destination at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DestinationLevel {
    /// The destination, as in [`FlowKey`](crate::FlowKey).
    pub destination: u128,
    /// The limit; 0 if it is closed, so that the bucket does not fill.
    pub rate: Rate,
    /// Tokens in {`B_i`, S}.
    pub holds: WireBytes,
    /// Its place, if known. Buckets of subtrees follow from it: each owes the sum of what its
    /// destinations owe, at least what it owed before.
    pub place: Option<Place>,
}

impl GuestLevel {
    /// Reads the levels of a guest's buckets at `at`; `None` if it has no guarantee.
    pub(super) fn read<F: Frame>(core: &mut Core<F>, id: GuestId, at: Position) -> Option<Self> {
        let Core {
            guests,
            lines,
            chain,
            ..
        } = core;
        let guest = guests.guaranteed_mut(id)?;
        guest.buckets.make_up(chain.wire.lost());
        let mut destinations = Vec::with_capacity(guest.lines.limited as usize);
        let mut next = guest.lines.first;
        let tree = guest.lines.tree.as_deref();
        while let Some(limit) = lines.limit_mut(next) {
            limit.account.translate(chain.wire.change());
            destinations.push(DestinationLevel {
                destination: limit.key.destination,
                rate: limit.account.rate(),
                holds: limit.account.holds(at),
                place: tree.and_then(|tree| tree.place(limit.key.destination)),
            });
            next = limit.sibling;
        }
        Some(Self {
            holds: guest.buckets.tokens(at),
            destinations,
        })
    }
}
