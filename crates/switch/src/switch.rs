//! The packet loop's core, without clock, descriptors or threads: frames come
//! from ports, are checked and forwarded, wait in the pipeline of the port they
//! go to, and are sent.
//!
//! ```text
//! port ► packet ► guard ► learn ► route ► pipeline of another port ► that port
//!                                       ► pacer of a paced uplink  ►
//! ```
//!
//! What a pacer would have to keep for long it gives back. Such frames wait
//! here, a burst at most, and their guest's port is not read until they are
//! taken: then its queue fills, and the guest notices.
//!
//! [`Switch::poll`] does one bounded turn of work. `now` and the ports are
//! arguments, so the daemon runs it on real ones and tests run it on memory
//! ports in virtual time. Between turns, [`Switch::poll_at`] says how long to
//! sleep; [`Switch::readable`] and [`Switch::writable`] say what woke the caller.

mod guarantees;
mod link;
mod paced;
mod receive;
mod snapshot;

pub use guarantees::HoseGuest;
pub use link::LinkConfig;
pub use paced::Pacing;
pub use snapshot::{GuestPacing, LinkSnapshot, Promises, Snapshot, Sojourn, UplinkPacing};

use crate::forward::{Forwarding, PortIndex};
use crate::port::{BURST, Burst, Outgoing, Port};
use crate::reason::Reason;
use link::{Link, Way, WayConfig};
use std::io;
use tailbound_api::HostGuarantees;
use tailbound_dataplane::pacer::{Later, Refused};
use tailbound_dataplane::{Frame, GuestId, Pacer, Packet, Pool};
use tailbound_units::Nanos;

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

/// The switch: forwarding between ports, with a pipeline before each.
#[derive(Debug)]
pub struct Switch {
    pool: Pool,
    forwarding: Forwarding,
    links: Vec<Link>,
    /// The port of each guest, by [`GuestId`]; `None` for guests that are gone.
    /// Ids are never used again, so a packet that still waits cannot be taken
    /// for another guest's.
    guests: Vec<Option<PortIndex>>,
    /// The placement service's last word, if it was ever heard.
    guarantees: Option<HostGuarantees>,
    /// How often terms were refused.
    refusals: u64,
    /// The port that is served first in the next turn.
    first: usize,
    burst: Burst,
}

impl Switch {
    /// A switch with a link for each of `configs`, in the order of the ports.
    ///
    /// # Errors
    /// The rule that the uplink's pacing breaks.
    pub fn new(configs: Vec<LinkConfig>) -> Result<Self, Refused> {
        let mut switch = Self {
            pool: Pool::new(),
            forwarding: Forwarding::new(0, None, []),
            links: Vec::new(),
            guests: Vec::new(),
            guarantees: None,
            refusals: 0,
            first: 0,
            burst: Burst::default(),
        };
        switch.reconfigure(Nanos::ZERO, configs)?;
        Ok(switch)
    }

