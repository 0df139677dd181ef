//! Indices of ports and guests. Only this file and `switch/table.rs` calculate with their numbers.

/// The index of a port among [`Ports`](crate::Ports): the uplink if there is one, then the guests'
/// ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortIndex(pub usize);

impl PortIndex {
    pub(crate) const FIRST: Self = Self(0);

    /// Returns the index behind this one.
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The index of a guest in the order of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GuestIndex(usize);

impl GuestIndex {
    pub(crate) const FIRST: Self = Self(0);

    pub(crate) const fn new(number: usize) -> Self {
        Self(number)
    }

    /// Returns the number of guests before this one.
    pub(crate) const fn number(self) -> usize {
        self.0
    }

    /// Returns the index behind this one.
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The other side of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The network outside.
    Uplink,
    /// A guest.
    Guest(GuestIndex),
}

/// The layout of the ports: the uplink if there is one, then the guests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Layout {
    has_uplink: bool,
}

impl Layout {
    pub(crate) const fn new(has_uplink: bool) -> Self {
        Self { has_uplink }
    }

    /// Returns the port of the uplink.
    pub(crate) fn uplink(self) -> Option<PortIndex> {
        self.has_uplink.then_some(PortIndex::FIRST)
    }

    /// Returns the port of a guest.
    pub(crate) const fn port_at(self, guest: GuestIndex) -> PortIndex {
        PortIndex(guest.0 + self.has_uplink as usize)
    }

    /// Returns the guest at a port; `None` for the uplink.
    pub(crate) const fn guest_at(self, port: PortIndex) -> Option<GuestIndex> {
        match port.0.checked_sub(self.has_uplink as usize) {
            Some(guest) => Some(GuestIndex(guest)),
            None => None,
        }
    }

    /// Returns the other side of a port.
    pub(crate) const fn role(self, port: PortIndex) -> Role {
        match self.guest_at(port) {
            Some(guest) => Role::Guest(guest),
            None => Role::Uplink,
        }
    }
}
