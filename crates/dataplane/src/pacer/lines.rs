//! Table of all lines: by number, and those that have a limit by flow.

use super::guest::Guest;
use super::index::{GuestIndex, LineIndex, Table, UsedIndex};
use super::limit::{FlowUse, Limit, UsedLines};
use super::line::{Line, Stage};
use super::rate_change::RateChange;
use crate::hash::MultilinearHash;
use crate::{FlowKey, Frame, GuestId, HashKeys};
use std::mem;
use tailbound_units::{Position, WireBytes};

/// All lines. Limits are in chains by the hash of their flows under secret keys: a guest cannot
/// choose destinations that collide.
#[derive(Debug)]
pub(super) struct Lines {
    hash: MultilinearHash,
    /// The first line of each chain: the number of chains is a power of two, and at least twice
    /// that of limits.
    chains: Vec<LineIndex>,
    pub(super) all: Table<LineIndex, Line>,
    /// Numbers of unused lines.
    free: Vec<LineIndex>,
    /// Number of lines that have a limit.
    limited: usize,
    /// Slots of guests whose trees must be built anew.
    stale: Vec<GuestIndex>,
    /// Slots of guests with used limits that share buckets; a buffer.
    sharing: Vec<GuestIndex>,
    /// Number of lines that count at the present rate, after a change of the wire's rate.
    translated: usize,
}

impl Lines {
    pub(super) fn new(keys: HashKeys) -> Self {
        Self {
            hash: MultilinearHash::new(keys),
            chains: vec![LineIndex::NONE],
            all: Table::new(),
            free: Vec::new(),
            limited: 0,
            stale: Vec::new(),
            sharing: Vec::new(),
            translated: usize::MAX,
        }
    }

    /// Records that a guest's tree must be built anew.
    pub(super) fn note_stale(&mut self, guest: GuestIndex) {
        self.stale.push(guest);
    }

    /// Checks for guests whose trees must be built anew.
    #[inline(always)]
    pub(super) const fn has_stale(&self) -> bool {
        !self.stale.is_empty()
    }

    /// Removes and returns these guests.
    pub(super) fn take_stale(&mut self) -> Vec<GuestIndex> {
        mem::take(&mut self.stale)
    }

    /// Returns the guests with used limits that share buckets, as of the last
    /// [`Self::drain_used`], each once.
    pub(super) fn take_sharing(&mut self) -> Vec<GuestIndex> {
        let mut sharing = mem::take(&mut self.sharing);
        sharing.sort_unstable();
        sharing.dedup();
        sharing
    }

    /// Returns the buffer of [`Self::take_sharing`].
    pub(super) fn return_sharing(&mut self, mut buffer: Vec<GuestIndex>) {
        buffer.clear();
        self.sharing = buffer;
    }

    /// Records that all lines count at a former rate of the wire.
    pub(super) const fn begin_translation(&mut self) {
        self.translated = 0;
    }

    /// Checks whether all lines count at the present rate of the wire.
    pub(super) const fn is_translated(&self) -> bool {
        self.translated >= self.all.len()
    }

    /// Returns the numbers of the next lines that must be converted to the present rate, at most
    /// `most` of them. They count as converted.
    pub(super) fn next_to_translate(&mut self, most: usize) -> std::ops::Range<usize> {
        let all = self.all.len();
        let first = self.translated.min(all);
        let end = all.min(first.saturating_add(most));
        // Lines that are added from now on are of this wire.
        self.translated = if end == all { usize::MAX } else { end };
        first..end
    }

    /// Number of used and unused lines.
    pub(super) const fn count(&self) -> usize {
        self.all.len()
    }

    #[inline(always)]
    pub(super) fn at(&self, index: LineIndex) -> &Line {
        &self.all[index]
    }

    #[inline(always)]
    pub(super) fn at_mut(&mut self, index: LineIndex) -> &mut Line {
        &mut self.all[index]
    }

    /// The limit of a line; `None` without one.
    #[inline(always)]
    pub(super) fn limit(&self, index: LineIndex) -> Option<&Limit> {
        self.all.get(index)?.limit.as_ref()
    }

    /// The next line with a limit of the same guest; `NONE` behind the last.
    pub(super) fn sibling(&self, index: LineIndex) -> LineIndex {
        self.limit(index)
            .map_or(LineIndex::NONE, |limit| limit.sibling)
    }

    /// Returns two different lines for changes.
    pub(super) fn two_mut(
        &mut self,
        one: LineIndex,
        other: LineIndex,
    ) -> Option<(&mut Line, &mut Line)> {
        self.all.two_mut(one, other)
    }

    /// Adds a line, and returns its number.
    pub(super) fn insert(&mut self, line: Line) -> LineIndex {
        let key = line.limit.as_ref().map(|limit| limit.key);
        let index = if let Some(index) = self.free.pop() {
            self.all[index] = line;
            index
        } else {
            self.all.push(line)
        };
        if let Some(key) = key {
            self.limited += 1;
            if 2 * self.limited > self.chains.len() {
                self.double_chains();
            }
            self.link(index, key);
        }
        index
    }

    #[inline]
    fn chain(&self, key: FlowKey) -> usize {
        self.hash.of(key) as usize & (self.chains.len() - 1)
    }