    /// Becomes a switch with a link for each of `configs`. A link of the same
    /// name keeps its queue, its counters and what was learned from it; the
    /// packets that wait in others are lost. All links are taken as readable and
    /// writable, since their ports may be new.
    ///
    /// # Errors
    /// As [`Switch::check`]; then nothing has changed.
    pub fn reconfigure(&mut self, now: Nanos, configs: Vec<LinkConfig>) -> Result<(), Refused> {
        self.check(&configs)?;
        let mut old: Vec<Option<Link>> = self.links.drain(..).map(Some).collect();
        let mut moved = vec![None; old.len()];
        let mut ways = Vec::with_capacity(configs.len());
        self.guests.fill(None);
        for (index, config) in configs.into_iter().enumerate() {
            let found = old
                .iter()
                .position(|link| link.as_ref().is_some_and(|link| link.is(&config)));
            let kept = found.and_then(|place| {
                moved[place] = Some(PortIndex(index));
                old[place].take()
            });
            let link = match kept {
                Some(mut link) => {
                    link.reconfigure(&config);
                    ways.push((index, WayConfig::from(config)));
                    link
                }
                None => Link::new(config, || {
                    self.guests.push(None);
                    GuestId(self.guests.len() as u32 - 1)
                })?,
            };
            if let Some(guest) = &link.guest {
                self.guests[guest.id.0 as usize] = Some(PortIndex(index));
            }
            self.links.push(link);
        }
        let gone = old.iter().flatten().filter_map(|link| link.guest.as_ref());
        self.change_ways(now, ways, gone.map(|guest| guest.id));
        let uplink = self.links.iter().position(|link| link.guest.is_none());
        let macs = self.links.iter().enumerate().filter_map(|(index, link)| {
            let guest = link.guest.as_ref()?;
            Some((guest.mac, PortIndex(index)))
        });
        let mut forwarding = Forwarding::new(self.links.len(), uplink.map(PortIndex), macs);
        forwarding.inherit(&self.forwarding, |port| {
            moved.get(port.0).copied().flatten()
        });
        self.forwarding = forwarding;
        if uplink.is_none() {
            self.give_up_waiting();
        }
        Ok(())
    }

    /// Drops what waits for an uplink that there is no more, and reads its guests
    /// again.
    fn give_up_waiting(&mut self) {
        for link in &mut self.links {
            if let Some(guest) = &mut link.guest {
                let waiting = guest.stalled.drain(..).count() as u64;
                guest.paused = false;
                link.counters.drop(Reason::UnknownDestination, waiting);
            }
        }
    }

    /// The pacer of the uplink, for whoever limits destinations; `None` where the
    /// uplink is not paced.
    pub fn pacer(&mut self) -> Option<&mut Pacer<Packet>> {
        let paced = self.links.iter_mut().find_map(Link::paced_mut);
        paced.map(|paced| &mut paced.pacer)
    }

    /// Offers the pacer again in the next turn what it gave back of a guest: it may
    /// send faster now. One whose port is to rest has that rest first.
    pub fn retry(&mut self, guest: GuestId) {
        let port = self.guests.get(guest.0 as usize).copied().flatten();
        let link = port.and_then(|port| self.links.get_mut(port.0));
        if let Some(guest) = link.and_then(|link| link.guest.as_mut())
            && !guest.paused
        {
            guest.retry_at = Nanos::ZERO;
        }
    }

    /// The port has something to receive.
    pub fn readable(&mut self, port: PortIndex) {
        if let Some(link) = self.links.get_mut(port.0) {
            link.readable = true;
        }
    }

    /// The port has room again.
    pub fn writable(&mut self, port: PortIndex) {
        if let Some(link) = self.links.get_mut(port.0) {
            link.full = false;
        }
    }

    /// Whether the port was full when it was last offered a frame.
    pub fn is_full(&self, port: PortIndex) -> bool {
        self.links.get(port.0).is_some_and(|link| link.full)
    }

    /// Whether frames from the port wait for the uplink: then it is not read.
    pub fn is_stalled(&self, port: PortIndex) -> bool {
        self.links.get(port.0).is_some_and(Link::is_stalled)
    }

    /// Does one turn: receives a burst from each port that is readable, in turn,
    /// and transmits what the pipelines let go. Its work is bounded by two
    /// bursts a port, and by what their packets may be cut to.
    pub fn poll(&mut self, now: Nanos, ports: &mut Ports) -> Turn {
        let mut turn = Turn::default();
        let count = self.links.len();
        self.first = if self.first + 1 < count {
            self.first + 1
        } else {
            0
        };
        self.wake(now, ports);
        for offset in 0..count {
            let index = PortIndex((self.first + offset) % count);
            if self.links[index.0].readable {
                self.receive(now, index, ports, &mut turn);
            }
            self.forward_read(now, index, ports, &mut turn);
        }
        self.transmit(now, ports, &mut turn);
        turn
    }

