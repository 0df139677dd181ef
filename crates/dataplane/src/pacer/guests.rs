//! All guests by their slots, and what they share: the link's rate and the memory.

use super::Guarantee;
use super::backlog::Backlog;
use super::guest::Guest;
use super::index::{GuestIndex, LineIndex, Table};
use crate::GuestId;
use tailbound_units::{Bytes, Rate};

/// All guests. The module describes them.
#[derive(Debug)]
pub(super) struct Guests {
    all: Table<GuestIndex, Option<Guest>>,
    /// Memory for the frames of all guests.
    memory: Bytes,
    /// The sum of guaranteed bandwidths.
    committed: Rate,
    /// The sum of the guests' maximum memory, without the common limit.
    wanted: Bytes,
    /// Guests whose rings the host may read again.
    read_again: Vec<GuestId>,
}

/// The number of a guest.
#[inline(always)]
pub(super) const fn number_of(id: GuestId) -> GuestIndex {
    GuestIndex::new(id.slot())
}

impl Guests {
    /// Creates no guests, with memory for their frames.
    pub(super) const fn new(memory: Bytes) -> Self {
        Self {
            all: Table::new(),
            memory,
            committed: Rate(0),
            wanted: Bytes(0),
            read_again: Vec::new(),
        }
    }

    /// Number of slots that were ever used.
    pub(super) const fn slots(&self) -> usize {
        self.all.len()
    }

    /// Returns the guest of a slot that a line, or a queue of guests, refers to: a guest keeps its
    /// slot while its frames wait.
    #[inline(always)]
    pub(super) fn at_mut(&mut self, index: GuestIndex) -> &mut Guest {
        let guest = self.all[index].as_mut();
        guest.expect("a guest keeps its slot while its frames wait")
    }

    /// Returns the guest of a slot, if there is one.
    pub(super) fn get_mut(&mut self, index: GuestIndex) -> Option<&mut Guest> {
        self.all.get_mut(index)?.as_mut()
    }

    /// Returns the guest with this id; `None` if its slot belongs to another one.
    #[inline(always)]
    pub(super) fn find(&self, id: GuestId) -> Option<&Guest> {
        let guest = self.all.get(number_of(id))?.as_ref();
        guest.filter(|guest| guest.id == id)
    }

    /// Returns the same for changes.
    #[inline(always)]
    pub(super) fn find_mut(&mut self, id: GuestId) -> Option<&mut Guest> {
        let guest = self.all.get_mut(number_of(id))?.as_mut();
        guest.filter(|guest| guest.id == id)
    }

    /// Returns the guest with this id, if it has a guarantee.
    #[inline(always)]
    pub(super) fn guaranteed(&self, id: GuestId) -> Option<&Guest> {
        self.find(id).filter(|guest| guest.is_guaranteed())
    }

    /// Returns the same for changes.
    #[inline(always)]
    pub(super) fn guaranteed_mut(&mut self, id: GuestId) -> Option<&mut Guest> {
        match self.all.get_mut(number_of(id)) {
            Some(Some(guest)) if guest.id == id && guest.is_guaranteed() => Some(guest),
            _ => None,
        }
    }

