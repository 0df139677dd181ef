//! Draining of guests: their ports are not read, and their queued frames leave.

use super::Parts;
use super::transmitter::has_open_uplink;
use super::{GuestMut, GuestRef};
use super::{Ports, Switch};
use tailbound_units::Bytes;

impl GuestMut<'_> {
    /// Sets whether the guest's port is drained. The port is not read: received frames are forwarded
    /// and sent, traffic to the guest continues, and frames that the guest sends meanwhile stay in
    /// its port. That holds over reloads, until it is undone.
    pub fn set_drained(&mut self, drained: bool, ports: &Ports) {
        self.state().ingress.set_drained(drained);
        let port = self.port();
        self.parts.table.note(port, ports);
    }
}

impl GuestRef<'_> {
    /// Returns true if frames of the guest are in a queue of its own: received and not forwarded yet,
    /// waiting for its limit, or in the pacer for its guarantee. Frames without a guarantee are
    /// queued together with all others' ([`Switch::waits_for_uplink`]).
    pub fn waits(self) -> bool {
        let guest = self.state();
        let held = self.parts.transmitter.pacer();
        let held = held.map_or(Bytes(0), |pacer| pacer.memory_of(guest.id));
        let state = &self.parts.table[self.port()];
        let is_forwarded = !state.has_received() && state.inbound.floods.is_empty();
        !is_forwarded || guest.waits_for_limit() > 0 || held > Bytes(0)
    }
}

impl Switch {
    /// Returns true if any frames wait for the uplink, while its port is there.
    pub fn waits_for_uplink(&self, ports: &Ports) -> bool {
        let Parts {
            transmitter, table, ..
        } = &self.parts;
        let uplink = transmitter.uplink().zip(table.uplink_state());
        uplink.is_some_and(|(uplink, state)| {
            let waits = uplink.egress().waiting() > 0 || !state.outbound.frames.is_empty();
            waits && has_open_uplink(table, ports)
        })
    }
}
