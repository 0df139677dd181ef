//! Exact pacing of what guests are guaranteed (Silo, SIGCOMM 2015, 4.3).
//!
//! Each frame of a guaranteed guest passes a chain of virtual token buckets (4.3,
//! figure 8): {`B_i`, S} of its destination where it has one, {B, S}, and {Bmax, one
//! frame}. The last gives it a departure time, the earliest moment at which it may
//! begin on the wire; nothing sleeps. Each bucket's own time is an exact fraction, so
//! rates do not drift ([`tailbound_units::exact`]); what it hands on is rounded up to
//! the next byte of the wire. Over every interval the departures of a guest stay below
//! `min(Bmax·t + frame, B·t + S)` plus two bytes.
//!
//! **Virtual time is counted in bytes of the wire** ([`WireClock`]): preamble, FCS and
//! gap included. A departure time is the number of a byte ([`Position`]), so what is
//! computed is what the wire can do. All sizes that a guarantee names are bytes on the
//! wire too, as placement counts them.
//!
//! **Paced IO Batching** (4.3.1). [`Pacer::batch`] hands over the next 50 us of
//! wire time: frames of all guests in the order of their departures (`wheel`), and
//! void frames ([`void`]) that fill the gaps before them exactly. A gap shorter
//! than the shortest frame (84 B) delays the next frame by less than that; departure
//! times are absolute, so the delay is not handed on. Voids are sent only ahead of a
//! frame that is due within the batch: an idle link stays idle.
//!
//! **Best effort** (4.4), frames of guests without a guarantee, takes all that is
//! left: one may begin whenever no scheduled frame is due, instead of a void. It is
//! not interrupted, so the scheduled frames behind it are later by less than its
//! length, as at any port with priorities. Where it waits, there are no voids.
//!
//! **Two stages.** A frame that waits for its destination's `B_i` waits at the
//! destination stage and does not hold up those to other destinations. It is charged to
//! {B, S} when it is released to the link stage, where frames wait for the wire.
//!
//! **Backpressure.** A frame that would wait longer than its guest's horizon is not
//! taken ([`WouldBlock`]): it stays in the guest's ring until it can be scheduled.
//! Frames that wait for long are marked (ECN) where they can be.
//!
//! **Late.** A frame that arrives while a batch is on the wire is scheduled from its
//! end on, so that a batch never closes the gaps of the next. When the wire does
//! not take what is due (a stalled host, a link that is down), virtual time is frozen
//! after `catch_up`: then everything is later by as much, and no burst follows.
//!
//! The order to call things in: [`Pacer::enqueue`] whenever frames came, then
//! [`Pacer::batch`] with the same `now`, then sleep until [`Pacer::poll_at`] or the
//! next frame.

#![expect(
    clippy::inline_always,
    reason = "called once for every frame, where a call costs as much as the work"
)]

mod batch;
mod chain;
mod change;
mod clock;
mod config;
mod guest;
mod limits;
mod rescale;
mod store;
pub mod void;
mod wheel;

pub use batch::{Batch, Paced};
pub use clock::WireClock;
pub use config::{Guarantee, MAX_GUESTS, MAX_RATIO, PacerConfig, PacerError};
pub use limits::FlowUse;
pub use void::VoidFrame;

use crate::queue::{Backlog, Queue, QueueStats};
use crate::{FlowKey, Frame, GuestId, HashKeys};
use guest::{Contract, Guest};
use limits::Limits;
use store::Store;
use tailbound_units::{Nanos, Position, Rate, WireBytes};
use wheel::Wheel;

/// A frame that would wait too long, as it was offered.
#[derive(Debug)]
pub struct WouldBlock<F> {
    /// The frame.
    pub frame: F,
    /// When it may be tried again: after the `now` at which it was refused, and
    /// not before its departure less its guest's horizon.
    pub retry_at: Nanos,
}

/// Frames that were dropped, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacerDrops {
    /// Longer on the wire than any frame may be, and not to be segmented.
    pub oversized: u64,
    /// Waited as best effort when its guest got a guarantee under which it would
    /// leave only seconds later.
    pub overdue: u64,
}

impl PacerDrops {
    /// Each reason as one word for a counter's label, and its count.
    pub const fn by_reason(&self) -> [(&'static str, u64); 2] {
        [("oversized", self.oversized), ("overdue", self.overdue)]
    }
}

/// Frames, and what they take of the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WireCount {
    /// How many frames.
    pub packets: u64,
    /// How many bytes of the wire.
    pub bytes: WireBytes,
}

/// What a pacer has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacerStats {
    /// Frames of guaranteed guests that were handed over.
    pub guaranteed: WireCount,
    /// Frames without a guarantee that were handed over.
    pub best_effort: WireCount,
    /// Voids that were handed over.
    pub voids: WireCount,
    /// Frames handed over 84 B or more after their departure time, as others were before
    /// them on the wire.
    pub collided: u64,
    /// The most that a frame was handed over after its departure time.
    pub max_lateness: WireBytes,
    /// Frames that would have waited too long, each time that one was offered.
    pub blocked: u64,
    /// Frames that were dropped here.
    pub drops: PacerDrops,
    /// For how long virtual time was frozen.
    pub frozen: Nanos,
    /// The queue of frames without a guarantee.
    pub queue: QueueStats,
}

