//! The socket: a thread that waits for a VMM and reads its requests.

use crate::device::{Device, Shared};
use crate::gate::Gate;
use crate::handler::{Answer, Handler, Refusal};
use crate::message::{MessageError, Reader, reply};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::sockopt::socket_peercred;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Side of the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Listens; the VMM connects.
    #[default]
    Server,
    /// Connects; the VMM listens.
    Client,
}

/// Delay before the next attempt after a missing or refused VMM.
const RECONNECT_DELAY: Duration = Duration::from_millis(100);

/// Time limit of a pause: the thread blocks on no other call, but may wait for a CPU.
const PAUSE_TIMEOUT: Duration = Duration::from_millis(100);

/// Reason why the socket is unusable.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Something else has its name.
    #[error("{0} exists and is not a socket: set another `socket`, or remove it")]
    NoSocket(PathBuf),
    /// The directory of the socket is not there.
    #[error("the directory of {0} does not exist: create it, or set another `socket`")]
    NoDirectory(PathBuf),
    /// The system refused.
    #[error("cannot {step} {path}: {source}")]
    Socket {
        /// The failed operation.
        step: &'static str,
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The system refused something else.
    #[error("cannot {step}: {source}")]
    System {
        /// The failed operation.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// User ID of the VMM, besides this process's own user and root.
pub(crate) type Peer = Option<u32>;

/// The request thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    /// Readable when the thread must end.
    end: Arc<OwnedFd>,
    /// State of the thread after its end.
    ended: Receiver<Requests>,
    pause: Pause,
    /// The socket that was made here, and the number of its file.
    made: Option<(PathBuf, u64)>,
}

/// Progress of a pause, after which another process can continue the connection.
#[derive(Debug)]
enum Pause {
    No,
    /// The thread did not pause in time.
    Late,
    /// The thread has ended, and had this.
    Whole(Box<Requests>),
}

impl Server {
    /// Begins to wait for a monitor at `path`.
    pub(crate) fn start(
        path: &Path,
        mode: Mode,
        peer: Peer,
        pairs: usize,
        shared: &Arc<Shared>,
    ) -> Result<Self, OpenError> {
        let endpoint = match mode {
            Mode::Client => Endpoint::Client,
            Mode::Server => listen(path, peer)?,
        };
        Self::go_on(path, endpoint, None, peer, pairs, shared)
    }

    /// Goes on where another process was: at `endpoint`, and with the monitor of a
    /// `session`, if there is one.
    pub(crate) fn go_on(
        path: &Path,
        endpoint: Endpoint,
        session: Option<Session>,
        peer: Peer,
        pairs: usize,
        shared: &Arc<Shared>,
    ) -> Result<Self, OpenError> {
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let end = end.map_err(|error| OpenError::System {
            step: "make an eventfd",
            source: error.into(),
        })?;
        let end = Arc::new(end);
        let made = match &endpoint {
            Endpoint::Server { file, .. } => Some((path.to_owned(), *file)),
            Endpoint::Client => None,
        };
        let requests = Requests {
            endpoint,
            path: path.to_owned(),
            peer,
            pairs,
            shared: Arc::clone(shared),
            end: Arc::clone(&end),
            session,
            lines: Lines::new(),
        };
        Ok(Self {
            end,
            ended: requests.spawn()?,
            pause: Pause::No,
            made,
        })
    }

    /// Leaves the monitor alone, so that another process may go on with it: with what is
    /// returned, or with nothing where the monitor is amid a request.
    pub(crate) fn pause(&mut self) -> Option<&Requests> {
        let _ = rustix::io::write(&*self.end, &1u64.to_ne_bytes());
        let ended = self.ended.recv_timeout(PAUSE_TIMEOUT);
        self.pause = ended.map_or(Pause::Late, |ended| Pause::Whole(Box::new(ended)));
        let Pause::Whole(paused) = &self.pause else {
            return None;
        };
        let is_amid = paused.session.as_ref().is_some_and(Session::is_amid);
        (!is_amid).then_some(paused)
    }

    /// Goes on after a pause: no other process does.
    ///
    /// # Errors
    /// The thread that was there cannot go on.
    pub(crate) fn resume(&mut self) -> Result<(), OpenError> {
        let requests = match std::mem::replace(&mut self.pause, Pause::No) {
            Pause::No => return Ok(()),
            Pause::Late => self.ended.try_recv().map_err(|late| OpenError::System {
                step: "go on with a thread",
                source: io::Error::other(late),
            })?,
            Pause::Whole(requests) => *requests,
        };
        let _ = rustix::io::read(&*self.end, &mut [0; 8]);
        self.ended = requests.spawn()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.end, &1u64.to_ne_bytes());
        // After a pause it is another process's.
        if !matches!(self.pause, Pause::Whole(_))
            && let Some((path, file)) = &self.made
            && fs::symlink_metadata(path).is_ok_and(|found| found.ino() == *file)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Listens at `path`. An existing socket is replaced atomically: in a takeover the new daemon
/// listens before the old one ends.
fn listen(path: &Path, peer: Peer) -> Result<Endpoint, OpenError> {
    let error = |step| {
        move |source| OpenError::Socket {
            step,
            path: path.to_owned(),
            source,
        }
    };
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(OpenError::NoSocket(path.to_owned()));
        }
        Ok(_) => {}
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(error("see")(source)),
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let fresh = PathBuf::from(name);
    let _ = fs::remove_file(&fresh);
    let listener = UnixListener::bind(&fresh).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => OpenError::NoDirectory(path.to_owned()),
        _ => error("listen at")(source),
    })?;
    let ready = (|| {
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600))?;
        if let Some(uid) = peer {
            std::os::unix::fs::chown(&fresh, Some(uid), None)?;
        }
        listener.set_nonblocking(true)?;
        let file = fs::symlink_metadata(&fresh)?.ino();
        fs::rename(&fresh, path)?;
        Ok(file)
    })();
    let endpoint = ready.map(|file| Endpoint::Server { listener, file });
    endpoint.map_err(|source| {
        let _ = fs::remove_file(&fresh);
        error("listen at")(source)
    })
}

