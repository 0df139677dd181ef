//! Guests by the departure of the frame that has one.
//!
//! A guest that sends gets its next departure when the last one is passed on, which is usually soon
//! after it. So the few guests that depart soon are in a short row in order, which costs less than
//! a wheel: an added guest usually departs after all of them. All others wait in a [`Wheel`].
//! Guests with equal departures leave in the order in which they were added, from the row or the
//! wheel.
//!
//! A departing guest stays at the front of the row until its next departure is known: moving it
//! within the row costs less than removing and adding it.

use super::index::{GuestIndex, Table};
use super::wheel::Wheel;
use std::cmp::Ordering;
use tailbound_units::Position;

/// Length of the row: a power of two, because it is a ring.
const ROW: usize = 16;

/// Maximum number of guests in the row between departures: a guest that comes from the wheel to
/// depart needs a place.
const MAX_GUESTS_IN_ROW: u32 = ROW as u32 - 1;

/// A guest in the row.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Number of guests that were added to the wheel before it.
    order: u32,
    guest: GuestIndex,
}

const NOBODY: Entry = Entry {
    order: 0,
    guest: GuestIndex::NONE,
};

/// Guests in the order of their departures. The module describes it.
#[derive(Debug)]
pub(super) struct Departures {
    /// Places of a ring: those from `head` to `tail` are used, and in order.
    row: [Entry; ROW],
    /// Departure of each entry.
    times: [Position; ROW],
    head: u32,
    tail: u32,
    /// The first departure in the row.
    first_in_row: Position,
    /// Guests that depart from this position on wait in the wheel.
    soon: Position,
    wheel: Wheel<GuestIndex>,
    /// For each guest in the wheel, the number of guests that were added before it; and the total
    /// number so far.
    orders: Table<GuestIndex, u32>,
    order: u32,
    /// The last departure that was popped: none is before it.
    position: Position,
}

impl Departures {
    pub(super) fn new() -> Self {
        Self {
            row: [NOBODY; ROW],
            times: [Position::NEVER; ROW],
            head: 0,
            tail: 0,
            first_in_row: Position::NEVER,
            soon: Position::ZERO,
            wheel: Wheel::new(),
            orders: Table::new(),
            order: 0,
            position: Position::ZERO,
        }
    }

    /// Makes room for all guests below `count`.
    pub(super) fn reserve(&mut self, count: usize) {
        self.wheel.reserve(count);
        self.orders.reserve(count, 0);
    }

    /// The first departure; the end of time without guests.
    #[inline(always)]
    pub(super) fn first(&self) -> Position {
        self.first_in_row.min(self.wheel.first())
    }

    /// A guest with the first departure; `None` without guests.
    pub(super) fn first_number(&self) -> Option<GuestIndex> {
        if self.first_in_row < Position::NEVER && self.first_in_row <= self.wheel.first() {
            return Some(self.row[self.head as usize % ROW].guest);
        }
        (!self.wheel.is_empty()).then(|| self.wheel.first_number())
    }

    /// Permits guests that depart before `soon` in the row.
    pub(super) const fn expect_until(&mut self, soon: Position) {
        self.soon = soon;
    }

    /// Adds a new guest, for which there is room. It departs at `departure`, or at the last popped
    /// departure if that is later. If there was no guest, later ones do not depart before `floor`
    /// either.
    #[inline(always)]
    pub(super) fn insert(&mut self, guest: GuestIndex, departure: Position, floor: Position) {
        let len = self.tail.wrapping_sub(self.head);
        if len == 0 && self.wheel.is_empty() {
            self.position = self.position.max(floor.min(departure));
        }
        let departure = departure.max(self.position);
        if departure >= self.soon || len >= MAX_GUESTS_IN_ROW {
            return self.insert_into_wheel(guest, departure);
        }
        self.insert_into_row(guest, departure);
    }

    /// Adds a guest to the row, if there is a place.
    #[inline(always)]
    fn insert_into_row(&mut self, guest: GuestIndex, departure: Position) {
        let (mut at, head) = (self.tail, self.head);
        self.tail = at.wrapping_add(1);
        while at != head {
            let before = at.wrapping_sub(1);
            let time = self.times[before as usize % ROW];
            if time <= departure {
                break;
            }
            self.times[at as usize % ROW] = time;
            self.row[at as usize % ROW] = self.row[before as usize % ROW];
            at = before;
        }
        self.times[at as usize % ROW] = departure;
        let order = self.order;
        self.row[at as usize % ROW] = Entry { order, guest };
        self.first_in_row = self.times[head as usize % ROW];
    }

