//! Facts about a computer that no file contains: the results of system calls. A trait provides
//! them, so that a recorded computer can replay its results.

use super::cri::{self, CriError, Pod};
use super::losses::InterruptTime;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io;
use std::os::linux::fs::MetadataExt as _;
use std::path::Path;
use tailbound_sys::cgroup;
use tailbound_sys::cpuset::{self, Cpus};
use tailbound_sys::probe::{self, Capability};
use tailbound_sys::sched;
use tailbound_sys::thread::{self, Credentials, Scheduling, set_scheduling};
use tailbound_units::Nanos;

/// The system calls that read threads.
pub trait SystemCalls: fmt::Debug + Send {
    /// Returns how a thread is scheduled.
    ///
    /// # Errors
    /// The thread has exited (ESRCH).
    fn scheduling(&self, tid: u32) -> io::Result<Scheduling>;
    /// Returns the CPUs that a thread may run on.
    ///
    /// # Errors
    /// The thread has exited (ESRCH).
    fn affinity(&self, tid: u32) -> io::Result<Cpus>;
    /// Returns who a process is; `None` when it has exited.
    fn credentials(&self, pid: u32) -> Option<Credentials>;
    /// Returns true if only root can change a control group and its members
    /// ([`cgroup::is_guarded`]).
    fn is_guarded(&self, directory: &Path) -> bool;
    /// Returns the file that a process runs, under any name; `None` if it must not be examined
    /// (`CAP_SYS_PTRACE`).
    fn executable(&self, pid: u32) -> Option<FileId>;
    /// Returns which file a path leads to.
    fn file(&self, path: &Path) -> Option<FileId>;
    /// Returns the pods of this host, from the container runtime at that socket, or one that is
    /// found.
    ///
    /// # Errors
    /// Why they are not known.
    fn pods(&self, socket: Option<&Path>) -> Result<Vec<Pod>, CriError>;
}

/// A file under any name: a bind mount adds names for it, and hides other files under its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId {
    /// The number of its device.
    pub device: u64,
    /// Its inode there.
    pub inode: u64,
}

fn file_id(path: impl AsRef<Path>) -> Option<FileId> {
    let seen = fs::metadata(path).ok()?;
    Some(FileId {
        device: seen.st_dev(),
        inode: seen.st_ino(),
    })
}

/// The running kernel.
#[derive(Debug)]
pub struct Live;

impl SystemCalls for Live {
    fn scheduling(&self, tid: u32) -> io::Result<Scheduling> {
        thread::scheduling(tid)
    }

    fn affinity(&self, tid: u32) -> io::Result<Cpus> {
        cpuset::affinity(tid)
    }

    fn credentials(&self, pid: u32) -> Option<Credentials> {
        thread::credentials(pid)
    }

    fn is_guarded(&self, directory: &Path) -> bool {
        cgroup::is_guarded(directory)
    }

    fn executable(&self, pid: u32) -> Option<FileId> {
        // Not the link's text: this follows it to the file itself.
        file_id(format!("/proc/{pid}/exe"))
    }

    fn file(&self, path: &Path) -> Option<FileId> {
        file_id(path)
    }

    fn pods(&self, socket: Option<&Path>) -> Result<Vec<Pod>, CriError> {
        cri::pods(socket)
    }
}

/// Facts that stay the same during the life of this process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// The kernel's release, as `uname -r` prints it.
    pub release: String,
    /// The user that this process runs as.
    pub user: u32,
    /// True if this process may raise any thread (`CAP_SYS_NICE`, in the initial user namespace).
    pub privileged: bool,
    /// True if a thread can have its own time slice (Linux 6.12).
    pub slices: bool,
    /// The kernel's default slice, which a thread without a slice of its own reads back.
    pub base_slice: Nanos,
    /// The time between two ticks.
    pub tick: Nanos,
    /// True if the kernel budgets real-time classes by control group (`RT_GROUP_SCHED`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub groups_real_time: bool,
    /// The kernel's method to count interrupt time.
    #[serde(default)]
    pub interrupt_time: InterruptTime,
}

impl Facts {
    /// Returns those of the running kernel.
    ///
    /// # Errors
    /// No thread can be started to try slices on.
    pub fn of_this_machine() -> io::Result<Self> {
        // Unlike every kernel's own.
        let odd = Nanos::from_micros(300);
        let name = rustix::system::uname();
        Ok(Self {
            release: name.release().to_string_lossy().into_owned(),
            user: rustix::process::geteuid().as_raw(),
            privileged: privileged(),
            slices: sched::probe_slice(odd).is_ok_and(|seen| seen == odd),
            base_slice: base_slice()?,
            tick: tick(),
            groups_real_time: !Capability::RtGroupSched.try_here().works,
            interrupt_time: if probe::times_interrupts() {
                InterruptTime::Timed
            } else {
                InterruptTime::Sampled
            },
        })
    }
}

/// Returns the time between two ticks: the coarse clocks move with them.
fn tick() -> Nanos {
    let between = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    Nanos::from_secs(u64::try_from(between.tv_sec).unwrap_or(0))
        + Nanos(u64::try_from(between.tv_nsec).unwrap_or(0))
}

/// Returns what reads back as the slice of a thread that has none of its own.
fn base_slice() -> io::Result<Nanos> {
    let plain = || {
        // A thread inherits its creator's slice.
        set_scheduling(
            0,
            &Scheduling {
                nice: thread::scheduling(0)?.nice,
                ..Scheduling::PLAIN
            },
        )?;
        Ok(thread::scheduling(0)?.runtime)
    };
    let tried = std::thread::Builder::new().spawn(plain)?;
    match tried.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Returns true if this process may raise any thread: `CAP_SYS_NICE` counts in the initial user
/// namespace only.
fn privileged() -> bool {
    use rustix::thread::CapabilitySet;
    let initial = fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]));
    initial
        && rustix::thread::capabilities(None)
            .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE))
}

/// Returns true if an error means that a thread or process has exited.
pub(crate) fn has_exited(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::SRCH)
}