/// Source of connections to the VMM.
#[derive(Debug)]
pub(crate) enum Endpoint {
    /// The VMM connects to this process's socket.
    Server {
        listener: UnixListener,
        /// The number of the socket's file.
        file: u64,
    },
    /// This process connects to the VMM's socket.
    Client,
}

/// A connected VMM.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) stream: UnixStream,
    reader: Reader,
    handler: Handler,
}

impl Session {
    pub(crate) fn new(stream: UnixStream, handler: Handler) -> Self {
        Self {
            stream,
            reader: Reader::default(),
            handler,
        }
    }

    /// The protocol features that were agreed on.
    pub(crate) const fn agreed(&self) -> u64 {
        self.handler.agreed()
    }

    /// Returns whether a part of a request was received.
    const fn is_amid(&self) -> bool {
        self.reader.is_amid()
    }

    /// Answers to all that was asked.
    fn answer(&mut self) -> Result<(), SessionError> {
        while let Some(request) = self.reader.read(&self.stream)? {
            let (code, needs_reply) = (request.code, request.needs_reply);
            let answer = self.handler.carry_out(request);
            let acknowledges = needs_reply && self.handler.acknowledges();
            match &answer {
                Ok(Answer::Body(body)) => reply(&self.stream, code, body)?,
                Ok(Answer::Done) if acknowledges => reply(&self.stream, code, &[0; 8])?,
                Err(_) if acknowledges => reply(&self.stream, code, &1u64.to_le_bytes())?,
                Ok(Answer::Done) | Err(_) => {}
            }
            answer?;
        }
        Ok(())
    }
}

/// Checks that the other end belongs to this process's user, to root or to `peer`.
///
/// # Errors
/// The other end belongs to another user.
pub(crate) fn check_peer(stream: &UnixStream, peer: Peer) -> io::Result<()> {
    let uid = socket_peercred(stream)?.uid;
    let is_own = uid == rustix::process::geteuid() || uid.is_root();
    if is_own || Some(uid.as_raw()) == peer {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "the other end is of user {0}: name it by `user = {0}` if it is the machine monitor's",
        uid.as_raw()
    )))
}

/// Reason for the end of a VMM's connection.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// State of the thread.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) endpoint: Endpoint,
    path: PathBuf,
    peer: Peer,
    pairs: usize,
    shared: Arc<Shared>,
    end: Arc<OwnedFd>,
    pub(crate) session: Option<Session>,
    lines: Lines,
}

/// Rate limits of log lines about VMMs.
#[derive(Debug)]
struct Lines {
    since: Instant,
    /// About those that are served no more, or were refused.
    refusals: Gate,
    /// About those that come and leave.
    visits: Gate,
}

