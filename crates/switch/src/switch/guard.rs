//! What a guest may send: its own addresses, and so much of what others pay for.

use super::Switch;
use crate::filter::Sender;
use crate::forward::{Learned, NoRoute, PortIndex, Verdict};
use crate::mac::Mac;
use crate::reason::Reason;
use tailbound_dataplane::pacer::void;
use tailbound_dataplane::{Frame, Packet};
use tailbound_units::{Bytes, Nanos};

impl Switch {
    /// Takes note of who sent a frame; an error says why it may not have.
    pub(super) fn admit(
        &mut self,
        now: Nanos,
        from: PortIndex,
        packet: &Packet,
    ) -> Result<(), Reason> {
        let guest = from.0.checked_sub(self.first_guest());
        let guest = guest.map(|guest| &self.guests[guest]);
        let filtered = guest.and_then(|guest| Some((guest.id, guest.filter.as_ref()?)));
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
            self.addresses.hear(now, packet);
        }
        Ok(())
    }

    /// Where a frame goes; an error says why nowhere. A guest pays for what is copied to
    /// all ports, and for what others may have to ask everybody for.
    pub(super) fn route(
        &mut self,
        now: Nanos,
        from: PortIndex,
        packet: &Packet,
    ) -> Result<Route, Reason> {
        let destination = Mac(packet.destination_mac());
        let (route, copies) = match self.forwarding.route(now, from, destination) {
            Verdict::To(to) => return Ok(Route::To(to)),
            Verdict::Unknown(to) => (Route::To(to), 1),
            Verdict::Flood => (Route::Flood, self.states.len() - 1),
            Verdict::Drop(NoRoute::LinkLocal) => return Err(Reason::LinkLocalGroup),
            Verdict::Drop(NoRoute::SamePort) => return Err(Reason::SamePort),
            Verdict::Drop(NoRoute::Unknown) => return Err(Reason::UnknownDestination),
        };
        let Some(guest) = self.guest_at(from) else {
            return Ok(route);
        };
        let (budget, reason) = match route {
            Route::Flood => (&mut guest.groups, Reason::GroupBudget),
            Route::To(_) => (&mut guest.unknown, Reason::UnknownBudget),
        };
        let Some(budget) = budget else {
            return Ok(route);
        };
        let cost = Bytes(on_the_wire(packet).0 * copies as u64);
        if budget.spend(now, cost) {
            Ok(route)
        } else {
            Err(reason)
        }
    }
}

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// To this port.
    To(PortIndex),
    /// To all but the one that it came from.
    Flood,
}

/// What a wire carries for a frame: all that it is cut to, with what is between them.
fn on_the_wire(packet: &Packet) -> Bytes {
    let frames = packet.segments() as u64;
    let shortest = void::SHORTEST.0 * frames;
    let bytes = packet.wire_len() as u64 + void::OVERHEAD.0 * frames;
    Bytes(bytes.max(shortest))
}
