//! One line of frames: those of a guest to one destination, or to all that have no
//! limit.

use super::limit::Limit;
use super::rate_change::RateChange;
use super::store::{NIL, Store, Waiting};
use crate::Frame;
use crate::queue::QueueStats;
use crate::queue::codel::{Control, Line as Judged, Parameters};
use std::mem;
use tailbound_units::{Bytes, Nanos, Position, WireBytes};

/// A line is to be emptied of what has waited longer than its target within this many of
/// it (RFC 8289, 4.4: the target is 5 % of the interval).
const TARGETS: u64 = 20;

/// What the first frame of a line waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// There is none.
    Empty,
    /// Tokens of its destination's limit: the line is in the wheel of releases.
    Limited,
    /// A limit above zero: the line is nowhere.
    Closed,
    /// Its turn among the lines of its guest: the line is in that one's round.
    Released,
}

/// A line. See the module.
#[derive(Debug)]
pub(super) struct Line {
    /// Whose it is.
    pub(super) guest: u32,
    pub(super) stage: Stage,
    /// When its first frame was released, or is to be.
    pub(super) release: Position,
    /// Whether its limit held the first frame back, or the one before it.
    pub(super) held_back: bool,
    /// What limits it; `None` for the line of frames without a limit.
    pub(super) limit: Option<Limit>,
    /// Its first frame and its last.
    head: u32,
    tail: u32,
    /// What its frames take of the wire, and of memory.
    pub(super) wire: WireBytes,
    pub(super) memory: Bytes,
    /// Its share of a round, relative to those of the others.
    pub(super) weight: u32,
    /// From what wait on its frames have waited too long, where that is more than its
    /// guest says: as long as a slow destination takes for a frame and a half.
    pub(super) target: Nanos,
    /// What it may send in its turn, in parts of a byte; below zero: what it has sent more
    /// than that.
    pub(super) deficit: i64,
    control: Control,
}

impl Line {
    pub(super) const fn new(guest: u32, weight: u32, limit: Option<Limit>) -> Self {
        Self {
            guest,
            stage: Stage::Empty,
            release: Position::ZERO,
            held_back: false,
            limit,
            head: NIL,
            tail: NIL,
            wire: WireBytes::ZERO,
            memory: Bytes(0),
            weight,
            target: Nanos::ZERO,
            deficit: 0,
            control: Control::NEW,
        }
    }

    /// Its first frame, which was released as another departs that is still to leave, is
    /// released then on another wire, too.
    pub(super) fn translate_release(&mut self, change: &RateChange) {
        if self.stage == Stage::Released && self.release > change.start {
            self.release = change.at(self.release);
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// Whether it has one frame, where it has any.
    #[inline(always)]
    pub(super) const fn has_one(&self) -> bool {
        self.head == self.tail
    }

    /// Its first frame, where there is one.
    pub(super) const fn head(&self) -> u32 {
        self.head
    }

    /// Puts a frame behind the last, behind which there is none, and which takes so much
    /// of the wire and of memory.
    #[inline(always)]
    pub(super) fn push<F>(&mut self, store: &mut Store<F>, index: u32, size: (WireBytes, Bytes)) {
        self.wire += size.0;
        self.memory.0 += size.1.0;
        if self.head == NIL {
            self.head = index;
        } else {
            store.at_mut(self.tail).next = index;
        }
        self.tail = index;
    }

    /// Takes the first frame off the line, and returns what is in its place. There is one.
    #[inline(always)]
    pub(super) fn pop<'s, F>(&mut self, store: &'s Store<F>) -> &'s Waiting<F> {
        let frame = store.at(self.head);
        self.wire -= frame.wire;
        self.memory.0 -= frame.memory.0;
        self.head = frame.next;
        frame
    }

