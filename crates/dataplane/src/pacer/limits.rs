//! The top of the chain: what a guest may send to one destination.

use super::guest::TooLate;
use super::rescale::Rescale;
use crate::hash::MultilinearHash;
use crate::{FlowKey, GuestId, HashKeys};
use std::{iter, mem};
use tailbound_units::exact::TokenBucket;
use tailbound_units::{Position, Rate, WireBytes};

/// What a flow with a limit did since it was last asked: its demand, as far as it
/// shows. See [`super::Pacer::destinations_used`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowUse {
    /// The guest and its destination.
    pub flow: FlowKey,
    /// Its limit now; 0 where it is closed.
    pub rate: Rate,
    /// Bytes on the wire of the frames that were taken in.
    pub taken: WireBytes,
    /// Whether frames waited for the limit or met backpressure: the flow would send
    /// more than it does.
    pub backlogged: bool,
}

/// A change of a limit's rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateChange {
    /// When it is.
    pub(super) from: Position,
    /// No frame is to be released earlier.
    pub(super) floor: Position,
    /// What is released within this stands.
    pub(super) horizon: WireBytes,
    /// No frame may be released later.
    pub(super) until: Position,
}

/// A limit of one flow.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) bucket: TokenBucket<Position>,
    /// When the last frame that waited for it was released.
    pub(super) last_release: Position,
    /// Until when a frame waits here or was to come again later.
    backlogged: Position,
    /// Bytes that were taken in since its use was asked for.
    taken: WireBytes,
    /// Where it is closed: since when the bucket does not fill.
    pub(super) closed: Option<Position>,
    /// Until when releases are frozen, whatever its rate becomes.
    pub(super) frozen_until: Position,
    /// How those that wait behind that are to be rescaled.
    pub(super) pending_rescale: Option<Rescale>,
    key: FlowKey,
    /// Its place among those in use; `NIL` for none.
    place: u32,
    /// The next in its chain, or the next unused one.
    next: u32,
    /// The next of its guest.
    sibling: u32,
}

impl Limit {
    /// Bits a second now.
    pub(super) const fn rate(&self) -> Rate {
        if self.closed.is_some() {
            Rate(0)
        } else {
            self.bucket.rate()
        }
    }

    /// Counts a frame that is taken in. Returns false where the limit is to be noted as
    /// used.
    #[inline]
    pub(super) fn took(&mut self, wire: WireBytes) -> bool {
        self.taken += wire;
        self.place != NIL
    }

    /// Remembers that a frame waits here, or could come again, until `until`.
    pub(super) fn waits(&mut self, until: Position) {
        self.backlogged = self.backlogged.max(until);
    }

    /// Lets the bucket fill no longer, once what waits has left; from `now` on at the
    /// earliest.
    pub(super) fn close(&mut self, now: Position) {
        self.closed.get_or_insert(now.max(self.last_release));
    }

    /// Lets the bucket fill again from `now` on.
    pub(super) fn open(&mut self, now: Position) {
        self.stay_closed(now);
        self.closed = None;
    }

    /// Keeps what the bucket of a closed limit holds until `now`. Returns false where
    /// frames that were taken before it was closed are still to be released.
    pub(super) fn stay_closed(&mut self, now: Position) -> bool {
        let Some(since) = &mut self.closed else {
            return true;
        };
        if *since > now {
            return false;
        }
        self.bucket.pause(*since, now);
        *since = now;
        true
    }

