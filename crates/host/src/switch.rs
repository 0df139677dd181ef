//! The packet loop's core, without clock, descriptors or threads: frames come
//! from ports, are checked and forwarded, wait in the pipeline of the port they
//! go to, and are sent.
//!
//! ```text
//! port ► packet ► guard ► learn ► route ► pipeline of another port ► that port
//! ```
//!
//! [`Switch::poll`] does one bounded turn of work. `now` and the ports are
//! arguments, so the daemon runs it on real ones and tests run it on memory
//! ports in virtual time. Between turns, [`Switch::poll_at`] says how long to
//! sleep; [`Switch::readable`] and [`Switch::writable`] say what woke the caller.

mod link;
mod snapshot;

pub use link::LinkConfig;
pub use snapshot::{LinkSnapshot, Promises, Snapshot, Sojourn};

use crate::forward::{Forwarding, Learned, NoRoute, PortIndex, Verdict};
use crate::mac::Mac;
use crate::port::{BURST, Burst, More, Outgoing, Port, Received};
use crate::reason::Reason;
use link::Link;
use std::collections::{HashMap, HashSet};
use std::io;
use tailbound_client::HostGuarantees;
use tailbound_dataplane::{Frame, GuestId, Packet, Pool};
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
    /// The port that is served first in the next turn.
    first: usize,
    burst: Burst,
}

impl Switch {
    /// A switch with a link for each of `configs`, in the order of the ports.
    pub fn new(configs: Vec<LinkConfig>) -> Self {
        let mut switch = Self {
            pool: Pool::new(),
            forwarding: Forwarding::new(0, None, []),
            links: Vec::new(),
            guests: Vec::new(),
            guarantees: None,
            first: 0,
            burst: Burst::default(),
        };
        switch.reconfigure(Nanos::ZERO, configs);
        switch
    }

