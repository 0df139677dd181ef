//! The way of frames: arrival, batch, and the time of the next call.

use super::Pacer;
use super::arrivals::{Arrivals, FrameGuarantee};
use super::batch::Batch;
use super::class::DelayClass;
use super::store::Arrival;
use crate::{Frame, GuestId};
use tailbound_units::{Nanos, Position};

impl<F: Frame> Pacer<F> {
    /// Takes in a frame at `now`: a burst of one ([`Pacer::enqueue_burst`]).
    #[inline(always)]
    pub fn enqueue(&mut self, now: Nanos, frame: F) {
        self.enqueue_burst(now, Some(frame), |_, _, _| {});
    }

    /// Takes in frames at `now`, in order. A large packet is segmented first, so that the memory of
    /// its segments is counted. Frames of a guest without a guarantee, and from outside, are best
    /// effort. `prepare` receives each frame with its guarantee and delay class before the frame joins a line, and
    /// may change the frame, except for its guest and its destination.
    ///
    /// All frames are accepted, and others are dropped for them if their line or their guest
    /// exceeds its memory: check [`Pacer::is_read`] before the next burst. Consecutive frames of
    /// one guest share the look-up of the guest, and those to one destination that of their line.
    #[inline(always)]
    pub fn enqueue_burst(
        &mut self,
        now: Nanos,
        frames: impl IntoIterator<Item = F>,
        prepare: impl FnMut(&mut F, FrameGuarantee, Option<DelayClass>),
    ) {
        let arrival = Arrival {
            enqueued: now,
            // A frame cannot overtake those on the wire. If it were scheduled from `position` on,
            // the batch would close the gaps behind it.
            at: self.core.start_at(now),
        };
        let mut arrivals = Arrivals {
            core: &mut self.core,
            elastic: &mut self.elastic,
            best_effort: &mut self.best_effort,
            arrival,
        };
        arrivals.take(frames, prepare);
    }

    /// Returns the items on the wire from `now` on, in order and back to back, until a batch's time
    /// is filled or no frame is due within it. The last frame begins within the batch.
    ///
    /// Frames of earlier calls that are still on the wire count: at any frequency of calls, the NIC
    /// never holds more than a batch and a frame.
    #[inline]
    pub fn batch(&mut self, now: Nanos) -> Batch<'_, F> {
        let (elastic, best_effort) = (&mut self.elastic, &mut self.best_effort);
        Batch::begin(&mut self.core, elastic, best_effort, now)
    }

    /// Time of the next call of [`Pacer::batch`]: half a batch before the wire must begin with a
    /// waiting frame, so that a caller who is late by less than that delays no frame. Not before
    /// the last `now`; `None` if no frame waits.
    pub fn poll_at(&self) -> Option<Nanos> {
        let is_empty = self.waiting() == 0 && self.best_effort.is_empty();
        if is_empty && !self.elastic.is_waiting() {
            return None;
        }
        let chain = &self.core.chain;
        let mut next = chain.next();
        // The next batch applies changes of places, for which frames may wait.
        let is_stale = self.core.lines.has_stale() && self.waiting() > 0;
        if is_stale || self.best_effort.backlog().packets > 0 || self.elastic.is_waiting() {
            next = chain.wire.taken();
        }
        let mut next = next.max(chain.wire.taken());
        let (due, local) = (chain.departures.first(), chain.local.next);
        let release = chain.releases.first();
        // Otherwise it waits, as earlier releases do, for a frame that waits for the wire.
        if local < release || release <= due {
            next = next.min(local);
        }
        let timer = self.elastic.poll_at().filter(|_| self.waiting() > 0);
        if next == Position::NEVER && timer.is_none() {
            return None;
        }
        let at = chain.wire.time_of_batch(next);
        let clock = chain.wire.clock();
        Some(timer.map_or(at, |timer| at.min(clock.moment_from_now(timer))))
    }

    /// Passes on the frames to guests of this host that waited when their guest's guarantee ended.
    /// Call it after every call that ends a guarantee, so that later frames do not overtake them.
    pub fn drain_freed(&mut self, sink: impl FnMut(F)) {
        self.core.chain.local.drain_freed(sink);
    }

    /// Passes on the guests whose rings the host may read again since the last call.
    #[inline]
    pub fn drain_read_again(&mut self, sink: impl FnMut(GuestId)) {
        self.core.guests.drain_read_again(sink);
    }

    /// Records that the wire still holds back frames that were passed on, or that it has taken all
    /// of them. Until then the caller requests no batch, and no guest makes up for the time,
    /// because those frames leave later than their departures.
    #[inline]
    pub fn set_blocked(&mut self, now: Nanos, is_blocked: bool) {
        if self.core.chain.wire.is_blocked() != is_blocked {
            self.core.chain.advance(now);
            self.core.chain.wire.set_blocked(is_blocked);
        }
    }
}
