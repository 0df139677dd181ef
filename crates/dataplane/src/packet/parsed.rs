//! The parsed headers of a frame, read once when it arrives for all later users.
//!
//! Most frames are IPv4 without tags, options and fragments. Their offsets are constant, so
//! [`Parsed::plain_ipv4`] reads them behind one check of the length; [`Parsed::any`] reads all
//! frames, and the same of those.

use super::claim::{self, DHCP_CLIENT, HSRP};
use super::connection::{connection, has_ports, sender};
use super::facts::{Destination, Facts};
use super::wire::{ETHERNET, Headers, Network, TCP, UDP, be16, be32};
use super::{Buffer, Malformed, Offload, Packet, Pool, VIRTIO_HEADER};
use crate::frame::ipv4::mapped;
use crate::hash::ConnectionHash;
use crate::{Class, Connection, GuestId};

/// Length of an IPv4 header without options, in bytes.
const IPV4: usize = 20;

/// The result of parsing a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) headers: Headers,
    /// The IP destination, and false if the frame is not IP.
    pub(super) flow: u128,
    pub(super) has_flow: bool,
    pub(super) connection: Connection,
    /// See [`Packet::as_plain`].
    pub(super) is_plain: bool,
}

impl Parsed {
    /// Reads a frame of a guest, or one from outside.
    #[inline]
    pub(super) fn new(
        hash: &ConnectionHash,
        frame: &[u8],
        is_guests: bool,
    ) -> Result<Self, Malformed> {
        match Self::plain_ipv4(hash, frame, is_guests) {
            Some(parsed) => Ok(parsed),
            None => Self::any(hash, frame, is_guests),
        }
    }

    /// Reads a frame that is well-formed IPv4 without tags, options and fragments.
    // Once for every frame, with constant offsets.
    #[inline(always)]
    pub(super) fn plain_ipv4(hash: &ConnectionHash, frame: &[u8], is_guests: bool) -> Option<Self> {
        const BEGIN: [u8; 3] = [8, 0, 0x45];
        /// More fragments, or an offset.
        const FRAGMENT: u16 = 0x3fff;
        let head: &[u8; ETHERNET + IPV4] = frame.first_chunk()?;
        let len = usize::from(be16(head, 16));
        let is_whole = len >= IPV4 && frame.len() - ETHERNET >= len;
        if head[12..15] != BEGIN || be16(head, 20) & FRAGMENT != 0 || !is_whole {
            return None;
        }
        let protocol = head[23];
        // Behind the packet's end is padding.
        let ports = match frame.get(ETHERNET + IPV4..ETHERNET + IPV4 + 4) {
            Some(ports) if has_ports(protocol) && len >= IPV4 + 4 => be32(ports, 0),
            _ => 0,
        };
        let (source, destination) = (be32(head, 26), be32(head, 30));
        let kind = 4 << 8;
        Some(Self {
            headers: Headers {
                protocol,
                network_kind: Network::Ipv4,
                network: ETHERNET as u8,
                vouched: false,
                transport: (ETHERNET + IPV4) as u16,
            },
            flow: mapped(destination),
            has_flow: true,
            connection: if is_guests {
                hash.of([(kind | u32::from(protocol), ports), (source, destination)])
            } else {
                hash.of([(kind, source)])
            },
            is_plain: match protocol {
                TCP => true,
                UDP => !matches!(ports as u16, DHCP_CLIENT | HSRP),
                _ => false,
            },
        })
    }

    /// Reads any frame. A separate function, so that the most common path stays short.
    #[inline(never)]
    fn any(hash: &ConnectionHash, frame: &[u8], is_guests: bool) -> Result<Self, Malformed> {
        let headers = Headers::parse(frame)?;
        let network = usize::from(headers.network);
        let destination = headers.destination(frame);
        let is_bare = network == ETHERNET
            && match headers.network_kind {
                Network::Ipv4 => frame[ETHERNET] == 0x45,
                Network::Ipv6 => true,
                Network::Arp | Network::Other => false,
            };
        let is_usual = headers.transport != 0 && matches!(headers.protocol, TCP | UDP);
        Ok(Self {
            headers,
            flow: destination.unwrap_or_default(),
            has_flow: destination.is_some(),
            connection: if is_guests {
                connection(hash, frame, headers)
            } else {
                sender(hash, frame, headers)
            },
            is_plain: is_bare && is_usual && claim::of(frame, headers).is_none(),
        })
    }
}

impl Facts {
    /// Returns the facts of the most common frame: plain IPv4 in a small buffer without remaining
    /// work. `None` for all others, well-formed or not.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for every frame")]
    pub(super) fn of_plain(
        buffer: &Buffer,
        start: usize,
        len: usize,
        virtio: Option<&[u8; VIRTIO_HEADER]>,
        source: Option<GuestId>,
    ) -> Option<Self> {
        let is_usual = buffer.len() <= Pool::SMALL
            && start >= VIRTIO_HEADER
            && virtio.is_none_or(Offload::leaves_nothing);
        let frame = buffer.get(start..start.checked_add(len)?);
        let frame = frame.filter(|_| is_usual)?;
        let Parsed {
            mut headers,
            flow,
            has_flow,
            connection,
            is_plain,
        } = Parsed::plain_ipv4(buffer.pool().hash(), frame, source.is_some())?;
        headers.vouched = source.is_none() && virtio.is_some_and(|it| Offload::vouches(*it));
        Some(Self {
            source,
            len: len as u32,
            start: start as u16,
            network_start: (start + ETHERNET) as u16,
            headers,
            class: Class::Lowest,
            destination: Destination::of(headers, frame[0] & 1 != 0),
            has_flow,
            is_plain,
            flow,
            offload: Offload::NONE,
            connection,
        })
    }
}

