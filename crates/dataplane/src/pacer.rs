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
//! wire time: frames of all guests in the order of their departures (`departures`), and
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
//! # Queues by destination
//!
//! ```text
//! enqueue ► line ► {B_i, S} ► round ► {B, S} ► {Bmax, frame} ► batch ► wire
//!           one a destination  one a guest, and in it one frame with a departure
//! ```
//!
//! Frames wait in *lines* (`line`): one for each destination that has a limit, and one
//! for all others of a guest, which keeps their order as nothing tells them apart. Only
//! the first frame of a line is charged to {`B_i`, S}. Until it is *released* the line
//! waits in a wheel; a line whose limit is closed waits nowhere, and costs nothing until
//! that is opened. Released lines take turns in their guest's *round* (`round`),
//! weighted by `B_i`. The one whose turn it is is charged to {B, S} and {Bmax, frame}
//! and waits for its departure, one frame a guest (`departures`). When that is
//! handed over, the next has its turn at the moment of its departure, or of its own
//! release where that is later. So departure times follow from arrivals alone, not from
//! what else is on the wire; and a line that is closed, slow or silent changes nothing for
//! the others.
//!
//! As one frame a line is charged and has not left, and one a guest has a departure, a
//! rate that changes holds at once: what was charged is taken back and charged anew.
//!
//! A large packet is cut where it joins its line. Its buffer may hold five hundred frames
//! of one byte each: what these will hold is to be counted before they do.
//!
//! # Elastic flows
//!
//! While the wire is idle and frames of a guest wait for {B, S}, its largest flow becomes
//! elastic ([`PacerConfig::work_conserving`]): its frames leave behind best effort, in the
//! lowest class, and are charged to nothing. What is guaranteed departs as without, a
//! longest frame later at most, as beside best effort. When such a flow conforms again,
//! or gets too little, it is held for [`PacerConfig::drain`] and goes on as guaranteed. The
//! module `elastic` has the rules and their bounds. Where the guest has a limit
//! ([`Pacer::set_cap`]) such frames leave within what that leaves them.
//!
//! # On this host
//!
//! A frame to another guest of the host is charged to {`B_i`, S} and {B, S} in one sum
//! with the others of its guest, and to {Bmax, one frame} not. It is handed over beside
//! the wire (`local`): what goes on the wire is spaced as if it had been spent.
//!
//! # Memory and backpressure
//!
//! All frames that are offered are taken. What a line, a guest and all guests hold is
//! counted as the host holds it ([`Frame::truesize`]) and bounded: see
//! [`PacerConfig::memory`]. The bounds of all guests add up to that at most, so that none
//! can take another's. A line that holds more than half of its share has new frames
//! marked (ECN), and one that holds more than its share loses those at its front; a
//! guest over its bound loses an eighth of it, from the front of its longest lines. Each
//! line has a `CoDel` of its own (RFC 8289), which judges a frame that comes to the
//! front by how long it has waited.
//!
//! A guest's ring is to be left unread ([`Pacer::is_read`]) while {B, S} is what its
//! frames wait for: where more of the released lines waits than it may send within its
//! horizon, or more memory is taken than half of what there is. `CoDel` drops nothing then,
//! since the guest is told already. Its ring is read again when a quarter of that is
//! gone, or nothing waits for {B, S} any more ([`Pacer::drain_read_again`]). While
//! it is not read, the guest sends at B; so nothing that it is guaranteed is lost.
//!
//! **Late.** A frame that arrives while a batch is on the wire is scheduled from its
//! end on, so that a batch never closes the gaps of the next. When the wire does
//! not take what is due (a stalled host, a link that is down), virtual time is frozen
//! after `catch_up`: each departure is then later by the frozen time. {B, S} and {`B_i`, S}
//! count real time and fill meanwhile. A guest sends the missed frames afterwards, at Bmax
//! and within S, so it loses nothing in a delay of less than S / B.
//! No frame that has a departure time leaves it sooner, and all departures conform to
//! {Bmax, one frame} and {B, S} in real time.
//!
//! The order to call things in: [`Pacer::enqueue_burst`] whenever frames came, then
//! [`Pacer::batch`] with the same `now`, then sleep until [`Pacer::poll_at`] or the
//! next frame.

