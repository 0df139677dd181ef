//! One connection to the control socket: the received part of a request, and the unsent part of its
//! answer. It never blocks.

use rustix::event::PollFlags;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The longest request, in bytes: enough for several hundred guests.
pub(super) const MAX_REQUEST_BYTES: usize = 256 << 10;

/// The longest time for a client to send a whole request, or to receive an answer.
pub(super) const IDLE: Duration = Duration::from_mins(1);

/// Largest number of bytes in one read.
const CHUNK: usize = 16 << 10;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: u64,
    /// The user ID of the client.
    pub(super) uid: u32,
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    written: usize,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A request is being read, since this time.
    Reading(Instant),
    /// The packet loop has the request.
    Waiting,
    /// The answer is being written, since this time.
    Writing(Instant),
    /// The answer is being written, and the connection ends afterwards.
    Ending(Instant),
    /// The connection is closed.
    Over,
}

impl Connection {
    /// Makes a new connection.
    pub(super) fn new(id: u64, uid: u32, stream: UnixStream, now: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            id,
            uid,
            stream,
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            state: State::Reading(now),
        })
    }

    pub(super) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Returns the time since when a request is expected; `None` after a request.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        match self.state {
            State::Reading(since) => Some(since),
            _ => None,
        }
    }

    /// Returns the time at which the connection is given up; `None` while the packet loop has its
    /// request.
    pub(super) fn until(&self) -> Option<Instant> {
        match self.state {
            State::Reading(since) | State::Writing(since) | State::Ending(since) => {
                Some(since + IDLE)
            }
            State::Waiting | State::Over => None,
        }
    }

    /// Returns the awaited events.
    pub(super) fn interest(&self) -> PollFlags {
        match self.state {
            State::Reading(_) => PollFlags::IN,
            State::Writing(_) | State::Ending(_) => PollFlags::OUT,
            State::Waiting | State::Over => PollFlags::empty(),
        }
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Continues reading or writing. Returns the line of a complete request, which must be answered
    /// by [`Connection::answer`].
    pub(super) fn handle_ready(&mut self, now: Instant) -> Option<Result<Vec<u8>, String>> {
        match self.state {
            State::Reading(_) => {
                let mut chunk = [0; CHUNK];
                match self.stream.read(&mut chunk) {
                    Ok(0) => self.state = State::Over,
                    Ok(count) => self.input.extend(&chunk[..count]),
                    Err(error) if is_for_later(&error) => {}
                    Err(_) => self.state = State::Over,
                }
                self.poll_request()
            }
            State::Writing(_) | State::Ending(_) => {
                match self.stream.write(&self.output[self.written..]) {
                    Ok(count) => self.written += count,
                    Err(error) if is_for_later(&error) => {}
                    Err(_) => self.state = State::Over,
                }
                if self.written < self.output.len() {
                    return None;
                }
                self.output = Vec::new();
                self.written = 0;
                self.state = match self.state {
                    State::Writing(_) => State::Reading(now),
                    _ => State::Over,
                };
                // The next one may be here already.
                self.poll_request()
            }
            // The other side hung up.
            State::Waiting | State::Over => {
                self.state = State::Over;
                None
            }
        }
    }

    /// Returns the complete request, if there is one.
    fn poll_request(&mut self) -> Option<Result<Vec<u8>, String>> {
        if !matches!(self.state, State::Reading(_)) {
            return None;
        }
        if let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
            let rest = self.input.split_off(end + 1);
            let line = std::mem::replace(&mut self.input, rest);
            self.state = State::Waiting;
            return Some(Ok(line));
        }
        if self.input.len() > MAX_REQUEST_BYTES {
            self.input = Vec::new();
            self.state = State::Waiting;
            let error = format!("a request is one line of at most {MAX_REQUEST_BYTES} bytes");
            return Some(Err(error));
        }
        None
    }

    /// Answers the request, and with `and_end` closes the connection afterwards.
    pub(super) fn answer(&mut self, now: Instant, line: String, and_end: bool) {
        if self.state == State::Waiting {
            self.output = line.into_bytes();
            self.state = if and_end {
                State::Ending(now)
            } else {
                State::Writing(now)
            };
        }
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair() -> (Connection, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        theirs.set_nonblocking(true).expect("it is a socket");
        let connection = Connection::new(1, 0, ours, Instant::now());
        (connection.expect("it is a socket"), theirs)
    }

    #[test]
    fn clients_that_hang_up_or_send_too_much_are_disconnected() {
        let now = Instant::now();
        let (mut connection, theirs) = pair();
        drop(theirs);
        assert!(connection.handle_ready(now).is_none() && connection.is_over());
        let (mut connection, mut theirs) = pair();
        let error = loop {
            let _ = theirs.write(&[b'x'; CHUNK]);
            if let Some(line) = connection.handle_ready(now) {
                break line.expect_err("it has no end");
            }
        };
        assert!(error.contains("262144"), "{error}");
        connection.answer(now, "no\n".to_owned(), true);
        assert!(connection.handle_ready(now).is_none() && connection.is_over());
    }

    proptest! {
        /// Requests in arbitrary pieces are each answered, in order.
        #[test]
        fn each_line_is_one_request(
            lines in proptest::collection::vec("[a-z]{0,20}", 1..8),
            cuts in proptest::collection::vec(1_usize..30, 1..20),
        ) {
            let now = Instant::now();
            let (mut connection, mut theirs) = pair();
            let bytes: Vec<u8> = lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
            let mut rest = &bytes[..];
            let mut cuts = cuts.iter().cycle();
            let mut got = Vec::new();
            let mut answers = String::new();
            while got.len() < lines.len() {
                if !rest.is_empty() {
                    let (some, later) = rest.split_at(rest.len().min(*cuts.next().expect("a cycle")));
                    theirs.write_all(some).expect("there is room");
                    rest = later;
                }
                let mut line = connection.handle_ready(now);
                while let Some(request) = line {
                    let request = String::from_utf8(request.expect("it is short")).expect("text");
                    connection.answer(now, request.clone(), false);
                    got.push(request.trim_end().to_owned());
                    line = connection.handle_ready(now);
                }
            }
            connection.handle_ready(now);
            let _ = theirs.read_to_string(&mut answers);
            prop_assert_eq!(&got, &lines);
            prop_assert_eq!(answers.as_bytes(), &bytes[..]);
        }
    }
}
