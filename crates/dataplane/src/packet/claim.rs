//! What a frame claims: who owns an address, who is a router, who hands out
//! addresses. What a check against spoofing looks at beside the source addresses.

use super::wire::{
    FRAGMENT, ICMPV6, Network, TCP, UDP, UDP_HEADER, be16, behind_extensions, is_extension,
};
use super::{Packet, ip_address, mac_at};
use smoltcp::wire::{IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket};
use std::net::{IpAddr, Ipv6Addr};

/// What a frame tells its receivers that they would believe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// ARP's sender, or the target of a neighbour advertisement (RFC 4861, 4.4).
    Address {
        /// The address. `0.0.0.0` is an ARP probe (RFC 5227), which claims
        /// nothing.
        ip: IpAddr,
        /// The MAC address that it is said to be at, where the frame says so.
        mac: Option<[u8; 6]>,
    },
    /// The sender is about to take this address, and asks whether anybody has it
    /// (duplicate address detection; RFC 4862, 5.4).
    Tentative(Ipv6Addr),
    /// A router advertisement or redirect (RFC 4861, 4.2 and 4.5): the sender
    /// says that it is a router.
    Router,
    /// UDP for a DHCP client (port 68, IPv6: 546): the sender says that it hands out
    /// addresses. Clients look at no source port (RFC 2131, 4.1; RFC 7610, 1).
    DhcpServer,
    /// Neighbour discovery in a fragment, be it the only one, which no node sends
    /// (RFC 6980, 5).
    FragmentedDiscovery,
    /// A fragment that does not show what the packet is: the first one ends before
    /// its headers do (RFC 7112, 5), or further extension headers follow the
    /// fragment header, where an overlapping fragment could replace what they show.
    HiddenHeaders,
}

impl Packet {
    /// What it claims, if anything.
    pub fn claim(&self) -> Option<Claim> {
        let bytes = self.bytes();
        let headers = self.facts().headers;
        let upper = || &bytes[usize::from(headers.transport)..headers.end(bytes)];
        match (headers.network_kind, headers.transport) {
            (Network::Arp, _) => {
                let arp = usize::from(headers.network);
                Some(Claim::Address {
                    ip: ip_address(&bytes[arp + 14..arp + 18])?,
                    mac: Some(mac_at(bytes, arp + 8)),
                })
            }
            (Network::Ipv4, 0) => ipv4_fragment(&bytes[usize::from(headers.network)..]),
            (Network::Ipv6, 0) => ipv6_fragment(&bytes[usize::from(headers.network)..]),
            (Network::Ipv4, _) if headers.protocol == UDP => dhcp_server(upper(), DHCP_CLIENT),
            (Network::Ipv6, _) if headers.protocol == UDP => dhcp_server(upper(), DHCPV6_CLIENT),
            (Network::Ipv6, _) if headers.protocol == ICMPV6 => {
                let from_nobody = || self.ip_source().is_some_and(|ip| ip.is_unspecified());
                discovery(upper(), from_nobody)
            }
            _ => None,
        }
    }
}

const DHCP_CLIENT: u16 = 68;
const DHCPV6_CLIENT: u16 = 546;

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

/// What a UDP datagram claims where it goes to `client`, the port of DHCP clients.
fn dhcp_server(datagram: &[u8], client: u16) -> Option<Claim> {
    let is_for_client = datagram.len() >= 4 && be16(datagram, 2) == client;
    is_for_client.then_some(Claim::DhcpServer)
}

/// What an `ICMPv6` message claims (RFC 4861).
fn discovery(message: &[u8], from_nobody: impl Fn() -> bool) -> Option<Claim> {
    let target = || Some(Ipv6Addr::from(*message.get(8..)?.first_chunk::<16>()?));
    match *message.first()? {
        ROUTER_ADVERTISEMENT | REDIRECT => Some(Claim::Router),
        NEIGHBOUR_ADVERTISEMENT => Some(Claim::Address {
            ip: target()?.into(),
            mac: target_link_layer_address(message.get(24..)?),
        }),
        NEIGHBOUR_SOLICITATION if from_nobody() => Some(Claim::Tentative(target()?)),
        _ => None,
    }
}

/// The target link-layer address option (RFC 4861, 4.6.1), where there is one.
fn target_link_layer_address(mut options: &[u8]) -> Option<[u8; 6]> {
    while let [kind, units, rest @ ..] = options {
        if *kind == 2 {
            return rest.first_chunk().copied();
        }
        options = options.get(usize::from(*units).max(1) * 8..)?;
    }
    None
}

/// What a fragment of an IPv4 packet claims. All but the first begin 8 bytes into the
/// payload, behind UDP's ports.
fn ipv4_fragment(packet: &[u8]) -> Option<Claim> {
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    if ip.frag_offset() != 0 || u8::from(ip.next_header()) != UDP {
        return None;
    }
    if ip.payload().len() < UDP_HEADER {
        return Some(Claim::HiddenHeaders);
    }
    dhcp_server(ip.payload(), DHCP_CLIENT)
}

/// What a fragment of an IPv6 packet claims.
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
    // Nothing but authentication headers can be left here.
    let Ok((protocol, upper)) = behind_extensions(IpProtocol::from(next), rest) else {
        return hidden;
    };
    let upper = &rest[upper..];
    match protocol {
        FRAGMENT => hidden,
        TCP if TcpPacket::new_checked(upper).is_err() => hidden,
        UDP if upper.len() < UDP_HEADER => hidden,
        UDP => dhcp_server(upper, DHCPV6_CLIENT),
        ICMPV6 => match upper {
            [ROUTER_SOLICITATION..=REDIRECT, _, _, _, ..] => Some(Claim::FragmentedDiscovery),
            [_, _, _, _, ..] => None,
            _ => hidden,
        },
        _ => None,
    }
}

const FRAGMENT_HEADER: usize = 8;

#[cfg(test)]
mod tests;
