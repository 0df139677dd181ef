//! Exact pacing of guaranteed traffic (Silo, SIGCOMM 2015, 4.3).
//!
//! Each frame of a guaranteed guest passes a chain of virtual token buckets (4.3, figure 8):
//! {`B_i`, S} of its destination if that has a limit, {B, S}, and {Bmax, one frame}. The last one
//! determines its departure time, the earliest time at which it may begin on the wire; no thread
//! sleeps. Each bucket's own time is an exact fraction, so rates do not drift
//! ([`tailbound_units::exact`]); its result is rounded up to the next byte of the wire. Over every
//! interval the departures of a guest stay below `min(Bmax·t + frame, B·t + S)` plus two bytes.
//!
//! **Virtual time is counted in bytes of the wire** ([`WireClock`]): preamble, FCS and gap
//! included. A departure time is the number of a byte (`Position`), so every computed time is
//! possible on the wire. All sizes in a guarantee are bytes on the wire, too, as placement counts
//! them.
//!
//! **Paced IO Batching** (4.3.1). [`Pacer::batch`] passes on the next 50 us of wire time: frames of
//! all guests in the order of their departures (`departures`), and void frames ([`void`]) that fill
//! the gaps before them exactly. A gap shorter than the shortest frame (84 B) delays the next frame
//! by less than that; departure times are absolute, so the delay does not accumulate. Voids are
//! sent only ahead of a frame that is due within the batch: an idle link stays idle.
//!
//! **Best effort** (4.4), frames of guests without a guarantee, uses all remaining capacity: a
//! frame may begin whenever no scheduled frame is due, instead of a void. It is not interrupted, so
//! the scheduled frames behind it are later by less than its length, as at any port with
//! priorities. While best-effort frames wait, there are no voids.
//!
//! # Queues by destination
//!
//! ```text
//! enqueue ► line ► {B_i, S} ► round ► {B, S} ► {Bmax, frame} ► batch ► wire
//!           one a destination  one a guest, and in it one frame with a departure
//! ```
//!
//! Frames wait in *lines* (`line`): one for each destination that has a limit, and one for all
//! others of a guest. The first frame of a line waits until it conforms
//! to {`B_i`, S}; then it is *released*. Until then the line waits in a wheel; a line whose limit
//! is closed waits nowhere, and costs nothing until the limit opens. Released lines take turns in
//! their guest's *round* (`round`), weighted by `B_i`. The first frame of the line whose turn it is
//! receives its departure time, from {B, S} and {Bmax, one frame}, and waits for it, one frame for
//! each guest (`departures`). When that frame is passed on, the next one has its turn at the time
//! of its departure, or of its own release if that is later. So departure times follow from
//! arrivals only, not from other traffic on the wire; and a line that is closed, slow or silent
//! does not affect the others.
//!
//! **All buckets are charged at the departure**, {`B_i`, S}, too. Only one frame of a line is
//! released, and its bucket only fills while it waits for its turn, so the frame still conforms
//! when it departs. So the departures of m senders to n receivers stay below `n·B·t + m·n·S` over
//! every interval if the rates to each receiver add up to at most B. If a frame were charged at its
//! release, its bucket would be full again when it departs: a frame more for each pair.
//!
//! Only one frame of a guest has a departure. So a changed rate applies immediately: the first
//! frame of the line is checked again, and the charge of a later departure is repeated under the
//! new rate.
//!
//! Behind the first frame of a destination's line, flows take turns (`by_flow`): the order within a
//! flow is the only one that is promised. So an acknowledgement does not wait for the data of other
//! connections that were enqueued before it. Frames without a limit of their destination leave in
//! the order of their arrival.
//!
//! A large packet is segmented when it joins its line. Its buffer may contain five hundred frames
//! of one byte each, so the memory of the segments is counted before they exist.
//!
//! # Elastic flows
//!
//! While the wire is idle and frames of a guest wait for {B, S}, its largest flow becomes elastic
//! ([`PacerConfig::work_conserving`]): its frames leave behind best effort, in the lowest class,
//! and are charged to no bucket. Guaranteed frames depart as without it, at most a longest frame
//! later, as beside best effort. When such a flow conforms again, or gets too little, it is held
//! for [`PacerConfig::drain`] and continues as guaranteed. The module `elastic` has the rules and
//! their bounds. If the guest has a limit ([`Pacer::set_cap`]) such frames use only the rest of it.
//!
//! # On this host
//!
//! A frame to another guest of the host is charged to {`B_i`, S} and {B, S} together with the other
//! frames of its guest, but not to {Bmax, one frame}. It is delivered beside the wire (`local`):
//! frames on the wire are spaced as if the wire had carried it.
//!
//! # Memory and backpressure
//!
//! The pacer accepts all frames. The memory of a line, a guest and all guests is counted by
//! [`Frame::truesize`] and bounded: see [`PacerConfig::memory`]. The bounds of all guests add up to
//! at most that, so that no guest can use another's. If a line holds more than half of its share,
//! new frames are marked (ECN), and if it holds more than its share, the oldest frames of its
//! largest flow are dropped; a guest over its bound loses an eighth of it, from the front of its
//! longest lines. Each flow of a line has a `CoDel` of its own (RFC 8289), which judges a frame at
//! the front by its waiting time.
//!
//! The host must not read a guest's ring ([`Pacer::is_read`]) while the guest's frames wait for {B,
//! S}: when its released lines hold more than it may send within its horizon, or its memory exceeds
//! half of its bound, or a line's half of its share. `CoDel` drops no frames then, because the full
//! ring signals the guest already. The ring is read again when a quarter of that backlog has left,
//! or no frame waits for {B, S} any more ([`Pacer::drain_read_again`]). While the ring is not read,
//! the guest sends at B, so it loses nothing of its guarantee.
//!
//! **Late.** A frame that arrives while a batch is on the wire is scheduled from the batch's end
//! on, so that a batch never closes the gaps of the next. If the wire does not take due frames (a
//! stalled host, a link that is down), virtual time is frozen after `catch_up`: each departure is
//! then later by the frozen time. {B, S} and {`B_i`, S} count real time and fill meanwhile. A guest
//! sends the missed frames afterwards, at Bmax and within S, so it loses nothing in a delay of less
//! than S / B. No frame with a departure time leaves before it, and all departures conform to
//! {Bmax, one frame} and {B, S} in real time.
//!
//! Call [`Pacer::enqueue_burst`] for arriving frames, then [`Pacer::batch`] with the same `now`,
//! then sleep until [`Pacer::poll_at`] or the next frame.

