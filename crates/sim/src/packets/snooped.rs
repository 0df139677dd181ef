//! A packet in a host as early acknowledgement sees one ([`Snoop`]).
//!
//! Connections are open from the start here, and early acknowledgement follows those alone whose
//! beginning it saw. So it is shown the handshake that there would have been ([`handshake`]).

use super::inside::Inside;
use super::packet::{Packet, Protocol};
use crate::tcp::{Ecn, Edge, Sack, Segment};
use crate::xen_host::Early;
use tailbound_dataplane::snoop::{
    Bare, Change, Flags, FlowId, Handshake, Link, Options, Sacks, Segment as Seen, Seq, Sight,
    TcpFrame, Timestamps, Way,
};
use tailbound_dataplane::{Class, FlowKey, Frame, GuestId, Mark, Snoop, SnoopConfig};
use tailbound_units::{Bytes, Nanos};

/// By how many bits windows are shifted.
const SCALE: u8 = 7;
/// The largest window that a header can tell.
pub(super) const WIDEST: Bytes = Bytes((u16::MAX as u64) << SCALE);

/// What stands at a guest's ring.
pub(super) fn snoop(config: SnoopConfig) -> Box<dyn Early<Inside>> {
    Box::new(Snoop::new(config, ()))
}

/// A guest's end of a connection, which is open.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenEnd {
    pub(super) number: u32,
    /// How often the number was another connection's.
    pub(super) reused: u8,
    /// The first place of its way in the routes.
    pub(super) route: u32,
    /// What both ends offer.
    pub(super) window: u32,
}

/// The segments by which a guest would have opened its connection.
pub(super) fn handshake(end: OpenEnd) -> [(Way, Inside); 3] {
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
        (Way::ToPeer, segment(Edge::Syn, None)),
        (Way::ToGuest, segment(Edge::Syn, Some(1))),
        (Way::ToPeer, segment(Edge::None, Some(1))),
    ];
    steps.map(|(way, segment)| {
        let to = end.number ^ u32::from(way == Way::ToPeer);
        let mut packet = Packet::new(Nanos::ZERO, (Protocol::Tcp, segment), to, end.route);
        packet.reused = end.reused;
        (way, Inside::new(packet))
    })
}

/// A place in a stream as a header says it.
const fn number(place: u64) -> Seq {
    Seq(place as u32)
}

/// The place that a number means, near one that is known.
const fn place(number: Seq, near: u64) -> u64 {
    let ahead = number.0.wrapping_sub(near as u32).cast_signed();
    near.saturating_add_signed(ahead as i64)
}

/// A segment whose places went through a header, with those that they mean: near what its
/// receiver has sent and expects.
pub(super) fn unwrap(segment: &mut Segment, (sent, expected): (u64, u64)) {
    segment.sequence = place(number(segment.sequence), expected);
    segment.ack = segment.ack.map(|ack| place(number(ack), sent));
}

/// A window, or what of it a header can tell.
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
    fn source(&self) -> Option<GuestId> {
        None
    }
    fn flow(&self) -> Option<FlowKey> {
        None
    }
    fn class(&self) -> Class {
        Class::Lowest
    }
    fn set_class(&mut self, _: Class, _: Mark) {}
    fn segments(&self) -> usize {
        1
    }
    fn segment(self, mut sink: impl FnMut(Self)) {
        sink(self);
    }
}

impl TcpFrame for Inside {
    type Maker = ();

    fn sight(&self, way: Way) -> Option<Sight> {
        let Packet { to, reused, .. } = self.packet;
        let guest = match way {
            Way::ToGuest => to,
            Way::ToPeer => to ^ 1,
        };
        let Segment { ack, edge, .. } = self.packet.segment;
        // Else it is a datagram.
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

    /// The way of the guest's frames stands where real ones have their stations.
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
        let to = match bare.way {
            Way::ToGuest => bare.flow.guest[1],
            Way::ToPeer => bare.flow.peer[1],
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
        let mut packet = Packet::new(Nanos::ZERO, (Protocol::Tcp, segment), to as u32, next);
        packet.reused = bare.flow.guest[0] as u8;
        Self::new(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header has 32 bits of a place; a stream may be longer.
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
