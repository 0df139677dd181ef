//! Checks of a guest's frames: its own addresses, and its budgets for multiplied frames.

use super::guest::GuestPort;
use super::{Ports, Switch};
use crate::budget::Budget;
use crate::filter::Sender;
use crate::forward::{Learned, NoRoute, Verdict};
use crate::index::PortIndex;
use crate::mac::Mac;
use crate::reason::Reason;
use tailbound_dataplane::pacer::void;
use tailbound_dataplane::{Frame, Packet};
use tailbound_units::{Bytes, Nanos};

impl Switch {
    /// Checks and learns the sender of a frame; an error is the reason to drop it.
    pub(super) fn admit(
        &mut self,
        now: Nanos,
        from: PortIndex,
        packet: &Packet,
    ) -> Result<(), Reason> {
        let filtered = self
            .table
            .guest(from)
            .and_then(|guest| Some((guest.id, guest.filter.as_ref()?)));
        if let Some((guest, filter)) = filtered {
            let mut sender = Sender {
                now,
                guest,
                port: from,
                book: &mut self.addresses,
                forwarding: &self.forwarding,
            };
            filter.check(packet, &mut sender)?;
        }
        match self.forwarding.learn(now, from, Mac(packet.source_mac())) {
            Learned::Accepted | Learned::Full => {}
            Learned::ForbiddenMove => return Err(Reason::MacMove),
            Learned::Invalid => return Err(Reason::InvalidSource),
        }
        if filtered.is_none() {
            let away = self.forwarding.away(Mac(packet.source_mac()));
            let away = away.and_then(|port| Some(self.table.guest_mut(port)?.id));
            self.addresses.hear(now, packet, away);
        }
        Ok(())
    }

    /// Finds the route of a frame; an error is the reason why there is none. Frames that are copied
    /// to all ports are charged to the guest's budget, or the outside's. Frames that others may
    /// have to flood are charged to the guest's.
    pub(super) fn route(
        &mut self,
        now: Nanos,
        from: PortIndex,
        packet: &Packet,
        ports: &Ports,
    ) -> Result<Route, Reason> {
        let destination = Mac(packet.destination_mac());
        let verdict = match self.forwarding.route(now, from, destination) {
            // It may have come since that was looked at.
            Verdict::Away(home) if self.has_come(now, home, ports) => Verdict::To(home),
            Verdict::Away(home) => match self.forwarding.route_outside(now, from, destination) {
                Verdict::Drop(_) => return Ok(Route::Nowhere(home)),
                verdict => verdict,
            },
            verdict => verdict,
        };
        let (route, copies) = match verdict {
            Verdict::To(to) => return Ok(Route::To(to)),
            Verdict::Unknown(to) => (Route::To(to), 1),
            Verdict::Flood => (Route::Flood, self.table.len() - 1),
            Verdict::Drop(NoRoute::LinkLocal) => return Err(Reason::LinkLocalGroup),
            Verdict::Drop(NoRoute::SamePort) => return Err(Reason::SamePort),
            Verdict::Away(home) => return Ok(Route::Nowhere(home)),
            Verdict::Drop(NoRoute::Unknown) => return Err(Reason::UnknownDestination),
        };
        let guest = self.table.guest_mut(from);
        let (budget, reason) = match (route, guest) {
            (Route::Flood, Some(guest)) => (&mut guest.groups, Reason::GroupBudget),
            (Route::Flood, None) => (&mut self.outside, Reason::GroupBudget),
            (Route::To(_), Some(guest)) => (&mut guest.unknown, Reason::UnknownBudget),
            (Route::To(_), None) | (Route::Nowhere(_), _) => return Ok(route),
        };
        if pays(budget.as_mut(), now, packet, copies) {
            Ok(route)
        } else {
            Err(reason)
        }
    }
}

impl GuestPort {
    /// Charges the guest's budget for groups with `copies` copies of a frame; returns true if the
    /// budget permits them.
    pub(super) fn pays_for_group(&mut self, now: Nanos, packet: &Packet, copies: usize) -> bool {
        pays(self.groups.as_mut(), now, packet, copies)
    }
}

/// Charges a budget with `copies` copies of a frame; returns true if the budget permits them.
fn pays(budget: Option<&mut Budget>, now: Nanos, packet: &Packet, copies: usize) -> bool {
    let cost = Bytes(on_the_wire(packet).0 * copies as u64);
    budget.is_none_or(|budget| budget.spend(now, cost))
}

/// Route of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// To this port.
    To(PortIndex),
    /// To all ports except the frame's origin.
    Flood,
    /// To the guest of this port, which is away: it is lost.
    Nowhere(PortIndex),
}

/// Returns the bytes of a packet's frames on the wire, after segmentation, with preambles, FCS and
/// gaps.
fn on_the_wire(packet: &Packet) -> Bytes {
    let frames = packet.segments() as u64;
    let shortest = void::SHORTEST.0 * frames;
    let bytes = packet.wire_len() as u64 + void::OVERHEAD.0 * frames;
    Bytes(bytes.max(shortest))
}
