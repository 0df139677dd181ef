//! Assignment of slots to guests.

use super::PortIndex;
use std::collections::VecDeque;
use tailbound_dataplane::GuestId;

/// The slots of all present and former guests. Their number is at most that of guests at the
/// same time, plus that of former guests with queued frames.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// Slots without a guest, the one that has been free for longest first.
    free: VecDeque<usize>,
}

#[derive(Debug)]
struct Slot {
    /// The guest, or the last one.
    guest: GuestId,
    /// The guest's port; `None` after its removal.
    port: Option<PortIndex>,
}

impl Slots {
    /// Returns the port of a guest; `None` after its removal.
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

    /// Stores the port of a guest.
    pub(super) fn place(&mut self, guest: GuestId, port: PortIndex) {
        if let Some(slot) = self.slots.get_mut(guest.slot()) {
            slot.port = Some(port);
        }
    }

    /// Frees the slot of a removed guest.
    pub(super) fn release(&mut self, guest: GuestId) {
        if let Some(slot) = self.slots.get_mut(guest.slot()) {
            slot.port = None;
            self.free.push_back(guest.slot());
        }
    }

    /// Assigns a slot to a new guest: a free one for whose former guest `forget` returns true, or a
    /// new one.
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
