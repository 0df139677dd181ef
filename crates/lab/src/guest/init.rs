//! The first and only process of a virtual machine: mounts what tasks need, does
//! one, sends its outcome through the serial port [`OUTCOME_PORT`] and powers
//! the machine off.

use super::{Task, TaskError};
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, reboot};
use std::fs;
use std::io;
use std::path::Path;

/// Where the outcome goes: the second serial port, a file on the host.
pub(crate) const OUTCOME_PORT: &str = "/dev/ttyS1";

/// Whether this process is a machine's first.
pub(super) fn is_init() -> bool {
    std::process::id() == 1
}

/// Does the task, and ends the machine whatever comes of it.
pub(super) fn run(path: &Path) -> Result<(), TaskError> {
    let failed = |source| TaskError::Failed {
        what: "machine",
        source,
    };
    let done = prepare()
        .map_err(failed)
        .and_then(|()| super::do_task(path))
        .and_then(|task| send(&task).map_err(failed));
    if let Err(error) = &done {
        eprintln!("{error}");
    }
    rustix::fs::sync();
    // Succeeds by not returning.
    reboot(RebootCommand::PowerOff).map_err(|error| failed(error.into()))
}

fn prepare() -> io::Result<()> {
    fs::create_dir_all("/proc")?;
    Ok(mount("proc", "/proc", "proc", MountFlags::empty(), None)?)
}

fn send(task: &Task) -> io::Result<()> {
    fs::write(OUTCOME_PORT, fs::read(&task.outcome)?)
}
