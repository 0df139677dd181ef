//! Frames of one guest, as reported by the daemon that forwards them.

use super::Args;
use super::events::Events;
use crate::exit::Failure;
use std::io::Write;
use std::thread::{self, JoinHandle};
use tailbound_host::socket::{ClientError, Outcome, Request, TRACE_FRAMES};

/// A trace that a daemon records in parallel.
pub(super) struct Frames {
    guest: String,
    answer: JoinHandle<Result<Outcome, ClientError>>,
}

impl Frames {
    /// Checks that the guest exists, and starts the daemon's trace.
    pub(super) fn begin(args: &Args, guest: &str) -> Result<Self, Failure> {
        let mut client = args.daemon.connect()?;
        let Outcome::Shown { host } = client.ask(&Request::Show {})? else {
            return Err(Failure::new(
                "the daemon answers something else than it was asked",
            ));
        };
        let known: Vec<_> = host.guests.iter().map(|it| it.port.name.as_str()).collect();
        if !known.contains(&guest) {
            let unknown = tailbound_document::unknown_word("guest", guest, &known);
            return Err(Failure::new(unknown));
        }
        let request = Request::Trace {
            guest: guest.to_owned(),
            patience_ms: args.duration.0.div_ceil(1_000_000),
        };
        Ok(Self {
            guest: guest.to_owned(),
            answer: thread::spawn(move || client.ask(&request)),
        })
    }

    /// Waits for the end of the daemon's trace, and adds its frames. Returns remarks.
    pub(super) fn end<W: Write>(
        self,
        args: &Args,
        events: &mut Events<W>,
    ) -> Result<Vec<String>, Failure> {
        let answer = self.answer.join();
        let (frames, missed) =
            match answer.map_err(|_| Failure::new("the daemon could not be asked"))?? {
                Outcome::Traced { frames, missed } => (frames, missed),
                Outcome::Refused { message, .. } => return Err(Failure::new(message)),
                _ => {
                    return Err(Failure::new(
                        "the daemon answers something else than it was asked",
                    ));
                }
            };
        let added = events.add_frames(&self.guest, &frames, missed);
        added.map_err(|error| args.cannot(&error))?;
        let is_full = frames.len() >= TRACE_FRAMES;
        let remark =
            format!("the daemon had room for {TRACE_FRAMES} frames: the last came before the end");
        Ok(is_full.then_some(remark).into_iter().collect())
    }
}
