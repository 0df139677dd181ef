//! The sending half: transmission and retransmission.
//!
//! Losses are detected by duplicate acknowledgements here, and by SACK in `rack`.

mod pipe;
mod rack;

use super::congestion::Window;
use super::round_trip::RoundTrip;
use super::{Edge, MSS, Recovery, Segment, TcpConfig, clock};
use rack::Rack;
use tailbound_units::Nanos;

/// Duplicate acknowledgements that make a segment count as lost (RFC 5681).
const DUPLICATES: u32 = 3;
/// Segments by which a window may exceed the flight and still count as used (`tcp_max_burst`).
const UNUSED: u32 = 3;

/// Phase of the loss recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No segment is lost.
    Open,
    /// A segment was retransmitted after duplicate acknowledgements, until all data up to this
    /// position is acknowledged.
    Recovery(u64),
    /// All data up to this position is retransmitted after a timeout.
    Loss(u64),
}

#[derive(Debug, Clone)]
pub(super) struct Sender {
    config: TcpConfig,
    /// The first byte that is not acknowledged.
    una: u64,
    /// The next position to send.
    next: u64,
    /// End of the sent data.
    highest: u64,
    /// End of the written data; the SYN counts as written from the start.
    written: u64,
    is_closed: bool,
    /// End of the peer's window.
    edge: u64,
    window: Window,
    duplicates: u32,
    phase: Phase,
    /// True if the segment at `una` must be retransmitted immediately.
    resend: bool,
    round_trip: RoundTrip,
    timeout_at: Nanos,
    last_sent: Nanos,
    resent: (u64, u64),
    rack: Rack,
}

/// Action of a sender at its timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Send the segments of [`Sender::next`].
    Send,
    /// Probe the peer's window.
    Ask,
}

impl Sender {
    pub(super) fn new(config: TcpConfig) -> Self {
        Self {
            config,
            una: 0,
            next: 0,
            highest: 0,
            written: 1,
            is_closed: false,
            edge: 1,
            window: Window::new(&config),
            duplicates: 0,
            phase: Phase::Open,
            resend: false,
            round_trip: RoundTrip::new(),
            timeout_at: Nanos::MAX,
            last_sent: Nanos::ZERO,
            resent: (0, 0),
            rack: Rack::new(),
        }
    }

    /// Returns a sender whose peer offers the first window of `config` and has acknowledged the
    /// SYN.
    pub(super) fn open(config: TcpConfig, round_trip: Nanos) -> Self {
        let mut sender = Self {
            una: 1,
            next: 1,
            highest: 1,
            edge: 1 + u64::from(config.first_receive_window),
            ..Self::new(config)
        };
        sender.round_trip.measure(round_trip);
        sender
    }

    pub(super) fn write(&mut self, bytes: u64) {
        self.written += bytes;
    }

    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    pub(super) fn is_acknowledged(&self) -> bool {
        self.una == self.end()
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.una
    }

    pub(super) fn next_sequence(&self) -> u64 {
        self.next.max(self.highest)
    }

    pub(super) fn window(&self) -> u32 {
        self.window.size
    }

    /// True if the sent segments may be marked.
    pub(super) fn takes_marks(&self) -> bool {
        self.window.takes_marks()
    }

    pub(super) fn resent(&self) -> (u64, u64) {
        self.resent
    }

    pub(super) fn poll_at(&self) -> Nanos {
        self.timeout_at.min(self.rack.poll_at())
    }

    /// Position after the last one to send.
    fn end(&self) -> u64 {
        self.written + u64::from(self.is_closed)
    }

    /// Segments in flight, as far as the sender knows.
    fn flight(&self) -> u32 {
        u32::try_from((self.next - self.una).div_ceil(u64::from(MSS))).unwrap_or(u32::MAX)
    }

    fn is_full(&self) -> bool {
        match self.config.recovery {
            Recovery::Duplicates => self.flight() >= self.window.size,
            Recovery::Rack => self.rack.is_full(self.window.size),
            Recovery::Ns3 => pipe::is_full(self),
        }
    }