    /// Transmits what the pipelines let go, and receives nothing.
    pub fn drain(&mut self, now: Nanos, ports: &mut Ports) -> Turn {
        let mut turn = Turn::default();
        self.wake(now, ports);
        for index in 0..self.links.len() {
            self.forward_read(now, PortIndex(index), ports, &mut turn);
        }
        self.transmit(now, ports, &mut turn);
        turn
    }

    /// When the next frame may leave, unless something wakes the caller before;
    /// `None` when nothing waits that time alone can move.
    pub fn poll_at(&self, ports: &Ports) -> Option<Nanos> {
        let mut retry = true;
        let leaving = self.links.iter().zip(ports).filter_map(|(link, port)| {
            let waits = port.is_some() && !link.full;
            if matches!(link.way, Way::Paced(_)) && port.is_some() {
                retry = !link.full;
            }
            if waits { link.way.poll_at() } else { None }
        });
        let leaving = leaving.min();
        let stalled = self.links.iter().filter_map(|link| {
            let guest = link.guest.as_ref()?;
            (retry && link.is_stalled()).then_some(guest.retry_at)
        });
        let coming = ports.iter().flatten().filter_map(|port| port.poll_at());
        leaving.into_iter().chain(stalled).chain(coming).min()
    }

    /// How many packets wait for ports that are there.
    pub fn waiting(&self, ports: &Ports) -> usize {
        let links = self.links.iter().zip(ports);
        let waiting = links.map(|(link, port)| {
            let stalled = link.guest.as_ref().map_or(0, |guest| guest.stalled.len());
            let read = stalled + link.unread.len();
            if port.is_some() {
                read + link.way.waiting() + link.held.len()
            } else {
                read
            }
        });
        waiting.sum()
    }

    /// Begins a turn of a paced uplink: offers it again what it gave back, where
    /// that is due.
    fn wake(&mut self, now: Nanos, ports: &Ports) {
        let Some(uplink) = self.forwarding.uplink() else {
            return;
        };
        let link = &mut self.links[uplink.0];
        if let Way::Paced(paced) = &mut link.way {
            // One that vanished while it was full takes everything, and loses it.
            if link.full && ports[uplink.0].is_some() {
                return;
            }
            paced.wake(now);
        }
        for index in 0..self.links.len() {
            if let Some(guest) = &mut self.links[index].guest
                && guest.retry_at <= now
            {
                guest.paused = false;
            }
            while let Some(guest) = &mut self.links[index].guest
                && guest.retry_at <= now
                && let Some(frame) = guest.stalled.pop_front()
            {
                let later = self.push_on(now, PortIndex(index), uplink, frame, ports);
                if let Some(later) = later
                    && let Some(guest) = &mut self.links[index].guest
                {
                    guest.stalled.push_front(later.frame);
                    guest.retry_at = later.at;
                }
            }
        }
    }

    fn push(
        &mut self,
        now: Nanos,
        from: PortIndex,
        to: PortIndex,
        mut packet: Packet,
        ports: &Ports,
    ) {
        let machine = self.links[from.0].vm.is_some();
        if let Way::Paced(paced) = &mut self.links[to.0].way {
            paced.prepare(now, &mut packet, machine);
            // Behind what was given back, so that nothing overtakes it.
            if let Some(guest) = &mut self.links[from.0].guest
                && !guest.stalled.is_empty()
            {
                guest.stalled.push_back(packet);
                return;
            }
        }
        if let Some(later) = self.push_on(now, from, to, packet, ports)
            && let Some(guest) = &mut self.links[from.0].guest
        {
            guest.stalled.push_back(later.frame);
            guest.retry_at = later.at;
        }
    }

