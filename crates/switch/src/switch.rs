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
//! to wait for. Guarantees are set by guest: [`Switch::apply`]. A guest
//! that must stop sending is drained ([`GuestMut::set_drained`]).

mod admission;
mod agenda;
mod batch;
mod config;
mod drain;
mod flood;
mod floods;
mod guarantees;
mod guest;
mod handle;
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
mod turn;
mod upkeep;
mod uplink;
mod wakes;
mod work;

pub use config::{GuestConfig, SwitchConfig, UPLINK};
pub use guarantees::Applying;
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
use agenda::{Work, earlier};
use guest::GuestPort;
use memory::GiveBack;
use receiver::Receiver;
pub use snoop::SnoopSnapshot;
pub use state::Interest;
use std::io;
use table::PortTable;
use tailbound_dataplane::pacer::PacerError;
use tailbound_dataplane::{HashKeys, Pacer, Packet};
use tailbound_units::Nanos;
pub use timing::{Stopwatch, Switches};
pub use trace::{Traced, TracedFrame, Wait};
use transmitter::Transmitter;

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
    parts: Parts,
}

/// The parts that frames pass, in their order, and the state of turns.
#[derive(Debug)]
struct Parts {
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

impl Parts {
    /// Makes the parts without ports, with the keys for the hashes of connections.
    fn new(keys: HashKeys) -> Self {
        Self {
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
        }
    }
}

/// A guest of the switch: [`Switch::guest`].
#[derive(Debug, Clone, Copy)]
pub struct GuestRef<'s> {
    parts: &'s Parts,
    index: GuestIndex,
}

/// A guest of the switch that may be changed: [`Switch::guest_mut`].
#[derive(Debug)]
pub struct GuestMut<'s> {
    parts: &'s mut Parts,
    index: GuestIndex,
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
            parts: Parts::new(keys),
        };
        switch.reconfigure(Nanos::ZERO, config)?;
        Ok(switch)
    }

    /// Measures the time that ports take, and charges ports for the excess over the general cost of
    /// their frames. Without a stopwatch only that cost is charged.
    pub fn set_stopwatch(&mut self, stopwatch: Box<dyn Stopwatch>) {
        self.parts.stopwatch = Some(stopwatch);
    }

    /// Returns the pacer of the uplink, for limits of destinations; `None` if the uplink is not
    /// paced.
    pub fn pacer(&mut self) -> Option<&mut Pacer<Packet>> {
        self.parts.transmitter.pacer_mut()
    }

    /// Sets whether guests' frames to a station are limited as such
    /// ([`FlowKey::station`](tailbound_dataplane::FlowKey::station)), for all IP addresses: the
    /// receiver takes frames by its MAC address.
    pub fn set_limited_by_station(&mut self, station: Mac, limited: bool) {
        self.parts
            .admission
            .set_limited_by_station(station, limited);
    }

    /// Notes that the port has something to receive.
    pub fn handle_readable(&mut self, port: PortIndex) {
        if let Some(state) = self.parts.table.get_mut(port) {
            state.inbound.readable = true;
            state.inbound.wakes.note();
            self.parts.table.agenda_mut().set(Work::Ready, port, true);
        }
    }

    /// Notes that the port has room again.
    pub fn handle_writable(&mut self, port: PortIndex) {
        if let Some(state) = self.parts.table.get_mut(port) {
            state.outbound.full = false;
            self.parts.table.agenda_mut().set(Work::Sending, port, true);
        }
    }

    /// Notes that a missing port was opened.
    pub fn handle_opened(&mut self, port: PortIndex) {
        if let Some(state) = self.parts.table.get_mut(port) {
            state.outbound.longest = 0;
            if let Some(guest) = self.parts.table.guest_mut(port) {
                guest.presence = None;
            }
            self.handle_readable(port);
            self.handle_writable(port);
            self.parts.table.agenda_mut().set(Work::Changed, port, true);
        }
    }

    /// Returns a port whose awaited events have changed, with these events. Call it after each turn
    /// until it returns none.
    pub fn poll_interest(&mut self) -> Option<(PortIndex, Interest)> {
        let port = self.parts.table.agenda_mut().pop(Work::Changed)?;
        Some((port, self.parts.table[port].interest))
    }

    /// Does one turn: serves each port that has something to receive, in turn, and transmits due
    /// frames. The work that a port causes by its frames is bounded by a share that is the same for
    /// all ports, and one packet; transmission is bounded by two bursts per port. Idle ports cost
    /// nothing.
    pub fn poll(&mut self, now: Nanos, ports: &mut Ports) -> Turn {
        self.parts.turn(now, ports, true)
    }

    /// Transmits due frames, and receives nothing.
    pub fn drain(&mut self, now: Nanos, ports: &mut Ports) -> Turn {
        self.parts.turn(now, ports, false)
    }

    /// Returns the time at which the next frame may leave, if no event comes first; `None` if no
    /// queued frame waits for time alone.
    #[inline]
    pub fn poll_at(&self, ports: &Ports) -> Option<Nanos> {
        if self.parts.admission.has_unlimited() {
            return Some(Nanos::ZERO);
        }
        let leaving = self.parts.transmitter.poll_at(&self.parts.table, ports);
        let next = earlier(leaving, self.parts.table.agenda().poll_at());
        earlier(next, self.parts.excess.poll_at())
    }

    /// Returns the number of packets queued for open ports.
    pub fn waiting(&self, ports: &Ports) -> usize {
        let states = self.parts.table.states().zip(ports);
        let waiting = states.map(|((index, state), port)| {
            let guest = self.parts.table.guest(index);
            let limited = guest.map_or(0, GuestPort::waits_for_limit);
            let leaving = match (port, guest) {
                (None, _) => 0,
                (Some(_), Some(guest)) => guest.pipeline.backlog().packets,
                (Some(_), None) => {
                    let uplink = self.parts.transmitter.uplink();
                    uplink.map_or(0, |uplink| uplink.egress().waiting())
                }
            };
            let outgoing = port.as_ref().map_or(0, |_| state.outbound.frames.len());
            state.inbound.frames.len() + state.inbound.floods.len() + limited + leaving + outgoing
        });
        waiting.sum()
    }
}

#[cfg(test)]
mod tests;