    /// Returns the next segment that may be sent now.
    pub(super) fn next(&mut self, now: Nanos, open: bool) -> Option<Piece> {
        if std::mem::take(&mut self.resend) {
            let segment = self.cut(self.una, self.highest);
            self.next = self.next.max(segment.end());
            self.highest = self.highest.max(self.next);
            self.resent.0 += 1;
            self.arm(now);
            return Some(segment);
        }
        if let Some((from, to)) = self.resend_lost(now) {
            return Some(cut_again(self, from, to));
        }
        if self.next == self.una && self.next > 1 {
            self.restart_after_idle(now);
        }
        let limit = if open { self.end() } else { 1 };
        if self.next >= limit && self.config.recovery == Recovery::Ns3 {
            let (from, to) = pipe::resend_unsacked(self, now)?;
            return Some(cut_again(self, from, to));
        }
        if self.next >= limit || self.is_full() {
            return None;
        }
        // The SYN and the FIN need no room in the peer's window.
        let is_fin = self.next == self.written;
        if self.next > 0 && !is_fin && self.next >= self.edge {
            if self.next == self.una && self.timeout_at == Nanos::MAX {
                self.arm(now);
            }
            return None;
        }
        let most = if is_fin { limit } else { limit.min(self.edge) };
        let segment = self.cut(self.next, most);
        let end = segment.end();
        // A short segment waits while the window, and not the stream, ends it.
        let short = segment.len < MSS && end < limit && segment.edge == Edge::None;
        if short && self.next > self.una {
            return None;
        }
        if self.next < self.highest {
            self.resent.0 += 1;
        }
        if self.next == self.una {
            self.window.idle(now.since(self.last_sent));
        }
        self.next = end;
        self.highest = self.highest.max(end);
        self.last_sent = now;
        if self.timeout_at == Nanos::MAX {
            self.arm(now);
        }
        if self.config.recovery != Recovery::Duplicates {
            self.keep(now, segment.sequence, end);
        }
        Some(segment)
    }

    /// Returns the segment at a position, up to another.
    fn cut(&self, from: u64, to: u64) -> Piece {
        if from == 0 {
            return Piece {
                sequence: 0,
                len: 0,
                edge: Edge::Syn,
            };
        }
        let to = to.min(from + u64::from(MSS));
        let data = to.min(self.written).saturating_sub(from);
        let len = u32::try_from(data).unwrap_or(MSS);
        let ends = self.is_closed && from + data == self.written;
        let edge = if ends { Edge::Fin } else { Edge::None };
        Piece {
            sequence: from,
            len,
            edge,
        }
    }

    /// Restarts the window of a connection that was idle for a timeout (RFC 2861).
    fn restart_after_idle(&mut self, now: Nanos) {
        let timeout = self.round_trip.timeout(&self.config);
        let is_silent = now.since(self.last_sent) > timeout && self.phase == Phase::Open;
        if is_silent && self.config.restarts {
            self.window.size = self.window.size.min(self.config.initial_window);
            self.last_sent = now;
        }
    }

    fn arm(&mut self, now: Nanos) {
        self.timeout_at = now.saturating_add(self.round_trip.timeout(&self.config));
    }

    /// Handles the acknowledgement of a segment.
    pub(super) fn acknowledge(&mut self, now: Nanos, ack: u64, segment: &Segment) {
        if ack > self.highest || ack < self.una {
            return;
        }
        let edge = ack + u64::from(segment.window);
        let moved = edge > self.edge;
        self.edge = self.edge.max(edge);
        let outstanding = self.una < self.highest;
        if ack == self.una && moved && !outstanding {
            // The window has opened: no probe is outstanding any more.
            self.timeout_at = Nanos::MAX;
            self.round_trip.backoff = 0;
        }
        if self.config.recovery == Recovery::Rack {
            self.acknowledge_selectively(now, ack, segment);
        } else if self.config.recovery == Recovery::Ns3 {
            pipe::acknowledge(self, now, ack, segment);
        } else if ack > self.una {
            self.acknowledge_new(now, ack, segment);
        } else if outstanding && segment.len == 0 && segment.edge == Edge::None && !moved {
            self.duplicate(now);
        }
    }

