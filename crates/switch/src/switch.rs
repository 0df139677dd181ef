//! The packet loop's core, without clock, descriptors or threads: frames are received from ports,
//! checked and forwarded, wait in the egress of the port they go to, and are sent.
//!
//! The way of a frame through the parts is in the description of the crate. Guaranteed traffic
//! between two guests here passes the uplink's pacer on its way to the receiver's pipeline
//! (`local`).
//!
//! While a guest's frames wait for its guarantee, or its limit holds the maximum, the guest's port
//! is not read (backpressure): then its queue fills, and the guest notices. Frames that were read
//! with the last burst wait here.
//!
//! [`Switch::poll`] does one bounded turn of work. `now` and the ports are arguments, so the daemon
//! runs it on real ones and tests run it on memory ports in virtual time. Between turns,
//! [`Switch::poll_at`] returns the time of the next one; [`Switch::handle_readable`] and
//! [`Switch::handle_writable`] report events of ports, [`Switch::poll_interest`] returns the events
//! to wait for. Guarantees are set by guest: [`Switch::set_guarantee`], [`Switch::apply`]. A guest
//! that must stop sending is drained ([`Switch::set_drained`]).

mod admission;
mod agenda;
mod batch;
mod config;
mod drain;
mod flood;
mod floods;
mod guarantees;
mod guest;
mod ingress;
mod inward;
mod known;
mod level;
mod limited;
mod local;
mod memory;
mod presence;
mod receive;
mod receiver;
mod reload;
mod send_as;
mod share;
mod slots;
mod snapshot;
mod snoop;
mod state;
mod stations;
mod steps;
mod table;
mod timing;
mod trace;
mod transmitter;
mod upkeep;
mod uplink;
mod wakes;
mod work;

pub use config::{GuestConfig, SwitchConfig, UPLINK};
pub use guarantees::{Applying, GuaranteeError};
pub use level::Spent;
pub use limited::LimitSnapshot;
pub use reload::{Reload, SwitchPlan};
pub use snapshot::{
    GuestPacing, GuestSnapshot, Link, PartialSnapshot, PortSnapshot, Snapshot, Sojourn,
    UplinkPacing, UplinkSnapshot,
};

use crate::forward::Forwarding;
use crate::index::{GuestIndex, PortIndex};
use crate::mac::Mac;
use crate::port::Port;
use admission::Admission;
use agenda::{Timer, Work, earlier};
use guest::GuestPort;
use memory::GiveBack;
use receive::Round;
use receiver::Receiver;
pub use snoop::SnoopSnapshot;
pub use state::Interest;
use std::io;
use table::PortTable;
use tailbound_dataplane::pacer::PacerError;
use tailbound_dataplane::{GuestId, HashKeys, Pacer, Packet};
use tailbound_units::{Bytes, Nanos};
pub use timing::{Stopwatch, Switches};
pub use trace::{Traced, TracedFrame, Wait};
use transmitter::{Transmitter, departure};

/// The ports, by [`PortIndex`]; `None` where the interface is missing.
pub type Ports = [Option<Box<dyn Port>>];

/// The result of a turn.
#[derive(Debug, Default)]
pub struct Turn {
    /// There is more work now: do not sleep.
    pub busy: bool,
    /// The last of many unused buffers was freed: the memory can be returned to the system.
    pub memory_is_free: bool,
    /// A guest arrived or left: announcements of guests' places must be refreshed.
    pub moved: bool,
    /// Ports that are unusable, each once, with the reason.
    pub gone: Vec<(PortIndex, io::Error)>,
}

/// The switch: forwarding between ports, with an egress before each.
#[derive(Debug)]
pub struct Switch {
    receiver: Receiver,
    admission: Admission,
    forwarding: Forwarding,
    table: PortTable,
    transmitter: Transmitter,
    /// The number of refused guarantees.
    refusals: u64,
    /// Frees unused buffers over time.
    excess: GiveBack,
    /// Measures the time that ports take.
    stopwatch: Option<Box<dyn Stopwatch>>,
    /// The time of the last turn.
    now: Nanos,
    /// The number of turns so far.
    turns: u64,
    /// True if a guest arrived or left in this turn.
    is_news: bool,
}

impl Switch {
    /// Makes a switch of `config`, without frames.
    ///
    /// # Errors
    /// The rule that the uplink's pacer breaks.
    pub fn new(config: SwitchConfig) -> Result<Self, PacerError> {
        Self::with_keys(config, HashKeys::random())
    }

    /// Makes a switch with given keys for connections: a run that can be repeated.
    ///
    /// # Errors
    /// As [`Switch::new`].
    pub fn with_keys(config: SwitchConfig, keys: HashKeys) -> Result<Self, PacerError> {
        let mut switch = Self {
            receiver: Receiver::new(keys),
            admission: Admission::default(),
            forwarding: Forwarding::default(),
            table: PortTable::default(),
            transmitter: Transmitter::default(),
            refusals: 0,
            excess: GiveBack::default(),
            stopwatch: None,
            now: Nanos::ZERO,
            turns: 0,
            is_news: false,
        };
        switch.reconfigure(Nanos::ZERO, config)?;
        Ok(switch)
    }

    /// Measures the time that ports take, and charges ports for the excess over the general cost of
    /// their frames. Without a stopwatch only that cost is charged.
    pub fn set_stopwatch(&mut self, stopwatch: Box<dyn Stopwatch>) {
        self.stopwatch = Some(stopwatch);
    }

    /// Returns the pacer of the uplink, for limits of destinations; `None` if the uplink is not
    /// paced.
    pub fn pacer(&mut self) -> Option<&mut Pacer<Packet>> {
        self.transmitter.pacer_mut()
    }

