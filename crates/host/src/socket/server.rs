//! The daemon's side of the control socket: a thread that accepts connections, reads whole requests
//! and writes answers. It waits for all connections together.

use super::connection::{Connection, IDLE};
use super::status::View;
use super::traced::Trace;
use super::wire::{Answer, Outcome, Request};
use crate::config::{Before, Change};
use crate::wake::Waker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use std::io::{self, ErrorKind, Read};
use std::net::Ipv4Addr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tailbound_units::Nanos;

/// Largest number of connections. Beyond it, the connection with the longest idle time is closed.
const MAX_CONNECTIONS: usize = 64;

/// Pause after a failed accept, for example for want of descriptors.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The longest that an answer waits for a drain: an hour.
const LONGEST_DRAIN_MS: u64 = 3_600_000;

/// The longest time for sending frames in a guest's name: a minute, and a margin.
const LONGEST_TRIAL_MS: u64 = 70_000;

/// The longest that frames are traced: ten minutes.
const LONGEST_TRACE_MS: u64 = 600_000;

/// The sender and the receiver of a trial.
pub(crate) struct TrialRequest {
    pub(crate) guest: String,
    /// The destination MAC address.
    pub(crate) mac: [u8; 6],
    pub(crate) to: Ipv4Addr,
}

/// A request to the packet loop.
pub(crate) enum LoopRequest {
    /// Show everything.
    Show(Reply),
    /// Change the guests.
    Change(Change, Reply),
    /// Stop reading ports, or read them again.
    Drain {
        /// The guest; `None` for all.
        guest: Option<String>,
        undo: bool,
        patience: Nanos,
        reply: Reply,
    },
    /// Stop acknowledging TCP early for a guest, or start again.
    MigratePrepare {
        guest: String,
        undo: bool,
        patience: Nanos,
        reply: Reply,
    },
    /// Send frames in a guest's name.
    Send {
        sending: TrialRequest,
        patience: Nanos,
        reply: Reply,
    },
    /// Show a guest's early acknowledged connections.
    ShowSnoop { guest: String, reply: Reply },
    /// Trace each frame of a guest.
    Trace {
        guest: String,
        patience: Nanos,
        reply: Reply,
    },
}

/// The receiver of the packet loop's answer.
pub(crate) struct Reply {
    connection: u64,
    uid: u32,
    answers: Sender<(u64, LoopAnswer)>,
    waker: Waker,
}

/// An answer of the packet loop.
enum LoopAnswer {
    Outcome(Outcome),
    View(Box<View>),
    Trace(Trace),
}

impl Reply {
    /// Returns the user ID of the client.
    pub(crate) const fn uid(&self) -> u32 {
        self.uid
    }

    /// Sends the outcome of the request.
    pub(crate) fn done(self, outcome: Outcome) {
        self.tell(LoopAnswer::Outcome(outcome));
    }

    /// Sends the daemon's state.
    pub(crate) fn show(self, view: View) {
        self.tell(LoopAnswer::View(Box::new(view)));
    }

    /// Sends a trace.
    pub(crate) fn trace(self, trace: Trace) {
        self.tell(LoopAnswer::Trace(trace));
    }

    fn tell(self, answer: LoopAnswer) {
        // The client may be gone.
        let _ = self.answers.send((self.connection, answer));
        self.waker.wake();
    }
}

#[cfg(test)]
impl Reply {
    /// Makes a reply without a client.
    pub(crate) fn without_client() -> Self {
        let (_, waker) = Waker::pair().expect("a pair of sockets");
        Self {
            connection: 0,
            uid: 0,
            answers: channel().0,
            waker,
        }
    }
}