    /// Becomes a switch with a link for each of `configs`. A link of the same
    /// name keeps its queue, its counters and what was learned from it; the
    /// packets that wait in others are lost. All links are taken as readable and
    /// writable, since their ports may be new.
    pub fn reconfigure(&mut self, now: Nanos, configs: Vec<LinkConfig>) {
        let mut old: Vec<Option<Link>> = self.links.drain(..).map(Some).collect();
        let mut moved = vec![None; old.len()];
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
                    link.reconfigure(now, config);
                    link
                }
                None => Link::new(config, || {
                    self.guests.push(None);
                    GuestId(self.guests.len() as u32 - 1)
                }),
            };
            if let Some(guest) = &link.guest {
                self.guests[guest.id.0 as usize] = Some(PortIndex(index));
            }
            self.links.push(link);
        }
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
        self.promise();
    }

    /// Takes what this host's machines are promised; what was promised before
    /// and is not there any more ends.
    ///
    /// It is kept for each guest and counted with it. Nothing paces frames by it.
    pub fn set_guarantees(&mut self, guarantees: HostGuarantees) {
        self.guarantees = Some(guarantees);
        self.promise();
    }

    /// Gives each guest what its machine is promised.
    fn promise(&mut self) {
        let vms = self.guarantees.iter().flat_map(|all| &all.vms);
        let by_name: HashMap<_, _> = vms.map(|vm| (vm.vm.as_str(), vm)).collect();
        for link in &mut self.links {
            let name = link.vm.as_ref().map(ToString::to_string);
            let promise = name.and_then(|name| by_name.get(name.as_str()).copied());
            link.promise = promise.cloned();
        }
    }

    /// The service's last word, and the machines in it that no guest is.
    fn promises(&self) -> Option<Promises> {
        let guarantees = self.guarantees.as_ref()?;
        let here: HashSet<_> = self
            .links
            .iter()
            .filter_map(|link| Some(link.promise.as_ref()?.vm.as_str()))
            .collect();
        let vms = guarantees.vms.iter().map(|vm| &vm.vm);
        Some(Promises {
            revision: guarantees.revision,
            state: guarantees.state,
            without_guest: vms
                .filter(|vm| !here.contains(vm.as_str()))
                .cloned()
                .collect(),
        })
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

    /// Does one turn: receives a burst from each port that is readable, in turn,
    /// and transmits what the pipelines let go. Its work is bounded by two
    /// bursts a port.
    pub fn poll(&mut self, now: Nanos, ports: &mut Ports) -> Turn {
        let mut turn = Turn::default();
        let count = self.links.len();
        self.first = if self.first + 1 < count {
            self.first + 1
        } else {
            0
        };
        for offset in 0..count {
            let index = (self.first + offset) % count;
            if self.links[index].readable {
                self.receive(now, PortIndex(index), ports, &mut turn);
            }
        }
        self.transmit(now, ports, &mut turn);
        turn
    }

    /// Transmits what the pipelines let go, and receives nothing.
    pub fn drain(&mut self, now: Nanos, ports: &mut Ports) -> Turn {
        let mut turn = Turn::default();
        self.transmit(now, ports, &mut turn);
        turn
    }

    /// When the next frame may leave, unless something wakes the caller before;
    /// `None` when nothing waits that time alone can move.
    pub fn poll_at(&self, ports: &Ports) -> Option<Nanos> {
        let leaving = self.links.iter().zip(ports).filter_map(|(link, port)| {
            let waits = port.is_some() && !link.full;
            if waits { link.pipeline.poll_at() } else { None }
        });
        let coming = ports.iter().flatten().filter_map(|port| port.poll_at());
        leaving.chain(coming).min()
    }

    /// How many packets wait for ports that are there.
    pub fn waiting(&self, ports: &Ports) -> usize {
        let present = self
            .links
            .iter()
            .zip(ports)
            .filter(|(_, port)| port.is_some());
        present
            .map(|(link, _)| link.pipeline.backlog().packets + link.held.len())
            .sum()
    }

    fn receive(&mut self, now: Nanos, from: PortIndex, ports: &mut Ports, turn: &mut Turn) {
        let link = &mut self.links[from.0];
        let Some(port) = &mut ports[from.0] else {
            link.readable = false;
            return;
        };
        match port.receive(now, &self.pool, &mut self.burst) {
            Ok(More::No) => link.readable = false,
            Ok(More::Maybe) => turn.busy = true,
            Err(error) => {
                link.readable = false;
                turn.gone.push((from, error));
            }
        }
        link.counters.drop(Reason::Truncated, self.burst.truncated);
        self.burst.truncated = 0;
        // Taken out, so that the frames can be forwarded one by one; put back
        // with its capacity.
        let mut frames = std::mem::take(&mut self.burst.frames);
        for received in frames.drain(..) {
            if let Err(reason) = self.forward(now, from, received, ports) {
                self.links[from.0].counters.drop(reason, 1);
            }
        }
        self.burst.frames = frames;
    }

    /// Brings one frame into the pipelines of the ports it goes to.
    fn forward(
        &mut self,
        now: Nanos,
        from: PortIndex,
        received: Received,
        ports: &Ports,
    ) -> Result<(), Reason> {
        let link = &mut self.links[from.0];
        link.counters.received.add(received.len);
        let source = link.guest.as_ref().map(|guest| guest.id);
        let Received {
            buffer,
            start,
            len,
            virtio,
        } = received;
        let packet = Packet::new(buffer, start, len, virtio, source).map_err(|malformed| {
            tracing::debug!(port = link.name, %malformed, "dropped a frame");
            Reason::Malformed
        })?;
        if let Some(guard) = link.guest.as_ref().and_then(|guest| guest.guard.as_ref()) {
            guard.check(&packet)?;
        }
        match self.forwarding.learn(now, from, Mac(packet.source_mac())) {
            Learned::Accepted | Learned::Full => {}
            Learned::Claimed => return Err(Reason::MacClaimed),
            Learned::Invalid => return Err(Reason::InvalidSource),
        }
        match self
            .forwarding
            .route(now, from, Mac(packet.destination_mac()))
        {
            Verdict::To(to) => self.push(now, to, packet, ports),
            Verdict::Flood => self.flood(now, from, packet, ports),
            Verdict::Drop(NoRoute::LinkLocal) => return Err(Reason::LinkLocalGroup),
            Verdict::Drop(NoRoute::SamePort) => return Err(Reason::SamePort),
            Verdict::Drop(NoRoute::Unknown) => return Err(Reason::UnknownDestination),
        }
        Ok(())
    }

    /// Copies a frame for every port but the one it came from; the last takes
    /// the frame itself.
    fn flood(&mut self, now: Nanos, from: PortIndex, packet: Packet, ports: &Ports) {
        let mut last = None;
        for index in (0..self.links.len()).filter(|index| *index != from.0) {
            if let Some(port) = last.replace(PortIndex(index)) {
                self.push(now, port, packet.duplicate(), ports);
            }
        }
        if let Some(port) = last {
            self.push(now, port, packet, ports);
        }
    }

    fn push(&mut self, now: Nanos, to: PortIndex, packet: Packet, ports: &Ports) {
        let link = &mut self.links[to.0];
        if ports[to.0].is_some() {
            link.pipeline.push(now, packet);
        } else {
            link.counters.drop(Reason::PortMissing, 1);
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
            // A port that is full is offered nothing until it is writable.
            let link = &mut self.links[index];
            if link.full || (link.held.is_empty() && link.pipeline.backlog().packets == 0) {
                continue;
            }
            if let Err(error) = self.transmit_one(now, index, port.as_mut(), turn) {
                turn.gone.push((PortIndex(index), error));
            }
        }
    }

    /// Transmits at most two bursts: twice what one port can receive in a turn.
    fn transmit_one(
        &mut self,
        now: Nanos,
        index: usize,
        port: &mut dyn Port,
        turn: &mut Turn,
    ) -> io::Result<()> {
        for _ in 0..2 {
            while self.links[index].held.len() < BURST {
                let Some(departure) = self.links[index].pipeline.pull(now) else {
                    break;
                };
                self.record(index, &departure.frame, departure.sojourn);
                let frame = Outgoing::frame(departure.frame);
                self.links[index].held.push_back(frame);
            }
            let link = &mut self.links[index];
            if link.held.is_empty() {
                return Ok(());
            }
            let sent = port.transmit(now, &mut link.held)?;
            link.counters.sent.packets += sent.packets;
            link.counters.sent.bytes += sent.bytes;
            for (reason, count) in sent.losses() {
                link.counters.drop(reason, count);
            }
            link.full = sent.full;
            if sent.full {
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
        let links = self.links.iter_mut().zip(ports).map(|(link, port)| {
            if let Some(port) = port {
                link.counters.drop(Reason::Overrun, port.take_overruns());
            }
            link.snapshot(port.is_some())
        });
        let links = links.collect();
        Snapshot {
            links,
            stations: self.forwarding.stations(),
            promises: self.promises(),
        }
    }
}

#[cfg(test)]
mod tests;
