//! Transmission: the way of admitted frames through the egress of the ports they go to, and out of
//! these ports.

use super::agenda::Work;
use super::guest::GuestPort;
use super::table::PortTable;
use super::timing::Stopwatch;
use super::trace::{Released, Trace, Wait};
use super::upkeep::leave_alone;
use super::uplink::Uplink;
use super::work::Cost;
use super::{Ports, Turn};
use crate::index::{PortIndex, Role};
use crate::port::{Outgoing, Port};
use crate::reason::Reason;
use std::collections::VecDeque;
use std::io;
use tailbound_dataplane::{
    Departure, Egress, Frame, GuestId, Leaving, PacedPipeline, Pacer, Packet, Spare,
};
use tailbound_units::Nanos;

/// The next item for a port.
enum Next {
    /// A frame.
    Frame(Packet),
    /// A frame that the host retains for now, or drops because its sender retransmits it.
    Later,
    /// No frame.
    Nothing,
}

/// The egress of the switch: the uplink, and frames on their way to the queues of guests, which are
/// in the [`PortTable`].
#[derive(Debug, Default)]
pub(super) struct Transmitter {
    uplink: Option<Uplink>,
    /// Frames to guests of this host that the pacer has released, with their waits.
    local: Vec<(Packet, Nanos)>,
    /// Frames that were taken out of a guest's queue ahead of their turn, empty between calls.
    ahead: VecDeque<Departure<Packet>>,
    /// The trace of one guest's frames, if one is in progress.
    trace: Option<Box<Trace>>,
    /// Scratch space for the guests whose ports are read again, empty between calls.
    again: Vec<GuestId>,
    /// True if the uplink's port was there at the last check.
    had_uplink: bool,
}

impl Transmitter {
    /// Returns the uplink; `None` for a host without one.
    pub(super) const fn uplink(&self) -> Option<&Uplink> {
        self.uplink.as_ref()
    }

    /// Returns the uplink; `None` for a host without one.
    pub(super) const fn uplink_mut(&mut self) -> Option<&mut Uplink> {
        self.uplink.as_mut()
    }

    /// Adds or removes the uplink.
    pub(super) fn set_uplink(&mut self, uplink: Option<Uplink>) {
        self.uplink = uplink;
    }

    /// Returns the paced egress of the uplink; `None` if the uplink is not paced.
    pub(super) fn paced(&self) -> Option<&PacedPipeline<Packet>> {
        self.uplink.as_ref()?.egress().paced()
    }

    /// Returns the pacer of the uplink; `None` if the uplink is not paced.
    pub(super) fn pacer(&self) -> Option<&Pacer<Packet>> {
        self.uplink.as_ref()?.egress().pacer()
    }

    /// Returns the pacer of the uplink; `None` if the uplink is not paced.
    pub(super) fn pacer_mut(&mut self) -> Option<&mut Pacer<Packet>> {
        self.uplink.as_mut()?.egress_mut().pacer_mut()
    }

    /// Returns the trace in progress.
    pub(super) fn trace(&self) -> Option<&Trace> {
        self.trace.as_deref()
    }

    /// Returns the trace in progress.
    pub(super) fn trace_mut(&mut self) -> Option<&mut Trace> {
        self.trace.as_deref_mut()
    }

    /// Begins or ends a trace; returns the one before.
    pub(super) const fn replace_trace(&mut self, trace: Option<Box<Trace>>) -> Option<Box<Trace>> {
        std::mem::replace(&mut self.trace, trace)
    }

    /// Enqueues a frame in the egress of the port it goes to.
    pub(super) fn push(
        &mut self,
        now: Nanos,
        (from, to): (PortIndex, PortIndex),
        mut packet: Packet,
        table: &mut PortTable,
        ports: &Ports,
    ) {
        if !table[to].fits(&packet, ports[to.0].as_deref()) {
            return;
        }
        if ports[to.0].is_none() {
            table[to].counters.drop(Reason::PortMissing, 1);
            return;
        }
        if let Role::Guest(guest) = table.role(to) {
            if !self.is_paced_within(&packet) {
                table[guest].deliver(now, packet);
                table.offer(to);
                return;
            }
            packet.set_local();
        }
        debug_assert_ne!(from, to, "no frame leaves by the port that it came in by");
        if let Some(uplink) = &mut self.uplink {
            uplink.enqueue(now, from, packet, table);
        }
    }

