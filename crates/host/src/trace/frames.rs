//! Frames of one guest, as reported by the daemon that forwards them.

use super::TraceError;
use crate::socket::{Client, ClientError, Outcome, Request, TRACE_FRAMES, TraceFrame};
use std::thread::{self, JoinHandle};
use tailbound_units::Nanos;

/// A trace that a daemon records in parallel.
pub(super) struct Frames {
    guest: String,
    answer: JoinHandle<Result<Outcome, ClientError>>,
}

impl Frames {
    /// Checks that the guest exists, and starts the daemon's trace.
    pub(super) fn begin(
        mut client: Client,
        guest: &str,
        duration: Nanos,
    ) -> Result<Self, TraceError> {
        let Outcome::Shown { host } = client.ask(&Request::Show {})? else {
            return Err(TraceError::OtherAnswer);
        };
        let known: Vec<_> = host.guests.iter().map(|it| it.port.name.as_str()).collect();
        if !known.contains(&guest) {
            let unknown = tailbound_document::unknown_word("guest", guest, &known);
            return Err(TraceError::NotForwarded(unknown));
        }
        let request = Request::Trace {
            guest: guest.to_owned(),
            patience_ms: duration.0.div_ceil(1_000_000),
        };
        Ok(Self {
            guest: guest.to_owned(),
            answer: thread::spawn(move || client.ask(&request)),
        })
    }

    /// Waits for the end of the daemon's trace. Returns the guest, its frames, and the number of
    /// frames that the daemon had no room for.
    pub(super) fn end(self) -> Result<(String, Vec<TraceFrame>, u64), TraceError> {
        let answer = self.answer.join().map_err(|_| TraceError::Asking)?;
        match answer? {
            Outcome::Traced { frames, missed } => Ok((self.guest, frames, missed)),
            Outcome::Refused { message, .. } => Err(TraceError::Refused(message)),
            _ => Err(TraceError::OtherAnswer),
        }
    }
}

/// Returns the remark about frames that the daemon had no room for, if there may be some.
pub(super) fn remark(frames: &[TraceFrame]) -> Option<String> {
    let is_full = frames.len() >= TRACE_FRAMES;
    is_full.then(|| {
        format!("the daemon had room for {TRACE_FRAMES} frames: the last came before the end")
    })
}
