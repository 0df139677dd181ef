//! Received frames: checks and forwarding.

use super::Parts;
use super::admission::Route;
use super::known::{keep_way, known_way};
use super::table::Source;
use super::upkeep::{leave_alone, note_idle_wake};
use super::work::Cost;
use super::{Ports, Turn};
use crate::forward::{Verdict, Way};
use crate::index::PortIndex;
use crate::mac::Mac;
use crate::port::{BURST, Port, Received};
use crate::reason::Reason;
use tailbound_dataplane::{Frame, Packet};
use tailbound_units::Nanos;

/// Work of a port in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Round {
    /// None: the port had nothing to do, or may not be read.
    Idle,
    /// None: the port has something to do, but exceeded its share before.
    InDebt,
    /// The port forwarded frames.
    Served,
}

impl Parts {
    /// Serves one port for a round: receives a burst if all of the last one is forwarded, and
    /// forwards frames up to the port's share of the work.
    pub(super) fn serve(
        &mut self,
        now: Nanos,
        from: PortIndex,
        ports: &mut Ports,
        turn: &mut Turn,
    ) -> Round {
        let state = &self.table[from];
        if !(state.inbound.readable || state.has_received()) || !self.table.is_open(from) {
            note_idle_wake(now, from, &mut self.table);
            return Round::Idle;
        }
        let state = &mut self.table[from];
        state.inbound.share.begin_round();
        if state.inbound.share.is_spent() {
            turn.busy = true;
            return Round::InDebt;
        }
        let is_pending = state.has_received();
        let stopwatch = self.stopwatch.as_deref_mut();
        let measurement = stopwatch.map(|stopwatch| state.inbound.share.begin(stopwatch));
        if state.inbound.readable && !self.table.is_drained(from) {
            self.receiver
                .receive(now, from, &mut self.table, ports, turn);
        }
        let is_idle = !self.table[from].has_received();
        if !is_idle {
            self.forward_received(now, from, ports, turn);
        }
        if let Some(measurement) = measurement
            && let Some(stopwatch) = self.stopwatch.as_deref_mut()
        {
            let rest = self.table[from].inbound.share.end(measurement, stopwatch);
            let port = ports[from.0].as_deref();
            let shares_memory = port.is_some_and(Port::shares_memory);
            leave_alone(now, from, rest, shares_memory, &mut self.table);
        }
        if is_idle {
            note_idle_wake(now, from, &mut self.table);
            return Round::Idle;
        }
        self.table[from].inbound.wakes.clear();
        // What came since then is received in the next turn.
        turn.busy |= is_pending && self.table[from].inbound.readable && self.table.is_open(from);
        Round::Served
    }

    /// Forwards received frames of a port, up to its share of the work.
    pub(super) fn forward_received(
        &mut self,
        now: Nanos,
        from: PortIndex,
        ports: &Ports,
        turn: &mut Turn,
    ) {
        if self.table[from].inbound.floods.is_full() {
            return;
        }
        let source = self.table.source(from);
        let dropped = self.transmitter.drops(now, &mut self.table);
        let mut total = Cost::default();
        let mut refused = 0;
        while self.table[from].has_received()
            && !self.table[from].inbound.share.is_spent()
            && self.table.is_open(from)
            && let Some(received) = self.table[from].inbound.frames.pop_front()
        {
            let cost = match self.forward(now, source, received, ports) {
                Ok(cost) => cost,
                Err(reason) => {
                    self.table[from].counters.drop(reason, 1);
                    refused += 1;
                    Cost::DROPPED
                }
            };
            self.table[from].inbound.share.charge(cost);
            total += cost;
        }
        if self.transmitter.drops(now, &mut self.table) > dropped || refused > BURST / 2 {
            let table = &mut self.table;
            self.transmitter.throttle(now, from, total.frames, table);
        }
        // Also where the last of a burst was forwarded turns after it was received: the
        // port may have more, and nothing else says so.
        let state = &self.table[from];
        turn.busy |= (state.has_received() || state.inbound.readable) && self.table.is_open(from);
    }

    /// Enqueues one frame in the egress of the ports it goes to; returns its cost, until it has
    /// left by them.
    fn forward(
        &mut self,
        now: Nanos,
        source: Source,
        received: Received,
        ports: &Ports,
    ) -> Result<Cost, Reason> {
        let packet = self.receiver.packet(source, received, &mut self.table)?;
        let way = known_way(self, now, source, &packet);
        if let Some(way) = way
            && source.is_direct()
            && !self.admission.marks_stations()
            && let Some(to) = self.forwarding.follow(now, source.port, way)
        {
            return Ok(self.pass(now, source.port, to, packet, ports));
        }
        self.forward_slowly(now, source, packet, way, ports)
    }

