//! The claim of one agent to a host's threads: a second agent with another state file is refused.
//!
//! Each agent records in its state what threads had before, and puts that back. Of two agents the
//! second would record the first one's classes as what was there before, and a reservation would
//! stay that is in neither state. The claim is a lock on a file that names the state of the agent
//! that has it, in `/run/tailbound`, or for a user who may not write there in `/run/user/UID`.
//! Without either directory it is an abstract socket, which has no content.

use super::config::AgentConfig;
use super::journal::{JournalError, peek};
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use tailbound_sys::root::Root;

const FILE: &str = "agent.claim";
/// The longest path of a state that is read, in bytes.
const MAX_PATH: u64 = 4_096;

/// The claim: it ends with this.
#[derive(Debug)]
pub struct HostClaim {
    _lock: Lock,
}

#[derive(Debug)]
enum Lock {
    File(#[expect(dead_code, reason = "it is locked while it is open")] File),
    Socket(#[expect(dead_code, reason = "its address is taken while it is open")] UnixDatagram),
}

impl HostClaim {
    /// Claims the host for an agent with this configuration; `None` for one that accepts others
    /// beside it.
    ///
    /// # Errors
    /// Another agent runs with another state, or left changes there.
    pub fn take(config: &AgentConfig) -> Result<Option<Self>, JournalError> {
        if config.beside_others {
            return Ok(None);
        }
        let user = rustix::process::geteuid().as_raw();
        let directories = ["/run/tailbound".to_owned(), format!("/run/user/{user}")];
        let directories = directories.map(PathBuf::from);
        let socket = format!("tailbound-agent-{user}");
        let lock = take_in(&directories, &socket, &config.state)?;
        Ok(Some(Self { _lock: lock }))
    }
}

fn take_in(directories: &[PathBuf], socket: &str, state: &Path) -> Result<Lock, JournalError> {
    let state = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
    if let Some(first) = directories.first() {
        // It exists already, or may not be made; then the next one is tried.
        let _ = DirBuilder::new().mode(0o755).create(first);
    }
    for directory in directories {
        if let Ok(file) = open(&directory.join(FILE)) {
            return lock(file, &state).map(Lock::File);
        }
    }
    let address = SocketAddr::from_abstract_name(socket.as_bytes());
    match address.and_then(|address| UnixDatagram::bind_addr(&address)) {
        Ok(taken) => Ok(Lock::Socket(taken)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Err(JournalError::OtherAgent { state, other: None })
        }
        Err(source) => Err(JournalError::File {
            path: state,
            source,
        }),
    }
}

/// Opens a claim, for reading alone if another user made it.
fn open(path: &Path) -> io::Result<File> {
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
    let flags = flags.cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags);
    let writable = options
        .clone()
        .write(true)
        .create(true)
        .mode(0o644)
        .open(path);
    writable.or_else(|_| options.open(path))
}

fn lock(mut file: File, state: &Path) -> Result<File, JournalError> {
    let failed = |source| JournalError::File {
        path: state.to_owned(),
        source,
    };
    let is_taken = match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => false,
        Err(rustix::io::Errno::WOULDBLOCK) => true,
        Err(error) => return Err(failed(error.into())),
    };
    let other = named(&mut file).map_err(failed)?;
    let is_other = other.as_deref().is_none_or(|other| other != state);
    if is_taken && !is_other {
        return Err(JournalError::Busy {
            path: state.to_owned(),
        });
    }
    if is_taken {
        return Err(JournalError::OtherAgent {
            state: state.to_owned(),
            other,
        });
    }
    if let Some(other) = other.filter(|_| is_other)
        && peek(&Root::default(), &other).is_ok_and(|changes| !changes.is_empty())
    {
        return Err(JournalError::OtherState {
            state: state.to_owned(),
            other,
        });
    }
    // A claim of another user's keeps its content; it is locked all the same.
    let _ = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(state.as_os_str().as_bytes()));
    Ok(file)
}

/// Returns the state that a claim names.
fn named(file: &mut File) -> io::Result<Option<PathBuf>> {
    let mut content = Vec::new();
    file.take(MAX_PATH).read_to_end(&mut content)?;
    let path = PathBuf::from(std::ffi::OsString::from_vec(content));
    Ok(Some(path).filter(|path| path.is_absolute()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal;
    use crate::plan::plan;
    use crate::testing::{Fake, desired, machine, periodic};
    use std::collections::BTreeMap;

    struct Host {
        directory: tempfile::TempDir,
    }

    impl Host {
        fn new() -> Self {
            Self {
                directory: tempfile::tempdir().unwrap(),
            }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        /// Claims it for the state of that name; in the directory `run` unless that is a file.
        fn claim(&self, state: &str) -> Result<Lock, String> {
            let socket = self.directory.path().display().to_string();
            let taken = take_in(&[self.path("run")], &socket, &self.path(state));
            taken.map_err(|error| error.to_string().replace(&socket, ""))
        }
    }

    #[test]
    fn a_second_agent_with_another_state_is_refused_while_the_first_runs() {
        let host = Host::new();
        let first = host.claim("a.json").unwrap();
        let refused = host.claim("b.json").unwrap_err();
        assert!(
            refused.starts_with("/b.json cannot be used while another tailbound runs on this host")
                && refused.contains("with /a.json"),
            "{refused}"
        );
        let busy = host.claim("a.json").unwrap_err();
        assert!(
            busy.contains("/a.json is in use by another tailbound"),
            "{busy}"
        );
        drop(first);
        assert!(matches!(host.claim("b.json"), Ok(Lock::File(_))));
    }

    #[test]
    fn a_state_that_another_one_left_is_restored_first() {
        let host = Host::new();
        drop(host.claim("a.json").unwrap());
        let observed = Fake::new(1..=1).observe(machine());
        let plan = plan(
            &[desired(1, periodic(1000, 4000))],
            &observed,
            &BTreeMap::new(),
        );
        let mut journal = Journal::open(&host.path("a.json")).unwrap();
        journal
            .update(|changes| changes.add(&plan.unwrap()))
            .unwrap();
        let refused = host.claim("b.json").unwrap_err();
        assert!(
            refused.contains("run `tailbound vcpu restore --state /a.json` first"),
            "{refused}"
        );
        drop(host.claim("a.json").unwrap());
        journal.update(|changes| changes.threads.clear()).unwrap();
        drop(host.claim("b.json").unwrap());
    }

    #[test]
    fn a_user_without_a_directory_claims_by_a_socket() {
        let host = Host::new();
        std::fs::write(host.path("run"), "").unwrap();
        let first = host.claim("a.json").unwrap();
        assert!(matches!(first, Lock::Socket(_)), "{first:?}");
        let refused = host.claim("b.json").unwrap_err();
        assert!(
            refused.contains("while another tailbound runs"),
            "{refused}"
        );
        drop(first);
        host.claim("b.json").unwrap();
    }

    #[test]
    fn a_claim_is_no_link_to_another_file() {
        let host = Host::new();
        std::fs::create_dir(host.path("run")).unwrap();
        let precious = host.path("precious");
        std::fs::write(&precious, "text").unwrap();
        std::os::unix::fs::symlink(&precious, host.path("run").join(FILE)).unwrap();
        assert!(matches!(host.claim("a.json"), Ok(Lock::Socket(_))));
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "text");
    }
}
