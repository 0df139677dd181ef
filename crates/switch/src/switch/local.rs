//! Traffic of guaranteed guests to other guests here: paced with all other traffic of the sender,
//! but not sent to the wire.

use super::table::PortTable;
use super::trace::{Released, Wait};
use super::transmitter::Transmitter;
use crate::forward::Forwarding;
use crate::mac::Mac;
use crate::reason::Reason;
use tailbound_dataplane::Frame;
use tailbound_units::Nanos;

impl Transmitter {
    /// Enqueues the frames that the pacer has released in front of the ports they go to.
    #[inline]
    pub(super) fn deliver_local(
        &mut self,
        now: Nanos,
        table: &mut PortTable,
        forwarding: &Forwarding,
    ) {
        if self.has_local() {
            self.deliver_all_local(now, table, forwarding);
        }
    }

    #[inline(never)]
    fn deliver_all_local(&mut self, now: Nanos, table: &mut PortTable, forwarding: &Forwarding) {
        let mut local = self.take_local();
        for (packet, waited) in local.drain(..) {
            let from = packet.source().and_then(|id| table.port_of(id));
            if let Some(sender) = from.and_then(|port| table.guest_mut(port)) {
                sender.waits.sent.of(packet.class()).record(waited);
            }
            if let Some(trace) = self.trace_mut() {
                trace.note(now, Released::within(&packet, Wait::Local, waited));
            }
            let to = forwarding.reached_by(Mac(packet.destination_mac()));
            let to = to.filter(|to| Some(*to) != from);
            let guest = to.and_then(|to| table.guest_mut(to));
            if let Some((to, guest)) = to.zip(guest) {
                guest.deliver_paced(now, packet);
                table.offer(to);
            } else if let Some(from) = from {
                // Its receiver has left meanwhile.
                let counters = &mut table[from].counters;
                counters.drop(Reason::UnknownDestination, 1);
            }
        }
        self.put_local(local);
    }

    /// Ends all guarantees when the uplink is no longer paced, so that frames to guests here are
    /// not lost with the pacer. They are delivered before all others, when the next turn begins.
    pub(super) fn end_pacing(&mut self, table: &PortTable) {
        if let Some(pacer) = self.pacer_mut() {
            let now = pacer.clock().now();
            for guest in table.guests() {
                let ended = pacer.set_guest(now, guest.id, None);
                debug_assert!(ended.is_ok(), "the end of a guarantee breaks no rule");
            }
            self.add_freed();
        }
    }
}