    /// Does the same for a frame that has to be checked, or meets an optional stage.
    #[inline(never)]
    fn forward_slowly(
        &mut self,
        now: Nanos,
        source: Source,
        packet: Packet,
        way: Option<Way>,
        ports: &Ports,
    ) -> Result<Cost, Reason> {
        if way.is_none() {
            self.admit(now, source.port, &packet)?;
            keep_way(self, source, &packet);
        }
        if !source.is_answered {
            return self.admitted(now, source, packet, way, ports);
        }
        match self.snoop_out(now, source.port, packet, way) {
            Some(packet) => self.admitted(now, source, packet, way, ports),
            None => Ok(Cost::DROPPED),
        }
    }

    /// Enqueues an admitted frame in its sender's limit, or forwards it if there is no limit, on its
    /// way if that is known; returns the cost.
    pub(super) fn admitted(
        &mut self,
        now: Nanos,
        source: Source,
        mut packet: Packet,
        way: Option<Way>,
        ports: &Ports,
    ) -> Result<Cost, Reason> {
        self.admission.mark_station(&mut packet);
        if source.is_limited {
            return Ok(self.hold(now, source.port, packet, ports));
        }
        match way.and_then(|way| self.forwarding.follow(now, source.port, way)) {
            Some(to) => Ok(self.pass(now, source.port, to, packet, ports)),
            None => self.dispatch(now, source.port, packet, ports),
        }
    }

    /// Enqueues an admitted frame in its sender's limit; returns the cost.
    fn hold(&mut self, now: Nanos, from: PortIndex, packet: Packet, ports: &Ports) -> Cost {
        let cost = Cost {
            frames: packet.segments(),
            bytes: packet.wire_len(),
            pieces: 0,
        };
        let guest = self.table.guest_mut(from);
        let limited = guest.and_then(|guest| guest.limit.shaper.as_mut());
        let limited = limited.expect("limits change between turns");
        limited.shaper.push(now, packet);
        self.release(now, from, ports);
        cost
    }

    /// Enqueues a frame in the egress of a port; returns the cost.
    #[inline]
    fn pass(
        &mut self,
        now: Nanos,
        from: PortIndex,
        to: PortIndex,
        packet: Packet,
        ports: &Ports,
    ) -> Cost {
        let cost = self.transmitter.cost(to, &packet, &self.table);
        self.transmitter
            .push(now, (from, to), packet, &mut self.table, ports);
        cost
    }

    /// Enqueues an admitted frame, which its sender's limit has released, in the egress of the ports
    /// it goes to; returns the cost.
    pub(super) fn dispatch(
        &mut self,
        now: Nanos,
        from: PortIndex,
        packet: Packet,
        ports: &Ports,
    ) -> Result<Cost, Reason> {
        match self.route(now, from, &packet, ports)? {
            Route::To(to) => Ok(self.pass(now, from, to, packet, ports)),
            Route::Flood => Ok(self.flood(now, from, packet, ports)),
            Route::Nowhere(to) => {
                self.table[to].counters.drop(Reason::Away, 1);
                Ok(Cost::DROPPED)
            }
        }
    }

    /// Checks and learns the sender of a frame; an error is the reason to drop it.
    pub(super) fn admit(
        &mut self,
        now: Nanos,
        from: PortIndex,
        packet: &Packet,
    ) -> Result<(), Reason> {
        let (table, forwarding) = (&self.table, &mut self.forwarding);
        self.admission.admit(now, from, packet, table, forwarding)
    }

    /// Finds the route of a frame; an error is the reason why there is none. Frames that are copied
    /// to all ports are charged to the guest's budget, or the outside's. Frames that others may
    /// have to flood are charged to the guest's.
    fn route(
        &mut self,
        now: Nanos,
        from: PortIndex,
        packet: &Packet,
        ports: &Ports,
    ) -> Result<Route, Reason> {
        let destination = Mac(packet.destination_mac());
        let verdict = match self.forwarding.route(now, from, destination) {
            // The guest may have come since its presence was last checked.
            Verdict::Away(home) if self.has_come(now, home, ports) => Verdict::To(home),
            Verdict::Away(home) => match self.forwarding.route_outside(now, from, destination) {
                Verdict::Drop(_) => return Ok(Route::Nowhere(home)),
                verdict => verdict,
            },
            verdict => verdict,
        };
        let table = &mut self.table;
        self.admission.charge(now, from, packet, verdict, table)
    }
}
