//! Paced IO Batching (Silo 4.3.1): the contents of the wire, byte by byte.

use super::best_effort::BestEffort;
use super::core::Core;
use super::elastic::{ElasticPath, Settlement};
use super::flows::Elastic;
use super::index::{FrameIndex, GuestIndex};
use super::item::WireItem;
use super::urgent::Due;
use super::{WireClock, void};
use crate::Frame;
use tailbound_units::{Nanos, Position, WireBytes};

/// Number of batches from the end of one within which departures are in a row
/// ([`super::departures`]): the departures of a busy guest's next frame.
const ROW_BATCHES: u64 = 4;

/// The next batch for the wire: see [`super::Pacer::batch`].
#[derive(Debug)]
#[must_use = "nothing is handed over but by `for_each`"]
pub struct Batch<'p, F> {
    core: &'p mut Core<F>,
    elastic: &'p mut Elastic,
    best_effort: &'p mut BestEffort<F>,
    now: Nanos,
    start: Position,
}

impl<'p, F: Frame> Batch<'p, F> {
    /// Begins the batch at `now`.
    #[inline(always)]
    pub(super) fn begin(
        core: &'p mut Core<F>,
        elastic: &'p mut Elastic,
        best_effort: &'p mut BestEffort<F>,
        now: Nanos,
    ) -> Self {
        let start = core.chain.advance(now);
        if core.lines.has_stale() {
            let Core {
                guests,
                lines,
                chain,
                config,
            } = core;
            chain.rebuild_trees(guests, lines, config);
        }
        Self {
            core,
            elastic,
            best_effort,
            now,
            start,
        }
    }

    /// The wire's clock, which converts this batch's positions into times.
    #[inline]
    pub const fn clock(&self) -> WireClock {
        *self.core.chain.wire.clock()
    }

    /// Passes on all items in order.
    #[inline]
    pub fn for_each(self, sink: impl FnMut(WireItem<F>)) {
        let Self {
            core,
            elastic,
            best_effort,
            now,
            start,
        } = self;
        if core.chain.departures.has_classes() {
            Self::hand_over_all::<true>(core, elastic, best_effort, now, start, sink);
        } else {
            Self::hand_over_all::<false>(core, elastic, best_effort, now, start, sink);
        }
    }

    /// Passes on all items; the copy without delay classes has no branches for them.
    fn hand_over_all<const CLASSES: bool>(
        core: &mut Core<F>,
        elastic_flows: &mut Elastic,
        best_effort_queue: &mut BestEffort<F>,
        now: Nanos,
        start: Position,
        mut sink: impl FnMut(WireItem<F>),
    ) {
        let end = start + core.chain.wire.batch();
        let soon = end + core.chain.wire.batch() * ROW_BATCHES;
        core.chain.departures.ordinary.expect_until(soon);
        if CLASSES {
            core.chain.departures.expect_urgent_until(soon);
        }
        if elastic_flows.is_busy() {
            Self::settle_elastic(core, elastic_flows, start);
        }
        let mut wire = core.chain.wire.taken().max(start);
        let mut best_effort = best_effort_queue.backlog().packets > 0;
        let mut elastic = core.config.work_conserving;
        loop {
            let mut due = core.chain.departures.next_due::<CLASSES>(wire);
            let (release, local) = (core.chain.releases.first(), core.chain.local.next);
            if release.min(local) < end {
                if release <= due.releases.min(local) {
                    Self::release(core);
                    continue;
                }
                // Independent of the wire, unless an earlier release waits for the wire.
                if local < end.min(release) {
                    Self::hand_over_local(core, now, &mut sink);
                    continue;
                }
            }
            if wire >= end {
                break;
            }
            if wire < due.at {
                if best_effort {
                    // Frames that wait for their destination are not due either, or they would have
                    // been released.
                    if let Some(after) =
                        best_effort_queue.send(now, wire, &mut core.chain.stats, &mut sink)
                    {
                        wire = after;
                        continue;
                    }
                    best_effort = false;
                }
                if elastic {
                    // The due frame may have become elastic, and may wait for its guest's limit.
                    match Self::send_elastic(core, elastic_flows, now, wire, &mut sink) {
                        Some(after) => wire = after,
                        None => elastic = false,
                    }
                    continue;
                }
                if due.at >= end {
                    break;
                }
                wire = Self::fill(core, wire, due.at, &mut sink);
                if CLASSES {
                    due = core.chain.departures.next_due::<CLASSES>(wire);
                }
            }
            wire = Self::hand_over(core, now, due, wire, &mut sink);
        }
        core.chain.wire.take_until(wire);
    }

    /// Releases the first line that waits for its limit.
    #[inline(always)]
    fn release(core: &mut Core<F>) {
        let Core {
            guests,
            lines,
            chain,
            ..
        } = &mut *core;
        let index = chain.releases.pop();
        let line = lines.at_mut(index);
        let guest = guests.at_mut(line.guest);
        chain.release(guest, line, index);
    }

