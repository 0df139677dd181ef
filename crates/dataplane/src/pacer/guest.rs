//! One guest's guarantee, its buckets and what waits of it.

use super::cap::Cap;
use super::round::Round;
use super::store::NIL;
use super::{Guarantee, GuestStats, PacerConfig};
use crate::GuestId;
use tailbound_units::exact::TokenBucket;
use tailbound_units::{Bytes, Nanos, Position, WireBytes};

/// What a guest is guaranteed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contract {
    /// {B, S, Bmax}.
    Guaranteed,
    /// Nothing.
    BestEffort,
}

/// Whether a guest's ring is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ring {
    Read,
    /// {B, S} is what its frames wait for. `by` is the line whose frame came last.
    Unread {
        by: u32,
    },
}

/// What a guest knows of its elastic flows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// Where they are; `NIL` where it has none.
    pub(super) slot: u32,
    /// Since when it has had any.
    pub(super) began: Position,
    /// When it may have the first one again, and how long it is to pause next time.
    pub(super) not_before: Position,
    pub(super) pause: WireBytes,
}

impl Terms {
    /// Those of a guest that has had none.
    pub(super) const NONE: Self = Self {
        slot: NIL,
        began: Position::ZERO,
        not_before: Position::ZERO,
        pause: WireBytes::ZERO,
    };

    /// The same on a wire whose positions are new, from `at` on.
    pub(super) const fn restart(&mut self, at: Position) {
        self.began = at;
        self.not_before = at;
        self.pause = WireBytes::ZERO;
    }
}

/// The lower two thirds of the chain, and what waits for them.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) id: GuestId,
    pub(super) contract: Contract,
    pub(super) guarantee: Guarantee,
    /// {B, S}.
    average: TokenBucket<Position>,
    /// {Bmax, one frame}.
    peak: TokenBucket<Position>,
    /// The part of the frozen virtual time in which {B, S} has filled.
    made_up: WireBytes,
    /// The length whose cost both know.
    wire: WireBytes,
    /// The departure of the frame that has one, or of the last that had; none that
    /// follows is earlier, whatever changes.
    pub(super) last_departure: Position,
    /// The frame that has a departure time.
    pub(super) stamped: u32,
    /// Lines whose first frame is released, and what all their frames take of the wire.
    pub(super) round: Round,
    pub(super) released: WireBytes,
    /// How much of that may wait before the ring is left unread: what the guest may
    /// send within its horizon.
    headroom: WireBytes,
    pub(super) ring: Ring,
    /// It is among those whose rings are to be read again.
    pub(super) is_noted: bool,
    /// The line of frames without a limit, and the first of its limited ones.
    pub(super) unlimited: u32,
    pub(super) first_limited: u32,
    /// How many lines have a limit, and how many have frames.
    pub(super) limited: u32,
    pub(super) lines: u32,
    /// Lines to which frames went lately that had a limit, by the last bits of their
    /// destinations: what is there may be another's by now.
    pub(super) recent: [u32; RECENT],
    /// The memory that its frames hold, how much they may, and how much those of one
    /// line may.
    pub(super) memory: Bytes,
    pub(super) bound: Bytes,
    pub(super) share: Bytes,
    /// Half of either.
    half_bound: Bytes,
    pub(super) half_share: Bytes,
    /// From what wait on frames have waited too long in a line.
    pub(super) patience: Nanos,
    /// Its elastic flows.
    pub(super) elastic: Terms,
    /// What holds these to its limit; `None` where it has none.
    pub(super) cap: Option<Box<Cap>>,
    pub(super) stats: GuestStats,
}

/// How many lines a guest remembers, a power of two.
pub(super) const RECENT: usize = 16;

/// What a guest may hold whatever its bandwidth: four large packets that are cut to the
/// smallest segments, or 900 full frames.
const LEAST_MEMORY: Bytes = Bytes(2 << 20);

