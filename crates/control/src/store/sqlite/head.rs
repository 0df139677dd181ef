//! The head of a store: its last commit, in a file beside the database, `FILE-head`.
//!
//! `SQLite` drops all frames behind the first damaged one of its log, without an error. The head is
//! outside the log, so a store that lost commits is detected when it is opened.
//!
//! The head is written after the database's commit and before callers get their replies, and synced
//! within [`INTERVAL`]. So the head is never ahead of the database. After a kill of the process it has
//! every acknowledged commit; after a power failure it may lack those of the last interval. Waiting
//! for its sync would cost a third of all commits.

use crate::store::StoreError;
use sha2::{Digest as _, Sha256};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Size of the file. Nothing is appended, so no commit needs space for it.
const SIZE: usize = 4096;
/// Distance of the two slots: a torn write of one leaves the other.
const SLOT: usize = 2048;
/// The first bytes of a slot.
const MAGIC: &[u8; 8] = b"tbndhead";
/// Length of a slot's content, before its hash.
const CONTENT: usize = 8 + 8 + 32;
/// A commit is in the synced head after this time.
const INTERVAL: Duration = Duration::from_millis(100);

/// Digest of a chain of commits.
pub(super) type Digest = [u8; 32];

/// The last commit of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) revision: u64,
    pub(super) digest: Digest,
}

impl Mark {
    fn write(&self) -> [u8; CONTENT + 32] {
        let mut slot = [0; CONTENT + 32];
        slot[..8].copy_from_slice(MAGIC);
        slot[8..16].copy_from_slice(&self.revision.to_le_bytes());
        slot[16..CONTENT].copy_from_slice(&self.digest);
        let hash = Sha256::digest(&slot[..CONTENT]);
        slot[CONTENT..].copy_from_slice(&hash);
        slot
    }

    /// Returns the mark of a slot, if the slot is as it was written.
    fn read(slot: &[u8]) -> Option<Self> {
        let content = slot.get(..CONTENT)?;
        let hash = slot.get(CONTENT..CONTENT + 32)?;
        if &content[..8] != MAGIC || Sha256::digest(content).as_slice() != hash {
            return None;
        }
        Some(Self {
            revision: u64::from_le_bytes(content[8..16].try_into().ok()?),
            digest: content[16..].try_into().ok()?,
        })
    }

    fn slot(&self) -> usize {
        usize::from(!self.revision.is_multiple_of(2))
    }
}

/// The file of the head, and the thread that syncs it.
#[derive(Debug)]
pub(super) struct Head {
    file: Arc<File>,
    path: PathBuf,
    marks: [Option<Mark>; 2],
    /// Requests of a sync.
    changed: SyncSender<()>,
    is_unsynced: Arc<AtomicBool>,
}

impl Head {
    /// Returns the path of the head of a database.
    pub(super) fn path_of(database: &Path) -> PathBuf {
        let mut name = database.as_os_str().to_owned();
        name.push("-head");
        PathBuf::from(name)
    }

    /// Makes the head of a database, with its last commit, in place of one that is there.
    pub(super) fn create(database: &Path, last: Option<(u64, Digest)>) -> io::Result<Self> {
        let path = Self::path_of(database);
        let mut content = vec![0; SIZE];
        if let Some((revision, digest)) = last {
            let mark = Mark { revision, digest };
            let at = mark.slot() * SLOT;
            content[at..at + CONTENT + 32].copy_from_slice(&mark.write());
        }
        // A crash leaves the old head or the new one.
        let mut new = path.clone().into_os_string();
        new.push("-new");
        std::fs::write(&new, content)?;
        File::open(&new)?.sync_all()?;
        std::fs::rename(&new, &path)?;
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Self::open(database)
    }

    /// Opens the head of a database.
    pub(super) fn open(database: &Path) -> io::Result<Self> {
        let path = Self::path_of(database);
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let mut content = Vec::new();
        io::Read::read_to_end(&mut &file, &mut content)?;
        let mark = |slot: usize| content.get(slot * SLOT..).and_then(Mark::read);
        let marks = [mark(0), mark(1)];
        let file = Arc::new(file);
        let (changed, requests) = sync_channel(1);
        let is_unsynced = Arc::new(AtomicBool::new(false));
        let (held, failed) = (Arc::clone(&file), Arc::clone(&is_unsynced));
        std::thread::spawn(move || sync(&held, &requests, &failed));
        Ok(Self {
            file,
            path,
            marks,
            changed,
            is_unsynced,
        })
    }

    /// Returns the newest commit, if any.
    pub(super) fn last(&self) -> Option<&Mark> {
        self.marks.iter().flatten().max_by_key(|mark| mark.revision)
    }

    /// Checks that a database which ends with this commit has all that callers got replies of.
    ///
    /// # Errors
    /// The database lost commits, or is not the one that this head belongs to.
    pub(super) fn check(&self, revision: u64, digest: &Digest) -> Result<(), StoreError> {
        let path = self.path.display();
        let Some(last) = self.last() else {
            return if revision == 0 {
                Ok(())
            } else {
                Err(StoreError::Corrupt(format!("{path} is damaged")))
            };
        };
        if revision < last.revision {
            let number = last.revision - revision;
            return Err(StoreError::Corrupt(format!(
                "it ends with commit {revision}, and {path} has commit {}: at least {number} lost",
                last.revision
            )));
        }
        let same = self
            .marks
            .iter()
            .flatten()
            .find(|it| it.revision == revision);
        if same.is_some_and(|mark| mark.digest != *digest) {
            return Err(StoreError::Corrupt(format!(
                "its commit {revision} is not the one of {path}: this is the head of another store"
            )));
        }
        Ok(())
    }

    /// Takes a commit that is durable in the database.
    ///
    /// # Errors
    /// The head cannot be written, or could not be synced before.
    pub(super) fn put(&mut self, revision: u64, digest: Digest) -> io::Result<()> {
        if self.is_unsynced.load(Ordering::Relaxed) {
            let path = self.path.display();
            return Err(io::Error::other(format!("{path} could not be synced")));
        }
        let mark = Mark { revision, digest };
        let at = mark.slot();
        self.file.write_all_at(&mark.write(), (at * SLOT) as u64)?;
        self.marks[at] = Some(mark);
        // A request that waits already is enough.
        let _ = self.changed.try_send(());
        Ok(())
    }
}

/// Syncs a file once an interval while it changes, and at the end.
fn sync(file: &File, requests: &Receiver<()>, failed: &AtomicBool) {
    while requests.recv().is_ok() {
        std::thread::sleep(INTERVAL);
        // Of changes meanwhile.
        let _ = requests.try_recv();
        if file.sync_data().is_err() {
            failed.store(true, Ordering::Relaxed);
        }
    }
}
