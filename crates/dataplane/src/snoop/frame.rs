//! The interface of early acknowledgement to frames.

use super::segment::{Flags, Options, Segment, Timestamps};
use super::seq::Seq;
use crate::{Frame, GuestId};

/// Direction of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the guest, from its peer.
    ToGuest,
    /// To the peer, from the guest.
    ToPeer,
}

/// A connection of a guest, by addresses and ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowId {
    /// The guest's address, upper half first; an IPv4 address is in the lowest bits.
    pub guest: [u64; 2],
    /// The peer's address, in the same form.
    pub peer: [u64; 2],
    /// The guest's port in the upper half, the peer's in the lower.
    pub ports: u32,
    /// True for IPv6 addresses.
    pub v6: bool,
}

/// Headers before TCP of a connection's frames: those of the guest's last frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Link {
    /// The Ethernet addresses of destination and source, as in the guest's frames.
    pub stations: [u8; 12],
    /// The VLAN tag; 0 without one.
    pub tag: u32,
    /// The first word of the IP header: IPv4's with its DSCP only, IPv6's with its DSCP and flow
    /// label. ECN is 0.
    pub top: u32,
    /// Time to live or hop limit.
    pub hops: u8,
}

/// TCP headers that were found in a frame.
#[derive(Debug, Clone, Copy)]
pub struct Sight {
    /// The connection.
    pub flow: FlowId,
    /// A hash of the connection under secret keys: the same in both directions.
    pub hash: u32,
    /// The segment; `None` if the header cannot be parsed: it is truncated, or behind IPv6
    /// extension headers or two VLAN tags.
    pub segment: Option<Segment>,
}

/// A segment of the most common kind: over IPv4 without options or a VLAN tag, with no TCP option
/// except timestamps and no flag except ACK and PSH. It met no congestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plain {
    /// The connection.
    pub flow: FlowId,
    /// See [`Sight::hash`].
    pub hash: u32,
    /// The sequence number.
    pub seq: Seq,
    /// The acknowledgement number.
    pub ack: Seq,
    /// Bytes of payload.
    pub payload: u32,
    /// See [`Segment::largest`].
    pub largest: u16,
    /// The window as in the header.
    pub window: u16,
    /// True if PSH is set.
    pub pushed: bool,
    /// The timestamps.
    pub timestamps: Option<Timestamps>,
    /// The headers before TCP: see [`TcpFrame::link`].
    pub link: Link,
}

impl Plain {
    /// Returns the plain segment in a frame with `sight` and `link`; `None` if the segment is not
    /// plain.
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

/// Location of a peer. Segments from other locations are not the peer's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Origin(u32);

impl Origin {
    /// Not known yet: any location.
    pub const ANYWHERE: Self = Self(0);
    /// Outside this host.
    pub const OUTSIDE: Self = Self(1);

    /// Returns the location of a frame's sender, by the guest that sent it.
    #[inline]
    pub fn of(source: Option<GuestId>) -> Self {
        source.map_or(Self::OUTSIDE, |guest| Self(guest.slot() as u32 + 2))
    }

    /// Returns the location as a number, for another process.
    pub(super) const fn number(self) -> u32 {
        self.0
    }

    /// Returns the location for a number that another process wrote. `guest` maps that process's
    /// slots to this one's guests. Guests that no longer exist are outside.
    pub(super) fn of_number(number: u32, guest: impl FnOnce(usize) -> Option<GuestId>) -> Self {
        match number {
            0 => Self::ANYWHERE,
            1 => Self::OUTSIDE,
            slot => Self::of(guest(slot as usize - 2)),
        }
    }

    /// Checks whether a frame from `other` may be the peer's.
    #[inline]
    pub fn allows(self, other: Self) -> bool {
        self == Self::ANYWHERE || self == other
    }
}

/// A segment without payload that the host makes in the name of one end.
#[derive(Debug, Clone, Copy)]
pub struct Bare {
    /// The direction.
    pub direction: Direction,
    /// The connection.
    pub flow: FlowId,
    /// The hash of the connection: see [`Sight::hash`].
    pub hash: u32,
    /// The headers before TCP.
    pub link: Link,
    /// The sequence number.
    pub seq: Seq,
    /// The acknowledgement number.
    pub ack: Seq,
    /// The control bits.
    pub flags: Flags,
    /// The window, scaled.
    pub window: u16,
    /// The timestamps.
    pub timestamps: Option<Timestamps>,
}

/// New values of fields in a segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The sequence number.
    pub seq: Seq,
    /// The acknowledgement number.
    pub ack: Seq,
    /// SACK blocks that do not begin after this number are removed; `None`: all remain.
    pub sacks_after: Option<Seq>,
    /// The window.
    pub window: u16,
    /// The timestamps, if the segment has the option; `None`: unchanged.
    pub timestamps: Option<Timestamps>,
}

/// A frame whose TCP header early acknowledgement reads and writes.
///
/// [`crate::Packet`] is one with bytes; a simulation has records.
pub trait TcpFrame: Frame {
    /// Resources for new frames: for packets, a pool and the guest.
    type Maker;

    /// Finds TCP in the frame; `None` if the frame has no ports: another protocol, or a fragment.
    fn sight(&self, direction: Direction) -> Option<Sight>;

    /// Returns [`Sight::hash`]; `None` if the frame has no ports.
    #[inline]
    fn connection_hash(&self, direction: Direction) -> Option<u32> {
        Some(self.sight(direction)?.hash)
    }

    /// Finds a plain segment with the most common layout; `None` has no meaning for the frame.
    #[inline]
    fn plain(&self, direction: Direction) -> Option<Plain> {
        Plain::of(&self.sight(direction)?, self.link())
    }

    /// Returns the headers before TCP of a frame of the guest in which a segment was found.
    fn link(&self) -> Link;

    /// Checks whether the whole segment is as it was sent, by its checksum or the verdict of the
    /// NIC or kernel that verified it.
    fn is_intact(&self) -> bool;

    /// Returns the same as [`TcpFrame::is_intact`] for a frame in which `plain` was found.
    #[inline]
    fn is_plain_intact(&self, plain: &Plain) -> bool {
        let _ = plain;
        self.is_intact()
    }

    /// Writes the new fields into the header, and updates the checksum.
    fn change(&mut self, change: &Change);

    /// Returns the same frame again. Both may share their bytes until one of them changes.
    #[must_use]
    fn again(&self) -> Self;

    /// Returns `len` bytes of the payload from `from` on, with the frame's headers; FIN and PSH
    /// only with the last byte. The whole payload may share the bytes of this frame until one of
    /// them changes.
    #[must_use]
    fn part(&self, from: u32, len: u32) -> Self;

    /// Makes a segment without payload.
    fn bare(maker: &Self::Maker, bare: &Bare) -> Self;
}

/// A frame that can move to another process.
pub trait StoredFrame: TcpFrame {
    /// Returns the frame's bytes, behind its virtio header.
    fn to_bytes(&self) -> Vec<u8>;

    /// Makes a frame of such bytes; `None` if they are no frame.
    fn from_bytes(maker: &Self::Maker, bytes: &[u8]) -> Option<Self>
    where
        Self: Sized;

    /// Returns the hash of a connection, equal to that of its frames.
    fn hash(maker: &Self::Maker, flow: &FlowId) -> u32;
}
