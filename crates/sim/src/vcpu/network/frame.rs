//! A frame of the model: a TCP segment, in the form that the data path requires.

use crate::tcp::{Ecn, Edge, Sack, Segment};
use crate::xen_host::{Carried, Step};
use tailbound_dataplane::Frame as _;
use tailbound_dataplane::snoop::{
    Bare, Change, Direction, Flags, FlowId, Handshake, Link, Options, Segment as Seen, Seq, Sight,
    TcpFrame, Timestamps,
};
use tailbound_units::Nanos;

/// End of a connection: the one that opened it, or the one that accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Opener,
    Accepter,
}

impl Side {
    pub(super) const BOTH: [Self; 2] = [Self::Opener, Self::Accepter];

    pub(super) const fn other(self) -> Self {
        match self {
            Self::Opener => Self::Accepter,
            Self::Accepter => Self::Opener,
        }
    }
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct End {
    pub(super) connection: u32,
    pub(super) side: Side,
}

impl End {
    pub(super) const fn peer(self) -> Self {
        Self {
            connection: self.connection,
            side: self.side.other(),
        }
    }
}

/// Purpose of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A segment of a connection.
    Segment,
    /// A reset, which ends its connection immediately.
    Reset,
    /// An ICMP echo, or the reply to one. The fields of the segment are ignored.
    Echo,
}

/// A TCP segment, or a ping, in flight, and its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) to: End,
    pub(super) segment: Segment,
    pub(super) kind: Kind,
}

/// Length of the Ethernet, IPv4 and TCP headers with time stamps, in bytes.
const HEADERS: u32 = 14 + 20 + 20 + 12;
/// Length of a `ping`'s data: 56 bytes and ICMP's 8, which take the place of TCP's headers.
const ECHOED: u32 = 32;
/// Length of preamble, FCS and the gap, in bytes.
const AROUND: u32 = 24;
/// The shortest frame without FCS.
const SHORTEST: u32 = 60;
/// The number of the first byte of every stream.
const FIRST: u32 = 0x1000_0000;
/// Window scale in bits, which does not apply to a SYN.
const SCALE: u8 = 7;

impl Frame {
    pub(super) fn new(to: End, segment: Segment) -> Self {
        let mut frame = Self {
            to,
            segment,
            kind: Kind::Segment,
        };
        // Rounded to a value that a header can carry.
        frame.segment.window = frame.shifted() << frame.shift();
        frame
    }

    /// Returns a ping with `ping`'s default length.
    pub(super) fn echo(to: End) -> Self {
        let segment = Segment {
            sequence: 0,
            len: ECHOED,
            edge: Edge::None,
            ack: None,
            window: 0,
            stamp: 0,
            echo: 0,
            sack: Sack::default(),
            ecn: Ecn::default(),
            echo_mark: false,
        };
        Self {
            to,
            segment,
            kind: Kind::Echo,
        }
    }

    /// Returns the length on a wire, in bytes.
    pub(super) fn on_the_wire(&self) -> u64 {
        (self.len() as u64).max(u64::from(SHORTEST)) + u64::from(AROUND)
    }

    fn shift(&self) -> u8 {
        if self.segment.edge == Edge::Syn {
            0
        } else {
            SCALE
        }
    }

    fn shifted(&self) -> u32 {
        (self.segment.window >> self.shift()).min(u32::from(u16::MAX))
    }

    fn number(place: u64) -> Seq {
        Seq(FIRST.wrapping_add(place as u32))
    }

    fn place(number: Seq) -> u64 {
        u64::from(number.0.wrapping_sub(FIRST))
    }

    fn flags(&self) -> Flags {
        let mut flags = match self.segment.edge {
            Edge::None => Flags::default(),
            Edge::Syn => Flags::SYN,
            Edge::Fin => Flags::FIN,
        };
        if self.segment.ack.is_some() {
            flags = flags.with(Flags::ACK);
        }
        if self.kind == Kind::Reset {
            flags = flags.with(Flags::RST);
        }
        flags
    }

    fn seen(&self) -> Seen {
        let is_syn = self.segment.edge == Edge::Syn;
        Seen {
            seq: Self::number(self.segment.sequence),
            ack: Self::number(self.segment.ack.unwrap_or(0)),
            payload: self.segment.len,
            largest: self.segment.len as u16,
            window: self.shifted() as u16,
            flags: self.flags(),
            congestion: false,
            options: Options {
                timestamps: Some(Timestamps {
                    value: self.segment.stamp,
                    echo: self.segment.echo,
                }),
                handshake: if is_syn {
                    Handshake {
                        mss: Some(1460),
                        scale: Some(SCALE),
                    }
                } else {
                    Handshake::default()
                },
                ..Options::default()
            },
        }
    }
}

impl tailbound_dataplane::Frame for Frame {
    fn len(&self) -> usize {
        (HEADERS + self.segment.len) as usize
    }
}

impl Carried for Frame {
    fn passes(&mut self, _: Step, _: Nanos) -> bool {
        self.kind == Kind::Echo
    }
}

impl TcpFrame for Frame {
    type Maker = ();

    fn sight(&self, direction: Direction) -> Option<Sight> {
        let guest = match direction {
            Direction::ToGuest => self.to,
            Direction::ToPeer => self.to.peer(),
        };
        // A ping belongs to no flow of early acknowledgement.
        (self.kind != Kind::Echo).then(|| Sight {
            flow: FlowId {
                guest: [0, guest.side as u64],
                peer: [0, guest.side.other() as u64],
                ports: guest.connection,
                v6: false,
            },
            hash: guest.connection.wrapping_mul(0x9e37_79b9),
            segment: Some(self.seen()),
        })
    }

    fn link(&self) -> Link {
        Link::default()
    }

    fn is_intact(&self) -> bool {
        true
    }

    fn change(&mut self, change: &Change) {
        self.segment.sequence = Self::place(change.seq);
        if let Some(ack) = &mut self.segment.ack {
            *ack = Self::place(change.ack);
        }
        self.segment.window = u32::from(change.window) << self.shift();
        if let Some(timestamps) = change.timestamps {
            self.segment.stamp = timestamps.value;
            self.segment.echo = timestamps.echo;
        }
    }

    fn again(&self) -> Self {
        *self
    }

    fn part(&self, from: u32, len: u32) -> Self {
        let mut part = *self;
        part.segment.sequence += u64::from(from);
        part.segment.len = len;
        if from + len < self.segment.len {
            part.segment.edge = Edge::None;
        }
        part
    }

    fn bare((): &(), bare: &Bare) -> Self {
        let side = Side::BOTH[usize::from(bare.flow.guest[1] != 0)];
        let guest = End {
            connection: bare.flow.ports,
            side,
        };
        let to = match bare.direction {
            Direction::ToGuest => guest,
            Direction::ToPeer => guest.peer(),
        };
        let stamps = bare.timestamps.unwrap_or_default();
        let fin = bare.flags.has(Flags::FIN);
        Self {
            to,
            segment: Segment {
                sequence: Self::place(bare.seq),
                len: 0,
                edge: if fin { Edge::Fin } else { Edge::None },
                ack: bare.flags.has(Flags::ACK).then(|| Self::place(bare.ack)),
                window: u32::from(bare.window) << SCALE,
                stamp: stamps.value,
                echo: stamps.echo,
                sack: Sack::default(),
                ecn: Ecn::default(),
                echo_mark: false,
            },
            kind: if bare.flags.has(Flags::RST) {
                Kind::Reset
            } else {
                Kind::Segment
            },
        }
    }
}
