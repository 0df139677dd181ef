//! The journal: a file for each adopted guest, written before a change.
//!
//! A file is replaced as a whole and on disk before the change that it describes, so that a release
//! knows all steps that may have been taken. It survives reboots, so that guests can be adopted
//! again.

use super::step::Entry;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The directory by default.
pub const DEFAULT_STATE: &str = "/var/lib/tailbound/adopted";

const SCHEMA: u32 = 1;
const SUFFIX: &str = ".json";
/// The pause between two attempts to have the journal.
const RETRY: Duration = Duration::from_millis(5);

/// Reason why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file cannot be read or written.
    #[error("{}: {source}; run as root, or select another directory by --state", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process changes the journal.
    #[error("{} is in use by another tailbound; try again when that has ended", path.display())]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// A file has other content.
    #[error(
        "{} is no entry of this version ({source}); remove it if its guest needs no release",
        path.display()
    )]
    Content {
        /// The file.
        path: PathBuf,
        /// The mistake.
        source: serde_json::Error,
    },
}

/// The entries of adopted guests.
pub trait Journal {
    /// Returns all entries, by key.
    ///
    /// # Errors
    /// An entry cannot be read.
    fn entries(&self) -> Result<Vec<Entry>, JournalError>;
    /// Replaces the entry of a guest; it is durable when this returns.
    ///
    /// # Errors
    /// The file cannot be written; the former one stays.
    fn write(&mut self, entry: &Entry) -> Result<(), JournalError>;
    /// Removes the entry with this key; durable when this returns.
    ///
    /// # Errors
    /// The file cannot be removed.
    fn remove(&mut self, key: &str) -> Result<(), JournalError>;
}

/// The journal in a directory.
#[derive(Debug)]
pub struct FileJournal {
    directory: PathBuf,
    /// Held for as long as this lives; none for a reader.
    lock: Option<File>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Document {
    schema: u32,
    #[serde(flatten)]
    entry: Entry,
}

impl FileJournal {
    /// Opens the journal for changes, alone. Creates a missing directory.
    ///
    /// # Errors
    /// Another process has it, or the directory cannot be written.
    pub fn open(directory: &Path) -> Result<Self, JournalError> {
        let failed = |source: io::Error| JournalError::File {
            path: directory.to_owned(),
            source,
        };
        // The directory above has files that ordinary users may read.
        if let Some(parent) = directory.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        let mut maker = fs::DirBuilder::new();
        maker.recursive(true).mode(0o700);
        maker.create(directory).map_err(failed)?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(directory.join("lock"))
            .map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self {
                directory: directory.to_owned(),
                lock: Some(lock),
            }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(JournalError::Busy {
                path: directory.to_owned(),
            }),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Opens the journal as [`Self::open`] does, and waits at most `patience` for another process.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_within(directory: &Path, patience: Duration) -> Result<Self, JournalError> {
        let until = Instant::now() + patience;
        loop {
            match Self::open(directory) {
                Err(JournalError::Busy { .. }) if Instant::now() < until => {
                    std::thread::sleep(RETRY);
                }
                opened => return opened,
            }
        }
    }

    /// Reads the journal, which another process may change.
    pub fn preview(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            lock: None,
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.directory.join(file_name(key))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }

    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        assert!(self.lock.is_some(), "a reader writes no entry");
        let fresh = path.with_extension("new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&fresh)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        self.sync()
    }
}

/// Returns the name of the file of a key: letters, digits, `-`, `_` and `.` stay, other bytes
/// become `%` and two digits.
fn file_name(key: &str) -> String {
    let mut name = String::with_capacity(key.len() + SUFFIX.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') {
            name.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(name, "%{byte:02x}");
        }
    }
    name + SUFFIX
}

impl Journal for FileJournal {
    fn entries(&self) -> Result<Vec<Entry>, JournalError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| JournalError::File { path, source }
        };
        let all = match fs::read_dir(&self.directory) {
            Ok(all) => all,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(&self.directory)(error)),
        };
        let mut entries = Vec::new();
        for file in all {
            let path = file.map_err(failed(&self.directory))?.path();
            if !path.to_string_lossy().ends_with(SUFFIX) {
                continue;
            }
            let content = |source| JournalError::Content {
                path: path.clone(),
                source,
            };
            let text = fs::read(&path).map_err(failed(&path))?;
            let document: Document = serde_json::from_slice(&text).map_err(content)?;
            if document.schema != SCHEMA {
                let message = format!("schema {}, not {SCHEMA}", document.schema);
                return Err(content(serde::de::Error::custom(message)));
            }
            entries.push(document.entry);
        }
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(entries)
    }

    fn write(&mut self, entry: &Entry) -> Result<(), JournalError> {
        let path = self.path(&entry.key);
        let document = Document {
            schema: SCHEMA,
            entry: entry.clone(),
        };
        let text = serde_json::to_vec_pretty(&document).expect("entries are objects of text");
        self.replace(&path, &text)
            .map_err(|source| JournalError::File { path, source })
    }

    fn remove(&mut self, key: &str) -> Result<(), JournalError> {
        let path = self.path(key);
        let removed = match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.and_then(|()| self.sync()),
        };
        removed.map_err(|source| JournalError::File { path, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// The daemon's files are in the directory above, and ordinary users check configurations.
    #[test]
    fn only_the_journals_own_directory_is_closed_to_others() {
        let directory = tempfile::tempdir().expect("a directory");
        let above = directory.path().join("tailbound");
        let journal = above.join("adopted");
        FileJournal::open(&journal).expect("it is made");
        let mode = |path: &Path| {
            let found = fs::metadata(path).expect("it was made");
            found.permissions().mode() & 0o077
        };
        assert_ne!(mode(&above) & 0o011, 0, "others cannot enter it");
        assert_eq!(mode(&journal), 0);
    }
}
