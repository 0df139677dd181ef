//! Frames that wait for a limit, as its rate changes.
//!
//! A bucket counts what it is owed in bytes, whatever its rate. So a change of rate
//! at a moment rescales everything behind that moment by the old rate over the new
//! one: when the bucket is full again, and when each frame that was
//! charged to it is released. No frame is charged twice or overtakes another of its
//! flow, and releases are those of a bucket that had the new rate from then on.
//!
//! What waits for no longer than its guest's horizon is frozen: it would hardly gain.
//! Then the change is at the moment when the last of that has left, and all that lies
//! behind it is rescaled, if anything does: segments of large packets, which are
//! taken whole at rates that they need long for.
//!
//! Rates change many at a time, and what waits is in one wheel: it is gone through
//! once for all changes of a moment, before anything else happens to these flows.

use super::Pacer;
use crate::Frame;
use tailbound_units::{Position, Rate, WireBytes};

/// From which moment on releases are rescaled, and by how much.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rescale {
    /// The moment of the change, or until when releases are frozen.
    pub(super) from: Position,
    /// No release may be earlier.
    pub(super) floor: Position,
    pub(super) old: Rate,
    /// Above zero.
    pub(super) new: Rate,
}

impl Rescale {
    /// Returns when what was to happen at `moment` happens now, rounded up.
    pub(super) fn at(&self, moment: Position) -> Position {
        if moment <= self.from {
            return moment;
        }
        let work = u128::from((moment - self.from).0) * u128::from(self.old.0);
        let ahead = u64::try_from(work.div_ceil(u128::from(self.new.0)));
        let ahead = ahead.map_or(WireBytes::MAX, WireBytes);
        let rescaled = self.from.saturating_add(ahead);
        rescaled.max(self.floor)
    }
}

impl<F: Frame> Pacer<F> {
    /// Rescales what waits for limits whose rates have changed.
    pub(super) fn rescale_pending(&mut self) {
        if !self.changed.is_empty() {
            self.rescale_waiting();
        }
    }

    #[cold]
    fn rescale_waiting(&mut self) {
        let Self {
            destination_stage: stage,
            store,
            limits,
            changed,
            waiting,
            ..
        } = self;
        let nodes = &mut store.nodes;
        let from = self.position.max(self.wire);
        let floor = stage.start_from(from);
        loop {
            let first = stage.first();
            if first.departure == Position::NEVER {
                break;
            }
            waiting.push(stage.pop(nodes, first));
        }
        stage.restart(floor);
        for index in waiting.drain(..) {
            let node = &mut nodes[index as usize];
            if let Some(flow) = node.frame.as_ref().and_then(Frame::flow)
                && let Some(limit) = limits.get_mut(flow)
                && let Some(rescale) = limit.pending_rescale
            {
                node.departure = rescale.at(node.departure);
            }
            let departure = node.departure;
            stage.insert(nodes, index, departure);
        }
        for flow in changed.drain(..) {
            if let Some(limit) = limits.get_mut(flow) {
                limit.pending_rescale = None;
            }
        }
        self.next = self
            .link_stage
            .first()
            .departure
            .min(self.destination_stage.first().departure);
    }
}
