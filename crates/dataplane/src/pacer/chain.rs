//! The chain of buckets: which line is released when, and which frame departs when.

use super::departures::Departures;
use super::guest::{Guest, Ring};
use super::line::{Line, Stage};
use super::local::Local;
use super::rate_change::RateChange;
use super::releases::Releases;
use super::round::{Links, of_deficit};
use super::store::{NIL, Store};
use super::{PacerStats, WireClock, void};
use crate::Frame;
use tailbound_units::{Bytes, Position, Rate, WireBytes};

/// What all lines and guests share: the wire, the frames and what is in order of time.
///
/// Its methods take the guest and the line that they are about, so that a frame's way
/// looks each of them up once.
#[derive(Debug)]
pub(super) struct Chain<F> {
    pub(super) clock: WireClock,
    /// What limits that nobody has looked at since are to be translated by.
    pub(super) change: RateChange,
    /// Virtual time.
    pub(super) position: Position,
    /// Bytes of the wire that virtual time was frozen for, each at the rate that it had then.
    pub(super) lost: WireBytes,
    /// Up to where the wire is taken.
    pub(super) wire: Position,
    /// Every frame of a guaranteed guest; lines and guests hold their places.
    pub(super) store: Store<F>,
    /// Lines that wait for their limit, by their release.
    pub(super) releases: Releases,
    /// Guests, by the departure of the frame that has one.
    pub(super) departures: Departures,
    /// The same of frames that go to guests of this host.
    pub(super) local: Local<F>,
    /// The order of lines in the rounds of their guests.
    pub(super) links: Links,
    /// Lines whose limits were used since that was asked for.
    pub(super) used: Vec<u32>,
    pub(super) stats: PacerStats,
}

impl<F: Frame> Chain<F> {
    pub(super) fn new(link: Rate) -> Self {
        Self {
            clock: WireClock::new(link),
            change: RateChange::none(link),
            position: Position::ZERO,
            lost: WireBytes::ZERO,
            wire: Position::ZERO,
            store: Store::new(),
            releases: Releases::new(),
            departures: Departures::new(),
            local: Local::new(),
            links: Links::default(),
            used: Vec::new(),
            stats: PacerStats::default(),
        }
    }

    /// The first departure or release in either wheel, or the end of time.
    #[inline(always)]
    pub(super) fn next(&self) -> Position {
        self.departures.first().min(self.releases.first())
    }

    /// What a frame takes of the wire, and of memory.
    #[inline(always)]
    pub(super) fn size(frame: &F) -> (WireBytes, Bytes) {
        let memory = Bytes(frame.truesize().0 + Store::<F>::PLACE.0);
        (void::on_the_wire(frame.len()), memory)
    }

    /// Lets a frame that is in its place, and of this size, be the last of a line.
    #[inline(always)]
    pub(super) fn append(
        &mut self,
        (guest, line): (&mut Guest, &mut Line),
        index: u32,
        place: u32,
        (wire, memory): (WireBytes, Bytes),
        at: Position,
    ) {
        line.push(&mut self.store, place, (wire, memory));
        guest.memory.0 += memory.0;
        guest.stats.taken.packets += 1;
        if line.stage == Stage::Released {
            guest.released += wire;
        } else if line.stage == Stage::Empty {
            guest.lines += 1;
            if self.charge_limit(line, index, at, wire) {
                self.join(guest, line, index);
            }
        }
        // Apart from the packets: no vector of both is put together and taken apart.
        guest.stats.taken.bytes += wire;
    }

    /// Has the ring of a guest, which is crowded, be left unread where {B, S} holds up what
    /// has just come, into this line.
    pub(super) fn watch(&mut self, (guest, line): (&mut Guest, &Line), index: u32) {
        if line.stage == Stage::Released && guest.ring == Ring::Read {
            guest.leave_unread(index);
            self.stats.unread += 1;
        }
    }

    /// Marks a frame whose line holds too much memory.
    #[cold]
    pub(super) fn mark(&mut self, guest: &mut Guest, place: u32) {
        let frame = self.store.at_mut(place).frame.as_mut();
        guest.stats.marked += u64::from(frame.is_some_and(Frame::mark_congestion));
    }