    /// Takes the second frame off the line, where there is one: the first may have
    /// been charged.
    pub(super) fn pop_second<F>(&mut self, store: &mut Store<F>) -> Option<u32> {
        let index = store.at(self.head).next;
        if index == NIL {
            return None;
        }
        let frame = store.at(index);
        let behind = frame.next;
        self.wire -= frame.wire;
        self.memory.0 -= frame.memory.0;
        store.at_mut(self.head).next = behind;
        if behind == NIL {
            self.tail = self.head;
        }
        Some(index)
    }

    /// Moves the frames of `of` that belong to this line over to it, in order, from a
    /// line whose first frame is not charged.
    pub(super) fn take_from<F: Frame>(
        &mut self,
        store: &mut Store<F>,
        of: &mut Self,
        is_mine: impl Fn(&F) -> bool,
    ) {
        let mut index = of.head;
        (of.head, of.wire, of.memory) = (NIL, WireBytes::ZERO, Bytes(0));
        while index != NIL {
            let waiting = store.at_mut(index);
            let next = mem::replace(&mut waiting.next, NIL);
            let size = (waiting.wire, waiting.memory);
            let mine = waiting.frame.as_ref().is_some_and(&is_mine);
            if mine {
                self.push(store, index, size);
            } else {
                of.push(store, index, size);
            }
            index = next;
        }
    }

    /// Whether the first frame is to be judged: it has waited for too long, more than a full
    /// frame is behind it, and `CoDel` does not wait for its interval to end.
    #[inline(always)]
    pub(super) fn is_late<F>(&mut self, head: &Waiting<F>, target: Nanos, now: Nanos) -> bool {
        let waited = now.since(head.enqueued);
        if waited < target || waited < self.target || (self.wire - head.wire).0 <= FULL_FRAME.0 {
            self.control.rest();
            return false;
        }
        !self.control.bears(now)
    }

    /// Judges the first frames, which are late, by how long they have waited: marks or
    /// drops those that `CoDel` (RFC 8289) picks. What is not to be dropped, as its
    /// guest's port is left unread, is marked at most. Hands over the dropped ones, and
    /// returns how many were marked.
    pub(super) fn judge<F: Frame>(
        &mut self,
        store: &mut Store<F>,
        target: Nanos,
        now: Nanos,
        may_drop: bool,
        drop: impl FnMut(&mut Store<F>, u32),
    ) -> u64 {
        let target = target.max(self.target);
        let parameters = Parameters {
            target,
            interval: Nanos(target.0.saturating_mul(TARGETS)),
            mtu: FULL_FRAME,
            ecn: true,
            ce_threshold: None,
        };
        let mut control = self.control;
        let mut judged = Standing {
            line: self,
            store,
            may_drop,
            marked: 0,
            drop,
        };
        let mut stats = QueueStats::default();
        control.admit(&parameters, now, &mut stats, &mut judged);
        let marked = judged.marked;
        self.control = control;
        marked
    }
}

/// A full frame: with no more behind the head there is no queue.
const FULL_FRAME: Bytes = Bytes(1514);

/// A line as `CoDel` sees it.
struct Standing<'l, F, D> {
    line: &'l mut Line,
    store: &'l mut Store<F>,
    may_drop: bool,
    marked: u64,
    drop: D,
}

impl<F: Frame, D: FnMut(&mut Store<F>, u32)> Judged for Standing<'_, F, D> {
    fn head(&self) -> Option<(Nanos, u64)> {
        if self.line.is_empty() {
            return None;
        }
        let head = self.store.at(self.line.head);
        let behind = self.line.wire - head.wire;
        Some((head.enqueued, behind.0))
    }

    fn drop_head(&mut self) {
        let index = self.line.head;
        self.line.pop(self.store);
        (self.drop)(self.store, index);
    }

    fn mark_head(&mut self) -> bool {
        let head = self.store.at_mut(self.line.head).frame.as_mut();
        let marked = head.is_some_and(Frame::mark_congestion);
        self.marked += u64::from(marked);
        marked || !self.may_drop
    }

    fn mark_scalable_head(&mut self) -> bool {
        false
    }
}
