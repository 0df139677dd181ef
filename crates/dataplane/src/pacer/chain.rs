//! The chain of buckets: releases of lines and departures of frames.

use super::account::Departing;
use super::guest::Guest;
use super::index::{FrameIndex, LineIndex};
use super::limit::{BeganToWait, Limit, UsedLines};
use super::line::{Line, Stage};
use super::local::Local;
use super::releases::Releases;
use super::round::{Links, of_deficit};
use super::store::Store;
use super::urgent::AllDepartures;
use super::wire::Wire;
use super::{PacerStats, void};
use crate::{Connection, Frame};
use tailbound_units::{Bytes, Nanos, Position, WireBytes};

/// State that all lines and guests share: the wire, the frames, and the lists ordered by time.
///
/// Methods take the guest and the line as arguments, so that each of them is looked up once for a
/// frame.
#[derive(Debug)]
pub(super) struct Chain<F> {
    pub(super) wire: Wire,
    /// All frames of guaranteed guests; lines and guests refer to their places.
    pub(super) store: Store<F>,
    /// Lines that wait for their limit, by their release.
    pub(super) releases: Releases,
    /// Guests, by class and by the departure of their frame that has one.
    pub(super) departures: AllDepartures,
    /// The same for frames to guests of this host.
    pub(super) local: Local<F>,
    /// The order of lines in the rounds of their guests.
    pub(super) links: Links<LineIndex>,
    /// Lines whose limits were used since the last query.
    pub(super) used: UsedLines,
    pub(super) began: BeganToWait,
    pub(super) stats: PacerStats,
}

impl<F: Frame> Chain<F> {
    pub(super) fn new(wire: Wire) -> Self {
        Self {
            wire,
            store: Store::new(),
            releases: Releases::new(),
            departures: AllDepartures::new(),
            local: Local::new(),
            links: Links::new(),
            used: UsedLines::new(),
            began: BeganToWait::default(),
            stats: PacerStats::default(),
        }
    }

    /// Advances virtual time to `now`, but not beyond `catch_up` after the first due frame, and
    /// returns it. Once for each `now`: within it, no further frame becomes due.
    #[inline(always)]
    pub(super) fn advance(&mut self, now: Nanos) -> Position {
        if now > self.wire.now() {
            self.advance_wire(now);
        }
        self.wire.position()
    }

    #[inline(never)]
    fn advance_wire(&mut self, now: Nanos) {
        let due = self.next().min(self.local.next);
        self.wire.advance(now, due);
    }

    /// The first departure or release; the end of time without any.
    #[inline(always)]
    pub(super) fn next(&self) -> Position {
        self.departures.first().min(self.releases.first())
    }

    /// Length of a frame on the wire, and its memory.
    #[inline(always)]
    pub(super) fn size(frame: &F) -> (WireBytes, Bytes) {
        let memory = Bytes(frame.truesize().0 + Store::<F>::PLACE.0);
        (void::on_the_wire(frame.len()), memory)
    }

    /// Adds a frame that is in its place, of this size and flow, to a line.
    #[inline(always)]
    pub(super) fn append(
        &mut self,
        (guest, line): (&mut Guest, &mut Line),
        index: LineIndex,
        place: FrameIndex,
        size: (WireBytes, Bytes, Connection),
        at: Position,
    ) {
        let (wire, memory, flow) = size;
        line.push(&mut self.store, place, (wire, memory), flow);
        guest.backlog.memory.0 += memory.0;
        guest.stats.taken.packets += 1;
        if line.stage == Stage::Released {
            guest.backlog.released += wire;
        } else if line.stage == Stage::Empty {
            guest.lines.busy += 1;
            if self.check_limit(line, index, at, wire) {
                self.join(guest, line, index);
            } else {
                guest.stats.held_back += 1;
            }
        }
        // Separate statements, so that the compiler does not combine them into a vector.
        guest.stats.taken.bytes += wire;
    }

