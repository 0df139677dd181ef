//! Frames for tests.

use crate::mac::Mac;
use crate::prefix::Prefix;
use std::net::{Ipv4Addr, Ipv6Addr};
use tailbound_dataplane::testing::{frames, packet_from};
use tailbound_dataplane::{GuestId, Malformed, Packet};

pub(crate) use frames::{ipv4, ipv6, udp};

pub(crate) const MAC_A: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub(crate) const MAC_B: Mac = Mac([2, 0, 0, 0, 0, 2]);
pub(crate) const A4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub(crate) const B4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
pub(crate) const A6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
pub(crate) const B6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);

pub(crate) fn addresses_of_a() -> Vec<Prefix> {
    vec![A4.into(), A6.into()]
}

/// The link-local address that follows from `MAC_A`.
pub(crate) const A_LINK_LOCAL: Ipv6Addr =
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0x0000, 0x00ff, 0xfe00, 0x0001);

pub(crate) fn ethernet(to: Mac, from: Mac, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    frames::ethernet(to.0, from.0, ethertype, payload)
}

pub(crate) fn arp(operation: u16, mac: Mac, ip: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4];
    packet.extend(operation.to_be_bytes());
    packet.extend(mac.0);
    packet.extend(ip.octets());
    packet.extend([0; 6]);
    packet.extend(target.octets());
    packet
}

/// A neighbour advertisement for `target` at `mac`.
pub(crate) fn advertisement(target: Ipv6Addr, mac: Mac) -> Vec<u8> {
    let mut message = vec![136, 0, 0, 0, 0x60, 0, 0, 0];
    message.extend(target.octets());
    message.extend([2, 1]);
    message.extend(mac.0);
    message
}

pub(crate) fn packet(frame: &[u8], source: Option<GuestId>) -> Result<Packet, Malformed> {
    packet_from(frame, None, source)
}
