//! Traces of a guest's frames: the times at which each frame was queued, released, and taken by a
//! port.

use super::Daemon;
use crate::socket::{Outcome, Reply, TRACE_FRAMES, Trace};
use tailbound_units::Nanos;

/// A trace in progress. There is at most one, which bounds its cost.
pub(super) struct Tracing {
    guest: String,
    until: Nanos,
    reply: Reply,
}

impl Tracing {
    /// Returns the latest end of the trace.
    pub(super) const fn poll_at(&self) -> Nanos {
        self.until
    }
}

impl Daemon {
    /// Begins to trace a guest's frames, unless another trace is in progress.
    pub(super) fn begin_tracing(&mut self, now: Nanos, guest: &str, patience: Nanos, reply: Reply) {
        let Some((id, reply)) = self.guest_named(guest, reply) else {
            return;
        };
        if let Some(other) = &self.requests.tracing {
            return reply.done(Outcome::refused(format!(
                "the frames of {} are being traced already; retry after that has ended, in {}",
                other.guest,
                other.until.since(now)
            )));
        }
        tracing::info!(guest, %patience, "traces a guest's frames");
        self.switch.begin_trace(id, TRACE_FRAMES);
        self.requests.tracing = Some(Tracing {
            guest: guest.to_owned(),
            until: now + patience,
            reply,
        });
    }

    /// Ends a trace whose time is over or whose memory is full, and answers with its frames.
    pub(super) fn poll_tracing(&mut self, now: Nanos) {
        let ends = |tracing: &mut Tracing| now >= tracing.until || self.switch.is_trace_full();
        let Some(tracing) = self.requests.tracing.take_if(ends) else {
            return;
        };
        tracing.reply.trace(Trace {
            traced: self.switch.end_trace().unwrap_or_default(),
            zero: self.clock.zero(),
        });
    }
}