    /// Stops reading the ring of a crowded guest if {B, S} delays the frame that has just joined
    /// this line.
    pub(super) fn watch(&mut self, (guest, line): (&mut Guest, &Line), index: LineIndex) {
        if line.stage == Stage::Released && guest.backlog.is_read() {
            guest.leave_unread(index);
            self.stats.unread += 1;
        }
    }

    /// Marks a frame whose line holds too much memory.
    #[cold]
    pub(super) fn mark(&mut self, guest: &mut Guest, place: FrameIndex) {
        let frame = self.store.at_mut(place).frame.as_mut();
        guest.stats.marked += u64::from(frame.is_some_and(Frame::mark_congestion));
    }

    /// Counts a frame that is too long.
    #[cold]
    pub(super) const fn count_oversized(&mut self, guest: &mut Guest) {
        self.stats.drops.oversized += 1;
        guest.stats.dropped += 1;
    }

    /// Sets the condition that the first frame of a line waits for. The frame came to the front at
    /// `at`.
    #[inline(never)]
    pub(super) fn set_head(
        &mut self,
        (guest, line): (&mut Guest, &mut Line),
        index: LineIndex,
        at: Position,
    ) {
        let head = self.store.at(line.head());
        let (at, wire) = (at.max(head.arrival), head.wire);
        if self.check_limit(line, index, at, wire) {
            self.join(guest, line, index);
        } else {
            guest.stats.held_back += 1;
        }
    }

    /// Checks whether the first frame of a line, of `wire` bytes, conforms to its limit at `at`, or
    /// at the departure of the frame before it. Returns false if it must wait for the limit.
    #[inline(always)]
    pub(super) fn check_limit(
        &mut self,
        line: &mut Line,
        index: LineIndex,
        at: Position,
        wire: WireBytes,
    ) -> bool {
        let mut from = at;
        if let Some(limit) = &mut line.limit {
            if !limit.account.is_open(self.wire.change()) {
                return self.check_closed(line, index, at, wire);
            }
            limit.account.make_up(self.wire.lost());
            from = at.max(limit.account.last_departure());
            let release = limit.account.conforms_at(from, wire);
            if release > from {
                self.hold_back(line, index, at, Some(release));
                return false;
            }
        }
        line.release = from;
        line.held_back = false;
        true
    }

    /// Checks the first frame if the limit is closed, or was not used since the wire changed.
    #[inline(never)]
    fn check_closed(
        &mut self,
        line: &mut Line,
        index: LineIndex,
        at: Position,
        wire: WireBytes,
    ) -> bool {
        let Some(limit) = &mut line.limit else {
            return true;
        };
        let sight = self.wire.sight();
        match limit.account.check(at, wire, sight) {
            Ok(release) => {
                line.release = release;
                line.held_back = false;
                true
            }
            Err(release) => {
                self.hold_back(line, index, at, release);
                false
            }
        }
    }

    /// Suspends a line from `at` until `release`, or until its limit opens.
    #[inline(always)]
    fn hold_back(
        &mut self,
        line: &mut Line,
        index: LineIndex,
        at: Position,
        release: Option<Position>,
    ) {
        line.held_back = true;
        if let Some(limit) = &mut line.limit {
            limit.wait(&mut self.began);
            limit.note(index, &mut self.used);
        }
        let Some(release) = release else {
            line.stage = Stage::Closed;
            return;
        };
        line.stage = Stage::Limited;
        line.release = release;
        self.releases.insert(index, release, at);
    }

    /// Releases a line that waited for its limit until now.
    #[inline(always)]
    pub(super) fn release(&mut self, guest: &mut Guest, line: &mut Line, index: LineIndex) {
        if let Some(limit) = &line.limit
            && !limit.account.is_alone(self.wire.change())
        {
            return self.release_other(guest, line, index);
        }
        self.join(guest, line, index);
    }

