//! A small TCP that models the speed of a transfer: loss recovery, congestion control and windows.
//!
//! Read [`Connection`] first. `send` is the sending half. `congestion` has the window: Reno (RFC
//! 5681), CUBIC (RFC 9438, with Linux's `hystart`) or DCTCP (RFC 8257). Losses are detected by
//! duplicate acknowledgements (RFC 6582), or by SACK with RACK-TLP (RFC 8985) and proportional rate
//! reduction (RFC 6937). `receive` acknowledges as Linux does (every second segment, the first ones
//! immediately) and grows its window as Linux does. Nothing here has a clock or does I/O: `now` is
//! an argument, segments are results, and `poll_at` returns the time of the next call.
//!
//! Not modelled: urgent data, Nagle's algorithm, path MTU, undoing of needless retransmissions, and
//! TIME-WAIT.

mod congestion;
mod hystart;
mod receive;
mod round_trip;
mod scoreboard;
mod send;
#[cfg(test)]
mod tests;

pub use congestion::{Congestion, SlowStart};
use receive::Receiver;
use send::{Due, Sender};
use tailbound_units::Nanos;

/// Bytes of the byte stream in one segment of full size over Ethernet: 1500 less IPv4, TCP and time
/// stamps.
pub const MSS: u32 = 1448;

/// Configuration of a TCP endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpConfig {
    /// Segments that a sender may send before the first acknowledgement: 3 in Linux until 2.6.38
    /// (RFC 3390 at 1448 bytes), 10 since (RFC 6928).
    pub initial_window: u32,
    /// First window that a receiver offers, in bytes: 4 segments in Linux until 2.6.38
    /// (`tcp_select_initial_window`), 64 KiB today.
    pub first_receive_window: u32,
    /// Largest window that a receiver offers, in bytes. The window grows by two segments for each
    /// segment that arrives in order (`tcp_grow_window`).
    pub receive_window: u32,
    /// Timeout before the first measured round trip: 3 s until 2011 (RFC 2988), then 1 s (RFC
    /// 6298).
    pub first_timeout: Nanos,
    /// Number of segments of a new connection that are acknowledged immediately, instead of every
    /// second one (`tcp_incr_quickack`): half the first window in segments, 16 at most.
    pub quick_acks: u32,
    /// Shortest retransmission timeout (`TCP_RTO_MIN`).
    pub least_timeout: Nanos,
    /// Longest delay of an acknowledgement that waits for a second segment (`TCP_DELACK_MIN`).
    pub delayed_ack: Nanos,
    /// Method of loss detection.
    pub recovery: Recovery,
    /// Congestion control algorithm.
    pub congestion: Congestion,
    /// How CUBIC leaves slow start, with [`Recovery::Rack`], which measures round trips exactly.
    pub slow_start: SlowStart,
    /// True if a sender that was idle for a timeout restarts with the initial window (RFC 2861,
    /// `tcp_slow_start_after_idle`).
    pub restarts: bool,
    /// True if the last segment in flight is probed before a timeout (TLP), with
    /// [`Recovery::Rack`].
    pub probes: bool,
    /// True if data segments are processed in the time of the waiting application instead of the
    /// interrupt's (`tcp_prequeue`, Linux until 4.14). The caller of the connection implements it.
    pub prequeue: bool,
}

/// Method of loss detection of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Three duplicate acknowledgements, one segment a round trip (RFC 6582). Round trips are
    /// measured by time stamps, in milliseconds.
    Duplicates,
    /// SACK and times (RFC 2018, 8985), as fast as a window allows (RFC 6937). Each segment
    /// measures the round trip, exactly.
    Rack,
    /// SACK and counts (RFC 6675) in the way of ns-3 3.37, for comparisons with it: `send/pipe.rs`
    /// lists its ways.
    Ns3,
}