#![expect(
    clippy::inline_always,
    reason = "called once for every frame, where a call costs as much as the work"
)]

mod batch;
mod cap;
mod chain;
mod change;
mod clock;
mod config;
mod departures;
mod elastic;
mod guest;
mod level;
mod limit;
mod line;
mod lines;
mod local;
mod rate_change;
mod releases;
mod round;
mod store;
mod take;
mod translate;
pub mod void;
mod wheel;

pub use batch::{Batch, Paced};
pub use cap::CapUse;
pub use clock::WireClock;
pub use config::{Guarantee, MAX_GUESTS, MAX_RATIO, PacerConfig, PacerError};
pub use level::{DestinationLevel, GuestLevel};
pub use limit::FlowUse;
pub use take::Standing;
pub use void::VoidFrame;

use crate::queue::{Backlog, Queue, QueueStats, Spare};
use crate::{Frame, GuestId, HashKeys};
use chain::Chain;
use elastic::Elastic;
use guest::{Contract, Guest, Ring};
use lines::Lines;
use store::Store;
use tailbound_units::{Bytes, Nanos, Position, Rate, WireBytes};

/// Frames that were dropped, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacerDrops {
    /// Longer on the wire than any frame may be, and not to be segmented.
    pub oversized: u64,
    /// At the front of a line that held more memory than its share, or of the longest
    /// lines of a guest that did.
    pub over_share: u64,
    /// At the front of a line, whose frames had waited too long for too long for their
    /// destination's limit (`CoDel`).
    pub over_delay: u64,
}

