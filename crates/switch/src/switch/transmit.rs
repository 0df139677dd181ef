//! Transmission of frames by ports.

use super::agenda::Work;
use super::snoop::Next;
use super::trace::{Released, Wait};
use super::{Ports, Switch, Turn};
use crate::index::{GuestIndex, PortIndex, Role};
use crate::port::{Outgoing, Port};
use crate::reason::Reason;
use std::io;
use tailbound_dataplane::{Egress, Frame, Leaving, Packet, Pipeline};
use tailbound_units::Nanos;

impl Switch {
    /// Transmits due frames, by the uplink and to the guests.
    pub(super) fn transmit(&mut self, now: Nanos, ports: &mut Ports, turn: &mut Turn) {
        self.hand_over(now);
        if let Some(uplink) = self.table.uplink() {
            self.transmit_by(now, uplink, ports, turn);
            self.deliver_local(now);
        }
        self.table.agenda_mut().begin_departures(now);
        let mut next = self.table.port_at(GuestIndex::FIRST);
        while let Some(index) = self.table.agenda().next(Work::Sending, next) {
            next = index.next();
            self.transmit_by(now, index, ports, turn);
        }
        // What was answered in guests' place.
        self.hand_over(now);
    }

    fn transmit_by(&mut self, now: Nanos, index: PortIndex, ports: &mut Ports, turn: &mut Turn) {
        let is_gone = turn.gone.iter().any(|(gone, _)| *gone == index);
        let port = ports[index.0].as_mut().filter(|_| !is_gone);
        let can_send = match port {
            None => {
                self.pass_time(now, index);
                false
            }
            Some(port) => match self.transmit_to(now, index, port.as_mut(), turn) {
                Ok(()) => true,
                Err(error) => {
                    turn.gone.push((index, error));
                    false
                }
            },
        };
        self.forward_answers(now, index, ports, turn);
        let departure = self.departure(index).filter(|_| can_send);
        self.table.agenda_mut().set_departure(now, index, departure);
        self.table.note(index, ports);
    }

    /// Removes due frames from a paced uplink that is missing: frames for the wire are lost,
    /// together with those that the port has not taken. Frames to guests here do not wait for the
    /// uplink.
    fn pass_time(&mut self, now: Nanos, index: PortIndex) {
        let Self {
            uplink,
            table,
            local,
            trace,
            ..
        } = self;
        if table.role(index) == Role::Uplink
            && let Some(uplink) = uplink
            && let Egress::Pacer(paced) = &mut uplink.egress
        {
            let state = &mut table[index];
            let outgoing = &mut state.outgoing;
            let wire = |next, _| outgoing.push_back(next);
            paced.pull(now, wire, |frame, waited| local.push((frame, waited)));
            let lost = outgoing.drain(..);
            let lost = lost.filter(|next| matches!(next, Outgoing::Frame { .. }));
            let lost = lost.count() as u64;
            state.counters.drop(Reason::PortMissing, lost);
            if let Some(trace) = trace {
                trace.forget(index);
            }
        }
    }

    /// Returns the earliest time at which the next frame may leave by a guest's port.
    fn departure(&mut self, index: PortIndex) -> Option<Nanos> {
        let state = &self.table[index];
        if state.full {
            return None;
        }
        // The port has room, and took a part of its burst.
        let rest = (!state.outgoing.is_empty()).then_some(Nanos::ZERO);
        let barred_until = state.barred_until;
        let departure = rest.or_else(|| self.table.guest_mut(index)?.departure());
        departure.map(|at| at.max(barred_until))
    }

