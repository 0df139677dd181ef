//! The directory of a run's files, and the remains of a crashed run.
//!
//! Namespaces, interfaces and processes of a run disappear with the lab, also after a crash. Its
//! directory does not, and a child that runs a program with file capabilities (`ping`) may survive
//! it: [`clean`] removes both.

use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use tailbound_sys::procfs;
use tailbound_sys::root::Root;

/// The environment variable of every child of a lab, which names its owner.
pub(crate) const OWNER_VARIABLE: &str = "TAILBOUND_LAB";

const PREFIX: &str = "tailbound-lab-";
const OWNER_FILE: &str = "owner";

/// A unique process: its ID may be reused later, but not with the same start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    pid: u32,
    start_time: u64,
}

impl Owner {
    fn this_process() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            start_time: procfs::start_time(pid).unwrap_or(0),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (pid, start_time) = text.trim().split_once('.')?;
        Some(Self {
            pid: pid.parse().ok()?,
            start_time: start_time.parse().ok()?,
        })
    }

    fn text(self) -> String {
        format!("{}.{}", self.pid, self.start_time)
    }

    fn lives(self) -> bool {
        procfs::start_time(self.pid) == Some(self.start_time)
    }
}

/// The directory of this run. Dropping it removes the directory, unless `keep` is set.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    owner: Owner,
    keep: bool,
}

impl RunDir {
    /// Makes the directory, readable by this user only.
    pub(crate) fn create(keep: bool) -> io::Result<Self> {
        let owner = Owner::this_process();
        let path = std::env::temp_dir().join(format!("{PREFIX}{}", owner.pid));
        if is_ours(&path) {
            // The directory of an earlier process with the same ID.
            fs::remove_dir_all(&path)?;
        }
        DirBuilder::new().mode(0o700).create(&path)?;
        fs::write(path.join(OWNER_FILE), owner.text())?;
        Ok(Self { path, owner, keep })
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the value of [`OWNER_VARIABLE`] for children of this run.
    pub(crate) fn owner(&self) -> String {
        self.owner.text()
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if !self.keep {
            // `lab clean` removes the rest.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Result of [`clean`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CleanResult {
    /// Directories that were removed.
    pub directories: Vec<PathBuf>,
    /// Processes that were killed.
    pub processes: Vec<u32>,
}

/// Removes the directories and ends the processes of ended labs. Labs of other users and running
/// labs are not touched.
pub fn clean() -> io::Result<CleanResult> {
    let mut cleaned = CleanResult::default();
    for pid in procfs::processes(&Root::default())? {
        let owner = procfs::environment_variable(pid, OWNER_VARIABLE);
        let orphan = owner.is_some_and(|text| Owner::parse(&text).is_some_and(|o| !o.lives()));
        if orphan
            && let Some(process) = Pid::from_raw(pid.cast_signed())
            && kill_process(process, Signal::KILL).is_ok()
        {
            cleaned.processes.push(pid);
        }
    }
    for entry in fs::read_dir(std::env::temp_dir())? {
        let path = entry?.path();
        if is_ours(&path) && !owner_of(&path).is_some_and(Owner::lives) {
            fs::remove_dir_all(&path)?;
            cleaned.directories.push(path);
        }
    }
    Ok(cleaned)
}

fn owner_of(directory: &Path) -> Option<Owner> {
    Owner::parse(&fs::read_to_string(directory.join(OWNER_FILE)).ok()?)
}

/// Returns whether the path is the directory of a run of this user.
fn is_ours(path: &Path) -> bool {
    let named = path
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| {
            name.strip_prefix(PREFIX)
                .is_some_and(|pid| pid.parse::<u32>().is_ok())
        });
    // Links are not followed: they could lead anywhere.
    named
        && fs::symlink_metadata(path)
            .is_ok_and(|meta| meta.is_dir() && meta.uid() == geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_reads_back_as_it_was_written() {
        let owner = Owner::this_process();
        assert_eq!(Owner::parse(&owner.text()), Some(owner));
        assert!(owner.lives());
    }

    #[test]
    fn a_reused_process_id_is_not_the_owner() {
        let owner = Owner::this_process();
        let earlier = Owner {
            start_time: owner.start_time.wrapping_sub(1),
            ..owner
        };
        assert!(!earlier.lives());
    }

    #[test]
    fn malformed_owner_text_parses_to_none() {
        for text in ["", "12", "a.b", "1.2.3", "-1.5"] {
            assert_eq!(Owner::parse(text), None, "{text:?}");
        }
    }
}
