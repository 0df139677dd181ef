//! Arrival and departure of the frames of elastic flows.

use super::super::chain::Chain;
use super::super::core::Core;
use super::super::flows::{Elastic, Phase, carried, flow_of};
use super::super::index::{FlowIndex, GuestIndex, LineIndex};
use super::super::item::WireItem;
use super::super::room::Room;
use super::super::store::Arrival;
use super::begin::Selection;
use super::stop::Settlement;
use crate::{Connection, Frame};
use tailbound_units::{Nanos, Position};

/// The path of elastic frames through the pacer.
pub(in super::super) struct ElasticPath<'p, F> {
    pub(in super::super) core: &'p mut Core<F>,
    pub(in super::super) elastic: &'p mut Elastic,
}

impl<F: Frame> ElasticPath<'_, F> {
    /// Takes in a frame of a guest that has elastic flows, if it belongs to one of these. Returns
    /// another one, which joins `line`.
    pub(in super::super) fn push(
        &mut self,
        line: LineIndex,
        frame: F,
        arrival: Arrival,
    ) -> Option<F> {
        let position = self.core.chain.wire.position();
        let guest = self.core.lines.at(line).guest;
        let flow = flow_of(&frame);
        let Some(flow) = flow.and_then(|flow| self.elastic_flow(guest, flow, position)) else {
            return Some(frame);
        };
        self.push_elastic(guest, flow, frame, arrival);
        None
    }

    /// Returns the elastic flow of the guest that an arriving frame belongs to; `None` for a
    /// guaranteed frame. Stops the flow first if it conforms.
    fn elastic_flow(
        &mut self,
        number: GuestIndex,
        of: Connection,
        now: Position,
    ) -> Option<FlowIndex> {
        let guest = self.core.guests.get_mut(number)?;
        let slot = guest.elastic.flows;
        let drain = self.elastic.times.drain;
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
        let (core, elastic) = (&mut *self.core, &mut *self.elastic);
        Settlement { core, elastic }.stop_where_it_conforms(number, index, now);
        Some(index)
    }

    /// Adds a frame, or all its segments, to an elastic flow.
    fn push_elastic(&mut self, number: GuestIndex, index: FlowIndex, frame: F, arrival: Arrival) {
        let longest = self.core.config.longest_frame();
        let Core { guests, chain, .. } = &mut *self.core;
        let elastic = &mut *self.elastic;
        let guest = guests.at_mut(number);
        let slot = guest.elastic.flows;
        let flows = &mut elastic.all[slot];
        let flow = &mut flows.members[index];
        frame.segment(|frame| {
            let size = Chain::size(&frame);
            if size.0 > longest {
                return chain.count_oversized(guest);
            }
            let place = chain.store.place(frame, size, arrival);
            if flows.memory.0 > guest.backlog.share().0 / 2 {
                chain.mark(guest, place);
            }
            let connection = flow.connection;
            flow.frames.push(&mut chain.store, place, size, connection);
            flow.came += size.0;
            flows.memory.0 += size.1.0;
            guest.backlog.memory.0 += size.1.0;
            guest.stats.taken.packets += 1;
            guest.stats.taken.bytes += size.0;
        });
        elastic.activate(slot, carried(&chain.stats));
        let (core, elastic) = (&mut *self.core, &mut *self.elastic);
        Room { core, elastic }.trim_elastic(number);
    }

    /// Passes on the next frame of an elastic flow from `at` on, if no other frame must leave, and
    /// returns its end. If no elastic frame waits, another flow may become elastic.
    pub(in super::super) fn pull(
        &mut self,
        now: Nanos,
        at: Position,
        sink: &mut impl FnMut(WireItem<F>),
    ) -> Option<Position> {
        loop {
            if !self.elastic.is_waiting() && !self.select(at) {
                return None;
            }
            if self.core.chain.departures.first() <= at {
                // The frame that would have left before now belongs to another flow.
                return Some(at);
            }
            if let Some(end) = self.send_first_elastic(now, at, sink) {
                return Some(end);
            }
        }
    }

    /// Makes another flow elastic, if one waits for {B, S}.
    fn select(&mut self, at: Position) -> bool {
        let (core, elastic) = (&mut *self.core, &mut *self.elastic);
        Selection { core, elastic }.begin(at)
    }

    /// Passes on a frame of the guest whose turn it is. `None` if the guest has no frame that may
    /// leave.
    fn send_first_elastic(
        &mut self,
        now: Nanos,
        at: Position,
        sink: &mut impl FnMut(WireItem<F>),
    ) -> Option<Position> {
        let longest = self.core.config.longest_frame();
        let Core { guests, chain, .. } = &mut *self.core;
        let elastic = &mut *self.elastic;
        let slot = elastic.first_in_turn(longest)?;
        let flows = &mut elastic.all[slot];
        let number = flows.guest;
        let guest = guests.get_mut(number)?;
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
        guest.backlog.memory.0 -= memory.0;
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
        if !guest.backlog.is_read() {
            self.core.read_again(number);
        }
        sink(WireItem::Elastic { frame, at, sojourn });
        Some(end)
    }
}
