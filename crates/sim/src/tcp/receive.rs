//! The receiving half: acknowledgements, and the offered window.

use super::{Ecn, Edge, MSS, Sack, Segment, TcpConfig};
use tailbound_units::Nanos;

#[derive(Debug, Clone)]
pub(super) struct Receiver {
    config: TcpConfig,
    /// The next expected position.
    next: u64,
    /// Last acknowledged position.
    told: u64,
    /// End of the offered window; never decreases.
    edge: u64,
    /// Largest window that may be offered now, in bytes (`rcv_ssthresh`).
    offered: u32,
    /// Bytes in order that were not read.
    unread: u64,
    /// Position of the end of the peer's stream, once known.
    finish: Option<u64>,
    /// Ranges of positions received out of order, disjoint and sorted.
    early: Vec<(u64, u64)>,
    /// Position of the last segment that was out of order, and whether the last segment was a
    /// duplicate.
    latest: u64,
    duplicate: bool,
    /// True if the last data segment was marked.
    marked: bool,
    /// Number of segments that are still acknowledged immediately.
    quick: u32,
    /// Time stamp for the next answer.
    echo: u32,
    delayed_until: Nanos,
}

impl Receiver {
    pub(super) fn new(config: TcpConfig) -> Self {
        Self {
            config,
            next: 0,
            told: 0,
            edge: u64::from(config.first_receive_window),
            offered: config.first_receive_window,
            unread: 0,
            finish: None,
            early: Vec::new(),
            latest: 0,
            duplicate: false,
            marked: false,
            quick: config.quick_acks,
            echo: 0,
            delayed_until: Nanos::MAX,
        }
    }

    /// Returns a receiver that has the peer's SYN.
    pub(super) fn open(config: TcpConfig) -> Self {
        Self {
            next: 1,
            told: 1,
            edge: 1 + u64::from(config.first_receive_window),
            ..Self::new(config)
        }
    }

    /// True if acknowledgements must echo a mark (RFC 8257, 3.2).
    pub(super) const fn marked(&self) -> bool {
        self.marked
    }

    /// True if the delayed acknowledgement must be sent before this segment is handled, because its
    /// mark differs.
    pub(super) fn owes_before(&self, segment: &Segment) -> bool {
        let marked = segment.ecn == Ecn::Marked;
        segment.len > 0 && marked != self.marked && self.delayed_until != Nanos::MAX
    }

    /// Returns the out-of-order ranges for an acknowledgement: the block with the last segment
    /// first, then those below it (RFC 2018, 4).
    pub(super) fn sack(&self) -> Sack {
        let mut sack = Sack {
            duplicate: self.duplicate,
            ..Sack::default()
        };
        if self.early.is_empty() {
            return sack;
        }
        let above = self.early.partition_point(|it| it.0 <= self.latest);
        let below = self.early[..above].iter().rev();
        let blocks = below.chain(self.early[above..].iter().rev());
        for (block, (from, to)) in sack.blocks.iter_mut().zip(blocks) {
            *block = ((from - self.next) as u32, (to - self.next) as u32);
        }
        sack
    }

    /// The next expected position.
    pub(super) const fn expected(&self) -> u64 {
        self.next
    }

    pub(super) fn readable(&self) -> u64 {
        self.unread
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finish.is_some_and(|end| self.next > end)
    }

    pub(super) fn echo(&self) -> u32 {
        self.echo
    }

    pub(super) fn poll_at(&self) -> Nanos {
        self.delayed_until
    }

    pub(super) fn time_out(&mut self) {
        self.delayed_until = Nanos::MAX;
    }

    /// Window that the next segment offers, from [`Receiver::acknowledged`] on.
    pub(super) fn window(&self) -> u32 {
        u32::try_from(self.edge - self.next).unwrap_or(u32::MAX)
    }

    /// Returns the position that the next segment acknowledges. Call it only for a segment that is
    /// sent.
    pub(super) fn acknowledged(&mut self) -> u64 {
        self.told = self.next;
        self.delayed_until = Nanos::MAX;
        self.edge = self.edge.max(self.next + self.free());
        self.next
    }

    /// Window that may be offered beyond the next position.
    fn free(&self) -> u64 {
        let room = u64::from(self.config.receive_window).saturating_sub(self.unread);
        room.min(u64::from(self.offered))
    }

    pub(super) fn read(&mut self) -> u64 {
        std::mem::take(&mut self.unread)
    }

    /// True if the window has opened to twice the last offered size, so that the peer needs an
    /// update (`tcp_cleanup_rbuf`).
    pub(super) fn owes_update(&self) -> bool {
        let now = self.edge - self.next;
        2 * now <= u64::from(self.config.receive_window) && self.free() >= 2 * now.max(1)
    }

    /// Handles a segment. Returns true if it must be acknowledged immediately.
    pub(super) fn receive(&mut self, now: Nanos, segment: &Segment) -> bool {
        let end = segment.end();
        self.duplicate = false;
        if segment.len > 0 {
            self.marked = segment.ecn == Ecn::Marked;
        }
        if segment.sequence <= self.told {
            self.echo = segment.stamp;
        }
        if end == segment.sequence {
            // A window probe or keep-alive has an old position.
            return segment.sequence < self.next;
        }
        if end <= self.next || end > self.edge.max(1) + 1 {
            self.duplicate = end <= self.next;
            return true;
        }
        if segment.edge == Edge::Fin {
            self.finish = Some(end - 1);
        }
        if segment.sequence > self.next {
            self.keep(segment.sequence, end);
            return true;
        }
        let was = self.next;
        self.next = end;
        let filled = self.take_early();
        let bytes = self.next - was;
        let edges = u64::from(segment.edge == Edge::Syn)
            + u64::from(self.finish.is_some_and(|at| was <= at && at < self.next));
        self.unread += bytes - edges;
        if segment.len > 0 {
            self.offered = (self.offered + 2 * MSS).min(self.config.receive_window);
        }
        if segment.edge != Edge::None || filled || !self.early.is_empty() {
            // The local SYN acknowledges the peer's, or the opening end immediately.
            return segment.edge != Edge::Syn || segment.ack.is_some();
        }
        if self.quick > 0 {
            self.quick -= 1;
            return true;
        }
        if self.next - self.told > u64::from(MSS) {
            return true;
        }
        if self.delayed_until == Nanos::MAX {
            self.delayed_until = now.saturating_add(self.config.delayed_ack);
        }
        false
    }

    fn keep(&mut self, mut from: u64, mut to: u64) {
        self.latest = from;
        // The ranges that touch it, from the first that ends at or after its begin.
        let first = self.early.partition_point(|it| it.1 < from);
        let behind = self.early.partition_point(|it| it.0 <= to);
        if let Some(touched) = self.early.get(first..behind)
            && let (Some(low), Some(high)) = (touched.first(), touched.last())
        {
            self.duplicate = low.0 <= from && to <= low.1;
            (from, to) = (from.min(low.0), to.max(high.1));
            self.early.drain(first + 1..behind);
            self.early[first] = (from, to);
        } else {
            self.early.insert(first, (from, to));
        }
    }

    /// Merges out-of-order ranges that are in order now; returns true if there was one.
    fn take_early(&mut self) -> bool {
        let before = self.early.len();
        while let Some(&(from, to)) = self.early.first() {
            if from > self.next {
                break;
            }
            self.next = self.next.max(to);
            self.early.remove(0);
        }
        self.early.len() < before
    }
}
