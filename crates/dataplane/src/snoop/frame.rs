//! What early acknowledgement asks of a frame, and what it writes into one.

use super::segment::{Flags, Options, Segment, Timestamps};
use super::seq::Seq;
use crate::{Frame, GuestId};

/// Which way a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To the guest, from its peer.
    ToGuest,
    /// To the peer, from the guest.
    ToPeer,
}

/// A connection of a guest, by addresses and ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowId {
    /// The guest's address, upper half first; an IPv4 address stands in the lowest bits.
    pub guest: [u64; 2],
    /// The peer's address, likewise.
    pub peer: [u64; 2],
    /// The guest's port in the upper half, the peer's in the lower.
    pub ports: u32,
    /// The addresses are IPv6 ones.
    pub v6: bool,
}

/// How frames of a connection are to look beside TCP: as the guest's last one did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Link {
    /// The station that its frames go to, and its own, as they stand in them.
    pub stations: [u8; 12],
    /// Its VLAN tag; 0 without one.
    pub tag: u32,
    /// The first word of its IP header: IPv4's with its DSCP alone, IPv6's with its
    /// DSCP and flow label. ECN is 0.
    pub top: u32,
    /// Time to live or hop limit.
    pub hops: u8,
}

/// What is to be found of TCP in a frame.
#[derive(Debug, Clone, Copy)]
pub struct Sight {
    /// The connection.
    pub flow: FlowId,
    /// A hash of the connection under secret keys: the same both ways.
    pub hash: u32,
    /// What it says; `None` where the header is not to be understood: it ends too soon,
    /// or stands behind IPv6 extension headers or two VLAN tags.
    pub segment: Option<Segment>,
}

/// A segment of the kind that most are: over IPv4 without options or a VLAN tag, and of TCP no
/// option but timestamps, nor a flag but ACK and PSH. It met no congestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plain {
    /// The connection.
    pub flow: FlowId,
    /// See [`Sight::hash`].
    pub hash: u32,
    /// The number of its first byte.
    pub seq: Seq,
    /// What it acknowledges.
    pub ack: Seq,
    /// Bytes of payload.
    pub payload: u32,
    /// See [`Segment::largest`].
    pub largest: u16,
    /// The window, as it stands in the header.
    pub window: u16,
    /// Whether PSH is set.
    pub pushed: bool,
    /// Its timestamps.
    pub timestamps: Option<Timestamps>,
    /// How it looks beside TCP: see [`TcpFrame::link`].
    pub link: Link,
}

impl Plain {
    /// What a frame is in which `sight` was found, and that looks so, where it is plain.
    pub fn of(sight: &Sight, link: Link) -> Option<Self> {
        let segment = sight.segment.filter(|segment| !segment.congestion)?;
        let timestamps = segment.options.timestamps;
        let usual = Options {
            timestamps,
            ..Options::default()
        };
        let pushed = segment.flags.has(Flags::PSH);
        let is_plain = segment.flags.only(Flags(!Flags::PSH.0)) == Flags::ACK
            && segment.options == usual
            && !sight.flow.v6
            && link.tag == 0;
        is_plain.then_some(Self {
            flow: sight.flow,
            hash: sight.hash,
            seq: segment.seq,
            ack: segment.ack,
            payload: segment.payload,
            largest: segment.largest,
            window: segment.window,
            pushed,
            timestamps,
            link,
        })
    }
}

/// Where a peer is: whoever sends from elsewhere is not the peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Origin(u32);

impl Origin {
    /// Not known yet: everywhere.
    pub const ANYWHERE: Self = Self(0);
    /// Outside of this host.
    pub const OUTSIDE: Self = Self(1);

    /// Where a frame comes from, by the guest that sent it.
    #[inline]
    pub fn of(source: Option<GuestId>) -> Self {
        source.map_or(Self::OUTSIDE, |guest| Self(guest.slot() as u32 + 2))
    }

    /// As a number, for another process.
    pub(super) const fn number(self) -> u32 {
        self.0
    }

    /// The one of a number that another process wrote, of whose slots' guests `guest` says
    /// which they are here. Whoever is not here any more is outside.
    pub(super) fn of_number(number: u32, guest: impl FnOnce(usize) -> Option<GuestId>) -> Self {
        match number {
            0 => Self::ANYWHERE,
            1 => Self::OUTSIDE,
            slot => Self::of(guest(slot as usize - 2)),
        }
    }

    /// Whether a frame from `other` may come from the peer.
    #[inline]
    pub fn allows(self, other: Self) -> bool {
        self == Self::ANYWHERE || self == other
    }
}

/// A segment without payload that the host makes in the place of one end.
#[derive(Debug, Clone, Copy)]
pub struct Bare {
    /// Whom it is for.
    pub way: Way,
    /// Its connection.
    pub flow: FlowId,
    /// The hash of that: see [`Sight::hash`].
    pub hash: u32,
    /// What stands before TCP.
    pub link: Link,
    /// Its number.
    pub seq: Seq,
    /// What it acknowledges.
    pub ack: Seq,
    /// Its control bits.
    pub flags: Flags,
    /// Its window, shifted.
    pub window: u16,
    /// Its timestamps.
    pub timestamps: Option<Timestamps>,
}

/// What is to be written into a segment's header in place of what stands there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The number.
    pub seq: Seq,
    /// The acknowledgement.
    pub ack: Seq,
    /// SACK blocks that do not begin after it are removed; `None`: they stay.
    pub sacks_after: Option<Seq>,
    /// The window.
    pub window: u16,
    /// The timestamps, where it has any; `None`: as they are.
    pub timestamps: Option<Timestamps>,
}

/// A frame in whose TCP header early acknowledgement reads and writes.
///
/// [`crate::Packet`] is one of bytes; a simulation has records.
pub trait TcpFrame: Frame {
    /// What frames are made with: for packets, a pool and whose they are.
    type Maker;

    /// What is to be found of TCP in it; `None` where there are no ports: another
    /// protocol, or a fragment.
    fn sight(&self, way: Way) -> Option<Sight>;

    /// The same where it is plain and laid out as most are; `None` says nothing of a frame.
    #[inline]
    fn plain(&self, way: Way) -> Option<Plain> {
        Plain::of(&self.sight(way)?, self.link())
    }

    /// How it looks beside TCP, for a frame of the guest in which a segment was seen.
    fn link(&self) -> Link;

    /// Whether the whole segment is as it was sent, by its checksum or by the word of
    /// whoever checked that.
    fn is_intact(&self) -> bool;

    /// Writes into its header, and mends the checksum.
    fn change(&mut self, change: &Change);

    /// The same once more. Both may share their bytes until one of them changes.
    #[must_use]
    fn again(&self) -> Self;

    /// `len` bytes of its payload from `from` on, with its headers; FIN and PSH only with
    /// its last byte. All of it may share the bytes of this one until one of them changes.
    #[must_use]
    fn part(&self, from: u32, len: u32) -> Self;

    /// A segment without payload.
    fn bare(maker: &Self::Maker, bare: &Bare) -> Self;
}

/// A frame that another process can go on with.
pub trait StoredFrame: TcpFrame {
    /// All of it, behind its virtio header.
    fn to_bytes(&self) -> Vec<u8>;

    /// A frame of such bytes; `None` where they are no frame.
    fn from_bytes(maker: &Self::Maker, bytes: &[u8]) -> Option<Self>
    where
        Self: Sized;

    /// The hash of a connection, as its frames have it.
    fn hash(maker: &Self::Maker, flow: &FlowId) -> u32;
}
