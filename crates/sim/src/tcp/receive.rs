//! The receiving half: what is acknowledged when, and how far the window is open.

use super::{Ecn, Edge, MSS, Sack, Segment, TcpConfig};
use tailbound_units::Nanos;

#[derive(Debug, Clone)]
pub(super) struct Receiver {
    config: TcpConfig,
    /// The next place that is expected.
    next: u64,
    /// Up to where it was acknowledged.
    told: u64,
    /// The peer may send up to here; never goes back.
    edge: u64,
    /// How much may be offered by now (`rcv_ssthresh`).
    offered: u32,
    /// Bytes in order that were not read.
    unread: u64,
    /// Whether the peer has ended its stream, and where.
    finish: Option<u64>,
    /// What came too early: places from and to, apart and in order.
    early: Vec<(u64, u64)>,
    /// What came too early last, and whether the last segment was here before.
    latest: u64,
    duplicate: bool,
    /// Whether the last segment with data was marked.
    marked: bool,
    /// Segments that are still acknowledged at once.
    quick: u32,
    /// The time stamp to be answered with.
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

    /// One that has the peer's SYN.
    pub(super) fn open(config: TcpConfig) -> Self {
        Self {
            next: 1,
            told: 1,
            edge: 1 + u64::from(config.first_receive_window),
            ..Self::new(config)
        }
    }

    /// Whether marks are to be told (RFC 8257, 3.2).
    pub(super) const fn marked(&self) -> bool {
        self.marked
    }

    /// Whether an acknowledgement that is held back must go before this segment is taken, for
    /// its mark differs.
    pub(super) fn owes_before(&self, segment: &Segment) -> bool {
        let marked = segment.ecn == Ecn::Marked;
        segment.len > 0 && marked != self.marked && self.delayed_until != Nanos::MAX
    }

    /// What came too early, for the segment that acknowledges all before: the block with the
    /// last segment first, then those below it (RFC 2018, 4).
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

    /// The next place that is expected.
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

    /// The window to be told with the next segment, from [`Receiver::acknowledged`] on.
    pub(super) fn window(&self) -> u32 {
        u32::try_from(self.edge - self.next).unwrap_or(u32::MAX)
    }

    /// Returns what the next segment acknowledges, as that segment goes.
    pub(super) fn acknowledged(&mut self) -> u64 {
        self.told = self.next;
        self.delayed_until = Nanos::MAX;
        self.edge = self.edge.max(self.next + self.free());
        self.next
    }

    /// What may be offered beyond the next place.
    fn free(&self) -> u64 {
        let room = u64::from(self.config.receive_window).saturating_sub(self.unread);
        room.min(u64::from(self.offered))
    }

    pub(super) fn read(&mut self) -> u64 {
        std::mem::take(&mut self.unread)
    }

    /// Whether the window has opened so far since it was told that the peer should know
    /// (`tcp_cleanup_rbuf`): to twice what it was.
    pub(super) fn owes_update(&self) -> bool {
        let now = self.edge - self.next;
        2 * now <= u64::from(self.config.receive_window) && self.free() >= 2 * now.max(1)
    }

    /// Takes a segment. Returns whether it must be acknowledged at once.
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
            // A probe of a window, or keep-alive: a place from before.
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
            // A SYN is acknowledged by ours, or at once by who opened.
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
        // Those that touch it, from the first that ends at or behind its begin.
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

    /// Joins what came too early to what is in order now; returns whether there was any.
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