impl TcpConfig {
    /// Linux 2.6.18 and 2.6.19 on a computer with 256 MB.
    pub const PAPER: Self = Self {
        initial_window: 3,
        first_receive_window: 4 * 1460,
        receive_window: 256 * 1024,
        first_timeout: Nanos::from_secs(3),
        quick_acks: 2,
        least_timeout: Nanos::from_millis(200),
        delayed_ack: Nanos::from_millis(40),
        recovery: Recovery::Duplicates,
        congestion: Congestion::NewReno,
        slow_start: SlowStart::UntilLoss,
        restarts: true,
        probes: true,
        prequeue: true,
    };
    /// [`TcpConfig::PAPER`] with a receiver that offers 64 KiB from the start.
    pub const PAPER_WIDE: Self = Self {
        first_receive_window: 65_535,
        ..Self::PAPER
    };
    /// Linux since 2.6.39.
    pub const TODAY: Self = Self {
        initial_window: 10,
        first_receive_window: 65_535,
        receive_window: 3 * 1024 * 1024,
        first_timeout: Nanos::from_secs(1),
        quick_acks: 16,
        prequeue: false,
        ..Self::PAPER
    };
    /// Linux in a data centre: SACK and RACK.
    pub const RACK: Self = Self {
        recovery: Recovery::Rack,
        slow_start: SlowStart::HyStart,
        ..Self::TODAY
    };
}

/// A TCP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Position in the byte stream; a SYN is 0, the first byte 1.
    pub sequence: u64,
    /// Length of the data, in bytes.
    pub len: u32,
    /// SYN or FIN, if any.
    pub edge: Edge,
    /// The next byte that the sender of the segment expects; `None` in the first SYN.
    pub ack: Option<u64>,
    /// Window that the sender of the segment offers beyond `ack`, in bytes.
    pub window: u32,
    /// Milliseconds of the sender's clock (`TSval`).
    pub stamp: u32,
    /// Time stamp of the peer that is echoed (`TSecr`).
    pub echo: u32,
    /// Blocks beyond `ack` that the sender of the segment has received.
    pub sack: Sack,
    /// ECN codepoint of the segment.
    pub ecn: Ecn,
    /// True if the acknowledged data was marked (ECE).
    pub echo_mark: bool,
}

/// SACK option: blocks that a receiver has beyond the acknowledged position (RFC 2018).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sack {
    /// Begin and end, relative to the acknowledged position; (0, 0) is an empty block.
    blocks: [(u32, u32); 3],
    /// True if the answered segment was a duplicate (RFC 2883).
    duplicate: bool,
}

impl Sack {
    /// Length of the option in the header, in bytes.
    pub fn options(&self) -> u32 {
        let blocks = self.blocks.iter().filter(|it| it.1 > 0).count() as u32;
        if blocks == 0 { 0 } else { 4 + 8 * blocks }
    }

    /// Returns the blocks as positions in the stream, for an acknowledgement of `ack`.
    pub(crate) fn blocks(&self, ack: u64) -> impl Iterator<Item = (u64, u64)> {
        let there = self.blocks.into_iter().filter(|it| it.1 > 0);
        there.map(move |(from, to)| (ack + u64::from(from), ack + u64::from(to)))
    }

    /// Returns the option relative to `ack` instead of `before`, without the blocks that do not
    /// begin beyond `after`, if any.
    pub(crate) fn after(&self, before: u64, ack: u64, after: Option<u64>) -> Self {
        let mut sack = Self {
            duplicate: self.duplicate,
            ..Self::default()
        };
        let least = after.unwrap_or(ack).max(ack);
        let there = self.blocks(before).filter(|it| it.0 > least);
        for (block, (from, to)) in sack.blocks.iter_mut().zip(there) {
            *block = ((from - ack) as u32, (to - ack) as u32);
        }
        sack
    }
}

/// Explicit congestion notification of a segment (RFC 3168).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The sender does not support marks.
    #[default]
    Unable,
    /// A switch may mark the segment.
    Able,
    /// A switch has marked the segment.
    Marked,
}