    fn acknowledge_new(&mut self, now: Nanos, ack: u64, segment: &Segment) {
        let limited = self.flight().saturating_add(UNUSED) >= self.window.size;
        self.una = ack;
        self.next = self.next.max(ack);
        self.round_trip.backoff = 0;
        self.duplicates = 0;
        if segment.echo > 0 {
            let took = clock(now).saturating_sub(segment.echo);
            self.round_trip.measure(Nanos::from_millis(took.into()));
        }
        // An acknowledgement of the SYN does not show capacity of the network.
        if ack > 1 {
            self.advance(now, limited);
        }
        if self.una == self.highest {
            self.timeout_at = Nanos::MAX;
        } else {
            self.arm(now);
        }
    }

    /// Grows the window after an acknowledgement of new data.
    fn advance(&mut self, now: Nanos, limited: bool) {
        match self.phase {
            Phase::Recovery(until) if self.una >= until => {
                self.window.size = self.window.threshold;
                self.phase = Phase::Open;
            }
            // A partial acknowledgement: the next segment was lost, too (RFC 6582).
            Phase::Recovery(_) => {
                self.resend = true;
                self.window.size = self.window.threshold;
            }
            Phase::Loss(until) => {
                self.grow(now, 1);
                if self.una >= until {
                    self.phase = Phase::Open;
                }
            }
            Phase::Open if limited => self.grow(now, 1),
            Phase::Open => {}
        }
    }

    fn grow(&mut self, now: Nanos, segments: u32) {
        let smoothed = self.round_trip.smoothed().unwrap_or_default();
        self.window.grow(now, segments, smoothed);
    }

    fn duplicate(&mut self, now: Nanos) {
        match self.phase {
            Phase::Open => {
                self.duplicates += 1;
                if self.duplicates == DUPLICATES {
                    self.window.lose(self.flight());
                    self.window.size = self.window.threshold + DUPLICATES;
                    self.phase = Phase::Recovery(self.highest);
                    self.resend = true;
                    self.arm(now);
                }
            }
            // One more has left the network.
            Phase::Recovery(_) => self.window.size += 1,
            Phase::Loss(_) => {}
        }
    }

    /// Handles the timers that expired by `now`.
    pub(super) fn poll(&mut self, now: Nanos) -> Due {
        if self.rack.poll_at() <= now {
            self.poll_rack(now);
            return Due::Send;
        }
        self.round_trip.backoff += 1;
        self.arm(now);
        if self.una == self.highest && self.config.recovery != Recovery::Ns3 {
            return Due::Ask;
        }
        let (again, flight) = match self.config.recovery {
            Recovery::Duplicates => {
                let flight = self.flight();
                self.next = self.una;
                (1, flight)
            }
            Recovery::Rack => self.lose_all(now),
            Recovery::Ns3 => pipe::lose_all(self),
        };
        let is_first = !matches!(self.phase, Phase::Loss(_));
        if is_first || self.config.recovery == Recovery::Ns3 {
            self.window.lose(flight);
        }
        self.window.begin(again);
        self.duplicates = 0;
        self.phase = Phase::Loss(self.highest);
        self.resent.1 += 1;
        Due::Send
    }
}

/// A piece of the stream, which a segment carries.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    /// Position of the first byte.
    pub(super) sequence: u64,
    /// Length, in bytes.
    pub(super) len: u32,
    pub(super) edge: Edge,
}

impl Piece {
    /// Position behind the piece.
    fn end(&self) -> u64 {
        self.sequence + u64::from(self.len) + u64::from(self.edge != Edge::None)
    }
}

/// Returns a segment that was sent before, by its begin and end.
fn cut_again(sender: &Sender, from: u64, to: u64) -> Piece {
    let piece = sender.cut(from, to);
    // Data that was sent before the stream was closed is retransmitted without the FIN.
    let ends = piece.edge != Edge::Fin || to > sender.written;
    let edge = if ends { piece.edge } else { Edge::None };
    Piece { edge, ..piece }
}
