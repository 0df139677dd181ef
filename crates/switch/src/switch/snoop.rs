//! Early acknowledgement at the ports of guests: between the queue in front of a port and its ring
//! on the way in, behind the filter on the way out.
//!
//! Frames that the host sends in a guest's place are that guest's traffic: they are checked,
//! routed, metered, paced and queued as if they had come from its port.

use super::Parts;
use super::guest::{Answering, GuestPort};
use super::known::{keep_way, known_way};
use super::state::{PortState, Transmitted};
use super::table::{PortTable, Source};
use super::transmitter::Transmitter;
use super::work::Cost;
use super::{GuestMut, GuestRef};
use super::{Ports, Switch, Turn};
use crate::forward::{Forwarding, Way};
use crate::index::PortIndex;
use crate::mac::Mac;
use crate::port::{Port, Presence};
use crate::reason::Reason;
use std::io;
use tailbound_dataplane::snoop::{Damaged, Drained, FlowView, Mode, Origin, RingPlacement};
use tailbound_dataplane::{GuestId, Packet, Pool, Snoop, SnoopConfig, SnoopStats, TcpMaker};
use tailbound_units::{Bytes, Nanos};

/// State of early acknowledgement for a guest.
#[derive(Debug, Clone, Copy)]
pub struct SnoopSnapshot {
    /// The counters.
    pub stats: SnoopStats,
    /// The connections by mode, in the order of [`Mode::LABELS`].
    pub modes: [usize; Mode::LABELS.len()],
    /// The memory of data that the guest has not acknowledged yet.
    pub retained: Bytes,
}

impl GuestPort {
    /// Begins, changes or ends early acknowledgement. When it ends, it continues until the guest
    /// has all early acknowledged data.
    pub(super) fn set_snoop(&mut self, now: Nanos, config: Option<SnoopConfig>, pool: &Pool) {
        match (&mut self.early.snoop, config) {
            (Some(snoop), Some(config)) => {
                snoop.end_drain();
                if *snoop.config() != config {
                    snoop.reconfigure(now, config);
                }
            }
            (Some(snoop), None) => {
                snoop.begin_drain();
                self.end_snoop();
            }
            (none, Some(config)) => {
                let maker = TcpMaker {
                    pool: pool.clone(),
                    guest: self.id,
                };
                *none = Some(Box::new(Snoop::new(config, maker)));
            }
            (None, None) => {}
        }
        self.early.ends = config.is_none();
    }

    /// Removes early acknowledgement that is ending, once all data is delivered.
    pub(super) fn end_snoop(&mut self) {
        let is_done =
            |snoop: &Answering| !(snoop.owes() || snoop.has_for_guest() || snoop.has_for_peer());
        if self.early.ends && self.early.snoop.as_ref().is_some_and(is_done) {
            self.early.snoop = None;
        }
    }

    /// Returns true if early acknowledgement has more connections than the CPU's caches have room for.
    #[inline]
    pub(super) fn has_many_flows(&self) -> bool {
        let snoop = self.early.snoop.as_ref();
        snoop.is_some_and(|snoop| snoop.len() > SnoopConfig::CACHED)
    }

    pub(super) fn snoop_snapshot(&self) -> Option<SnoopSnapshot> {
        self.early.snoop.as_ref().map(|snoop| SnoopSnapshot {
            stats: snoop.stats(),
            modes: snoop.modes(),
            retained: snoop.retained(),
        })
    }

    /// Returns the next time at which there may be a frame for the port without another event.
    pub(super) fn departure(&mut self) -> Option<Nanos> {
        let has_more = |snoop: &Answering| snoop.has_for_guest();
        if self.early.snoop.as_ref().is_some_and(has_more) {
            return Some(Nanos::ZERO);
        }
        self.pipeline.poll_at()
    }
}

impl PortState {
    /// Offers the outgoing frames to a port, and reports the result to early acknowledgement.
    pub(super) fn transmit_answering(
        &mut self,
        now: Nanos,
        port: &mut dyn Port,
        snoop: Option<&mut Answering>,
    ) -> io::Result<Transmitted> {
        let sent = self.transmit(now, port);
        if let Some(snoop) = snoop {
            snoop.handle_placed(match &sent {
                Ok(sent) if sent.lost > 0 => RingPlacement::Lost,
                Ok(sent) if sent.is_all => RingPlacement::All,
                Ok(_) => RingPlacement::Waits,
                Err(_) => RingPlacement::Lost,
            });
        }
        sent
    }
}

