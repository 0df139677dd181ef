//! One line of frames: those of a guest to one destination, or to all destinations without a limit.

use super::index::{FrameIndex, GuestIndex, QueuesIndex};
use super::limit::Limit;
use super::rate_change::RateChange;
use super::store::by_flow::{Behind, FlowList};
use super::store::{Store, Waiting};
use crate::queue::QueueStats;
use crate::queue::codel::{Control, Line as Judged, Parameters};
use crate::{Connection, Frame};
use std::{iter, mem};
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

/// The frames of a line. The first one stays in front of all that come: it may be released.
#[derive(Debug, Clone, Copy)]
struct Ends {
    /// The first frame. In a line by flow it has no successor.
    head: FrameIndex,
    /// The last frame; `NONE` in a line by flow.
    tail: FrameIndex,
    /// The frames behind the first; undefined without any, and in a line without a limit, which has
    /// one list for all flows.
    behind: Behind,
}

impl Ends {
    const EMPTY: Self = Self {
        head: FrameIndex::NONE,
        tail: FrameIndex::NONE,
        behind: Behind::of_flow(Connection(0)),
    };
}

/// A line. The module describes it.
#[derive(Debug)]
pub(super) struct Line {
    /// Slot of its guest.
    pub(super) guest: GuestIndex,
    pub(super) stage: Stage,
    /// Position at which its first frame was or will be released.
    pub(super) release: Position,
    /// True if the limit delayed the first frame, or the one before it.
    pub(super) held_back: bool,
    /// Limit of the line; `None` for the line of frames without a limit.
    pub(super) limit: Option<Limit>,
    ends: Ends,
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
    pub(super) const fn new(guest: GuestIndex, weight: u32, limit: Option<Limit>) -> Self {
        Self {
            guest,
            stage: Stage::Empty,
            release: Position::ZERO,
            held_back: false,
            limit,
            ends: Ends::EMPTY,
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
        self.ends.head.is_none()
    }

    /// Checks whether the line has exactly one frame, if it is not empty.
    #[inline(always)]
    pub(super) const fn has_one(&self) -> bool {
        self.ends.head.number() == self.ends.tail.number()
    }

    /// The first frame of a line that is not empty.
    pub(super) const fn head(&self) -> FrameIndex {
        self.ends.head
    }

    /// All frames, each flow's in order.
    pub(super) fn frames<'s, F>(
        &self,
        store: &'s Store<F>,
    ) -> impl Iterator<Item = FrameIndex> + 's {
        let there = |index: FrameIndex| index.is_some().then_some(index);
        let list = move |first| iter::successors(there(first), move |&i| there(store.at(i).next));
        let by_flow = self.ends.behind.queues();
        let heads = by_flow.map(|queues| store.flows.heads(queues));
        list(self.ends.head).chain(heads.into_iter().flatten().flat_map(list))
    }

    /// Adds a frame of this size and flow behind the last one of its flow.
    #[inline(always)]
    pub(super) fn push<F>(
        &mut self,
        store: &mut Store<F>,
        index: FrameIndex,
        size: (WireBytes, Bytes),
        flow: Connection,
    ) {
        self.wire += size.0;
        self.memory.0 += size.1.0;
        if self.ends.head.is_none() {
            self.ends.head = index;
        } else {
            let behind = Behind::of_flow(flow);
            if self.limit.is_some() && !self.has_one() && self.ends.behind != behind {
                return self.push_by_flow(store, index, size.0, size.1, flow);
            }
            self.ends.behind = behind;
            store.at_mut(self.ends.tail).next = index;
        }
        self.ends.tail = index;
    }

    /// Adds a frame, which is counted, to the queue of its flow.
    #[inline(never)]
    fn push_by_flow<F>(
        &mut self,
        store: &mut Store<F>,
        index: FrameIndex,
        wire: WireBytes,
        memory: Bytes,
        flow: Connection,
    ) {
        let queues = self.ends.behind.queues();
        let queues = queues.unwrap_or_else(|| self.divide(store, wire, memory));
        let (places, flows) = store.parts_mut();
        flows.at_mut(queues).push(places, index, flow);
    }

    /// Puts the frames behind the first into a queue by flow, before a frame of this size, and
    /// returns the number of the queues.
    fn divide<F>(&mut self, store: &mut Store<F>, wire: WireBytes, memory: Bytes) -> QueuesIndex {
        let head = store.at_mut(self.ends.head);
        let list = FlowList {
            behind: self.ends.behind,
            head: mem::replace(&mut head.next, FrameIndex::NONE),
            tail: mem::replace(&mut self.ends.tail, FrameIndex::NONE),
            wire: self.wire - wire - head.wire,
            memory: Bytes(self.memory.0 - memory.0 - head.memory.0),
        };
        self.ends.behind = store.flows.begin(list);
        let queues = self.ends.behind.queues();
        queues.expect("queues have begun")
    }

    /// Removes the first frame of a line that is not empty, and returns the entry at its place. The
    /// caller must call [`Line::advance`] if the line is empty then.
    #[inline(always)]
    pub(super) fn pop<'s, F>(&mut self, store: &'s Store<F>) -> &'s Waiting<F> {
        let frame = store.at(self.ends.head);
        self.wire -= frame.wire;
        self.memory.0 -= frame.memory.0;
        self.ends.head = frame.next;
        frame
    }

    /// Brings the next frame of a line to the front whose first was removed, and which looks empty.
    /// Returns whether there is one.
    #[inline(always)]
    pub(super) fn advance<F>(&mut self, store: &mut Store<F>) -> bool {
        match self.ends.behind.queues() {
            Some(queues) => {
                self.advance_by_flow(store, queues);
                true
            }
            None => false,
        }
    }

    #[inline(never)]
    fn advance_by_flow<F>(&mut self, store: &mut Store<F>, queues: QueuesIndex) {
        let (places, flows) = store.parts_mut();
        self.ends.head = flows.at_mut(queues).next(places, &mut self.control);
        self.unite(store, queues);
    }

    /// Makes a list of the frames behind the first, if they need no queues by flow any more.
    fn unite<F>(&mut self, store: &mut Store<F>, queues: QueuesIndex) {
        let Some(list) = store.flows.end(queues) else {
            return;
        };
        self.ends.behind = list.behind;
        store.at_mut(self.ends.head).next = list.head;
        self.ends.tail = if list.head.is_none() {
            self.ends.head
        } else {
            list.tail
        };
    }

    /// Removes the frame behind the first, or the first of the largest flow there, if there is one:
    /// the first of the line may have been released.
    pub(super) fn pop_second<F>(&mut self, store: &mut Store<F>) -> Option<FrameIndex> {
        if let Some(queues) = self.ends.behind.queues() {
            let (places, flows) = store.parts_mut();
            let index = flows.at_mut(queues).remove_of_largest(places)?;
            let frame = &places[index];
            self.wire -= frame.wire;
            self.memory.0 -= frame.memory.0;
            self.unite(store, queues);
            return Some(index);
        }
        let index = store.at(self.ends.head).next;
        if index.is_none() {
            return None;
        }
        let frame = store.at(index);
        let behind = frame.next;
        self.wire -= frame.wire;
        self.memory.0 -= frame.memory.0;
        store.at_mut(self.ends.head).next = behind;
        if behind.is_none() {
            self.ends.tail = self.ends.head;
        }
        Some(index)
    }

    /// Removes the first frame, which was dropped, and brings the next one of its flow to the front.
    /// Without one, a line by flow looks empty until [`Line::advance`].
    fn drop_first<F>(&mut self, store: &mut Store<F>) {
        let wire = self.pop(store).wire;
        if let Some(queues) = self.ends.behind.queues()
            && self.ends.head.is_none()
        {
            let (places, flows) = store.parts_mut();
            if let Some(next) = flows.at_mut(queues).replace(places, wire) {
                self.ends.head = next;
                self.unite(store, queues);
            }
        }
    }

    /// Links all frames, each flow's in order, and returns the first. The line is then empty.
    pub(super) fn take_all<F>(&mut self, store: &mut Store<F>) -> FrameIndex {
        let first = self.ends.head;
        if let Some(queues) = self.ends.behind.queues() {
            let (places, flows) = store.parts_mut();
            flows.link(queues, places, first);
        }
        self.ends = Ends::EMPTY;
        (self.wire, self.memory) = (WireBytes::ZERO, Bytes(0));
        first
    }

    /// Moves the frames of `of` that belong to this line over to it, in order.
    pub(super) fn take_from<F: Frame>(
        &mut self,
        store: &mut Store<F>,
        of: &mut Self,
        is_mine: impl Fn(&F) -> bool,
    ) {
        let mut index = of.take_all(store);
        while index.is_some() {
            let waiting = store.at_mut(index);
            let next = mem::replace(&mut waiting.next, FrameIndex::NONE);
            let size = (waiting.wire, waiting.memory);
            let mine = waiting.frame.as_ref().is_some_and(&is_mine);
            let flow = store.flow_at(index);
            if mine {
                self.push(store, index, size, flow);
            } else {
                of.push(store, index, size, flow);
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
        drop: impl FnMut(&mut Store<F>, FrameIndex),
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
        if self.is_empty() {
            self.advance(store);
        }
        marked
    }
}

/// Puts the frame in front of a line again that was removed last, and returns its length.
pub(super) fn put_back<F>(line: &mut Line, store: &Store<F>, index: FrameIndex) -> WireBytes {
    let frame = store.at(index);
    line.wire += frame.wire;
    line.memory.0 += frame.memory.0;
    line.ends.head = index;
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

impl<F: Frame, D: FnMut(&mut Store<F>, FrameIndex)> Judged for CodelLine<'_, F, D> {
    fn head(&self) -> Option<(Nanos, u64)> {
        if self.line.is_empty() {
            return None;
        }
        let head = self.store.at(self.line.head());
        let behind = match self.line.ends.behind.queues() {
            Some(queues) => self.store.flows.at(queues).behind(),
            None => self.line.wire - head.wire,
        };
        Some((head.enqueued, behind.0))
    }

    fn drop_head(&mut self) {
        let index = self.line.head();
        self.line.drop_first(self.store);
        (self.drop)(self.store, index);
    }

    fn mark_head(&mut self) -> bool {
        let head = self.store.at_mut(self.line.head()).frame.as_mut();
        let marked = head.is_some_and(Frame::mark_congestion);
        self.marked += u64::from(marked);
        marked || !self.may_drop
    }

    fn mark_scalable_head(&mut self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::store::Arrival;
    use super::*;
    use crate::testing::Record;
    use crate::{FlowKey, GuestId};
    use tailbound_units::Rate;
    use tailbound_units::exact::TokenBucket;

    /// A flow keeps its turn after `CoDel` dropped its frame: frame 5 leaves in place of frame 4.
    #[test]
    fn a_dropped_frame_costs_its_flow_no_turn() {
        let key = FlowKey {
            source: GuestId::first(0),
            destination: 1,
        };
        let rate = Rate::from_mbit(1_000);
        let bucket = TokenBucket::on_wire(rate, rate, WireBytes(30_000)).expect("short");
        let limit = Limit::new(key, bucket, None, WireBytes::ZERO);
        let mut line = Line::new(GuestIndex::new(0), 1, Some(limit));
        let mut store = Store::new();
        let size = (WireBytes(1_538), Bytes(1_514));
        for id in 0..7 {
            let record = Record {
                connection: u32::from(id >= 4) << 28,
                ..Record::new(id, 0, 1_514)
            };
            let flow = record.connection();
            let arrival = Arrival {
                enqueued: Nanos::ZERO,
                at: Position::ZERO,
            };
            let place = store.place(record, size, arrival);
            line.push(&mut store, place, size, flow);
        }
        let mut left = Vec::new();
        while !line.is_empty() {
            let head = line.head();
            if left == [0] {
                line.drop_first(&mut store);
            } else {
                line.pop(&store);
            }
            if line.is_empty() {
                line.advance(&mut store);
            }
            left.push(store.take(head).expect("a frame").id);
        }
        assert_eq!(left, [0, 4, 5, 1, 6, 2, 3]);
    }

    /// A tenth of the link: the 500 bytes behind the change are 50.
    #[test]
    fn the_release_of_a_frame_that_is_to_depart_follows_the_wire() {
        let change = RateChange {
            at: Position(100),
            start: Position(200),
            old: Rate::from_mbit(10_000),
            new: Rate::from_mbit(1_000),
        };
        for (stage, before, after) in [
            (Stage::Released, 600, 150),
            (Stage::Released, 200, 200),
            (Stage::Limited, 600, 600),
        ] {
            let mut line = Line::new(GuestIndex::new(0), 1, None);
            (line.stage, line.release) = (stage, Position(before));
            line.translate_release(&change);
            assert_eq!(line.release, Position(after), "{stage:?}");
        }
    }
}