#![expect(
    clippy::inline_always,
    reason = "called once for every frame, and a call costs about the same as its work"
)]

mod account;
mod arrivals;
mod backlog;
mod batch;
mod best_effort;
mod buckets;
mod cap;
mod chain;
mod changes;
mod class;
mod clock;
mod config;
mod core;
mod departures;
mod elastic;
mod flows;
mod frames;
mod guarantees;
mod guest;
mod guests;
mod index;
mod item;
mod level;
mod limit;
mod limits;
mod line;
mod lines;
mod local;
mod place;
mod rate_change;
mod releases;
mod room;
mod round;
mod shared;
mod store;
mod translate;
mod tree;
mod urgent;
pub mod void;
mod wheel;
mod wire;

pub use arrivals::FrameGuarantee;
pub use batch::Batch;
pub use cap::CapUse;
pub use class::{DELAY_CLASSES, DelayClass};
pub use clock::WireClock;
pub use config::{Guarantee, MAX_GUESTS, MAX_RATIO, PacerConfig, PacerError};
pub use item::WireItem;
pub use level::{DestinationLevel, GuestLevel};
pub use limit::{FlowUse, WaitingFlow};
pub use tree::{Home, HostGroups, Place};
pub use void::VoidFrame;

use self::core::Core;
use crate::queue::{Backlog, QueueStats, Spare};
use crate::{Frame, GuestId, HashKeys};
use best_effort::BestEffort;
use flows::Elastic;
use store::Store;
use tailbound_units::{Bytes, Nanos, WireBytes};

/// Frames that were dropped, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacerDrops {
    /// Longer on the wire than any frame may be, and without segmentation.
    pub oversized: u64,
    /// The oldest ones of the largest flow of a line that exceeded its share of memory, or of the
    /// longest lines of a guest that exceeded its bound.
    pub over_share: u64,
    /// At the front of a line whose frames had waited too long for too long for their destination's
    /// limit (`CoDel`).
    pub over_delay: u64,
}

impl PacerDrops {
    /// Label of each reason for a counter, and its count.
    pub const fn by_reason(&self) -> [(&'static str, u64); 3] {
        [
            ("oversized", self.oversized),
            ("over_share", self.over_share),
            ("over_delay", self.over_delay),
        ]
    }
}

/// Number of frames, and their length on the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WireCount {
    /// Number of frames.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: WireBytes,
}

/// Counters of a pacer since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacerStats {
    /// Frames of guaranteed guests that were passed on.
    pub guaranteed: WireCount,
    /// Frames without a guarantee that were passed on.
    pub best_effort: WireCount,
    /// Frames of elastic flows of guaranteed guests that were passed on.
    pub elastic: WireCount,
    /// Frames of guaranteed guests to other guests of this host that were passed on, with the
    /// length that they would have had on the wire.
    pub local: WireCount,
    /// Voids that were passed on.
    pub voids: WireCount,
    /// Frames that were passed on 84 B or more after their departure time, because others were
    /// before them on the wire.
    pub collided: u64,
    /// Maximum delay of a frame after its departure time.
    pub max_lateness: WireBytes,
    /// Number of times that the host had to stop reading a guest's ring.
    pub unread: u64,
    /// Frames that the pacer dropped.
    pub drops: PacerDrops,
    /// Total time for which virtual time was frozen.
    pub frozen: Nanos,
    /// Counters of the queue of frames without a guarantee.
    pub queue: QueueStats,
}

