//! Hashes of connections and senders.

use super::wire::{ETHERNET, Headers, TCP, UDP, be16, be32};
use crate::Connection;
use crate::hash::ConnectionHash;
use crate::snoop::FlowId;

/// Other protocols whose header begins with two ports (RFC 4340, 9260, 3828).
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// The hash of a frame's connection. `headers` are the frame's.
pub(super) fn connection(hash: &ConnectionHash, frame: &[u8], headers: Headers) -> Connection {
    let addresses = headers.addresses(frame);
    // The kind is in the first piece, so that no two kinds have a key in common.
    let first = |kind: u32| {
        (
            kind << 8 | u32::from(headers.protocol),
            ports(frame, headers),
        )
    };
    if let Some(both) = addresses
        .first_chunk::<8>()
        .filter(|_| addresses.len() == 8)
    {
        hash.of([first(4), (be32(both, 0), be32(both, 4))])
    } else if let Some(both) = addresses.first_chunk::<32>() {
        let two = |i: usize| (be32(both, i), be32(both, i + 4));
        hash.of([first(6), two(0), two(8), two(16), two(24)])
    } else {
        let kind = u32::from(be16(frame, usize::from(headers.network) - 2));
        debug_assert!(frame.len() >= ETHERNET, "a frame has addresses");
        let stations = [(be32(frame, 0), be32(frame, 4)), (be32(frame, 8), 0)];
        hash.of([(kind << 8, 0), stations[0], stations[1]])
    }
}

/// The hash of a guest's frames that belong to a TCP connection.
#[inline]
pub(super) fn connection_of(hash: &ConnectionHash, flow: &FlowId) -> u32 {
    let ([a, b], [c, d]) = (flow.guest, flow.peer);
    if !flow.v6 {
        return ipv4_connection_of(hash, [b as u32, d as u32], flow.ports);
    }
    let two = |half: u64| ((half >> 32) as u32, half as u32);
    let first = (6 << 8 | u32::from(TCP), flow.ports);
    hash.of([first, two(a), two(b), two(c), two(d)]).0
}

/// The same for a connection over IPv4, by the addresses of guest and peer.
#[inline(always)]
#[expect(clippy::inline_always, reason = "once for every frame of TCP")]
pub(super) fn ipv4_connection_of(hash: &ConnectionHash, addresses: [u32; 2], ports: u32) -> u32 {
    let [guest, peer] = addresses;
    let first = (4 << 8 | u32::from(TCP), ports);
    hash.of([first, (guest, peer)]).0
}

/// The hash of a frame's sender: its source address, or its station if the frame is not IP.
/// `headers` are the frame's.
pub(super) fn sender(hash: &ConnectionHash, frame: &[u8], headers: Headers) -> Connection {
    let addresses = headers.addresses(frame);
    let (source, _) = addresses.split_at(addresses.len() / 2);
    match source.len() {
        4 => hash.of([(4 << 8, be32(source, 0))]),
        16 => {
            let two = |i: usize| (be32(source, i), be32(source, i + 4));
            hash.of([(6 << 8, 0), two(0), two(8)])
        }
        _ => hash.of([(0, be32(frame, 6)), (be16(frame, 10).into(), 0)]),
    }
}

/// Checks for a protocol whose header begins with two ports.
#[inline]
pub(super) const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | DCCP | SCTP | UDP_LITE)
}

/// Both ports; 0 if the frame has none.
fn ports(frame: &[u8], headers: Headers) -> u32 {
    let has_ports = has_ports(headers.protocol);
    let transport = usize::from(headers.transport);
    let end = headers.end(frame);
    let ports = frame
        .get(transport..end)
        .and_then(|rest| rest.first_chunk());
    match ports {
        Some(ports) if has_ports && transport != 0 => u32::from_be_bytes(*ports),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