impl Lines {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            refusals: Gate::new(8),
            visits: Gate::new(60),
        }
    }

    fn refusal(&mut self) -> Option<u64> {
        self.refusals.pass(self.since.elapsed().into())
    }

    fn visit(&mut self) -> Option<u64> {
        self.visits.pass(self.since.elapsed().into())
    }
}

/// Reports that the thread has ended by itself, unless disarmed.
struct EndNotice(Option<Arc<Shared>>);

impl Drop for EndNotice {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.set_dead();
        }
    }
}

impl Requests {
    /// Starts the thread; returns the channel for its final state.
    fn spawn(self) -> Result<Receiver<Self>, OpenError> {
        let (left, ended) = channel();
        let thread = thread::Builder::new().name("vhost".to_owned());
        let spawned = thread.spawn(move || {
            let mut ending = EndNotice(Some(Arc::clone(&self.shared)));
            let requests = self.run();
            ending.0 = None;
            // Nobody takes it where the port has ended.
            let _ = left.send(requests);
        });
        spawned.map_err(|source| OpenError::System {
            step: "start a thread",
            source,
        })?;
        Ok(ended)
    }

    /// Pages of the guest's memory that were touched first here.
    pub(crate) fn touched(&self) -> u64 {
        self.shared.part.touches.own()
    }

    /// Serves VMMs until the thread must end.
    fn run(mut self) -> Self {
        while !self.is_over() {
            match self.session.take() {
                Some(session) => self.session = self.serve(session),
                None => match self.connect() {
                    Ok(session) => self.session = session,
                    Err(error) => {
                        if let Some(before) = self.lines.refusal() {
                            tracing::warn!(
                                socket = %self.path.display(), %error, before,
                                "no machine monitor is served"
                            );
                        }
                        self.pause(Some(RECONNECT_DELAY));
                    }
                },
            }
        }
        self
    }

    /// Returns whether the thread must end.
    fn is_over(&self) -> bool {
        self.pause(Some(Duration::ZERO))
    }

    /// Waits for at most `time`; returns whether the thread must end.
    fn pause(&self, time: Option<Duration>) -> bool {
        let timeout = time.map(|time| Timespec {
            tv_sec: time.as_secs().cast_signed(),
            tv_nsec: time.subsec_nanos().into(),
        });
        let mut ends = [PollFd::new(&*self.end, PollFlags::IN)];
        let _ = poll(&mut ends, timeout.as_ref());
        !ends[0].revents().is_empty()
    }

    /// Waits for data, or until the thread must end.
    fn wait(&self, other: BorrowedFd<'_>) {
        let mut ready = [
            PollFd::new(&*self.end, PollFlags::IN),
            PollFd::from_borrowed_fd(other, PollFlags::IN),
        ];
        let _ = poll(&mut ready, None);
    }

    /// A monitor that is connected; `None` while there is none.
    fn connect(&mut self) -> io::Result<Option<Session>> {
        let stream = match &self.endpoint {
            Endpoint::Server { listener, .. } => {
                self.wait(listener.as_fd());
                match listener.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
            Endpoint::Client => match UnixStream::connect(&self.path) {
                Ok(stream) => stream,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                    ) =>
                {
                    self.pause(Some(RECONNECT_DELAY));
                    return Ok(None);
                }
                Err(error) => return Err(error),
            },
        };
        check_peer(&stream, self.peer)?;
        if let Some(before) = self.lines.visit() {
            tracing::info!(socket = %self.path.display(), before, "a machine monitor is connected");
        }
        let handler = Handler::new(Arc::clone(&self.shared), self.pairs, 0);
        Ok(Some(Session::new(stream, handler)))
    }

    /// Waits for a request and answers it; returns the session unless it has ended.
    fn serve(&mut self, mut session: Session) -> Option<Session> {
        self.wait(session.stream.as_fd());
        let Err(error) = session.answer() else {
            return Some(session);
        };
        drop(session);
        self.shared.log.end();
        drop(self.shared.change(Device::reset));
        let socket = self.path.display();
        match error {
            SessionError::Message(MessageError::Left) => {
                if let Some(before) = self.lines.visit() {
                    tracing::info!(%socket, before, "the machine monitor has left");
                }
            }
            error => {
                if let Some(before) = self.lines.refusal() {
                    tracing::warn!(
                        %socket, %error, before, "the machine monitor is not served any more"
                    );
                }
                self.pause(Some(RECONNECT_DELAY));
            }
        }
        None
    }
}
