//! Arrival of frames: choice of their lines, and limits of memory.

use super::chain::Chain;
use super::guest::{self, Guest, RECENT};
use super::index::{FrameIndex, GuestIndex, LineIndex};
use super::line::Stage;
use super::lines::Lines;
use super::store::Arrival;
use super::{Pacer, void};
use crate::{FlowKey, Frame};
use tailbound_units::{Bytes, Nanos};

/// Guarantee that applies to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameGuarantee {
    /// None: its guest has no guarantee, or it comes from outside.
    BestEffort,
    /// {B, S} only: its destination has no limit.
    Unlimited,
    /// Its destination has a limit, which may be closed.
    Limited,
}

impl<F: Frame> Pacer<F> {
    /// Takes in a frame at `now`: a burst of one ([`Pacer::enqueue_burst`]).
    #[inline(always)]
    pub fn enqueue(&mut self, now: Nanos, frame: F) {
        self.enqueue_burst(now, Some(frame), |_, _| {});
    }

    /// Takes in frames at `now`, in order. A large packet is segmented first, so that the memory of
    /// its segments is counted. Frames of a guest without a guarantee, and from outside, are best
    /// effort. `prepare` receives each frame with its guarantee before the frame joins a line, and
    /// may change the frame, except for its guest and its destination.
    ///
    /// All frames are accepted, and others are dropped for them if their line or their guest
    /// exceeds its memory: check [`Pacer::is_read`] before the next burst. Consecutive frames of
    /// one guest share the look-up of the guest, and those to one destination that of their line.
    #[inline(always)]
    pub fn enqueue_burst(
        &mut self,
        now: Nanos,
        frames: impl IntoIterator<Item = F>,
        mut prepare: impl FnMut(&mut F, FrameGuarantee),
    ) {
        let arrival = Arrival {
            enqueued: now,
            // A frame cannot overtake those on the wire. If it were scheduled from `position` on,
            // the batch would close the gaps behind it.
            at: self.advance(now).max(self.chain.wire),
        };
        let mut frames = frames.into_iter();
        let mut next = frames.next();
        while let Some(frame) = next {
            next = self.enqueue_run(arrival, frame, &mut frames, &mut prepare);
        }
    }

    /// Takes in a frame, and those that follow from its guest, up to one that needs more than to
    /// join a line. Returns the first frame that is not taken in.
    #[inline(always)]
    fn enqueue_run(
        &mut self,
        arrival: Arrival,
        mut frame: F,
        frames: &mut impl Iterator<Item = F>,
        prepare: &mut impl FnMut(&mut F, FrameGuarantee),
    ) -> Option<F> {
        let longest = self.config.longest_frame();
        let Self {
            guests,
            lines,
            chain,
            ..
        } = self;
        let source = frame.source();
        let Some(guest) = guest::guaranteed(guests, source) else {
            prepare(&mut frame, FrameGuarantee::BestEffort);
            self.enqueue_best_effort(arrival.enqueued, frame);
            return frames.next();
        };
        let mut to = destination(guest, &frame);
        loop {
            // As `line_of`, with a single access to the line.
            let (index, line) = match to {
                None => (guest.unlimited, lines.at_mut(guest.unlimited)),
                Some(destination) => {
                    let (recent, id) = (remembered(guest, destination), guest.id);
                    if let Some(line) = lines.of_mut(recent, id, destination) {
                        (recent, line)
                    } else {
                        let index = find_line(guest, lines, destination);
                        (index, lines.at_mut(index))
                    }
                }
            };
            let frame_guarantee = if index == guest.unlimited {
                FrameGuarantee::Unlimited
            } else {
                FrameGuarantee::Limited
            };
            loop {
                prepare(&mut frame, frame_guarantee);
                if guest.elastic.flows.is_some() {
                    self.enqueue_beside_elastic(index, frame, arrival);
                    return frames.next();
                }
                let size = Chain::size(&frame);
                let flow = frame.connection();
                let is_full = Bytes(line.memory.0 + size.1.0) > guest.half_share;
                if size.0 > longest || frame.segments() > 1 || is_full {
                    self.take(index, frame, arrival);
                    return frames.next();
                }
                let place = chain.store.place(frame, size, arrival);
                let size = (size.0, size.1, flow);
                chain.append((guest, line), index, place, size, arrival.at);
                if guest.is_crowded() {
                    self.handle_crowd(index);
                    return frames.next();
                }
                frame = frames.next()?;
                if frame.source() != source {
                    return Some(frame);
                }
                let next = destination(guest, &frame);
                if next != to {
                    to = next;
                    break;
                }
            }
        }
    }

    /// Checks the bounds of a guest that is crowded after a frame joined a line.
    #[inline(never)]
    pub(super) fn handle_crowd(&mut self, index: LineIndex) {
        let Self {
            guests,
            lines,
            chain,
            ..
        } = self;
        let line = lines.at(index);
        let number = line.guest;
        let guest = guest::of_slot(guests, number);
        chain.watch((guest, line), index);
        if guest.memory > guest.bound {
            self.make_room(number);
        }
    }

    /// Adds a frame, or all its segments, to a line. Frames beyond half of the line's share are
    /// marked.
    #[inline(never)]
    pub(super) fn take(&mut self, index: LineIndex, frame: F, arrival: Arrival) {
        self.trim(index);
        let longest = self.config.longest_frame();
        let Self {
            guests,
            lines,
            chain,
            ..
        } = self;
        let line = lines.at_mut(index);
        let guest = guest::of_slot(guests, line.guest);
        frame.segment(|frame| {
            let size = Chain::size(&frame);
            if size.0 > longest {
                return chain.count_oversized(guest);
            }
            let flow = frame.connection();
            let place = chain.store.place(frame, size, arrival);
            if line.memory > guest.half_share {
                chain.mark(guest, place);
            }
            let size = (size.0, size.1, flow);
            chain.append((&mut *guest, &mut *line), index, place, size, arrival.at);
        });
        if line.memory > guest.half_share || guest.is_crowded() {
            self.handle_crowd(index);
        }
    }

