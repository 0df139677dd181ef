//! What buckets hold, for whoever goes on in this pacer's place: so that no guest gets its
//! burst twice, and none loses it.

use super::config::PacerError;
use super::guest::Contract;
use super::{Pacer, guest};
use crate::{FlowKey, Frame, GuestId};
use tailbound_units::{Nanos, Position, Rate, WireBytes};

/// What the buckets of a guaranteed guest hold at a moment, in bytes on the wire, rounded
/// down. {Bmax, one frame} is not among them: it is full again after one frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestLevel {
    /// Of {B, S}.
    pub holds: WireBytes,
    /// Of the destinations that have a limit.
    pub destinations: Vec<DestinationLevel>,
}

/// What the bucket of a limited destination holds at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DestinationLevel {
    /// The destination, as in [`FlowKey`].
    pub destination: u128,
    /// Its limit; 0 where it is closed, so that it does not fill.
    pub rate: Rate,
    /// Of {`B_i`, S}.
    pub holds: WireBytes,
}

impl<F: Frame> Pacer<F> {
    /// What a guest's buckets hold now; `None` where it has no guarantee.
    pub fn level(&mut self, now: Nanos, id: GuestId) -> Option<GuestLevel> {
        let at = self.advance(now).max(self.chain.wire);
        let guest = guest::find_mut(&mut self.guests, id);
        let guest = guest.filter(|guest| guest.contract == Contract::Guaranteed)?;
        guest.make_up(self.chain.lost);
        let mut destinations = Vec::with_capacity(guest.limited as usize);
        let mut next = guest.first_limited;
        while let Some(limit) = self.lines.limit_mut(next) {
            limit.translate(&self.chain.change);
            destinations.push(DestinationLevel {
                destination: limit.key.destination,
                rate: limit.rate(),
                holds: limit.holds(at),
            });
            next = limit.sibling;
        }
        Some(GuestLevel {
            holds: guest.holds(at),
            destinations,
        })
    }

    /// Puts so many bytes into {B, S} of a guest, as far as it holds them: what is known
    /// that it has not sent. A guest without a guarantee is passed over.
    pub fn fill_bucket(&mut self, now: Nanos, id: GuestId, bytes: WireBytes) {
        let at = self.advance(now).max(self.chain.wire);
        if self.guaranteed(id).is_some()
            && let Some(guest) = guest::find_mut(&mut self.guests, id)
        {
            guest.make_up(self.chain.lost);
            guest.fill(bytes, at);
        }
    }

    /// Empties the buckets of a guest, those of its destinations too: it begins here now, and
    /// what it sent elsewhere is not known. A guest without a guarantee is passed over.
    pub fn empty_buckets(&mut self, now: Nanos, id: GuestId) {
        let at = self.advance(now).max(self.chain.wire);
        let Some(mut next) = self.guaranteed(id).map(|guest| guest.first_limited) else {
            return;
        };
        if let Some(guest) = guest::find_mut(&mut self.guests, id) {
            guest.make_up(self.chain.lost);
            guest.drain(at.max(guest.last_departure));
        }
        while let Some(limit) = self.lines.limit(next) {
            let index = std::mem::replace(&mut next, limit.sibling);
            self.hold(index, WireBytes::ZERO, at);
        }
    }

    /// Limits a destination ([`Pacer::set_destination`]), with so much in its bucket.
    ///
    /// # Errors
    /// The rule that the limit breaks; then nothing has changed.
    pub fn set_destination_level(
        &mut self,
        now: Nanos,
        id: GuestId,
        level: DestinationLevel,
    ) -> Result<(), PacerError> {
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

    /// Lets the bucket of a line's limit hold so much. Whoever asks which are used is told of
    /// it until it is full.
    fn hold(&mut self, index: u32, bytes: WireBytes, at: Position) {
        self.change_limit(index, at, |limit| limit.hold(bytes, at));
        if let Some(limit) = self.lines.limit_mut(index) {
            limit.note(index, &mut self.chain.used);
        }
    }
}
