//! One turn of the switch: the loops over ports.

use super::agenda::{Timer, Work};
use super::receive::Round;
use super::transmitter::departure;
use super::{Parts, Ports, Turn};
use crate::index::{GuestIndex, PortIndex};
use tailbound_units::Nanos;

impl Parts {
    /// Does one turn; receives nothing if `reads` is false.
    pub(super) fn turn(&mut self, now: Nanos, ports: &mut Ports, reads: bool) -> Turn {
        let mut turn = Turn::default();
        self.now = now;
        self.turns += 1;
        self.table.set_read(reads);
        self.follow_guests(now, ports);
        self.transmitter
            .deliver_local(now, &mut self.table, &self.forwarding);
        self.transmitter.note_lateness(now, &self.table, ports);
        // A turn without a due timer needs none of the steps for timers.
        if self.table.agenda().has_due(now) {
            self.handle_retries(now, ports);
        }
        self.transmitter
            .read_again(&mut self.table, ports, &mut Turn::default());
        // Guests that are read again may have a limit that releases frames.
        if self.admission.has_unlimited() || self.table.agenda().has_due(now) {
            self.release_due(now, ports, &mut turn);
        }
        if self.table.agenda().has_due(now) {
            self.handle_timers(now, ports, &mut turn);
        }
        if !self.table.agenda().is_empty(Work::Copying) {
            self.go_on_copying(now, ports);
        }
        if reads {
            // If all ports with work have exceeded their shares, no port waits for the rounds
            // that make up for it.
            while self.receive_round(now, ports, &mut turn) == Round::InDebt {}
        } else {
            self.forward_rest(now, ports, &mut turn);
        }
        self.transmit(now, ports, &mut turn);
        self.transmitter
            .read_again(&mut self.table, ports, &mut turn);
        turn.busy |= !self.table.agenda().is_empty(Work::Copying);
        turn.memory_is_free = self.excess.give_back(
            now,
            self.receiver.pool(),
            &mut self.table,
            &mut self.transmitter,
        );
        turn.moved = std::mem::take(&mut self.is_news);
        turn
    }

    /// Serves all ports once that have something to receive; returns the most that any of them did.
    /// The next round begins behind the port that was served first in this one. So a scarce
    /// resource, for example the room of a queue, is available to each port first equally often,
    /// with any number of idle ports between them.
    fn receive_round(&mut self, now: Nanos, ports: &mut Ports, turn: &mut Turn) -> Round {
        let end = self.table.end();
        let first = self.receiver.first().min(end);
        let mut round = Round::Idle;
        for range in [first..end, PortIndex::FIRST..first] {
            if self.table.agenda().is_empty(Work::Ready) {
                break;
            }
            let mut next = range.start;
            while let Some(port) = self.table.agenda().next(Work::Ready, next)
                && port < range.end
            {
                next = port.next();
                let served = self.serve(now, port, ports, turn);
                if round < Round::Served && served == Round::Served {
                    self.receiver.set_first(next);
                }
                round = round.max(served);
                self.table.note(port, ports);
            }
        }
        round
    }

    /// Forwards frames that were received before.
    fn forward_rest(&mut self, now: Nanos, ports: &Ports, turn: &mut Turn) {
        let mut next = PortIndex::FIRST;
        while let Some(port) = self.table.agenda().next(Work::Ready, next) {
            next = port.next();
            if self.table[port].has_received() && self.table.is_open(port) {
                self.table[port].inbound.share.begin_round();
                self.forward_received(now, port, ports, turn);
            }
            self.table.note(port, ports);
        }
    }

    /// Serves the ports whose timers are due.
    fn handle_timers(&mut self, now: Nanos, ports: &mut Ports, turn: &mut Turn) {
        let mut next = PortIndex::FIRST;
        while let Some(index) = self.table.agenda().next_due(Timer::Port, next, now) {
            next = index.next();
            let Some(port) = &mut ports[index.0] else {
                self.table.agenda_mut().set_timer(Timer::Port, index, None);
                continue;
            };
            if port.receive_at().is_some_and(|at| at <= now) {
                self.table[index].inbound.readable = true;
            }
            if let Err(error) = port.flush(now) {
                self.table[index].inbound.readable = false;
                turn.gone.push((index, error));
            }
            self.table.note(index, ports);
        }
    }

    /// Ends the pauses of guests' ports that are over, and does the due work of early
    /// acknowledgement.
    fn handle_retries(&mut self, now: Nanos, ports: &Ports) {
        let mut next = PortIndex::FIRST;
        while let Some(port) = self.table.agenda().next_due(Timer::Retry, next, now) {
            next = port.next();
            if let Some(guest) = self.table.guest_mut(port) {
                guest.ingress.handle_timeout(now);
            }
            self.snoop_timeout(now, port, ports);
            self.table.note(port, ports);
        }
    }

    /// Transmits due frames, by the uplink and to the guests.
    fn transmit(&mut self, now: Nanos, ports: &mut Ports, turn: &mut Turn) {
        if let Some(uplink) = self.table.uplink()
            && !self.transmitter.is_idle(uplink, &self.table, ports)
        {
            self.transmit_by(now, uplink, ports, turn);
            self.transmitter
                .deliver_local(now, &mut self.table, &self.forwarding);
        }
        self.table.agenda_mut().begin_departures(now);
        let mut next = self.table.port_at(GuestIndex::FIRST);
        while let Some(index) = self.table.agenda().next(Work::Sending, next) {
            next = index.next();
            self.transmit_by(now, index, ports, turn);
        }
        self.transmitter.end_turn(now, &mut self.table);
    }

    /// Transmits due frames by a port, and forwards the host's answers in its guest's place.
    fn transmit_by(&mut self, now: Nanos, index: PortIndex, ports: &mut Ports, turn: &mut Turn) {
        let stopwatch = self.stopwatch.as_deref_mut();
        let table = &mut self.table;
        let can_send = self
            .transmitter
            .transmit(now, index, table, ports, turn, stopwatch);
        let is_answered = self.table.source(index).is_answered;
        if is_answered {
            self.forward_answers(now, index, ports, turn);
        }
        let departure = departure(&mut self.table, index).filter(|_| can_send);
        self.table.agenda_mut().set_departure(now, index, departure);
        // A port that is left alone is not read, either.
        if is_answered || self.table[index].outbound.barred_until > now {
            self.table.note(index, ports);
        } else {
            self.table.note_sent(index, ports);
        }
    }
}