/// A server of the control socket, until it is dropped.
pub(crate) struct Server {
    requests: Receiver<LoopRequest>,
    waker: Waker,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts the thread, which wakes the packet loop by `waker`.
    pub(crate) fn start(listener: UnixListener, waker: Waker) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (woken, own) = Waker::pair()?;
        let (ask, requests) = channel();
        let (tell, answers) = channel();
        let ends = Arc::new(AtomicBool::new(false));
        let mut serving = SocketThread {
            listener,
            woken,
            own: own.clone(),
            packet_loop: waker,
            ask,
            tell,
            answers,
            ends: Arc::clone(&ends),
            connections: Vec::new(),
            next: 0,
            accepts_at: None,
        };
        let thread = std::thread::Builder::new().name("control".to_owned());
        let thread = thread.spawn(move || {
            while !serving.ends.load(Ordering::Relaxed) {
                if let Err(error) = serving.turn() {
                    tracing::error!(%error, "the control socket is served no longer");
                    return;
                }
            }
        })?;
        Ok(Self {
            requests,
            waker: own,
            ends,
            thread: Some(thread),
        })
    }

    /// Returns the requests since the last call.
    pub(crate) fn asked(&self) -> impl Iterator<Item = LoopRequest> + '_ {
        self.requests.try_iter()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread's side.
struct SocketThread {
    listener: UnixListener,
    /// Readable when there is work for the thread.
    woken: UnixStream,
    /// The waker for `woken`.
    own: Waker,
    packet_loop: Waker,
    ask: Sender<LoopRequest>,
    tell: Sender<(u64, LoopAnswer)>,
    answers: Receiver<(u64, LoopAnswer)>,
    ends: Arc<AtomicBool>,
    connections: Vec<Connection>,
    next: u64,
    /// No connection is accepted before this time.
    accepts_at: Option<Instant>,
}

impl SocketThread {
    /// Waits for work, and does it.
    fn turn(&mut self) -> io::Result<()> {
        let ready = self.wait()?;
        let now = Instant::now();
        if ready.woken {
            let mut bytes = [0; 64];
            while matches!(self.woken.read(&mut bytes), Ok(1..)) {}
        }
        while let Ok((id, answer)) = self.answers.try_recv() {
            let outcome = match answer {
                LoopAnswer::Outcome(outcome) => outcome,
                LoopAnswer::Trace(trace) => Outcome::Traced {
                    frames: trace.frames(),
                    missed: trace.traced.missed,
                },
                LoopAnswer::View(view) => Outcome::Shown {
                    host: Box::new(view.show()),
                },
            };
            let asker = self.connections.iter_mut().find(|asker| asker.id == id);
            if let Some(asker) = asker {
                asker.answer(now, Answer::line(outcome), false);
            }
        }
        for index in ready.connections {
            self.serve(now, index);
        }
        self.connections
            .retain(|one| !one.is_over() && one.until().is_none_or(|until| until > now));
        if ready.listener {
            self.accept(now);
        }
        Ok(())
    }

