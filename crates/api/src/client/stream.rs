//! Streams: of a host's guarantees, and of changes.

use super::ClientError;
use super::exchange::{Call, Exchange};
use super::lines::{LineError, Lines};
use crate::{AuditLine, Event, HostChangeLine, HostGuarantees, HostLine, TenantLine};
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;
use ureq::BodyReader;

/// Lines of JSON that come one by one.
struct Stream {
    exchange: Exchange,
    /// The index of the replica that sends the stream.
    replica: usize,
    call: Call,
    silence: Duration,
    /// `None` once it has ended.
    lines: Option<Lines<BodyReader<'static>>>,
}

impl Stream {
    fn open(exchange: Exchange, call: Call, silence: Duration) -> Result<Self, ClientError> {
        let (body, replica) = exchange.open(&call, silence)?;
        Ok(Self {
            exchange,
            replica,
            call,
            silence,
            lines: Some(Lines::new(body.into_reader())),
        })
    }

    fn advance<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ClientError> {
        let Some(lines) = &mut self.lines else {
            return Ok(None);
        };
        let replica = self.exchange.replica(self.replica);
        lines.next(self.silence).map_err(|error| match error {
            LineError::Read(error) => replica.broken(&self.call, error, self.silence),
            LineError::Cut => replica.unreachable("the stream ended within a line"),
            LineError::TooLong => replica.unexpected(&self.call, "a line without end"),
            LineError::Content(error) => {
                replica.unexpected(&self.call, &format!("a line that is none: {error}"))
            }
        })
    }

    fn unexpected(&self, what: &str) -> ClientError {
        let replica = self.exchange.replica(self.replica);
        replica.unexpected(&self.call, what)
    }

    /// Ends the stream. Further calls have no effect.
    fn end(&mut self) {
        if self.lines.take().is_some() {
            self.exchange.pass_over(self.replica);
        }
    }

    fn debug(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("ended", &self.lines.is_none())
            .finish_non_exhaustive()
    }
}

/// A stream about one host, of [`HostGuarantees`] or [`HostLine`]s: all guarantees, each time one
/// changes, and every ten seconds even if none does.
///
/// As an iterator it blocks until the next line, and ends after the first error or when the service
/// ends the stream.
pub struct HostStream<T> {
    stream: Stream,
    host: String,
    kind: PhantomData<fn() -> T>,
}

/// A line that names its host.
pub(crate) trait Line: DeserializeOwned {
    fn host(&self) -> &str;
}

impl Line for HostGuarantees {
    fn host(&self) -> &str {
        &self.host
    }
}

impl Line for HostLine {
    fn host(&self) -> &str {
        match self {
            Self::Keys(update) => &update.host,
            Self::Guarantees(guarantees) => &guarantees.host,
        }
    }
}

#[expect(private_bounds, reason = "only these two streams exist")]
impl<T: Line> HostStream<T> {
    pub(crate) fn open(
        exchange: Exchange,
        call: Call,
        host: &str,
        silence: Duration,
    ) -> Result<Self, ClientError> {
        Ok(Self {
            stream: Stream::open(exchange, call, silence)?,
            host: host.to_owned(),
            kind: PhantomData,
        })
    }

    fn advance(&mut self) -> Result<Option<T>, ClientError> {
        match self.stream.advance::<T>()? {
            Some(line) if line.host() != self.host => {
                let what = format!("guarantees of {:?}, not of {:?}", line.host(), self.host);
                Err(self.stream.unexpected(&what))
            }
            line => Ok(line),
        }
    }
}

impl<T: Line> Iterator for HostStream<T> {
    type Item = Result<T, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance().transpose();
        if !matches!(next, Some(Ok(_))) {
            self.stream.end();
        }
        next
    }
}

impl<T> fmt::Debug for HostStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stream.debug("HostStream", f)
    }
}

/// A kind of change of which the service has a stream.
pub trait Change: DeserializeOwned {
    /// The path of the stream below `/v1`.
    const PATH: &'static [&'static str];
}

/// Tenants that are degraded, and each whose state becomes another one.
impl Change for Event {
    const PATH: &'static [&'static str] = &["events"];
}

/// Tenants that are new, gone or differ.
impl Change for TenantLine {
    const PATH: &'static [&'static str] = &["changes", "tenants"];
}

/// Hosts whose state or report differs.
impl Change for HostChangeLine {
    const PATH: &'static [&'static str] = &["changes", "hosts"];
}

/// Entries of the audit.
impl Change for AuditLine {
    const PATH: &'static [&'static str] = &["changes", "audit"];
}

/// The stream of changes of one kind, as an iterator like [`HostStream`].
pub struct Changes<T> {
    stream: Stream,
    kind: PhantomData<fn() -> T>,
}

impl<T: Change> Changes<T> {
    pub(crate) fn open(
        exchange: Exchange,
        call: Call,
        silence: Duration,
    ) -> Result<Self, ClientError> {
        Ok(Self {
            stream: Stream::open(exchange, call, silence)?,
            kind: PhantomData,
        })
    }
}

impl<T: Change> Iterator for Changes<T> {
    type Item = Result<T, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.stream.advance().transpose();
        if !matches!(next, Some(Ok(_))) {
            self.stream.end();
        }
        next
    }
}

impl<T> fmt::Debug for Changes<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stream.debug("Changes", f)
    }
}
