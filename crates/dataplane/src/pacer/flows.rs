//! Elastic flows of all guests, by guest: see `elastic`.

mod tally;

use super::chain::Chain;
use super::guest::{Guest, Terms};
use super::index::{FlowIndex, FlowsIndex, FrameIndex, GuestIndex, Table};
use super::line::Line;
use super::store::Store;
use super::{PacerConfig, PacerStats};
use crate::{Connection, Frame};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use tailbound_units::{Bytes, Nanos, Position, WireBytes};
pub(super) use tally::Largest;
use tally::Tally;

/// Maximum number of elastic flows of a guest: other flows wait for {B, S}.
pub(super) const MOST_FLOWS: usize = 32;

/// Deficit of a guest below B, as time of the wire, after which its elastic flows stop.
const MAX_FOREIGN_TIME: Nanos = Nanos::from_micros(500);

/// First pause after a guest's elastic flows stopped because they got less than B; further pauses
/// are longer.
const FIRST_PAUSE: Nanos = Nanos::from_millis(10);
/// Longest of these pauses.
const MOST_PAUSE: Nanos = Nanos::from_secs(1);

/// The flow of a frame, which is its connection; `None` if the frame is never elastic.
pub(super) fn flow_of(frame: &impl Frame) -> Option<Connection> {
    (!frame.is_local() && !frame.is_multicast()).then(|| frame.connection())
}

/// Treatment of a flow's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Frames leave in the lowest class as soon as the wire has room.
    Elastic,
    /// Frames are held until this position, and then join their line.
    Draining { until: Position },
    /// Frames are guaranteed, and the flow must not become elastic before this position: the held
    /// frames exceed its guest's burst, and must leave first.
    Guaranteed { until: Position },
}

/// A flow that is elastic, or was until recently.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) connection: Connection,
    pub(super) phase: Phase,
    /// Its frames, which are in no line of the guest.
    pub(super) frames: Line,
    /// End of its last elastic frame on the wire, or the position at which it became elastic.
    pub(super) left: Position,
    /// Arrivals of the flow since this position.
    pub(super) since: Position,
    pub(super) came: WireBytes,
}

impl Flow {
    pub(super) fn new(
        connection: Connection,
        (number, guest): (GuestIndex, &Guest),
        at: Position,
    ) -> Self {
        let mut frames = Line::new(number, 1, None);
        frames.target = guest.target();
        Self {
            connection,
            phase: Phase::Elastic,
            frames,
            left: at,
            since: at,
            came: WireBytes::ZERO,
        }
    }

    /// Checks for frames that may leave.
    pub(super) fn is_waiting(&self) -> bool {
        self.phase == Phase::Elastic && !self.frames.is_empty()
    }

    /// Checks whether the flow can be forgotten: it had no frame for at least `drain`, so that the
    /// next one may be guaranteed immediately, or it has been guaranteed for the required time.
    pub(super) fn is_over(&self, now: Position, drain: WireBytes) -> bool {
        let until = match self.phase {
            Phase::Elastic | Phase::Draining { .. } => self.left.saturating_add(drain),
            Phase::Guaranteed { until } => until,
        };
        self.frames.is_empty() && until <= now
    }

    /// Stops the flow from being elastic.
    pub(super) fn stop(&mut self, drain: WireBytes) {
        if self.phase == Phase::Elastic {
            let until = self.left.saturating_add(drain);
            self.phase = Phase::Draining { until };
        }
    }
}

/// Elastic flows of one guest.
#[derive(Debug)]
pub(super) struct Flows {
    pub(super) guest: GuestIndex,
    pub(super) members: Table<FlowIndex, Flow>,
    /// The memory of all their frames.
    pub(super) memory: Bytes,
    /// Number of the flow whose turn it is, or of the first if that is beyond the last.
    pub(super) turn: usize,
    /// Bytes that the guest may send in its turn.
    pub(super) deficit: i64,
    /// True if the guest is among those with frames that may leave.
    pub(super) is_active: bool,
    /// Position of the guest's earliest timer.
    pub(super) timer: Position,
    /// Bytes that the wire has carried since `since`, of all frames and of these flows.
    pub(super) since: WireBytes,
    pub(super) served: WireBytes,
}

