//! Which guest has which IPv6 address, where guests choose them by themselves.
//!
//! A host makes its own link-local address, and addresses in prefixes that a router
//! advertises (SLAAC, RFC 4862): of its MAC, of a secret (RFC 7217) or at random
//! (RFC 8981). Nobody can list those beforehand. So an address belongs to the guest that
//! shows it first, by asking whether it is free (duplicate address detection) or by
//! using it, and from then on to no other:
//!
//! - not to one that it is configured for, nor to one whose MAC it is made of;
//! - not to one that a station outside was heard to have (neighbour discovery from a
//!   port without a filter), unless that was the guest itself, before it came here; a
//!   router that advertises itself gets back what a guest took before it was heard, and so
//!   does a guest that is away, and shows there what it had here;
//! - no guest gets what people give by hand, as routers have it: `fe80::1`, and all
//!   whose interface identifier is below 2^32, or an anycast one (RFC 2526);
//! - a guest has so many at once, and gives up one that it has not used for
//!   [`AddressBook::IDLE`] only where it needs the place for another.
//!
//! So what a guest can get by choosing first is an address that nobody has shown. It
//! can keep a neighbour from one that it foresees; it foresees none that is made of a
//! secret.

use super::SpoofFilter;
use crate::forward::{Forwarding, PortIndex};
use crate::mac::Mac;
use crate::prefix::Prefix;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use tailbound_dataplane::{Claim, GuestId, Packet, Role};
use tailbound_units::Nanos;

/// Which guest has which IPv6 address.
#[derive(Debug, Default)]
pub(crate) struct AddressBook {
    configured: Configured,
    /// Who chose an address.
    chosen: HashMap<Ipv6Addr, GuestId>,
    /// What each guest chose.
    by_guest: HashMap<GuestId, Vec<Chosen>>,
    /// What stations without a filter were heard to have.
    heard: HashMap<Ipv6Addr, Heard>,
    /// When room was last looked for in `heard`, so that it costs a walk at most once a
    /// second.
    swept: Nanos,
}

/// Whose an address is by configuration.
#[derive(Debug, Default)]
pub(crate) struct Configured {
    single: HashMap<Ipv6Addr, GuestId>,
    prefixes: Vec<(Prefix, GuestId)>,
}

impl Configured {
    /// Adds the addresses that a guest's filter names.
    pub(crate) fn add(&mut self, guest: GuestId, filter: &SpoofFilter) {
        for own in filter.own() {
            match own.single() {
                Some(IpAddr::V6(address)) => {
                    self.single.insert(address, guest);
                }
                Some(IpAddr::V4(_)) => {}
                None => self.prefixes.push((own, guest)),
            }
        }
    }