/// Begin or end of the stream in a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Edge {
    /// Neither SYN nor FIN.
    #[default]
    None,
    /// SYN: the stream begins.
    Syn,
    /// FIN: the stream ends after the segment's bytes.
    Fin,
}

impl Segment {
    /// Position after the segment: a SYN and a FIN take one each.
    pub fn end(&self) -> u64 {
        self.sequence + u64::from(self.len) + u64::from(self.edge != Edge::None)
    }
}

/// State of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The local SYN was sent.
    Connecting,
    /// The peer's SYN was received, the local one was sent.
    Accepting,
    /// Both SYNs are acknowledged.
    Open,
}

/// One end of a connection.
#[derive(Debug, Clone)]
pub struct Connection {
    state: State,
    sender: Sender,
    receiver: Receiver,
}

impl Connection {
    /// Opens a connection: the SYN is in `out`.
    pub fn connect(now: Nanos, config: TcpConfig, out: &mut Vec<Segment>) -> Self {
        let mut connection = Self {
            state: State::Connecting,
            sender: Sender::new(config),
            receiver: Receiver::new(config),
        };
        connection.transmit(now, out);
        connection
    }

    /// Returns a connection that is open on both ends: each knows the other's window, and the round
    /// trip of the handshake.
    pub fn established(config: TcpConfig, round_trip: Nanos) -> Self {
        Self {
            state: State::Open,
            sender: Sender::open(config, round_trip),
            receiver: Receiver::open(config),
        }
    }

    /// Answers a SYN.
    pub fn accept(now: Nanos, config: TcpConfig, syn: &Segment, out: &mut Vec<Segment>) -> Self {
        let mut connection = Self {
            state: State::Accepting,
            sender: Sender::new(config),
            receiver: Receiver::new(config),
        };
        connection.receive(now, syn, out);
        connection
    }

    /// Appends `bytes` to the stream to send.
    pub fn write(&mut self, now: Nanos, bytes: u64, out: &mut Vec<Segment>) {
        self.sender.write(bytes);
        self.transmit(now, out);
    }

    /// Ends the stream after the written bytes.
    pub fn close(&mut self, now: Nanos, out: &mut Vec<Segment>) {
        self.sender.close();
        self.transmit(now, out);
    }

    /// Reads all bytes that were received in order; returns their number.
    pub fn read(&mut self, now: Nanos, out: &mut Vec<Segment>) -> u64 {
        let bytes = self.receiver.read();
        if self.receiver.owes_update() {
            self.acknowledge(now, out);
        }
        bytes
    }

    /// Returns the bytes that [`Connection::read`] would take.
    pub fn readable(&self) -> u64 {
        self.receiver.readable()
    }

    /// True once the handshake is complete.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// True once the peer's stream has ended and was received completely.
    pub fn is_finished(&self) -> bool {
        self.receiver.is_finished()
    }

    /// True once the peer has acknowledged the whole stream, including its end.
    pub fn is_acknowledged(&self) -> bool {
        self.sender.is_acknowledged()
    }

    /// Acknowledged data, in bytes.
    pub fn acknowledged(&self) -> u64 {
        self.sender.acknowledged().saturating_sub(1)
    }

    /// Returns the position after the sent data, and the next expected position of the peer's
    /// stream.
    pub(crate) fn places(&self) -> (u64, u64) {
        (self.sender.next_sequence(), self.receiver.expected())
    }

    /// Congestion window, in segments.
    pub fn congestion_window(&self) -> u32 {
        self.sender.window()
    }

    /// Number of retransmitted segments, and how many of them were due to a timeout.
    pub fn resent(&self) -> (u64, u64) {
        self.sender.resent()
    }

    /// Handles a segment of the peer for an application that reads all bytes immediately, before they
    /// are acknowledged, and therefore take no part of the window; returns their number.
    pub fn deliver(&mut self, now: Nanos, segment: &Segment, out: &mut Vec<Segment>) -> u64 {
        self.handle(now, segment, out, Receiver::read)
    }

