//! The state file: what was there before the agent's changes, so that another process
//! can put it back after a crash.

use super::desired::Desired;
use super::observed::ThreadState;
use super::path::PathStep;
use super::plan::Plan;
use super::step::{GroupStep, ThreadStep};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use tailbound_sys::root::Root;
use tailbound_sys::thread::ThreadId;

/// The state file's path by default.
pub const DEFAULT_STATE: &str = "/run/tailbound/vcpu.json";

const SCHEMA: u32 = 1;

/// Reason why the state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be read or written.
    #[error(
        "{path}: {source}; select another file with --state, or run as root",
        path = path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another agent uses the file.
    #[error(
        "{path} is in use by another tailbound (vcpu watch, or host); stop that first",
        path = path.display()
    )]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// Another agent runs with another state.
    #[error(
        "{state} cannot be used while another tailbound runs on this host (vcpu watch, or host){}: \
         each would restore the other's classes; stop it, or add the rules to its file",
        other.as_ref().map(|other| format!(" with {}", other.display())).unwrap_or_default(),
        state = state.display()
    )]
    OtherAgent {
        /// The file.
        state: PathBuf,
        /// The other agent's, if its claim names one.
        other: Option<PathBuf>,
    },
    /// An agent with another state left changes.
    #[error(
        "{other} still has what an agent changed on this host; run `tailbound vcpu restore --state \
         {other}` first, or use it in place of {state}",
        other = other.display(),
        state = state.display()
    )]
    OtherState {
        /// The file.
        state: PathBuf,
        /// The one with the changes.
        other: PathBuf,
    },
    /// The file has other content.
    #[error(
        "{path} is not a state file of this version ({source}); remove the file if no settings \
            need to be restored from it",
        path = path.display()
    )]
    Content {
        /// The file.
        path: PathBuf,
        /// The mistake.
        source: serde_json::Error,
    },
}

/// Changes that were not restored yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// State of each thread before the first change and after the last.
    pub threads: BTreeMap<ThreadId, ThreadStep>,
    /// State of each control group before the first change and after the last, by directory.
    pub groups: BTreeMap<PathBuf, GroupStep>,
    /// Steps for the host's own path, the first step first.
    pub path: Vec<PathStep>,
}

impl Changes {
    /// Records the changes of `plan` before they happen. The state before the first change stays
    /// the original.
    pub fn add(&mut self, plan: &Plan) {
        for step in &plan.threads {
            let known = self.threads.entry(step.thread).or_insert(step.clone());
            known.after = step.after;
            known.home = step.home;
            known.group.clone_from(&step.group);
            known.name.clone_from(&step.name);
        }
        for step in &plan.groups {
            let known = self.groups.entry(step.directory.clone());
            known.or_insert(step.clone()).after = step.after;
        }
        self.threads.retain(|_, step| step.before != step.after);
    }

    /// Records the group that weighs each thread now. The group at which a thread competes changes
    /// when guests start and end.
    pub fn regroup(&mut self, desired: &[Desired]) {
        for wanted in desired {
            if let Some(known) = self.threads.get_mut(&wanted.thread) {
                known.group = wanted.weighed.group().cloned();
            }
        }
    }

    /// Returns the state of each thread before the first change.
    pub fn originals(&self) -> BTreeMap<ThreadId, ThreadState> {
        let original = |(thread, step): (&ThreadId, &ThreadStep)| (*thread, step.before);
        self.threads.iter().map(original).collect()
    }

    /// Returns true if there is nothing to restore.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty() && self.groups.is_empty() && self.path.is_empty()
    }
}

/// The file's form: maps with structured keys are no JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Document {
    schema: u32,
    /// The boot to which the threads' numbers belong.
    boot: String,
    threads: Vec<ThreadStep>,
    groups: Vec<GroupStep>,
    #[serde(default)]
    path: Vec<PathStep>,
}

/// The state file: locked for as long as this lives, or read alone.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// Changes that are not restored yet.
    changes: Changes,
    access: Access,
}

/// Permitted use of the file.
#[derive(Debug)]
enum Access {
    /// The file was read, and is never written.
    ReadOnly,
    /// The file is written for this boot, under an exclusive lock.
    Locked { boot: String, _lock: File },
}

