//! The ports of the switch and the guests behind them.

use super::agenda::Agenda;
use super::guest::GuestPort;
use super::slots::Slots;
use super::state::PortState;
use crate::index::{GuestIndex, Layout, PortIndex, Role};
use std::ops::{Index, IndexMut};
use tailbound_dataplane::GuestId;

/// The ports and the guests, by [`PortIndex`] and [`GuestIndex`].
#[derive(Debug, Default)]
#[expect(
    clippy::vec_box,
    reason = "ports change places while packets wait: a guest has kilobytes of counters"
)]
pub(super) struct PortTable {
    layout: Layout,
    /// The state of every port.
    states: Vec<Box<PortState>>,
    guests: Vec<Box<GuestPort>>,
    /// The guest of each slot. The generation distinguishes a packet that is still queued from
    /// those of a later guest of its slot.
    slots: Slots,
    agenda: Agenda,
}

/// The sender of a burst: properties that all frames of the burst share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub(super) port: PortIndex,
    /// The guest; `None` for the uplink.
    pub(super) guest: Option<GuestId>,
    /// True if a filter checks its frames.
    pub(super) is_filtered: bool,
    /// True if its frames pass early acknowledgement.
    pub(super) is_answered: bool,
    /// True if its frames wait for a limit before they are forwarded.
    pub(super) is_limited: bool,
}

impl Source {
    /// Returns true if admitted frames meet no stage before they are forwarded.
    pub(super) const fn is_direct(self) -> bool {
        !self.is_answered && !self.is_limited
    }
}

/// A guest and the state of its port.
pub(super) type GuestEntry = (Box<PortState>, Box<GuestPort>);

impl PortTable {
    /// Returns the slots of the guests.
    pub(super) const fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Returns the slots of the guests.
    pub(super) const fn slots_mut(&mut self) -> &mut Slots {
        &mut self.slots
    }

    /// Returns the work of the ports.
    pub(super) const fn agenda(&self) -> &Agenda {
        &self.agenda
    }

    /// Returns the work of the ports.
    pub(super) const fn agenda_mut(&mut self) -> &mut Agenda {
        &mut self.agenda
    }

    /// Returns the number of ports.
    pub(super) const fn len(&self) -> usize {
        self.states.len()
    }

    /// Returns the number of guests.
    pub(super) const fn guest_count(&self) -> usize {
        self.guests.len()
    }

    /// Returns all ports.
    pub(super) fn ports(&self) -> impl Iterator<Item = PortIndex> + use<> {
        (0..self.states.len()).map(PortIndex)
    }

    /// Returns the port of the uplink.
    pub(super) fn uplink(&self) -> Option<PortIndex> {
        self.layout.uplink()
    }

    /// Returns the state of the uplink's port.
    pub(super) fn uplink_state(&self) -> Option<&PortState> {
        Some(&self[self.uplink()?])
    }

    /// Returns the index behind the last port.
    pub(super) const fn end(&self) -> PortIndex {
        PortIndex(self.states.len())
    }

    /// Returns the other side of a port.
    pub(super) const fn role(&self, port: PortIndex) -> Role {
        self.layout.role(port)
    }

    /// Returns the index of the guest at a port; `None` for the uplink.
    pub(super) const fn guest_at(&self, port: PortIndex) -> Option<GuestIndex> {
        self.layout.guest_at(port)
    }

    /// Returns the port of a guest.
    pub(super) const fn port_at(&self, guest: GuestIndex) -> PortIndex {
        self.layout.port_at(guest)
    }

    /// Returns the port of a guest; `None` after its removal.
    pub(super) fn port_of(&self, guest: GuestId) -> Option<PortIndex> {
        self.slots.port_of(guest)
    }

    /// Returns the properties of a port as a sender.
    pub(super) fn source(&self, port: PortIndex) -> Source {
        let guest = self.guest(port);
        Source {
            port,
            guest: guest.map(|guest| guest.id),
            is_filtered: guest.is_some_and(|guest| guest.checks.filter.is_some()),
            is_answered: guest.is_some_and(|guest| guest.early.snoop.is_some()),
            is_limited: guest.is_some_and(|guest| guest.limit.shaper.is_some()),
        }
    }

    /// Returns the state of a port, if there is such a port.
    pub(super) fn get_mut(&mut self, port: PortIndex) -> Option<&mut PortState> {
        self.states.get_mut(port.0).map(Box::as_mut)
    }

    /// Returns the guest at a port; `None` for the uplink.
    pub(super) fn guest(&self, port: PortIndex) -> Option<&GuestPort> {
        Some(&self[self.guest_at(port)?])
    }

    /// Returns the guest at a port; `None` for the uplink.
    pub(super) fn guest_mut(&mut self, port: PortIndex) -> Option<&mut GuestPort> {
        let guest = self.guest_at(port)?;
        Some(&mut self[guest])
    }

