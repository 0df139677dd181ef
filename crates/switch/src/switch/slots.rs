//! Assignment of slots to guests.

use crate::index::PortIndex;
use std::collections::VecDeque;
use tailbound_dataplane::GuestId;

/// The number of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(usize);

impl Slot {
    pub(super) const FIRST: Self = Self(0);

    /// Returns the slot behind this one.
    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The slots of all present and former guests. Their number is at most that of guests at the
/// same time, plus that of former guests with queued frames.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Tenancy>,
    /// Slots without a guest, the one that has been free for longest first.
    free: VecDeque<Slot>,
}

/// The guest of a slot.
#[derive(Debug)]
struct Tenancy {
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

    /// Returns the slot behind the last one.
    pub(super) const fn end(&self) -> Slot {
        Slot(self.slots.len())
    }

    /// Returns the port of the guest of a slot; `None` if the guest is gone.
    pub(super) fn port_at(&self, slot: Slot) -> Option<PortIndex> {
        self.slots[slot.0].port
    }

    /// Stores the port of a guest.
    pub(super) fn place(&mut self, guest: GuestId, port: PortIndex) {
        self.slots[guest.slot()].port = Some(port);
    }

    /// Frees the slot of a removed guest.
    pub(super) fn release(&mut self, guest: GuestId) {
        self.slots[guest.slot()].port = None;
        self.free.push_back(Slot(guest.slot()));
    }

    /// Assigns a slot to a new guest: a free one for whose former guest `forget` returns true, or a
    /// new one.
    pub(super) fn assign(&mut self, mut forget: impl FnMut(GuestId) -> bool) -> GuestId {
        let slots = &mut self.slots;
        let forgotten = self
            .free
            .iter()
            .position(|&Slot(slot)| forget(slots[slot].guest));
        if let Some(Slot(slot)) = forgotten.and_then(|place| self.free.remove(place)) {
            slots[slot].guest = slots[slot].guest.successor();
            return slots[slot].guest;
        }
        let guest = GuestId::first(slots.len() as u32);
        slots.push(Tenancy { guest, port: None });
        guest
    }
}
