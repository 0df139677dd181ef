//! State of one guest: its guarantee, its buckets and its waiting frames.

use super::backlog::Backlog;
use super::buckets::Buckets;
use super::cap::Cap;
use super::index::{FlowsIndex, FrameIndex, LineIndex};
use super::round::Round;
use super::tree::Tree;
use super::{Guarantee, GuestStats, PacerConfig};
use crate::{Frame, GuestId};
use tailbound_units::exact::TokenBucket;
use tailbound_units::{Bytes, Nanos, Position, Rate, WireBytes};

/// Kind of a guest's guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contract {
    /// {B, S, Bmax}.
    Guaranteed,
    /// No guarantee.
    BestEffort,
}

/// Reference from a guest to its elastic flows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// The flows; `NONE` without any.
    pub(super) flows: FlowsIndex,
    /// Position since which the guest has had elastic flows.
    pub(super) began: Position,
    /// Earliest position at which the guest may have an elastic flow again, and the length of the
    /// next pause.
    pub(super) not_before: Position,
    pub(super) pause: WireBytes,
}

impl Terms {
    /// Terms of a guest that never had elastic flows.
    pub(super) const NONE: Self = Self {
        flows: FlowsIndex::NONE,
        began: Position::ZERO,
        not_before: Position::ZERO,
        pause: WireBytes::ZERO,
    };

    /// Restarts the terms on a wire whose positions are new, from `at` on.
    pub(super) const fn restart(&mut self, at: Position) {
        self.began = at;
        self.not_before = at;
        self.pause = WireBytes::ZERO;
    }
}

/// The lines of a guest, and what its limited destinations share.
#[derive(Debug)]
pub(super) struct GuestLines {
    /// The line of frames without a limit.
    pub(super) unlimited: LineIndex,
    /// Number of lines that have frames.
    pub(super) busy: u32,
    /// The first line of a destination that has a limit; `NONE` without any.
    pub(super) first: LineIndex,
    /// The number of these lines.
    pub(super) limited: u32,
    /// Lines that recently received frames, by the last bits of their destinations: an entry may be
    /// outdated.
    recent: [LineIndex; RECENT],
    /// Buckets that several destinations share; `None` without any.
    pub(super) tree: Option<Box<Tree>>,
}

/// Number of lines that a guest remembers, a power of two.
const RECENT: usize = 16;

impl GuestLines {
    const NONE: Self = Self {
        unlimited: LineIndex::NONE,
        busy: 0,
        first: LineIndex::NONE,
        limited: 0,
        recent: [LineIndex::NONE; RECENT],
        tree: None,
    };

    /// Returns the remembered line of a destination, which may be another's.
    #[inline(always)]
    pub(super) const fn remembered(&self, destination: u128) -> LineIndex {
        self.recent[destination as usize % RECENT]
    }

    /// Remembers the line of a destination.
    pub(super) const fn remember(&mut self, destination: u128, line: LineIndex) {
        self.recent[destination as usize % RECENT] = line;
    }
}

/// A guest with a guarantee, or one that had one.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) id: GuestId,
    pub(super) contract: Contract,
    pub(super) guarantee: Guarantee,
    /// {B, S} and {Bmax, one frame}.
    pub(super) buckets: Buckets,
    /// The frame that has a departure time.
    pub(super) stamped: FrameIndex,
    /// Lines whose first frame is released.
    pub(super) round: Round<LineIndex>,
    pub(super) backlog: Backlog,
    pub(super) lines: GuestLines,
    /// Waiting time after which frames in a line count as late.
    pub(super) patience: Nanos,
    /// Its elastic flows.
    pub(super) elastic: Terms,
    /// Limit of the guest's total traffic; `None` without one.
    pub(super) cap: Option<Box<Cap>>,
    pub(super) stats: GuestStats,
}

impl Guest {
    /// Creates a guaranteed guest with full buckets. `None` if a bucket would be too deep.
    pub(super) fn new(config: &PacerConfig, id: GuestId, guarantee: &Guarantee) -> Option<Self> {
        Some(Self {
            id,
            contract: Contract::Guaranteed,
            guarantee: *guarantee,
            buckets: Buckets::new(config, guarantee)?,
            stamped: FrameIndex::NONE,
            round: Round::EMPTY,
            backlog: Backlog::new(guarantee),
            lines: GuestLines::NONE,
            patience: guarantee.mark.unwrap_or(Nanos::MAX),
            elastic: Terms::NONE,
            cap: None,
            stats: GuestStats::default(),
        })
    }

    /// Returns the destination of one of its frames; `None` if the guest has no limits.
    #[inline(always)]
    pub(super) fn destination<F: Frame>(&self, frame: &F) -> Option<u128> {
        if self.lines.limited == 0 {
            return None;
        }
        Some(frame.flow()?.destination)
    }

    /// Checks whether the guest has a guarantee.
    #[inline(always)]
    pub(super) fn is_guaranteed(&self) -> bool {
        self.contract == Contract::Guaranteed
    }

    /// Returns the bucket of a new destination, at B: full, so that a first message does not wait.
    /// With a part of an inward burst it is as deep as that and empty, because earlier traffic to
    /// the receiver, also through another process, is unknown.
    pub(super) fn new_bucket(&self, link: Rate, at: Position) -> TokenBucket<Position> {
        let depth = self.guarantee.to_each(Bytes::ZERO);
        let bucket = TokenBucket::on_wire(link, self.guarantee.bandwidth, depth.into());
        match (self.guarantee.credit, bucket) {
            (Some(_), Some(bucket)) => bucket.empty(at),
            _ => self.buckets.full_average(),
        }
    }

    /// Takes over the guarantee of `fresh`, under `config`. `from`, which is `to` on its link, is
    /// not before the last departure.
    pub(super) fn reconfigure(
        &mut self,
        config: &PacerConfig,
        fresh: &Self,
        (from, to): (Position, Position),
    ) {
        self.contract = Contract::Guaranteed;
        self.guarantee = fresh.guarantee;
        self.buckets.reconfigure(&fresh.buckets, from, to);
        if let Some(cap) = &mut self.cap {
            let fresh = Cap::new(*cap.limit(), &self.guarantee, config);
            cap.reconfigure(&fresh, from, to);
        }
        self.backlog.reconfigure(&fresh.backlog);
        self.patience = fresh.patience;
    }

    /// Waiting time after which frames of its elastic flows count as late, in addition to its mark.
    pub(super) fn target(&self) -> Nanos {
        self.cap.as_ref().map_or(Nanos::ZERO, |cap| cap.target())
    }

    /// Checks whether frames of the guest wait for {B, S} at `at`. If none has a departure time,
    /// checks whether one of `longest` bytes would wait.
    pub(super) fn waits_for_guarantee(&self, at: Position, longest: WireBytes) -> bool {
        if self.stamped.is_none() {
            self.lines.busy > 0 && !self.buckets.holds(at, longest)
        } else {
            let departure = self.buckets.last_departure();
            departure > at && !self.buckets.holds(at, WireBytes::ZERO)
        }
    }

    /// Takes back the frame that has a departure time after `at`, up to which the wire is taken: it
    /// waits for {B, S}, and its charge is refunded.
    pub(super) fn take_back(&mut self, wire: WireBytes, at: Position, is_local: bool) {
        self.buckets.take_back(wire, at, is_local);
        self.stamped = FrameIndex::NONE;
    }

    /// Stops reading the ring from the last frame on, which is of this line.
    pub(super) const fn leave_unread(&mut self, line: LineIndex) {
        self.backlog.leave_unread(line);
        self.stats.unread += 1;
    }
}
