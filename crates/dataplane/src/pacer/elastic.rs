//! Elastic flows: what guests send beyond their guarantees while the wire is idle.
//!
//! A flow, the frames of one connection ([`Frame::connection`]), is guaranteed or elastic,
//! never both at once. It starts guaranteed.
//!
//! - **It becomes elastic** (`begin`) where no frame with a departure time is due on the
//!   wire, nothing without a guarantee waits, and frames of its guest wait for {B, S}: then
//!   the flow of which the most bytes wait for that leaves its line with all its frames.
//! - **While it is** (`pass`) its frames leave in the lowest class, behind all that waits
//!   without a guarantee. They are charged to neither {B, S} nor {`B_i`, S}, what was
//!   charged for those that waited is given back, and they are no demand
//!   ([`super::Pacer::destinations_used`]): the burst stays whole for its guest's others.
//! - **It stops** (`stop`) where its own rate conforms again: over the last `drain`, or S / B
//!   where that is longer, at most B divided by its guest's elastic flows came. All of a
//!   guest's stop where their frames wait while the wire carries others', so that they get
//!   less than B; and such a guest's begin again only after a pause, twice as long as the
//!   one before, so that a guest gets no less than B for long by trying for more.
//! - **Then its frames are held** for `drain` from where the last elastic one ends on the
//!   wire, and join their line. So they overtake what stays in the network for longer
//!   than that, and nothing else. The flow is guaranteed for a while then, also where it
//!   waits for {B, S}: what was held may be more than the burst.
//!
//! A guest that has a limit is held to it here (`cap`): its elastic frames wait for that, too.
//! A flow begins where the limit has room.
//!
//! Frames to guests of this host are never elastic, as no wire carries them, and those to
//! groups neither, as switches multiply them.
//!
//! What this costs is bounded, whatever guests do. A guest has [`MOST_FLOWS`] such flows,
//! whose frames hold at most what those of one line may, those in front are dropped, and
//! each flow has a `CoDel` of its own. To find a flow takes a look at [`FRAMES`] frames at
//! most, and [`LOOK`] must pass for each before the next one is looked for.

mod begin;
mod pass;
mod stop;
mod tally;

use super::guest::{Guest, Terms};
use super::line::Line;
use super::store::NIL;
#[cfg(test)]
use super::store::Store;
use super::{PacerConfig, PacerStats};
use crate::{Connection, Frame};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use tailbound_units::{Bytes, Nanos, Position, WireBytes};
use tally::Tally;

/// How many flows of a guest may be elastic at once: others wait for {B, S}.
pub(super) const MOST_FLOWS: usize = 32;

/// How many waiting frames of a guest are looked at for its largest flow. A line of which
/// not all are is passed over until it is shorter.
const FRAMES: usize = 4096;

/// How long nothing is looked for after a look at one frame: one hundredth to one tenth of
/// a processor's time is spent so at most.
const LOOK: Nanos = Nanos(500);

/// How long others may have the wire, in time that it is busy, beyond what leaves a guest B.
const PATIENCE: Nanos = Nanos::from_micros(500);

/// The first pause after a guest's elastic flows stopped as they got less than B, and the
/// longest one.
const PAUSE: Nanos = Nanos::from_millis(10);
const MOST_PAUSE: Nanos = Nanos::from_secs(1);

/// The flow of a frame, which is its connection; `None` where that is never elastic.
fn flow_of(frame: &impl Frame) -> Option<Connection> {
    (!frame.is_local() && !frame.is_multicast()).then(|| frame.connection())
}

/// What is done with a flow's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// They leave in the lowest class as soon as the wire has room.
    Elastic,
    /// They are held until then, and join their line.
    Draining { until: Position },
    /// They are guaranteed, and the flow is not to be elastic again before: what was held
    /// is more than its guest's burst, and is to be worked off.
    Guaranteed { until: Position },
}

/// A flow that is elastic, or was until a moment ago.
#[derive(Debug)]
struct Flow {
    connection: Connection,
    phase: Phase,
    /// Its frames. They are in no line of the guest's.
    frames: Line,
    /// Where its last elastic frame ends on the wire, or where it became elastic.
    left: Position,
    /// What came of it from a moment on.
    since: Position,
    came: WireBytes,
}

