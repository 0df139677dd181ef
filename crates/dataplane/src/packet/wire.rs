//! Offsets of the headers of an Ethernet frame, and checks of their lengths.

use super::Malformed;
use crate::frame::ipv4::mapped;
use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket,
};

/// Length of an Ethernet header without tags, in bytes.
pub(super) const ETHERNET: usize = 14;
/// Length of a VLAN tag, in bytes: TPID (in place of the `EtherType`) and TCI.
pub(super) const TAG: usize = 4;
/// Tags that are parsed: a provider's and a customer's (802.1ad).
const MAX_TAGS: usize = 2;
/// Maximum number of IPv6 extension headers of a packet. RFC 8200, 4.1 names seven, each at most
/// once, except for destination options.
const MAX_EXTENSIONS: usize = 8;
const IPV6: usize = 40;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMP: u8 = 1;
pub(super) const ICMPV6: u8 = 58;
pub(super) const UDP_HEADER: usize = 8;
/// Protocol number of the IPv6 fragment header (RFC 8200, 4.5).
pub(super) const FRAGMENT: u8 = 44;
/// IPv6's authentication header (RFC 4302).
const AUTHENTICATION: u8 = 51;

/// Type of the header behind the Ethernet header and its tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    Ipv4,
    Ipv6,
    Arp,
    /// Any other: forwarded without a look inside.
    Other,
}

/// Offsets from the first byte of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Headers {
    /// Protocol behind the last IP header, if `transport` is not 0.
    pub(super) protocol: u8,
    pub(super) network_kind: Network,
    /// The header behind Ethernet and its tags.
    pub(super) network: u8,
    /// True if the receiving NIC or kernel has verified the checksum.
    pub(super) vouched: bool,
    /// Offset of that protocol's header; 0 if there is none (not IP, or a fragment).
    pub(super) transport: u16,
}

impl Headers {
    /// Finds the headers of `frame`. All lengths that are used later are checked here, once.
    pub(super) fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let ethernet =
            EthernetFrame::new_checked(frame).map_err(|_| Malformed::Truncated("Ethernet"))?;
        let (ethertype, network) = behind_tags(frame, u16::from(ethernet.ethertype()))?;
        let mut headers = Self {
            protocol: 0,
            network_kind: Network::Other,
            network: network as u8,
            vouched: false,
            transport: 0,
        };
        let payload = &frame[network..];
        match EthernetProtocol::from(ethertype) {
            EthernetProtocol::Ipv4 => headers.ipv4(payload)?,
            EthernetProtocol::Ipv6 => headers.ipv6(payload)?,
            EthernetProtocol::Arp => headers.arp(payload)?,
            EthernetProtocol::Unknown(_) => {}
        }
        Ok(headers)
    }

    fn ipv4(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let ip = Ipv4Packet::new_checked(bytes).map_err(|_| Malformed::Truncated("IPv4"))?;
        if ip.version() != 4 {
            return Err(Malformed::IpVersion);
        }
        self.network_kind = Network::Ipv4;
        if !ip.more_frags() && ip.frag_offset() == 0 {
            self.protocol = ip.next_header().into();
            self.transport = u16::from(self.network) + u16::from(ip.header_len());
        }
        Ok(())
    }

    fn ipv6(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let ip = Ipv6Packet::new_checked(bytes).map_err(|_| Malformed::Truncated("IPv6"))?;
        if ip.version() != 6 {
            return Err(Malformed::IpVersion);
        }
        self.network_kind = Network::Ipv6;
        let payload = ip.payload();
        let (protocol, offset) = behind_extensions(ip.next_header(), payload)?;
        if protocol != FRAGMENT {
            self.protocol = protocol;
            self.transport = u16::try_from(usize::from(self.network) + IPV6 + offset)
                .map_err(|_| Malformed::Truncated("IPv6 extension"))?;
        }
        Ok(())
    }

    fn arp(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        // Only Ethernet and IPv4 are known here; the check of a sender's
        // address relies on that.
        let fixed = bytes.first_chunk::<6>();
        if fixed != Some(&[0, 1, 8, 0, 6, 4]) || bytes.len() < 28 {
            return Err(Malformed::Arp);
        }
        self.network_kind = Network::Arp;
        Ok(())
    }

    /// The end of the IP packet; only Ethernet padding follows.
    #[inline]
    pub(super) fn end(self, frame: &[u8]) -> usize {
        let network = usize::from(self.network);
        match self.network_kind {
            Network::Ipv4 => network + usize::from(be16(frame, network + 2)),
            Network::Ipv6 => network + IPV6 + usize::from(be16(frame, network + 4)),
            Network::Arp | Network::Other => frame.len(),
        }
    }

    /// Source and destination address of an IP packet, as in its header.
    pub(super) fn addresses(self, frame: &[u8]) -> &[u8] {
        let network = usize::from(self.network);
        match self.network_kind {
            Network::Ipv4 => &frame[network + 12..network + 20],
            Network::Ipv6 => &frame[network + 8..network + 40],
            Network::Arp | Network::Other => &[],
        }
    }

    /// The IP destination of `frame`, with IPv4 as an IPv4-mapped IPv6 address; `None` if it is not
    /// IP.
    pub(super) fn destination(self, frame: &[u8]) -> Option<u128> {
        let addresses = self.addresses(frame);
        let (_, destination) = addresses.split_at(addresses.len() / 2);
        match destination {
            [] => None,
            &[a, b, c, d] => Some(mapped(u32::from_be_bytes([a, b, c, d]))),
            whole => Some(u128::from_be_bytes(*whole.first_chunk()?)),
        }
    }

    /// The end of the TCP header, if it is complete.
    pub(super) fn tcp_end(self, frame: &[u8]) -> Result<usize, Malformed> {
        let transport = usize::from(self.transport);
        let segment = frame
            .get(transport..self.end(frame))
            .filter(|_| transport != 0 && self.protocol == TCP)
            .ok_or(Malformed::NotTcp)?;
        let tcp = TcpPacket::new_checked(segment).map_err(|_| Malformed::Truncated("TCP"))?;
        Ok(transport + usize::from(tcp.header_len()))
    }

    /// The end of the UDP header, if it is complete.
    pub(super) fn udp_end(self, frame: &[u8]) -> Result<usize, Malformed> {
        let end = usize::from(self.transport) + UDP_HEADER;
        if self.transport == 0 || self.protocol != UDP {
            return Err(Malformed::GsoMismatch);
        }
        if end > self.end(frame) {
            return Err(Malformed::Truncated("UDP"));
        }
        Ok(end)
    }
}