    /// Returns the cost of sending a packet out of a port. For the uplink the packet is segmented,
    /// here or in the kernel. For a guest the packet may stay whole, unless its sender has a
    /// guarantee.
    pub(super) fn cost(&self, to: PortIndex, packet: &Packet, table: &PortTable) -> Cost {
        let segments = packet.segments();
        let cut = segments > 1
            && (table
                .guest(to)
                .is_none_or(|guest| guest.pipeline.segments())
                || self.is_paced_within(packet));
        Cost {
            frames: if cut { segments } else { 1 },
            bytes: if cut { packet.wire_len() } else { packet.len() },
            pieces: 0,
        }
    }

    /// Returns true if a frame to a guest here is charged to its sender's guarantee. A frame to a
    /// group is not: the sender's budget for groups counts each copy.
    fn is_paced_within(&self, packet: &Packet) -> bool {
        let guarantee = |sender| self.pacer()?.guarantee(sender);
        packet.source().and_then(guarantee).is_some() && !packet.is_multicast()
    }

    /// Returns the number of frames that a paced uplink dropped because its queue was full.
    #[inline]
    pub(super) fn drops(&mut self, now: Nanos, table: &mut PortTable) -> u64 {
        let uplink = self.uplink.as_mut();
        uplink.map_or(0, |uplink| uplink.drops(now, table))
    }

    /// Leaves the port unread for the time that a paced uplink takes for `frames` full frames, so
    /// that dropped frames cost others little.
    pub(super) fn throttle(
        &self,
        now: Nanos,
        from: PortIndex,
        frames: usize,
        table: &mut PortTable,
    ) {
        if let Some(paced) = self.paced()
            && let Some(guest) = table.guest_mut(from)
        {
            guest.ingress.throttle(now + paced.time_for(frames));
        }
    }

    /// Ends the batch of a guest's frames at the end of a turn.
    #[inline]
    pub(super) fn end_turn(&mut self, now: Nanos, table: &mut PortTable) {
        if let Some(uplink) = &mut self.uplink {
            uplink.flush(now, table);
        }
    }

    /// Records the lateness of the caller for due frames of a paced uplink.
    pub(super) fn note_lateness(&mut self, now: Nanos, table: &PortTable, ports: &Ports) {
        if let Some(uplink) = &mut self.uplink
            && uplink.is_awaited()
            && !(is_uplink_full(table) && has_open_uplink(table, ports))
        {
            uplink.note_lateness(now);
        }
    }

    /// Returns the time of the next work for the uplink and for frames between guests, if no event
    /// comes first.
    #[inline]
    pub(super) fn poll_at(&self, table: &PortTable, ports: &Ports) -> Option<Nanos> {
        let can_send = has_open_uplink(table, ports);
        // Nobody waits for an uplink that has vanished.
        if !self.local.is_empty() || (self.had_uplink && !can_send) {
            return Some(Nanos::ZERO);
        }
        let egress = self.uplink.as_ref()?.egress();
        let is_waited_for = if can_send {
            !is_uplink_full(table)
        } else {
            // A pacer whose port is missing continues for guests here.
            egress.paced().is_some()
        };
        if is_waited_for {
            egress.poll_at()
        } else {
            None
        }
    }

    /// Returns true if nothing waits for the uplink, and its port has no event to handle.
    #[inline]
    pub(super) fn is_idle(&self, port: PortIndex, table: &PortTable, ports: &Ports) -> bool {
        let uplink = self.uplink.as_ref();
        ports[port.0].is_some()
            && table[port].outbound.frames.is_empty()
            && !table.agenda().has(Work::Sending, port)
            && uplink.is_none_or(Uplink::is_idle)
    }

