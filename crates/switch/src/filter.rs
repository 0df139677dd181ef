//! The anti-spoofing filter: a guest sends no frames in another's name.
//!
//! The configuration defines a guest's MAC address and a list of its IP addresses and prefixes. A
//! [`SpoofFilter`] passes the frames within them:
//!
//! - the Ethernet source is the guest's MAC;
//! - ARP names the guest's MAC and one of its IPv4 addresses (or none: an address probe, RFC 5227);
//! - the IPv4 source is one of the guest's; 0.0.0.0 only for a DHCP client
//!   (UDP 68 to 67, RFC 2131);
//! - the IPv6 source is one of the guest's, the link-local address that follows from
//!   its MAC (RFC 4291, appendix A), or one that it chose (see [`AddressBook`]); `::`
//!   only for `ICMPv6`, which needs it before there is an address (RFC 4862, 5.4;
//!   RFC 3590);
//! - neighbour advertisements are for such an address and the guest's MAC (RFC 4861, 4.4), and
//!   duplicate address detection does not probe another guest's address; all link-layer addresses
//!   in discovery are the guest's; router advertisements do not pass at all;
//! - the guest takes no part in routing, and is no querier of groups, unless [`GuardConfig`]
//!   permits that;
//! - no fragment hides any of this: neighbour discovery does not pass in fragments
//!   (RFC 6980), and a first fragment shows all headers of its packet (RFC 7112);
//! - frames to a DHCP client do not pass, unless the guest may be a DHCP server;
//! - there is no VLAN tag, and only ARP, IPv4 and IPv6 pass: a tag or an unknown protocol could
//!   hide all of the above.
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

/// The rules for the frames of one guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoofFilter {
    mac: Mac,
    /// Prefixes of this guest alone.
    own: Vec<Prefix>,
    /// Prefixes in which the guest may choose addresses.
    open: Vec<Prefix>,
    /// The most addresses that it may choose.
    most: usize,
    dhcp_server: bool,
    guard: GuardConfig,
}

impl SpoofFilter {
    /// Default of the most addresses that a guest may choose: a link-local one, and for a few
    /// prefixes a permanent one and a week's temporary ones (RFC 8981, 3.8).
    pub const MOST_ADDRESSES: usize = 16;

    /// Makes the filter of the guest with `mac` and `own` addresses.
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

    /// Permits addresses that the guest chooses in `prefixes` (SLAAC, RFC 4862): at most `most` at
    /// the same time, link-local ones included.
    #[must_use]
    pub fn with_slaac(mut self, prefixes: impl IntoIterator<Item = Prefix>, most: usize) -> Self {
        self.open.extend(prefixes);
        self.most = most;
        self
    }

    /// Permits DHCP answers.
    #[must_use]
    pub const fn with_dhcp_server(mut self, dhcp_server: bool) -> Self {
        self.dhcp_server = dhcp_server;
        self
    }

    /// Adds the roles that `guard` permits.
    #[must_use]
    pub const fn with_guard(mut self, guard: GuardConfig) -> Self {
        self.guard = guard;
        self
    }

    /// Returns the addresses that are the guest's alone.
    pub(crate) fn own(&self) -> impl Iterator<Item = Prefix> + '_ {
        self.own.iter().copied()
    }

    /// Returns the most addresses that the guest may choose.
    pub(crate) const fn most(&self) -> usize {
        self.most
    }

    /// Returns true if the guest may choose `address`.
    pub(crate) fn is_open(&self, address: IpAddr) -> bool {
        self.open.iter().any(|prefix| prefix.contains(address))
    }

    /// Checks that the guest may send `packet`; an error is the reason if not. A free address that
    /// the guest chose becomes the guest's in `sender`'s book.
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

    /// Checks the station that neighbour discovery names: by default it must be the guest's own.
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

    /// Returns true for a request for the station's own address by reverse ARP (RFC 903). Monitors
    /// send it for a guest that has moved: switches learn the guest's place from it, and it claims
    /// no address.
    fn announces(&self, frame: &[u8]) -> bool {
        // For Ethernet and IPv4, a request.
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

    /// Checks a probe. The guest may probe any free address, even one that it may not have, since
    /// it sends nothing else from there. A probe of an address that another guest is about to take
    /// would keep the other guest from it.
    fn check_tentative(&self, ip: Ipv6Addr, sender: &mut Sender<'_>) -> Result<(), Reason> {
        if self.owns(ip.into()) || self.is_open(ip.into()) {
            return self.has(ip.into(), sender, Reason::SpoofedNeighbour);
        }
        if sender.is_anothers(ip) {
            return Err(Reason::SpoofedNeighbour);
        }
        Ok(())
    }

    /// Checks that the address is the guest's, or assigns it to the guest.
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

    /// Returns true for an address that is the guest's by its configuration.
    pub(crate) fn owns(&self, address: IpAddr) -> bool {
        self.own.iter().any(|own| own.contains(address))
    }
}

/// Returns the link-local address that follows from a MAC.
fn link_local(mac: Mac) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets[..2].copy_from_slice(&[0xfe, 0x80]);
    octets[8..].copy_from_slice(&mac.eui64());
    octets.into()
}

/// Returns true for an IP packet without a VLAN tag that may have no source address.
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

/// Returns true for neighbour and router solicitations, which follow the IPv6 header directly, and
/// for reports of multicast listeners, which follow a hop-by-hop header (RFC 3810, 5).
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