impl Flows {
    /// Sets the waiting time after which frames count as late in each flow.
    pub(super) fn set_target(&mut self, target: Nanos) {
        for flow in self.members.iter_mut() {
            flow.frames.target = target;
        }
    }

    pub(super) fn find(&self, connection: Connection) -> Option<FlowIndex> {
        let mut flows = self.members.iter();
        let index = flows.position(|flow| flow.connection == connection)?;
        Some(FlowIndex::new(index))
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.members.iter().any(Flow::is_waiting)
    }

    /// Takes out the frame whose turn it is, unless `CoDel` drops it, and returns its flow and its
    /// place.
    pub(super) fn pop<F: Frame>(
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

    /// Number of elastic flows.
    pub(super) fn elastic(&self) -> usize {
        let phases = self.members.iter().map(|flow| flow.phase);
        phases.filter(|phase| *phase == Phase::Elastic).count()
    }

    /// Checks whether another flow may be added, after removal of those that can be forgotten.
    pub(super) fn has_room(&self, now: Position, drain: WireBytes) -> bool {
        let is_needless = |flow: &Flow| {
            flow.is_over(now, drain) || matches!(flow.phase, Phase::Guaranteed { .. })
        };
        self.members.len() < MOST_FLOWS || self.members.iter().any(is_needless)
    }
}

/// Times of elastic flows, in bytes of the wire.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// [`PacerConfig::drain`].
    pub(super) drain: WireBytes,
    /// [`MAX_FOREIGN_TIME`].
    pub(super) patience: WireBytes,
    /// [`FIRST_PAUSE`] and [`MOST_PAUSE`].
    pub(super) pause: WireBytes,
    pub(super) most_pause: WireBytes,
}

impl Times {
    fn new(config: &PacerConfig) -> Self {
        let length = |time| WireBytes::from(config.link.bytes_in(time));
        let drain = length(config.drain);
        Self {
            drain,
            // At least a few frames, on a slow wire.
            patience: length(MAX_FOREIGN_TIME).max(config.longest_frame() * 4),
            pause: length(FIRST_PAUSE).max(drain * 8),
            most_pause: length(MOST_PAUSE).max(drain * 64),
        }
    }
}

/// State that all guests' elastic flows share.
#[derive(Debug)]
pub(super) struct Elastic {
    pub(super) times: Times,
    /// The flows of each guest; unused ones are empty.
    pub(super) all: Table<FlowsIndex, Flows>,
    pub(super) unused: Vec<FlowsIndex>,
    /// Guests whose frames may leave, in the order of their turns.
    pub(super) active: VecDeque<FlowsIndex>,
    /// Index in `active` of the next guest that is checked for getting less than B.
    pub(super) asked: usize,
    /// Timers of guests, including obsolete ones.
    pub(super) timers: BinaryHeap<Reverse<(Position, FlowsIndex)>>,
    /// The next guest that is checked for waiting for {B, S}, and the earliest position of that
    /// check.
    pub(super) candidate: GuestIndex,
    pub(super) not_before: Position,
    pub(super) tally: Tally,
    /// Number of frames that were read.
    #[cfg(test)]
    pub(super) looked: u64,
}

impl Elastic {
    pub(super) fn new(config: &PacerConfig) -> Self {
        Self {
            times: Times::new(config),
            all: Table::new(),
            unused: Vec::new(),
            active: VecDeque::new(),
            asked: 0,
            timers: BinaryHeap::new(),
            candidate: GuestIndex::new(0),
            not_before: Position::ZERO,
            tally: Tally::new(),
            #[cfg(test)]
            looked: 0,
        }
    }

