//! State of one guest: its guarantee, its buckets and its waiting frames.

use super::cap::Cap;
use super::index::{FlowsIndex, FrameIndex, GuestIndex, LineIndex, Table};
use super::round::Round;
use super::tree::Tree;
use super::{Guarantee, GuestStats, PacerConfig};
use crate::GuestId;
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

/// Permission to read a guest's ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ring {
    Read,
    /// The guest's frames wait for {B, S}. `by` is the line of the last frame.
    Unread {
        by: LineIndex,
    },
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

/// The destinations of a guest that have a limit.
#[derive(Debug)]
pub(super) struct Destinations {
    /// The first of their lines; `NONE` without any.
    pub(super) first: LineIndex,
    /// Their number.
    pub(super) count: u32,
    /// Lines that recently received frames, by the last bits of their destinations: an entry may be
    /// outdated.
    pub(super) recent: [LineIndex; RECENT],
    /// Buckets that several destinations share; `None` without any.
    pub(super) tree: Option<Box<Tree>>,
}

impl Destinations {
    const NONE: Self = Self {
        first: LineIndex::NONE,
        count: 0,
        recent: [LineIndex::NONE; RECENT],
        tree: None,
    };
}

/// The lower two thirds of the bucket chain, and the frames that wait for them.
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
    /// The length of the last charged frame, whose cost both buckets have computed.
    pub(super) wire: WireBytes,
    /// The departure of the frame that has one, or of the last frame that had one; no later frame
    /// departs earlier, even after changes.
    pub(super) last_departure: Position,
    /// The frame that has a departure time.
    pub(super) stamped: FrameIndex,
    /// Lines whose first frame is released, and the length of all their frames on the wire.
    pub(super) round: Round<LineIndex>,
    pub(super) released: WireBytes,
    /// Limit of `released` beyond which the ring is not read: the bytes that the guest may send
    /// within its horizon.
    headroom: WireBytes,
    pub(super) ring: Ring,
    /// True if the guest is among those whose rings may be read again.
    pub(super) is_noted: bool,
    /// The line of frames without a limit.
    pub(super) unlimited: LineIndex,
    /// Number of lines that have frames.
    pub(super) lines: u32,
    pub(super) destinations: Destinations,
    /// Memory of the guest's frames, its limit, and the limit of one line.
    pub(super) memory: Bytes,
    pub(super) bound: Bytes,
    pub(super) share: Bytes,
    /// Half of either limit.
    half_bound: Bytes,
    pub(super) half_share: Bytes,
    /// Waiting time after which frames in a line count as late.
    pub(super) patience: Nanos,
    /// Its elastic flows.
    pub(super) elastic: Terms,
    /// Limit of the guest's total traffic; `None` without one.
    pub(super) cap: Option<Box<Cap>>,
    pub(super) stats: GuestStats,
}

/// Number of lines that a guest remembers, a power of two.
pub(super) const RECENT: usize = 16;

/// Minimum memory limit of a guest at any bandwidth: four large packets with the smallest segments,
/// or 900 full frames.
const LEAST_MEMORY: Bytes = Bytes(2 << 20);

/// Memory limit of a guest, as time at its bandwidth.
const MEMORY_IN_TIME: Nanos = Nanos::from_millis(20);

impl Guest {
    /// Creates a guaranteed guest with full buckets. `None` if a bucket would be too deep.
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
            stamped: FrameIndex::NONE,
            round: Round::EMPTY,
            released: WireBytes::ZERO,
            headroom: guarantee.bandwidth.bytes_in(guarantee.horizon).into(),
            ring: Ring::Read,
            is_noted: false,
            unlimited: LineIndex::NONE,
            lines: 0,
            destinations: Destinations::NONE,
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

    /// Maximum memory of a guest with this guarantee, without the common limit.
    pub(super) fn memory_for(guarantee: &Guarantee) -> Bytes {
        guarantee
            .bandwidth
            .bytes_in(MEMORY_IN_TIME)
            .max(LEAST_MEMORY)
    }

