//! The packet loop's core, without clock, descriptors or threads: frames come
//! from ports, are checked and forwarded, wait in the egress of the port they
//! go to, and are sent.
//!
//! ```text
//! port ► packet ► anti-spoofing filter ► learn ► route ► pipeline of a guest ► its port
//!                                                      ► egress of the uplink ► its port
//! ```
//!
//! What a pacer would have to keep for long it does not take. Such frames wait here, a
//! burst at most, and their guest's port is not read until they are taken
//! (backpressure): then its queue fills, and the guest notices.
//!
//! [`Switch::poll`] does one bounded turn of work. `now` and the ports are
//! arguments, so the daemon runs it on real ones and tests run it on memory
//! ports in virtual time. Between turns, [`Switch::poll_at`] says how long to
//! sleep; [`Switch::handle_readable`] and [`Switch::handle_writable`] say what woke the
//! caller. Guarantees are set by guest: [`Switch::set_guarantee`], [`Switch::apply`].

mod config;
mod guarantees;
mod guest;
mod ingress;
mod receive;
mod reload;
mod snapshot;
mod state;
mod transmit;
mod uplink;
mod work;

pub use config::{GuestConfig, SwitchConfig, UPLINK};
pub use guarantees::GuaranteeError;
pub use snapshot::{
    GuestPacing, GuestSnapshot, PortSnapshot, Snapshot, Sojourn, UplinkPacing, UplinkSnapshot,
};

use crate::forward::{Forwarding, PortIndex};
use crate::port::{Burst, Port};
use crate::reason::Reason;
use guest::GuestPort;
use receive::Round;
use state::PortState;
use std::io;
use tailbound_dataplane::pacer::PacerError;
use tailbound_dataplane::{Egress, GuestId, Pacer, Packet, Pool};
use tailbound_units::Nanos;
use uplink::Uplink;

/// The ports, by [`PortIndex`]; `None` where the interface is missing.
pub type Ports = [Option<Box<dyn Port>>];

/// What a turn found.
#[derive(Debug, Default)]
pub struct Turn {
    /// There is more to do at once: do not sleep.
    pub busy: bool,
    /// Ports that are of no use any more, each once, and why.
    pub gone: Vec<(PortIndex, io::Error)>,
}

/// The switch: forwarding between ports, with an egress before each.
#[derive(Debug)]
pub struct Switch {
    pool: Pool,
    forwarding: Forwarding,
    /// What every port has, by [`PortIndex`]: the uplink where there is one, then the
    /// guests.
    states: Vec<PortState>,
    uplink: Option<Uplink>,
    guests: Vec<GuestPort>,
    /// The port of each guest, by [`GuestId`]; `None` for guests that are gone.
    /// Ids are never used again, so a packet that still waits cannot be taken
    /// for another guest's.
    ids: Vec<Option<PortIndex>>,
    /// How often guarantees were refused.
    refusals: u64,
    /// The port that is served first in the next turn.
    first: usize,
    burst: Burst,
}

impl Switch {
    /// A switch of `config`, without frames.
    ///
    /// # Errors
    /// The rule that the uplink's pacer breaks.
    pub fn new(config: SwitchConfig) -> Result<Self, PacerError> {
        let mut switch = Self {
            pool: Pool::new(),
            forwarding: Forwarding::new(0, None, []),
            states: Vec::new(),
            uplink: None,
            guests: Vec::new(),
            ids: Vec::new(),
            refusals: 0,
            first: 0,
            burst: Burst::default(),
        };
        switch.reconfigure(Nanos::ZERO, config)?;
        Ok(switch)
    }

    /// The port of the first guest: the uplink, where there is one, is before it.
    fn first_guest(&self) -> usize {
        usize::from(self.uplink.is_some())
    }

    /// The guest at a port; `None` for the uplink's.
    fn guest_at(&mut self, port: PortIndex) -> Option<&mut GuestPort> {
        let index = port.0.checked_sub(self.first_guest())?;
        self.guests.get_mut(index)
    }

