//! The start of a VM, from outside.

use super::{Message, channel};
use crate::guest::now;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use tailbound_units::Nanos;

/// Number of readings of a VM's clock; the fastest reading counts.
const QUESTIONS: usize = 50;

/// A VM that has begun to boot.
#[derive(Debug)]
pub struct Boot(UnixStream);

impl Boot {
    /// Connects to the VM `name`, whose channels are in `directory`. The VM may still boot:
    /// messages to it are queued.
    ///
    /// # Errors
    /// The VM does not run; a QEMU that has just been started may not have made its sockets yet.
    pub fn begin(directory: &Path, name: &str) -> io::Result<Self> {
        UnixStream::connect(channel(directory, name, 0)).map(Self)
    }

    /// Sets up the VM's `links` (`ip -batch`) and its clock, and waits until it accepts orders;
    /// returns the largest error of its clock.
    ///
    /// # Errors
    /// The VM sends no message for `patience`, or ends.
    pub fn finish(mut self, links: &str, patience: Duration) -> io::Result<Nanos> {
        self.0.set_read_timeout(Some(patience))?;
        Message::Links(links.to_owned()).write(&mut self.0)?;
        let mut best: Option<(Nanos, Nanos)> = None;
        for _ in 0..QUESTIONS {
            let sent_at = now();
            Message::Ask.write(&mut self.0)?;
            let Message::Clock(there) = self.read()? else {
                return Err(io::Error::other("the VM does not report its time"));
            };
            // The VM read its clock between both times: the error is at most half of their
            // distance.
            let half = Nanos(now().since(sent_at).as_nanos() / 2);
            if best.is_none_or(|(error, _)| half < error) {
                best = Some((half, (sent_at + half).since(there)));
            }
        }
        let (error, ahead) = best.unwrap_or_default();
        Message::Ahead(ahead).write(&mut self.0)?;
        match self.read()? {
            Message::Up => Ok(error),
            other => Err(io::Error::other(format!("it does not come up: {other:?}"))),
        }
    }

    fn read(&mut self) -> io::Result<Message> {
        Message::read(&mut self.0)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}
