//! Frames that go to all ports, a few copies in a turn.
//!
//! A copy costs the same time as a frame of its own: on a host with 42 ports one broadcast takes that
//! of 42 frames, in which no other port would be served. So a port has [`COPIES`] made in a turn.
//! A frame with more copies is continued in the next turns, in which all other ports are served as
//! well, also the frames to single stations that came behind it from the same port: a bridge
//! keeps the order of frames with one pair of addresses alone (IEEE 802.1Q, 6.5.3).
//!
//! Each copy is paid for when it is made ([`super::work`]).

use super::agenda::Work;
use super::guest::is_away;
use super::slots::Slot;
use super::work::Cost;
use super::{Ports, Switch};
use crate::index::PortIndex;
use crate::port::BURST;
use std::collections::VecDeque;
use tailbound_dataplane::Packet;
use tailbound_units::Nanos;

/// Copies that a port has made in a turn: 16 us of work ([`super::work`]), a tenth of its share.
const COPIES: usize = 4;

/// The number of a port's frames that wait for copies from which on it forwards no more frames. The
/// burst that reaches it is forwarded.
const MAX_WAITING: usize = BURST;

/// A frame that is being copied.
#[derive(Debug)]
struct Flood {
    packet: Packet,
    /// The place of its next destination. Places are those of slots, as ports may change theirs
    /// before the last copy.
    next: Place,
}

/// A destination: the uplink before all guests, and guests in the order of their slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Uplink,
    Slot(Slot),
}

impl Place {
    /// Returns the place behind this one.
    const fn next(self) -> Self {
        match self {
            Self::Uplink => Self::Slot(Slot::FIRST),
            Self::Slot(slot) => Self::Slot(slot.next()),
        }
    }
}

/// The frames of a port that are being copied, in their order.
#[derive(Debug, Default)]
pub(super) struct Floods {
    waiting: VecDeque<Flood>,
    /// Copies that were made in the turn of this number.
    made: (u64, usize),
}

impl Floods {
    /// The number of frames that wait for copies.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// True if no more frames of the port may be forwarded.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= MAX_WAITING
    }
}

impl Switch {
    /// Copies a frame for every port but the one it came from, and those of guests that are
    /// away: [`COPIES`] in this turn, and the others in later ones. Returns
    /// the cost of the copies that were made.
    #[cold]
    pub(super) fn flood(
        &mut self,
        now: Nanos,
        from: PortIndex,
        packet: Packet,
        ports: &Ports,
    ) -> Cost {
        let Some((next, _)) = self.destination(from, Place::Uplink) else {
            return Cost::default();
        };
        let floods = &mut self.table[from].floods;
        floods.waiting.push_back(Flood { packet, next });
        if floods.waiting.len() > 1 {
            return Cost::default();
        }
        let cost = self.copy(now, from, ports);
        if !self.table[from].floods.waiting.is_empty() {
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
            let credit = &mut self.table[port].credit;
            // A port that is served as well has its share then.
            if !is_served {
                credit.begin_round();
            }
            if credit.is_spent() {
                continue;
            }
            let cost = self.copy(now, port, ports);
            self.table[port].credit.charge(cost);
            let is_over = self.table[port].floods.waiting.is_empty();
            self.table.agenda_mut().set(Work::Copying, port, !is_over);
        }
    }

    /// Continues with frames of a port that are being copied; returns the cost of the copies.
    #[cold]
    fn copy(&mut self, now: Nanos, from: PortIndex, ports: &Ports) -> Cost {
        let mut cost = Cost::default();
        let turn = self.turns;
        let floods = &mut self.table[from].floods;
        if floods.made.0 != turn {
            floods.made = (turn, 0);
        }
        while let floods = &mut self.table[from].floods
            && floods.made.1 < COPIES
            && let Some(Flood { packet, next }) = floods.waiting.pop_front()
        {
            floods.made.1 += 1;
            // One that has left, or is away by now, has no copy.
            let Some((place, to)) = self.destination(from, next) else {
                continue;
            };
            cost += self.transmitter.cost(from, to, &packet, &self.table);
            let next = self.destination(from, place.next());
            let frame = if let Some((next, _)) = next {
                let frame = packet.duplicate();
                let floods = &mut self.table[from].floods;
                floods.waiting.push_front(Flood { packet, next });
                frame
            } else {
                packet
            };
            self.transmitter
                .push(now, (from, to), frame, &mut self.table, ports);
        }
        cost
    }

    /// The first destination at `place` or behind it of a frame from a port.
    fn destination(&self, from: PortIndex, mut place: Place) -> Option<(Place, PortIndex)> {
        loop {
            let port = match place {
                Place::Uplink => self.table.uplink(),
                Place::Slot(slot) if slot < self.table.slots().end() => {
                    self.table.slots().port_at(slot)
                }
                Place::Slot(_) => return None,
            };
            if let Some(port) =
                port.filter(|port| *port != from && !is_away(self.table.guest(*port)))
            {
                return Some((place, port));
            }
            place = place.next();
        }
    }
}