impl PacerDrops {
    /// Each reason as one word for a counter's label, and its count.
    pub const fn by_reason(&self) -> [(&'static str, u64); 3] {
        [
            ("oversized", self.oversized),
            ("over_share", self.over_share),
            ("over_delay", self.over_delay),
        ]
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
    /// Frames of guaranteed guests beyond that, of elastic flows.
    pub elastic: WireCount,
    /// Frames of guaranteed guests to others of this host that were handed over, and
    /// what they would have taken of the wire.
    pub local: WireCount,
    /// Voids that were handed over.
    pub voids: WireCount,
    /// Frames handed over 84 B or more after their departure time, as others were before
    /// them on the wire.
    pub collided: u64,
    /// The most that a frame was handed over after its departure time.
    pub max_lateness: WireBytes,
    /// How often the ring of a guest was to be left unread.
    pub unread: u64,
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
    /// Frames that were handed over as those of elastic flows.
    pub elastic: WireCount,
    /// How often its ring was to be left unread.
    pub unread: u64,
    /// Frames that were dropped here, by what [`PacerDrops`] names.
    pub dropped: u64,
    /// How long the frame waited that left last.
    pub sojourn: Nanos,
}

/// A pacer for one wire. See the module.
#[derive(Debug)]
pub struct Pacer<F> {
    config: PacerConfig,
    /// The batch, half of it, and `catch_up` in bytes of the wire.
    batch: WireBytes,
    lead: WireBytes,
    catch_up: WireBytes,
    /// The wire has not taken what it was handed.
    is_blocked: bool,
    guests: Vec<Option<Guest>>,
    /// The sum of guaranteed bandwidths.
    committed: Rate,
    /// The sum of what guests would hold at most, were there memory for all of it.
    wanted: Bytes,
    lines: Lines,
    chain: Chain<F>,
    /// How many lines count the wire at the rate that it has, where it got another one.
    translated: usize,
    /// Guests whose rings are to be read again.
    read_again: Vec<GuestId>,
    best_effort: Queue<F>,
    elastic: Elastic,
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
            batch,
            lead: batch / 2,
            catch_up: config.catch_up_on_the_wire(),
            is_blocked: false,
            guests: Vec::new(),
            committed: Rate(0),
            wanted: Bytes(0),
            lines: Lines::new(keys),
            chain: Chain::new(config.link),
            translated: usize::MAX,
            read_again: Vec::new(),
            best_effort: Queue::new(&config.best_effort),
            elastic: Elastic::new(config),
        })
    }

    /// How many frames of guaranteed guests wait.
    pub fn waiting(&self) -> usize {
        self.chain.store.len()
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

    /// How many of a guest's flows are elastic now.
    pub fn elastic_flows(&self, id: GuestId) -> usize {
        let guest = self.guaranteed(id);
        guest.map_or(0, |guest| self.elastic.count(&guest.elastic))
    }

    /// What a guest is held to that has a guarantee and a limit, and what it sent.
    pub fn cap(&self, id: GuestId) -> Option<CapUse> {
        let guest = self.guaranteed(id)?;
        let held = self.elastic.memory(&guest.elastic);
        Some(guest.cap.as_ref()?.usage(held))
    }

    /// The memory that a guest's frames hold here while it has a guarantee.
    pub fn memory_of(&self, id: GuestId) -> Bytes {
        guest::find(&self.guests, id).map_or(Bytes(0), |guest| guest.memory)
    }

    /// Whether a guest's ring is to be read: not while {B, S} is what its frames wait
    /// for. See the module.
    pub fn is_read(&self, id: GuestId) -> bool {
        self.guaranteed(id)
            .is_none_or(|guest| guest.ring == Ring::Read)
    }

    /// Whether so many frames more of a guest, none of them to be cut, which take so much of the
    /// wire and of memory in all, surely leave its ring as it is: then nobody has to ask
    /// [`Pacer::is_read`] after each of them.
    pub fn has_room(&self, id: GuestId, frames: usize, wire: WireBytes, memory: Bytes) -> bool {
        self.guaranteed(id).is_none_or(|guest| {
            let places = Bytes(Store::<F>::PLACE.0 * frames as u64);
            guest.has_room_for(wire, Bytes(memory.0 + places.0))
        })
    }

    /// Hands over the guests whose rings are to be read again since the last call.
    pub fn drain_read_again(&mut self, mut sink: impl FnMut(GuestId)) {
        for id in self.read_again.drain(..) {
            if let Some(guest) = guest::find_mut(&mut self.guests, id) {
                guest.is_noted = false;
            }
            sink(id);
        }
    }

    /// The memory that frames of guaranteed guests hold.
    pub fn memory(&self) -> Bytes {
        let guests = self.guests.iter().flatten();
        Bytes(guests.map(|guest| guest.memory.0).sum())
    }

    /// Frees some of the memory that nothing has waited in since it was called last, and
    /// says what is left of it.
    pub fn give_back(&mut self) -> Spare {
        let left = self.chain.store.give_back();
        left.max(self.best_effort.give_back())
    }

    /// Notes that the wire still holds frames back which it was handed, or that it has taken all of
    /// them. Until then the caller requests no batch, and no guest makes up for the time, because
    /// frames that were handed over leave later than their departures.
    #[inline]
    pub fn set_blocked(&mut self, now: Nanos, is_blocked: bool) {
        if self.is_blocked != is_blocked {
            self.advance(now);
            self.is_blocked = is_blocked;
        }
    }

    /// What it has done so far.
    pub fn stats(&self) -> PacerStats {
        PacerStats {
            frozen: self.chain.stats.frozen + self.chain.clock.frozen(),
            ..self.chain.stats
        }
    }

    /// The wire's clock as of the last call.
    pub const fn clock(&self) -> WireClock {
        self.chain.clock
    }

    /// Lets time pass on the wire, no further than `catch_up` after what is due. Once
    /// for each `now`: within it, nothing becomes due that was not.
    #[inline(always)]
    fn advance(&mut self, now: Nanos) -> Position {
        if now > self.chain.clock.now() {
            self.chain.position = self.advance_clock(now);
        }
        self.chain.position
    }

    #[inline(never)]
    fn advance_clock(&mut self, now: Nanos) -> Position {
        let chain = &mut self.chain;
        let (position, next) = (chain.clock.advance(now), chain.next());
        // From what is due, not from the wire: that moves on with each batch, however
        // late its frames are.
        let next = next.min(chain.local.next);
        let limit = chain.wire.max(next.saturating_add(self.catch_up));
        if position > limit && next != Position::NEVER {
            if !self.is_blocked {
                chain.lost += position.since(limit);
            }
            chain.clock.freeze_at(limit);
            return limit;
        }
        position
    }
}

#[cfg(test)]
mod tests;
