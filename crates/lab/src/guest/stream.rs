//! Non-blocking TCP streams for tasks with several connections.

use super::events::is_retry;
use super::{Sample, control_congestion, now};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::rc::Rc;
use tailbound_units::Nanos;

/// The key that [`super::events::Events::wait`] reports for a listener.
pub(super) const LISTENER: u64 = u64::MAX - 1;

/// Opens a listener on a TCP port.
pub(super) fn listen(port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    control_congestion(&listener)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Passes all pending connections to `take`.
pub(super) fn accept(
    listener: &TcpListener,
    mut take: impl FnMut(TcpStream) -> io::Result<()>,
) -> io::Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                take(stream)?;
            }
            Err(error) if is_retry(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Begins to connect; the socket becomes writable when it is connected.
pub(super) fn connect(peer: SocketAddrV4) -> io::Result<TcpStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    control_congestion(&socket)?;
    match rustix::net::connect(&socket, &peer) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

/// A connection that carries one request at a time.
pub(super) struct Exchange {
    stream: TcpStream,
    pending: Option<PendingRequest>,
}

/// A request without a complete answer.
struct PendingRequest {
    sample: Sample,
    request: Rc<[u8]>,
    sent: usize,
    missing: u64,
}

impl Exchange {
    pub(super) const fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            pending: None,
        }
    }

    /// Returns the scheduled start of the pending request.
    pub(super) fn waits_since(&self) -> Option<Nanos> {
        self.pending.as_ref().map(|pending| pending.sample.start)
    }

    /// Sends a request whose answer has `answer` bytes.
    pub(super) fn ask(&mut self, sample: Sample, request: Rc<[u8]>, answer: u64) -> io::Result<()> {
        self.pending = Some(PendingRequest {
            sample,
            request,
            sent: 0,
            missing: answer,
        });
        self.send()
    }

    /// Sends the rest of a request; bytes without room now are sent when the socket is writable
    /// again.
    fn send(&mut self) -> io::Result<()> {
        let Some(pending) = &mut self.pending else {
            return Ok(());
        };
        while pending.sent < pending.request.len() {
            match self.stream.write(&pending.request[pending.sent..]) {
                Ok(written) => pending.sent += written,
                Err(error) if is_retry(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Continues until it would block. Returns the sample when the last byte of its answer has
    /// arrived.
    pub(super) fn proceed(&mut self, buffer: &mut [u8]) -> io::Result<Option<Sample>> {
        self.send()?;
        let mut answered = None;
        loop {
            let length = match self.stream.read(buffer) {
                Ok(0) => return Err(io::ErrorKind::ConnectionReset.into()),
                Ok(length) => length as u64,
                Err(error) if is_retry(&error) => return Ok(answered),
                Err(error) => return Err(error),
            };
            let Some(pending) = &mut self.pending else {
                return Err(io::Error::other("a server answers without a request"));
            };
            pending.missing = pending.missing.saturating_sub(length);
            if pending.missing == 0 {
                answered = Some(Sample {
                    end: now(),
                    ..pending.sample
                });
                self.pending = None;
            }
        }
    }
}
