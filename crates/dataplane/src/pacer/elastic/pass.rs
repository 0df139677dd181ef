//! Arrival and departure of the frames of elastic flows.

use super::super::chain::Chain;
use super::super::guest::{self, Guest, Ring};
use super::super::index::{FlowIndex, FlowsIndex, FrameIndex, GuestIndex, LineIndex};
use super::super::store::Arrival;
use super::super::{Pacer, WireItem};
use super::{Flows, Phase, carried, flow_of};
use crate::{Connection, Frame};
use tailbound_units::{Bytes, Nanos, Position, WireBytes};

impl<F: Frame> Pacer<F> {
    /// Takes in a frame of a guest that has elastic flows: a frame of one of these, or another one,
    /// which joins `line`.
    #[inline(never)]
    pub(in super::super) fn enqueue_beside_elastic(
        &mut self,
        line: LineIndex,
        frame: F,
        arrival: Arrival,
    ) {
        let position = self.chain.position;
        let guest = self.lines.at(line).guest;
        let flow = flow_of(&frame);
        if let Some(flow) = flow.and_then(|flow| self.elastic_flow(guest, flow, position)) {
            self.push_elastic(guest, flow, frame, arrival);
        } else {
            self.take(line, frame, arrival);
        }
    }

    /// Returns the elastic flow of the guest that an arriving frame belongs to; `None` for a
    /// guaranteed frame. Stops the flow first if it conforms.
    fn elastic_flow(
        &mut self,
        number: GuestIndex,
        of: Connection,
        now: Position,
    ) -> Option<FlowIndex> {
        let guest = self.guests.get_mut(number)?.as_mut()?;
        let slot = guest.elastic.flows;
        let drain = self.elastic.drain;
        let flows = self.elastic.all.get_mut(slot)?;
        let index = flows.find(of)?;
        if flows.members[index].is_over(now, drain) {
            flows.members.swap_remove(index);
            if flows.members.is_empty() {
                self.elastic.vacate(&mut guest.elastic);
            }
            return None;
        }
        if matches!(flows.members[index].phase, Phase::Guaranteed { .. }) {
            return None;
        }
        self.stop_where_it_conforms(number, index, now);
        Some(index)
    }

    /// Adds a frame, or all its segments, to an elastic flow.
    fn push_elastic(&mut self, number: GuestIndex, index: FlowIndex, frame: F, arrival: Arrival) {
        let longest = self.config.longest_frame();
        let Self {
            guests,
            chain,
            elastic,
            ..
        } = self;
        let guest = guest::of_slot(guests, number);
        let slot = guest.elastic.flows;
        let flows = &mut elastic.all[slot];
        let flow = &mut flows.members[index];
        frame.segment(|frame| {
            let size = Chain::size(&frame);
            if size.0 > longest {
                return chain.count_oversized(guest);
            }
            let place = chain.store.place(frame, size, arrival);
            if flows.memory.0 > guest.share.0 / 2 {
                chain.mark(guest, place);
            }
            let connection = flow.connection;
            flow.frames.push(&mut chain.store, place, size, connection);
            flow.came += size.0;
            flows.memory.0 += size.1.0;
            guest.memory.0 += size.1.0;
            guest.stats.taken.packets += 1;
            guest.stats.taken.bytes += size.0;
        });
        elastic.activate(slot, carried(&chain.stats));
        self.trim_elastic(number);
    }

    /// Drops frames from the front of a guest's longest elastic flows until all of them are within
    /// the share of one line, and the guest is within its bound.
    pub(super) fn trim_elastic(&mut self, number: GuestIndex) {
        let guest = guest::of_slot(&mut self.guests, number);
        let share = guest.share;
        self.drop_elastic(number, |_, flows| flows.memory > share);
        let guest = guest::of_slot(&mut self.guests, number);
        if guest.memory > guest.bound {
            self.make_room(number);
        }
    }

    /// Drops frames of elastic flows first while a guest holds more than `most`.
    #[cold]
    pub(in super::super) fn make_room_of_elastic(&mut self, number: GuestIndex, most: Bytes) {
        self.drop_elastic(number, |guest, _| guest.memory > most);
    }

    /// Drops frames from the front of a guest's longest elastic flow, while it has any and
    /// `too_much` returns true.
    fn drop_elastic(&mut self, number: GuestIndex, too_much: impl Fn(&Guest, &Flows) -> bool) {
        let Self {
            guests,
            chain,
            elastic,
            ..
        } = self;
        let guest = guest::of_slot(guests, number);
        let Some(flows) = elastic.all.get_mut(guest.elastic.flows) else {
            return;
        };
        while too_much(guest, flows)
            && let Some(flow) = flows
                .members
                .iter_mut()
                .max_by_key(|flow| flow.frames.memory)
            && !flow.frames.is_empty()
        {
            let place = flow.frames.head();
            flow.frames.pop(&chain.store);
            let memory = chain.store.at(place).memory;
            flows.memory.0 -= memory.0;
            guest.memory.0 -= memory.0;
            guest.stats.dropped += 1;
            chain.stats.drops.over_share += 1;
            drop(chain.store.take(place));
        }
        if flows.is_active && !flows.is_waiting() {
            let slot = guest.elastic.flows;
            elastic.rest(slot, chain.position);
        }
    }

