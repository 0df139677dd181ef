//! Limits of memory: of a line, of a guest, and of the frames that arrive.

use super::chain::Chain;
use super::core::Core;
use super::flows::Elastic;
use super::index::{FrameIndex, GuestIndex, LineIndex};
use super::line::Stage;
use super::store::Arrival;
use crate::Frame;
use tailbound_units::Bytes;

/// The room for frames of guaranteed guests.
pub(super) struct Room<'p, F> {
    pub(super) core: &'p mut Core<F>,
    pub(super) elastic: &'p mut Elastic,
}

impl<F: Frame> Room<'_, F> {
    /// Checks the bounds of a guest that is crowded after a frame joined a line.
    #[inline(never)]
    pub(super) fn handle_crowd(&mut self, index: LineIndex) {
        let Core {
            guests,
            lines,
            chain,
            ..
        } = &mut *self.core;
        let line = lines.at(index);
        let number = line.guest;
        let guest = guests.at_mut(number);
        chain.watch((guest, line), index);
        if guest.backlog.is_above_bound() {
            self.make_room(number);
        }
    }

    /// Adds a frame, or all its segments, to a line. Frames beyond half of the line's share are
    /// marked.
    #[inline(never)]
    pub(super) fn take(&mut self, index: LineIndex, frame: F, arrival: Arrival) {
        self.trim(index);
        let longest = self.core.config.longest_frame();
        let Core {
            guests,
            lines,
            chain,
            ..
        } = &mut *self.core;
        let line = lines.at_mut(index);
        let guest = guests.at_mut(line.guest);
        frame.segment(|frame| {
            let size = Chain::size(&frame);
            if size.0 > longest {
                return chain.count_oversized(guest);
            }
            let flow = frame.connection();
            let place = chain.store.place(frame, size, arrival);
            if line.memory > guest.backlog.half_share() {
                chain.mark(guest, place);
            }
            let size = (size.0, size.1, flow);
            chain.append((&mut *guest, &mut *line), index, place, size, arrival.at);
        });
        if line.memory > guest.backlog.half_share() || guest.backlog.is_crowded() {
            self.handle_crowd(index);
        }
    }

    /// Drops frames from the front of a line beyond its share.
    pub(super) fn trim(&mut self, line: LineIndex) {
        let of = self.core.lines.at(line);
        let (number, memory) = (of.guest, of.memory);
        let share = self.core.guests.at_mut(number).backlog.share();
        if memory > share {
            self.trim_to(number, line, share);
        }
    }

    /// Drops frames behind the first of a line, which may be released already, until the line holds
    /// at most `most` or only that frame.
    #[inline(never)]
    fn trim_to(&mut self, guest: GuestIndex, line: LineIndex, most: Bytes) {
        while self.core.lines.at(line).memory > most {
            let Some(index) = self
                .core
                .lines
                .at_mut(line)
                .pop_second(&mut self.core.chain.store)
            else {
                return;
            };
            self.drop_waiting(guest, line, index);
        }
    }

    /// Drops a frame that was removed from a line.
    fn drop_waiting(&mut self, guest: GuestIndex, line: LineIndex, index: FrameIndex) {
        let (wire, memory) = {
            let waiting = self.core.chain.store.at(index);
            (waiting.wire, waiting.memory)
        };
        let guest = self.core.guests.at_mut(guest);
        guest.backlog.memory.0 -= memory.0;
        guest.stats.dropped += 1;
        if self.core.lines.at(line).stage == Stage::Released {
            guest.backlog.released -= wire;
        }
        self.core.chain.stats.drops.over_share += 1;
        drop(self.core.chain.store.take(index));
    }

    /// Drops frames from the front of a guest's longest elastic flows until all of them are within
    /// the share of one line, and the guest is within its bound.
    pub(super) fn trim_elastic(&mut self, number: GuestIndex) {
        let guest = self.core.guests.at_mut(number);
        let share = guest.backlog.share();
        let chain = &mut self.core.chain;
        (self.elastic).drop_frames(guest, chain, |_, elastic| elastic > share);
        if guest.backlog.is_above_bound() {
            self.make_room(number);
        }
    }

    /// Frees an eighth of a guest's memory limit: elastic frames first, then from the front of
    /// lines above half of a fair share; if all lines are short, from those that wait for a limit.
    /// It checks each of the guest's lines, and frees a hundred frames or more.
    #[cold]
    pub(super) fn make_room(&mut self, guest: GuestIndex) {
        let of = self.core.guests.at_mut(guest);
        let enough = Bytes(of.backlog.bound().0 / 8 * 7);
        let chain = &mut self.core.chain;
        self.elastic
            .drop_frames(of, chain, |guest, _| guest.backlog.memory > enough);
        let fair = Bytes(of.backlog.memory.0 / u64::from(of.lines.busy.max(1)) / 2);
        let (unlimited, first) = (of.lines.unlimited, of.lines.first);
        for whole in [false, true] {
            let mut line = unlimited;
            let mut next = first;
            while line.is_some() {
                if self.core.guests.at_mut(guest).backlog.memory <= enough {
                    return;
                }
                if whole {
                    self.evict(guest, line);
                } else {
                    self.trim_to(guest, line, fair);
                }
                line = next;
                next = self.core.lines.sibling(line);
            }
        }
    }

    /// Drops all frames that wait for a limit.
    fn evict(&mut self, guest: GuestIndex, line: LineIndex) {
        let at = self.core.chain.wire.start();
        let of = self.core.lines.at_mut(line);
        if of.stage == Stage::InTree {
            let guest = self.core.guests.at_mut(guest);
            self.core.chain.retreat(guest, of, line, at);
        }
        if !self.core.chain.withdraw(self.core.lines.at(line), line) {
            return;
        }
        let mut index = self
            .core
            .lines
            .at_mut(line)
            .take_all(&mut self.core.chain.store);
        while index.is_some() {
            let next = self.core.chain.store.at(index).next;
            self.drop_waiting(guest, line, index);
            index = next;
        }
        self.core.lines.at_mut(line).stage = Stage::Empty;
        self.core.guests.at_mut(guest).lines.busy -= 1;
    }
}
