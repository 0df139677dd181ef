//! One guest's guarantee, and where its frames stand.

use super::{Guarantee, GuestStats, PacerConfig};
use crate::Frame;
use tailbound_units::exact::TokenBucket;
use tailbound_units::{Position, WireBytes};

/// Whether a guest is guaranteed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Terms {
    Guaranteed,
    /// It was, and some of its stamped frames may still wait.
    Leaving,
    BestEffort,
}

/// How long a frame may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Until its guest's horizon; else it is given back.
    Horizon,
    /// As long as stamps reach: the packet it belongs to is taken already.
    Wheel,
}

/// A frame would leave later than it may: then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLate(pub(super) Position);

/// The first position after one.
#[inline]
pub(super) fn next_byte(position: Position) -> Position {
    position + WireBytes(1)
}

/// The lower two thirds of the chain.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) terms: Terms,
    pub(super) guarantee: Guarantee,
    /// {B, S}.
    average: TokenBucket<Position>,
    /// {Bmax, one frame}.
    peak: TokenBucket<Position>,
    /// The latest stamp of its frames; none that follows is earlier, whatever
    /// changes.
    pub(super) last: Position,
    /// Its horizon and the wait from which on frames are marked, in bytes of the
    /// wire.
    pub(super) horizon: WireBytes,
    pub(super) mark: WireBytes,
    /// Its flows that have a limit.
    pub(super) limited: u32,
    /// Bytes on the wire of its frames that wait for such limits, and how many
    /// may before more are held back: what it may send within its horizon.
    pub(super) upstream: WireBytes,
    pub(super) room: WireBytes,
    /// Frames of flows without a limit wait until then at least, since their
    /// flows had one, and frames that wait for it.
    pub(super) after: Position,
    pub(super) stats: GuestStats,
}

impl Guest {
    /// A guest that is guaranteed, with full buckets. `None` where a bucket would
    /// be too deep.
    pub(super) fn new(config: &PacerConfig, guarantee: &Guarantee) -> Option<Self> {
        let link = config.link;
        Some(Self {
            terms: Terms::Guaranteed,
            guarantee: *guarantee,
            average: TokenBucket::on_wire(link, guarantee.bandwidth, guarantee.burst.into())?,
            peak: TokenBucket::on_wire(link, guarantee.burst_rate, config.longest_frame())?,
            last: Position::ZERO,
            horizon: link.bytes_in(guarantee.horizon).into(),
            mark: guarantee
                .mark
                .map_or(WireBytes::MAX, |wait| link.bytes_in(wait).into()),
            limited: 0,
            upstream: WireBytes::ZERO,
            room: guarantee.bandwidth.bytes_in(guarantee.horizon).into(),
            after: Position::ZERO,
            stats: GuestStats::default(),
        })
    }

    /// A full bucket like that of {B, S}.
    pub(super) fn full_bucket(&self) -> TokenBucket<Position> {
        self.average.full()
    }

    /// The same with empty buckets at `now`.
    pub(super) fn empty(self, now: Position) -> Self {
        Self {
            average: self.average.empty(now),
            peak: self.peak.empty(now),
            ..self
        }
    }

    /// Takes over what is new of `fresh`; `from`, which is `to` on its link, is not
    /// before the last stamp.
    pub(super) fn become_like(&mut self, fresh: &Self, from: Position, to: Position) {
        self.guarantee = fresh.guarantee;
        self.average.reconfigure(&fresh.average, from, to);
        self.peak.reconfigure(&fresh.peak, from, to);
        self.horizon = fresh.horizon;
        self.mark = fresh.mark;
        self.room = fresh.room;
    }

    /// Charges a frame that comes at `arrival`; gives its stamp.
    ///
    /// # Errors
    /// Its stamp, where that is after `until`. Then nothing was charged.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    pub(super) fn stamp(
        &mut self,
        arrival: Position,
        wire: WireBytes,
        until: Position,
    ) -> Result<Position, TooLate> {
        let average = self.average.charge(arrival, wire);
        let peak = self.peak.charge(average.leaves, wire);
        let stamp = peak.leaves.max(self.last);
        if stamp > until {
            self.average.refund(average);
            self.peak.refund(peak);
            return Err(TooLate(stamp));
        }
        self.last = stamp;
        Ok(stamp)
    }

    /// The same however late it is.
    pub(super) fn stamp_anyway(&mut self, arrival: Position, wire: WireBytes) -> Position {
        let (Ok(stamp) | Err(TooLate(stamp))) = self.stamp(arrival, wire, Position::NEVER);
        stamp
    }

    /// Counts a frame that waits until `until`, and marks it where that is long.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    pub(super) fn count<F: Frame>(
        &mut self,
        position: Position,
        frame: &mut F,
        wire: WireBytes,
        until: Position,
    ) {
        self.stats.taken.packets += 1;
        self.stats.wait = until - position;
        if self.stats.wait > self.mark && frame.mark_congestion() {
            self.stats.marked += 1;
        }
        // Apart from the packets: no vector of both is put together and taken apart.
        self.stats.taken.bytes += wire;
    }

    /// Lets a frame wait for its destination until `release`, and gives that.
    ///
    /// # Errors
    /// When it could come, where that is after `until`, or where too much waits for
    /// destinations and its packet is not taken yet.
    pub(super) fn hold(
        &mut self,
        release: Position,
        wire: WireBytes,
        until: Position,
        patience: Patience,
    ) -> Result<Position, TooLate> {
        if release > until || self.is_crowded() && patience == Patience::Horizon {
            return Err(TooLate(release.max(next_byte(until))));
        }
        self.upstream += wire;
        Ok(release)
    }

    /// Whether more waits for destinations than the guest may send in its horizon.
    pub(super) fn is_crowded(&self) -> bool {
        self.upstream > self.room
    }
}

/// Where a frame waits: for its destination, until it is released, or for the
/// wire, until its stamp.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) guest: u32,
    pub(super) upstream: bool,
    pub(super) stamp: Position,
}
