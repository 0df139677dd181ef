//! One line of frames: those of a guest to one destination, or to all destinations without a limit.

use super::limit::Limit;
use super::rate_change::RateChange;
use super::store::{NIL, Store, Waiting};
use crate::Frame;
use crate::queue::QueueStats;
use crate::queue::codel::{Control, Line as Judged, Parameters};
use std::mem;
use tailbound_units::{Bytes, Nanos, Position, WireBytes};

/// Length of `CoDel`'s interval in targets (RFC 8289, 4.4: the target is 5 % of the interval): the
/// time in which a line must lose its frames that waited longer than the target.
const TARGETS: u64 = 20;

/// Condition that the first frame of a line waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The line has no frames.
    Empty,
    /// Tokens of its destination's limit: the line is in the wheel of releases.
    Limited,
    /// The opening of its limit: the line is in no list.
    Closed,
    /// Tokens of a subtree, or its turn there: the line is in the tree of its guest (`tree`).
    InTree,
    /// Its turn among the lines of its guest: the line is in the guest's round.
    Released,
}

/// A line. The module describes it.
#[derive(Debug)]
pub(super) struct Line {
    /// Slot of its guest.
    pub(super) guest: u32,
    pub(super) stage: Stage,
    /// Position at which its first frame was or will be released.
    pub(super) release: Position,
    /// True if the limit delayed the first frame, or the one before it.
    pub(super) held_back: bool,
    /// Limit of the line; `None` for the line of frames without a limit.
    pub(super) limit: Option<Limit>,
    /// The first frame and the last.
    head: u32,
    tail: u32,
    /// Length of its frames on the wire, and their memory.
    pub(super) wire: WireBytes,
    pub(super) memory: Bytes,
    /// Weight of the line in a round, relative to the others.
    pub(super) weight: u32,
    /// Waiting time after which its frames count as late, if that is longer than its guest's: the
    /// time of a slow destination for a frame and a half.
    pub(super) target: Nanos,
    /// Bytes that the line may send in its turn, in parts of a byte; negative for bytes that it has
    /// sent beyond that.
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

    /// Converts the release of its first frame to another wire, if that frame was released at a
    /// departure that is still to come.
    pub(super) fn translate_release(&mut self, change: &RateChange) {
        if self.stage == Stage::Released && self.release > change.start {
            self.release = change.at(self.release);
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// Checks whether the line has exactly one frame, if it is not empty.
    #[inline(always)]
    pub(super) const fn has_one(&self) -> bool {
        self.head == self.tail
    }

    /// The first frame of a line that is not empty.
    pub(super) const fn head(&self) -> u32 {
        self.head
    }

    /// Adds a frame of this size behind the last one.
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

    /// Removes the first frame of a line that is not empty, and returns the entry at its place.
    #[inline(always)]
    pub(super) fn pop<'s, F>(&mut self, store: &'s Store<F>) -> &'s Waiting<F> {
        let frame = store.at(self.head);
        self.wire -= frame.wire;
        self.memory.0 -= frame.memory.0;
        self.head = frame.next;
        frame
    }

    /// Removes the second frame, if there is one: the first may have been released.
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

    /// Moves the frames of `of` that belong to this line over to it, in order.
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

    /// Checks whether the first frame must be judged: it has waited for too long, more than a full
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

    /// Judges the first frames, which are late, by their waiting times: marks or drops those that
    /// `CoDel` (RFC 8289) picks. With `may_drop` false, because the guest's port is not read,
    /// frames are only marked. Passes on the dropped frames, and returns the number of marked ones.
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
        let mut judged = CodelLine {
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

/// Puts the frame in front of a line again that was removed last, and returns its length.
pub(super) fn put_back<F>(line: &mut Line, store: &Store<F>, index: u32) -> WireBytes {
    let frame = store.at(index);
    line.wire += frame.wire;
    line.memory.0 += frame.memory.0;
    line.head = index;
    frame.wire
}

/// A full frame: with no more bytes behind the head there is no queue.
const FULL_FRAME: Bytes = Bytes(1514);

/// A line as seen by `CoDel`.
struct CodelLine<'l, F, D> {
    line: &'l mut Line,
    store: &'l mut Store<F>,
    may_drop: bool,
    marked: u64,
    drop: D,
}

impl<F: Frame, D: FnMut(&mut Store<F>, u32)> Judged for CodelLine<'_, F, D> {
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
