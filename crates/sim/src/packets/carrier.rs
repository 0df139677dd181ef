//! Transport of a connection's messages: TCP, or UDP, which sends immediately and never
//! retransmits.

use super::packet::{OVERHEAD, Protocol, UDP_OVERHEAD};
use crate::tcp::{Connection, Ecn, Edge, MSS, Sack, Segment, TcpConfig};
use tailbound_units::Nanos;

/// Time after which an incomplete message over UDP is lost: voice is useless later.
pub(super) const LOST_AFTER: Nanos = Nanos::from_millis(200);

/// Bytes of a message in one datagram of full size over Ethernet.
const PAYLOAD: u64 = MSS as u64 + OVERHEAD - UDP_OVERHEAD;

/// One end of a connection, or of its equivalent over UDP.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "nearly all are TCP")]
pub(super) enum Carrier {
    Tcp(Connection),
    /// Position of the next byte, from 1 on.
    Udp(u64),
}

impl Carrier {
    /// Returns an open end; `round_trip` is that of an idle network.
    pub(super) fn new(protocol: Protocol, tcp: TcpConfig, round_trip: Nanos) -> Self {
        match protocol {
            Protocol::Tcp => Self::Tcp(Connection::established(tcp, round_trip)),
            Protocol::Udp => Self::Udp(1),
        }
    }

    pub(super) const fn protocol(&self) -> Protocol {
        match self {
            Self::Tcp(_) => Protocol::Tcp,
            Self::Udp(_) => Protocol::Udp,
        }
    }

    /// Appends `bytes` to send.
    pub(super) fn write(&mut self, now: Nanos, bytes: u64, out: &mut Vec<Segment>) {
        match self {
            Self::Tcp(tcp) => tcp.write(now, bytes, out),
            Self::Udp(next) => {
                let end = *next + bytes;
                while *next < end {
                    let datagram = datagram(*next, PAYLOAD.min(end - *next));
                    *next = datagram.end();
                    out.push(datagram);
                }
            }
        }
    }

    /// Returns the time of the next [`Carrier::poll`]; [`Nanos::MAX`] for never.
    pub(super) fn poll_at(&self) -> Nanos {
        match self {
            Self::Tcp(tcp) => tcp.poll_at(),
            Self::Udp(_) => Nanos::MAX,
        }
    }

    /// Handles expired timers.
    pub(super) fn poll(&mut self, now: Nanos, out: &mut Vec<Segment>) {
        if let Self::Tcp(tcp) = self {
            tcp.poll(now, out);
        }
    }

    /// Number of retransmitted segments, and how many of them were due to a timeout.
    pub(super) fn resent(&self) -> (u64, u64) {
        match self {
            Self::Tcp(tcp) => tcp.resent(),
            Self::Udp(_) => (0, 0),
        }
    }

    /// Number of bytes that need no retransmission any more.
    pub(super) fn acknowledged(&self) -> u64 {
        match self {
            Self::Tcp(tcp) => tcp.acknowledged(),
            Self::Udp(next) => *next - 1,
        }
    }

    /// True if no data is unacknowledged.
    pub(super) fn is_acknowledged(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.is_acknowledged(),
            Self::Udp(_) => true,
        }
    }
}

/// Returns a datagram with `len` bytes from a position on; it is neither acknowledged nor marked.
fn datagram(place: u64, len: u64) -> Segment {
    Segment {
        sequence: place,
        len: len as u32,
        edge: Edge::None,
        ack: None,
        window: 0,
        stamp: 0,
        echo: 0,
        sack: Sack::default(),
        ecn: Ecn::Unable,
        echo_mark: false,
    }
}
