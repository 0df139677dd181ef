//! Announcements of a guest's place: frames in its name to every port, from which switches learn
//! its MAC address and neighbours its IP addresses.

use crate::mac::Mac;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, IPV6_LINK_LOCAL_ALL_NODES, Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv6Packet,
    Ipv6Repr, NdiscNeighborFlags, NdiscRepr, RawHardwareAddress,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The shortest frame, without its check sequence.
const SHORTEST: usize = 60;
/// The header of a reverse ARP request, for Ethernet and IPv4 (RFC 903).
const REVERSE_ARP: [u8; 10] = [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3];
/// The offset of a frame's body.
const BODY: usize = 14;

/// Makes a reverse ARP request of a station for its own address, which has no answer. Monitors send
/// it for a guest that has moved.
pub(crate) fn of_station(station: Mac) -> Vec<u8> {
    let mut frame = vec![0; SHORTEST];
    frame[..6].fill(0xff);
    frame[12..22].copy_from_slice(&REVERSE_ARP);
    for at in [6, 22, 32] {
        frame[at..at + 6].copy_from_slice(&station.0);
    }
    frame
}

/// Makes an announcement of an address that the station has: a gratuitous ARP request (RFC 5227,
/// 3), or an unsolicited neighbour advertisement (RFC 4861, 7.2.6).
pub(crate) fn of_address(station: Mac, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => arp(station, address),
        IpAddr::V6(address) => advertisement(station, address),
    }
}

/// Makes a frame from `station` with room for a body of `body` bytes.
fn ethernet(station: Mac, to: [u8; 6], ethertype: EthernetProtocol, body: usize) -> Vec<u8> {
    let mut frame = vec![0; (BODY + body).max(SHORTEST)];
    let header = EthernetRepr {
        src_addr: EthernetAddress(station.0),
        dst_addr: EthernetAddress(to),
        ethertype,
    };
    header.emit(&mut EthernetFrame::new_unchecked(&mut frame[..]));
    frame
}

fn arp(station: Mac, address: Ipv4Addr) -> Vec<u8> {
    let request = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: EthernetAddress(station.0),
        source_protocol_addr: address,
        target_hardware_addr: EthernetAddress([0; 6]),
        target_protocol_addr: address,
    };
    let len = request.buffer_len();
    let mut frame = ethernet(station, [0xff; 6], EthernetProtocol::Arp, len);
    request.emit(&mut ArpPacket::new_unchecked(&mut frame[BODY..]));
    frame
}

fn advertisement(station: Mac, address: Ipv6Addr) -> Vec<u8> {
    const HEADER: usize = 40;
    const ALL_NODES: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
    let station_address = RawHardwareAddress::from_bytes(&station.0);
    let message = Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert {
        flags: NdiscNeighborFlags::OVERRIDE,
        target_addr: address,
        lladdr: Some(station_address),
    });
    let len = message.buffer_len();
    let header = Ipv6Repr {
        src_addr: address,
        dst_addr: IPV6_LINK_LOCAL_ALL_NODES,
        next_header: IpProtocol::Icmpv6,
        payload_len: len,
        hop_limit: 255,
    };
    let ipv6 = EthernetProtocol::Ipv6;
    let mut frame = ethernet(station, ALL_NODES, ipv6, HEADER + len);
    header.emit(&mut Ipv6Packet::new_unchecked(&mut frame[BODY..]));
    message.emit(
        &address,
        &IPV6_LINK_LOCAL_ALL_NODES,
        &mut Icmpv6Packet::new_unchecked(&mut frame[BODY + HEADER..]),
        &ChecksumCapabilities::default(),
    );
    frame
}