    #[inline(never)]
    fn insert_into_wheel(&mut self, guest: GuestIndex, departure: Position) {
        if self.wheel.is_empty() {
            self.wheel.start_from(self.position);
        }
        self.orders[guest] = self.order;
        self.order = self.order.wrapping_add(1);
        self.wheel.insert(guest, departure);
    }

    /// Begins the departure of the first guest, at `first`, and returns it. There must be one. The
    /// caller then reports whether it departs again ([`Self::depart_again`]) or not
    /// ([`Self::leave`]).
    #[inline(always)]
    pub(super) fn depart(&mut self, first: Position) -> GuestIndex {
        debug_assert_eq!(first, self.first(), "the first entry departs");
        if self.wheel.first() == first && self.is_first_in_wheel() {
            self.move_into_row();
        }
        self.position = first;
        self.row[self.head as usize % ROW].guest
    }

    /// Sets the next departure of the guest that departs now: `departure`, or now if that is later.
    #[inline(always)]
    pub(super) fn depart_again(&mut self, guest: GuestIndex, departure: Position) {
        debug_assert_eq!(
            guest,
            self.row[self.head as usize % ROW].guest,
            "another one"
        );
        let departure = departure.max(self.position);
        if departure >= self.soon {
            return self.depart_later(guest, departure);
        }
        if self.tail.wrapping_sub(self.head) > MAX_GUESTS_IN_ROW {
            return self.depart_later(guest, departure);
        }
        self.head = self.head.wrapping_add(1);
        self.insert_into_row(guest, departure);
    }

    /// Sets the next departure of a guest that must wait in the wheel.
    #[inline(never)]
    fn depart_later(&mut self, guest: GuestIndex, departure: Position) {
        self.leave();
        self.insert_into_wheel(guest, departure);
    }

    /// Removes the guest that departs now.
    #[inline(always)]
    pub(super) fn leave(&mut self) {
        self.head = self.head.wrapping_add(1);
        self.find_first_in_row();
    }

    /// Checks whether the first guest in the wheel, which departs with the first in the row or
    /// before it, must go before that.
    #[inline(always)]
    fn is_first_in_wheel(&self) -> bool {
        match self.wheel.first().cmp(&self.first_in_row) {
            Ordering::Less => true,
            Ordering::Equal => self.came_first_to_wheel(),
            Ordering::Greater => false,
        }
    }

    #[cold]
    fn came_first_to_wheel(&self) -> bool {
        let in_row = self.row[self.head as usize % ROW].order;
        let in_wheel = self.orders[self.wheel.first_number()];
        // The numbers wrap.
        in_row.wrapping_sub(in_wheel).cast_signed() > 0
    }

    /// Moves the first guest in the wheel to the front of the row, which has a place for it.
    #[inline(never)]
    fn move_into_row(&mut self) {
        self.first_in_row = self.wheel.first();
        let guest = self.wheel.pop();
        let order = self.orders[guest];
        self.head = self.head.wrapping_sub(1);
        self.times[self.head as usize % ROW] = self.first_in_row;
        self.row[self.head as usize % ROW] = Entry { order, guest };
    }

    #[inline(always)]
    fn find_first_in_row(&mut self) {
        self.first_in_row = if self.head == self.tail {
            Position::NEVER
        } else {
            self.times[self.head as usize % ROW]
        };
    }

    /// Removes a guest with any departure.
    pub(super) fn remove(&mut self, guest: GuestIndex) {
        let len = self.tail.wrapping_sub(self.head);
        let head = self.head;
        let place = |i: u32| head.wrapping_add(i) as usize % ROW;
        let Some(gap) = (0..len).find(|&i| self.row[place(i)].guest == guest) else {
            return self.wheel.remove(guest);
        };
        for i in gap + 1..len {
            let (to, from) = (place(i - 1), place(i));
            self.times[to] = self.times[from];
            self.row[to] = self.row[from];
        }
        self.tail = self.tail.wrapping_sub(1);
        self.find_first_in_row();
    }

    /// Removes all guests in order.
    pub(super) fn drain(&mut self, mut sink: impl FnMut(GuestIndex, Position)) {
        loop {
            let first = self.first();
            if first == Position::NEVER {
                return;
            }
            sink(self.depart(first), first);
            self.leave();
        }
    }

    /// Restarts an empty set at `floor`: no departure may be before it.
    pub(super) const fn restart(&mut self, floor: Position) {
        self.position = floor;
        self.wheel.restart(floor);
    }
}

#[cfg(test)]
mod tests;