impl Journal {
    /// Opens the state at `path`; it is empty if the file is missing or belongs to an earlier boot.
    /// Creates a missing directory.
    ///
    /// # Errors
    /// The file cannot be read or written, is in use, or has other content.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let failed = |source| JournalError::File {
            path: path.to_owned(),
            source,
        };
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(failed)?;
        }
        let mut lock = OpenOptions::new();
        lock.create(true).truncate(false).write(true);
        let lock = lock.open(beside(path, "lock")).map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(JournalError::Busy {
                    path: path.to_owned(),
                });
            }
            Err(error) => return Err(failed(error.into())),
        }
        let boot = boot(&Root::default()).map_err(failed)?;
        let changes = read(path, &boot)?;
        Ok(Self {
            path: path.to_owned(),
            changes,
            access: Access::Locked { boot, _lock: lock },
        })
    }

    /// Reads the state at `path` without locking it.
    ///
    /// # Errors
    /// The file cannot be read, or has other content.
    pub fn preview(path: &Path) -> Result<Self, JournalError> {
        Ok(Self {
            path: path.to_owned(),
            changes: peek(&Root::default(), path)?,
            access: Access::ReadOnly,
        })
    }

    /// Returns what was changed and not yet restored.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Changes the content of the file atomically; removes the file if no changes are left.
    ///
    /// # Errors
    /// The file cannot be written; the old content stays.
    pub fn update(&mut self, change: impl FnOnce(&mut Changes)) -> Result<(), JournalError> {
        let mut changes = self.changes.clone();
        change(&mut changes);
        if changes == self.changes {
            return Ok(());
        }
        let Access::Locked { boot, .. } = &self.access else {
            return Err(JournalError::Busy {
                path: self.path.clone(),
            });
        };
        self.write(&changes, boot)
            .map_err(|source| JournalError::File {
                path: self.path.clone(),
                source,
            })?;
        self.changes = changes;
        Ok(())
    }

    fn write(&self, changes: &Changes, boot: &str) -> io::Result<()> {
        if changes.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let document = Document {
            schema: SCHEMA,
            boot: boot.to_owned(),
            threads: changes.threads.values().cloned().collect(),
            groups: changes.groups.values().cloned().collect(),
            path: changes.path.clone(),
        };
        let text = serde_json::to_vec(&document)?;
        let fresh = beside(&self.path, "new");
        let mut file = File::create(&fresh)?;
        file.write_all(&text)?;
        // The threads it is about do not survive the machine's crash either, so
        // it need not reach the disk.
        fs::rename(&fresh, &self.path)
    }
}

/// Reads a state without opening it, as another process may use it. Its boot must be that of the
/// computer under `root`.
///
/// # Errors
/// The file cannot be read, or has other content.
pub fn peek(root: &Root, path: &Path) -> Result<Changes, JournalError> {
    let boot = boot(root).map_err(|source| JournalError::File {
        path: path.to_owned(),
        source,
    })?;
    read(path, &boot)
}

fn read(path: &Path, boot: &str) -> Result<Changes, JournalError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Changes::default()),
        Err(source) => {
            return Err(JournalError::File {
                path: path.to_owned(),
                source,
            });
        }
    };
    let content = |source| JournalError::Content {
        path: path.to_owned(),
        source,
    };
    let document: Document = serde_json::from_slice(&text).map_err(content)?;
    if document.schema != SCHEMA {
        let message = format!("schema {}, not {SCHEMA}", document.schema);
        return Err(content(serde::de::Error::custom(message)));
    }
    if document.boot != boot {
        return Ok(Changes::default());
    }
    let threads = document.threads.into_iter();
    let groups = document.groups.into_iter();
    Ok(Changes {
        threads: threads.map(|step| (step.thread, step)).collect(),
        groups: groups.map(|step| (step.directory.clone(), step)).collect(),
        path: document.path,
    })
}

fn boot(root: &Root) -> io::Result<String> {
    let text = fs::read_to_string(root.path("/proc/sys/kernel/random/boot_id"))?;
    Ok(text.trim().to_owned())
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}
