//! The socket: a thread that waits for a machine's monitor and reads its requests.

use crate::device::Shared;
use crate::enable;
use crate::handler::Handler;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::sockopt::socket_peercred;
use std::fs;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use vhost::vhost_user::{BackendReqHandler, Error};

/// Which side of the socket is made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Listens; the monitor connects.
    #[default]
    Server,
    /// Connects; the monitor listens.
    Client,
}

/// How soon a monitor that is not there, or was refused, is looked for again.
const AGAIN: Duration = Duration::from_millis(100);

/// Why the socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Something else has its name.
    #[error("{0} is there and no socket: give another `socket`, or remove it")]
    NoSocket(PathBuf),
    /// The directory of the socket is not there.
    #[error("the directory of {0} is not there: make it, or give another `socket`")]
    NoDirectory(PathBuf),
    /// The system refused.
    #[error("cannot {step} {path}: {source}")]
    Socket {
        /// What was tried.
        step: &'static str,
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused something else.
    #[error("cannot {step}: {source}")]
    System {
        /// What was tried.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// What the thread and whoever ends it share.
#[derive(Debug)]
struct Link {
    /// Ready when the thread is to end.
    end: OwnedFd,
    /// The connection that it reads.
    stream: Mutex<Option<UnixStream>>,
}

/// The thread of the requests; it ends with this.
#[derive(Debug)]
pub(crate) struct Server {
    link: Arc<Link>,
    /// The socket that was made here, and the number of its file.
    made: Option<(PathBuf, u64)>,
}

/// Who the monitor may be, beside this process's own user and root.
pub(crate) type Peer = Option<u32>;

impl Server {
    /// Begins to wait for a monitor at `path`.
    pub(crate) fn start(
        path: &Path,
        mode: Mode,
        peer: Peer,
        pairs: usize,
        shared: &Arc<Shared>,
    ) -> Result<Self, OpenError> {
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let end = end.map_err(|error| OpenError::System {
            step: "make an eventfd",
            source: error.into(),
        })?;
        let link = Arc::new(Link {
            end,
            stream: Mutex::default(),
        });
        let (endpoint, created) = match mode {
            Mode::Client => (Endpoint::Client(path.to_owned()), None),
            Mode::Server => {
                let (listener, file) = listen(path, peer)?;
                (Endpoint::Server(listener), Some((path.to_owned(), file)))
            }
        };
        let requests = Requests {
            endpoint,
            name: path.display().to_string(),
            peer,
            pairs,
            shared: Arc::clone(shared),
            link: Arc::clone(&link),
        };
        let thread = thread::Builder::new().name("vhost".to_owned());
        let spawned = thread.spawn(move || requests.run());
        spawned.map_err(|source| OpenError::System {
            step: "start a thread",
            source,
        })?;
        Ok(Self {
            link,
            made: created,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.link.end, &1u64.to_ne_bytes());
        let stream = self.link.stream.lock();
        if let Some(stream) = &*stream.unwrap_or_else(PoisonError::into_inner) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        if let Some((path, file)) = &self.made
            && fs::symlink_metadata(path).is_ok_and(|found| found.ino() == *file)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Listens at `path`; returns the number of the socket's file as well. One that is there
/// is replaced at once: a daemon that takes over listens before the other ends.
fn listen(path: &Path, peer: Peer) -> Result<(UnixListener, u64), OpenError> {
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
    ready.map(|file| (listener, file)).map_err(|source| {
        let _ = fs::remove_file(&fresh);
        error("listen at")(source)
    })
}

#[derive(Debug)]
enum Endpoint {
    Server(UnixListener),
    Client(PathBuf),
}

/// The thread.
struct Requests {
    endpoint: Endpoint,
    name: String,
    peer: Peer,
    pairs: usize,
    shared: Arc<Shared>,
    link: Arc<Link>,
}

/// Says that the thread has ended, however it does.
struct Ending<'s>(&'s Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.set_dead();
    }
}

impl Requests {
    fn run(self) {
        let _ending = Ending(&self.shared);
        while !self.is_over() {
            match self.connect() {
                Ok(Some(stream)) => self.serve(stream),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(socket = self.name, %error, "no machine monitor is served");
                    self.pause(Some(AGAIN));
                }
            }
        }
    }

    /// Whether it is to end.
    fn is_over(&self) -> bool {
        self.pause(Some(Duration::ZERO))
    }

    /// Waits until it is to end, or so long; returns whether it is.
    fn pause(&self, time: Option<Duration>) -> bool {
        let timeout = time.map(|time| Timespec {
            tv_sec: time.as_secs().cast_signed(),
            tv_nsec: time.subsec_nanos().into(),
        });
        let mut ends = [PollFd::new(&self.link.end, PollFlags::IN)];
        let _ = poll(&mut ends, timeout.as_ref());
        !ends[0].revents().is_empty()
    }

    /// A monitor that is connected; `None` while there is none.
    fn connect(&self) -> io::Result<Option<UnixStream>> {
        let stream = match &self.endpoint {
            Endpoint::Server(listener) => {
                let mut ready = [
                    PollFd::new(&self.link.end, PollFlags::IN),
                    PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
                ];
                let _ = poll(&mut ready, None);
                match listener.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
            Endpoint::Client(path) => match UnixStream::connect(path) {
                Ok(stream) => stream,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                    ) =>
                {
                    self.pause(Some(AGAIN));
                    return Ok(None);
                }
                Err(error) => return Err(error),
            },
        };
        let uid = socket_peercred(&stream)?.uid;
        let is_own = uid == rustix::process::geteuid() || uid.is_root();
        if !is_own && Some(uid.as_raw()) != self.peer {
            return Err(io::Error::other(format!(
                "the other end is of user {0}: name it by `user = {0}` if it is the machine \
                 monitor's",
                uid.as_raw()
            )));
        }
        stream.set_nonblocking(false)?;
        Ok(Some(stream))
    }

    /// Answers to a monitor until it leaves.
    fn serve(&self, stream: UnixStream) {
        let clones = stream
            .try_clone()
            .and_then(|early| Ok((early, stream.try_clone()?)));
        let early = match clones {
            Ok((early, ended)) => {
                *self.stream() = Some(ended);
                early
            }
            Err(error) => {
                tracing::warn!(socket = self.name, %error, "the machine monitor is not served");
                return;
            }
        };
        tracing::info!(socket = self.name, "a machine monitor is connected");
        let handler = Handler::new(Arc::clone(&self.shared), self.pairs);
        let handler = Arc::new(Mutex::new(handler));
        let mut requests = BackendReqHandler::from_stream(stream, Arc::clone(&handler));
        // It may have been ended before the stream was known.
        let error = loop {
            if self.is_over() {
                break Error::Disconnected;
            }
            let done = match enable::handle(&early, &handler) {
                Ok(false) => requests.handle_request(),
                other => other.map(drop),
            };
            if let Err(error) = done {
                break error;
            }
        };
        *self.stream() = None;
        self.shared.log.switch(false);
        self.shared.log.set_pages(None);
        drop(self.shared.change(crate::device::Device::reset));
        match error {
            Error::Disconnected => {
                tracing::info!(socket = self.name, "the machine monitor has left");
            }
            error => {
                tracing::warn!(socket = self.name, %error, "the machine monitor is not served any more");
                self.pause(Some(AGAIN));
            }
        }
    }

    fn stream(&self) -> std::sync::MutexGuard<'_, Option<UnixStream>> {
        let stream = self.link.stream.lock();
        stream.unwrap_or_else(PoisonError::into_inner)
    }
}
