//! The anti-spoofing filter: a guest sends nothing in another one's name.
//!
//! A guest has one MAC address and a list of IP addresses and prefixes, by
//! configuration. A [`SpoofFilter`] lets pass what stays within them:
//!
//! - the Ethernet source is the guest's MAC;
//! - ARP speaks for the guest's MAC and one of its IPv4 addresses (or for none:
//!   an address probe, RFC 5227);
//! - the IPv4 source is one of the guest's; 0.0.0.0 only for a DHCP client
//!   (UDP 68 to 67, RFC 2131);
//! - the IPv6 source is one of the guest's, the link-local address that follows from
//!   its MAC (RFC 4291, appendix A), or one that it chose (see [`AddressBook`]); `::`
//!   only for `ICMPv6`, which needs it before there is an address (RFC 4862, 5.4;
//!   RFC 3590);
//! - neighbour advertisements speak for such an address and for the guest's MAC
//!   (RFC 4861, 4.4), and what asks whether an address is free (duplicate address
//!   detection) does not ask for another guest's; all link-layer addresses in discovery
//!   are the guest's; router advertisements do not pass at all;
//! - the guest takes no part in routing, and is no querier of groups, unless [`GuardConfig`]
//!   allows that;
//! - no fragment hides any of this: neighbour discovery does not pass in fragments
//!   (RFC 6980), and a first fragment shows all headers of its packet (RFC 7112);
//! - nothing goes to a DHCP client, unless the guest is to be a DHCP server;
//! - there is no VLAN tag, and nothing but ARP, IPv4 and IPv6: behind a tag or
//!   in a protocol that is not looked into, all of the above could hide.
//!
//! A guest that routes, bridges or tags needs `anti_spoofing = false`.

mod addresses;
mod guard;

pub(crate) use addresses::{AddressBook, Configured, Sender};
pub use guard::GuardConfig;

use crate::mac::Mac;
use crate::prefix::Prefix;
use crate::reason::Reason;
use addresses::NotFree;
use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, Ipv6Packet, UdpPacket,
};
use std::net::{IpAddr, Ipv6Addr};
use tailbound_dataplane::{Claim, Packet, Station};

/// What one guest may send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoofFilter {
    mac: Mac,
    /// Nobody else's.
    own: Vec<Prefix>,
    /// Where the guest may choose addresses of its own.
    open: Vec<Prefix>,
    /// How many it may choose.
    most: usize,
    dhcp_server: bool,
    guard: GuardConfig,
}

impl SpoofFilter {
    /// How many addresses a guest may choose by default: a link-local one, and for a
    /// few prefixes a lasting one and a week's temporary ones (RFC 8981, 3.8).
    pub const MOST_ADDRESSES: usize = 16;

    /// The filter of the guest with `mac` and `own` addresses.
    pub fn new(mac: Mac, own: impl IntoIterator<Item = Prefix>) -> Self {
        let mut own: Vec<_> = own.into_iter().collect();
        own.push(link_local(mac).into());
        Self {
            mac,
            own,
            open: vec![Prefix::LINK_LOCAL],
            most: Self::MOST_ADDRESSES,
            dhcp_server: false,
            guard: GuardConfig::default(),
        }
    }

    /// It may also choose addresses in `prefixes` by itself (SLAAC, RFC 4862), at most
    /// `most` at once, those of the link among them.
    #[must_use]
    pub fn with_slaac(mut self, prefixes: impl IntoIterator<Item = Prefix>, most: usize) -> Self {
        self.open.extend(prefixes);
        self.most = most;
        self
    }

    /// It may also hand out addresses.
    #[must_use]
    pub const fn with_dhcp_server(mut self, dhcp_server: bool) -> Self {
        self.dhcp_server = dhcp_server;
        self
    }

    /// Adds the roles that `guard` allows.
    #[must_use]
    pub const fn with_guard(mut self, guard: GuardConfig) -> Self {
        self.guard = guard;
        self
    }

