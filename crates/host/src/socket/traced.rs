//! The frames of a guest, one by one, as they are told.

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
    /// What it waited for.
    pub wait: Wait,
    /// The class in which it travels: `guaranteed`, `small` or `lowest`.
    pub class: String,
    /// Its bytes without FCS.
    pub bytes: u32,
    /// Whom it went to, or came from; left out where it is not IP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<IpAddr>,
    /// When it began to wait.
    pub enqueued_ns: u64,
    /// When it was let go.
    pub released_ns: u64,
    /// When it begins on the wire, as the pacer has it; left out without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins_ns: Option<u64>,
    /// When the port took it, or lost it; left out where it had not by the end, and where it
    /// goes to no port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_ns: Option<u64>,
}

/// A trace as the packet loop hands it over.
pub(crate) struct Trace {
    pub(crate) traced: Traced,
    /// What `CLOCK_MONOTONIC` shows where the daemon's clock is at zero, in nanoseconds.
    pub(crate) zero: u64,
}

impl Trace {
    /// Its frames, in the words of the socket: not for the packet loop, which has more to do.
    pub(super) fn frames(&self) -> Vec<TraceFrame> {
        let moment = |at: Nanos| self.zero + at.0;
        let told = |frame: &TracedFrame| TraceFrame {
            wait: frame.wait,
            class: frame.class.word().to_owned(),
            bytes: frame.bytes,
            peer: frame.peer,
            enqueued_ns: moment(frame.enqueued),
            released_ns: moment(frame.released),
            begins_ns: frame.begins.map(moment),
            taken_ns: frame.taken.map(moment),
        };
        self.traced.frames.iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::LONGEST;
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
        assert!((line * TRACE_FRAMES) as u64 <= LONGEST / 2, "{line}");
        assert!(size_of::<TracedFrame>() * TRACE_FRAMES < 10_000_000);
    }
}