    /// Counts a frame that is longer than any may be.
    #[cold]
    pub(super) const fn count_oversized(&mut self, guest: &mut Guest) {
        self.stats.drops.oversized += 1;
        guest.stats.dropped += 1;
    }

    /// Lets the first frame of a line, which is not charged and has come to the front at
    /// `at`, wait for what it has to.
    #[inline(never)]
    pub(super) fn set_head(
        &mut self,
        (guest, line): (&mut Guest, &mut Line),
        index: u32,
        at: Position,
    ) {
        let head = self.store.at(line.head());
        let (at, wire) = (at.max(head.arrival), head.wire);
        if self.charge_limit(line, index, at, wire) {
            self.join(guest, line, index);
        }
    }

    /// Charges the first frame of a line, of `wire` bytes, to its limit at `at`. Returns
    /// false where it has to wait for that.
    #[inline(always)]
    fn charge_limit(&mut self, line: &mut Line, index: u32, at: Position, wire: WireBytes) -> bool {
        if let Some(limit) = &mut line.limit {
            if !limit.is_open(&self.change) {
                return self.charge_closed(line, index, at, wire);
            }
            limit.make_up(self.lost, line.release);
            if let Some(release) = limit.charge_open(at, wire) {
                limit.note(index, &mut self.used);
                self.hold_back(line, index, at, Some(release));
                return false;
            }
        }
        line.release = at;
        line.held_back = false;
        true
    }

    /// The same where the limit is closed, or nobody has looked at it since the wire changed.
    #[inline(never)]
    fn charge_closed(
        &mut self,
        line: &mut Line,
        index: u32,
        at: Position,
        wire: WireBytes,
    ) -> bool {
        if let Some(limit) = &mut line.limit {
            let charged = limit.charge(at, wire, &self.change);
            limit.pass_over(self.lost);
            if let Err(release) = charged {
                limit.note(index, &mut self.used);
                self.hold_back(line, index, at, release);
                return false;
            }
        }
        line.release = at;
        line.held_back = false;
        true
    }

