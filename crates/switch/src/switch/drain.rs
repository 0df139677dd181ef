//! Draining of guests: their ports are not read, and their queued frames leave.

use super::guest::GuestPort;
use super::transmitter::has_open_uplink;
use super::{Ports, Switch};
use tailbound_dataplane::GuestId;
use tailbound_units::Bytes;

impl Switch {
    /// Sets whether a guest's port is drained. The port is not read: received frames are forwarded
    /// and sent, traffic to the guest continues, and frames that the guest sends meanwhile stay in
    /// its port. That holds over reloads, until it is undone. Without such a guest, nothing
    /// happens.
    pub fn set_drained(&mut self, guest: GuestId, drained: bool, ports: &Ports) {
        let Some(port) = self.parts.table.port_of(guest) else {
            return;
        };
        if let Some(guest) = self.parts.table.guest_mut(port) {
            guest.ingress.set_drained(drained);
        }
        self.parts.table.note(port, ports);
    }

    /// Returns true if frames of a guest are in a queue of its own: received and not forwarded yet,
    /// waiting for its limit, or in the pacer for its guarantee. Frames without a guarantee are
    /// queued together with all others' ([`Switch::waits_for_uplink`]).
    pub fn waits_of(&self, guest: GuestId) -> bool {
        let Some(port) = self.parts.table.port_of(guest) else {
            return false;
        };
        let held = self.parts.transmitter.pacer();
        let held = held.map_or(Bytes(0), |pacer| pacer.memory_of(guest));
        let limited = self.parts.table.guest(port);
        let limited = limited.map_or(0, GuestPort::waits_for_limit);
        let state = &self.parts.table[port];
        let is_forwarded = !state.has_received() && state.inbound.floods.is_empty();
        !is_forwarded || limited > 0 || held > Bytes(0)
    }

    /// Returns true if any frames wait for the uplink, while its port is there.
    pub fn waits_for_uplink(&self, ports: &Ports) -> bool {
        let uplink = self
            .parts
            .transmitter
            .uplink()
            .zip(self.parts.table.uplink_state());
        uplink.is_some_and(|(uplink, state)| {
            let waits = uplink.egress().waiting() > 0 || !state.outbound.frames.is_empty();
            waits && has_open_uplink(&self.parts.table, ports)
        })
    }
}
