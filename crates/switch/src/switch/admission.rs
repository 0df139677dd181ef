//! Admission of frames: a guest's own addresses, and the budgets for multiplied frames.

use super::guest::{GuestPort, replace_budget};
use super::table::PortTable;
use crate::budget::{Budget, BudgetConfig};
use crate::filter::{AddressBook, Sender};
use crate::forward::{Forwarding, Learned, NoRoute, Verdict};
use crate::index::PortIndex;
use crate::mac::Mac;
use crate::reason::Reason;
use std::collections::HashSet;
use tailbound_dataplane::pacer::void;
use tailbound_dataplane::{Frame, GuestId, NumberHash, Packet};
use tailbound_units::{Bytes, Nanos};

/// Checks of frames between their port and the forwarding table.
#[derive(Debug, Default)]
pub(super) struct Admission {
    addresses: AddressBook,
    /// Stations that are limited as such: see [`super::Switch::set_limited_by_station`].
    by_station: HashSet<Mac, NumberHash>,
    /// The budget for frames to groups from the uplink.
    outside: Option<Budget>,
    /// Frames of limits that have ended, with their guests.
    unlimited: Vec<(GuestId, Packet)>,
}

impl Admission {
    /// Returns the owners of addresses.
    pub(super) const fn addresses(&self) -> &AddressBook {
        &self.addresses
    }

    /// Returns the owners of addresses.
    pub(super) const fn addresses_mut(&mut self) -> &mut AddressBook {
        &mut self.addresses
    }

    /// Changes the budget for frames to groups from the uplink.
    pub(super) fn set_outside(&mut self, outside: Option<BudgetConfig>) {
        replace_budget(&mut self.outside, outside);
    }

    /// Sets whether frames to a station are limited as such.
    pub(super) fn set_limited_by_station(&mut self, station: Mac, limited: bool) {
        if limited {
            self.by_station.insert(station);
        } else {
            self.by_station.remove(&station);
        }
    }

    /// Returns true if any station is limited as such.
    pub(super) fn marks_stations(&self) -> bool {
        !self.by_station.is_empty()
    }

    /// Marks a guest's frame to a station that is limited as such.
    pub(super) fn mark_station(&self, packet: &mut Packet) {
        if self.marks_stations()
            && packet.source().is_some()
            && self.by_station.contains(&Mac(packet.destination_mac()))
        {
            packet.flow_by_station();
        }
    }

    /// Adds frames of a limit that has ended.
    pub(super) fn add_unlimited(
        &mut self,
        guest: GuestId,
        packets: impl IntoIterator<Item = Packet>,
    ) {
        let packets = packets.into_iter();
        self.unlimited.extend(packets.map(|packet| (guest, packet)));
    }

    /// Removes and returns the frames of limits that have ended, with their guests.
    pub(super) fn take_unlimited(&mut self) -> Vec<(GuestId, Packet)> {
        std::mem::take(&mut self.unlimited)
    }

    /// Returns true if there are frames of limits that have ended.
    pub(super) const fn has_unlimited(&self) -> bool {
        !self.unlimited.is_empty()
    }

    /// Checks and learns the sender of a frame; an error is the reason to drop it.
    pub(super) fn admit(
        &mut self,
        now: Nanos,
        from: PortIndex,
        packet: &Packet,
        table: &PortTable,
        forwarding: &mut Forwarding,
    ) -> Result<(), Reason> {
        let guest = table.guest(from);
        let filtered = guest.and_then(|guest| Some((guest.id, guest.checks.filter.as_ref()?)));
        if let Some((guest, filter)) = filtered {
            let mut sender = Sender {
                now,
                guest,
                port: from,
                book: &mut self.addresses,
                forwarding,
            };
            filter.check(packet, &mut sender)?;
        }
        match forwarding.learn(now, from, Mac(packet.source_mac())) {
            Learned::Accepted | Learned::Full => {}
            Learned::ForbiddenMove => return Err(Reason::MacMove),
            Learned::Invalid => return Err(Reason::InvalidSource),
        }
        if filtered.is_none() {
            let away = forwarding.away(Mac(packet.source_mac()));
            let away = away.and_then(|port| Some(table.guest(port)?.id));
            self.addresses.hear(now, packet, away);
        }
        Ok(())
    }

    /// Charges the budget of a frame that is copied to all ports, or that others may have to flood;
    /// returns its route. An error is the reason to drop it.
    pub(super) fn charge(
        &mut self,
        now: Nanos,
        from: PortIndex,
        packet: &Packet,
        verdict: Verdict,
        table: &mut PortTable,
    ) -> Result<Route, Reason> {
        let (route, copies) = match verdict {
            Verdict::To(to) => return Ok(Route::To(to)),
            Verdict::Unknown(to) => (Route::To(to), 1),
            Verdict::Flood => (Route::Flood, table.len() - 1),
            Verdict::Drop(NoRoute::LinkLocal) => return Err(Reason::LinkLocalGroup),
            Verdict::Drop(NoRoute::SamePort) => return Err(Reason::SamePort),
            Verdict::Away(home) => return Ok(Route::Nowhere(home)),
            Verdict::Drop(NoRoute::Unknown) => return Err(Reason::UnknownDestination),
        };
        let (budget, reason) = match (route, table.guest_mut(from)) {
            (Route::Flood, Some(guest)) => (&mut guest.checks.groups, Reason::GroupBudget),
            (Route::Flood, None) => (&mut self.outside, Reason::GroupBudget),
            (Route::To(_), Some(guest)) => (&mut guest.checks.unknown, Reason::UnknownBudget),
            (Route::To(_), None) | (Route::Nowhere(_), _) => return Ok(route),
        };
        if pays(budget.as_mut(), now, packet, copies) {
            Ok(route)
        } else {
            Err(reason)
        }
    }
}

impl GuestPort {
    /// Charges the guest's budget for groups with `copies` copies of a frame; returns true if the
    /// budget permits them.
    pub(super) fn pays_for_group(&mut self, now: Nanos, packet: &Packet, copies: usize) -> bool {
        pays(self.checks.groups.as_mut(), now, packet, copies)
    }
}

/// Charges a budget with `copies` copies of a frame; returns true if the budget permits them.
fn pays(budget: Option<&mut Budget>, now: Nanos, packet: &Packet, copies: usize) -> bool {
    let cost = Bytes(on_the_wire(packet).0 * copies as u64);
    budget.is_none_or(|budget| budget.spend(now, cost))
}

/// Route of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// To this port.
    To(PortIndex),
    /// To all ports except the frame's origin.
    Flood,
    /// To the guest of this port, which is away: it is lost.
    Nowhere(PortIndex),
}

/// Returns the bytes of a packet's frames on the wire, after segmentation, with preambles, FCS and
/// gaps.
fn on_the_wire(packet: &Packet) -> Bytes {
    let frames = packet.segments() as u64;
    let shortest = void::SHORTEST.0 * frames;
    let bytes = packet.wire_len() as u64 + void::OVERHEAD.0 * frames;
    Bytes(bytes.max(shortest))
}
