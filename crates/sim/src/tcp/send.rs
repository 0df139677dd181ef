//! The sending half: Reno.

use super::{Edge, LEAST_TIMEOUT, MSS, Segment, TcpConfig, clock};
use tailbound_units::Nanos;

/// Duplicate acknowledgements that make a segment count as lost (RFC 5681).
const DUPLICATES: u32 = 3;
/// The longest timeout (RFC 6298, 2.5, and `TCP_RTO_MAX`).
const LONGEST_TIMEOUT: Nanos = Nanos::from_secs(120);
/// So much a window may be larger than what is on its way and still count as used
/// (`tcp_max_burst`).
const UNUSED: u32 = 3;

/// What the sender thinks of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing is lost.
    Open,
    /// A segment was sent again on duplicate acknowledgements, until all up to this place is
    /// acknowledged.
    Recovery(u64),
    /// All is sent again after a timeout, up to this place.
    Loss(u64),
}

#[derive(Debug, Clone)]
pub(super) struct Sender {
    config: TcpConfig,
    /// The first byte that is not acknowledged.
    una: u64,
    /// The next to be sent.
    next: u64,
    /// The highest that was sent.
    highest: u64,
    /// Behind the last byte that was written; the SYN is written from the start.
    written: u64,
    is_closed: bool,
    /// The peer takes no byte from here on.
    edge: u64,
    /// In segments.
    window: u32,
    /// Acknowledgements towards the next segment of congestion avoidance.
    credit: u32,
    threshold: u32,
    duplicates: u32,
    phase: Phase,
    /// A segment at `una` to be sent again at once.
    resend: bool,
    smoothed: Option<Nanos>,
    variation: Nanos,
    backoff: u32,
    timeout_at: Nanos,
    last_sent: Nanos,
    resent: (u64, u64),
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
            window: config.initial_window,
            credit: 0,
            threshold: u32::MAX,
            duplicates: 0,
            phase: Phase::Open,
            resend: false,
            smoothed: None,
            variation: Nanos::ZERO,
            backoff: 0,
            timeout_at: Nanos::MAX,
            last_sent: Nanos::ZERO,
            resent: (0, 0),
        }
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
        self.window
    }

    pub(super) fn resent(&self) -> (u64, u64) {
        self.resent
    }

    pub(super) fn poll_at(&self) -> Nanos {
        self.timeout_at
    }

    /// Behind the last place that is to be sent.
    fn end(&self) -> u64 {
        self.written + u64::from(self.is_closed)
    }

    /// Segments on their way, as far as the sender knows.
    fn flight(&self) -> u32 {
        u32::try_from((self.next - self.una).div_ceil(u64::from(MSS))).unwrap_or(u32::MAX)
    }

    fn timeout(&self) -> Nanos {
        let first = self.config.first_timeout;
        let base = self.smoothed.map_or(first, |smoothed| {
            // Linux: the variation counts for 200 ms at least.
            smoothed.saturating_add(Nanos(4 * self.variation.0).max(LEAST_TIMEOUT))
        });
        Nanos(base.0.saturating_mul(1 << self.backoff.min(16))).min(LONGEST_TIMEOUT)
    }

    /// Returns the next segment that may be sent now: place, length, edge.
    pub(super) fn next(&mut self, now: Nanos, open: bool) -> Option<(u64, u32, Edge)> {
        if std::mem::take(&mut self.resend) {
            let segment = self.cut(self.una, self.highest);
            self.next = self.next.max(end_of(segment));
            self.highest = self.highest.max(self.next);
            self.resent.0 += 1;
            self.arm(now);
            return Some(segment);
        }
        if self.next == self.una && self.next > 1 {
            self.restart_after_idle(now);
        }
        let limit = if open { self.end() } else { 1 };
        if self.next >= limit || self.flight() >= self.window {
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
        let end = end_of(segment);
        // A short segment waits while the window, and not the stream, ends it.
        let short = segment.1 < MSS && end < limit && segment.2 == Edge::None;
        if short && self.next > self.una {
            return None;
        }
        if self.next < self.highest {
            self.resent.0 += 1;
        }
        self.next = end;
        self.highest = self.highest.max(end);
        self.last_sent = now;
        if self.timeout_at == Nanos::MAX {
            self.arm(now);
        }
        Some(segment)
    }

    /// The segment at a place, up to another.
    fn cut(&self, from: u64, to: u64) -> (u64, u32, Edge) {
        if from == 0 {
            return (0, 0, Edge::Syn);
        }
        let to = to.min(from + u64::from(MSS));
        let data = to.min(self.written).saturating_sub(from);
        let len = u32::try_from(data).unwrap_or(MSS);
        let ends = self.is_closed && from + data == self.written;
        let edge = if ends { Edge::Fin } else { Edge::None };
        (from, len, edge)
    }

    /// A connection that was silent for a timeout begins slowly (RFC 2861).
    fn restart_after_idle(&mut self, now: Nanos) {
        if now.since(self.last_sent) > self.timeout() && self.phase == Phase::Open {
            self.window = self.window.min(self.config.initial_window);
            self.last_sent = now;
        }
    }

    fn arm(&mut self, now: Nanos) {
        self.timeout_at = now.saturating_add(self.timeout());
    }

    /// Handles what a segment says about ours.
    pub(super) fn acknowledge(&mut self, now: Nanos, ack: u64, segment: &Segment) {
        if ack > self.highest || ack < self.una {
            return;
        }
        let edge = ack + u64::from(segment.window);
        let moved = edge > self.edge;
        self.edge = self.edge.max(edge);
        if ack == self.una {
            let outstanding = self.una < self.highest;
            let empty = segment.len == 0 && segment.edge == Edge::None;
            if outstanding && empty && !moved {
                self.duplicate(now);
            }
            if moved && !outstanding {
                // The window has opened: nothing waits for an answer any more.
                self.timeout_at = Nanos::MAX;
                self.backoff = 0;
            }
            return;
        }
        let limited = self.flight().saturating_add(UNUSED) >= self.window;
        self.una = ack;
        self.next = self.next.max(ack);
        self.backoff = 0;
        self.duplicates = 0;
        if segment.echo > 0 {
            self.measure(Nanos(
                u64::from(clock(now).saturating_sub(segment.echo)) * 1_000_000,
            ));
        }
        // What acknowledges the SYN says nothing of the network's room.
        if ack > 1 {
            self.advance(limited);
        }
        if self.una == self.highest {
            self.timeout_at = Nanos::MAX;
        } else {
            self.arm(now);
        }
    }

    /// Lets the window grow by an acknowledgement of something new.
    fn advance(&mut self, limited: bool) {
        match self.phase {
            Phase::Recovery(until) if self.una >= until => {
                self.window = self.threshold;
                self.phase = Phase::Open;
            }
            // A part: what follows was lost as well (RFC 6582).
            Phase::Recovery(_) => {
                self.resend = true;
                self.window = self.threshold;
            }
            Phase::Loss(until) => {
                self.grow();
                if self.una >= until {
                    self.phase = Phase::Open;
                }
            }
            Phase::Open if limited => self.grow(),
            Phase::Open => {}
        }
    }

    fn grow(&mut self) {
        if self.window < self.threshold {
            self.window += 1;
            return;
        }
        self.credit += 1;
        if self.credit >= self.window {
            self.credit = 0;
            self.window += 1;
        }
    }

    fn duplicate(&mut self, now: Nanos) {
        match self.phase {
            Phase::Open => {
                self.duplicates += 1;
                if self.duplicates == DUPLICATES {
                    self.threshold = (self.flight() / 2).max(2);
                    self.window = self.threshold + DUPLICATES;
                    self.phase = Phase::Recovery(self.highest);
                    self.resend = true;
                    self.arm(now);
                }
            }
            // One more has left the network.
            Phase::Recovery(_) => self.window += 1,
            Phase::Loss(_) => {}
        }
    }

    /// A round trip was measured (RFC 6298).
    fn measure(&mut self, took: Nanos) {
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(took);
            self.variation = Nanos(took.0 / 2);
            return;
        };
        let off = Nanos(smoothed.0.abs_diff(took.0));
        self.variation = Nanos((3 * self.variation.0 + off.0) / 4);
        self.smoothed = Some(Nanos((7 * smoothed.0 + took.0) / 8));
    }

    /// Handles the timeout. Returns whether something is to be sent again; otherwise the
    /// peer's window is closed, and the peer to be asked.
    pub(super) fn time_out(&mut self, now: Nanos) -> bool {
        self.backoff += 1;
        self.arm(now);
        if self.una == self.highest {
            return false;
        }
        if !matches!(self.phase, Phase::Loss(_)) {
            self.threshold = (self.flight() / 2).max(2);
        }
        self.window = 1;
        self.credit = 0;
        self.duplicates = 0;
        self.phase = Phase::Loss(self.highest);
        self.next = self.una;
        self.resent.1 += 1;
        true
    }
}

fn end_of((sequence, len, edge): (u64, u32, Edge)) -> u64 {
    sequence + u64::from(len) + u64::from(edge != Edge::None)
}
