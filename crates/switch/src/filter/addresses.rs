//! Assignment of IPv6 addresses to guests that choose them themselves.
//!
//! A host makes its own link-local address, and addresses in prefixes that a router advertises
//! (SLAAC, RFC 4862): from its MAC, from a secret (RFC 7217) or at random (RFC 8981). A
//! configuration cannot list those. So an address belongs to the guest that first shows it, by a
//! probe (duplicate address detection) or by its use, and from then on to no other guest:
//!
//! - no guest gets an address that another is configured with, or that is made of another's MAC;
//! - no guest gets an address that a station outside uses (known from neighbour discovery at a port
//!   without a filter), unless that was the guest itself before it arrived here. A router that
//!   advertises itself gets back an address that a guest took before. A guest that is away, and
//!   shows there an address that it had here, gets it back, too;
//! - no guest gets an address that people assign by hand, as to routers: `fe80::1`, and all whose
//!   interface identifier is below 2^32, or an anycast one (RFC 2526);
//! - a guest has a maximum number of addresses. It loses one that it has not used for
//!   [`AddressBook::IDLE`] only if it needs the place for another.
//!
//! So by choosing first, a guest only gets addresses that no other has shown. It can keep a
//! neighbour from an address that it can guess; it cannot guess addresses that are made of a
//! secret.

use super::SpoofFilter;
use crate::forward::Forwarding;
use crate::index::PortIndex;
use crate::mac::Mac;
use crate::prefix::Prefix;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use tailbound_dataplane::{Claim, GuestId, NumberHash, Packet, Role};
use tailbound_units::Nanos;

/// The assignment of IPv6 addresses to guests.
#[derive(Debug, Default)]
pub(crate) struct AddressBook {
    configured: Configured,
    /// The guest of each chosen address.
    chosen: HashMap<Ipv6Addr, GuestId>,
    /// The addresses that each guest chose.
    by_guest: HashMap<GuestId, Vec<GuestAddress>, NumberHash>,
    /// The addresses of stations without a filter.
    heard: HashMap<Ipv6Addr, AddressOwner>,
    /// The time of the last cleanup of `heard`, which visits all entries at most once a second.
    swept: Nanos,
}

/// The owners of configured addresses.
#[derive(Debug, Default)]
pub(crate) struct Configured {
    single: HashMap<Ipv6Addr, GuestId>,
    prefixes: Vec<(Prefix, GuestId)>,
}

impl Configured {
    /// Adds the addresses in a guest's filter.
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
struct GuestAddress {
    address: Ipv6Addr,
    used: Nanos,
}

#[derive(Debug, Clone, Copy)]
struct AddressOwner {
    mac: Mac,
    seen: Nanos,
}

/// Reason why a guest may not have an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotFree {
    /// The address is another guest's, or may be.
    Anothers,
    /// The guest has its maximum number of addresses.
    Limit,
}

impl AddressBook {
    /// Time without use after which a guest that needs the place loses an address.
    pub(crate) const IDLE: Nanos = Nanos::from_secs(300);
    /// Most addresses of stations outside. Beyond that, the ones that were silent for
    /// [`AddressBook::IDLE`] are removed.
    pub(crate) const MOST_HEARD: usize = 4096;

    /// Replaces the configured addresses. The caller must review guests' chosen ones next
    /// ([`Self::review`]).
    pub(crate) fn reconfigure(&mut self, configured: Configured) {
        self.configured = configured;
    }

    /// Reviews a guest's chosen addresses: it keeps those that its filter, if there is one, still
    /// permits, and that no configuration assigns. The others become free.
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

    /// Records the address of a frame's sender, at a port without a filter. `away` is the sending
    /// guest, if it is a guest that is away.
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
        self.heard.insert(address, AddressOwner { mac, seen: now });
    }

    /// Returns the addresses that a guest has chosen, here or at its former place.
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

    /// Assigns `address` to `guest`, which may have `most` addresses.
    fn give(
        &mut self,
        now: Nanos,
        guest: GuestId,
        address: Ipv6Addr,
        most: usize,
    ) -> Result<(), NotFree> {
        let new = GuestAddress { address, used: now };
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

/// A sending guest, with the book of its addresses.
pub(crate) struct Sender<'b> {
    pub(crate) now: Nanos,
    pub(crate) guest: GuestId,
    pub(crate) port: PortIndex,
    pub(crate) book: &'b mut AddressBook,
    pub(crate) forwarding: &'b Forwarding,
}

impl Sender<'_> {
    /// Returns true if `address` is known to be another guest's.
    pub(super) fn is_anothers(&self, address: Ipv6Addr) -> bool {
        let by_configuration = self.book.configured.holder(address);
        let chosen = || self.book.chosen.get(&address).copied();
        let holder = by_configuration.or_else(chosen);
        holder.is_some_and(|holder| holder != self.guest)
    }

    /// Assigns `address` to the guest, which uses it; the guest's `filter` permits it.
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

    /// Returns true for an interface identifier that hosts generate, unless it is made of another
    /// guest's MAC.
    fn can_be_chosen(&self, address: Ipv6Addr) -> bool {
        /// Lower ones are assigned by people, among them the routers' anycast address (RFC 4291,
        /// 2.6.1).
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

    /// Returns true if a station outside is known to have the address. A station that was this
    /// guest has arrived here with it.
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
