//! Draining of guests: their ports are not read, and their queued frames leave.

use super::{Ports, Switch};
use crate::forward::PortIndex;
use tailbound_dataplane::GuestId;
use tailbound_units::Bytes;

impl Switch {
    /// Sets whether a guest's port is drained. The port is not read: received frames are forwarded
    /// and sent, traffic to the guest continues, and frames that the guest sends meanwhile stay in
    /// its port. That holds over reloads, until it is undone. Without such a guest, nothing
    /// happens.
    pub fn set_drained(&mut self, guest: GuestId, drained: bool, ports: &Ports) {
        let Some(port) = self.slots.port_of(guest) else {
            return;
        };
        if let Some(guest) = self.guest_at(port) {
            guest.ingress.set_drained(drained);
        }
        self.note(port, ports);
    }

    /// Returns true if frames of a guest are in a queue of its own: received and not forwarded yet,
    /// waiting for its limit, or in the pacer for its guarantee. Frames without a guarantee are
    /// queued together with all others' ([`Switch::waits_for_uplink`]).
    pub fn waits_of(&self, guest: GuestId) -> bool {
        let Some(port) = self.slots.port_of(guest) else {
            return false;
        };
        let uplink = self.uplink.as_ref();
        let pacer = uplink.and_then(|uplink| uplink.egress.pacer());
        let held = pacer.map_or(Bytes(0), |pacer| pacer.memory_of(guest));
        let limited = port.0.checked_sub(self.first_guest());
        let limited = limited.map_or(0, |guest| self.guests[guest].waits_for_limit());
        let state = &self.states[port.0];
        let is_forwarded = !state.has_received() && state.floods.len() == 0;
        !is_forwarded || limited > 0 || held > Bytes(0)
    }

    /// Returns true if any frames wait for the uplink, while its port is there.
    pub fn waits_for_uplink(&self, ports: &Ports) -> bool {
        let is_there = ports.first().is_some_and(Option::is_some);
        self.uplink.as_ref().is_some_and(|uplink| {
            is_there && (uplink.egress.waiting() > 0 || !self.states[0].outgoing.is_empty())
        })
    }

    /// Returns true if the port of a guest is unread because it is drained.
    pub(super) fn is_drained(&self, port: PortIndex) -> bool {
        let guest = port.0.checked_sub(self.first_guest());
        let guest = guest.and_then(|guest| self.guests.get(guest));
        guest.is_some_and(|guest| guest.ingress.is_drained())
    }
}
