//! Traces of a guest's frames: the times at which each frame was queued, released, and taken by a
//! port.

use super::clock::Clock;
use super::named::guest_named;
use crate::socket::{Outcome, Reply, TRACE_FRAMES, Trace};
use tailbound_switch::Switch;
use tailbound_units::Nanos;

/// A trace in progress.
struct TraceRequest {
    guest: String,
    until: Nanos,
    reply: Reply,
}

/// The trace of a guest's frames. There is at most one, which bounds its cost.
#[derive(Default)]
pub(super) struct Traces {
    current: Option<TraceRequest>,
}

impl Traces {
    /// Returns the latest end of the trace, if there is one.
    pub(super) fn poll_at(&self) -> Option<Nanos> {
        self.current.as_ref().map(|tracing| tracing.until)
    }

    /// Begins to trace a guest's frames until a time, unless another trace is in progress.
    pub(super) fn begin(
        &mut self,
        now: Nanos,
        guest: &str,
        until: Nanos,
        switch: &mut Switch,
        reply: Reply,
    ) {
        let Some((id, reply)) = guest_named(switch, guest, reply) else {
            return;
        };
        if let Some(other) = &self.current {
            return reply.done(Outcome::refused(format!(
                "the frames of {} are being traced already; retry after that has ended, in {}",
                other.guest,
                other.until.since(now)
            )));
        }
        let patience = until.since(now);
        tracing::info!(guest, %patience, "traces a guest's frames");
        switch.begin_trace(id, TRACE_FRAMES);
        self.current = Some(TraceRequest {
            guest: guest.to_owned(),
            until,
            reply,
        });
    }

    /// Ends a trace whose time is over or whose memory is full, and answers with its frames.
    pub(super) fn poll(&mut self, now: Nanos, switch: &mut Switch, clock: &Clock) {
        let ends = |tracing: &mut TraceRequest| now >= tracing.until || switch.is_trace_full();
        let Some(tracing) = self.current.take_if(ends) else {
            return;
        };
        tracing.reply.trace(Trace {
            traced: switch.end_trace().unwrap_or_default(),
            zero: clock.zero(),
        });
    }
}