    /// Handles a segment of the peer.
    pub fn receive(&mut self, now: Nanos, segment: &Segment, out: &mut Vec<Segment>) {
        self.handle(now, segment, out, |_| 0);
    }

    /// Handles a segment of the peer: `read` is called before the answer is sent. Returns its
    /// result.
    fn handle(
        &mut self,
        now: Nanos,
        segment: &Segment,
        out: &mut Vec<Segment>,
        read: impl FnOnce(&mut Receiver) -> u64,
    ) -> u64 {
        if segment.edge == Edge::Syn && self.state == State::Connecting && segment.ack.is_some() {
            self.state = State::Open;
        }
        if let Some(ack) = segment.ack {
            self.sender.acknowledge(now, ack, segment);
            if self.state == State::Accepting && ack > 0 {
                self.state = State::Open;
            }
        }
        if self.receiver.owes_before(segment) {
            self.acknowledge(now, out);
        }
        let owes = self.receiver.receive(now, segment);
        let bytes = read(&mut self.receiver);
        let before = out.len();
        self.transmit(now, out);
        // A segment that was just sent has carried the acknowledgement.
        if owes && out.len() == before {
            self.acknowledge(now, out);
        }
        bytes
    }

    /// Returns the time of the next [`Connection::poll`]; [`Nanos::MAX`] for never.
    pub fn poll_at(&self) -> Nanos {
        self.sender.poll_at().min(self.receiver.poll_at())
    }

    /// Handles the timers that expired by `now`: retransmits lost segments, sends a delayed
    /// acknowledgement.
    pub fn poll(&mut self, now: Nanos, out: &mut Vec<Segment>) {
        if self.sender.poll_at() <= now {
            match self.sender.poll(now) {
                Due::Send => self.transmit(now, out),
                Due::Ask => self.ask(now, out),
            }
        }
        if self.receiver.poll_at() <= now {
            self.receiver.time_out();
            self.acknowledge(now, out);
        }
    }

    fn transmit(&mut self, now: Nanos, out: &mut Vec<Segment>) {
        let open = self.state == State::Open;
        let connecting = self.state == State::Connecting;
        while let Some(piece) = self.sender.next(now, open) {
            let ack = (!connecting).then(|| self.receiver.acknowledged());
            out.push(self.segment(now, piece.sequence, piece.len, piece.edge, ack));
        }
    }

    fn acknowledge(&mut self, now: Nanos, out: &mut Vec<Segment>) {
        let ack = self.receiver.acknowledged();
        let sequence = self.sender.next_sequence();
        out.push(self.segment(now, sequence, 0, Edge::None, Some(ack)));
    }

    /// Probes a peer with a closed window: the peer acknowledges a segment with an old position.
    fn ask(&mut self, now: Nanos, out: &mut Vec<Segment>) {
        let ack = self.receiver.acknowledged();
        let sequence = self.sender.acknowledged().saturating_sub(1);
        out.push(self.segment(now, sequence, 0, Edge::None, Some(ack)));
    }

    fn segment(
        &self,
        now: Nanos,
        sequence: u64,
        len: u32,
        edge: Edge,
        ack: Option<u64>,
    ) -> Segment {
        Segment {
            sequence,
            len,
            edge,
            ack,
            window: self.receiver.window(),
            stamp: clock(now),
            echo: self.receiver.echo(),
            sack: self.receiver.sack(),
            ecn: if len > 0 && self.sender.takes_marks() {
                Ecn::Able
            } else {
                Ecn::Unable
            },
            echo_mark: self.receiver.marked(),
        }
    }
}

/// The clock of time stamps: milliseconds, never 0, which means that there is none.
fn clock(now: Nanos) -> u32 {
    (now.as_nanos() / 1_000_000) as u32 + 1
}