    /// Takes another bucket's rate and burst over and is open, at the moment of the
    /// change, or when those that are frozen have left. Returns true where frames are
    /// to be rescaled: [`super::Pacer::rescale_pending`]. None are where the last is
    /// released within the horizon.
    ///
    /// # Errors
    /// When the last of them would be released, where that is too late; then
    /// nothing has changed.
    pub(super) fn reconfigure(
        &mut self,
        fresh: &TokenBucket<Position>,
        change: RateChange,
    ) -> Result<bool, TooLate> {
        let RateChange {
            from,
            floor,
            horizon,
            until,
        } = change;
        let moves = self.last_release > from + horizon;
        let now = from;
        let from = now.max(if moves {
            self.frozen_until
        } else {
            self.last_release
        });
        if moves {
            let rescale = Rescale {
                from,
                floor,
                old: self.bucket.rate(),
                new: fresh.rate(),
            };
            let last = rescale.at(self.last_release);
            if last > until {
                return Err(TooLate(last));
            }
            if self.closed.is_none() {
                self.backlogged = rescale.at(self.backlogged);
            }
            self.last_release = last;
            self.waits(last);
            debug_assert!(self.pending_rescale.is_none(), "one rescale at a time");
            self.pending_rescale = Some(rescale);
        }
        self.open(now);
        self.frozen_until = from;
        self.bucket.reconfigure(fresh, from, from);
        Ok(moves)
    }

    /// Translates its positions to another wire.
    pub(super) fn translate(&mut self, translated: impl Fn(Position) -> Position) {
        self.last_release = translated(self.last_release);
        self.frozen_until = translated(self.frozen_until);
        self.closed = self.closed.map(&translated);
        self.backlogged = translated(self.backlogged);
    }
}

/// No limit.
const NIL: u32 = u32::MAX;

/// All limits by flow, in chains by hash. The hash has secret keys: a guest cannot
/// choose destinations that collide.
#[derive(Debug)]
pub(super) struct Limits {
    hash: MultilinearHash,
    /// The first of each chain: a power of two of them, at least twice as many as
    /// limits.
    chains: Vec<u32>,
    /// The first of each guest's.
    guests: Vec<u32>,
    all: Vec<Limit>,
    /// The first of those in `all` that are unused, and how many are not.
    free: u32,
    len: usize,
    /// Those that were used since that was asked for.
    used: Vec<u32>,
}

impl Limits {
    pub(super) fn new(keys: HashKeys) -> Self {
        Self {
            hash: MultilinearHash::new(keys),
            chains: vec![NIL],
            guests: Vec::new(),
            all: Vec::new(),
            free: NIL,
            len: 0,
            used: Vec::new(),
        }
    }

    #[inline]
    fn chain(&self, key: FlowKey) -> usize {
        self.hash.of(key) as usize & (self.chains.len() - 1)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: FlowKey) -> Option<&mut Limit> {
        self.find(key).map(|(_, limit)| limit)
    }

    /// A flow's limit, and its number for [`Limits::note`].
    #[inline(always)]
    pub(super) fn find(&mut self, key: FlowKey) -> Option<(u32, &mut Limit)> {
        let index = self.index_of(key)?;
        Some((index, &mut self.all[index as usize]))
    }

    /// Whether frames that wait for a flow's limit are to be rescaled.
    pub(super) fn is_moving(&mut self, key: FlowKey) -> bool {
        self.get_mut(key)
            .is_some_and(|limit| limit.pending_rescale.is_some())
    }

    /// Whether a flow has a limit.
    pub(super) fn has(&self, key: FlowKey) -> bool {
        self.index_of(key).is_some()
    }

    #[inline(always)]
    fn index_of(&self, key: FlowKey) -> Option<u32> {
        let mut index = self.chains[self.chain(key)];
        loop {
            let limit = self.all.get(index as usize)?;
            if limit.key == key {
                return Some(index);
            }
            index = limit.next;
        }
    }

    /// Puts a limit among those that were used, where it is not.
    #[cold]
    pub(super) fn note(&mut self, index: u32) {
        let place = &mut self.all[index as usize].place;
        if *place == NIL {
            *place = self.used.len() as u32;
            self.used.push(index);
        }
    }

    /// Hands over what was used since the last call. What still waits at `position`
    /// counts as used from now on too.
    pub(super) fn drain_used(&mut self, position: Position, mut sink: impl FnMut(FlowUse)) {
        let Self { used, all, .. } = self;
        let mut kept = 0;
        used.retain(|&index| {
            let limit = &mut all[index as usize];
            sink(FlowUse {
                flow: limit.key,
                rate: limit.rate(),
                taken: limit.taken,
                backlogged: limit.backlogged > Position::ZERO,
            });
            limit.taken = WireBytes::ZERO;
            let waits = limit.backlogged > position;
            if waits {
                limit.place = kept;
                kept += 1;
            } else {
                limit.backlogged = Position::ZERO;
                limit.place = NIL;
            }
            waits
        });
    }

