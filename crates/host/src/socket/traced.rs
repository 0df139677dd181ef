//! Trace of a guest's single frames.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;
pub use tailbound_switch::Wait;
use tailbound_switch::{Traced, TracedFrame};
use tailbound_units::Nanos;

/// Most frames in one trace: the daemon keeps 10 MB of them, and an answer has 33 MB at most.
pub const TRACE_FRAMES: usize = 131_072;

/// One frame's wait. Times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceFrame {
    /// The queue or the limit for which the frame waited.
    pub wait: Wait,
    /// The class in which it travels: `guaranteed`, `small` or `lowest`.
    pub class: String,
    /// The frame's bytes without FCS.
    pub bytes: u32,
    /// The destination or the source; left out if the frame is not IP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<IpAddr>,
    /// The time at which the frame was queued.
    pub enqueued_ns: u64,
    /// The time at which the frame was released.
    pub released_ns: u64,
    /// The time at which the frame begins on the wire, by the pacer; left out without a pacer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins_ns: Option<u64>,
    /// The time at which the port took the frame or lost it; left out if the trace ended before,
    /// and for a frame to no port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_ns: Option<u64>,
}

/// A trace from the packet loop.
pub(crate) struct Trace {
    pub(crate) traced: Traced,
    /// The value of `CLOCK_MONOTONIC` when the daemon's clock is at zero, in nanoseconds.
    pub(crate) zero: u64,
}

impl Trace {
    /// Converts the frames for the socket: too much work for the packet loop.
    pub(super) fn frames(&self) -> Vec<TraceFrame> {
        let moment = |at: Nanos| self.zero + at.0;
        let to_trace = |frame: &TracedFrame| TraceFrame {
            wait: frame.wait,
            class: frame.class.word().to_owned(),
            bytes: frame.bytes,
            peer: frame.peer,
            enqueued_ns: moment(frame.enqueued),
            released_ns: moment(frame.released),
            begins_ns: frame.begins.map(moment),
            taken_ns: frame.taken.map(moment),
        };
        self.traced.frames.iter().map(to_trace).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::MAX_ANSWER_BYTES;
    use super::*;

    #[test]
    fn the_longest_trace_is_an_answer_that_a_client_takes() {
        let frame = TraceFrame {
            wait: Wait::Inward,
            class: "guaranteed".to_owned(),
            bytes: u32::MAX,
            peer: Some([u8::MAX; 16].into()),
            enqueued_ns: u64::MAX,
            released_ns: u64::MAX,
            begins_ns: Some(u64::MAX),
            taken_ns: Some(u64::MAX),
        };
        let line = serde_json::to_string(&frame).unwrap().len() + 1;
        assert!(
            (line * TRACE_FRAMES) as u64 <= MAX_ANSWER_BYTES / 2,
            "{line}"
        );
        assert!(size_of::<TracedFrame>() * TRACE_FRAMES < 10_000_000);
    }
}