    /// Releases a line that shares buckets, or whose release is a position on the wire before its
    /// change.
    #[inline(never)]
    fn release_other(&mut self, guest: &mut Guest, line: &mut Line, index: LineIndex) {
        if line.stage == Stage::InTree {
            return self.take_turn(guest, line, index);
        }
        let is_on = |limit: &Limit| limit.account.is_on(self.wire.change().new);
        if line.limit.as_ref().is_some_and(is_on) {
            return self.join(guest, line, index);
        }
        let at = line.release.max(self.wire.change().start);
        self.set_head((guest, line), index, at);
    }

    /// Returns the line with the first release of those that wait for their limit.
    pub(super) fn first_limited(&self) -> Option<LineIndex> {
        self.releases.first_line()
    }

    /// Withdraws a line that waits for its limit. Returns false if the line does not wait for a
    /// limit.
    pub(super) fn withdraw(&mut self, line: &Line, index: LineIndex) -> bool {
        if line.stage == Stage::Limited {
            self.releases.remove(index);
        }
        matches!(line.stage, Stage::Limited | Stage::Closed)
    }

    /// Checks the first frame of a released line again, after its limit has changed at `at`.
    pub(super) fn check_released(
        &mut self,
        guest: &mut Guest,
        line: &mut Line,
        index: LineIndex,
        at: Position,
    ) {
        let (head, held_back) = (self.store.at(line.head()), line.held_back);
        let (at, wire) = (at.max(head.arrival), head.wire);
        if self.check_limit(line, index, at, wire) {
            line.held_back = held_back;
        } else {
            guest.stats.held_back += 1;
            guest.round.remove(&mut self.links, index, line.weight);
            guest.backlog.released -= line.wire;
        }
    }

    /// Adds a line whose first frame is released to the guest's round.
    #[inline(always)]
    pub(super) fn join(&mut self, guest: &mut Guest, line: &mut Line, index: LineIndex) {
        line.stage = Stage::Released;
        line.deficit = 0;
        guest.backlog.released += line.wire;
        guest.round.push(&mut self.links, index, line.weight);
        if guest.stamped.is_none() {
            self.stamp_first(guest, line, index, line.release);
        }
    }

    /// Does the same as [`Chain::stamp`] if the guest has no frame with a departure time, and
    /// records the guest's departure.
    #[inline(never)]
    pub(super) fn stamp_first(
        &mut self,
        guest: &mut Guest,
        line: &mut Line,
        index: LineIndex,
        at: Position,
    ) {
        let number = line.guest;
        if let Some(departure) = self.stamp(guest, line, index, at) {
            // No later frame departs before the frames on the wire.
            let floor = self.wire.start();
            let departures = self.departures.of(guest.guarantee.rank());
            departures.insert(number, departure, floor);
        }
    }

    /// Determines the departure time of the first frame of a line, which is the first of the round,
    /// as for one that arrives at `at`. Returns the time if the frame goes on the wire; the caller
    /// then queues the guest for it. For a frame to a guest of this host this method queues the
    /// guest itself. If the frame must wait for a subtree, its line leaves the round, and the guest
    /// has no frame with a departure time: see [`Chain::stamp_next`].
    #[inline(always)]
    pub(super) fn stamp(
        &mut self,
        guest: &mut Guest,
        line: &mut Line,
        index: LineIndex,
        at: Position,
    ) -> Option<Position> {
        guest.stamped = line.head();
        let head = line.pop(&self.store);
        let (wire, is_local) = (head.wire, head.is_local);
        guest.backlog.released -= wire;
        line.deficit -= of_deficit(wire);
        guest.buckets.make_up(self.wire.lost());
        if is_local {
            self.stamp_local(guest, line, index, at, wire);
            return None;
        }
        let departure = guest.buckets.schedule(at, wire);
        if !self.charge_alone(line, index, departure, wire) {
            let frame = Departing {
                at,
                departure,
                wire,
            };
            return self.charge_other(guest, line, index, frame);
        }
        self.follow_up(guest, line, index, at);
        Some(departure)
    }

