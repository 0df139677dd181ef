//! Claims of a frame: ownership of an address, or the role of a router, DHCP server or participant
//! in routing. A check against spoofing reads the claims and the source addresses.

use super::wire::{
    FRAGMENT, Headers, ICMP, ICMPV6, Network, TCP, UDP, UDP_HEADER, be16, behind_extensions,
    is_extension,
};
use super::{Packet, ip_address, mac_at};
use smoltcp::wire::{IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket};
use std::net::{IpAddr, Ipv6Addr};

/// A statement of a frame that its receivers would believe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// ARP's sender, or the target of a neighbour advertisement (RFC 4861, 4.4).
    Address {
        /// The address. `0.0.0.0` is an ARP probe (RFC 5227), which makes no claim.
        ip: IpAddr,
        /// The station that the frame names for the address.
        station: Station,
    },
    /// A solicitation that names the station of its sender (RFC 4861, 4.1 and 4.3): receivers send
    /// packets for its IP source there.
    Solicitation(Station),
    /// The sender is about to use this address and queries its owners (duplicate address detection;
    /// RFC 4862, 5.4).
    Tentative(Ipv6Addr),
    /// A router advertisement (RFC 4861, 4.2): the sender claims to be a router.
    Router,
    /// UDP to a DHCP client (port 68, IPv6: 546): the sender claims to be a DHCP server. Clients
    /// ignore the source port (RFC 2131, 4.1; RFC 7610, 1).
    DhcpServer,
    /// The sender acts as a part of the network.
    Role(Role),
    /// Neighbour discovery in a fragment, even if it is the only one, which no node sends (RFC
    /// 6980, 5).
    FragmentedDiscovery,
    /// A fragment that hides the packet's type: the first one ends before its headers do (RFC 7112,
    /// 5), or further extension headers follow the fragment header, whose contents an overlapping
    /// fragment could replace.
    HiddenHeaders,
    /// TCP over IPv4 in fragments so short that the first does not include its flags, or in one
    /// that begins right behind the ports and may replace the flags (RFC 1858, 3; RFC 3128).
    TinyFragment,
}

/// The station that a frame names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Station {
    /// No station.
    Unnamed,
    /// This one, in all options that name a station.
    At([u8; 6]),
    /// Several stations, of which receivers may use any; or the option is truncated or has no
    /// length.
    Ambiguous,
}

/// Roles in the network, by the protocols that their holders speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The querier of IGMP (RFC 9776) or MLD (RFC 9777).
    GroupQuerier,
    /// A router of VRRP (RFC 9568) or CARP.
    Vrrp,
    /// A router of HSRP (RFC 2281).
    Hsrp,
    /// A neighbour in OSPF (RFC 2328, RFC 5340).
    Ospf,
    /// A router that names a better one (redirect; RFC 792; RFC 4861, 4.5).
    Redirect,
}

impl Packet {
    /// Returns the packet's claim, if any.
    pub fn claim(&self) -> Option<Claim> {
        let facts = self.facts();
        if facts.is_plain {
            return None;
        }
        of(self.bytes(), facts.headers)
    }

    /// Checks for an IPv4 source route, loose or strict (RFC 791, 3.1): its sender chooses the
    /// routers that it and its answers pass.
    #[inline]
    pub fn is_source_routed(&self) -> bool {
        let headers = self.facts().headers;
        if headers.network_kind != Network::Ipv4 {
            return false;
        }
        let ip = &self.bytes()[usize::from(headers.network)..];
        let header_len = usize::from(ip[0] & 0xf) * 4;
        header_len > IPV4 && has_source_route(&ip[IPV4..header_len])
    }
}