    /// Checks whether a line is that of a guest's limited destination. Any number is valid.
    #[inline(always)]
    pub(super) fn is_of(&self, index: LineIndex, source: GuestId, destination: u128) -> bool {
        let limit = self.limit(index);
        limit.is_some_and(|limit| limit.is_of(source, destination))
    }

    /// Returns the line with this number, if it is that of a guest's limited destination.
    #[inline(always)]
    pub(super) fn of_mut(
        &mut self,
        index: LineIndex,
        source: GuestId,
        destination: u128,
    ) -> Option<&mut Line> {
        let line = self.all.get_mut(index)?;
        let is_its = line.limit.as_ref()?.is_of(source, destination);
        is_its.then_some(line)
    }

    /// Finds the line of a flow with a limit.
    #[inline(always)]
    pub(super) fn find(&self, key: FlowKey) -> Option<LineIndex> {
        let mut index = self.chains[self.chain(key)];
        loop {
            let limit = self.all.get(index)?.limit.as_ref()?;
            if limit.key == key {
                return Some(index);
            }
            index = limit.chain;
        }
    }

    /// Returns the line that a frame of a guaranteed guest joins.
    #[inline(always)]
    pub(super) fn of_frame<F: Frame>(&self, guest: &mut Guest, frame: &F) -> LineIndex {
        let Some(destination) = guest.destination(frame) else {
            return guest.lines.unlimited;
        };
        let recent = guest.lines.remembered(destination);
        if self.is_of(recent, guest.id, destination) {
            return recent;
        }
        self.find_again(guest, destination)
    }

    /// Finds the line of a destination that is not among a guest's recent ones.
    #[inline(never)]
    pub(super) fn find_again(&self, guest: &mut Guest, destination: u128) -> LineIndex {
        let source = guest.id;
        let flow = FlowKey {
            source,
            destination,
        };
        let Some(line) = self.find(flow) else {
            return guest.lines.unlimited;
        };
        guest.lines.remember(destination, line);
        line
    }

    fn double_chains(&mut self) {
        let double = vec![LineIndex::NONE; 2 * self.chains.len()];
        for mut index in mem::replace(&mut self.chains, double) {
            while let Some(limit) = self.limit(index) {
                let (key, next) = (limit.key, limit.chain);
                self.link(index, key);
                index = next;
            }
        }
    }

    pub(super) fn limit_mut(&mut self, index: LineIndex) -> Option<&mut Limit> {
        self.all.get_mut(index)?.limit.as_mut()
    }

    /// Puts a limit in front of its chain.
    fn link(&mut self, index: LineIndex, key: FlowKey) {
        let chain = self.chain(key);
        let next = mem::replace(&mut self.chains[chain], index);
        if let Some(limit) = self.limit_mut(index) {
            limit.chain = next;
        }
    }

    /// Removes an empty line, also from the used ones.
    pub(super) fn remove(&mut self, index: LineIndex, used: &mut UsedLines) {
        debug_assert!(self.at(index).is_empty(), "frames would be lost");
        self.free.push(index);
        // A loop over all lines must not find a state in it.
        self.at_mut(index).stage = Stage::Empty;
        let Some(limit) = self.at_mut(index).limit.take() else {
            return;
        };
        self.limited -= 1;
        let chain = self.chain(limit.key);
        if self.chains[chain] == index {
            self.chains[chain] = limit.chain;
        } else {
            let mut before = self.chains[chain];
            while let Some(other) = self.limit_mut(before) {
                if other.chain == index {
                    other.chain = limit.chain;
                    break;
                }
                before = other.chain;
            }
        }
        if limit.used.is_some() {
            used.entries_mut().swap_remove(limit.used.number());
            if let Some(&moved) = used.get(limit.used)
                && let Some(moved) = self.limit_mut(moved)
            {
                moved.used = limit.used;
            }
        }
    }

    /// Passes on the limits that were used since the last call, and resets their use. Limits with
    /// waiting frames, or with a bucket that is not full at `now`, are included in the next call,
    /// too.
    pub(super) fn drain_used(
        &mut self,
        used: &mut UsedLines,
        (now, change): (Position, &RateChange),
        mut sink: impl FnMut(FlowUse),
    ) {
        let (all, sharing) = (&mut self.all, &mut self.sharing);
        let mut kept = 0;
        used.entries_mut().retain(|&index| {
            let line = &mut all[index];
            let waits = matches!(line.stage, Stage::Limited | Stage::Closed | Stage::InTree);
            let Some(limit) = &mut line.limit else {
                return false;
            };
            limit.account.translate(change);
            let lacks = limit.account.lacks(now);
            sink(FlowUse {
                flow: limit.key,
                rate: limit.account.rate(),
                taken: limit.taken,
                lacks,
                backlogged: limit.take_waited(waits),
                queued: if waits { line.wire } else { WireBytes::ZERO },
            });
            if limit.leaf().is_some() && sharing.last() != Some(&line.guest) {
                sharing.push(line.guest);
            }
            let stays = waits || lacks > WireBytes::ZERO;
            limit.taken = WireBytes::ZERO;
            limit.used = if stays {
                UsedIndex::new(kept)
            } else {
                UsedIndex::NONE
            };
            kept += usize::from(stays);
            stays
        });
    }
}

#[cfg(test)]
mod tests;