    /// Addresses that are the guest's alone.
    pub(crate) fn own(&self) -> impl Iterator<Item = Prefix> + '_ {
        self.own.iter().copied()
    }

    /// How many addresses the guest may choose.
    pub(crate) const fn most(&self) -> usize {
        self.most
    }

    /// Whether the guest may choose `address`.
    pub(crate) fn is_open(&self, address: IpAddr) -> bool {
        self.open.iter().any(|prefix| prefix.contains(address))
    }

    /// Whether the guest may send `packet`; if not, why. An address of its choice that
    /// nobody has becomes the guest's in `sender`'s book.
    pub(crate) fn check(&self, packet: &Packet, sender: &mut Sender<'_>) -> Result<(), Reason> {
        if packet.source_mac() != self.mac.0 {
            return Err(Reason::SpoofedMac);
        }
        if packet.vlan().is_some() {
            return Err(Reason::VlanTag);
        }
        let claim = packet.claim();
        let Some(source) = packet.ip_source() else {
            return match claim {
                Some(claim) => self.check_arp(claim),
                None if self.announces(packet.bytes()) => Ok(()),
                None => Err(Reason::EtherType),
            };
        };
        if source.is_unspecified() {
            if !may_have_no_source(packet.bytes()) {
                return Err(Reason::SpoofedIp);
            }
        } else {
            self.has(source, sender, Reason::SpoofedIp)?;
        }
        if packet.is_source_routed() && !self.guard.source_routes {
            return Err(Reason::SourceRoute);
        }
        match claim {
            None => Ok(()),
            Some(Claim::Router) => Err(Reason::RouterClaim),
            Some(Claim::Role(role)) => self.guard.role(role),
            Some(Claim::TinyFragment) if self.guard.tiny_fragments => Ok(()),
            Some(Claim::TinyFragment) => Err(Reason::TinyFragment),
            Some(Claim::FragmentedDiscovery) => Err(Reason::FragmentedDiscovery),
            Some(Claim::HiddenHeaders) => Err(Reason::HiddenHeaders),
            Some(Claim::DhcpServer) if self.dhcp_server => Ok(()),
            Some(Claim::DhcpServer) => Err(Reason::DhcpServer),
            Some(Claim::Address { ip, station }) => {
                self.check_station(station, Reason::SpoofedNeighbour)?;
                self.has(ip, sender, Reason::SpoofedNeighbour)
            }
            Some(Claim::Solicitation(station)) => {
                self.check_station(station, Reason::SpoofedSolicitation)
            }
            Some(Claim::Tentative(ip)) => self.check_tentative(ip, sender),
        }
    }

    /// Checks the station that neighbour discovery names: the guest's own, by default.
    fn check_station(&self, station: Station, otherwise: Reason) -> Result<(), Reason> {
        let is_own = match station {
            Station::Unnamed => true,
            Station::At(mac) => mac == self.mac.0,
            Station::Ambiguous => false,
        };
        (is_own || self.guard.stations)
            .then_some(())
            .ok_or(otherwise)
    }

    /// Whether a frame asks for the address of its own station by reverse ARP (RFC 903), as
    /// monitors do for a guest that has moved: switches learn from it where that is, and
    /// it claims no address.
    fn announces(&self, frame: &[u8]) -> bool {
        // Of Ethernet and IPv4, a request.
        const BEGIN: [u8; 10] = [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3];
        let station = &self.mac.0;
        frame.get(12..22) == Some(&BEGIN)
            && [22, 32].map(|at| frame.get(at..at + 6)) == [Some(&station[..]); 2]
            && [28, 38].map(|at| frame.get(at..at + 4)) == [Some(&[0; 4][..]); 2]
    }

    fn check_arp(&self, claim: Claim) -> Result<(), Reason> {
        let Claim::Address { ip, station } = claim else {
            return Err(Reason::SpoofedArp);
        };
        let ours = station == Station::At(self.mac.0) && (ip.is_unspecified() || self.owns(ip));
        if ours {
            Ok(())
        } else {
            Err(Reason::SpoofedArp)
        }
    }

    /// The guest may ask for any address that nobody has: also for one that it may not
    /// have, since it sends nothing else from there. A guest that asks for one that
    /// another is about to take would keep it from that.
    fn check_tentative(&self, ip: Ipv6Addr, sender: &mut Sender<'_>) -> Result<(), Reason> {
        if self.owns(ip.into()) || self.is_open(ip.into()) {
            return self.has(ip.into(), sender, Reason::SpoofedNeighbour);
        }
        if sender.is_anothers(ip) {
            return Err(Reason::SpoofedNeighbour);
        }
        Ok(())
    }

    /// Whether the address is the guest's, or becomes it.
    fn has(&self, ip: IpAddr, sender: &mut Sender<'_>, otherwise: Reason) -> Result<(), Reason> {
        if self.owns(ip) {
            return Ok(());
        }
        match ip {
            IpAddr::V6(ip) if self.is_open(ip.into()) => {
                sender.take(ip, self).map_err(|why| match why {
                    NotFree::Anothers => otherwise,
                    NotFree::Limit => Reason::AddressLimit,
                })
            }
            _ => Err(otherwise),
        }
    }

    fn owns(&self, address: IpAddr) -> bool {
        self.own.iter().any(|own| own.contains(address))
    }
}

