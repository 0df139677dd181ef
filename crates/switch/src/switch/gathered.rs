//! Frames of one guest that go on their way to the wire together: what a burst of them
//! has in common, the pacer looks up once.

use super::Switch;
use super::uplink::Uplink;
use crate::forward::PortIndex;
use crate::port::BURST;
use tailbound_dataplane::pacer::void::on_the_wire;
use tailbound_dataplane::{Frame, GuestId, Packet};
use tailbound_units::{Bytes, Nanos, WireBytes};

/// What a priority tag makes a frame longer by, at most.
const TAG: usize = 4;

/// Frames of one guest, each on its way to the wire or, within what its guest is guaranteed,
/// to another guest here. None is left when a turn ends.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Whose they are, where there are any.
    from: Option<PortIndex>,
    frames: Vec<Packet>,
    /// What they take of the wire, and of memory.
    wire: WireBytes,
    memory: Bytes,
}

impl Gathered {
    fn add(&mut self, from: PortIndex, packet: Packet) {
        self.from = Some(from);
        self.wire += on_the_wire(packet.len() + TAG);
        self.memory.0 += packet.truesize().0;
        self.frames.push(packet);
    }

    /// Whether they surely leave the port of their guest as it is, so that another one may be
    /// gathered.
    fn has_room(&self, id: GuestId, uplink: Option<&Uplink>) -> bool {
        let pacer = uplink.and_then(|uplink| uplink.egress.pacer());
        self.frames.len() < BURST
            && pacer.is_some_and(|it| it.has_room(id, self.frames.len(), self.wire, self.memory))
    }
}

impl Switch {
    /// Lets a guest's frame be handed over with others of its burst: at once where that may
    /// have its port be left unread, so that nothing is received and forwarded in between.
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

    /// Hands over what was gathered, and notes whether its guest's port is to be read.
    pub(super) fn hand_over(&mut self, now: Nanos) {
        let Some(from) = self.gathered.from.take() else {
            return;
        };
        let guest = from.0.checked_sub(self.first_guest());
        let sender = guest.and_then(|guest| self.guests.get_mut(guest));
        let frames = self.gathered.frames.drain(..);
        if let Some(uplink) = &mut self.uplink
            && let Some(sender) = sender
        {
            uplink.push(now, frames, sender);
        }
        (self.gathered.wire, self.gathered.memory) = (WireBytes::ZERO, Bytes(0));
    }
}