    fn wait(&mut self) -> io::Result<Ready> {
        let now = Instant::now();
        self.accepts_at = self.accepts_at.filter(|at| *at > now);
        let until = self.connections.iter().filter_map(Connection::until);
        let until = until.chain(self.accepts_at).min();
        let timeout = until.map(|until| until.saturating_duration_since(now));
        let timeout = timeout.map(|timeout| Timespec::try_from(timeout.min(IDLE)));
        let timeout = timeout.transpose().map_err(io::Error::other)?;
        let accepts = if self.accepts_at.is_none() {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let mut fds = vec![
            PollFd::new(&self.listener, accepts),
            PollFd::new(&self.woken, PollFlags::IN),
        ];
        let connections = self.connections.iter();
        fds.extend(
            connections.map(|one| PollFd::from_borrowed_fd(one.descriptor(), one.interest())),
        );
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let connections = fds[2..].iter().enumerate();
        let connections = connections.filter(|(_, fd)| is_ready(fd));
        Ok(Ready {
            listener: is_ready(&fds[0]),
            woken: is_ready(&fds[1]),
            connections: connections.map(|(index, _)| index).collect(),
        })
    }

    /// Continues a connection, and passes on its request.
    fn serve(&mut self, now: Instant, index: usize) {
        let connection = &mut self.connections[index];
        let Some(line) = connection.handle_ready(now) else {
            return;
        };
        let is_whole = line.is_ok();
        let request = match line.and_then(|line| Request::read(&line)) {
            Ok(request) => request,
            Err(message) => {
                let line = Answer::line(Outcome::refused(message));
                return connection.answer(now, line, !is_whole);
            }
        };
        let reply = Reply {
            connection: connection.id,
            uid: connection.uid,
            answers: self.tell.clone(),
            waker: self.own.clone(),
        };
        // It is received as long as this thread is to run.
        let _ = self.ask.send(loop_request(request, reply));
        self.packet_loop.wake();
    }

    fn accept(&mut self, now: Instant) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => self.admit(now, stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::warn!(%error, "the control socket accepts no connections for now");
                    self.accepts_at = Some(now + ACCEPT_RETRY_PAUSE);
                    return;
                }
            }
        }
    }

    /// Accepts a connection of this daemon's user, or of root.
    fn admit(&mut self, now: Instant, stream: UnixStream) {
        let uid = match socket_peercred(&stream) {
            Ok(peer) if peer.uid == geteuid() || peer.uid.is_root() => peer.uid.as_raw(),
            Ok(peer) => {
                let uid = peer.uid.as_raw();
                return tracing::warn!(uid, "the control socket is not for that user");
            }
            Err(error) => return tracing::warn!(%error, "who connects to the control socket?"),
        };
        if self.connections.len() >= MAX_CONNECTIONS && !self.make_room() {
            return tracing::warn!("the control socket has all the requests that it can hold");
        }
        self.next += 1;
        if let Ok(connection) = Connection::new(self.next, uid, stream, now) {
            self.connections.push(connection);
        }
    }

    /// Closes the connection that has been idle for longest; returns false if there is none.
    fn make_room(&mut self) -> bool {
        let idle = self.connections.iter().enumerate();
        let idle = idle.filter_map(|(index, one)| Some((one.idle_since()?, index)));
        let Some((_, index)) = idle.min() else {
            return false;
        };
        self.connections.remove(index);
        true
    }
}

/// The sockets that are ready.
struct Ready {
    listener: bool,
    woken: bool,
    connections: Vec<usize>,
}

/// Converts a request for the packet loop.
fn loop_request(request: Request, reply: Reply) -> LoopRequest {
    let drain = |guest, undo, patience_ms: u64, reply| LoopRequest::Drain {
        guest,
        undo,
        patience: Nanos::from_millis(patience_ms.min(LONGEST_DRAIN_MS)),
        reply,
    };
    match request {
        Request::Show {} => LoopRequest::Show(reply),
        Request::AddGuest { toml, replace } => {
            let before = if replace { Before::Maybe } else { Before::No };
            LoopRequest::Change(Change::Add { text: toml, before }, reply)
        }
        Request::ChangeGuest { toml } => {
            let before = Before::Yes;
            LoopRequest::Change(Change::Add { text: toml, before }, reply)
        }
        Request::RemoveGuest { guest } => {
            LoopRequest::Change(Change::Remove { name: guest }, reply)
        }
        Request::Drain {
            guest,
            undo,
            patience_ms,
        } => drain(Some(guest), undo, patience_ms, reply),
        Request::DrainAll { undo, patience_ms } => drain(None, undo, patience_ms, reply),
        Request::MigratePrepare {
            guest,
            undo,
            patience_ms,
        } => LoopRequest::MigratePrepare {
            guest,
            undo,
            patience: Nanos::from_millis(patience_ms.min(LONGEST_DRAIN_MS)),
            reply,
        },
        Request::ShowSnoop { guest } => LoopRequest::ShowSnoop { guest, reply },
        Request::Trace { guest, patience_ms } => LoopRequest::Trace {
            guest,
            patience: Nanos::from_millis(patience_ms.min(LONGEST_TRACE_MS)),
            reply,
        },
        Request::Send {
            guest,
            mac,
            to,
            patience_ms,
        } => LoopRequest::Send {
            sending: TrialRequest {
                guest,
                mac: mac.0,
                to,
            },
            patience: Nanos::from_millis(patience_ms.min(LONGEST_TRIAL_MS)),
            reply,
        },
    }
}