    /// Changes the configuration on a wire at `at`: flows count as if their frames had just left.
    /// Without `work_conserving` no flow stays elastic.
    pub(super) fn reconfigure(&mut self, config: &PacerConfig, at: Position) {
        self.times = Times::new(config);
        self.timers.clear();
        self.not_before = at;
        for slot in self.all.indices() {
            let flows = &mut self.all[slot];
            flows.timer = Position::NEVER;
            if flows.members.is_empty() {
                continue;
            }
            for flow in flows.members.iter_mut() {
                (flow.left, flow.since, flow.came) = (at, at, WireBytes::ZERO);
                let until = at.saturating_add(self.times.drain);
                flow.phase = match flow.phase {
                    Phase::Elastic if config.work_conserving => Phase::Elastic,
                    Phase::Elastic | Phase::Draining { .. } => Phase::Draining { until },
                    Phase::Guaranteed { .. } => Phase::Guaranteed { until },
                };
            }
            let is_waiting = flows.is_waiting();
            if !is_waiting {
                self.deactivate(slot);
            }
            self.wake(slot, at.saturating_add(self.times.drain));
        }
    }

    /// Checks for flows that wait for the wire or for a timer.
    #[inline(always)]
    pub(super) fn is_busy(&self) -> bool {
        !self.active.is_empty() || !self.timers.is_empty()
    }

    /// Checks for frames that may leave.
    pub(super) fn is_waiting(&self) -> bool {
        !self.active.is_empty()
    }

    /// Position of the earliest timer.
    pub(super) fn poll_at(&self) -> Option<Position> {
        let Reverse((at, _)) = self.timers.peek()?;
        Some(*at)
    }

    /// Number of a guest's elastic flows.
    pub(super) fn count(&self, terms: &Terms) -> usize {
        let flows = self.all.get(terms.flows);
        flows.map_or(0, Flows::elastic)
    }

    /// Memory of the frames of a guest's elastic flows.
    pub(super) fn memory(&self, terms: &Terms) -> Bytes {
        let flows = self.all.get(terms.flows);
        flows.map_or(Bytes(0), |flows| flows.memory)
    }

    /// Assigns a slot to a guest.
    pub(super) fn occupy(&mut self, guest: GuestIndex) -> FlowsIndex {
        if let Some(slot) = self.unused.pop() {
            self.all[slot].guest = guest;
            return slot;
        }
        self.all.push(Flows {
            guest,
            members: Table::with_capacity(MOST_FLOWS),
            memory: Bytes(0),
            turn: 0,
            deficit: 0,
            is_active: false,
            timer: Position::NEVER,
            since: WireBytes::ZERO,
            served: WireBytes::ZERO,
        })
    }

    /// Frees the slot of a guest without flows.
    pub(super) fn vacate(&mut self, terms: &mut Terms) {
        let slot = std::mem::replace(&mut terms.flows, FlowsIndex::NONE);
        self.deactivate(slot);
        let flows = &mut self.all[slot];
        debug_assert!(flows.members.is_empty(), "frames would be lost");
        flows.timer = Position::NEVER;
        self.unused.push(slot);
    }

    /// Adds a guest to the turns, if it has frames that may leave.
    pub(super) fn activate(&mut self, slot: FlowsIndex, carried: WireBytes) {
        let flows = &mut self.all[slot];
        if !flows.is_active && flows.is_waiting() {
            flows.is_active = true;
            (flows.since, flows.served) = (carried, WireBytes::ZERO);
            self.active.push_back(slot);
        }
    }

    pub(super) fn deactivate(&mut self, slot: FlowsIndex) {
        let flows = &mut self.all[slot];
        flows.deficit = 0;
        if std::mem::replace(&mut flows.is_active, false) {
            self.active.retain(|one| *one != slot);
        }
    }