    #[inline(never)]
    pub(super) fn enqueue_best_effort(&mut self, now: Nanos, frame: F) {
        let longest = self.config.longest_frame();
        let Self {
            best_effort, chain, ..
        } = self;
        let stats = &mut chain.stats;
        let mut push = |frame: F| {
            if void::on_the_wire(frame.len()) > longest {
                stats.drops.oversized += 1;
            } else {
                best_effort.push(now, frame, &mut stats.queue);
            }
        };
        if frame.segments() > 1 {
            frame.segment(push);
        } else {
            push(frame);
        }
    }

    /// Drops frames from the front of a line beyond its share.
    pub(super) fn trim(&mut self, line: LineIndex) {
        let of = self.lines.at(line);
        let (number, memory) = (of.guest, of.memory);
        let share = guest::of_slot(&mut self.guests, number).share;
        if memory > share {
            self.trim_to(number, line, share);
        }
    }

    /// Drops frames behind the first of a line, which may be released already, until the line holds
    /// at most `most` or only that frame.
    #[inline(never)]
    fn trim_to(&mut self, guest: GuestIndex, line: LineIndex, most: Bytes) {
        while self.lines.at(line).memory > most {
            let Some(index) = self.lines.at_mut(line).pop_second(&mut self.chain.store) else {
                return;
            };
            self.drop_waiting(guest, line, index);
        }
    }

    /// Drops a frame that was removed from a line.
    fn drop_waiting(&mut self, guest: GuestIndex, line: LineIndex, index: FrameIndex) {
        let (wire, memory) = {
            let waiting = self.chain.store.at(index);
            (waiting.wire, waiting.memory)
        };
        let guest = guest::of_slot(&mut self.guests, guest);
        guest.memory.0 -= memory.0;
        guest.stats.dropped += 1;
        if self.lines.at(line).stage == Stage::Released {
            guest.released -= wire;
        }
        self.chain.stats.drops.over_share += 1;
        drop(self.chain.store.take(index));
    }

    /// Frees an eighth of a guest's memory limit: elastic frames first, then from the front of
    /// lines above half of a fair share; if all lines are short, from those that wait for a limit.
    /// It checks each of the guest's lines, and frees a hundred frames or more.
    #[cold]
    pub(super) fn make_room(&mut self, guest: GuestIndex) {
        let of = guest::of_slot(&mut self.guests, guest);
        let enough = Bytes(of.bound.0 / 8 * 7);
        self.make_room_of_elastic(guest, enough);
        let of = guest::of_slot(&mut self.guests, guest);
        let fair = Bytes(of.memory.0 / u64::from(of.lines.max(1)) / 2);
        let (unlimited, first) = (of.unlimited, of.destinations.first);
        for whole in [false, true] {
            let mut line = unlimited;
            let mut next = first;
            while line.is_some() {
                if guest::of_slot(&mut self.guests, guest).memory <= enough {
                    return;
                }
                if whole {
                    self.evict(guest, line);
                } else {
                    self.trim_to(guest, line, fair);
                }
                line = next;
                next = self.lines.sibling(line);
            }
        }
    }

    /// Drops all frames that wait for a limit.
    fn evict(&mut self, guest: GuestIndex, line: LineIndex) {
        let at = self.chain.position.max(self.chain.wire);
        let of = self.lines.at_mut(line);
        if of.stage == Stage::InTree {
            let guest = guest::of_slot(&mut self.guests, guest);
            self.chain.retreat(guest, of, line, at);
        }
        if !self.chain.withdraw(self.lines.at(line), line) {
            return;
        }
        let mut index = self.lines.at_mut(line).take_all(&mut self.chain.store);
        while index.is_some() {
            let next = self.chain.store.at(index).next;
            self.drop_waiting(guest, line, index);
            index = next;
        }
        self.lines.at_mut(line).stage = Stage::Empty;
        guest::of_slot(&mut self.guests, guest).lines -= 1;
    }
}

/// Returns the line that a frame of a guaranteed guest joins.
#[inline(always)]
pub(super) fn line_of<F: Frame>(guest: &mut Guest, lines: &Lines, frame: &F) -> LineIndex {
    let Some(destination) = destination(guest, frame) else {
        return guest.unlimited;
    };
    let recent = remembered(guest, destination);
    if lines.is_of(recent, guest.id, destination) {
        return recent;
    }
    find_line(guest, lines, destination)
}

/// Returns the destination of a guest's frame; `None` if the guest has no limits.
#[inline(always)]
fn destination<F: Frame>(guest: &Guest, frame: &F) -> Option<u128> {
    if guest.destinations.count == 0 {
        return None;
    }
    Some(frame.flow()?.destination)
}

/// Returns the remembered line of a destination, which may be another's.
#[inline(always)]
fn remembered(guest: &Guest, destination: u128) -> LineIndex {
    guest.destinations.recent[destination as usize % RECENT]
}

/// Finds the line of a destination that is not among the recent ones.
#[inline(never)]
fn find_line(guest: &mut Guest, lines: &Lines, destination: u128) -> LineIndex {
    let source = guest.id;
    let flow = FlowKey {
        source,
        destination,
    };
    let Some(line) = lines.find(flow) else {
        return guest.unlimited;
    };
    guest.destinations.recent[destination as usize % RECENT] = line;
    line
}
