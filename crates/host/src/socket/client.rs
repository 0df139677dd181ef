//! Client of the daemon of a configuration.

use super::SUFFIX;
use super::wire::{Answer, Outcome, Request};
use crate::places;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The runtime directory of `contrib/tailbound-host.service`.
const UNIT: &str = "/run/tailbound-host";

/// The longest wait for an answer, beside the patience in the request: a port is opened in
/// milliseconds, and at most a few other changes precede.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest answer, in bytes.
pub(super) const MAX_ANSWER_BYTES: u64 = 64 << 20;

/// Reason why a daemon does not answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No daemon listens.
    #[error(
        "no daemon of {} is found: there is no socket {} in {tried}; start one with `tailbound \
         host --config ...`, or name its directory by --runtime-dir",
        config.display(),
        name.display()
    )]
    Nobody {
        /// The configuration.
        config: PathBuf,
        /// The socket's name.
        name: PathBuf,
        /// The searched directories.
        tried: String,
    },
    /// The daemon's socket cannot be used.
    #[error("{}: {source}; the socket is for the daemon's own user and root", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The daemon ended, or takes too long.
    #[error("{}: the daemon has not answered: {source}; retry, or read its log", path.display())]
    Silent {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The daemon sent something else than an answer.
    #[error("{}: the answer is not understood: {source}", path.display())]
    Other {
        /// The socket.
        path: PathBuf,
        /// The mistake in the answer.
        source: serde_json::Error,
    },
}

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the daemon of the configuration at `config`, whose files are in `directory`, or
    /// in the first of the usual directories that contains its socket.
    ///
    /// # Errors
    /// No daemon listens there, or this user has no access.
    pub fn connect(config: &Path, directory: Option<&Path>) -> Result<Self, ClientError> {
        let name = places::name(config, &format!(".{SUFFIX}"));
        let mut directories = places::runtime_directories(directory);
        if directory.is_none() {
            directories.push(UNIT.into());
        }
        for directory in &directories {
            let path = directory.join(&name);
            match UnixStream::connect(&path) {
                Ok(stream) => {
                    let stream = BufReader::new(stream);
                    return Ok(Self { path, stream });
                }
                // A daemon that was killed leaves its name.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound
                            | io::ErrorKind::NotADirectory
                            | io::ErrorKind::ConnectionRefused
                    ) => {}
                Err(source) => return Err(ClientError::Connect { path, source }),
            }
        }
        let tried = directories.iter();
        let tried: Vec<_> = tried.map(|place| place.display().to_string()).collect();
        Err(ClientError::Nobody {
            config: config.to_owned(),
            name: name.into(),
            tried: tried.join(", "),
        })
    }

    /// Sends a request to the daemon, and waits for its answer.
    ///
    /// # Errors
    /// The daemon does not answer within half a minute, or this version does not know the answer.
    /// The request may still be carried out.
    pub fn ask(&mut self, request: &Request) -> Result<Outcome, ClientError> {
        let own = match request {
            Request::Drain { patience_ms, .. }
            | Request::DrainAll { patience_ms, .. }
            | Request::MigratePrepare { patience_ms, .. }
            | Request::Send { patience_ms, .. }
            | Request::Trace { patience_ms, .. } => Duration::from_millis(*patience_ms),
            _ => Duration::ZERO,
        };
        let mut line = String::new();
        self.exchange(request, ANSWER_TIMEOUT.saturating_add(own), &mut line)
            .map_err(|source| ClientError::Silent {
                path: self.path.clone(),
                source,
            })?;
        let answer: Answer = serde_json::from_str(&line).map_err(|source| ClientError::Other {
            path: self.path.clone(),
            source,
        })?;
        Ok(answer.outcome)
    }

    fn exchange(
        &mut self,
        request: &Request,
        patience: Duration,
        line: &mut String,
    ) -> io::Result<()> {
        let stream = self.stream.get_ref();
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        self.stream.get_mut().write_all(request.line().as_bytes())?;
        (&mut self.stream).take(MAX_ANSWER_BYTES).read_line(line)?;
        if line.ends_with('\n') {
            return Ok(());
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}
