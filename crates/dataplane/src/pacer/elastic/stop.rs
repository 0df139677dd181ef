//! End of elastic flows: a flow is held for `drain`, and continues as guaranteed.

use super::super::core::Core;
use super::super::flows::{Elastic, Phase, carried};
use super::super::index::{FlowIndex, FlowsIndex, FrameIndex, GuestIndex, LineIndex};
use super::super::line::Stage;
use super::super::room::Room;
use crate::Frame;
use tailbound_units::{Position, WireBytes};

/// Maximum number of held frames that join their lines in one call.
const JOIN: usize = 256;

/// Maximum number of guests that one call checks for getting less than B.
const ASKED: usize = 16;

/// The timers of elastic flows, and the return of their frames to lines.
pub(in super::super) struct Settlement<'p, F> {
    pub(in super::super) core: &'p mut Core<F>,
    pub(in super::super) elastic: &'p mut Elastic,
}

impl<F: Frame> Settlement<'_, F> {
    fn room(&mut self) -> Room<'_, F> {
        Room {
            core: self.core,
            elastic: self.elastic,
        }
    }

    /// Stops a flow at the arrival of a frame, if its own rate has conformed.
    pub(super) fn stop_where_it_conforms(
        &mut self,
        number: GuestIndex,
        index: FlowIndex,
        now: Position,
    ) {
        let guest = self.core.guests.at_mut(number);
        let (drain, link) = (
            self.elastic.times.drain,
            u128::from(self.core.config.link.0),
        );
        let rate = u128::from(guest.guarantee.bandwidth.0);
        let slot = guest.elastic.flows;
        let flows = &mut self.elastic.all[slot];
        let elastic = flows.elastic() as u128;
        let flow = &mut flows.members[index];
        let passed = now.since(flow.since);
        let earned = u128::from(passed.0) * rate;
        let burst = u128::from(guest.guarantee.burst.0) * link;
        if flow.phase != Phase::Elastic || passed < drain || earned < burst {
            return;
        }
        let came = std::mem::take(&mut flow.came);
        flow.since = now;
        if u128::from(came.0) * link * elastic > earned {
            return;
        }
        flow.stop(drain);
        let until = flow.left.saturating_add(drain);
        self.elastic.wake(slot, until);
        if !self.elastic.all[slot].is_waiting() {
            self.elastic.deactivate(slot);
        }
    }

    /// Processes expired timers at `now`: adds held frames to their lines, forgets flows that are
    /// over, and stops flows that get too little.
    pub(in super::super) fn settle(&mut self, now: Position) {
        while let Some(slot) = self.elastic.due(now) {
            self.settle_flows(slot, now);
        }
        for _ in 0..ASKED.min(self.elastic.active.len()) {
            let elastic = &mut *self.elastic;
            elastic.asked += 1;
            let Some(&slot) = elastic
                .active
                .get(elastic.asked % elastic.active.len().max(1))
            else {
                return;
            };
            if self.gets_too_little(slot) {
                self.pause_elastic(slot, now);
            }
        }
    }

    fn settle_flows(&mut self, slot: FlowsIndex, now: Position) {
        let drain = self.elastic.times.drain;
        let (mut number, mut left, mut next) = (0, JOIN, Position::NEVER);
        while let index = FlowIndex::new(number)
            && let Some(flow) = self.elastic.all[slot].members.get(index)
        {
            if let Phase::Draining { until } = flow.phase
                && until <= now
                && !flow.frames.is_empty()
            {
                self.join_lines(slot, index, &mut left);
                let until = now + self.elastic.times.pause;
                let flow = &mut self.elastic.all[slot].members[index];
                if flow.frames.is_empty() {
                    flow.phase = Phase::Guaranteed { until };
                }
            }
            let flow = &self.elastic.all[slot].members[index];
            if flow.is_over(now, drain) {
                self.elastic.all[slot].members.swap_remove(index);
                continue;
            }
            next = next.min(match flow.phase {
                Phase::Draining { until } | Phase::Guaranteed { until } => {
                    until.max(now + WireBytes(1))
                }
                Phase::Elastic if flow.frames.is_empty() => flow.left + drain,
                Phase::Elastic => Position::NEVER,
            });
            number += 1;
        }
        // Frames that waited for the guest's limit may have room now.
        self.elastic.activate(slot, carried(&self.core.chain.stats));
        let flows = &self.elastic.all[slot];
        let number = flows.guest;
        if flows.members.is_empty() {
            if let Some(guest) = self.core.guests.get_mut(number)
                && guest.elastic.flows == slot
            {
                self.elastic.vacate(&mut guest.elastic);
            }
        } else if next < Position::NEVER {
            self.elastic.wake(slot, next);
        }
    }

    /// Adds held frames of a flow to their line, at most `most` of them.
    fn join_lines(&mut self, slot: FlowsIndex, index: FlowIndex, most: &mut usize) {
        while *most > 0
            && let Some((number, line)) = self.join_line(slot, index)
        {
            *most -= 1;
            self.room().trim(line);
            let memory = self.core.lines.at(line).memory;
            let guest = self.core.guests.at_mut(number);
            if memory > guest.backlog.half_share() || guest.backlog.is_crowded() {
                self.room().handle_crowd(line);
            }
        }
    }

    /// Adds the first held frame of a flow to its line, and returns the guest and the line.
    fn join_line(&mut self, slot: FlowsIndex, index: FlowIndex) -> Option<(GuestIndex, LineIndex)> {
        let start = self.core.chain.wire.start();
        let Core {
            guests,
            lines,
            chain,
            ..
        } = &mut *self.core;
        let elastic = &mut *self.elastic;
        let flows = &mut elastic.all[slot];
        let number = flows.guest;
        let guest = guests.get_mut(number)?;
        let flow = &mut flows.members[index];
        let place = flow.frames.head();
        if place.is_none() {
            return None;
        }
        flow.frames.pop(&chain.store);
        let waiting = chain.store.at_mut(place);
        waiting.next = FrameIndex::NONE;
        waiting.arrival = start;
        let size = (waiting.wire, waiting.memory);
        flows.memory.0 -= size.1.0;
        let index = lines.of_frame(guest, waiting.frame.as_ref()?);
        let line = lines.at_mut(index);
        line.push(&mut chain.store, place, size, flow.connection);
        match line.stage {
            Stage::Empty => {
                guest.lines.busy += 1;
                chain.set_head((guest, line), index, start);
            }
            Stage::Released => guest.backlog.released += size.0,
            Stage::Limited | Stage::Closed | Stage::InTree => {}
        }
        Some((number, index))
    }

    /// Checks whether the frames of a guest's elastic flows wait while the wire carries other
    /// frames, so that they get less than B. Time is counted in bytes that the wire carries, so
    /// that delays of the host do not count.
    fn gets_too_little(&mut self, slot: FlowsIndex) -> bool {
        let carried = carried(&self.core.chain.stats);
        let flows = &mut self.elastic.all[slot];
        let guest = self.core.guests.at_mut(flows.guest);
        let rate = u128::from(guest.guarantee.bandwidth.0);
        let link = u128::from(self.core.config.link.0);
        let earned = u128::from((carried - flows.since).0) * rate;
        let got = u128::from(flows.served.0) * link;
        if got >= earned {
            (flows.since, flows.served) = (carried, WireBytes::ZERO);
            return false;
        }
        earned - got > u128::from(self.elastic.times.patience.0) * rate
    }

    /// Stops all elastic flows of a guest, and allows none for a pause.
    fn pause_elastic(&mut self, slot: FlowsIndex, now: Position) {
        let drain = self.elastic.times.drain;
        let flows = &mut self.elastic.all[slot];
        let mut first = Position::NEVER;
        for flow in flows.members.iter_mut() {
            flow.stop(drain);
            first = first.min(flow.left.saturating_add(drain));
        }
        let number = flows.guest;
        self.elastic.deactivate(slot);
        self.elastic.wake(slot, first.max(now + WireBytes(1)));
        let (least, most) = (self.elastic.times.pause, self.elastic.times.most_pause);
        let terms = &mut self.core.guests.at_mut(number).elastic;
        let was_worth_it = now.since(terms.began) > terms.pause;
        terms.pause = if was_worth_it {
            least
        } else {
            (terms.pause * 2).min(most)
        };
        terms.not_before = now + drain + terms.pause;
    }
}