    /// Sets the memory limit of the guest's frames: its part if `there` bytes are divided into
    /// `parts`.
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
        let ticks = (lost - self.made_up).0;
        // {B, S} is never full before {Bmax, one frame}. Otherwise a frame that waits for that
        // bucket would be charged before it departs, and {B, S} would fill beyond S meanwhile.
        let peak = self.peak.full_at();
        self.average.pass(ticks, self.last_departure, peak);
        self.made_up = lost;
    }

    /// Tokens in {B, S} at `now`.
    pub(super) fn holds(&self, now: Position) -> WireBytes {
        self.average.tokens(now)
    }

    /// Adds tokens to {B, S} at `now`, up to its depth.
    pub(super) fn fill(&mut self, bytes: WireBytes, now: Position) {
        self.average.fill(bytes, now);
    }

    /// Empties the buckets at `now`, which is not before the last departure.
    pub(super) fn drain(&mut self, now: Position) {
        self.average = self.average.empty(now);
        self.peak = self.peak.empty(now);
    }

    /// Returns the bucket of a new destination, at B: full, so that a first message does not wait.
    /// With a part of an inward burst it is as deep as that and empty, because earlier traffic to
    /// the receiver, also through another process, is unknown.
    pub(super) fn new_bucket(&self, link: Rate, at: Position) -> TokenBucket<Position> {
        let depth = self.guarantee.to_each();
        let bucket = TokenBucket::on_wire(link, self.guarantee.bandwidth, depth.into());
        match (self.guarantee.credit, bucket) {
            (Some(_), Some(bucket)) => bucket.empty(at),
            _ => self.average.full(),
        }
    }

    /// Returns the same guest with empty buckets at `now`. Virtual time was frozen for `lost` bytes
    /// until then.
    pub(super) fn empty(self, now: Position, lost: WireBytes) -> Self {
        Self {
            average: self.average.empty(now),
            peak: self.peak.empty(now),
            made_up: lost,
            ..self
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
        debug_assert!(from >= self.last_departure, "frames keep their departures");
        self.contract = Contract::Guaranteed;
        self.guarantee = fresh.guarantee;
        self.average.reconfigure(&fresh.average, from, to);
        self.peak.reconfigure(&fresh.peak, from, to);
        if let Some(cap) = &mut self.cap {
            let fresh = Cap::new(*cap.limit(), &self.guarantee, config);
            cap.reconfigure(&fresh, from, to);
        }
        // The frame that has a departure counts until then.
        self.average.set_len(self.wire);
        self.peak.set_len(self.wire);
        self.headroom = fresh.headroom;
        self.patience = fresh.patience;
    }

    /// Waiting time after which frames of its elastic flows count as late, in addition to its mark.
    pub(super) fn target(&self) -> Nanos {
        self.cap.as_ref().map_or(Nanos::ZERO, |cap| cap.target())
    }

    /// Charges a frame that arrives at `arrival` and returns its departure.
    #[inline(always)]
    pub(super) fn schedule(&mut self, arrival: Position, wire: WireBytes) -> Position {
        // A bucket {B, S} that filled meanwhile may permit a departure before that of the last
        // charged frame.
        let average = self.charge_average(arrival, wire).max(self.last_departure);
        self.last_departure = self.peak.charge_again(average).leaves;
        self.last_departure
    }

    /// Charges a frame to another guest of this host, which is not charged to {Bmax, one frame}.
    pub(super) fn schedule_local(&mut self, arrival: Position, wire: WireBytes) -> Position {
        let leaves = self.charge_average(arrival, wire);
        self.last_departure = leaves.max(self.last_departure);
        self.last_departure
    }

    /// Charges a frame to {B, S}, and returns the time at which it leaves that bucket. Both buckets
    /// then know its length.
    #[inline(always)]
    fn charge_average(&mut self, arrival: Position, wire: WireBytes) -> Position {
        if wire != self.wire {
            self.wire = wire;
            self.average.set_len(wire);
            self.peak.set_len(wire);
        }
        self.average.charge_again(arrival).leaves
    }

    /// Checks whether frames of the guest wait for {B, S} at `at`. If none has a departure time,
    /// checks whether one of `longest` bytes would wait.
    pub(super) fn waits_for_guarantee(&self, at: Position, longest: WireBytes) -> bool {
        if self.stamped.is_none() {
            self.lines > 0 && !self.average.holds(at, longest)
        } else {
            self.last_departure > at && !self.average.holds(at, WireBytes::ZERO)
        }
    }

    /// Takes back the frame that has a departure time after `at`, up to which the wire is taken: it
    /// waits for {B, S}, and its charge is refunded. {Bmax, one frame} may have fewer tokens than
    /// before. A frame to a guest of this host was not charged to it.
    pub(super) fn take_back(&mut self, wire: WireBytes, at: Position, is_local: bool) {
        self.average.fill(wire, at);
        if !is_local {
            self.peak.fill(wire, at);
        }
        self.stamped = FrameIndex::NONE;
        // All frames that were passed on departed before.
        self.last_departure = self.last_departure.min(at);
    }

    /// Charges the frame that has a departure time before `at` again, from `at` on.
    pub(super) fn charge_anew(&mut self, wire: WireBytes, at: Position, is_local: bool) {
        let stamped = self.stamped;
        self.take_back(wire, at, is_local);
        self.stamped = stamped;
        if is_local {
            self.schedule_local(at, wire);
        } else {
            self.schedule(at, wire);
        }
    }

    /// Checks whether {B, S} delays its frames, or its memory is above half of the bound, so that
    /// its ring must not be read.
    #[inline(always)]
    pub(super) fn is_crowded(&self) -> bool {
        self.released > self.headroom || self.memory > self.half_bound
    }

    /// Checks whether frames of these additional lengths leave the guest uncrowded.
    pub(super) fn has_room_for(&self, wire: WireBytes, memory: Bytes) -> bool {
        let memory = Bytes(self.memory.0 + memory.0);
        self.released + wire <= self.headroom && memory <= self.half_bound
    }

    /// Stops reading the ring from the last frame on, which is of this line.
    pub(super) const fn leave_unread(&mut self, line: LineIndex) {
        self.ring = Ring::Unread { by: line };
        self.stats.unread += 1;
    }

    /// Checks whether the backlog has shrunk by a quarter.
    pub(super) fn has_room(&self, memory: Bytes) -> bool {
        self.round.is_empty()
            || self.released <= self.headroom / 4 * 3
                && memory.0 <= self.share.0 / 8 * 3
                && self.memory.0 <= self.bound.0 / 8 * 3
    }
}