    fn holder(&self, address: Ipv6Addr) -> Option<GuestId> {
        let single = self.single.get(&address).copied();
        single.or_else(|| {
            let mut prefixes = self.prefixes.iter();
            let found = prefixes.find(|(prefix, _)| prefix.contains(address.into()));
            found.map(|(_, guest)| *guest)
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Chosen {
    address: Ipv6Addr,
    used: Nanos,
}

#[derive(Debug, Clone, Copy)]
struct Heard {
    mac: Mac,
    seen: Nanos,
}

/// Why a guest may not have an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotFree {
    /// It is another one's, or may be.
    Anothers,
    /// The guest has as many as it may.
    Limit,
}

impl AddressBook {
    /// A guest that needs the place gives up an address that it has not used for so
    /// long.
    pub(crate) const IDLE: Nanos = Nanos::from_secs(300);
    /// Most addresses of stations outside. Beyond that the ones that were silent for
    /// [`AddressBook::IDLE`] make room.
    pub(crate) const MOST_HEARD: usize = 4096;

    /// Takes over whose addresses are by configuration. What guests chose is to be looked
    /// at next ([`Self::review`]).
    pub(crate) fn reconfigure(&mut self, configured: Configured) {
        self.configured = configured;
    }

    /// Lets a guest keep what it chose as far as its filter, if there is one, leaves that
    /// open to it, and it is nobody's by configuration: the rest is free again.
    pub(crate) fn review(&mut self, guest: GuestId, filter: Option<&SpoofFilter>) {
        let Self {
            configured,
            chosen,
            by_guest,
            ..
        } = self;
        let Some(own) = by_guest.get_mut(&guest) else {
            return;
        };
        own.retain(|known| {
            let address = known.address;
            let stays = filter.is_some_and(|filter| filter.is_open(address.into()))
                && configured.holder(address).is_none();
            if !stays {
                chosen.remove(&address);
            }
            stays
        });
        if own.is_empty() {
            by_guest.remove(&guest);
        }
    }

    /// Notes which address the sender of a frame has, which came from a port without a
    /// filter. `away` is the guest that the sender is, where that is away.
    pub(crate) fn hear(&mut self, now: Nanos, packet: &Packet, away: Option<GuestId>) {
        let (address, is_router) = match packet.claim() {
            Some(
                Claim::Address {
                    ip: IpAddr::V6(ip), ..
                }
                | Claim::Tentative(ip),
            ) => (ip, false),
            Some(Claim::Router | Claim::Role(Role::Redirect)) => match packet.ip_source() {
                Some(IpAddr::V6(ip)) => (ip, true),
                _ => return,
            },
            _ => return,
        };
        if let Some(guest) = self.chosen.get(&address).copied() {
            if is_router {
                tracing::warn!(%address, "a guest had chosen the address of a router");
            } else if away != Some(guest) {
                return;
            }
            self.give_up(guest, address);
        }
        if self.heard.len() >= Self::MOST_HEARD && !self.heard.contains_key(&address) {
            if now.since(self.swept) >= Nanos::from_secs(1) {
                self.swept = now;
                self.heard
                    .retain(|_, heard| now.since(heard.seen) < Self::IDLE);
            }
            if self.heard.len() >= Self::MOST_HEARD {
                return;
            }
        }
        let mac = Mac(packet.source_mac());
        self.heard.insert(address, Heard { mac, seen: now });
    }

    /// What a guest has chosen, here or where it was heard before it came here.
    pub(crate) fn chosen_by(&self, guest: GuestId, mac: Mac) -> impl Iterator<Item = Ipv6Addr> {
        let here = self.by_guest.get(&guest).into_iter().flatten();
        let heard = self.heard.iter().filter(move |(_, heard)| heard.mac == mac);
        let here = here.map(|chosen| chosen.address);
        here.chain(heard.map(|(address, _)| *address))
    }

    fn give_up(&mut self, guest: GuestId, address: Ipv6Addr) {
        self.chosen.remove(&address);
        if let Some(chosen) = self.by_guest.get_mut(&guest) {
            chosen.retain(|chosen| chosen.address != address);
        }
    }

    /// Gives `address` to `guest`, which has so many that are used and may have `most`.
    fn give(
        &mut self,
        now: Nanos,
        guest: GuestId,
        address: Ipv6Addr,
        most: usize,
    ) -> Result<(), NotFree> {
        let new = Chosen { address, used: now };
        let chosen = self.by_guest.entry(guest).or_default();
        if chosen.len() < most {
            chosen.push(new);
        } else {
            let oldest = chosen.iter_mut().min_by_key(|chosen| chosen.used);
            let idle = oldest.filter(|oldest| now.since(oldest.used) >= Self::IDLE);
            let before = std::mem::replace(idle.ok_or(NotFree::Limit)?, new);
            self.chosen.remove(&before.address);
        }
        self.chosen.insert(address, guest);
        Ok(())
    }
}

/// A guest that sends, and the book that says what it has.
pub(crate) struct Sender<'b> {
    pub(crate) now: Nanos,
    pub(crate) guest: GuestId,
    pub(crate) port: PortIndex,
    pub(crate) book: &'b mut AddressBook,
    pub(crate) forwarding: &'b Forwarding,
}

impl Sender<'_> {
    /// Whether somebody else is known to have `address`.
    pub(super) fn is_anothers(&self, address: Ipv6Addr) -> bool {
        let by_configuration = self.book.configured.holder(address);
        let chosen = || self.book.chosen.get(&address).copied();
        let holder = by_configuration.or_else(chosen);
        holder.is_some_and(|holder| holder != self.guest)
    }

    /// The guest uses `address`, one of those that its `filter` leaves open to it: it is
    /// the guest's from now on.
    pub(super) fn take(&mut self, address: Ipv6Addr, filter: &SpoofFilter) -> Result<(), NotFree> {
        let chosen = self.book.by_guest.get_mut(&self.guest);
        let mut chosen = chosen.into_iter().flatten();
        if let Some(known) = chosen.find(|known| known.address == address) {
            known.used = self.now;
            return Ok(());
        }
        let free = !self.is_anothers(address)
            && self.can_be_chosen(address)
            && !self.is_outside(address, filter.mac);
        if !free {
            return Err(NotFree::Anothers);
        }
        self.book.give(self.now, self.guest, address, filter.most())
    }

    /// Whether the interface identifier is one that a host makes, and not of a MAC that
    /// is elsewhere.
    fn can_be_chosen(&self, address: Ipv6Addr) -> bool {
        /// Below are those that people give, among them the routers' anycast address
        /// (RFC 4291, 2.6.1).
        const FIRST_MADE: u64 = 1 << 32;
        /// From here on are anycast addresses (RFC 2526, 2).
        const FIRST_ANYCAST: u64 = 0xfdff_ffff_ffff_ff80;
        const LAST_ANYCAST: u64 = 0xfdff_ffff_ffff_ffff;
        let identifier = u128::from(address) as u64;
        if identifier < FIRST_MADE || (FIRST_ANYCAST..=LAST_ANYCAST).contains(&identifier) {
            return false;
        }
        let mac = Mac::from_eui64(identifier.to_be_bytes());
        let port = mac.and_then(|mac| self.forwarding.port_of(mac));
        port.is_none_or(|port| port == self.port)
    }

    /// Whether a station outside was heard to have the address. One that was this guest
    /// has come here with it.
    fn is_outside(&mut self, address: Ipv6Addr, guest: Mac) -> bool {
        let heard = self.book.heard.get(&address);
        match heard {
            Some(heard) if heard.mac == guest => {
                self.book.heard.remove(&address);
                false
            }
            heard => heard.is_some(),
        }
    }
}

#[cfg(test)]
mod tests;
