//! Frames that go to all ports, a few copies in a turn.
//!
//! A copy costs the same time as a frame of its own: on a host with 42 ports one broadcast takes that
//! of 42 frames, in which no other port would be served. So a port has
//! [`COPIES`](super::floods::COPIES) made in a turn. A frame with more copies is continued in the next turns, in which all other ports are served as
//! well, also the frames to single stations that came behind it from the same port: a bridge
//! keeps the order of frames with one pair of addresses alone (IEEE 802.1Q, 6.5.3).
//!
//! Each copy is paid for when it is made ([`super::work`]).

use super::Parts;
use super::Ports;
use super::agenda::Work;
use super::floods::{Flood, Place};
use super::guest::is_away;
use super::table::PortTable;
use super::work::Cost;
use crate::index::PortIndex;
use tailbound_dataplane::Packet;
use tailbound_units::Nanos;

impl Parts {
    /// Copies a frame for every port but the one it came from, and those of guests that are
    /// away: some in this turn, and the others in later ones. Returns
    /// the cost of the copies that were made.
    #[cold]
    pub(super) fn flood(
        &mut self,
        now: Nanos,
        from: PortIndex,
        packet: Packet,
        ports: &Ports,
    ) -> Cost {
        let Some((next, _)) = destination(&self.table, from, Place::Uplink) else {
            return Cost::default();
        };
        let floods = &mut self.table[from].inbound.floods;
        floods.push(Flood { packet, next });
        if floods.len() > 1 {
            return Cost::default();
        }
        let cost = self.copy(now, from, ports);
        if !self.table[from].inbound.floods.is_empty() {
            self.table.agenda_mut().set(Work::Copying, from, true);
        }
        cost
    }

    /// Begins a turn of copies: continues with the frames of each port that are being copied.
    #[cold]
    pub(super) fn go_on_copying(&mut self, now: Nanos, ports: &Ports) {
        let mut next = PortIndex::FIRST;
        while let Some(port) = self.table.agenda().next(Work::Copying, next) {
            next = port.next();
            let is_served = self.table.agenda().has(Work::Ready, port);
            let share = &mut self.table[port].inbound.share;
            // A port that is served as well has its share then.
            if !is_served {
                share.begin_round();
            }
            if share.is_spent() {
                continue;
            }
            let cost = self.copy(now, port, ports);
            self.table[port].inbound.share.charge(cost);
            let is_over = self.table[port].inbound.floods.is_empty();
            self.table.agenda_mut().set(Work::Copying, port, !is_over);
        }
    }

    /// Continues with frames of a port that are being copied; returns the cost of the copies.
    #[cold]
    fn copy(&mut self, now: Nanos, from: PortIndex, ports: &Ports) -> Cost {
        let mut cost = Cost::default();
        let turn = self.turns;
        while let Some(Flood { packet, next }) = self.table[from].inbound.floods.pop(turn) {
            // One that has left, or is away by now, has no copy.
            let Some((place, to)) = destination(&self.table, from, next) else {
                continue;
            };
            cost += self.transmitter.cost(to, &packet, &self.table);
            let next = destination(&self.table, from, place.next());
            let frame = if let Some((next, _)) = next {
                let frame = packet.duplicate();
                let floods = &mut self.table[from].inbound.floods;
                floods.put_back(Flood { packet, next });
                frame
            } else {
                packet
            };
            self.transmitter
                .push(now, (from, to), frame, &mut self.table, ports);
        }
        cost
    }
}

/// Returns the first destination at `place` or behind it of a frame from a port.
fn destination(table: &PortTable, from: PortIndex, mut place: Place) -> Option<(Place, PortIndex)> {
    loop {
        let port = match place {
            Place::Uplink => table.uplink(),
            Place::Slot(slot) if slot < table.slots().end() => table.slots().port_at(slot),
            Place::Slot(_) => return None,
        };
        if let Some(port) = port.filter(|port| *port != from && !is_away(table.guest(*port))) {
            return Some((place, port));
        }
        place = place.next();
    }
}