/// Counters of a guest's frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuestStats {
    /// Frames that were accepted, with each segment counted.
    pub taken: WireCount,
    /// Frames among them that were marked (ECN).
    pub marked: u64,
    /// Frames of elastic flows that were passed on.
    pub elastic: WireCount,
    /// Number of times that the host had to stop reading the guest's ring.
    pub unread: u64,
    /// Times that a frame had to wait for the limit of its destination, or of a subtree around it.
    pub held_back: u64,
    /// Frames that were dropped, for the reasons in [`PacerDrops`].
    pub dropped: u64,
    /// Waiting time of the last frame that left.
    pub sojourn: Nanos,
}

/// A pacer for one wire. The module describes it.
#[derive(Debug)]
pub struct Pacer<F> {
    core: Core<F>,
    best_effort: BestEffort<F>,
    elastic: Elastic,
}

impl<F: Frame> Pacer<F> {
    /// Creates a pacer without guaranteed guests.
    ///
    /// # Errors
    /// The rule that the configuration breaks.
    pub fn new(config: &PacerConfig) -> Result<Self, PacerError> {
        Self::with_keys(config, HashKeys::random())
    }

    /// Creates a pacer with given keys for its table of destinations.
    ///
    /// # Errors
    /// The rule that the configuration breaks.
    pub fn with_keys(config: &PacerConfig, keys: HashKeys) -> Result<Self, PacerError> {
        Ok(Self {
            core: Core::new(config, keys)?,
            best_effort: BestEffort::new(&config.best_effort),
            elastic: Elastic::new(config),
        })
    }

    /// Number of waiting frames of guaranteed guests.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.core.chain.store.len()
    }

    /// The waiting frames without a guarantee.
    #[inline]
    pub fn best_effort(&self) -> Backlog {
        self.best_effort.backlog()
    }

    /// The present guarantee of a guest.
    pub fn guarantee(&self, id: GuestId) -> Option<&Guarantee> {
        let guest = self.core.guests.guaranteed(id)?;
        Some(&guest.guarantee)
    }

    /// Counters of a guest's frames while it had a guarantee.
    pub fn guest_stats(&self, id: GuestId) -> Option<GuestStats> {
        let guest = self.core.guests.find(id)?;
        Some(guest.stats)
    }

    /// Number of a guest's elastic flows.
    pub fn elastic_flows(&self, id: GuestId) -> usize {
        let guest = self.core.guests.guaranteed(id);
        guest.map_or(0, |guest| self.elastic.count(&guest.elastic))
    }

    /// Limit of a guaranteed guest, and its use.
    pub fn cap(&self, id: GuestId) -> Option<CapUse> {
        let guest = self.core.guests.guaranteed(id)?;
        let held = self.elastic.memory(&guest.elastic);
        Some(guest.cap.as_ref()?.usage(held))
    }

    /// Memory of a guest's frames here while it has a guarantee.
    pub fn memory_of(&self, id: GuestId) -> Bytes {
        let guest = self.core.guests.find(id);
        guest.map_or(Bytes(0), |guest| guest.backlog.memory)
    }

    /// Checks whether the host may read a guest's ring: false while the guest's frames wait for {B,
    /// S}. The module describes it.
    pub fn is_read(&self, id: GuestId) -> bool {
        let guest = self.core.guests.guaranteed(id);
        guest.is_none_or(|guest| guest.backlog.is_read())
    }

    /// Checks whether this number of further frames of a guest, of these total lengths and without
    /// segmentation, cannot change [`Pacer::is_read`], so that the caller need not check it after
    /// each of them.
    pub fn has_room(&self, id: GuestId, frames: usize, wire: WireBytes, memory: Bytes) -> bool {
        self.core.guests.guaranteed(id).is_none_or(|guest| {
            let places = Bytes(Store::<F>::PLACE.0 * frames as u64);
            let memory = Bytes(memory.0 + places.0);
            guest.backlog.has_room_for(wire, memory)
        })
    }

    /// Memory of the frames of guaranteed guests.
    pub fn memory(&self) -> Bytes {
        let guests = self.core.guests.iter();
        Bytes(guests.map(|guest| guest.backlog.memory.0).sum())
    }

    /// Frees some of the memory that was not used since the last call, and returns whether more is
    /// left.
    pub fn give_back(&mut self) -> Spare {
        let left = self.core.chain.store.give_back();
        left.max(self.best_effort.give_back())
    }

    /// Counters since the start.
    #[inline]
    pub fn stats(&self) -> PacerStats {
        PacerStats {
            frozen: self.core.chain.wire.frozen(),
            ..self.core.chain.stats
        }
    }

    /// The wire's clock as of the last call.
    pub const fn clock(&self) -> WireClock {
        *self.core.chain.wire.clock()
    }
}

#[cfg(test)]
mod tests;