impl Packet {
    /// Returns the addresses of what most packets are: IP without a tag, IPv4 options or a fragment header, of
    /// TCP or UDP, that arrived in a frame without a [`Claim`](crate::Claim); `None` for others.
    #[inline]
    pub fn as_plain(&self) -> Option<PlainPacket<'_>> {
        self.facts().is_plain.then_some(PlainPacket(self))
    }
}

/// A packet that claims nothing.
#[derive(Debug, Clone, Copy)]
pub struct PlainPacket<'p>(&'p Packet);

impl PlainPacket<'_> {
    /// Returns the Ethernet destination and source, each as a number of 48 bits in network order.
    #[inline]
    pub fn stations(self) -> (u64, u64) {
        let number = |bytes: &[u8]| {
            let bytes = bytes.first_chunk().copied().unwrap_or_default();
            u64::from_be_bytes(bytes) >> 16
        };
        let header = &self.0.bytes()[..ETHERNET];
        (number(&header[..8]), number(&header[6..]))
    }

    /// Returns the IP source address as a number, with IPv4 as an IPv4-mapped IPv6 address.
    #[inline]
    pub fn ip_source(self) -> u128 {
        let facts = self.0.facts();
        let network = usize::from(facts.headers.network);
        let bytes = self.0.bytes();
        match facts.headers.network_kind {
            Network::Ipv4 => mapped(be32(bytes, network + 12)),
            Network::Ipv6 => {
                let source = bytes.get(network + 8..network + 24);
                let source = source.and_then(|source| source.first_chunk());
                source.map_or(0, |source| u128::from_be_bytes(*source))
            }
            Network::Arp | Network::Other => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HashKeys;
    use crate::testing::tcp::Tcp;
    use proptest::prelude::*;

    proptest! {
        /// Both ways read the same of a frame, and only the long one refuses any.
        #[test]
        fn the_fast_parser_agrees_with_the_full_parser(
            payload in 0usize..40,
            cut in 0usize..80,
            protocol in prop_oneof![Just(TCP), Just(UDP), Just(33), any::<u8>()],
            port in prop_oneof![Just(DHCP_CLIENT), Just(HSRP), any::<u16>()],
            changes in prop::collection::vec((12usize..40, any::<u8>()), 0..3),
            is_guests in any::<bool>(),
        ) {
            let tcp = Tcp { payload, gso: 0, ..Tcp::default() };
            let mut frame = tcp.frame();
            frame[23] = protocol;
            frame[36..38].copy_from_slice(&port.to_be_bytes());
            for (at, byte) in changes {
                frame[at] = byte;
            }
            frame.truncate(frame.len().saturating_sub(cut).max(1));
            let hash = ConnectionHash::new(HashKeys::FIXED);
            let any = Parsed::any(&hash, &frame, is_guests);
            if let Some(plain) = Parsed::plain_ipv4(&hash, &frame, is_guests) {
                prop_assert_eq!(any, Ok(plain));
            }
            prop_assert_eq!(Parsed::new(&hash, &frame, is_guests), any);
        }

        /// A packet whose IP length is shorter than its frame has no ports in the padding.
        #[test]
        fn padding_is_not_read(len in 0u16..70, port in any::<u16>()) {
            let mut frame = Tcp { payload: 10, gso: 0, ..Tcp::default() }.frame();
            frame[23] = UDP;
            frame[16..18].copy_from_slice(&len.to_be_bytes());
            frame[36..38].copy_from_slice(&port.to_be_bytes());
            let hash = ConnectionHash::new(HashKeys::FIXED);
            let any = Parsed::any(&hash, &frame, true);
            prop_assert_eq!(Parsed::new(&hash, &frame, true), any);
        }
    }

    #[test]
    fn a_claim_is_never_plain() {
        let hash = ConnectionHash::new(HashKeys::FIXED);
        let mut frame = Tcp {
            payload: 10,
            gso: 0,
            ..Tcp::default()
        }
        .frame();
        let is_plain = |frame: &[u8]| {
            Parsed::new(&hash, frame, true)
                .expect("well formed")
                .is_plain
        };
        assert!(is_plain(&frame));
        frame[23] = UDP;
        assert!(is_plain(&frame));
        for port in [DHCP_CLIENT, HSRP] {
            frame[36..38].copy_from_slice(&port.to_be_bytes());
            assert!(!is_plain(&frame), "port {port}");
        }
        // ICMP and VRRP may be a claim, and are not looked at here.
        for protocol in [1, 112] {
            frame[23] = protocol;
            assert!(!is_plain(&frame), "protocol {protocol}");
        }
    }
}
