//! Leaving the world behind: a mount and a network namespace of one's own, as
//! an ordinary user by way of a user namespace.

use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;
use std::fs;
use std::io;

/// By what right namespaces are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// As root of this machine.
    Root,
    /// As root of a user namespace that was made for it.
    UserNamespace,
}

/// Why the process could not move into namespaces of its own.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// The kernel forbids it.
    #[error("cannot make {what}: {source}")]
    Unshare {
        /// Which namespaces.
        what: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The user's id could not be mapped to root inside.
    #[error("cannot write {path}: {source}")]
    Map {
        /// The file that maps ids.
        path: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A mount inside the new namespace failed.
    #[error("cannot mount {what}: {source}")]
    Mount {
        /// What was to be mounted.
        what: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
}

/// Moves this process into a mount and a network namespace of its own, with an
/// empty `/run`. Whatever is made inside (named network namespaces, interfaces)
/// goes away with the last process inside.
///
/// Root does it as root; anybody else through a new user namespace in which
/// they are root.
///
/// # Errors
/// See [`EnterError`]. A user namespace can only be entered by a process of a
/// single thread (EINVAL).
pub fn enter() -> Result<Privilege, EnterError> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let inner = UnshareFlags::NEWNS | UnshareFlags::NEWNET;
    let privilege = if user.is_root() && unshare(inner).is_ok() {
        Privilege::Root
    } else {
        unshare(inner | UnshareFlags::NEWUSER).map_err(|source| EnterError::Unshare {
            what: "a user namespace with a mount and a network namespace in it",
            source,
        })?;
        map("/proc/self/setgroups", "deny")?;
        map("/proc/self/uid_map", &format!("0 {} 1", user.as_raw()))?;
        map("/proc/self/gid_map", &format!("0 {} 1", group.as_raw()))?;
        Privilege::UserNamespace
    };
    rustix::mount::mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .map_err(|errno| EnterError::Mount {
        what: "/ privately",
        source: errno.into(),
    })?;
    rustix::mount::mount(
        "tmpfs",
        "/run",
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        c"mode=755",
    )
    .map_err(|errno| EnterError::Mount {
        what: "an empty /run",
        source: errno.into(),
    })?;
    Ok(privilege)
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: none of the flags used here shares less memory or fewer file
    // descriptors than before, which is what could break code that runs.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

fn map(path: &'static str, text: &str) -> Result<(), EnterError> {
    fs::write(path, text).map_err(|source| EnterError::Map { path, source })
}
