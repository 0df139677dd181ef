//! Levels of buckets, for a process that continues in this pacer's place: so that no guest gets its
//! burst twice, and none loses it.

use super::config::PacerError;
use super::guest::Contract;
use super::index::LineIndex;
use super::place::mark_stale;
use super::tree::Place;
use super::{Pacer, guest};
use crate::{FlowKey, Frame, GuestId};
use tailbound_units::{Nanos, Position, Rate, WireBytes};

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
    /// The destination, as in [`FlowKey`].
    pub destination: u128,
    /// The limit; 0 if it is closed, so that the bucket does not fill.
    pub rate: Rate,
    /// Tokens in {`B_i`, S}.
    pub holds: WireBytes,
    /// Its place, if known. Buckets of subtrees follow from it: each owes the sum of what its
    /// destinations owe, at least what it owed before.
    pub place: Option<Place>,
}

impl<F: Frame> Pacer<F> {
    /// Returns the present levels of a guest's buckets; `None` if it has no guarantee.
    pub fn level(&mut self, now: Nanos, id: GuestId) -> Option<GuestLevel> {
        let at = self.advance(now).max(self.chain.wire);
        let guest = guest::find_mut(&mut self.guests, id);
        let guest = guest.filter(|guest| guest.contract == Contract::Guaranteed)?;
        guest.make_up(self.chain.lost);
        let mut destinations = Vec::with_capacity(guest.destinations.count as usize);
        let mut next = guest.destinations.first;
        let tree = guest.destinations.tree.as_deref();
        while let Some(limit) = self.lines.limit_mut(next) {
            limit.account.translate(&self.chain.change);
            destinations.push(DestinationLevel {
                destination: limit.key.destination,
                rate: limit.account.rate(),
                holds: limit.account.holds(at),
                place: tree.and_then(|tree| tree.place(limit.key.destination)),
            });
            next = limit.sibling;
        }
        Some(GuestLevel {
            holds: guest.holds(at),
            destinations,
        })
    }

    /// Adds tokens to {B, S} of a guest, up to its depth: for bytes that it is known not to have
    /// sent. Guests without a guarantee are ignored.
    pub fn fill_bucket(&mut self, now: Nanos, id: GuestId, bytes: WireBytes) {
        let at = self.advance(now).max(self.chain.wire);
        if self.guaranteed(id).is_some()
            && let Some(guest) = guest::find_mut(&mut self.guests, id)
        {
            guest.make_up(self.chain.lost);
            guest.fill(bytes, at);
        }
    }

    /// Empties the buckets of a guest and of its destinations: it begins here now, and its earlier
    /// traffic elsewhere is unknown. Guests without a guarantee are ignored.
    pub fn empty_buckets(&mut self, now: Nanos, id: GuestId) {
        let at = self.advance(now).max(self.chain.wire);
        let Some(mut next) = self.guaranteed(id).map(|guest| guest.destinations.first) else {
            return;
        };
        if let Some(guest) = guest::find_mut(&mut self.guests, id) {
            guest.make_up(self.chain.lost);
            guest.drain(at.max(guest.last_departure));
            if let Some(tree) = &mut guest.destinations.tree {
                tree.accounts_mut().for_each(|account| {
                    account.translate(&self.chain.change);
                    account.change(at, |account| account.hold(WireBytes::ZERO, at));
                });
            }
            mark_stale(guest, &mut self.lines);
        }
        while let Some(limit) = self.lines.limit(next) {
            let index = std::mem::replace(&mut next, limit.sibling);
            self.hold(index, WireBytes::ZERO, at);
        }
    }

    /// Limits a destination ([`Pacer::set_destination`]), with this level of its bucket.
    ///
    /// # Errors
    /// The rule that the limit breaks; the pacer is then unchanged.
    pub fn set_destination_level(
        &mut self,
        now: Nanos,
        id: GuestId,
        level: DestinationLevel,
    ) -> Result<(), PacerError> {
        if level.place.is_some() {
            self.set_place(id, level.destination, level.place);
        }
        self.set_destination(now, id, level.destination, Some(level.rate))?;
        let at = self.advance(now).max(self.chain.wire);
        let key = FlowKey {
            source: id,
            destination: level.destination,
        };
        if let Some(index) = self.lines.find(key) {
            self.hold(index, level.holds, at);
        }
        Ok(())
    }

    /// Sets the level of the bucket of a line's limit. Queries of used limits include the limit
    /// until its bucket is full.
    fn hold(&mut self, index: LineIndex, bytes: WireBytes, at: Position) {
        self.change_limit(index, at, |account| account.hold(bytes, at));
        if let Some(limit) = self.lines.limit_mut(index) {
            limit.note(index, &mut self.chain.used);
        }
    }
}