    /// Passes on the next frame of an elastic flow from `at` on, if no other frame must leave, and
    /// returns its end. If no elastic frame waits, another flow may become elastic.
    #[inline(never)]
    pub(in super::super) fn send_elastic(
        &mut self,
        now: Nanos,
        at: Position,
        sink: &mut impl FnMut(WireItem<F>),
    ) -> Option<Position> {
        loop {
            if !self.elastic.is_waiting() && !self.begin_elastic(at) {
                return None;
            }
            if self.chain.departures.first() <= at {
                // The frame that would have left before now belongs to another flow.
                return Some(at);
            }
            if let Some(end) = self.send_first_elastic(now, at, sink) {
                return Some(end);
            }
        }
    }

    /// Passes on a frame of the guest whose turn it is. `None` if the guest has no frame that may
    /// leave.
    fn send_first_elastic(
        &mut self,
        now: Nanos,
        at: Position,
        sink: &mut impl FnMut(WireItem<F>),
    ) -> Option<Position> {
        let longest = self.config.longest_frame();
        let Self {
            guests,
            chain,
            elastic,
            ..
        } = self;
        let slot = elastic.first_in_turn(longest)?;
        let flows = &mut elastic.all[slot];
        let number = flows.guest;
        let guest = guests.get_mut(number)?.as_mut()?;
        if let Some(until) = guest.cap.as_ref().and_then(|cap| cap.holds_up(at)) {
            elastic.hold(slot, until);
            return None;
        }
        let Some((index, place)) = flows.pop(guest, chain, now) else {
            elastic.rest(slot, at);
            return None;
        };
        let waiting = chain.store.at(place);
        let (wire, memory) = (waiting.wire, waiting.memory);
        let sojourn = now.since(waiting.enqueued);
        let frame = chain.store.take(place)?;
        let end = at + wire;
        flows.members[index].left = end;
        flows.deficit -= wire.0.cast_signed();
        flows.served += wire;
        flows.memory.0 -= memory.0;
        guest.memory.0 -= memory.0;
        for count in [&mut guest.stats.elastic, &mut chain.stats.elastic] {
            count.packets += 1;
            count.bytes += wire;
        }
        guest.stats.sojourn = sojourn;
        if let Some(cap) = &mut guest.cap {
            cap.charge(at, frame.len());
        }
        if !flows.is_waiting() {
            elastic.rest(slot, end);
        }
        if guest.ring != Ring::Read {
            self.read_again(number);
        }
        sink(WireItem::Elastic { frame, at, sojourn });
        Some(end)
    }
}

impl<F: Frame> Pacer<F> {
    /// Changes the target of a guest's elastic flows, and checks them again, because the guest's
    /// limit has changed.
    pub(in super::super) fn hold_elastic_to(&mut self, slot: FlowsIndex, target: Nanos) {
        if let Some(flows) = self.elastic.all.get_mut(slot) {
            flows.set_target(target);
            self.elastic.activate(slot, carried(&self.chain.stats));
        }
    }
}

impl Flows {
    /// Takes out the frame whose turn it is, unless `CoDel` drops it, and returns its flow and its
    /// place.
    fn pop<F: Frame>(
        &mut self,
        guest: &mut Guest,
        chain: &mut Chain<F>,
        now: Nanos,
    ) -> Option<(FlowIndex, FrameIndex)> {
        for _ in 0..self.members.len() {
            let index = FlowIndex::new(self.turn % self.members.len());
            self.turn = index.number() + 1;
            let flow = &mut self.members[index];
            if !flow.is_waiting() {
                continue;
            }
            let head = chain.store.at(flow.frames.head());
            if flow.frames.is_late(head, guest.patience, now) {
                let before = flow.frames.memory;
                chain.judge_frames(guest, &mut flow.frames, true);
                self.memory.0 -= before.0 - flow.frames.memory.0;
            }
            let place = flow.frames.head();
            if place.is_some() {
                flow.frames.pop(&chain.store);
                return Some((index, place));
            }
        }
        None
    }
}

impl super::Elastic {
    /// Returns the guest whose turn it is: all waiting guests get the same bytes of the wire
    /// (deficit round robin, Shreedhar and Varghese, SIGCOMM 1995).
    fn first_in_turn(&mut self, longest: WireBytes) -> Option<FlowsIndex> {
        loop {
            let slot = *self.active.front()?;
            let flows = &mut self.all[slot];
            if flows.deficit > 0 {
                return Some(slot);
            }
            flows.deficit += longest.0.cast_signed();
            self.active.rotate_left(1);
        }
    }

    /// Suspends a guest's flows until its limit has room for them.
    fn hold(&mut self, slot: FlowsIndex, until: Position) {
        self.deactivate(slot);
        self.wake(slot, until);
    }

    /// Suspends a guest's flows without frames that may leave, until they can be forgotten.
    fn rest(&mut self, slot: FlowsIndex, at: Position) {
        self.deactivate(slot);
        self.wake(slot, at.saturating_add(self.drain));
    }
}