    /// All guests.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Guest> {
        self.all.iter().flatten()
    }

    /// All guests, for changes.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Guest> {
        self.all.iter_mut().flatten()
    }

    /// The sum of guaranteed bandwidths.
    pub(super) const fn committed(&self) -> Rate {
        self.committed
    }

    /// The sum of guaranteed bandwidths if a guest has another guarantee.
    pub(super) fn sum_with(&self, before: Option<&Guarantee>, after: &Guarantee) -> Rate {
        let before = before.map_or(0, |guarantee| guarantee.bandwidth.0);
        // Every term is at most the link's rate.
        Rate(self.committed.0 - before + after.bandwidth.0)
    }

    /// Sets the sum of guaranteed bandwidths.
    pub(super) const fn commit(&mut self, sum: Rate) {
        self.committed = sum;
    }

    /// Subtracts a guarantee that has ended.
    pub(super) const fn uncommit(&mut self, ended: &Guarantee) {
        self.committed.0 -= ended.bandwidth.0;
    }

    /// The previous guest of another one's slot.
    pub(super) fn former(&self, id: GuestId) -> Option<&Guest> {
        let guest = self.all.get(number_of(id))?.as_ref();
        guest.filter(|guest| guest.id != id)
    }

    /// Makes the slot of a guest empty, with room for it, and returns the guest that it had.
    pub(super) fn vacate(&mut self, id: GuestId) -> Option<Guest> {
        let number = number_of(id);
        if self.all.len() <= number.number() {
            let count = number.number() + 1;
            self.all.entries_mut().resize_with(count, || None);
        }
        self.all[number].take()
    }

    /// Puts a guest into its slot, which is empty.
    pub(super) fn insert(&mut self, guest: Guest) {
        let number = number_of(guest.id);
        debug_assert!(self.all[number].is_none(), "a slot is one guest's");
        self.all[number] = Some(guest);
    }

    /// Divides the memory again after a guest's guarantee has changed.
    pub(super) fn share_memory(&mut self, id: GuestId, before: Option<&Guarantee>) {
        let after = self.guaranteed(id).map(|guest| guest.guarantee);
        let most =
            |guarantee: Option<&Guarantee>| guarantee.map_or(0, |it| Backlog::most_memory(it).0);
        let parts = self.memory_parts();
        self.wanted.0 = self.wanted.0 - most(before) + most(after.as_ref());
        if self.memory_parts() == parts {
            let there = self.memory;
            if let Some(guest) = self.find_mut(id) {
                guest.backlog.set_bound(&guest.guarantee, there, parts);
            }
        } else {
            self.divide_memory();
        }
    }

    /// Changes the memory for the frames of all guests.
    pub(super) fn set_memory(&mut self, memory: Bytes) {
        if std::mem::replace(&mut self.memory, memory) != memory {
            self.divide_memory();
        }
    }

    /// Number of parts into which the memory is divided; a guest with a maximum of n bytes gets n
    /// parts. A part is a byte, or less if the memory is insufficient: the number is then a power
    /// of two, so that it rarely changes.
    fn memory_parts(&self) -> Bytes {
        if self.wanted <= self.memory {
            self.memory
        } else {
            Bytes(self.wanted.0.next_power_of_two())
        }
    }

    /// Sets the memory limit of each guest.
    fn divide_memory(&mut self) {
        let (there, parts) = (self.memory, self.memory_parts());
        for guest in self.all.iter_mut().flatten() {
            guest.backlog.set_bound(&guest.guarantee, there, parts);
        }
    }

    /// Permits reading a guest's ring again when few of its frames wait for {B, S}. `memory` returns
    /// that of a line.
    pub(super) fn read_again(
        &mut self,
        number: GuestIndex,
        memory: impl FnOnce(LineIndex) -> Bytes,
    ) {
        let guest = self.at_mut(number);
        if let Some(by) = guest.backlog.unread_by()
            && guest
                .backlog
                .read_again(!guest.round.is_empty(), memory(by))
        {
            let id = guest.id;
            self.read_again.push(id);
        }
    }

    /// Permits reading the ring of a guest whose guarantee has ended.
    pub(super) fn release_ring(&mut self, id: GuestId) {
        if let Some(guest) = self.find_mut(id)
            && !guest.backlog.is_read()
            && guest.backlog.note()
        {
            self.read_again.push(id);
        }
    }

    /// Passes on the guests whose rings the host may read again since the last call.
    #[inline]
    pub(super) fn drain_read_again(&mut self, mut sink: impl FnMut(GuestId)) {
        if self.read_again.is_empty() {
            return;
        }
        for id in self.read_again.drain(..) {
            if let Some(Some(guest)) = self.all.get_mut(number_of(id))
                && guest.id == id
            {
                guest.backlog.forget_note();
            }
            sink(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::PacerConfig;
    use super::*;

    const MEMORY: Bytes = Bytes(4 << 20);

    /// Adds a guest of this slot with a guarantee of 100 Mbit/s: 2 MiB of memory.
    fn add(guests: &mut Guests, slot: u32) -> GuestId {
        let (id, rate) = (GuestId::first(slot), Rate::from_mbit(100));
        let config = PacerConfig::new(Rate::from_mbit(10_000));
        let guarantee = Guarantee::new(rate, Bytes(3000), rate);
        let guest = Guest::new(&config, id, &guarantee).expect("sound");
        guests.vacate(id);
        guests.insert(guest);
        guests.share_memory(id, None);
        id
    }

    #[test]
    fn memory_is_divided_if_it_does_not_suffice() {
        let mut guests = Guests::new(MEMORY);
        let ids = [0, 1, 2].map(|slot| add(&mut guests, slot));
        let bound = |guests: &Guests, id| guests.find(id).map(|guest| guest.backlog.bound());
        // Six of four MiB are wanted, in eight parts.
        assert_eq!(bound(&guests, ids[0]), Some(Bytes(1 << 20)));
        let ended = guests.find_mut(ids[2]).expect("there");
        ended.contract = super::super::guest::Contract::BestEffort;
        let held = ended.guarantee;
        guests.share_memory(ids[2], Some(&held));
        assert_eq!(bound(&guests, ids[0]), Some(Bytes(2 << 20)));
        guests.set_memory(Bytes(2 << 20));
        assert_eq!(bound(&guests, ids[1]), Some(Bytes(1 << 20)));
    }

    #[test]
    fn a_slot_belongs_to_one_guest() {
        let mut guests = Guests::new(MEMORY);
        let id = add(&mut guests, 5);
        let other = id.successor();
        assert!(guests.find(other).is_none() && guests.guaranteed_mut(other).is_none());
        assert_eq!(guests.former(other).map(|guest| guest.id), Some(id));
        assert!(guests.former(id).is_none());
        assert_eq!(guests.slots(), 6);
        assert_eq!(guests.vacate(id).map(|guest| guest.id), Some(id));
        assert!(guests.find(id).is_none());
    }
}