    fn transmit_to(
        &mut self,
        now: Nanos,
        index: PortIndex,
        port: &mut dyn Port,
        turn: &mut Turn,
    ) -> io::Result<()> {
        // A port that is full is offered nothing until it is writable.
        let state = &self.table[index];
        if state.full || state.barred_until > now {
            return Ok(());
        }
        if self.table.role(index) == Role::Uplink
            && let Some(uplink) = &mut self.uplink
            && let Egress::Pacer(paced) = &uplink.egress
        {
            if state.outgoing.is_empty() && paced.waiting() == 0 {
                return Ok(());
            }
            let (state, mut senders) = self.table.uplink_and_senders();
            let trace = &mut self.trace;
            let record = |frame: &Packet, leaving: &Leaving, place| {
                if let Some(guest) = frame.source().and_then(|id| senders.get_mut(id)) {
                    guest.sent.of(frame.class()).record(leaving.waited);
                }
                if let Some(trace) = trace {
                    let released = Released {
                        frame,
                        wait: Wait::Uplink,
                        waited: leaving.waited,
                        leaving: Some(leaving),
                        offered: Some((index, place)),
                    };
                    trace.note(now, released);
                }
            };
            let local = |frame, waited| self.local.push((frame, waited));
            let sent = uplink.transmit_paced(now, state, port, record, local);
            if let Some(trace) = &mut self.trace {
                trace.note_taken(now, index, self.table[index].taken());
            }
            return sent;
        }
        self.transmit_queued(now, index, port, turn)
    }

    /// Returns the queue in front of a port; `None` for a paced uplink.
    pub(super) fn pipeline(&mut self, index: PortIndex) -> Option<&mut Pipeline<Packet>> {
        match self.table.role(index) {
            Role::Guest(guest) => Some(&mut self.table[guest].pipeline),
            Role::Uplink => match &mut self.uplink.as_mut()?.egress {
                Egress::Pipeline(pipeline) => Some(pipeline),
                Egress::Pacer(_) => None,
            },
        }
    }

    /// Transmits at most two bursts, twice the most that one port can receive in a turn; nothing
    /// while the port has exceeded its share of the turns before.
    fn transmit_queued(
        &mut self,
        now: Nanos,
        index: PortIndex,
        port: &mut dyn Port,
        turn: &mut Turn,
    ) -> io::Result<()> {
        self.table[index].outward.begin_round();
        for _ in 0..2 {
            if self.table[index].outward.is_spent() {
                break;
            }
            let mut is_all = false;
            let state = &self.table[index];
            let missing = state.most_at_once().saturating_sub(state.outgoing.len());
            for _ in 0..missing {
                match self.next_frame(now, index) {
                    Next::Frame(frame) => {
                        let outgoing = &mut self.table[index].outgoing;
                        outgoing.push_back(Outgoing::frame(frame));
                    }
                    Next::Later => {}
                    Next::Nothing => {
                        is_all = true;
                        break;
                    }
                }
            }
            let (state, guest) = self.table.both_mut(index);
            if state.outgoing.is_empty() && is_all {
                return Ok(());
            }
            // The uplink's time is no guest's.
            let stopwatch = self.stopwatch.as_deref_mut().filter(|_| guest.is_some());
            let snoop = guest.and_then(|guest| guest.snoop.as_mut());
            let (full, rest) = state.measure_out(stopwatch, |state| {
                state.transmit_answering(now, port, snoop)
            });
            let full = full?;
            if let Some(trace) = &mut self.trace {
                trace.note_taken(now, index, state.taken());
            }
            if self
                .table
                .leave_alone(now, index, rest, port.shares_memory())
                || full
            {
                return Ok(());
            }
        }
        turn.busy = true;
        Ok(())
    }

    /// Counts the wait of a frame that leaves by `index`: for its sender, if that is a guest here.
    /// A frame from outside, or one that was counted for its sender when it left the pacer, counts
    /// for its receiver.
    pub(super) fn record(&mut self, index: PortIndex, frame: &Packet, sojourn: Nanos) {
        let class = frame.class();
        let sojourns = match frame.source().filter(|_| !frame.is_local()) {
            None => self.table.guest_mut(index).map(|guest| &mut guest.received),
            Some(id) => {
                let guest = self.table.guest_of_mut(id);
                guest.map(|guest| &mut guest.sent)
            }
        };
        if let Some(sojourns) = sojourns {
            sojourns.of(class).record(sojourn);
        }
    }
}