    /// Reads the ports again of guests that no longer wait for their guarantee. If the uplink is
    /// missing, no guest waits for it: its frames are lost there, and counted.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "twice in each turn")]
    pub(super) fn read_again(&mut self, table: &mut PortTable, ports: &Ports, turn: &mut Turn) {
        let is_there = has_open_uplink(table, ports);
        let Self { uplink, again, .. } = self;
        if let Some(uplink) = uplink
            && let Some(pacer) = uplink.egress_mut().pacer_mut()
        {
            pacer.drain_read_again(|guest| again.push(guest));
        }
        if !again.is_empty() || self.had_uplink != is_there {
            self.read_guests_again(is_there, table, ports, turn);
        }
    }

    #[inline(never)]
    fn read_guests_again(
        &mut self,
        is_there: bool,
        table: &mut PortTable,
        ports: &Ports,
        turn: &mut Turn,
    ) {
        let mut again = std::mem::take(&mut self.again);
        if std::mem::replace(&mut self.had_uplink, is_there) && !is_there {
            let guests = table.guests();
            let crowded = guests.filter(|guest| guest.ingress.is_crowded());
            again.extend(crowded.map(|guest| guest.id));
        }
        for guest in again.drain(..) {
            let Some(port) = table.port_of(guest) else {
                continue;
            };
            if let Some(guest) = table.guest_mut(port) {
                guest.ingress.set_crowded(false);
                if guest.limit.shaper.is_some() {
                    table.agenda_mut().release_soon(port);
                }
            }
            table.note(port, ports);
            let state = &table[port];
            turn.busy |= state.inbound.readable || state.has_received();
        }
        self.again = again;
    }

    /// Adds frames to guests of this host, which the pacer has released.
    pub(super) fn add_freed(&mut self) {
        if let Some(uplink) = &mut self.uplink
            && let Egress::Pacer(paced) = uplink.egress_mut()
        {
            paced.drain_freed(|packet| self.local.push((packet, Nanos::ZERO)));
        }
    }

    /// Returns true if the pacer has released frames to guests of this host.
    pub(super) const fn has_local(&self) -> bool {
        !self.local.is_empty()
    }

    /// Takes the frames to guests of this host that the pacer has released, with their waits.
    /// [`Self::put_local`] returns the space.
    pub(super) fn take_local(&mut self) -> Vec<(Packet, Nanos)> {
        std::mem::take(&mut self.local)
    }

    /// Returns the empty space of frames that were taken.
    pub(super) fn put_local(&mut self, empty: Vec<(Packet, Nanos)>) {
        debug_assert!(
            empty.is_empty() && self.local.is_empty(),
            "all are delivered"
        );
        self.local = empty;
    }