/// All guests, by their slots.
pub(super) type Guests = Table<GuestIndex, Option<Guest>>;

/// The number of a guest.
#[inline(always)]
pub(super) const fn number_of(id: GuestId) -> GuestIndex {
    GuestIndex::new(id.slot())
}

/// Returns the guest with this id, if it has a guarantee.
#[inline(always)]
pub(super) fn guaranteed(guests: &mut Guests, id: Option<GuestId>) -> Option<&mut Guest> {
    let id = id?;
    match guests.get_mut(number_of(id)) {
        Some(Some(guest)) if guest.id == id && guest.contract == Contract::Guaranteed => {
            Some(guest)
        }
        _ => None,
    }
}

/// Returns the guest of a slot that a line, or a queue of guests, refers to: a guest keeps its slot
/// while its frames wait.
#[inline(always)]
pub(super) fn of_slot(guests: &mut Guests, slot: GuestIndex) -> &mut Guest {
    let guest = guests[slot].as_mut();
    guest.expect("a guest keeps its slot while its frames wait")
}

/// Returns the guest with this id; `None` if its slot belongs to another one.
#[inline(always)]
pub(super) fn find(guests: &Guests, id: GuestId) -> Option<&Guest> {
    let guest = guests.get(number_of(id))?.as_ref();
    guest.filter(|guest| guest.id == id)
}

/// Returns the same for changes.
#[inline(always)]
pub(super) fn find_mut(guests: &mut Guests, id: GuestId) -> Option<&mut Guest> {
    let guest = guests.get_mut(number_of(id))?.as_mut();
    guest.filter(|guest| guest.id == id)
}
