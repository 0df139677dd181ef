//! One lab at a time: two labs would measure each other.

use crate::LabError;
use rustix::net::sockopt::socket_peercred;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// A name in this computer's own network namespace: it is visible to all users, and disappears with
/// its process.
const NAME: &str = "tailbound-lab";

/// A lock that is held while a lab runs.
#[derive(Debug)]
pub(crate) struct Lock {
    _listener: UnixListener,
}

impl Lock {
    /// Acquires the lock. Call this before entering namespaces.
    ///
    /// # Errors
    /// [`LabError::Busy`] when another lab runs.
    pub(crate) fn take() -> Result<Self, LabError> {
        Self::take_name(NAME)
    }

    fn take_name(name: &str) -> Result<Self, LabError> {
        let what = || LabError::io("looking for another lab");
        let address = SocketAddr::from_abstract_name(name).map_err(what())?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => Ok(Self {
                _listener: listener,
            }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(LabError::Busy {
                pid: holder(&address),
            }),
            Err(error) => Err(what()(error)),
        }
    }
}

/// Returns the process that holds the lock; `None` if it has ended meanwhile, or is in another
/// namespace.
fn holder(address: &SocketAddr) -> Option<u32> {
    let stream = UnixStream::connect_addr(address).ok()?;
    let pid = socket_peercred(stream).ok()?.pid.as_raw_nonzero();
    u32::try_from(pid.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lab_is_refused_with_the_pid_of_the_first() {
        let name = format!("tailbound-lab-test-{}", std::process::id());
        let first = Lock::take_name(&name).unwrap();
        let Err(LabError::Busy { pid }) = Lock::take_name(&name) else {
            panic!("two labs at once");
        };
        assert_eq!(pid, Some(std::process::id()));
        drop(first);
        Lock::take_name(&name).unwrap();
    }
}
