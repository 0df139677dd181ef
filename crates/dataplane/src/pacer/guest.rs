//! One guest's guarantee, its buckets and what waits of it.

use super::{Guarantee, GuestStats, PacerConfig};
use crate::{Frame, GuestId};
use tailbound_units::exact::TokenBucket;
use tailbound_units::{Position, WireBytes};

/// What a guest is guaranteed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contract {
    /// {B, S, Bmax}.
    Guaranteed,
    /// Nothing any more, but some of its scheduled frames may still wait.
    Draining,
    /// Nothing.
    BestEffort,
}

/// How long a frame may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Until its guest's horizon; else it would block.
    Horizon,
    /// As long as a wheel reaches: the packet it belongs to is taken already.
    Wheel,
}

/// A frame would leave later than it may; and when it would.
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
    pub(super) id: GuestId,
    pub(super) contract: Contract,
    pub(super) guarantee: Guarantee,
    /// {B, S}.
    average: TokenBucket<Position>,
    /// {Bmax, one frame}.
    peak: TokenBucket<Position>,
    /// The last departure of its frames; none that follows is earlier, whatever
    /// changes.
    pub(super) last_departure: Position,
    /// Its horizon, and the wait from which on frames are marked.
    pub(super) horizon: WireBytes,
    pub(super) mark: WireBytes,
    /// Its flows that have a limit.
    pub(super) limited: u32,
    /// What its frames at the destination stage take of the wire, and how much they
    /// may before more would block: what it may send within its horizon.
    pub(super) at_destinations: WireBytes,
    headroom: WireBytes,
    /// Frames of flows without a limit wait until then at least, since their
    /// flows had one, and frames that wait for it.
    pub(super) not_before: Position,
    pub(super) stats: GuestStats,
}

impl Guest {
    /// Returns a guest that is guaranteed, with full buckets. `None` where a bucket
    /// would be too deep.
    pub(super) fn new(config: &PacerConfig, id: GuestId, guarantee: &Guarantee) -> Option<Self> {
        let link = config.link;
        Some(Self {
            id,
            contract: Contract::Guaranteed,
            guarantee: *guarantee,
            average: TokenBucket::on_wire(link, guarantee.bandwidth, guarantee.burst.into())?,
            peak: TokenBucket::on_wire(link, guarantee.burst_rate, config.longest_frame())?,
            last_departure: Position::ZERO,
            horizon: link.bytes_in(guarantee.horizon).into(),
            mark: guarantee
                .mark
                .map_or(WireBytes::MAX, |wait| link.bytes_in(wait).into()),
            limited: 0,
            at_destinations: WireBytes::ZERO,
            headroom: guarantee.bandwidth.bytes_in(guarantee.horizon).into(),
            not_before: Position::ZERO,
            stats: GuestStats::default(),
        })
    }

    /// Returns a full bucket like that of {B, S}.
    pub(super) fn full_bucket(&self) -> TokenBucket<Position> {
        self.average.full()
    }

    /// Returns the same guest with empty buckets at `now`.
    pub(super) fn empty(self, now: Position) -> Self {
        Self {
            average: self.average.empty(now),
            peak: self.peak.empty(now),
            ..self
        }
    }

    /// Takes over the guarantee of `fresh`. `from`, which is `to` on its link, is not
    /// before the last departure.
    pub(super) fn reconfigure(&mut self, fresh: &Self, from: Position, to: Position) {
        self.guarantee = fresh.guarantee;
        self.average.reconfigure(&fresh.average, from, to);
        self.peak.reconfigure(&fresh.peak, from, to);
        self.horizon = fresh.horizon;
        self.mark = fresh.mark;
        self.headroom = fresh.headroom;
        debug_assert!(from >= self.last_departure, "frames keep their departures");
    }

    /// Charges a frame that comes at `arrival` and returns its departure.
    ///
    /// # Errors
    /// Its departure, where that is after `until`. Then nothing was charged.
    #[inline(always)]
    pub(super) fn schedule(
        &mut self,
        arrival: Position,
        wire: WireBytes,
        until: Position,
    ) -> Result<Position, TooLate> {
        let average = self.average.charge(arrival, wire);
        let peak = self.peak.charge(average.leaves, wire);
        let departure = peak.leaves.max(self.last_departure);
        if departure > until {
            self.average.refund(average);
            self.peak.refund(peak);
            return Err(TooLate(departure));
        }
        self.last_departure = departure;
        Ok(departure)
    }

    /// Charges a frame and returns its departure, however late that is.
    pub(super) fn schedule_anyway(&mut self, arrival: Position, wire: WireBytes) -> Position {
        let (Ok(departure) | Err(TooLate(departure))) =
            self.schedule(arrival, wire, Position::NEVER);
        departure
    }

    /// Counts a frame that comes at `position` and waits until `until`, and marks it
    /// where that is long.
    #[inline(always)]
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

    /// Lets a frame wait for its destination until `release`, and returns that.
    ///
    /// # Errors
    /// When it could come, where that is after `until`, or where too much waits for
    /// destinations and its packet is not taken yet.
    pub(super) fn wait_for_destination(
        &mut self,
        release: Position,
        wire: WireBytes,
        until: Position,
        patience: Patience,
    ) -> Result<Position, TooLate> {
        if release > until || self.is_crowded() && patience == Patience::Horizon {
            return Err(TooLate(release.max(next_byte(until))));
        }
        self.at_destinations += wire;
        Ok(release)
    }

    /// Whether more waits for destinations than the guest may send within its horizon.
    pub(super) fn is_crowded(&self) -> bool {
        self.at_destinations > self.headroom
    }
}

/// The guest of that id among those by slot; none where another one has its slot.
#[inline(always)]
pub(super) fn find(guests: &[Option<Guest>], id: GuestId) -> Option<&Guest> {
    let guest = guests.get(id.slot())?.as_ref();
    guest.filter(|guest| guest.id == id)
}

/// The same, to be changed.
#[inline(always)]
pub(super) fn find_mut(guests: &mut [Option<Guest>], id: GuestId) -> Option<&mut Guest> {
    let guest = guests.get_mut(id.slot())?.as_mut();
    guest.filter(|guest| guest.id == id)
}

/// Where a frame waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// For its destination's limit.
    Destination,
    /// For the wire.
    Link,
}

/// A frame's place in the pacer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scheduled {
    pub(super) guest: u32,
    pub(super) stage: Stage,
    /// When it leaves that stage.
    pub(super) departure: Position,
}
