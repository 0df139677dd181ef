//! A small TCP: what decides how fast a transfer goes, and nothing else.
//!
//! Read [`Connection`] first. `send` sends, `congestion` says how much: Reno (RFC 5681), CUBIC
//! (RFC 9438, with Linux's `hystart`) or DCTCP (RFC 8257). What is lost is found by duplicate acknowledgements (RFC
//! 6582), or by SACK with RACK-TLP (RFC 8985) and proportional rate reduction (RFC 6937).
//! `receive` acknowledges as Linux does (every second segment, the first ones at
//! once) and lets its window grow as Linux does. All have the shape of what is pure
//! here: `now` comes in, segments go out, `poll_at` says when to come back.
//!
//! Not modelled: urgent data, Nagle's algorithm, path MTU, undoing of needless
//! repairs, and TIME-WAIT.

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

/// Bytes of the byte stream in one segment where Ethernet carries it: 1500 less IPv4, TCP
/// and time stamps.
pub const MSS: u32 = 1448;

/// How a TCP behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpConfig {
    /// Segments that a sender may send before it hears anything: 3 in Linux until 2.6.38
    /// (RFC 3390 at 1448 bytes), 10 since (RFC 6928).
    pub initial_window: u32,
    /// The window that a receiver offers first, in bytes: 4 segments in Linux until 2.6.38
    /// (`tcp_select_initial_window`), 64 KiB today.
    pub first_receive_window: u32,
    /// The largest window that it offers, in bytes. It gets there by two segments for each
    /// one that comes in order (`tcp_grow_window`).
    pub receive_window: u32,
    /// The timeout before a round trip was measured: 3 s until 2011 (RFC 2988), then 1 s
    /// (RFC 6298).
    pub first_timeout: Nanos,
    /// How many segments of a new connection are acknowledged at once, and not every second
    /// one (`tcp_incr_quickack`): half the first window in segments, 16 at most.
    pub quick_acks: u32,
    /// The least retransmission timeout (`TCP_RTO_MIN`).
    pub least_timeout: Nanos,
    /// How long an acknowledgement is held back for a second segment (`TCP_DELACK_MIN`).
    pub delayed_ack: Nanos,
    /// How losses are found.
    pub recovery: Recovery,
    /// How the window grows and shrinks.
    pub congestion: Congestion,
    /// How CUBIC leaves slow start, with [`Recovery::Rack`], which measures round trips exactly.
    pub slow_start: SlowStart,
    /// Whether a sender that was silent for a timeout begins with the initial window again
    /// (RFC 2861, `tcp_slow_start_after_idle`).
    pub restarts: bool,
    /// Whether the last of what was sent is probed for before a timeout (TLP), with
    /// [`Recovery::Rack`].
    pub probes: bool,
    /// Whether segments with data are received in the time of the application that waits for
    /// them, and not in that of the interrupt (`tcp_prequeue`, Linux until 4.14). Whoever
    /// runs a connection sees to it.
    pub prequeue: bool,
}

/// How a sender finds out what is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// By three duplicate acknowledgements, a segment a round trip (RFC 6582). Round trips are
    /// measured by time stamps, in milliseconds.
    Duplicates,
    /// By SACK and times (RFC 2018, 8985), as much as a window allows (RFC 6937). Round trips
    /// are measured by each segment, exactly.
    Rack,
}

impl TcpConfig {
    /// Linux 2.6.18 and 2.6.19 on a machine of 256 MB.
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
    /// The same with a receiver that offers 64 KiB from the first.
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

/// A segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Its place in the byte stream; a SYN is 0, the first byte 1.
    pub sequence: u64,
    /// Bytes that it carries.
    pub len: u32,
    /// Whether it begins the stream, or ends it.
    pub edge: Edge,
    /// The next byte that its sender expects; none in the first SYN.
    pub ack: Option<u64>,
    /// How far beyond that the peer may send, in bytes.
    pub window: u32,
    /// Milliseconds of the sender's clock (`TSval`).
    pub stamp: u32,
    /// Those of the peer's that it answers to (`TSecr`).
    pub echo: u32,
    /// What its sender has beyond `ack`.
    pub sack: Sack,
    /// What the network may say about it, and has said.
    pub ecn: Ecn,
    /// Whether what it acknowledges was marked (ECE).
    pub echo_mark: bool,
}

/// What a receiver has beyond what it acknowledges (RFC 2018).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sack {
    /// From and to, counted from the acknowledged place; (0, 0) is none.
    blocks: [(u32, u32); 3],
    /// Whether the segment that is answered was there before (RFC 2883).
    duplicate: bool,
}

