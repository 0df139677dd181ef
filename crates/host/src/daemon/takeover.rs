//! Single daemon per configuration, and the takeover from a running one.
//!
//! A daemon holds a lock for its whole life: a file in a runtime directory, named after the
//! configuration and locked by `fcntl(2)`. The kernel releases the lock with the process, after any
//! kind of end, and shows other processes the holder. So nothing here depends on a stored pid, and
//! no signal reaches another process that got the same number later (`pidfd_open(2)`).

use super::legacy::Legacy;
use crate::config::{Config, ConfigError};
use crate::places;
use crate::socket::SUFFIX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{
    Flock, FlockType, Pid, PidfdFlags, Signal, fcntl_getlk, geteuid, pidfd_open, pidfd_send_signal,
};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Ends the name of a lock.
const LOCK: &str = ".lock";

/// The longest time for the running daemon to send its queued frames and end, before it is killed;
/// and then for the kernel to end it.
const END_TIMEOUT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000_000,
};

/// Reason why this process may not be the daemon of a configuration.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// The configuration has mistakes; the running daemon was not touched.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No directory can hold the lock.
    #[error("cannot keep a lock in any of {tried}: {source}; name a directory by --runtime-dir")]
    Directory {
        /// The directories that were tried.
        tried: String,
        /// The system's error for the last directory.
        source: io::Error,
    },
    /// The lock's file cannot be used.
    #[error("cannot lock {}: {source}", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another daemon has this configuration.
    #[error(
        "a daemon already runs for {} as process {pid}; stop it, or take over from it with \
         --takeover",
        config.display()
    )]
    Running {
        /// The configuration.
        config: PathBuf,
        /// The process that holds the lock.
        pid: i32,
    },
    /// Another daemon has this configuration, and cannot be seen from here.
    #[error(
        "a daemon already runs for {} in another PID namespace; stop it there",
        config.display()
    )]
    Elsewhere {
        /// The configuration.
        config: PathBuf,
    },
    /// The running daemon cannot be stopped.
    #[error("cannot stop process {pid}, which runs for {}: {source}", config.display())]
    Stop {
        /// The configuration.
        config: PathBuf,
        /// The process that holds the lock.
        pid: i32,
        /// The system's error.
        source: io::Error,
    },
    /// A third daemon took over first.
    #[error(
        "process {pid} took over for {} at the same time; it runs now",
        config.display()
    )]
    Overtaken {
        /// The configuration.
        config: PathBuf,
        /// The process that holds the lock now.
        pid: i32,
    },
}

/// The right to be the daemon of a configuration, until it is dropped.
#[derive(Debug)]
#[must_use = "the lock is dropped with it"]
pub struct Instance {
    path: PathBuf,
    /// The socket at which the next daemon requests a takeover; `None` if it cannot be created.
    pub(super) listener: Option<UnixListener>,
    /// The path of that socket.
    socket: PathBuf,
    /// The control socket; `None` if it cannot be created.
    pub(super) control: Option<UnixListener>,
    /// The path of the control socket.
    control_socket: PathBuf,
    /// The handover of the daemon before, until it is taken.
    pub(super) legacy: Option<Legacy>,
    /// The lock's file, opened once in this process: closing any descriptor of it would release the
    /// lock.
    _file: File,
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
        let _ = fs::remove_file(&self.control_socket);
        // Whoever waits for it sees that the name is gone, and makes another one.
        let _ = fs::remove_file(&self.path);
    }
}

