//! A packet in a host, in the form that early acknowledgement requires ([`Snoop`]).
//!
//! Connections are open from the start here, but early acknowledgement follows only connections
//! whose handshake it saw. Therefore it receives the handshake that would have been sent
//! ([`handshake`]).

use super::inside::Inside;
use super::packet::{Packet, Protocol};
use crate::tcp::{Ecn, Edge, Sack, Segment};
use crate::xen_host::Early;
use tailbound_dataplane::snoop::{
    Bare, Change, Direction, Flags, FlowId, Handshake, Link, Options, Sacks, Segment as Seen, Seq,
    Sight, TcpFrame, Timestamps,
};
use tailbound_dataplane::{Frame, Snoop, SnoopConfig};
use tailbound_units::{Bytes, Nanos};

/// Window scale, in bits.
const SCALE: u8 = 7;
/// Largest window that fits in a header.
pub(super) const WIDEST: Bytes = Bytes((u16::MAX as u64) << SCALE);

/// Returns the early acknowledgement at a guest's ring.
pub(super) fn snoop(config: SnoopConfig) -> Box<dyn Early<Inside>> {
    Box::new(Snoop::new(config, ()))
}

/// A guest's end of an open connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenEnd {
    pub(super) number: u32,
    /// Number of earlier connections with this number.
    pub(super) reused: u8,
    /// First position of its path in the routes.
    pub(super) route: u32,
    /// Window that both ends offer.
    pub(super) window: u32,
}

/// Returns the segments of the handshake of a connection that its guest would have opened.
pub(super) fn handshake(end: OpenEnd) -> [(Direction, Inside); 3] {
    let segment = |edge: Edge, ack: Option<u64>| Segment {
        sequence: u64::from(edge == Edge::None),
        len: 0,
        edge,
        ack,
        window: end.window,
        stamp: 1,
        echo: ack.map_or(0, |_| 1),
        sack: Sack::default(),
        ecn: Ecn::Unable,
        echo_mark: false,
    };
    let steps = [
        (Direction::ToPeer, segment(Edge::Syn, None)),
        (Direction::ToGuest, segment(Edge::Syn, Some(1))),
        (Direction::ToPeer, segment(Edge::None, Some(1))),
    ];
    steps.map(|(direction, segment)| {
        let to = end.number ^ u32::from(direction == Direction::ToPeer);
        let mut packet = Packet::new(Nanos::ZERO, Protocol::Tcp, segment, to, end.route);
        packet.reused = end.reused;
        (direction, Inside::new(packet))
    })
}

/// Returns the sequence number of a position in a stream.
const fn number(place: u64) -> Seq {
    Seq(place as u32)
}

/// Returns the position of a sequence number, near a known one.
const fn place(number: Seq, near: u64) -> u64 {
    let ahead = number.0.wrapping_sub(near as u32).cast_signed();
    near.saturating_add_signed(ahead as i64)
}

/// Restores a segment's positions from their sequence numbers, near those that its receiver has
/// sent and expects.
pub(super) fn unwrap(segment: &mut Segment, sent: u64, expected: u64) {
    segment.sequence = place(number(segment.sequence), expected);
    segment.ack = segment.ack.map(|ack| place(number(ack), sent));
}

/// Returns a scaled window, limited to 16 bits.
fn shifted(segment: &Segment) -> u16 {
    let shift = if segment.edge == Edge::Syn { 0 } else { SCALE };
    u16::try_from(segment.window >> shift).unwrap_or(u16::MAX)
}

