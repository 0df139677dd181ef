//! Guests of the switch for its users: questions, and changes from outside.

use super::guest::GuestPort;
use super::{GuestMut, GuestRef, Switch};
use crate::index::{GuestIndex, PortIndex};
use tailbound_dataplane::GuestId;

impl Switch {
    /// Returns a guest; `None` after its removal.
    pub fn guest(&self, guest: GuestId) -> Option<GuestRef<'_>> {
        let port = self.parts.table.port_of(guest)?;
        Some(GuestRef {
            index: self.parts.table.guest_at(port)?,
            parts: &self.parts,
        })
    }

    /// Returns the guest at `place` among [`Switch::guests`].
    pub fn guest_at(&self, place: usize) -> Option<GuestRef<'_>> {
        let is_there = place < self.parts.table.guest_count();
        is_there.then(|| GuestRef {
            index: GuestIndex::new(place),
            parts: &self.parts,
        })
    }

    /// Returns a guest that may be changed; `None` after its removal.
    pub fn guest_mut(&mut self, guest: GuestId) -> Option<GuestMut<'_>> {
        let port = self.parts.table.port_of(guest)?;
        Some(GuestMut {
            index: self.parts.table.guest_at(port)?,
            parts: &mut self.parts,
        })
    }
}

impl<'s> GuestRef<'s> {
    /// Returns the guest's part of the table.
    pub(super) fn state(self) -> &'s GuestPort {
        &self.parts.table[self.index]
    }

    /// Returns the guest's port.
    pub(super) fn port(self) -> PortIndex {
        self.parts.table.port_at(self.index)
    }
}

impl GuestMut<'_> {
    /// Returns the guest's part of the table.
    pub(super) fn state(&mut self) -> &mut GuestPort {
        &mut self.parts.table[self.index]
    }

    /// Returns the guest's port.
    pub(super) fn port(&self) -> PortIndex {
        self.parts.table.port_at(self.index)
    }

    /// Returns the guest's number.
    pub fn id(&self) -> GuestId {
        self.parts.table[self.index].id
    }
}