impl<'s> GuestRef<'s> {
    /// Exports the state of the guest's connections, for another process; `None` as for
    /// [`GuestMut::drain_snoop`].
    pub fn export_snoop(self, now: Nanos) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.state().early.snoop.as_ref()?.export(now, &mut bytes);
        Some(bytes)
    }

    /// Returns the state of each connection of the guest, the one idle for longest first; `None` as
    /// for [`GuestMut::drain_snoop`].
    pub fn snoop_flows(self) -> Option<impl Iterator<Item = FlowView> + 's> {
        Some(self.state().early.snoop.as_ref()?.flows())
    }
}

impl GuestMut<'_> {
    /// Ends early acknowledgement for the guest until that is undone, and continues to deliver early
    /// acknowledged data. Returns the undelivered data; `None` if the guest has no early
    /// acknowledgement.
    pub fn drain_snoop(&mut self, undo: bool) -> Option<Drained> {
        let snoop = self.state().early.snoop.as_mut()?;
        if undo {
            snoop.end_drain();
        } else {
            snoop.begin_drain();
        }
        Some(snoop.drained())
    }

    /// Imports the state of the guest's connections from another process. `known` returns the guest
    /// that had a slot there, if it is here. A guest without early acknowledgement here still
    /// receives its undelivered data. Returns the number of connections.
    ///
    /// # Errors
    /// The state is damaged; the connections before the damage are imported.
    pub fn import_snoop(
        &mut self,
        now: Nanos,
        from: &[u8],
        known: impl Fn(usize) -> Option<GuestId>,
    ) -> Result<usize, Damaged> {
        let port = self.port();
        let Parts {
            receiver, table, ..
        } = &mut *self.parts;
        let guest = &mut table[self.index];
        if guest.early.snoop.is_none() {
            guest.set_snoop(now, Some(SnoopConfig::default()), receiver.pool());
            guest.early.ends = true;
        }
        let Some(snoop) = &mut guest.early.snoop else {
            unreachable!("early acknowledgement was begun");
        };
        if guest.early.ends {
            snoop.begin_drain();
        }
        let count = snoop.import(now, from, known);
        guest.end_snoop();
        table.note_ingress(port);
        table.offer(port);
        count
    }
}

impl Switch {
    /// Returns true if any guest lacks early acknowledged data.
    pub fn owes_guests(&self) -> bool {
        let snoops = self
            .parts
            .table
            .guests()
            .filter_map(|guest| guest.early.snoop.as_ref());
        snoops.into_iter().any(|snoop| snoop.owes())
    }

    /// Ends early acknowledgement for all guests, or continues it.
    pub fn drain_snoops(&mut self, undo: bool) {
        for guest in self.parts.table.guests_mut() {
            let ends = guest.early.ends;
            if let Some(snoop) = &mut guest.early.snoop {
                if undo && !ends {
                    snoop.end_drain();
                } else {
                    snoop.begin_drain();
                }
            }
        }
    }

    /// Resets the connections with acknowledged data that their guests have not taken: the
    /// successor of this process does not have that data.
    pub fn abort_snoops(&mut self, now: Nanos, ports: &Ports) {
        for port in self.parts.table.guest_ports() {
            self.parts.abort_snoop(now, port, ports);
        }
    }
}

impl Parts {
    pub(super) fn abort_snoop(&mut self, now: Nanos, port: PortIndex, ports: &Ports) {
        let Some(guest) = self.table.guest_mut(port) else {
            return;
        };
        if let Some(snoop) = &mut guest.early.snoop
            && snoop.abort() > 0
        {
            self.forward_answers(now, port, ports, &mut Turn::default());
        }
    }

