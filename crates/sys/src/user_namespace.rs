//! Private mount and network namespaces: an ordinary user gets them by a user namespace.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags};
use rustix::process::PidfdFlags;
use rustix::thread::{ThreadNameSpaceType, UnshareFlags};
use std::fs;
use std::io;
use std::os::fd::AsFd as _;

/// The permission by which namespaces are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// Root of this computer.
    Root,
    /// Root of a new user namespace.
    UserNamespace,
}

/// Reason why the process could not move into namespaces of its own.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// The kernel forbids it.
    #[error("cannot make {what}: {source}")]
    Unshare {
        /// The namespaces.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// An ordinary user inside a chroot.
    #[error(
        "inside a chroot the kernel makes no user namespace for an ordinary user; run as root, \
         or outside of the chroot"
    )]
    UserInChroot,
    /// Root inside a chroot whose root directory is no mount point, and cannot be made one.
    #[error(
        "the root directory of this chroot is no mount point and cannot be made one: {source}; \
         outside of the chroot, run: mount --bind DIR DIR, and enter DIR again"
    )]
    Chroot {
        /// The kernel's error.
        source: io::Error,
    },
    /// The user's id could not be mapped to root inside.
    #[error("cannot write {path}: {source}")]
    Map {
        /// The file that maps ids.
        path: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A mount inside the new namespace failed.
    #[error("cannot mount {what}: {source}")]
    Mount {
        /// The object of the mount.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Moves this process into a mount and a network namespace of its own, with an empty `/run`.
/// Objects that are made inside (named network namespaces, interfaces) disappear with the last
/// process inside.
///
/// Root does it as root; other users get a new user namespace in which they are root.
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
        unshare(inner | UnshareFlags::NEWUSER).map_err(|source| {
            if !user.is_root() && !root_is_mount_point() {
                return EnterError::UserInChroot;
            }
            let what = "a user namespace with a mount and a network namespace in it";
            EnterError::Unshare { what, source }
        })?;
        map("/proc/self/setgroups", "deny")?;
        map("/proc/self/uid_map", &format!("0 {} 1", user.as_raw()))?;
        map("/proc/self/gid_map", &format!("0 {} 1", group.as_raw()))?;
        Privilege::UserNamespace
    };
    if root_is_mount_point() {
        make_private().map_err(|source| EnterError::Mount {
            what: "/ privately",
            source,
        })?;
    } else {
        make_root_a_mount_point().map_err(|source| EnterError::Chroot { source })?;
    }
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

/// Returns true if `/` is a mount point. In a chroot into an ordinary directory it is none. Kernels
/// before 5.8 do not report that, and the result is true.
fn root_is_mount_point() -> bool {
    let flag = StatxAttributes::MOUNT_ROOT;
    rustix::fs::statx(CWD, "/", AtFlags::empty(), StatxFlags::empty()).map_or(true, |root| {
        !root.stx_attributes_mask.contains(flag) || root.stx_attributes.contains(flag)
    })
}

/// Stops the propagation of mounts between this namespace and all others.
fn make_private() -> io::Result<()> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", flags)?)
}

/// Mounts this process's root directory onto itself, in the mount namespace that was made for this
/// process. Propagation is a property of mount points, and iproute2 changes that of `/`.
fn make_root_a_mount_point() -> io::Result<()> {
    let here = std::env::current_dir()?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let chroot = rustix::fs::open("/", flags, Mode::empty())?;
    // Entering a mount namespace leads to its own root. From there all mounts can be made private,
    // the one below the chroot included: else the new mount would be one outside, too.
    let this = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    rustix::thread::move_into_thread_name_spaces(this.as_fd(), ThreadNameSpaceType::MOUNT)?;
    make_private()?;
    let clone = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = rustix::mount::open_tree(&chroot, "", clone)?;
    let onto_itself =
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(&tree, "", &chroot, "", onto_itself)?;
    rustix::process::fchdir(&tree)?;
    rustix::process::chroot(".")?;
    Ok(rustix::process::chdir(&here)?)
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: none of the flags used here shares less memory or fewer file
    // descriptors than before, which is what could break code that runs.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

fn map(path: &'static str, text: &str) -> Result<(), EnterError> {
    fs::write(path, text).map_err(|source| EnterError::Map { path, source })
}