impl Flow {
    fn new(connection: Connection, (number, guest): (u32, &Guest), at: Position) -> Self {
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

    /// Whether it has frames that may leave.
    fn is_waiting(&self) -> bool {
        self.phase == Phase::Elastic && !self.frames.is_empty()
    }

    /// Whether it can be forgotten: it has had no frame for so long that the next may be
    /// guaranteed at once, or has been guaranteed for long enough.
    fn is_over(&self, now: Position, drain: WireBytes) -> bool {
        let until = match self.phase {
            Phase::Elastic | Phase::Draining { .. } => self.left.saturating_add(drain),
            Phase::Guaranteed { until } => until,
        };
        self.frames.is_empty() && until <= now
    }

    /// Lets it be elastic no longer.
    fn stop(&mut self, drain: WireBytes) {
        if self.phase == Phase::Elastic {
            let until = self.left.saturating_add(drain);
            self.phase = Phase::Draining { until };
        }
    }
}

/// Those of one guest.
#[derive(Debug)]
pub(super) struct Flows {
    guest: u32,
    members: Vec<Flow>,
    /// The memory that all their frames hold.
    memory: Bytes,
    /// The one whose turn it is.
    turn: usize,
    /// What the guest may send in its turn.
    deficit: i64,
    /// Whether it is among those whose frames may leave.
    is_active: bool,
    /// What is looked at again first.
    timer: Position,
    /// What the wire has carried since a moment, of all and of these.
    since: WireBytes,
    served: WireBytes,
}

impl Flows {
    /// Lets frames of each wait for so long at least before they have waited too long.
    fn set_target(&mut self, target: Nanos) {
        for flow in &mut self.members {
            flow.frames.target = target;
        }
    }

    fn find(&self, connection: Connection) -> Option<usize> {
        let mut flows = self.members.iter();
        flows.position(|flow| flow.connection == connection)
    }

    fn is_waiting(&self) -> bool {
        self.members.iter().any(Flow::is_waiting)
    }

    /// How many are elastic.
    fn elastic(&self) -> usize {
        let phases = self.members.iter().map(|flow| flow.phase);
        phases.filter(|phase| *phase == Phase::Elastic).count()
    }

    /// Whether there is room for another one, where those are forgotten that can be.
    fn has_room(&self, now: Position, drain: WireBytes) -> bool {
        let is_needless = |flow: &Flow| {
            flow.is_over(now, drain) || matches!(flow.phase, Phase::Guaranteed { .. })
        };
        self.members.len() < MOST_FLOWS || self.members.iter().any(is_needless)
    }
}

/// What all guests' elastic flows share.
#[derive(Debug)]
pub(super) struct Elastic {
    /// `drain`, [`PATIENCE`] and the pauses in bytes of the wire.
    drain: WireBytes,
    patience: WireBytes,
    pause: WireBytes,
    most_pause: WireBytes,
    /// By slot; those that no guest has are empty.
    all: Vec<Flows>,
    free: Vec<u32>,
    /// Guests whose frames may leave, in the order of their turns.
    active: VecDeque<u32>,
    /// Which of these is asked next whether it gets less than B.
    asked: usize,
    /// What is to be looked at again, and when; also what has become needless.
    timers: BinaryHeap<Reverse<(Position, u32)>>,
    /// Which guest is asked next whether it waits for {B, S}, and from when on.
    candidate: usize,
    not_before: Position,
    tally: Tally,
    /// How many frames were looked at.
    #[cfg(test)]
    pub(super) looked: u64,
}

impl Elastic {
    pub(super) fn new(config: &PacerConfig) -> Self {
        let mut new = Self {
            drain: WireBytes::ZERO,
            patience: WireBytes::ZERO,
            pause: WireBytes::ZERO,
            most_pause: WireBytes::ZERO,
            all: Vec::new(),
            free: Vec::new(),
            active: VecDeque::new(),
            asked: 0,
            timers: BinaryHeap::new(),
            candidate: 0,
            not_before: Position::ZERO,
            tally: Tally::new(),
            #[cfg(test)]
            looked: 0,
        };
        new.configure(config);
        new
    }

    fn configure(&mut self, config: &PacerConfig) {
        let length = |time| WireBytes::from(config.link.bytes_in(time));
        self.drain = length(config.drain);
        // A few frames on a slow wire.
        self.patience = length(PATIENCE).max(config.longest_frame() * 4);
        self.pause = length(PAUSE).max(self.drain * 8);
        self.most_pause = length(MOST_PAUSE).max(self.drain * 64);
    }