    /// Lets a line wait for its limit, until `release` or until that is opened.
    #[inline(always)]
    fn hold_back(&mut self, line: &mut Line, index: u32, at: Position, release: Option<Position>) {
        line.held_back = true;
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
    pub(super) fn release(&mut self, guest: &mut Guest, line: &mut Line, index: u32) {
        if let Some(limit) = &line.limit
            && !limit.is_on(self.change.new)
        {
            return self.charge_anew(guest, line, index);
        }
        self.join(guest, line, index);
    }

    /// Charges the first frame of a line anew, which was charged on the wire as it was before.
    #[cold]
    fn charge_anew(&mut self, guest: &mut Guest, line: &mut Line, index: u32) {
        let at = line.release.max(self.change.start);
        if let Some(limit) = &mut line.limit {
            limit.refund();
        }
        self.set_head((guest, line), index, at);
    }

    /// The line that is released first of those that wait for their limit.
    pub(super) fn first_limited(&self) -> Option<u32> {
        self.releases.first_line()
    }

    /// Takes a line back that waits for its limit: its first frame is not charged any
    /// more. Returns false where it does not.
    pub(super) fn withdraw(&mut self, line: &mut Line, index: u32) -> bool {
        match line.stage {
            Stage::Empty | Stage::Released => return false,
            Stage::Closed => {}
            Stage::Limited => {
                self.releases.remove(index);
                if let Some(limit) = &mut line.limit {
                    limit.refund();
                }
            }
        }
        true
    }

    /// Lets a line whose first frame is released wait for its turn.
    #[inline(always)]
    pub(super) fn join(&mut self, guest: &mut Guest, line: &mut Line, index: u32) {
        line.stage = Stage::Released;
        line.deficit = 0;
        guest.released += line.wire;
        guest.round.push(&mut self.links, index, line.weight);
        if guest.stamped == NIL {
            self.stamp_first(guest, line, index, line.release);
        }
    }

    /// The same as [`Chain::stamp`] where the guest has no frame with a departure time: it
    /// waits for that.
    #[inline(never)]
    pub(super) fn stamp_first(
        &mut self,
        guest: &mut Guest,
        line: &mut Line,
        index: u32,
        at: Position,
    ) {
        let number = line.guest;
        if let Some(departure) = self.stamp(guest, line, index, at) {
            // Nothing that comes later departs before what is on the wire.
            let floor = self.wire.max(self.position);
            self.departures.insert(number, departure, floor);
        }
    }

    /// Gives the first frame of a line, the first of the round whose turn it is, its
    /// departure time: that of one which comes at `at`. Returns it where the frame goes on
    /// the wire, for which its guest is to wait. For one to a guest of this host it does.
    #[inline(always)]
    pub(super) fn stamp(
        &mut self,
        guest: &mut Guest,
        line: &mut Line,
        index: u32,
        at: Position,
    ) -> Option<Position> {
        guest.stamped = line.head();
        let head = line.pop(&self.store);
        let (wire, is_local) = (head.wire, head.is_local);
        guest.released -= wire;
        if let Some(limit) = &mut line.limit {
            limit.taken += wire;
            limit.note(index, &mut self.used);
        }
        line.deficit -= of_deficit(wire);
        guest.make_up(self.lost);
        if is_local {
            self.stamp_local(guest, line, index, at, wire);
            return None;
        }
        let departure = guest.schedule(at, wire);
        self.follow_up(guest, line, index, at);
        Some(departure)
    }

    /// Gives a frame to a guest of this host its departure time, for which its guest waits.
    #[inline(never)]
    fn stamp_local(
        &mut self,
        guest: &mut Guest,
        line: &mut Line,
        index: u32,
        at: Position,
        wire: WireBytes,
    ) {
        let departure = guest.schedule_local(at, wire);
        self.local.insert(line.guest, departure);
        self.follow_up(guest, line, index, at);
    }

    /// Lets the next frame of a line, if there is one, come to the front at `at`, as the first
    /// has left.
    #[inline(always)]
    fn follow_up(&mut self, guest: &mut Guest, line: &mut Line, index: u32, at: Position) {
        if line.is_empty() {
            line.stage = Stage::Empty;
            guest.lines -= 1;
            guest.round.pop(&self.links, line.weight);
        } else {
            self.go_on(guest, line, index, at);
        }
    }

    /// The same where there is one.
    #[inline(always)]
    fn go_on(&mut self, guest: &mut Guest, line: &mut Line, index: u32, at: Position) {
        let head = self.store.at(line.head());
        let (mut arrival, mut wire) = (head.arrival, head.wire);
        if line.is_late(head, guest.patience, self.clock.now()) {
            let Some(head) = self.judge(guest, line) else {
                guest.round.pop(&self.links, line.weight);
                return;
            };
            (arrival, wire) = head;
        }
        if !self.charge_limit(line, index, at.max(arrival), wire) {
            guest.released -= line.wire;
            guest.round.pop(&self.links, line.weight);
            return;
        }
        if guest.round.is_of_one() {
            line.deficit = 0;
        } else if line.deficit <= 0 {
            guest.round.rotate(&mut self.links);
        }
    }

    /// Lets `CoDel` judge the first frames of a line, which have waited for long. Returns
    /// when the first that is left came, and how long it is.
    #[inline(never)]
    fn judge(&mut self, guest: &mut Guest, line: &mut Line) -> Option<(Position, WireBytes)> {
        guest.released -= line.wire;
        self.judge_frames(guest, line, line.held_back);
        if line.is_empty() {
            line.stage = Stage::Empty;
            guest.lines -= 1;
            return None;
        }
        guest.released += line.wire;
        let head = self.store.at(line.head());
        Some((head.arrival, head.wire))
    }

    /// Lets `CoDel` judge the first of these frames, which have waited for long: those that
    /// it picks are marked, or dropped where that may be.
    pub(super) fn judge_frames(&mut self, guest: &mut Guest, line: &mut Line, may_drop: bool) {
        let now = self.clock.now();
        let (stats, memory, counted) = (&mut self.stats, &mut guest.memory, &mut guest.stats);
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
