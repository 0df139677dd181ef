//! Which guest has which slot.

use super::PortIndex;
use std::collections::VecDeque;
use tailbound_dataplane::GuestId;

/// The slots of all guests that there are and were. There are no more of them than
/// guests at once, but for those of which something still waits.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// Those whose guest is gone, the one that is so for longest first.
    free: VecDeque<usize>,
}

#[derive(Debug)]
struct Slot {
    /// Who has it, or had it last.
    guest: GuestId,
    /// Where it is; `None` where it is gone.
    port: Option<PortIndex>,
}

impl Slots {
    /// The port of a guest; `None` where it is gone.
    pub(super) fn port_of(&self, guest: GuestId) -> Option<PortIndex> {
        let slot = self.slots.get(guest.slot())?;
        slot.port.filter(|_| slot.guest == guest)
    }

    /// The number of slots.
    pub(super) const fn count(&self) -> usize {
        self.slots.len()
    }

    /// The port of the guest of a slot; `None` if it is gone.
    pub(super) fn port_at(&self, slot: usize) -> Option<PortIndex> {
        self.slots.get(slot)?.port
    }

    /// Notes where a guest is.
    pub(super) fn place(&mut self, guest: GuestId, port: PortIndex) {
        if let Some(slot) = self.slots.get_mut(guest.slot()) {
            slot.port = Some(port);
        }
    }

    /// Frees the slot of a guest that is gone.
    pub(super) fn release(&mut self, guest: GuestId) {
        if let Some(slot) = self.slots.get_mut(guest.slot()) {
            slot.port = None;
            self.free.push_back(guest.slot());
        }
    }

    /// Gives a slot to a new guest: one whose former guest may be forgotten, or a new
    /// one.
    pub(super) fn assign(&mut self, mut forget: impl FnMut(GuestId) -> bool) -> GuestId {
        let slots = &mut self.slots;
        let forgotten = self.free.iter().position(|&slot| forget(slots[slot].guest));
        if let Some(slot) = forgotten.and_then(|place| self.free.remove(place)) {
            slots[slot].guest = slots[slot].guest.successor();
            return slots[slot].guest;
        }
        let guest = GuestId::first(slots.len() as u32);
        slots.push(Slot { guest, port: None });
        guest
    }
}
