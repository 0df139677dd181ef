//! The stream of a host's guarantees.

use crate::ClientError;
use crate::exchange::{Call, Exchange};
use crate::lines::{LineError, Lines};
use std::fmt;
use std::time::Duration;
use tailbound_api::HostGuarantees;
use ureq::BodyReader;

/// The stream of a host's guarantees: all of them, each time one changes, and
/// every ten seconds even if none does.
///
/// As an iterator it blocks until the next line, and ends after the first error
/// or when the service ends the stream.
pub struct Guarantees {
    exchange: Exchange,
    /// The index of the replica that sends the stream.
    replica: usize,
    call: Call,
    host: String,
    silence: Duration,
    /// `None` once it has ended.
    lines: Option<Lines<BodyReader<'static>>>,
}

impl Guarantees {
    pub(crate) fn open(
        exchange: Exchange,
        call: Call,
        host: &str,
        silence: Duration,
    ) -> Result<Self, ClientError> {
        let (body, replica) = exchange.open(&call, silence)?;
        Ok(Self {
            exchange,
            replica,
            call,
            host: host.to_owned(),
            silence,
            lines: Some(Lines::new(body.into_reader())),
        })
    }

    fn advance(&mut self) -> Result<Option<HostGuarantees>, ClientError> {
        let Some(lines) = &mut self.lines else {
            return Ok(None);
        };
        let replica = self.exchange.replica(self.replica);
        let unexpected = |what: &str| replica.unexpected(&self.call, what);
        let line: Option<HostGuarantees> =
            lines.next(self.silence).map_err(|error| match error {
                LineError::Read(error) => replica.broken(&self.call, error, self.silence),
                LineError::Cut => replica.unreachable("the stream ended within a line"),
                LineError::TooLong => unexpected("a line without end"),
                LineError::Content(error) => unexpected(&format!("a line that is none: {error}")),
            })?;
        match line {
            Some(line) if line.host != self.host => Err(unexpected(&format!(
                "guarantees of {:?}, not of {:?}",
                line.host, self.host
            ))),
            line => Ok(line),
        }
    }
}

impl Iterator for Guarantees {
    type Item = Result<HostGuarantees, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance().transpose();
        if !matches!(next, Some(Ok(_))) {
            // Once, however often `next` is called after the end.
            if self.lines.take().is_some() {
                self.exchange.pass_over(self.replica);
            }
        }
        next
    }
}

impl fmt::Debug for Guarantees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarantees")
            .field("host", &self.host)
            .field("ended", &self.lines.is_none())
            .finish_non_exhaustive()
    }
}