    /// Sets a guest's timer to `at`, unless it is earlier.
    pub(super) fn wake(&mut self, slot: FlowsIndex, at: Position) {
        let flows = &mut self.all[slot];
        if at < flows.timer {
            flows.timer = at;
            self.timers.push(Reverse((at, slot)));
        }
    }

    /// Returns a guest whose timer has expired.
    pub(super) fn due(&mut self, now: Position) -> Option<FlowsIndex> {
        let Reverse((at, slot)) = *self.timers.peek()?;
        if at > now {
            return None;
        }
        self.timers.pop();
        self.all[slot].timer = Position::NEVER;
        Some(slot)
    }

    /// Returns the guest whose turn it is: all waiting guests get the same bytes of the wire
    /// (deficit round robin, Shreedhar and Varghese, SIGCOMM 1995).
    pub(super) fn first_in_turn(&mut self, longest: WireBytes) -> Option<FlowsIndex> {
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
    pub(super) fn hold(&mut self, slot: FlowsIndex, until: Position) {
        self.deactivate(slot);
        self.wake(slot, until);
    }

    /// Suspends a guest's flows without frames that may leave, until they can be forgotten.
    pub(super) fn rest(&mut self, slot: FlowsIndex, at: Position) {
        self.deactivate(slot);
        self.wake(slot, at.saturating_add(self.times.drain));
    }

    /// Drops frames from the front of a guest's longest elastic flow, while it has any and
    /// `too_much` returns true.
    pub(super) fn drop_frames<F: Frame>(
        &mut self,
        guest: &mut Guest,
        chain: &mut Chain<F>,
        too_much: impl Fn(&Guest, Bytes) -> bool,
    ) {
        let Some(flows) = self.all.get_mut(guest.elastic.flows) else {
            return;
        };
        while too_much(guest, flows.memory)
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
            guest.backlog.memory.0 -= memory.0;
            guest.stats.dropped += 1;
            chain.stats.drops.over_share += 1;
            drop(chain.store.take(place));
        }
        if flows.is_active && !flows.is_waiting() {
            self.rest(guest.elastic.flows, chain.wire.position());
        }
    }

    /// Changes the target of a guest's elastic flows, and checks them again, because the guest's
    /// limit has changed.
    pub(super) fn set_target(&mut self, guest: &Guest, stats: &PacerStats) {
        let slot = guest.elastic.flows;
        if let Some(flows) = self.all.get_mut(slot) {
            flows.set_target(guest.target());
            self.activate(slot, carried(stats));
        }
    }

    /// Ends the elastic flows of a guest, and returns the places of their frames, each flow's in
    /// order.
    pub(super) fn end<F>(&mut self, terms: &mut Terms, store: &Store<F>) -> Vec<FrameIndex> {
        let mut places = Vec::new();
        let Some(flows) = self.all.get_mut(terms.flows) else {
            return places;
        };
        for flow in flows.members.iter_mut() {
            while !flow.frames.is_empty() {
                places.push(flow.frames.head());
                flow.frames.pop(store);
            }
        }
        flows.memory.0 = 0;
        flows.members.entries_mut().clear();
        self.vacate(terms);
        places
    }

    /// Returns the places of all frames of a guest's flows, each flow's in order.
    #[cfg(test)]
    pub(super) fn places<F>(&self, terms: &Terms, store: &Store<F>) -> Vec<Vec<FrameIndex>> {
        let flows = self.all.get(terms.flows);
        let flows = flows.into_iter().flat_map(|flows| flows.members.iter());
        let places = |flow: &Flow| {
            let first = Some(flow.frames.head()).filter(|place| place.is_some());
            let next =
                |place: &FrameIndex| Some(store.at(*place).next).filter(|next| next.is_some());
            std::iter::successors(first, next).collect()
        };
        flows.map(places).collect()
    }
}

/// Bytes that the wire has carried, without voids.
pub(super) fn carried(stats: &PacerStats) -> WireBytes {
    stats.guaranteed.bytes + stats.best_effort.bytes + stats.elastic.bytes
}