/// Returns the `EtherType` behind the VLAN tags, and the offset of its header.
fn behind_tags(frame: &[u8], mut ethertype: u16) -> Result<(u16, usize), Malformed> {
    let mut offset = ETHERNET;
    for _ in 0..MAX_TAGS {
        if !is_tag(ethertype) {
            break;
        }
        if frame.len() < offset + TAG {
            return Err(Malformed::Truncated("VLAN"));
        }
        ethertype = be16(frame, offset + 2);
        offset += TAG;
    }
    Ok((ethertype, offset))
}

pub(super) const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, 0x8100 | 0x88a8)
}

/// Returns protocol and offset of the header behind IPv6 extension headers; these end at a fragment
/// header, which is returned as [`FRAGMENT`].
pub(super) fn behind_extensions(
    mut next: IpProtocol,
    payload: &[u8],
) -> Result<(u8, usize), Malformed> {
    let mut offset = 0;
    for _ in 0..=MAX_EXTENSIONS {
        let protocol = u8::from(next);
        let (unit, fixed) = match protocol {
            _ if is_extension(protocol) => (8, 8),
            // Authentication: units of 4 bytes, two of them not counted (RFC
            // 4302, 2.2).
            AUTHENTICATION => (4, 8),
            _ => return Ok((protocol, offset)),
        };
        let header = payload
            .get(offset..)
            .and_then(|rest| rest.first_chunk::<2>())
            .ok_or(Malformed::Truncated("IPv6 extension"))?;
        next = IpProtocol::from(header[0]);
        offset += usize::from(header[1]) * unit + fixed;
        if offset > payload.len() {
            return Err(Malformed::Truncated("IPv6 extension"));
        }
    }
    // A forwarded packet with unparsed headers could hide a neighbour advertisement.
    Err(Malformed::Extensions)
}

/// Checks for an extension header whose length is in units of 8 bytes, without the first unit (RFC
/// 8200, 4.3; RFC 7045, 4): hop-by-hop, routing, destination options, mobility, HIP, Shim6.
pub(super) const fn is_extension(protocol: u8) -> bool {
    matches!(protocol, 0 | 43 | 60 | 135 | 139 | 140)
}

/// Two bytes in network order. The caller has checked that they are there.
#[inline]
pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Four bytes in network order. The caller has checked that they are there.
#[inline]
pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    let bytes = &bytes[at..at + 4];
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