    /// Passes a guest's frame through early acknowledgement; `None` if its peer knows the content
    /// already.
    pub(super) fn snoop_out(
        &mut self,
        now: Nanos,
        from: PortIndex,
        packet: Packet,
        way: Option<Way>,
    ) -> Option<Packet> {
        let answers = |guest: &mut GuestPort| guest.early.snoop.is_some();
        if !self.table.guest_mut(from).is_some_and(answers) {
            return Some(packet);
        }
        let port_of = |switch: &Self| switch.forwarding.port_of(Mac(packet.destination_mac()));
        let to = match way {
            Some(way) => self.forwarding.leads_to(way),
            None => port_of(self),
        };
        debug_assert_eq!(to, port_of(self), "a known way leads to its destination");
        let peer = to.map_or(Origin::ANYWHERE, |to| {
            Origin::of(self.table.guest(to).map(|guest| guest.id))
        });
        let guest = self.table.guest_mut(from)?;
        let snoop = guest.early.snoop.as_mut()?;
        let passed = snoop.handle_egress(now, packet, peer);
        // What is for the guest now, or for another peer, goes with what its port is offered.
        let has_more = snoop.has_for_guest() || snoop.has_for_peer();
        guest.end_snoop();
        if has_more {
            self.table.offer(from);
        }
        passed
    }

    /// Does the due work at a guest's port: checks whether the guest is running, and retransmits
    /// lost data. If the card is no longer in use, the connections are reset.
    pub(super) fn snoop_timeout(&mut self, now: Nanos, index: PortIndex, ports: &Ports) {
        let due = |snoop: &Answering| snoop.poll_at().is_some_and(|at| at <= now);
        let Some(guest) = self.table.guest_mut(index) else {
            return;
        };
        let Some(snoop) = guest.early.snoop.as_mut().filter(|snoop| due(snoop)) else {
            return;
        };
        match &ports[index.0] {
            Some(port) if port.presence() != Presence::Away => {
                let progress = port.progress();
                if std::mem::replace(&mut guest.early.progress, progress) != progress {
                    snoop.handle_alive(now);
                }
                snoop.handle_timeout(now);
                self.table.offer(index);
            }
            _ => self.abort_snoop(now, index, ports),
        }
        self.forward_answers(now, index, ports, &mut Turn::default());
    }

    /// Forwards the frames that the host sends in a guest's place.
    pub(super) fn forward_answers(
        &mut self,
        now: Nanos,
        from: PortIndex,
        ports: &Ports,
        turn: &mut Turn,
    ) {
        let answers = |guest: &GuestPort| guest.early.snoop.is_some();
        if !self.table.guest(from).is_some_and(answers) {
            return;
        }
        let answer = |switch: &mut Self| {
            switch
                .table
                .guest_mut(from)?
                .early
                .snoop
                .as_mut()?
                .poll_to_peer()
        };
        while let Some(packet) = answer(self) {
            turn.busy = true;
            let source = self.table.source(from);
            let sent = forward_answer(self, now, source, packet, ports);
            if let Err(reason) = sent {
                self.table[from].counters.drop(reason, 1);
            }
        }
        if let Some(guest) = self.table.guest_mut(from) {
            guest.end_snoop();
        }
    }
}

/// Forwards a frame in a guest's place as if the guest had sent it.
#[inline(never)]
fn forward_answer(
    switch: &mut Parts,
    now: Nanos,
    source: Source,
    packet: Packet,
    ports: &Ports,
) -> Result<Cost, Reason> {
    let way = known_way(switch, now, source, &packet);
    if way.is_none() {
        switch.admit(now, source.port, &packet)?;
        keep_way(switch, source, &packet);
    }
    switch.admitted(now, source, packet, way, ports)
}

impl Transmitter {
    /// Resets the connections of a removed guest.
    pub(super) fn bury_snoop(
        &mut self,
        now: Nanos,
        gone: &mut GuestPort,
        table: &mut PortTable,
        forwarding: &Forwarding,
    ) {
        let Some(snoop) = &mut gone.early.snoop else {
            return;
        };
        snoop.abort();
        while let Some(packet) = gone.early.snoop.as_mut().and_then(|it| it.poll_to_peer()) {
            let to = forwarding.port_of(Mac(packet.destination_mac()));
            let guest = to.and_then(|to| table.guest_at(to));
            match (guest, self.uplink_mut()) {
                (Some(guest), _) => {
                    table[guest].deliver(now, packet);
                    table.offer(table.port_at(guest));
                }
                (None, Some(uplink)) => uplink.push_last(now, packet, gone),
                (None, None) => {}
            }
        }
    }
}
