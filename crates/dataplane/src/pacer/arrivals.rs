//! Arrival of frames: choice of their lines.

use super::best_effort::BestEffort;
use super::chain::Chain;
use super::class::DelayClass;
use super::core::Core;
use super::elastic::ElasticPath;
use super::flows::Elastic;
use super::index::LineIndex;
use super::room::Room;
use super::store::Arrival;
use crate::Frame;
use tailbound_units::Bytes;

/// Guarantee that applies to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameGuarantee {
    /// None: its guest has no guarantee, or it comes from outside.
    BestEffort,
    /// {B, S} only: its destination has no limit.
    Unlimited,
    /// Its destination has a limit, which may be closed.
    Limited,
}

/// Frames that arrive together, and the queues that they join.
pub(super) struct Arrivals<'p, F> {
    pub(super) core: &'p mut Core<F>,
    pub(super) elastic: &'p mut Elastic,
    pub(super) best_effort: &'p mut BestEffort<F>,
    pub(super) arrival: Arrival,
}

impl<F: Frame> Arrivals<'_, F> {
    /// Takes in frames, in order.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        frames: impl IntoIterator<Item = F>,
        mut prepare: impl FnMut(&mut F, FrameGuarantee, Option<DelayClass>),
    ) {
        let mut frames = frames.into_iter();
        let mut next = frames.next();
        while let Some(frame) = next {
            next = self.take_run(frame, &mut frames, &mut prepare);
        }
    }

    /// Takes in a frame, and those that follow from its guest, up to one that needs more than to
    /// join a line. Returns the first frame that is not taken in.
    #[inline(always)]
    fn take_run(
        &mut self,
        mut frame: F,
        frames: &mut impl Iterator<Item = F>,
        prepare: &mut impl FnMut(&mut F, FrameGuarantee, Option<DelayClass>),
    ) -> Option<F> {
        let (core, elastic) = (&mut *self.core, &mut *self.elastic);
        let arrival = self.arrival;
        let longest = core.config.longest_frame();
        let Core {
            guests,
            lines,
            chain,
            ..
        } = &mut *core;
        let source = frame.source();
        let Some(guest) = source.and_then(|id| guests.guaranteed_mut(id)) else {
            prepare(&mut frame, FrameGuarantee::BestEffort, None);
            let stats = &mut chain.stats;
            let queue = &mut *self.best_effort;
            queue.push(arrival.enqueued, frame, longest, stats);
            return frames.next();
        };
        // It does not change while frames join lines.
        let has_elastic = guest.elastic.flows.is_some();
        let class = guest.guarantee.class;
        let mut to = guest.destination(&frame);
        loop {
            // As `Lines::of_frame`, with a single access to the line.
            let (index, line) = match to {
                None => (guest.lines.unlimited, lines.at_mut(guest.lines.unlimited)),
                Some(destination) => {
                    let (recent, id) = (guest.lines.remembered(destination), guest.id);
                    if let Some(line) = lines.of_mut(recent, id, destination) {
                        (recent, line)
                    } else {
                        let index = lines.find_again(guest, destination);
                        (index, lines.at_mut(index))
                    }
                }
            };
            let frame_guarantee = if index == guest.lines.unlimited {
                FrameGuarantee::Unlimited
            } else {
                FrameGuarantee::Limited
            };
            loop {
                prepare(&mut frame, frame_guarantee, class);
                if has_elastic {
                    Self::take_beside_elastic(core, elastic, index, frame, arrival);
                    return frames.next();
                }
                let size = Chain::size(&frame);
                let flow = frame.connection();
                let is_full = Bytes(line.memory.0 + size.1.0) > guest.backlog.half_share();
                if size.0 > longest || frame.segments() > 1 || is_full {
                    Room { core, elastic }.take(index, frame, arrival);
                    return frames.next();
                }
                let place = chain.store.place(frame, size, arrival);
                let size = (size.0, size.1, flow);
                chain.append((guest, line), index, place, size, arrival.at);
                if guest.backlog.is_crowded() {
                    Room { core, elastic }.handle_crowd(index);
                    return frames.next();
                }
                frame = frames.next()?;
                if frame.source() != source {
                    return Some(frame);
                }
                let next = guest.destination(&frame);
                if next != to {
                    to = next;
                    break;
                }
            }
        }
    }

    /// Takes in a frame of a guest that has elastic flows.
    #[inline(never)]
    fn take_beside_elastic(
        core: &mut Core<F>,
        elastic: &mut Elastic,
        line: LineIndex,
        frame: F,
        arrival: Arrival,
    ) {
        let mut path = ElasticPath { core, elastic };
        if let Some(frame) = path.push(line, frame, arrival) {
            Room { core, elastic }.take(line, frame, arrival);
        }
    }
}