    /// Returns a port with its guest; `None` for the uplink.
    pub(super) fn both_mut(&mut self, port: PortIndex) -> (&mut PortState, Option<&mut GuestPort>) {
        let guest = self.guest_at(port);
        let guest = guest.map(|guest| self.guests[guest.number()].as_mut());
        (&mut self.states[port.0], guest)
    }

    /// Returns a port with its guest, `None` for the uplink, and the work of all ports.
    pub(super) fn parts_mut(
        &mut self,
        port: PortIndex,
    ) -> (&mut PortState, Option<&mut GuestPort>, &mut Agenda) {
        let guest = self.layout.guest_at(port);
        let guest = guest.map(|guest| self.guests[guest.number()].as_mut());
        (&mut self.states[port.0], guest, &mut self.agenda)
    }

    /// Returns the state of the uplink's port, with the guests whose frames leave by it.
    ///
    /// # Panics
    /// There is no uplink.
    pub(super) fn uplink_and_senders(&mut self) -> (&mut PortState, Senders<'_>) {
        let Self {
            layout,
            states,
            guests,
            slots,
            ..
        } = self;
        let uplink = layout.uplink().expect("there is an uplink");
        let senders = Senders {
            layout: *layout,
            guests,
            slots,
        };
        (&mut states[uplink.0], senders)
    }

    /// Returns a guest and its name.
    pub(super) fn named_mut(&mut self, guest: GuestIndex) -> (&mut GuestPort, &str) {
        let port = self.port_at(guest);
        (&mut self.guests[guest.number()], &self.states[port.0].name)
    }

    /// Returns a guest; `None` after its removal.
    pub(super) fn guest_of_mut(&mut self, guest: GuestId) -> Option<&mut GuestPort> {
        self.guest_mut(self.port_of(guest)?)
    }

    /// Returns the ports of all guests.
    pub(super) fn guest_ports(&self) -> impl Iterator<Item = PortIndex> + use<> {
        let first = self.port_at(GuestIndex::FIRST);
        (first.0..self.states.len()).map(PortIndex)
    }

    /// Returns the states of all ports.
    pub(super) fn states(&self) -> impl Iterator<Item = (PortIndex, &PortState)> {
        let states = self.states.iter().map(Box::as_ref);
        self.ports().zip(states)
    }

    /// Returns all guests in their order.
    pub(super) fn guests(&self) -> impl Iterator<Item = &GuestPort> {
        self.guests.iter().map(Box::as_ref)
    }

    /// Returns all guests in their order.
    pub(super) fn guests_mut(&mut self) -> impl Iterator<Item = &mut GuestPort> {
        self.guests.iter_mut().map(Box::as_mut)
    }

    /// Removes all ports, to add those that stay in their new places. Returns the present layout,
    /// the state of the uplink, and the guests in their order.
    pub(super) fn take(
        &mut self,
    ) -> (
        Layout,
        Option<Box<PortState>>,
        impl Iterator<Item = GuestEntry> + use<>,
    ) {
        let mut states = std::mem::take(&mut self.states).into_iter();
        let uplink = self.uplink().and_then(|_| states.next());
        let guests = std::mem::take(&mut self.guests);
        (self.layout, uplink, states.zip(guests))
    }

    /// Begins to add ports, after [`Self::take`]: first the uplink if there is one.
    pub(super) fn begin(&mut self, uplink: Option<Box<PortState>>) {
        debug_assert!(
            self.states.is_empty(),
            "ports are taken before others are added"
        );
        self.layout = Layout::new(uplink.is_some());
        self.states.extend(uplink);
    }

    /// Adds the next guest; returns its port.
    pub(super) fn push(&mut self, (state, guest): GuestEntry) -> PortIndex {
        let port = PortIndex(self.states.len());
        self.slots.place(guest.id, port);
        self.states.push(state);
        self.guests.push(guest);
        port
    }
}

/// The guests, as senders of frames that leave by the uplink.
pub(super) struct Senders<'t> {
    layout: Layout,
    guests: &'t mut [Box<GuestPort>],
    slots: &'t Slots,
}

impl Senders<'_> {
    /// Returns a guest; `None` after its removal.
    pub(super) fn get_mut(&mut self, guest: GuestId) -> Option<&mut GuestPort> {
        let guest = self.layout.guest_at(self.slots.port_of(guest)?)?;
        Some(&mut self.guests[guest.number()])
    }
}

impl Index<PortIndex> for PortTable {
    type Output = PortState;

    fn index(&self, port: PortIndex) -> &PortState {
        &self.states[port.0]
    }
}

impl IndexMut<PortIndex> for PortTable {
    fn index_mut(&mut self, port: PortIndex) -> &mut PortState {
        &mut self.states[port.0]
    }
}

impl Index<GuestIndex> for PortTable {
    type Output = GuestPort;

    fn index(&self, guest: GuestIndex) -> &GuestPort {
        &self.guests[guest.number()]
    }
}

impl IndexMut<GuestIndex> for PortTable {
    fn index_mut(&mut self, guest: GuestIndex) -> &mut GuestPort {
        &mut self.guests[guest.number()]
    }
}