/// Returns the claim of a frame with these headers, if any.
pub(super) fn of(bytes: &[u8], headers: Headers) -> Option<Claim> {
    let upper = || &bytes[usize::from(headers.transport)..headers.end(bytes)];
    match (headers.network_kind, headers.transport) {
        (Network::Arp, _) => {
            let arp = usize::from(headers.network);
            Some(Claim::Address {
                ip: ip_address(&bytes[arp + 14..arp + 18])?,
                station: Station::At(mac_at(bytes, arp + 8)),
            })
        }
        (Network::Ipv4, 0) => ipv4_fragment(&bytes[usize::from(headers.network)..]),
        (Network::Ipv6, 0) => ipv6_fragment(&bytes[usize::from(headers.network)..]),
        (Network::Ipv4, _) if headers.protocol != TCP => by_ipv4(headers.protocol, upper()),
        (Network::Ipv6, _) if headers.protocol == ICMPV6 => {
            let from_nobody = || headers.addresses(bytes)[..16] == [0; 16];
            discovery(upper(), from_nobody)
        }
        (Network::Ipv6, _) if headers.protocol != TCP => by_ipv6(headers.protocol, upper()),
        _ => None,
    }
}

const IPV4: usize = 20;

/// Looks for a source route among an IPv4 header's options.
#[cold]
fn has_source_route(mut options: &[u8]) -> bool {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    const LOOSE: u8 = 131;
    const STRICT: u8 = 137;
    loop {
        options = match options {
            [NOTHING, rest @ ..] => rest,
            [] | [END, ..] => return false,
            [LOOSE | STRICT, ..] => return true,
            // A receiver drops a packet with an option that is cut off.
            [_, len, ..] => match options.get(usize::from(*len)..) {
                Some(rest) if *len >= 2 => rest,
                _ => return false,
            },
            [_] => return false,
        }
    }
}

pub(super) const DHCP_CLIENT: u16 = 68;
const DHCPV6_CLIENT: u16 = 546;
pub(super) const HSRP: u16 = 1985;
const HSRP_OVER_IPV6: u16 = 2029;

const IGMP: u8 = 2;
const OSPF: u8 = 89;
const VRRP: u8 = 112;

const ICMP_REDIRECT: u8 = 5;
const IGMP_QUERY: u8 = 0x11;
const LISTENER_QUERY: u8 = 130;
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

/// The claim of a packet over IPv4, by its protocol and the bytes behind the IP header.
fn by_ipv4(protocol: u8, upper: &[u8]) -> Option<Claim> {
    match (protocol, upper.first()) {
        (UDP, _) => by_port(upper, DHCP_CLIENT, HSRP),
        (ICMP, Some(&ICMP_REDIRECT)) => Some(Claim::Role(Role::Redirect)),
        (IGMP, Some(&IGMP_QUERY)) => Some(Claim::Role(Role::GroupQuerier)),
        _ => by_protocol(protocol),
    }
}

/// The same over IPv6; `ICMPv6` is read by [`discovery`].
fn by_ipv6(protocol: u8, upper: &[u8]) -> Option<Claim> {
    match protocol {
        UDP => by_port(upper, DHCPV6_CLIENT, HSRP_OVER_IPV6),
        _ => by_protocol(protocol),
    }
}

const fn by_protocol(protocol: u8) -> Option<Claim> {
    match protocol {
        OSPF => Some(Claim::Role(Role::Ospf)),
        VRRP => Some(Claim::Role(Role::Vrrp)),
        _ => None,
    }
}

/// The claim of a UDP datagram to `client`, the port of DHCP clients, or to `hsrp`, the port of
/// HSRP's routers.
fn by_port(datagram: &[u8], client: u16, hsrp: u16) -> Option<Claim> {
    if datagram.len() < 4 {
        return None;
    }
    match be16(datagram, 2) {
        port if port == client => Some(Claim::DhcpServer),
        port if port == hsrp => Some(Claim::Role(Role::Hsrp)),
        _ => None,
    }
}