    /// Determines the departure time of a frame to a guest of this host, and queues its guest for
    /// it.
    #[inline(never)]
    fn stamp_local(
        &mut self,
        guest: &mut Guest,
        line: &mut Line,
        index: LineIndex,
        at: Position,
        wire: WireBytes,
    ) {
        let departure = guest.buckets.schedule_local(at, wire);
        let number = line.guest;
        if self.charge_alone(line, index, departure, wire) {
            self.follow_up(guest, line, index, at);
        } else {
            let frame = Departing {
                at,
                departure,
                wire,
            };
            if self.charge_other(guest, line, index, frame).is_none() {
                return;
            }
        }
        self.local.insert(number, departure);
    }

    /// Charges a frame of a line that departs at `departure` to its limit, if that is open and
    /// shares no bucket. Returns false if [`Chain::charge_other`] must charge it.
    #[inline(always)]
    fn charge_alone(
        &mut self,
        line: &mut Line,
        index: LineIndex,
        departure: Position,
        wire: WireBytes,
    ) -> bool {
        let Some(limit) = &mut line.limit else {
            return true;
        };
        limit.taken += wire;
        limit.note(index, &mut self.used);
        let is_alone = limit.account.is_alone(self.wire.change());
        if is_alone {
            limit.account.charge_open(departure, wire);
        }
        is_alone
    }

    /// Brings the next frame of a line, if there is one, to the front at `at`, after the first has
    /// left.
    #[inline(always)]
    pub(super) fn follow_up(
        &mut self,
        guest: &mut Guest,
        line: &mut Line,
        index: LineIndex,
        at: Position,
    ) {
        if line.is_empty() && !line.advance(&mut self.store) {
            line.stage = Stage::Empty;
            guest.lines.busy -= 1;
            guest.round.pop(&self.links, line.weight);
        } else {
            self.go_on(guest, line, index, at);
        }
    }

    /// Does the same for a line with a next frame.
    #[inline(always)]
    fn go_on(&mut self, guest: &mut Guest, line: &mut Line, index: LineIndex, at: Position) {
        let head = self.store.at(line.head());
        let (mut arrival, mut wire) = (head.arrival, head.wire);
        if line.is_late(head, guest.patience, self.wire.now()) {
            let Some(head) = self.judge(guest, line) else {
                guest.round.pop(&self.links, line.weight);
                return;
            };
            (arrival, wire) = head;
        }
        if !self.check_limit(line, index, at.max(arrival), wire) {
            guest.stats.held_back += 1;
            guest.backlog.released -= line.wire;
            guest.round.pop(&self.links, line.weight);
            return;
        }
        if guest.round.is_of_one() {
            line.deficit = 0;
        } else if line.deficit <= 0 {
            guest.round.rotate(&mut self.links);
        }
    }

    /// Runs `CoDel` on the first frames of a line, which have waited for too long. Returns arrival
    /// and length of the remaining first frame.
    #[inline(never)]
    pub(super) fn judge(
        &mut self,
        guest: &mut Guest,
        line: &mut Line,
    ) -> Option<(Position, WireBytes)> {
        guest.backlog.released -= line.wire;
        self.judge_frames(guest, line, line.held_back);
        if line.is_empty() {
            line.stage = Stage::Empty;
            guest.lines.busy -= 1;
            return None;
        }
        guest.backlog.released += line.wire;
        let head = self.store.at(line.head());
        Some((head.arrival, head.wire))
    }

    /// Runs `CoDel` on the first of these frames, which have waited for too long: picked frames are
    /// marked, or dropped if `may_drop` is true.
    pub(super) fn judge_frames(&mut self, guest: &mut Guest, line: &mut Line, may_drop: bool) {
        let now = self.wire.now();
        let (stats, memory, counted) =
            (&mut self.stats, &mut guest.backlog.memory, &mut guest.stats);
        let marked = line.judge(
            &mut self.store,
            guest.patience,
            now,
            may_drop,
            |store, index| {
                memory.0 -= store.at(index).memory.0;
                counted.dropped += 1;
                stats.drops.over_delay += 1;
                drop(store.take(index));
            },
        );
        guest.stats.marked += marked;
    }
}