impl Sack {
    /// What it takes of a header, in bytes.
    pub fn options(&self) -> u32 {
        let blocks = self.blocks.iter().filter(|it| it.1 > 0).count() as u32;
        if blocks == 0 { 0 } else { 4 + 8 * blocks }
    }

    /// The blocks as places, where `ack` is acknowledged.
    pub(crate) fn blocks(&self, ack: u64) -> impl Iterator<Item = (u64, u64)> {
        let there = self.blocks.into_iter().filter(|it| it.1 > 0);
        there.map(move |(from, to)| (ack + u64::from(from), ack + u64::from(to)))
    }

    /// The same where `ack` is acknowledged, and not `before`; without blocks that do not begin
    /// behind `after`, if that is there.
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
    /// Its sender does not know of marks.
    #[default]
    Unable,
    /// It may be marked.
    Able,
    /// It was.
    Marked,
}

/// What a segment says about the stream beside its bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Edge {
    /// Nothing.
    #[default]
    None,
    /// Here it begins.
    Syn,
    /// Behind its bytes it ends.
    Fin,
}

impl Segment {
    /// The place behind it: a SYN and a FIN take one.
    pub fn end(&self) -> u64 {
        self.sequence + u64::from(self.len) + u64::from(self.edge != Edge::None)
    }
}

/// How the stream to the peer, and that from it, stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Our SYN is out.
    Connecting,
    /// The peer's SYN is here, ours is out.
    Accepting,
    /// Both are acknowledged.
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

    /// One that is open on both ends already: both know each other's windows, and how long the
    /// round trip was that opened it.
    pub fn established(config: TcpConfig, round_trip: Nanos) -> Self {
        Self {
            state: State::Open,
            sender: Sender::open(config, round_trip),
            receiver: Receiver::open(config),
        }
    }

    /// Answers to a SYN.
    pub fn accept(now: Nanos, config: TcpConfig, syn: &Segment, out: &mut Vec<Segment>) -> Self {
        let mut connection = Self {
            state: State::Accepting,
            sender: Sender::new(config),
            receiver: Receiver::new(config),
        };
        connection.receive(now, syn, out);
        connection
    }

    /// Adds bytes to what is to be sent.
    pub fn write(&mut self, now: Nanos, bytes: u64, out: &mut Vec<Segment>) {
        self.sender.write(bytes);
        self.transmit(now, out);
    }

    /// Ends the stream behind what was written.
    pub fn close(&mut self, now: Nanos, out: &mut Vec<Segment>) {
        self.sender.close();
        self.transmit(now, out);
    }

    /// Takes all bytes that are here in order; returns how many.
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

    /// Whether both ends know each other.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether the peer has ended its stream, and all of it is here.
    pub fn is_finished(&self) -> bool {
        self.receiver.is_finished()
    }

    /// Whether the peer has acknowledged all that was written, the end included.
    pub fn is_acknowledged(&self) -> bool {
        self.sender.is_acknowledged()
    }

    /// How far the peer has acknowledged, in bytes of data.
    pub fn acknowledged(&self) -> u64 {
        self.sender.acknowledged().saturating_sub(1)
    }

    /// The place behind what was sent, and the one that is expected of the peer.
    pub(crate) fn places(&self) -> (u64, u64) {
        (self.sender.next_sequence(), self.receiver.expected())
    }

    /// Segments that may be on their way.
    pub fn congestion_window(&self) -> u32 {
        self.sender.window()
    }

    /// How often a segment was sent again, and how often because of a timeout.
    pub fn resent(&self) -> (u64, u64) {
        self.sender.resent()
    }

    /// Takes a segment of the peer's.
    pub fn receive(&mut self, now: Nanos, segment: &Segment, out: &mut Vec<Segment>) {
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
        let before = out.len();
        self.transmit(now, out);
        // What was just sent has carried it.
        if owes && out.len() == before {
            self.acknowledge(now, out);
        }
    }

    /// Returns when to call [`Connection::poll`]; [`Nanos::MAX`] for never.
    pub fn poll_at(&self) -> Nanos {
        self.sender.poll_at().min(self.receiver.poll_at())
    }

    /// Does what is due by `now`: what was lost is sent again, an acknowledgement that was
    /// held back goes.
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
        while let Some((sequence, len, edge)) = self.sender.next(now, open) {
            let ack = (!connecting).then(|| self.receiver.acknowledged());
            out.push(self.segment(now, sequence, len, edge, ack));
        }
    }

    fn acknowledge(&mut self, now: Nanos, out: &mut Vec<Segment>) {
        let ack = self.receiver.acknowledged();
        let sequence = self.sender.next_sequence();
        out.push(self.segment(now, sequence, 0, Edge::None, Some(ack)));
    }

    /// Asks a peer whose window is closed: a place that it has already has it answer.
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