    /// Goes on under another configuration, on a wire that is at `at`: flows count as if
    /// their frames had just left. None stays elastic where none may be.
    pub(super) fn reconfigure(&mut self, config: &PacerConfig, at: Position) {
        self.configure(config);
        self.timers.clear();
        self.not_before = at;
        for slot in 0..self.all.len() as u32 {
            let flows = &mut self.all[slot as usize];
            flows.timer = Position::NEVER;
            if flows.members.is_empty() {
                continue;
            }
            for flow in &mut flows.members {
                (flow.left, flow.since, flow.came) = (at, at, WireBytes::ZERO);
                let until = at.saturating_add(self.drain);
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
            self.wake(slot, at.saturating_add(self.drain));
        }
    }

    /// Whether anything of it waits, for the wire or for a moment.
    #[inline(always)]
    pub(super) fn is_busy(&self) -> bool {
        !self.active.is_empty() || !self.timers.is_empty()
    }

    /// Whether frames may leave.
    pub(super) fn is_waiting(&self) -> bool {
        !self.active.is_empty()
    }

    /// When something is to be looked at again.
    pub(super) fn timer(&self) -> Option<Position> {
        let Reverse((at, _)) = self.timers.peek()?;
        Some(*at)
    }

    /// How many of a guest's flows are elastic.
    pub(super) fn count(&self, terms: &Terms) -> usize {
        let flows = self.all.get(terms.slot as usize);
        flows.map_or(0, Flows::elastic)
    }

    /// The memory that frames of a guest's flows hold.
    pub(super) fn memory(&self, terms: &Terms) -> Bytes {
        let flows = self.all.get(terms.slot as usize);
        flows.map_or(Bytes(0), |flows| flows.memory)
    }

    /// A slot for a guest that has none.
    fn occupy(&mut self, guest: u32) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.all[slot as usize].guest = guest;
            return slot;
        }
        self.all.push(Flows {
            guest,
            members: Vec::with_capacity(MOST_FLOWS),
            memory: Bytes(0),
            turn: 0,
            deficit: 0,
            is_active: false,
            timer: Position::NEVER,
            since: WireBytes::ZERO,
            served: WireBytes::ZERO,
        });
        self.all.len() as u32 - 1
    }

    /// Takes a slot back whose guest has no such flow any more.
    fn vacate(&mut self, terms: &mut Terms) {
        let slot = std::mem::replace(&mut terms.slot, NIL);
        self.deactivate(slot);
        let flows = &mut self.all[slot as usize];
        debug_assert!(flows.members.is_empty(), "frames would be lost");
        flows.timer = Position::NEVER;
        self.free.push(slot);
    }

    /// Lets frames of a guest leave, where some may.
    fn activate(&mut self, slot: u32, carried: WireBytes) {
        let flows = &mut self.all[slot as usize];
        if !flows.is_active && flows.is_waiting() {
            flows.is_active = true;
            (flows.since, flows.served) = (carried, WireBytes::ZERO);
            self.active.push_back(slot);
        }
    }

    fn deactivate(&mut self, slot: u32) {
        let flows = &mut self.all[slot as usize];
        flows.deficit = 0;
        if std::mem::replace(&mut flows.is_active, false) {
            self.active.retain(|one| *one != slot);
        }
    }

    /// Looks at a guest's flows again at `at`.
    fn wake(&mut self, slot: u32, at: Position) {
        let flows = &mut self.all[slot as usize];
        if at < flows.timer {
            flows.timer = at;
            self.timers.push(Reverse((at, slot)));
        }
    }

    /// A guest whose flows are to be looked at by now.
    fn due(&mut self, now: Position) -> Option<u32> {
        let Reverse((at, slot)) = *self.timers.peek()?;
        if at > now {
            return None;
        }
        self.timers.pop();
        self.all[slot as usize].timer = Position::NEVER;
        Some(slot)
    }

    /// The places of all frames of a guest's flows, each flow's in order.
    #[cfg(test)]
    pub(super) fn places<F>(&self, terms: &Terms, store: &Store<F>) -> Vec<Vec<u32>> {
        let flows = self.all.get(terms.slot as usize);
        let flows = flows.map_or(&[][..], |flows| &flows.members);
        let places = |flow: &Flow| {
            let first = Some(flow.frames.head()).filter(|place| *place != NIL);
            let next = |place: &u32| Some(store.at(*place).next).filter(|next| *next != NIL);
            std::iter::successors(first, next).collect()
        };
        flows.iter().map(places).collect()
    }
}

/// What the wire has carried, voids not counted.
fn carried(stats: &PacerStats) -> WireBytes {
    stats.guaranteed.bytes + stats.best_effort.bytes + stats.elastic.bytes
}