/// What it may hold in time at its bandwidth.
const MEMORY_IN_TIME: Nanos = Nanos::from_millis(20);

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
            made_up: WireBytes::ZERO,
            wire: WireBytes::ZERO,
            last_departure: Position::ZERO,
            stamped: NIL,
            round: Round::EMPTY,
            released: WireBytes::ZERO,
            headroom: guarantee.bandwidth.bytes_in(guarantee.horizon).into(),
            ring: Ring::Read,
            is_noted: false,
            unlimited: NIL,
            first_limited: NIL,
            limited: 0,
            lines: 0,
            recent: [NIL; RECENT],
            memory: Bytes(0),
            bound: Bytes(0),
            share: Bytes(0),
            half_bound: Bytes(0),
            half_share: Bytes(0),
            patience: guarantee.mark.unwrap_or(Nanos::MAX),
            elastic: Terms::NONE,
            cap: None,
            stats: GuestStats::default(),
        })
    }

    /// The memory that a guest with this guarantee may hold where there is enough.
    pub(super) fn memory_for(guarantee: &Guarantee) -> Bytes {
        guarantee
            .bandwidth
            .bytes_in(MEMORY_IN_TIME)
            .max(LEAST_MEMORY)
    }

    /// Sets how much memory its frames may hold, where what is there is divided into so
    /// many parts.
    pub(super) fn set_bound(&mut self, there: Bytes, parts: Bytes) {
        let most = Self::memory_for(&self.guarantee);
        let part = u128::from(most.0) * u128::from(there.0) / u128::from(parts.0);
        self.bound = most.min(Bytes(part as u64));
        self.share = Bytes(self.bound.0 / 4);
        self.half_bound = Bytes(self.bound.0 / 2);
        self.half_share = Bytes(self.share.0 / 2);
    }

    /// Fills {B, S} for frozen virtual time, of `lost` bytes of the wire in all: the guarantee counts
    /// real time. The guest sends the missed frames afterwards, no faster than Bmax.
    #[inline(always)]
    pub(super) fn make_up(&mut self, lost: WireBytes) {
        if self.made_up != lost {
            self.fill_for(lost);
        }
    }

    #[cold]
    #[inline(never)]
    fn fill_for(&mut self, lost: WireBytes) {
        self.average
            .pass((lost - self.made_up).0, self.last_departure);
        self.made_up = lost;
    }

    /// What {B, S} holds at `now`.
    pub(super) fn holds(&self, now: Position) -> WireBytes {
        self.average.tokens(now)
    }

    /// Puts so many bytes into {B, S} at `now`, as far as it holds them.
    pub(super) fn fill(&mut self, bytes: WireBytes, now: Position) {
        self.average.fill(bytes, now);
    }

    /// Empties its buckets at `now`, which is not before the last departure.
    pub(super) fn drain(&mut self, now: Position) {
        self.average = self.average.empty(now);
        self.peak = self.peak.empty(now);
    }

    /// Returns a full bucket like that of {B, S}.
    pub(super) fn full_bucket(&self) -> TokenBucket<Position> {
        self.average.full()
    }

    /// Returns the same guest with empty buckets at `now`.
    /// `lost` is what virtual time was frozen for until then.
    pub(super) fn empty(self, now: Position, lost: WireBytes) -> Self {
        Self {
            average: self.average.empty(now),
            peak: self.peak.empty(now),
            made_up: lost,
            ..self
        }
    }

    /// Takes over the guarantee of `fresh`, under `config`. `from`, which is `to` on its link, is not
    /// before the last departure.
    pub(super) fn reconfigure(
        &mut self,
        config: &PacerConfig,
        fresh: &Self,
        (from, to): (Position, Position),
    ) {
        debug_assert!(from >= self.last_departure, "frames keep their departures");
        self.contract = Contract::Guaranteed;
        self.guarantee = fresh.guarantee;
        self.average.reconfigure(&fresh.average, from, to);
        self.peak.reconfigure(&fresh.peak, from, to);
        if let Some(cap) = &mut self.cap {
            let fresh = Cap::new(*cap.limit(), &self.guarantee, config);
            cap.reconfigure(&fresh, from, to);
        }
        self.wire = WireBytes::ZERO;
        self.headroom = fresh.headroom;
        self.patience = fresh.patience;
    }

    /// From what wait on frames of its elastic flows have waited too long, where that is
    /// more than it says itself.
    pub(super) fn target(&self) -> Nanos {
        self.cap.as_ref().map_or(Nanos::ZERO, |cap| cap.target())
    }

    /// Charges a frame that comes at `arrival` and returns its departure.
    #[inline(always)]
    pub(super) fn schedule(&mut self, arrival: Position, wire: WireBytes) -> Position {
        // {B, S} may let it leave before the frame that was charged last, where it filled meanwhile.
        let average = self.charge_average(arrival, wire).max(self.last_departure);
        self.last_departure = self.peak.charge_again(average).leaves;
        self.last_departure
    }

    /// The same for a frame to another guest of this host, which is not charged to {Bmax, one
    /// frame}.
    pub(super) fn schedule_local(&mut self, arrival: Position, wire: WireBytes) -> Position {
        let leaves = self.charge_average(arrival, wire);
        self.last_departure = leaves.max(self.last_departure);
        self.last_departure
    }

    /// Charges a frame to {B, S}, and returns when it leaves that. Both buckets know its
    /// length then.
    #[inline(always)]
    fn charge_average(&mut self, arrival: Position, wire: WireBytes) -> Position {
        if wire != self.wire {
            self.wire = wire;
            self.average.set_len(wire);
            self.peak.set_len(wire);
        }
        self.average.charge_again(arrival).leaves
    }

    /// Whether frames of it wait for {B, S} at `at`, as far as what waits for a destination
    /// tells: then one of `longest` bytes would.
    pub(super) fn waits_for_guarantee(&self, at: Position, longest: WireBytes) -> bool {
        if self.stamped == NIL {
            self.lines > 0 && !self.average.holds(at, longest)
        } else {
            self.last_departure > at && !self.average.holds(at, WireBytes::ZERO)
        }
    }

    /// Takes the frame back that has a departure time after `at`, up to which the wire is
    /// taken: it waits for {B, S}, and is as if it had not been charged to that. {Bmax,
    /// one frame} may be emptier than it was.
    pub(super) fn take_back(&mut self, wire: WireBytes, at: Position) {
        self.average.fill(wire, at);
        self.peak.fill(wire, at);
        self.stamped = NIL;
        // What was handed over departed before.
        self.last_departure = self.last_departure.min(at);
    }

    /// Charges the frame anew, from `at` on, that has a departure time before that.
    pub(super) fn charge_anew(&mut self, wire: WireBytes, at: Position, is_local: bool) {
        let stamped = self.stamped;
        self.take_back(wire, at);
        self.stamped = stamped;
        if is_local {
            self.schedule_local(at, wire);
        } else {
            self.schedule(at, wire);
        }
    }

    /// Whether {B, S} is what holds its frames up, so that its ring should not be read. A line
    /// whose memory is above half of its share has it be left unread as well.
    #[inline(always)]
    pub(super) fn is_crowded(&self) -> bool {
        self.released > self.headroom || self.memory > self.half_bound
    }

    /// Whether frames that take so much more of the wire and of memory leave it uncrowded.
    pub(super) fn has_room_for(&self, wire: WireBytes, memory: Bytes) -> bool {
        let memory = Bytes(self.memory.0 + memory.0);
        self.released + wire <= self.headroom && memory <= self.half_bound
    }

    /// Has its ring be left unread from the frame on that came last, of this line.
    pub(super) const fn leave_unread(&mut self, line: u32) {
        self.ring = Ring::Unread { by: line };
        self.stats.unread += 1;
    }

    /// Whether that is over, by a quarter.
    pub(super) fn has_room(&self, memory: Bytes) -> bool {
        self.round.is_empty()
            || self.released <= self.headroom / 4 * 3
                && memory.0 <= self.share.0 / 8 * 3
                && self.memory.0 <= self.bound.0 / 8 * 3
    }
}

/// The guest of that id where it has a guarantee.
#[inline(always)]
pub(super) fn guaranteed(guests: &mut [Option<Guest>], id: Option<GuestId>) -> Option<&mut Guest> {
    let id = id?;
    match guests.get_mut(id.slot()) {
        Some(Some(guest)) if guest.id == id && guest.contract == Contract::Guaranteed => {
            Some(guest)
        }
        _ => None,
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
