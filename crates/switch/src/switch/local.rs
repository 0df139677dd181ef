//! Traffic of guaranteed guests to other guests here: paced with all other traffic of the sender,
//! but not sent to the wire.

use super::Switch;
use super::trace::{Released, Wait};
use crate::index::PortIndex;
use crate::mac::Mac;
use crate::reason::Reason;
use tailbound_dataplane::{Egress, Frame, Packet};
use tailbound_units::Nanos;

impl Switch {
    /// Returns true if a frame to a guest here is charged to its sender's guarantee. A frame to a
    /// group is not: the sender's budget for groups counts each copy.
    pub(super) fn is_paced_within(&self, from: PortIndex, packet: &Packet) -> bool {
        let uplink = self.uplink.as_ref();
        let pacer = uplink.and_then(|uplink| uplink.egress.pacer());
        let guest = self.table.guest_at(from);
        pacer.zip(guest).is_some_and(|(pacer, guest)| {
            !packet.is_multicast() && pacer.guarantee(self.table[guest].id).is_some()
        })
    }

    /// Enqueues the frames that the pacer releases in front of the ports they go to.
    pub(super) fn deliver_local(&mut self, now: Nanos) {
        let mut local = std::mem::take(&mut self.local);
        for (packet, waited) in local.drain(..) {
            let from = packet.source().and_then(|id| self.table.port_of(id));
            if let Some(sender) = from.and_then(|port| self.table.guest_mut(port)) {
                sender.sent.of(packet.class()).record(waited);
            }
            if let Some(trace) = &mut self.trace {
                trace.note(now, Released::within(&packet, Wait::Local, waited));
            }
            let to = self.forwarding.reached_by(Mac(packet.destination_mac()));
            let to = to.filter(|to| Some(*to) != from);
            let guest = to.and_then(|to| self.table.guest_mut(to));
            if let Some((to, guest)) = to.zip(guest) {
                guest.deliver_paced(now, packet);
                self.table.offer(to);
            } else if let Some(from) = from {
                // Whom it is for has left meanwhile.
                let counters = &mut self.table[from].counters;
                counters.drop(Reason::UnknownDestination, 1);
            }
        }
        self.local = local;
    }

    /// Takes the frames of ended guarantees out of the pacer. They are delivered before all others,
    /// when the next turn begins.
    pub(super) fn take_freed(&mut self) {
        if let Some(uplink) = &mut self.uplink
            && let Egress::Pacer(paced) = &mut uplink.egress
        {
            paced.drain_freed(|packet| self.local.push((packet, Nanos::ZERO)));
        }
    }

    /// Ends all guarantees when the uplink is no longer paced, so that frames to guests here are
    /// not lost with the pacer.
    pub(super) fn end_pacing(&mut self) {
        let uplink = self.uplink.as_mut();
        if let Some(pacer) = uplink.and_then(|uplink| uplink.egress.pacer_mut()) {
            let now = pacer.clock().now();
            for guest in self.table.guests() {
                let ended = pacer.set_guest(now, guest.id, None);
                debug_assert!(ended.is_ok(), "the end of a guarantee breaks no rule");
            }
            self.take_freed();
        }
    }
}