    /// Adds the limit of a flow that has none.
    pub(super) fn insert(
        &mut self,
        key: FlowKey,
        bucket: TokenBucket<Position>,
        last: Position,
        closed: Option<Position>,
    ) {
        let guest = key.source.slot();
        if self.guests.len() <= guest {
            self.guests.resize(guest + 1, NIL);
        }
        let limit = Limit {
            bucket,
            last_release: last,
            backlogged: Position::ZERO,
            taken: WireBytes::ZERO,
            closed,
            frozen_until: last,
            pending_rescale: None,
            key,
            place: NIL,
            next: NIL,
            sibling: self.guests[guest],
        };
        let mut index = self.free;
        if let Some(unused) = self.all.get_mut(index as usize) {
            self.free = unused.next;
            *unused = limit;
        } else {
            index = self.all.len() as u32;
            self.all.push(limit);
        }
        self.guests[guest] = index;
        self.len += 1;
        if 2 * self.len > self.chains.len() {
            self.double_chains();
        }
        self.link(index);
    }

    fn double_chains(&mut self) {
        let double = vec![NIL; 2 * self.chains.len()];
        for mut index in mem::replace(&mut self.chains, double) {
            while let Some(limit) = self.all.get(index as usize) {
                let next = limit.next;
                self.link(index);
                index = next;
            }
        }
    }

    /// Puts a limit in front of its chain.
    fn link(&mut self, index: u32) {
        let chain = self.chain(self.all[index as usize].key);
        self.all[index as usize].next = mem::replace(&mut self.chains[chain], index);
    }

    /// Forgets a flow's limit, and returns when the last of the frames that waited
    /// for it is released.
    pub(super) fn remove(&mut self, key: FlowKey) -> Option<Position> {
        let (index, limit) = self.find(key)?;
        let next = limit.sibling;
        let mut link = &mut self.guests[key.source.slot()];
        while *link != index {
            let before = *link as usize;
            link = &mut self.all[before].sibling;
        }
        *link = next;
        Some(self.free(index))
    }

    /// Forgets all of a guest, and returns when the last of its frames that waited
    /// for any of them is released.
    pub(super) fn remove_all(&mut self, guest: GuestId) -> Position {
        let Some(first) = self.guests.get_mut(guest.slot()) else {
            return Position::ZERO;
        };
        let mut index = mem::replace(first, NIL);
        let mut last = Position::ZERO;
        while let Some(limit) = self.all.get(index as usize) {
            let next = limit.sibling;
            last = last.max(self.free(index));
            index = next;
        }
        last
    }

    /// Takes a limit, that no guest has any more, out of its chain and of those in
    /// use.
    fn free(&mut self, index: u32) -> Position {
        let Limit {
            key,
            place,
            next,
            last_release,
            ..
        } = self.all[index as usize];
        let chain = self.chain(key);
        let mut link = &mut self.chains[chain];
        while *link != index {
            let before = *link as usize;
            link = &mut self.all[before].next;
        }
        *link = next;
        if place != NIL {
            self.used.swap_remove(place as usize);
            if let Some(&last) = self.used.get(place as usize) {
                self.all[last as usize].place = place;
            }
        }
        self.all[index as usize].next = mem::replace(&mut self.free, index);
        self.len -= 1;
        last_release
    }

    /// Every limit.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Limit> {
        let at = |index: u32| self.all.get(index as usize);
        let of_guest =
            move |first: &u32| iter::successors(at(*first), move |limit| at(limit.sibling));
        self.guests.iter().flat_map(of_guest)
    }

    /// Hands every limit to `change`.
    pub(super) fn each_mut(&mut self, mut change: impl FnMut(&mut Limit)) {
        for &first in &self.guests {
            let mut index = first;
            while let Some(limit) = self.all.get_mut(index as usize) {
                change(limit);
                index = limit.sibling;
            }
        }
    }
}

#[cfg(test)]
mod tests;
