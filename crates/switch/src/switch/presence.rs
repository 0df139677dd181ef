//! Guests that arrive, and guests that are away: a guest that migrates is configured on both hosts,
//! and is where its card is in use.
//!
//! Traffic to a guest that is away goes to the uplink, and its address may be learned there. A
//! guest that arrives starts with empty buckets, and is announced in its name. The announcement is
//! charged to the guest's own budget for groups, so a guest that arrives again and again costs no
//! more than one that sends these frames itself.

use super::GuestRef;
use super::Parts;
use super::agenda::Work;
use super::guest::is_away;
use super::{Ports, Switch};
use crate::announce;
use crate::filter::SpoofFilter;
use crate::forward::Pinned;
use crate::index::PortIndex;
use crate::port::{Arrival, Presence, Received};
use crate::prefix::Prefix;
use crate::reason::Reason;
use std::collections::BTreeSet;
use std::net::IpAddr;
use tailbound_dataplane::Packet;
use tailbound_units::Nanos;

/// Largest number of announced addresses of a guest.
const MAX_ADDRESSES: usize = 31;

impl GuestRef<'_> {
    /// Returns true if the guest is on another host, or not running.
    pub fn is_away(self) -> bool {
        self.state().is_away()
    }

    /// Returns true if the guest is here, and its arrival was noticed.
    pub fn has_come(self) -> bool {
        let presence = self.state().presence;
        matches!(presence, Some(Presence::Here(arrival)) if arrival != Arrival::default())
    }
}

impl Switch {
    /// Determines the places of the guests of new ports, before any traffic, without announcements.
    pub fn look_for_guests(&mut self, now: Nanos, ports: &Ports) {
        for port in self.parts.table.ports() {
            self.parts.table.note_presence(port, ports);
        }
        self.parts.follow_guests(now, ports);
        self.parts.is_news = false;
    }
}

impl Parts {
    /// Returns true if the guest of a port, which was away, has arrived.
    pub(super) fn has_come(&mut self, now: Nanos, port: PortIndex, ports: &Ports) -> bool {
        self.table.note_presence(port, ports);
        self.follow_guests(now, ports);
        !is_away(self.table.guest(port))
    }

    /// Handles guests that arrived or left.
    pub(super) fn follow_guests(&mut self, now: Nanos, ports: &Ports) {
        while let Some(port) = self.table.agenda_mut().pop(Work::Moved) {
            let presence = ports[port.0].as_ref().map(|port| port.presence());
            if let Some(presence) = presence {
                self.follow(now, port, presence, ports);
            }
        }
    }

    /// Handles the arrival or the departure of a port's guest.
    fn follow(&mut self, now: Nanos, port: PortIndex, presence: Presence, ports: &Ports) {
        let Some(guest) = self.table.guest_mut(port) else {
            return;
        };
        let before = guest.presence.replace(presence);
        if before == Some(presence) {
            return;
        }
        let (id, mac) = (guest.id, guest.mac);
        let was_away = before == Some(Presence::Away);
        self.is_news |= was_away != (presence == Presence::Away);
        match presence {
            Presence::Away => {
                // The guest never gets its remaining early acknowledged data.
                self.abort_snoop(now, port, ports);
                self.forwarding.pin(mac, Pinned::Away(port));
            }
            Presence::Here(_) => {
                self.forwarding.pin(mac, Pinned::Here(port));
                if was_away && let Some(pacer) = self.transmitter.pacer_mut() {
                    pacer.empty_buckets(now, id);
                }
                if before.is_some() {
                    self.announce(now, port, ports);
                }
            }
        }
    }

    /// Announces the place of a port's guest behind the uplink, as if the guest had sent the
    /// frames. Guests here need no announcement: their frames find it.
    fn announce(&mut self, now: Nanos, port: PortIndex, ports: &Ports) {
        let uplink = self.forwarding.uplink();
        let place = self.table.guest_at(port);
        let (Some(uplink), Some(place)) = (uplink, place) else {
            return;
        };
        let guest = &self.table[place];
        let (id, mac, filter) = (guest.id, guest.mac, guest.checks.filter.as_ref());
        let own = filter.into_iter().flat_map(SpoofFilter::own);
        let own = own.filter_map(Prefix::single);
        let chosen = self
            .admission
            .addresses()
            .chosen_by(id, mac)
            .map(IpAddr::from);
        let chosen = chosen.filter(|address| filter.is_none_or(|filter| filter.is_open(*address)));
        let addresses: BTreeSet<_> = own.chain(chosen).take(MAX_ADDRESSES).collect();
        let of_addresses = addresses.into_iter();
        let of_addresses = of_addresses.map(|address| announce::of_address(mac, address));
        for frame in std::iter::once(announce::of_station(mac)).chain(of_addresses) {
            let Received {
                buffer, start, len, ..
            } = self.receiver.copy(&frame);
            let packet = Packet::new(buffer, start, len, None, Some(id));
            let Ok(packet) = packet else {
                continue;
            };
            if self.table[place].pays_for_group(now, &packet, 1) {
                self.transmitter
                    .push(now, (port, uplink), packet, &mut self.table, ports);
            } else {
                let counters = &mut self.table[port].counters;
                counters.drop(Reason::GroupBudget, 1);
            }
        }
    }
}