/// What was done with one guest's frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuestStats {
    /// Frames taken, segments counted each.
    pub taken: WireCount,
    /// Frames among them that were marked (ECN).
    pub marked: u64,
    /// Frames that would have waited too long, each time that one was offered.
    pub blocked: u64,
    /// Frames that were dropped here, by what [`PacerDrops`] names.
    pub dropped: u64,
    /// How long its last frame had to wait for its departure time, in the wire's time.
    pub wait: WireBytes,
}

/// A pacer for one wire. See the module.
#[derive(Debug)]
pub struct Pacer<F> {
    config: PacerConfig,
    clock: WireClock,
    /// Virtual time.
    position: Position,
    /// The batch, half of it, and `catch_up` in bytes of the wire.
    batch: WireBytes,
    lead: WireBytes,
    catch_up: WireBytes,
    guests: Vec<Option<Guest>>,
    /// The sum of guaranteed bandwidths.
    committed: Rate,
    limits: Limits,
    /// Flows of which what waits is to be rescaled, as their limits have changed; and
    /// room to do it in, empty.
    changed: Vec<FlowKey>,
    waiting: Vec<u32>,
    /// Every scheduled frame; the wheels hold their places.
    store: Store<F>,
    /// Frames that wait for their destination's limit, by their release.
    destination_stage: Wheel,
    /// Frames that wait for the wire, by their departure.
    link_stage: Wheel,
    best_effort: Queue<F>,
    /// Up to where the wire is taken.
    wire: Position,
    /// The first departure in either wheel, or the end of time.
    next: Position,
    stats: PacerStats,
}

impl<F: Frame> Pacer<F> {
    /// A pacer without guaranteed guests.
    ///
    /// # Errors
    /// The rule that the configuration breaks.
    pub fn new(config: &PacerConfig) -> Result<Self, PacerError> {
        Self::with_keys(config, HashKeys::random())
    }

    /// The same with given keys for its table of destinations.
    ///
    /// # Errors
    /// The rule that the configuration breaks.
    pub fn with_keys(config: &PacerConfig, keys: HashKeys) -> Result<Self, PacerError> {
        let batch = config.batch_on_the_wire()?;
        Ok(Self {
            config: config.clone(),
            clock: WireClock::new(config.link),
            position: Position::ZERO,
            batch,
            lead: batch / 2,
            catch_up: config.catch_up_on_the_wire(),
            guests: Vec::new(),
            committed: Rate(0),
            limits: Limits::new(keys),
            changed: Vec::new(),
            waiting: Vec::new(),
            store: Store::new(config.packets),
            destination_stage: Wheel::new(),
            link_stage: Wheel::new(),
            best_effort: Queue::new(&config.best_effort),
            wire: Position::ZERO,
            next: Position::NEVER,
            stats: PacerStats::default(),
        })
    }

    /// How many scheduled frames wait.
    pub fn waiting(&self) -> usize {
        self.store.len()
    }

    /// What waits without a guarantee.
    pub fn best_effort(&self) -> Backlog {
        self.best_effort.backlog()
    }

    /// What a guest is guaranteed now.
    pub fn guarantee(&self, id: GuestId) -> Option<&Guarantee> {
        self.guaranteed(id).map(|guest| &guest.guarantee)
    }

    /// A guest that has a guarantee.
    fn guaranteed(&self, id: GuestId) -> Option<&Guest> {
        let guest = guest::find(&self.guests, id)?;
        (guest.contract == Contract::Guaranteed).then_some(guest)
    }

    /// What was done with a guest's frames while it had a guarantee.
    pub fn guest_stats(&self, id: GuestId) -> Option<GuestStats> {
        let guest = guest::find(&self.guests, id)?;
        Some(guest.stats)
    }

    /// What it has done so far.
    pub fn stats(&self) -> PacerStats {
        PacerStats {
            frozen: self.stats.frozen + self.clock.frozen(),
            ..self.stats
        }
    }

    /// The wire's clock as of the last call.
    pub const fn clock(&self) -> WireClock {
        self.clock
    }

    /// Lets time pass on the wire, no further than `catch_up` after what is due. Once
    /// for each `now`: within it, nothing becomes due that was not.
    #[inline(always)]
    fn advance(&mut self, now: Nanos) -> Position {
        if now > self.clock.now() {
            self.position = self.advance_clock(now);
        }
        self.position
    }

    #[inline(never)]
    fn advance_clock(&mut self, now: Nanos) -> Position {
        // While it is the moment of the change.
        self.rescale_pending();
        let position = self.clock.advance(now);
        // From what is due, not from the wire: that moves on with each batch, however
        // late its frames are.
        let limit = self.wire.max(self.next.saturating_add(self.catch_up));
        if position > limit && self.next != Position::NEVER {
            self.clock.freeze_at(limit);
            return limit;
        }
        position
    }
}

#[cfg(test)]
mod tests;
