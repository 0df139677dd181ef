//! Checks the addresses and rates that guests may send with.

use super::GuestConfig;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tailbound_document::{Problem, Step};
use tailbound_switch::{BudgetConfig, Prefix};
use tailbound_units::Bytes;

/// A full frame on the wire.
const FULL_FRAME: Bytes = Bytes(1538);
/// Most addresses that a guest may choose. Each frame is looked for among them.
const MOST_CHOSEN: usize = 256;
/// Length of the prefixes in which hosts choose addresses, in bits (RFC 4862, 5.5.3; RFC 7421).
const SLAAC: u8 = 64;

const IDLE: &str =
    "with `anti_spoofing = false` the guest may send that anyway; leave one of the two out";

/// Addresses seen so far, with their owners.
#[derive(Default)]
pub(super) struct Addresses(Vec<(Prefix, String)>);

impl Addresses {
    /// Returns all mistakes in a guest's addresses and budgets, given the guests before it.
    pub(super) fn guest(&mut self, at: &[Step], guest: &GuestConfig, owner: &str) -> Vec<Problem> {
        let mut wrong = Vec::new();
        let mut say = |more: &[Step], message: String| {
            wrong.push(Problem {
                path: [at, more].concat(),
                message,
            });
        };
        for (index, prefix) in guest.ip.iter().enumerate() {
            let place = [Step::Key("ip"), Step::Index(index)];
            if let Some(message) = wrong_address(*prefix) {
                say(&place, message);
            }
            if let Some(message) = self.known(*prefix, owner) {
                say(&place, message);
            }
        }
        for (index, prefix) in guest.slaac.iter().enumerate() {
            if let Some(message) = wrong_slaac(*prefix) {
                say(&[Step::Key("slaac"), Step::Index(index)], message);
            }
        }
        if !(1..=MOST_CHOSEN).contains(&guest.chosen_addresses) {
            say(
                &[Step::Key("chosen_addresses")],
                format!(
                    "{} addresses of its own choice are too few or too many; use 1 to \
                     {MOST_CHOSEN}, and a prefix in `ip` for more",
                    guest.chosen_addresses
                ),
            );
        }
        for (key, budget) in [("groups", guest.groups), ("unknown", guest.unknown)] {
            if let Some((inner, message)) = wrong_budget(budget) {
                say(&[Step::Key(key), Step::Key(inner)], message);
            }
        }
        Self::filter(guest, &mut say);
        wrong
    }

    fn filter(guest: &GuestConfig, say: &mut impl FnMut(&[Step], String)) {
        if guest.anti_spoofing {
            if guest.ip.is_empty() && guest.slaac.is_empty() {
                say(
                    &[],
                    format!(
                        "{} has no IP address to send from; list its addresses as `ip = [...]`, \
                            or allow all source addresses with `anti_spoofing = false`",
                        guest.name
                    ),
                );
            }
            return;
        }
        let idle = [
            ("slaac", !guest.slaac.is_empty()),
            ("dhcp_server", guest.dhcp_server),
        ];
        let allowed = guest.guard.keys();
        for (key, _) in allowed.iter().filter(|(_, is_set)| *is_set) {
            say(&[Step::Key("guard"), Step::Key(key)], IDLE.to_owned());
        }
        for (key, _) in idle.iter().filter(|(_, is_set)| *is_set) {
            say(&[Step::Key(key)], IDLE.to_owned());
        }
    }

    /// Returns the mistake in assigning `prefix` to the guest called `name`, if it overlaps another
    /// guest's.
    fn known(&mut self, prefix: Prefix, name: &str) -> Option<String> {
        let other = self.0.iter().find(|(other, _)| prefix.overlaps(*other));
        let message = other.map(|(other, owner)| {
            if *other == prefix {
                format!(
                    "duplicate IP address {prefix}, which is {owner}; use different \
                    addresses for each guest"
                )
            } else {
                format!(
                    "{prefix} overlaps {other}, which is {owner}; use different prefixes, or \
                        list a shared IPv6 prefix as `slaac`"
                )
            }
        });
        self.0.push((prefix, name.to_owned()));
        message
    }
}

/// Returns the mistake in an address or prefix of a guest, if there is one.
fn wrong_address(prefix: Prefix) -> Option<String> {
    let groups = match prefix.address() {
        IpAddr::V4(_) => Prefix::new(Ipv4Addr::new(224, 0, 0, 0).into(), 3),
        IpAddr::V6(_) => Prefix::new(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0).into(), 8),
    };
    let nobody = match prefix.address() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let is_station = !prefix.contains(nobody) && !groups.is_ok_and(|it| it.overlaps(prefix));
    if is_station {
        return None;
    }
    Some(match prefix.single() {
        Some(address) => {
            format!("{address} is no single station's address; use the guest's own")
        }
        None => format!(
            "{prefix} contains addresses that are not unicast; use a longer prefix, or allow all \
                source addresses with `anti_spoofing = false`"
        ),
    })
}

fn wrong_slaac(prefix: Prefix) -> Option<String> {
    let is_right =
        prefix.address().is_ipv6() && prefix.length() == SLAAC && wrong_address(prefix).is_none();
    (!is_right).then(|| {
        format!(
            "{prefix} is no prefix in which hosts choose addresses; use an IPv6 prefix of {SLAAC} \
             bits, for example \"fd00::/64\""
        )
    })
}

pub(super) fn wrong_budget(budget: BudgetConfig) -> Option<(&'static str, String)> {
    if budget.rate.0 == 0 {
        let message = "a budget of rate 0 is spent once and for all; use at least 1bit/s";
        return Some(("rate", message.to_owned()));
    }
    (budget.burst < FULL_FRAME).then(|| {
        let message = format!(
            "a burst of {} is below one full frame; use at least {FULL_FRAME}",
            budget.burst
        );
        ("burst", message)
    })
}

#[cfg(test)]
mod tests;
