//! Batches of one guest's frames on their way to the wire: the pacer looks up their common
//! properties once.

use crate::index::PortIndex;
use crate::port::BURST;
use tailbound_dataplane::pacer::void::on_the_wire;
use tailbound_dataplane::{Frame, GuestId, Pacer, Packet};
use tailbound_units::{Bytes, WireBytes};

/// The most bytes that a priority tag adds to a frame.
const TAG: usize = 4;

/// Frames of one guest, each on its way to the wire or, within the guest's guarantee, to another
/// guest here.
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
    /// Returns the port of the guest, if there are any frames.
    pub(super) const fn from(&self) -> Option<PortIndex> {
        self.from
    }

    /// Adds a frame of the guest.
    pub(super) fn add(&mut self, from: PortIndex, packet: Packet) {
        debug_assert!(
            self.from.is_none_or(|port| port == from),
            "one guest's frames"
        );
        self.from = Some(from);
        self.wire += on_the_wire(packet.len() + TAG);
        self.memory.0 += packet.truesize().0;
        self.frames.push(packet);
    }

    /// Returns true if the port of the guest surely stays readable with these frames, so that
    /// another frame may be added.
    pub(super) fn has_room(&self, id: GuestId, pacer: Option<&Pacer<Packet>>) -> bool {
        self.frames.len() < BURST
            && pacer.is_some_and(|it| it.has_room(id, self.frames.len(), self.wire, self.memory))
    }

    /// Removes all frames, and returns them.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Packet> {
        self.from = None;
        (self.wire, self.memory) = (WireBytes::ZERO, Bytes(0));
        self.frames.drain(..)
    }
}
