//! The anti-spoofing filter: a guest sends nothing in another one's name.
//!
//! A guest has one MAC address and a list of IP addresses, by configuration. A
//! [`SpoofFilter`] lets pass what stays within them:
//!
//! - the Ethernet source is the guest's MAC;
//! - ARP speaks for the guest's MAC and one of its IPv4 addresses (or for none:
//!   an address probe, RFC 5227);
//! - the IPv4 source is one of the guest's; 0.0.0.0 only for a DHCP client
//!   (UDP 68 to 67, RFC 2131);
//! - the IPv6 source is one of the guest's or the link-local address that
//!   follows from its MAC (RFC 4291, appendix A); `::` only for `ICMPv6`, which
//!   needs it before there is an address (RFC 4862, 5.4; RFC 3590);
//! - neighbour advertisements speak for such an address and for the guest's MAC
//!   (RFC 4861, 4.4); router advertisements and redirects do not pass at all;
//! - there is no VLAN tag, and nothing but ARP, IPv4 and IPv6: behind a tag or
//!   in a protocol that is not looked into, all of the above could hide.
//!
//! A guest that routes, bridges or tags needs `anti_spoofing = false`.

use crate::mac::Mac;
use crate::reason::Reason;
use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, Ipv6Packet, UdpPacket,
};
use std::net::{IpAddr, Ipv6Addr};
use tailbound_dataplane::{Claim, Packet};

/// What one guest may send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoofFilter {
    mac: Mac,
    addresses: Vec<IpAddr>,
}

impl SpoofFilter {
    /// The filter of the guest with `mac` and `addresses`.
    pub fn new(mac: Mac, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let link_local = IpAddr::from(link_local(mac));
        let mut addresses: Vec<_> = addresses.into_iter().collect();
        addresses.push(link_local);
        Self { mac, addresses }
    }

    /// Whether the guest may send `packet`; if not, why.
    pub fn check(&self, packet: &Packet) -> Result<(), Reason> {
        if packet.source_mac() != self.mac.0 {
            return Err(Reason::SpoofedMac);
        }
        if packet.vlan().is_some() {
            return Err(Reason::VlanTag);
        }
        let Some(source) = packet.ip_source() else {
            return match packet.claim() {
                Some(claim) => self.check_arp(claim),
                None => Err(Reason::EtherType),
            };
        };
        if source.is_unspecified() {
            if !may_have_no_source(packet.bytes()) {
                return Err(Reason::SpoofedIp);
            }
        } else if !self.owns(source) {
            return Err(Reason::SpoofedIp);
        }
        match packet.claim() {
            None => Ok(()),
            Some(Claim::Router) => Err(Reason::RouterClaim),
            Some(Claim::Address { ip, mac }) => {
                let ours = self.owns(ip) && mac.is_none_or(|mac| mac == self.mac.0);
                if ours {
                    Ok(())
                } else {
                    Err(Reason::SpoofedNeighbour)
                }
            }
        }
    }

    fn check_arp(&self, claim: Claim) -> Result<(), Reason> {
        let Claim::Address { ip, mac } = claim else {
            return Err(Reason::SpoofedArp);
        };
        let ours = mac == Some(self.mac.0) && (ip.is_unspecified() || self.owns(ip));
        if ours {
            Ok(())
        } else {
            Err(Reason::SpoofedArp)
        }
    }

    fn owns(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
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