impl Instance {
    /// Claims the configuration at `config` for this process. The lock is in `directory`, or in the
    /// first usable one of `$RUNTIME_DIRECTORY`, `/run/tailbound`, `$XDG_RUNTIME_DIR/tailbound` and
    /// `/tmp/tailbound-UID`. The control socket ([`crate::socket`]) is in the same directory.
    ///
    /// With `takeover`, a running daemon is stopped first: it receives a request to hand over its
    /// ports and end. If it does not, it receives SIGTERM, and SIGKILL half a second later. The
    /// configuration is checked before that.
    ///
    /// # Errors
    /// See [`InstanceError`].
    pub fn claim(
        config: &Path,
        directory: Option<&Path>,
        takeover: bool,
    ) -> Result<Self, InstanceError> {
        // A missing configuration has mistakes, which are reported better elsewhere.
        let whole = fs::canonicalize(config).unwrap_or_else(|_| config.to_owned());
        let path = lock_directory(directory)?.join(places::name(&whole, LOCK));
        let pid = match lock(&path)? {
            Lock::Ours(instance) => return Ok(*instance),
            Lock::Of(pid) => pid,
            Lock::Elsewhere => return Err(InstanceError::Elsewhere { config: whole }),
        };
        let raw = pid.as_raw_nonzero().get();
        if !takeover {
            return Err(InstanceError::Running {
                config: whole,
                pid: raw,
            });
        }
        Config::load(config)?;
        let legacy = stop(&path, pid).map_err(|source| InstanceError::Stop {
            config: whole.clone(),
            pid: raw,
            source,
        })?;
        match lock(&path)? {
            Lock::Ours(mut instance) => {
                instance.legacy = legacy;
                Ok(*instance)
            }
            Lock::Of(pid) => Err(InstanceError::Overtaken {
                config: whole,
                pid: pid.as_raw_nonzero().get(),
            }),
            Lock::Elsewhere => Err(InstanceError::Elsewhere { config: whole }),
        }
    }
}

/// The holder of the lock.
enum Lock {
    Ours(Box<Instance>),
    Of(Pid),
    /// A process of another PID namespace.
    Elsewhere,
}

/// Takes the lock, or returns the process that holds it.
fn lock(path: &Path) -> Result<Lock, InstanceError> {
    let fail = |source| InstanceError::Lock {
        path: path.to_owned(),
        source,
    };
    loop {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(path)
            .map_err(fail)?;
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::ACCESS | Errno::AGAIN) => match holder(&file).map_err(fail)? {
                Some(lock) => return Ok(lock.pid.map_or(Lock::Elsewhere, Lock::Of)),
                // It ended in between.
                None => continue,
            },
            Err(error) => return Err(fail(error.into())),
        }
        // Its last holder may have removed the name after it was opened here.
        let named = fs::metadata(path).map(|it| (it.dev(), it.ino())).ok();
        let ours = file.metadata().map_err(fail)?;
        if named != Some((ours.dev(), ours.ino())) {
            continue;
        }
        // For people: nothing here reads it.
        let pid = format!("{}\n", std::process::id());
        file.set_len(0)
            .and_then(|()| file.write_all(pid.as_bytes()))
            .map_err(fail)?;
        let socket = socket(path, ours.ino());
        let control_socket = path.with_extension(SUFFIX);
        return Ok(Lock::Ours(Box::new(Instance {
            path: path.to_owned(),
            listener: listen(&socket, "no daemon can take over without an interruption"),
            socket,
            control: listen(&control_socket, "guests cannot be added or shown"),
            control_socket,
            legacy: None,
            _file: file,
        })));
    }
}

/// Returns the path of the socket for takeovers from a lock's holder: a name that is short enough
/// for a socket's.
fn socket(lock: &Path, inode: u64) -> PathBuf {
    lock.with_file_name(format!("takeover-{inode}"))
}