    /// Brings a frame into the way of the port it goes to; gives it back where that
    /// is paced and it has to be offered again.
    fn push_on(
        &mut self,
        now: Nanos,
        from: PortIndex,
        to: PortIndex,
        packet: Packet,
        ports: &Ports,
    ) -> Option<Later<Packet>> {
        let link = &mut self.links[to.0];
        if ports[to.0].is_none() {
            link.counters.drop(Reason::PortMissing, 1);
            return None;
        }
        let paced = match &mut link.way {
            Way::Queued(pipeline) => {
                pipeline.push(now, packet);
                return None;
            }
            Way::Paced(paced) => paced,
        };
        let class = packet.class();
        match paced.offer(now, packet) {
            Ok(wait) => {
                if let Some(guest) = &mut self.links[from.0].guest
                    && let Some(wait) = wait
                {
                    guest.sent.of(class).record(wait);
                }
                None
            }
            Err(later) => Some(later),
        }
    }

    fn transmit(&mut self, now: Nanos, ports: &mut Ports, turn: &mut Turn) {
        for (index, port) in ports.iter_mut().enumerate() {
            let Some(port) = port else {
                continue;
            };
            if turn.gone.iter().any(|(gone, _)| gone.0 == index) {
                continue;
            }
            if let Err(error) = port.go_on(now) {
                turn.gone.push((PortIndex(index), error));
                continue;
            }
            // A port that is full is offered nothing until it is writable.
            let link = &mut self.links[index];
            if link.full || (link.held.is_empty() && link.way.waiting() == 0) {
                continue;
            }
            let result = match link.way {
                Way::Queued(_) => self.transmit_queued(now, index, port.as_mut(), turn),
                Way::Paced(_) => link.transmit_paced(now, port.as_mut()),
            };
            if let Err(error) = result {
                turn.gone.push((PortIndex(index), error));
            }
        }
    }

    /// Transmits at most two bursts: twice what one port can receive in a turn.
    fn transmit_queued(
        &mut self,
        now: Nanos,
        index: usize,
        port: &mut dyn Port,
        turn: &mut Turn,
    ) -> io::Result<()> {
        for _ in 0..2 {
            while let Link {
                way: Way::Queued(pipeline),
                held,
                ..
            } = &mut self.links[index]
                && held.len() < BURST
            {
                let Some(departure) = pipeline.pull(now) else {
                    break;
                };
                self.record(index, &departure.frame, departure.sojourn);
                let frame = Outgoing::frame(departure.frame);
                self.links[index].held.push_back(frame);
            }
            let link = &mut self.links[index];
            if link.held.is_empty() || link.offer_held(now, port)? {
                return Ok(());
            }
        }
        turn.busy = true;
        Ok(())
    }

    /// Counts the wait of a frame that leaves by `index`: for the guest that
    /// sent it, or, where it came from outside, for the one that gets it.
    fn record(&mut self, index: usize, frame: &Packet, sojourn: Nanos) {
        let class = frame.class();
        let guest = match frame.source() {
            None => self.links[index]
                .guest
                .as_mut()
                .map(|guest| &mut guest.received),
            Some(id) => {
                let port = self.guests.get(id.0 as usize).copied().flatten();
                let link = port.and_then(|port| self.links.get_mut(port.0));
                link.and_then(|link| link.guest.as_mut())
                    .map(|guest| &mut guest.sent)
            }
        };
        if let Some(sojourns) = guest {
            sojourns.of(class).record(sojourn);
        }
    }

    /// Everything that is counted, as of now.
    pub fn snapshot(&mut self, ports: &mut Ports) -> Snapshot {
        for (link, port) in self.links.iter_mut().zip(ports.iter_mut()) {
            if let Some(port) = port {
                link.counters.drop(Reason::Overrun, port.take_overruns());
            }
        }
        let paced = self.links.iter().find_map(Link::paced);
        let links = self.links.iter().zip(ports);
        Snapshot {
            links: links
                .map(|(link, port)| link.snapshot(port.is_some(), paced))
                .collect(),
            stations: self.forwarding.stations(),
            promises: self.promises(),
            refusals: self.refusals,
        }
    }
}

#[cfg(test)]
mod tests;