fn seen(segment: &Segment) -> Seen {
    let edge = match segment.edge {
        Edge::None => Flags::default(),
        Edge::Syn => Flags::SYN,
        Edge::Fin => Flags::FIN,
    };
    let ack = segment.ack.map_or(Flags::default(), |_| Flags::ACK);
    let mut sacks = Sacks::default();
    for (from, to) in segment.sack.blocks(segment.ack.unwrap_or(0)) {
        sacks.add(number(from), number(to));
    }
    let handshake = if segment.edge == Edge::Syn {
        Handshake {
            mss: Some(1460),
            scale: Some(SCALE),
        }
    } else {
        Handshake::default()
    };
    Seen {
        seq: number(segment.sequence),
        ack: number(segment.ack.unwrap_or(0)),
        payload: segment.len,
        largest: segment.len.min(crate::tcp::MSS) as u16,
        window: shifted(segment),
        flags: edge.with(ack),
        congestion: segment.ecn == Ecn::Marked,
        options: Options {
            timestamps: Some(Timestamps {
                value: segment.stamp,
                echo: segment.echo,
            }),
            sacks,
            handshake,
            ..Options::default()
        },
    }
}

impl Frame for Inside {
    fn len(&self) -> usize {
        self.packet.len()
    }
}

impl TcpFrame for Inside {
    type Maker = ();

    fn sight(&self, direction: Direction) -> Option<Sight> {
        let Packet { to, reused, .. } = self.packet;
        let guest = match direction {
            Direction::ToGuest => to,
            Direction::ToPeer => to ^ 1,
        };
        let Segment { ack, edge, .. } = self.packet.segment;
        // Otherwise the packet is a datagram.
        (ack.is_some() || edge == Edge::Syn).then(|| Sight {
            flow: FlowId {
                guest: [reused.into(), guest.into()],
                peer: [reused.into(), (guest ^ 1).into()],
                ports: 0,
                v6: false,
            },
            hash: (guest & !1).wrapping_mul(0x9e37_79b9),
            segment: Some(seen(&self.packet.segment)),
        })
    }

    /// Link header; it carries the path of the guest's frames instead of MAC addresses.
    fn link(&self) -> Link {
        let mut link = Link::default();
        link.stations[..4].copy_from_slice(&self.packet.next.to_be_bytes());
        link
    }

    fn is_intact(&self) -> bool {
        true
    }

    fn change(&mut self, change: &Change) {
        let segment = &mut self.packet.segment;
        segment.sequence = place(change.seq, segment.sequence);
        if let Some(before) = segment.ack {
            let ack = place(change.ack, before);
            let after = change.sacks_after.map(|after| place(after, before));
            segment.sack = segment.sack.after(before, ack, after);
            segment.ack = Some(ack);
        }
        segment.window = u32::from(change.window) << SCALE;
        if let Some(stamps) = change.timestamps {
            segment.stamp = stamps.value;
            segment.echo = stamps.echo;
        }
    }

    fn again(&self) -> Self {
        *self
    }

    fn part(&self, from: u32, len: u32) -> Self {
        let mut part = *self;
        part.packet.segment.sequence += u64::from(from);
        part.packet.segment.len = len;
        part
    }

    fn bare((): &(), bare: &Bare) -> Self {
        let to = match bare.direction {
            Direction::ToGuest => bare.flow.guest[1],
            Direction::ToPeer => bare.flow.peer[1],
        };
        let [a, b, c, d, ..] = bare.link.stations;
        let stamps = bare.timestamps.unwrap_or_default();
        let segment = Segment {
            sequence: u64::from(bare.seq.0),
            len: 0,
            edge: Edge::None,
            ack: Some(u64::from(bare.ack.0)),
            window: u32::from(bare.window) << SCALE,
            stamp: stamps.value,
            echo: stamps.echo,
            sack: Sack::default(),
            ecn: Ecn::Unable,
            echo_mark: false,
        };
        let next = u32::from_be_bytes([a, b, c, d]);
        let mut packet = Packet::new(Nanos::ZERO, Protocol::Tcp, segment, to as u32, next);
        packet.reused = bare.flow.guest[0] as u8;
        Self::new(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header has 32 bits of a position; a stream may be longer.
    #[test]
    fn a_place_is_found_again_behind_4_gb() {
        let long = 5_u64 << 32;
        for at in [0, 1, long - 1, long, long + 7, long + (1 << 31)] {
            for near in [at.saturating_sub(1 << 30), at, at + (1 << 30)] {
                assert_eq!(place(number(at), near), at, "near {near}");
            }
        }
    }
}