/// Listens for processes of this daemon's user and of root. If that fails, the daemon continues
/// without the socket and logs the missing function.
fn listen(path: &Path, lack: &str) -> Option<UnixListener> {
    // Of a holder that was killed.
    let _ = fs::remove_file(path);
    let listener = UnixListener::bind(path).and_then(|listener| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    if let Err(error) = &listener {
        tracing::warn!(path = %path.display(), %error, "{lack}");
    }
    listener.ok()
}

/// Returns the kernel's record of the lock's holder; without a pid if that process is in another
/// PID namespace.
fn holder(file: &File) -> io::Result<Option<Flock>> {
    Ok(fcntl_getlk(file, &Flock::from(FlockType::WriteLock))?)
}

/// Stops the process that holds the lock; returns its handover.
fn stop(path: &Path, pid: Pid) -> io::Result<Option<Legacy>> {
    let started = Instant::now();
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(Errno::SRCH) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // If it holds the lock still, the descriptor is of that process and not of one
    // that got its number since.
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if holder(&file)?.and_then(|lock| lock.pid) != Some(pid) {
        return Ok(None);
    }
    let legacy = Legacy::ask(&socket(path, file.metadata()?.ino()));
    if let Err(error) = &legacy {
        tracing::info!(%error, "the running daemon hands nothing over");
    }
    let mut killed = false;
    let no_signal = legacy.is_ok().then_some(None);
    let signals = [Signal::TERM, Signal::KILL].map(Some);
    for signal in no_signal.into_iter().chain(signals) {
        match signal.map_or(Ok(()), |signal| pidfd_send_signal(&process, signal)) {
            Ok(()) => {}
            Err(Errno::SRCH) => break,
            Err(error) => return Err(error.into()),
        }
        killed = signal == Some(Signal::KILL);
        if ends(&process)? {
            break;
        }
        if killed {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    let millis = started.elapsed().as_millis();
    let pid = pid.as_raw_nonzero();
    if killed {
        tracing::warn!(pid, millis, "killed the running daemon: it did not end");
    } else {
        tracing::info!(pid, millis, "the running daemon ended");
    }
    Ok(legacy.ok())
}

/// Waits for a process's end, up to the limit.
fn ends(process: &impl std::os::fd::AsFd) -> io::Result<bool> {
    let started = Instant::now();
    loop {
        let mut fds = [PollFd::new(process, PollFlags::IN)];
        let passed = Timespec::try_from(started.elapsed()).unwrap_or(END_TIMEOUT);
        let Some(left) = END_TIMEOUT
            .checked_sub(passed)
            .filter(|left| left.tv_sec >= 0)
        else {
            return Ok(false);
        };
        match poll(&mut fds, Some(&left)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the directory for locks, created if it is missing.
fn lock_directory(configured: Option<&Path>) -> Result<PathBuf, InstanceError> {
    let candidates = places::runtime_directories(configured);
    let mut last = io::ErrorKind::NotFound.into();
    for directory in &candidates {
        match usable(directory) {
            Ok(()) => return Ok(directory.clone()),
            Err(error) => last = error,
        }
    }
    let tried: Vec<_> = candidates
        .iter()
        .map(|directory| directory.display().to_string())
        .collect();
    Err(InstanceError::Directory {
        tried: tried.join(", "),
        source: last,
    })
}

/// Checks that locks may be in this directory: it is ours, and no other user may write to it.
fn usable(directory: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory)?;
    // systemd makes a link of it for a service with a user of its own.
    let metadata = fs::metadata(directory)?;
    let strangers = metadata.mode() & 0o022 != 0;
    let why = if !metadata.is_dir() {
        "it is no directory"
    } else if strangers {
        "others may write to it: chmod go-w"
    } else if metadata.uid() != geteuid().as_raw() {
        "it is another user's"
    } else {
        rustix::fs::access(directory, rustix::fs::Access::WRITE_OK)?;
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_strangers_may_write_to_is_not_used() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = directory.path().join("open");
        DirBuilder::new().create(&open).expect("made");
        let mode = |mode| fs::set_permissions(&open, fs::Permissions::from_mode(mode));
        mode(0o777).expect("ours");
        let error = usable(&open).expect_err("strangers may").to_string();
        assert_eq!(error, "others may write to it: chmod go-w");
        mode(0o755).expect("ours");
        usable(&open).expect("ours alone");
    }

    #[test]
    fn a_lock_that_is_dropped_is_free_and_its_name_gone() {
        let directory = tempfile::tempdir().expect("a directory");
        let config = directory.path().join("host.toml");
        let claim = || Instance::claim(&config, Some(directory.path()), false);
        let path = claim().expect("nobody has it").path.clone();
        assert!(!path.exists());
        let instance = claim().expect("nobody has it any more");
        let written = fs::read_to_string(&instance.path).expect("it is there");
        assert_eq!(written, format!("{}\n", std::process::id()));
    }
}