    /// Transmits due frames by a port. Returns true if the port is usable.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "called in one place, for each port that sends"
    )]
    pub(super) fn transmit(
        &mut self,
        now: Nanos,
        index: PortIndex,
        table: &mut PortTable,
        ports: &mut Ports,
        turn: &mut Turn,
        stopwatch: Option<&mut (dyn Stopwatch + 'static)>,
    ) -> bool {
        let is_gone = turn.gone.iter().any(|(gone, _)| *gone == index);
        let Some(port) = ports[index.0].as_mut().filter(|_| !is_gone) else {
            if table.role(index) == Role::Uplink {
                self.pass_time(now, index, table);
            }
            return false;
        };
        // A port that is full is offered nothing until it is writable.
        let state = &table[index];
        if state.outbound.full || state.outbound.barred_until > now {
            return true;
        }
        let is_paced = self.paced().is_some() && table.role(index) == Role::Uplink;
        let sent = if is_paced {
            self.transmit_paced(now, index, port.as_mut(), table)
        } else {
            let sent = self.transmit_queued(now, index, port.as_mut(), table, stopwatch);
            sent.map(|has_more| turn.busy |= has_more)
        };
        sent.map_err(|error| turn.gone.push((index, error))).is_ok()
    }

    /// Removes due frames from a paced uplink that is missing: frames for the wire are lost,
    /// together with those that the port has not taken. Frames to guests here do not wait for the
    /// uplink.
    fn pass_time(&mut self, now: Nanos, index: PortIndex, table: &mut PortTable) {
        let Self {
            uplink,
            local,
            trace,
            ..
        } = self;
        let Some(uplink) = uplink else {
            return;
        };
        uplink.flush(now, table);
        if let Egress::Pacer(paced) = uplink.egress_mut() {
            let state = &mut table[index];
            let outgoing = &mut state.outbound.frames;
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

    /// Transmits due frames by a paced uplink.
    fn transmit_paced(
        &mut self,
        now: Nanos,
        index: PortIndex,
        port: &mut dyn Port,
        table: &mut PortTable,
    ) -> io::Result<()> {
        let Self {
            uplink,
            local,
            trace,
            ..
        } = self;
        let Some(uplink) = uplink else {
            return Ok(());
        };
        uplink.flush(now, table);
        if table[index].outbound.frames.is_empty() && uplink.egress().waiting() == 0 {
            return Ok(());
        }
        let (state, mut senders) = table.uplink_and_senders();
        let record = |frame: &Packet, leaving: &Leaving, place| {
            if let Some(guest) = frame.source().and_then(|id| senders.get_mut(id)) {
                guest.waits.sent.of(frame.class()).record(leaving.waited);
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
        let local = |frame, waited| local.push((frame, waited));
        let sent = uplink.transmit_paced(now, state, port, record, local);
        if let Some(trace) = &mut self.trace {
            trace.note_taken(now, index, table[index].taken());
        }
        sent
    }

    /// Transmits at most two bursts, twice the most that one port can receive in a turn; nothing
    /// while the port has exceeded its share of the turns before. Returns true if there is more to
    /// transmit now.
    fn transmit_queued(
        &mut self,
        now: Nanos,
        index: PortIndex,
        port: &mut dyn Port,
        table: &mut PortTable,
        mut stopwatch: Option<&mut (dyn Stopwatch + 'static)>,
    ) -> io::Result<bool> {
        if table.role(index) == Role::Uplink
            && let Some(uplink) = &mut self.uplink
        {
            uplink.flush(now, table);
        }
        table[index].outbound.share.begin_round();
        for _ in 0..2 {
            if table[index].outbound.share.is_spent() {
                break;
            }
            let mut is_all = false;
            let state = &table[index];
            let missing = state
                .most_at_once()
                .saturating_sub(state.outbound.frames.len());
            if let Some(guest) = table.guest_mut(index)
                && guest.has_many_flows()
            {
                self.take_ahead(now, guest, missing);
            }
            let mut tries = 0..missing;
            while tries.next().is_some() || !self.ahead.is_empty() {
                match self.next_frame(now, index, table) {
                    Next::Frame(frame) => {
                        let outgoing = &mut table[index].outbound.frames;
                        outgoing.push_back(Outgoing::frame(frame));
                    }
                    Next::Later => {}
                    Next::Nothing => {
                        is_all = true;
                        break;
                    }
                }
            }
            if table[index].outbound.frames.is_empty() && is_all {
                return Ok(false);
            }
            let (state, guest) = table.both_mut(index);
            // The uplink's time is no guest's.
            let stopwatch = stopwatch.as_deref_mut().filter(|_| guest.is_some());
            let snoop = guest.and_then(|guest| guest.early.snoop.as_mut());
            let is_answered = snoop.is_some();
            let (sent, rest) = state.measure_out(stopwatch, |state| {
                state.transmit_answering(now, port, snoop)
            });
            let sent = sent?;
            if let Some(trace) = &mut self.trace {
                trace.note_taken(now, index, table[index].taken());
            }
            let is_left_alone =
                rest != Nanos::ZERO && leave_alone(now, index, rest, port.shares_memory(), table);
            if is_left_alone || sent.is_full || (is_all && sent.is_all && !is_answered) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes the next frames for a guest out of its queue, at most this many, so that early
    /// acknowledgement reads their connections in parallel.
    #[inline(never)]
    fn take_ahead(&mut self, now: Nanos, guest: &mut GuestPort, most: usize) {
        debug_assert!(self.ahead.is_empty(), "all had their turn");
        while self.ahead.len() < most
            && let Some(departure) = guest.pipeline.pull(now)
        {
            self.ahead.push_back(departure);
        }
        if let Some(snoop) = &guest.early.snoop {
            snoop.load(self.ahead.iter().map(|departure| &departure.frame));
        }
    }

    /// Returns the next frame for a port: frames that the host sends in a peer's place go first.
    /// The queue of frames for the guest is polled once at most.
    fn next_frame(&mut self, now: Nanos, index: PortIndex, table: &mut PortTable) -> Next {
        let guest = table.guest_mut(index);
        let snoop = guest.and_then(|guest| guest.early.snoop.as_mut());
        if let Some(frame) = snoop.and_then(|snoop| snoop.poll_to_guest()) {
            return Next::Frame(frame);
        }
        let departure = match table.role(index) {
            Role::Guest(guest) => {
                let ahead = self.ahead.pop_front();
                ahead.or_else(|| table[guest].pipeline.pull(now))
            }
            Role::Uplink => self.uplink.as_mut().and_then(|uplink| uplink.pull(now)),
        };
        let Some(Departure { frame, sojourn, .. }) = departure else {
            return Next::Nothing;
        };
        record(table, index, &frame, sojourn);
        let guest = table.guest_mut(index);
        let frame = match guest.and_then(|guest| guest.early.snoop.as_mut()) {
            None => frame,
            Some(snoop) => match snoop.handle_ingress(now, frame) {
                Some(frame) => frame,
                None => return Next::Later,
            },
        };
        if let Some(trace) = &mut self.trace {
            let guest = table.guest(index).map(|guest| guest.id);
            let wait = trace.wait_at(guest);
            let place = table[index].place();
            trace.note(
                now,
                Released {
                    offered: Some((index, place)),
                    ..Released::within(&frame, wait, sojourn)
                },
            );
        }
        Next::Frame(frame)
    }

    /// Frees some of the unused capacity of the queue in front of a port.
    pub(super) fn give_back(&mut self, port: PortIndex, table: &mut PortTable) -> Spare {
        if let Some(guest) = table.guest_mut(port) {
            let limited = guest.limit.shaper.as_mut();
            let left = limited.map_or(Spare::Nothing, |it| it.shaper.give_back());
            left.max(guest.pipeline.give_back())
        } else {
            let uplink = self.uplink.as_mut();
            uplink.map_or(Spare::Nothing, |uplink| uplink.egress_mut().give_back())
        }
    }
}

/// Returns the earliest time at which the next frame may leave by a port, if no event comes first.
pub(super) fn departure(table: &mut PortTable, index: PortIndex) -> Option<Nanos> {
    let (state, guest) = table.both_mut(index);
    if state.outbound.full {
        return None;
    }
    // The port has room, and took a part of its burst.
    let rest = (!state.outbound.frames.is_empty()).then_some(Nanos::ZERO);
    let departure = rest.or_else(|| guest?.departure());
    departure.map(|at| at.max(state.outbound.barred_until))
}

/// Returns true if there is an uplink, and its interface is there.
pub(super) fn has_open_uplink(table: &PortTable, ports: &Ports) -> bool {
    let uplink = table.uplink();
    uplink.is_some_and(|port| ports.get(port.0).is_some_and(Option::is_some))
}

/// Returns true if the port of the uplink had no room when it was last offered a frame.
fn is_uplink_full(table: &PortTable) -> bool {
    table
        .uplink_state()
        .is_some_and(|state| state.outbound.full)
}

/// Counts the wait of a frame that leaves by `index`: for its sender, if that is a guest here. A
/// frame from outside, or one that was counted for its sender when it left the pacer, counts for its
/// receiver.
fn record(table: &mut PortTable, index: PortIndex, frame: &Packet, sojourn: Nanos) {
    let class = frame.class();
    let sojourns = match frame.source().filter(|_| !frame.is_local()) {
        None => table
            .guest_mut(index)
            .map(|guest| &mut guest.waits.received),
        Some(id) => table.guest_of_mut(id).map(|guest| &mut guest.waits.sent),
    };
    if let Some(sojourns) = sojourns {
        sojourns.of(class).record(sojourn);
    }
}