    /// The pacer of the uplink, for whoever limits destinations; `None` where the
    /// uplink is not paced.
    pub fn pacer(&mut self) -> Option<&mut Pacer<Packet>> {
        self.uplink.as_mut()?.egress.pacer_mut()
    }

    /// Offers the pacer again in the next turn what it did not take of a guest: it may
    /// send faster now. One whose port is throttled as well waits for that first.
    pub fn expedite(&mut self, guest: GuestId) {
        let port = self.ids.get(guest.0 as usize).copied().flatten();
        if let Some(guest) = port.and_then(|port| self.guest_at(port)) {
            guest.ingress.expedite();
        }
    }

    /// The port has something to receive.
    pub fn handle_readable(&mut self, port: PortIndex) {
        if let Some(state) = self.states.get_mut(port.0) {
            state.readable = true;
        }
    }

    /// The port has room again.
    pub fn handle_writable(&mut self, port: PortIndex) {
        if let Some(state) = self.states.get_mut(port.0) {
            state.full = false;
        }
    }

    /// Whether the port was full when it was last offered a frame.
    pub fn is_full(&self, port: PortIndex) -> bool {
        self.states.get(port.0).is_some_and(|state| state.full)
    }

    /// Whether the port is read: not where its guest met backpressure or is throttled.
    pub fn is_read(&self, port: PortIndex) -> bool {
        let guest = port.0.checked_sub(self.first_guest());
        guest.is_none_or(|guest| {
            let guest = self.guests.get(guest);
            guest.is_none_or(|guest| guest.ingress.is_open())
        })
    }

    /// Does one turn: serves each port that has something to receive, in turn, and
    /// transmits what is due. What a port causes by what it sends is bounded, by a share
    /// that is the same for all of them and one packet; on its way out by two bursts a
    /// port.
    pub fn poll(&mut self, now: Nanos, ports: &mut Ports) -> Turn {
        let mut turn = Turn::default();
        let count = self.states.len();
        self.first = if self.first + 1 < count {
            self.first + 1
        } else {
            0
        };
        self.offer_again(now, ports);
        // Where all that have work caused more than their share, nobody waits for the
        // rounds that make up for it.
        while self.receive_round(now, ports, &mut turn) == Round::InDebt {}
        self.transmit(now, ports, &mut turn);
        turn
    }

    /// Serves all ports once; returns the most that any of them did.
    fn receive_round(&mut self, now: Nanos, ports: &mut Ports, turn: &mut Turn) -> Round {
        let count = self.states.len();
        let mut round = Round::Idle;
        for offset in 0..count {
            let index = PortIndex((self.first + offset) % count);
            round = round.max(self.serve(now, index, ports, turn));
        }
        round
    }

    /// Transmits what is due, and receives nothing.
    pub fn drain(&mut self, now: Nanos, ports: &mut Ports) -> Turn {
        let mut turn = Turn::default();
        self.offer_again(now, ports);
        for index in (0..self.states.len()).map(PortIndex) {
            if self.states[index.0].has_received() && self.is_read(index) {
                self.states[index.0].credit.begin_round();
                self.forward_received(now, index, ports, &mut turn);
            }
        }
        self.transmit(now, ports, &mut turn);
        turn
    }

