//! Begin of elastic flows: selection of a flow, and removal of its frames from the paced lines.

use super::super::core::Core;
use super::super::flows::{Elastic, Flow, Largest, MOST_FLOWS, Phase, carried, flow_of};
use super::super::index::{FrameIndex, GuestIndex, LineIndex};
use super::super::line::Stage;
use super::super::room::Room;
use crate::Frame;
use tailbound_units::{Nanos, Position, WireBytes};

/// Number of guests, in addition to the first waiting ones, that one call checks for waiting for
/// {B, S}.
const GUESTS: usize = 4;

/// Maximum number of a guest's waiting frames that are read for its largest flow. A line that was
/// not read to its end is ignored until it is shorter.
pub(super) const FRAMES: usize = 4096;

/// Pause before the next search, for each frame that a search has read: searches use between 1 %
/// and 10 % of a CPU.
pub(super) const SEARCH_PAUSE_PER_FRAME: Nanos = Nanos(500);

/// Maximum number of a guest's lines that are read.
const LINES: usize = 64;

/// The search for a flow to make elastic.
pub(super) struct Selection<'p, F> {
    pub(super) core: &'p mut Core<F>,
    pub(super) elastic: &'p mut Elastic,
}

impl<F: Frame> Selection<'_, F> {
    /// Selects the largest flow of a guest that waits for {B, S}, and makes it elastic, if the wire
    /// is idle from `at` on. Returns false if there is none.
    pub(super) fn begin(&mut self, at: Position) -> bool {
        if !self.core.config.work_conserving || at < self.elastic.not_before {
            return false;
        }
        let Some(number) = self.find_waiting(at) else {
            return false;
        };
        let (looked, partly) = self.count_flows(number);
        self.elastic.not_before = at + WireBytes(1);
        self.note_looks(looked);
        let Some(largest) = self.elastic.tally.largest(partly) else {
            // The guest's state will not change soon, and other guests may wait.
            if looked > 0 {
                let guest = self.core.guests.at_mut(number);
                guest.elastic.not_before = at + self.elastic.times.pause;
            }
            return false;
        };
        self.make_elastic(number, largest, at)
    }

    /// Delays the next search in proportion to the frames that were read.
    fn note_looks(&mut self, looks: usize) {
        let time = Nanos(SEARCH_PAUSE_PER_FRAME.0 * looks as u64);
        let busy = WireBytes::from(self.core.config.link.bytes_in(time));
        self.elastic.not_before += busy;
        #[cfg(test)]
        {
            self.elastic.looked += looks as u64;
        }
    }

    /// Returns a guest that waits for {B, S} and may have another elastic flow.
    fn find_waiting(&mut self, at: Position) -> Option<GuestIndex> {
        let departs = self.core.chain.departures.ordinary.first_number();
        let line = self.core.chain.first_limited();
        let released = line.map(|line| self.core.lines.at(line).guest);
        let (count, from) = (
            self.core.guests.slots().max(1),
            self.elastic.candidate.number(),
        );
        let others = (0..GUESTS).map(|next| GuestIndex::new((from + next) % count));
        let mut asked = departs.into_iter().chain(released).chain(others);
        let found = asked.find(|&number| self.waits_for_guarantee(number, at));
        self.elastic.candidate = GuestIndex::new((from + GUESTS) % count);
        found
    }

    fn waits_for_guarantee(&mut self, number: GuestIndex, at: Position) -> bool {
        let Some(guest) = self.core.guests.get_mut(number) else {
            return false;
        };
        guest.buckets.make_up(self.core.chain.wire.lost());
        let drain = self.elastic.times.drain;
        guest.is_guaranteed()
            && guest.elastic.not_before <= at
            && guest.cap.as_ref().is_none_or(|cap| cap.is_near(at))
            && guest.waits_for_guarantee(at, self.core.config.longest_frame())
            && match self.elastic.all.get(guest.elastic.flows) {
                Some(flows) => flows.has_room(at, drain),
                None => true,
            }
    }

    /// Counts the frames of a guest that wait for {B, S}, by flow. Returns the number of frames
    /// that were read, and the line that was not read to its end.
    fn count_flows(&mut self, number: GuestIndex) -> (usize, LineIndex) {
        let Core {
            guests,
            lines,
            chain,
            ..
        } = &mut *self.core;
        let elastic = &mut *self.elastic;
        elastic.tally.clear();
        let guest = guests.at_mut(number);
        let mut looked = 0;
        // A flow that is elastic, or was recently, does not begin again.
        let known = elastic.all.get(guest.elastic.flows);
        let is_known = |flow| known.is_some_and(|flows| flows.find(flow).is_some());
        let mut count = |line: LineIndex, place: FrameIndex| {
            looked += 1;
            let waiting = chain.store.at(place);
            if let Some(connection) = waiting.frame.as_ref().and_then(flow_of)
                && !is_known(connection)
            {
                elastic.tally.add(connection, waiting.wire, line, place);
            }
            looked
        };
        if guest.stamped.is_some() {
            count(LineIndex::NONE, guest.stamped);
        }
        // If a destination's limit is as high as the guarantee, its line is the one that waits.
        let limited = chain.first_limited();
        let limited = limited.filter(|line| lines.at(*line).guest == number);
        let released = guest.round.lines(&chain.links).take(LINES);
        for line in released.chain(limited) {
            let mut places = lines.at(line).frames(&chain.store).peekable();
            while let Some(place) = places.next() {
                let looked = count(line, place);
                if looked >= FRAMES && places.peek().is_some() {
                    return (looked, line);
                }
            }
        }
        (looked, LineIndex::NONE)
    }

    /// Makes a flow of a guest elastic: takes its frames out of their line, and takes back its
    /// frame with a departure time. Returns false if the flow has too many frames.
    fn make_elastic(&mut self, number: GuestIndex, largest: Largest, at: Position) -> bool {
        let frame = self.core.chain.store.at(largest.place).frame.as_ref();
        let Some(connection) = frame.and_then(flow_of) else {
            return false;
        };
        let Some(line) = self.whole_line(number, largest) else {
            return false;
        };
        let guest = self.core.guests.at_mut(number);
        let mut flow = Flow::new(connection, (number, &*guest), at);
        let of = self.core.lines.at_mut(line);
        self.core.chain.retreat(guest, of, line, at);
        self.take_stamped(number, &mut flow, at);
        let is_first = self.take_from_line(number, line, &mut flow);
        let Core {
            config,
            guests,
            lines,
            chain,
        } = &mut *self.core;
        let guest = guests.at_mut(number);
        chain.stamp_next(guest, &mut lines.all, config.longest_frame(), at);
        if is_first {
            chain.set_head((guest, lines.at_mut(line)), line, at);
        }
        self.add_elastic(number, flow, at);
        if !self.core.guests.at_mut(number).backlog.is_read() {
            self.core.read_again(number);
        }
        true
    }

    /// Returns the line of a flow's frames. If only the frame with a departure time was counted,
    /// more frames may wait for a limit, or in a line that was not read: `None` if there are too
    /// many to search.
    fn whole_line(&mut self, number: GuestIndex, largest: Largest) -> Option<LineIndex> {
        if largest.line.is_some() {
            return Some(largest.line);
        }
        let guest = self.core.guests.get_mut(number)?;
        let frame = self.core.chain.store.at(largest.place).frame.as_ref()?;
        let line = self.core.lines.of_frame(guest, frame);
        let frames = self.core.lines.at(line).frames(&self.core.chain.store);
        let looked = frames.take(FRAMES + 1).count();
        self.note_looks(looked.min(FRAMES));
        (looked <= FRAMES).then_some(line)
    }

    /// Takes the guest's frame that has a departure time, if it belongs to the flow: it is the
    /// oldest. Its charges are reverted, so the next frame of its line may conform earlier.
    fn take_stamped(&mut self, number: GuestIndex, flow: &mut Flow, at: Position) {
        let Core {
            guests,
            lines,
            chain,
            ..
        } = &mut *self.core;
        let guest = guests.at_mut(number);
        if guest.stamped.is_none() {
            return;
        }
        let place = guest.stamped;
        let waiting = chain.store.at(place);
        let Some(frame) = &waiting.frame else { return };
        if flow_of(frame) != Some(flow.connection) {
            return;
        }
        let size = (waiting.wire, waiting.memory);
        let line = lines.of_frame(guest, frame);
        chain.departures.of(guest.guarantee.rank()).remove(number);
        let departure = guest.buckets.last_departure();
        guest.take_back(size.0, at, false);
        let index = line;
        let line = lines.at_mut(index);
        if let Some(limit) = &mut line.limit {
            limit.taken = limit.taken.saturating_sub(size.0);
            limit.account.translate(chain.wire.change());
            limit.account.take_back(departure, size.0, at);
            let tree = guest.lines.tree.as_mut();
            if let (Some(tree), Some(leaf)) = (tree, limit.leaf()) {
                tree.for_accounts_of(leaf, |account| {
                    account.translate(chain.wire.change());
                    account.take_back(departure, size.0, at);
                });
            }
            if line.stage == Stage::Released {
                chain.check_released(guest, line, index, at);
            }
        }
        chain.store.at_mut(place).next = FrameIndex::NONE;
        let connection = flow.connection;
        flow.frames.push(&mut chain.store, place, size, connection);
    }

    /// Takes a flow's frames out of their line. Returns whether the line then has a new first
    /// frame, which must be checked.
    fn take_from_line(&mut self, number: GuestIndex, index: LineIndex, flow: &mut Flow) -> bool {
        let Core {
            guests,
            lines,
            chain,
            ..
        } = &mut *self.core;
        let guest = guests.at_mut(number);
        let line = lines.at_mut(index);
        if line.is_empty() {
            return false;
        }
        let waited = chain.withdraw(line, index);
        let (first, before) = (line.head(), line.wire);
        let is_mine = |frame: &F| flow_of(frame) == Some(flow.connection);
        flow.frames.take_from(&mut chain.store, line, is_mine);
        let stays = !waited && line.head() == first;
        if line.stage == Stage::Released {
            guest.backlog.released -= before;
            if stays {
                guest.backlog.released += line.wire;
            } else {
                guest.round.remove(&mut chain.links, index, line.weight);
            }
        }
        if line.is_empty() {
            line.stage = Stage::Empty;
            guest.lines.busy -= 1;
        }
        !stays && !line.is_empty()
    }

    /// Adds a flow to its guest's elastic ones.
    fn add_elastic(&mut self, number: GuestIndex, flow: Flow, at: Position) {
        let drain = self.elastic.times.drain;
        let carried = carried(&self.core.chain.stats);
        let terms = &mut self.core.guests.at_mut(number).elastic;
        if terms.flows.is_none() {
            terms.flows = self.elastic.occupy(number);
            terms.began = at;
        }
        let slot = terms.flows;
        let flows = &mut self.elastic.all[slot];
        flows
            .members
            .entries_mut()
            .retain(|flow| !flow.is_over(at, drain));
        if flows.members.len() >= MOST_FLOWS {
            let mut members = flows.members.iter();
            let needless = members.position(|flow| matches!(flow.phase, Phase::Guaranteed { .. }));
            if let Some(index) = needless {
                flows.members.entries_mut().swap_remove(index);
            }
        }
        flows.memory.0 += flow.frames.memory.0;
        flows.members.push(flow);
        self.elastic.activate(slot, carried);
        let (core, elastic) = (&mut *self.core, &mut *self.elastic);
        Room { core, elastic }.trim_elastic(number);
    }
}
