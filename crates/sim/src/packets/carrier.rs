//! What carries a connection's messages: TCP, or UDP, which sends all at once and nothing again.

use super::packet::{OVERHEAD, Protocol, UDP_OVERHEAD};
use crate::tcp::{Connection, Ecn, Edge, MSS, Sack, Segment, TcpConfig};
use tailbound_units::Nanos;

/// A message over UDP of which anything is missing so long after it was written is lost: voice that
/// is later is of no use.
pub(super) const LOST_AFTER: Nanos = Nanos::from_millis(200);

/// Bytes of a message in one datagram where Ethernet carries it.
const PAYLOAD: u64 = MSS as u64 + OVERHEAD - UDP_OVERHEAD;

/// One end of a connection, or of what stands for one over UDP.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "nearly all are TCP")]
pub(super) enum Carrier {
    Tcp(Connection),
    /// The place of the next byte, from 1 on.
    Udp(u64),
}

impl Carrier {
    /// An open one; a round trip takes so long where nothing waits.
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

    /// So many bytes are to be sent.
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

    /// When to call [`Carrier::poll`]; [`Nanos::MAX`] for never.
    pub(super) fn poll_at(&self) -> Nanos {
        match self {
            Self::Tcp(tcp) => tcp.poll_at(),
            Self::Udp(_) => Nanos::MAX,
        }
    }

    /// Does what is due.
    pub(super) fn poll(&mut self, now: Nanos, out: &mut Vec<Segment>) {
        if let Self::Tcp(tcp) = self {
            tcp.poll(now, out);
        }
    }

    /// How often something was sent again, and how often by a timeout.
    pub(super) fn resent(&self) -> (u64, u64) {
        match self {
            Self::Tcp(tcp) => tcp.resent(),
            Self::Udp(_) => (0, 0),
        }
    }

    /// How many bytes nobody has to send again.
    pub(super) fn acknowledged(&self) -> u64 {
        match self {
            Self::Tcp(tcp) => tcp.acknowledged(),
            Self::Udp(next) => *next - 1,
        }
    }

    /// Whether nothing waits for an acknowledgement.
    pub(super) fn is_acknowledged(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.is_acknowledged(),
            Self::Udp(_) => true,
        }
    }
}

/// So many bytes from a place on; nobody acknowledges them, and nothing may mark them.
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