/// The link-local address that follows from a MAC.
fn link_local(mac: Mac) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets[..2].copy_from_slice(&[0xfe, 0x80]);
    octets[8..].copy_from_slice(&mac.eui64());
    octets.into()
}

/// Whether an IP packet, without a VLAN tag, may come from nobody.
fn may_have_no_source(frame: &[u8]) -> bool {
    let Ok(ethernet) = EthernetFrame::new_checked(frame) else {
        return false;
    };
    match ethernet.ethertype() {
        EthernetProtocol::Ipv4 => is_dhcp_request(ethernet.payload()).unwrap_or(false),
        EthernetProtocol::Ipv6 => needs_no_source(ethernet.payload()).unwrap_or(false),
        _ => false,
    }
}

fn is_dhcp_request(bytes: &[u8]) -> Option<bool> {
    const CLIENT: u16 = 68;
    const SERVER: u16 = 67;
    let ip = Ipv4Packet::new_checked(bytes).ok()?;
    if ip.next_header() != IpProtocol::Udp || ip.frag_offset() != 0 || ip.more_frags() {
        return None;
    }
    let udp = UdpPacket::new_checked(ip.payload()).ok()?;
    Some(udp.src_port() == CLIENT && udp.dst_port() == SERVER)
}

/// Neighbour and router solicitations stand right behind the IPv6 header,
/// reports of multicast listeners behind a hop-by-hop header (RFC 3810, 5).
fn needs_no_source(bytes: &[u8]) -> Option<bool> {
    const ROUTER_SOLICITATION: u8 = 133;
    const NEIGHBOUR_SOLICITATION: u8 = 135;
    const LISTENER_REPORTS: [u8; 3] = [131, 132, 143];
    let ip = Ipv6Packet::new_checked(bytes).ok()?;
    let payload = ip.payload();
    match ip.next_header() {
        IpProtocol::Icmpv6 => {
            let kind = *payload.first()?;
            Some(matches!(kind, ROUTER_SOLICITATION | NEIGHBOUR_SOLICITATION))
        }
        IpProtocol::HopByHop => {
            let next = IpProtocol::from(*payload.first()?);
            let behind = (usize::from(*payload.get(1)?) + 1) * 8;
            let kind = payload.get(behind)?;
            Some(next == IpProtocol::Icmpv6 && LISTENER_REPORTS.contains(kind))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