    /// Passes on the frame that is due, since `due`, determines the departure of its guest's next
    /// one, and returns its end.
    #[inline(always)]
    fn hand_over(
        core: &mut Core<F>,
        now: Nanos,
        due: Due,
        at: Position,
        sink: &mut impl FnMut(WireItem<F>),
    ) -> Position {
        let Core {
            config,
            guests,
            lines,
            chain,
        } = &mut *core;
        let Due { rank, at: due, .. } = due;
        let number = chain.departures.of(rank).depart(due);
        let guest = guests.at_mut(number);
        let departure = guest.buckets.last_departure();
        let place = chain.store.vacate(guest.stamped);
        let (wire, memory) = (place.wire, place.memory);
        let sojourn = now.since(place.enqueued);
        let frame = place.frame.take();
        let frame = frame.expect("a frame with a departure is in its place");
        // All counting comes first, so that fewer values are live while the frame leaves.
        let stats = &mut chain.stats;
        guest.backlog.memory.0 -= memory.0;
        guest.stats.sojourn = sojourn;
        stats.guaranteed.packets += 1;
        debug_assert!(at >= departure, "no frame begins before its departure time");
        let late = at - departure;
        if late > WireBytes::ZERO {
            stats.collided += u64::from(late >= void::SHORTEST);
            if late > stats.max_lateness {
                stats.max_lateness = late;
            }
        }
        // Separate statements, so that the compiler does not combine them into a vector.
        stats.guaranteed.bytes += wire;
        if let Some(cap) = &mut guest.cap {
            cap.charge(at, frame.len());
        }
        sink(WireItem::Guaranteed {
            frame,
            departure,
            at,
            sojourn,
        });
        let turn = guest
            .round
            .turn(&mut lines.all, &mut chain.links, config.longest_frame());
        let next = if let Some((index, line)) = turn {
            chain.stamp(guest, line, index, departure.max(line.release))
        } else {
            guest.stamped = FrameIndex::NONE;
            None
        };
        if let Some(departure) = next {
            chain.departures.of(rank).depart_again(number, departure);
        } else {
            chain.departures.of(rank).leave();
            if !guest.round.is_empty() {
                Self::pass_over(core, number, departure);
                return at + wire;
            }
        }
        if !guest.backlog.is_read() {
            core.read_again(number);
        }
        at + wire
    }

    /// Lets the next lines of a guest have their turns, from `at` on, if the first one must wait for
    /// a subtree.
    #[inline(never)]
    fn pass_over(core: &mut Core<F>, number: GuestIndex, at: Position) {
        let guest = core.guests.at_mut(number);
        let longest = core.config.longest_frame();
        core.chain
            .stamp_next(guest, &mut core.lines.all, longest, at);
        if !guest.backlog.is_read() {
            core.read_again(number);
        }
    }

    /// Passes on the next elastic frame, at a time and from a position on, and returns its end.
    #[inline(never)]
    fn send_elastic(
        core: &mut Core<F>,
        elastic: &mut Elastic,
        now: Nanos,
        at: Position,
        sink: &mut impl FnMut(WireItem<F>),
    ) -> Option<Position> {
        ElasticPath { core, elastic }.pull(now, at, sink)
    }

    /// Processes timers of elastic flows.
    #[inline(never)]
    fn settle_elastic(core: &mut Core<F>, elastic: &mut Elastic, at: Position) {
        Settlement { core, elastic }.settle(at);
    }

    /// Fills the wire up to `due`, or at most 83 bytes further. Returns the end.
    #[inline(always)]
    fn fill(
        core: &mut Core<F>,
        mut at: Position,
        due: Position,
        sink: &mut impl FnMut(WireItem<F>),
    ) -> Position {
        if !core.config.voids {
            return due;
        }
        let start = at;
        let mut voids = 0;
        // Most gaps are long.
        while due - at >= void::MAX_VOID + void::SHORTEST {
            let wire = void::MAX_VOID;
            sink(WireItem::Void { wire, at });
            voids += 1;
            at += wire;
        }
        while at < due {
            let wire = void::next(due - at);
            sink(WireItem::Void { wire, at });
            voids += 1;
            at += wire;
        }
        core.chain.stats.voids.packets += voids;
        core.chain.stats.voids.bytes += at - start;
        at
    }

    /// Passes on the first frame to a guest of this host, and determines the departure time of its
    /// guest's next frame.
    #[inline(never)]
    pub(super) fn hand_over_local(
        core: &mut Core<F>,
        now: Nanos,
        sink: &mut impl FnMut(WireItem<F>),
    ) {
        let Core {
            config,
            guests,
            lines,
            chain,
        } = &mut *core;
        let number = chain.local.pop();
        let number = number.expect("a guest's frame is due");
        let guest = guests.at_mut(number);
        let place = chain.store.vacate(guest.stamped);
        let (wire, memory) = (place.wire, place.memory);
        let sojourn = now.since(place.enqueued);
        let frame = place.frame.take();
        let frame = frame.expect("a frame with a departure is in its place");
        let departure = guest.buckets.last_departure();
        guest.backlog.memory.0 -= memory.0;
        guest.stats.sojourn = sojourn;
        if let Some(cap) = &mut guest.cap {
            cap.charge(departure, frame.len());
        }
        chain.stats.local.packets += 1;
        chain.stats.local.bytes += wire;
        let is_unread = !guest.backlog.is_read();
        guest.stamped = FrameIndex::NONE;
        chain.stamp_next(guest, &mut lines.all, config.longest_frame(), departure);
        if is_unread {
            core.read_again(number);
        }
        sink(WireItem::Local {
            frame,
            departure,
            sojourn,
        });
    }
}