/// Returns the claim of an `ICMPv6` message (RFC 4861).
fn discovery(message: &[u8], from_nobody: impl Fn() -> bool) -> Option<Claim> {
    let target = || Some(Ipv6Addr::from(*message.get(8..)?.first_chunk::<16>()?));
    let named = |options: usize| match station(message.get(options..).unwrap_or_default()) {
        Station::Unnamed => None,
        station => Some(Claim::Solicitation(station)),
    };
    match *message.first()? {
        ROUTER_ADVERTISEMENT => Some(Claim::Router),
        REDIRECT => Some(Claim::Role(Role::Redirect)),
        LISTENER_QUERY => Some(Claim::Role(Role::GroupQuerier)),
        NEIGHBOUR_ADVERTISEMENT => Some(Claim::Address {
            ip: target()?.into(),
            station: station(message.get(24..)?),
        }),
        NEIGHBOUR_SOLICITATION if from_nobody() => Some(Claim::Tentative(target()?)),
        NEIGHBOUR_SOLICITATION => named(24),
        ROUTER_SOLICITATION => named(8),
        _ => None,
    }
}

/// Returns the station that a message's options name, as source or as target (RFC 4861, 4.6.1).
/// Receivers differ in which of several they use.
fn station(mut options: &[u8]) -> Station {
    const SOURCE: u8 = 1;
    const TARGET: u8 = 2;
    let mut named = Station::Unnamed;
    while let [kind, units, rest @ ..] = options {
        if matches!(*kind, SOURCE | TARGET) {
            let Some(mac) = rest.first_chunk().copied() else {
                return Station::Ambiguous;
            };
            named = match named {
                Station::Unnamed => Station::At(mac),
                Station::At(before) if before == mac => named,
                Station::At(_) | Station::Ambiguous => return Station::Ambiguous,
            };
        }
        let len = usize::from(*units) * 8;
        match options.get(len..) {
            Some(rest) if len > 0 => options = rest,
            _ => return Station::Ambiguous,
        }
    }
    named
}

/// Returns the claim of a fragment of an IPv4 packet. All fragments after the first begin at least
/// 8 bytes into the payload, behind UDP's ports.
fn ipv4_fragment(packet: &[u8]) -> Option<Claim> {
    /// Minimum length of TCP in a first fragment, so that it includes the flags (RFC 1858, 3.2.1).
    const SHORTEST: usize = 16;
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    let (protocol, payload) = (u8::from(ip.next_header()), ip.payload());
    match (protocol, be16(packet, 6) & 0x1fff) {
        (TCP, 0) => (payload.len() < SHORTEST).then_some(Claim::TinyFragment),
        (TCP, 1) => Some(Claim::TinyFragment),
        (UDP, 0) if payload.len() < UDP_HEADER => Some(Claim::HiddenHeaders),
        (_, 0) => by_ipv4(protocol, payload),
        _ => None,
    }
}

/// Returns the claim of a fragment of an IPv6 packet.
fn ipv6_fragment(packet: &[u8]) -> Option<Claim> {
    let ip = Ipv6Packet::new_checked(packet).ok()?;
    let payload = ip.payload();
    let (FRAGMENT, start) = behind_extensions(ip.next_header(), payload).ok()? else {
        return None;
    };
    let hidden = Some(Claim::HiddenHeaders);
    let Some((header, rest)) = payload[start..].split_at_checked(FRAGMENT_HEADER) else {
        return hidden;
    };
    let next = header[0];
    if is_extension(next) || next == FRAGMENT {
        return hidden;
    }
    let is_first = be16(header, 2) >> 3 == 0;
    if !is_first {
        return None;
    }
    // Only authentication headers can remain here.
    let Ok((protocol, upper)) = behind_extensions(IpProtocol::from(next), rest) else {
        return hidden;
    };
    let upper = &rest[upper..];
    match protocol {
        FRAGMENT => hidden,
        TCP if TcpPacket::new_checked(upper).is_err() => hidden,
        UDP if upper.len() < UDP_HEADER => hidden,
        ICMPV6 => match upper {
            [ROUTER_SOLICITATION..=REDIRECT, _, _, _, ..] => Some(Claim::FragmentedDiscovery),
            [LISTENER_QUERY, _, _, _, ..] => Some(Claim::Role(Role::GroupQuerier)),
            [_, _, _, _, ..] => None,
            _ => hidden,
        },
        _ => by_ipv6(protocol, upper),
    }
}

const FRAGMENT_HEADER: usize = 8;

#[cfg(test)]
mod tests;
