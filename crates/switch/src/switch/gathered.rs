//! Batches of one guest's frames on their way to the wire: the pacer looks up their common
//! properties once.

use super::Switch;
use super::uplink::Uplink;
use crate::index::PortIndex;
use crate::port::BURST;
use tailbound_dataplane::pacer::void::on_the_wire;
use tailbound_dataplane::{Frame, GuestId, Packet};
use tailbound_units::{Bytes, Nanos, WireBytes};

/// The most bytes that a priority tag adds to a frame.
const TAG: usize = 4;

/// Frames of one guest, each on its way to the wire or, within the guest's guarantee, to another
/// guest here. The batch is empty at the end of a turn.
#[derive(Debug, Default)]
pub(super) struct GuestBatch {
    /// The port of the guest, if there are any frames.
    from: Option<PortIndex>,
    frames: Vec<Packet>,
    /// The length of the frames on the wire. `memory` is their memory.
    wire: WireBytes,
    memory: Bytes,
}

impl GuestBatch {
    fn add(&mut self, from: PortIndex, packet: Packet) {
        self.from = Some(from);
        self.wire += on_the_wire(packet.len() + TAG);
        self.memory.0 += packet.truesize().0;
        self.frames.push(packet);
    }

    /// Returns true if the port of the guest surely stays readable with these frames, so that
    /// another frame may be added.
    fn has_room(&self, id: GuestId, uplink: Option<&Uplink>) -> bool {
        let pacer = uplink.and_then(|uplink| uplink.egress.pacer());
        self.frames.len() < BURST
            && pacer.is_some_and(|it| it.has_room(id, self.frames.len(), self.wire, self.memory))
    }
}

impl Switch {
    /// Adds a guest's frame to its batch. The batch is handed over immediately if it may make the
    /// guest's port unread, so that nothing is received and forwarded in between.
    pub(super) fn gather(&mut self, now: Nanos, from: PortIndex, packet: Packet) {
        if self.gathered.from != Some(from) {
            self.hand_over(now);
        }
        let is_cut = packet.segments() > 1;
        let source = packet.source();
        self.gathered.add(from, packet);
        let uplink = self.uplink.as_ref();
        if is_cut || !source.is_some_and(|id| self.gathered.has_room(id, uplink)) {
            self.hand_over(now);
        }
    }

    /// Hands over the batch, and updates whether its guest's port is read.
    pub(super) fn hand_over(&mut self, now: Nanos) {
        let Some(from) = self.gathered.from.take() else {
            return;
        };
        let sender = self.table.guest_mut(from);
        let frames = self.gathered.frames.drain(..);
        if let Some(uplink) = &mut self.uplink
            && let Some(sender) = sender
        {
            uplink.push(now, frames, sender);
        }
        (self.gathered.wire, self.gathered.memory) = (WireBytes::ZERO, Bytes(0));
    }
}