    /// Sets whether guests' frames to a station are limited as such
    /// ([`FlowKey::station`](tailbound_dataplane::FlowKey::station)), for all IP addresses: the
    /// receiver takes frames by its MAC address.
    pub fn set_limited_by_station(&mut self, station: Mac, limited: bool) {
        self.admission.set_limited_by_station(station, limited);
    }

    /// Returns the bytes that a guest has taken so far of its senders' guaranteed traffic, and true
    /// if more of this traffic is queued. Other traffic has a lower priority and is no measure of
    /// the senders' rates. `None` if there is no such guest.
    pub fn drained(&self, guest: GuestId) -> Option<(Bytes, bool)> {
        Some(self.table.guest_of(guest)?.pipeline.first())
    }

    /// Notes that the port has something to receive.
    pub fn handle_readable(&mut self, port: PortIndex) {
        if let Some(state) = self.table.get_mut(port) {
            state.inbound.readable = true;
            state.inbound.wakes.note();
            self.table.agenda_mut().set(Work::Ready, port, true);
        }
    }

    /// Notes that the port has room again.
    pub fn handle_writable(&mut self, port: PortIndex) {
        if let Some(state) = self.table.get_mut(port) {
            state.outbound.full = false;
            self.table.agenda_mut().set(Work::Sending, port, true);
        }
    }

    /// Notes that a missing port was opened.
    pub fn handle_opened(&mut self, port: PortIndex) {
        if let Some(state) = self.table.get_mut(port) {
            state.outbound.longest = 0;
            if let Some(guest) = self.table.guest_mut(port) {
                guest.presence = None;
            }
            self.handle_readable(port);
            self.handle_writable(port);
            self.table.agenda_mut().set(Work::Changed, port, true);
        }
    }

    /// Returns a port whose awaited events have changed, with these events. Call it after each turn
    /// until it returns none.
    pub fn poll_interest(&mut self) -> Option<(PortIndex, Interest)> {
        let port = self.table.agenda_mut().pop(Work::Changed)?;
        Some((port, self.table[port].interest))
    }

    /// Does one turn: serves each port that has something to receive, in turn, and transmits due
    /// frames. The work that a port causes by its frames is bounded by a share that is the same for
    /// all ports, and one packet; transmission is bounded by two bursts per port. Idle ports cost
    /// nothing.
    pub fn poll(&mut self, now: Nanos, ports: &mut Ports) -> Turn {
        self.turn(now, ports, true)
    }

    /// Transmits due frames, and receives nothing.
    pub fn drain(&mut self, now: Nanos, ports: &mut Ports) -> Turn {
        self.turn(now, ports, false)
    }

    fn turn(&mut self, now: Nanos, ports: &mut Ports, reads: bool) -> Turn {
        let mut turn = Turn::default();
        self.now = now;
        self.turns += 1;
        self.table.set_read(reads);
        self.begin_turn(now, ports);
        self.release_due(now, ports, &mut turn);
        self.handle_timers(now, ports, &mut turn);
        if !self.table.agenda().is_empty(Work::Copying) {
            self.go_on_copying(now, ports);
        }
        if reads {
            // Where all that have work caused more than their share, nobody waits for the
            // rounds that make up for it.
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

    /// Returns the time at which the next frame may leave, if no event comes first; `None` if no
    /// queued frame waits for time alone.
    pub fn poll_at(&self, ports: &Ports) -> Option<Nanos> {
        if self.admission.has_unlimited() {
            return Some(Nanos::ZERO);
        }
        let leaving = self.transmitter.poll_at(&self.table, ports);
        let next = earlier(leaving, self.table.agenda().poll_at());
        earlier(next, self.excess.poll_at())
    }

    /// Returns the number of packets queued for open ports.
    pub fn waiting(&self, ports: &Ports) -> usize {
        let states = self.table.states().zip(ports);
        let waiting = states.map(|((index, state), port)| {
            let guest = self.table.guest(index);
            let limited = guest.map_or(0, GuestPort::waits_for_limit);
            let leaving = match (port, guest) {
                (None, _) => 0,
                (Some(_), Some(guest)) => guest.pipeline.backlog().packets,
                (Some(_), None) => {
                    let uplink = self.transmitter.uplink();
                    uplink.map_or(0, |uplink| uplink.egress().waiting())
                }
            };
            let outgoing = port.as_ref().map_or(0, |_| state.outbound.frames.len());
            state.inbound.frames.len() + state.inbound.floods.len() + limited + leaving + outgoing
        });
        waiting.sum()
    }

    /// Begins a turn: reads ports again that need not stay unread.
    fn begin_turn(&mut self, now: Nanos, ports: &Ports) {
        self.follow_guests(now, ports);
        self.transmitter
            .deliver_local(now, &mut self.table, &self.forwarding);
        self.transmitter.note_lateness(now, &self.table, ports);
        let mut next = PortIndex::FIRST;
        while let Some(port) = self.table.agenda().next_due(Timer::Retry, next, now) {
            next = port.next();
            if let Some(guest) = self.table.guest_mut(port) {
                guest.ingress.handle_timeout(now);
            }
            self.snoop_timeout(now, port, ports);
            self.table.note(port, ports);
        }
        self.transmitter
            .read_again(&mut self.table, ports, &mut Turn::default());
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
        self.forward_answers(now, index, ports, turn);
        let departure = departure(&mut self.table, index).filter(|_| can_send);
        self.table.agenda_mut().set_departure(now, index, departure);
        self.table.note(index, ports);
    }
}

#[cfg(test)]
mod tests;