    /// When the next frame may leave, unless something wakes the caller before;
    /// `None` when nothing waits that time alone can move.
    pub fn poll_at(&self, ports: &Ports) -> Option<Nanos> {
        let first = self.first_guest();
        let can_send = |index: usize| {
            let there = ports.get(index).is_some_and(Option::is_some);
            there && !self.states[index].full
        };
        let uplink = self.uplink.as_ref();
        let leaving = uplink.filter(|_| can_send(0));
        let leaving = leaving.and_then(|uplink| uplink.egress.poll_at());
        let to_guests = self.guests.iter().zip(first..);
        let to_guests = to_guests.filter(|(_, index)| can_send(*index));
        let to_guests = to_guests.filter_map(|(guest, _)| guest.pipeline.poll_at());
        let blocked = self.is_uplink_blocked(ports);
        let guests = self.guests.iter().filter(|_| !blocked);
        let retries = guests.filter_map(|guest| guest.ingress.poll_at());
        let coming = ports.iter().flatten().filter_map(|port| port.poll_at());
        let times = leaving.into_iter().chain(to_guests);
        times.chain(retries).chain(coming).min()
    }

    /// Whether the uplink is paced and its port full: then offering the pacer more is
    /// of no use. One that vanished while it was full takes everything, and loses it.
    fn is_uplink_blocked(&self, ports: &Ports) -> bool {
        let uplink = self.uplink.as_ref();
        uplink.is_some_and(|uplink| uplink.egress.paced().is_some())
            && self.states[0].full
            && ports.first().is_some_and(Option::is_some)
    }

    /// How many packets wait for ports that are there.
    pub fn waiting(&self, ports: &Ports) -> usize {
        let first = self.first_guest();
        let blocked: usize = self
            .guests
            .iter()
            .map(|guest| guest.ingress.backlog())
            .sum();
        let states = self.states.iter().zip(ports).enumerate();
        let waiting = states.map(|(index, (state, port))| {
            let leaving = match (port, index.checked_sub(first)) {
                (None, _) => 0,
                (Some(_), Some(guest)) => self.guests[guest].pipeline.backlog().packets,
                (Some(_), None) => self.uplink.as_ref().map_or(0, |up| up.egress.waiting()),
            };
            let outgoing = port.as_ref().map_or(0, |_| state.outgoing.len());
            state.received.len() + leaving + outgoing
        });
        blocked + waiting.sum::<usize>()
    }

    /// Begins a turn: offers the uplink again what it did not take, where that is due.
    fn offer_again(&mut self, now: Nanos, ports: &Ports) {
        let blocked = self.is_uplink_blocked(ports);
        let Some(uplink) = &mut self.uplink else {
            return;
        };
        if blocked {
            return;
        }
        uplink.note_lateness(now);
        let is_there = ports[0].is_some();
        for guest in &mut self.guests {
            while let Some(frame) = guest.ingress.next_due(now) {
                if !is_there {
                    self.states[0].counters.drop(Reason::PortMissing, 1);
                } else if let Err(blocked) = uplink.push(now, frame, guest) {
                    guest.ingress.block_again(blocked);
                }
            }
        }
    }

    /// Brings a frame into the egress of the port it goes to.
    fn push(
        &mut self,
        now: Nanos,
        from: PortIndex,
        to: PortIndex,
        mut packet: Packet,
        ports: &Ports,
    ) {
        let first = self.first_guest();
        let is_there = ports[to.0].is_some();
        if let Some(guest) = to.0.checked_sub(first) {
            if is_there {
                self.guests[guest].pipeline.push(now, packet);
            } else {
                self.states[to.0].counters.drop(Reason::PortMissing, 1);
            }
            return;
        }
        debug_assert_ne!(from, to, "no frame leaves by the port that it came in by");
        let Some(uplink) = &mut self.uplink else {
            return;
        };
        let Some(guest) = from.0.checked_sub(first) else {
            return;
        };
        let guest = &mut self.guests[guest];
        if let Egress::Pacer(paced) = &mut uplink.egress {
            paced.classify(now, &mut packet, guest.coverage);
            match guest.ingress.queue_behind(packet) {
                Some(first) => packet = first,
                None => return,
            }
        }
        if !is_there {
            self.states[to.0].counters.drop(Reason::PortMissing, 1);
        } else if let Err(blocked) = uplink.push(now, packet, guest) {
            guest.ingress.block(blocked);
        }
    }
}

#[cfg(test)]
mod tests;
