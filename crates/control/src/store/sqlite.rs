//! The ledger in one `SQLite` file: every value as JSON with a checksum.
//!
//! The write-ahead log is synced with each commit, so a commit survives a crash of the host. The
//! file is locked exclusively while it is open: two services cannot use it.
//!
//! Three sums detect what `SQLite` does not: each row has a checksum; the counters have the sum of
//! all rows' checksums, which detects rows that are gone or older than the rest; and each commit has
//! a digest of itself and of the one before, which the [head](head) keeps outside the log.

mod content;
mod head;
mod rows;

use super::sections::{self, StoredTenants};
use super::{Store, StoreError};
use crate::backup;
use crate::ledger::{Change, Snapshot};
use content::Content;
use head::Head;
use rows::{Rows, Sum};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tailbound_api::Tenant;
use tailbound_placement::TenantId;

/// The application id in the header of our files: `tbnd`.
const APPLICATION: i32 = 0x7462_6e64;

/// The version of the tables and of their content.
const SCHEMA: i32 = 6;

/// Earlier versions: 1 without reports of hosts and numbers of tenants' changes, 2 without a head
/// and a sum of all rows. They are read unchanged, and have the current version afterwards.
const EARLIER: [i32; 2] = [1, 2];
/// The version without an audit, which differs in nothing else.
const WITHOUT_AUDIT: i32 = 3;
/// The version without tokens, which differs in nothing else.
const WITHOUT_TOKENS: i32 = 4;
/// The version without sections of tenants, which differs in nothing else.
const WITHOUT_SECTIONS: i32 = 5;

/// Prefix of the names of documents with reports of hosts.
const SAID: &str = "said/";
/// Prefix of the names of documents with tokens.
const TOKEN: &str = "token/";

const TABLES: &str = "
    CREATE TABLE document (
        name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE tenant (
        id INTEGER PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL
    ) STRICT;
    -- The owner of an operator's key is empty.
    CREATE TABLE key (
        owner TEXT, name TEXT, value TEXT NOT NULL, checksum INTEGER NOT NULL,
        PRIMARY KEY (owner, name)
    ) STRICT, WITHOUT ROWID;
";

/// The table of the audit: each block by the number of its first entry.
const AUDIT_TABLE: &str = "
    CREATE TABLE IF NOT EXISTS audit (
        id INTEGER PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL
    ) STRICT;
";

/// The table of the sections of tenants, by the tenant and the number of the section.
const SECTION_TABLE: &str = "
    CREATE TABLE IF NOT EXISTS section (
        tenant INTEGER, number INTEGER, value TEXT NOT NULL, checksum INTEGER NOT NULL,
        PRIMARY KEY (tenant, number)
    ) STRICT, WITHOUT ROWID;
";

/// A store in one file, for one service at a time.
#[derive(Debug)]
pub struct Sqlite {
    connection: Connection,
    path: PathBuf,
    head: Head,
    counters: Counters,
    stored: StoredTenants,
}

/// The document that changes with every commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counters {
    revision: u64,
    next_id: u64,
    /// Absent in earlier versions, until their first commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sum: Option<Sum>,
}

impl Sqlite {
    /// Opens the file, or creates a new one.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, OpenFlags::SQLITE_OPEN_CREATE)
    }

    /// Makes a new file of what a backup holds, at a later revision than the backup's.
    ///
    /// # Errors
    /// The file exists, or cannot be written.
    pub fn restore(path: &Path, snapshot: &Snapshot) -> Result<(), StoreError> {
        if path.exists() {
            return Err(StoreError::Failed(format!(
                "{} exists; a backup is restored into a new file",
                path.display()
            )));
        }
        let mut store = Self::open(path)?;
        store.counters.revision = snapshot.revision;
        store.commit(&backup::changes(snapshot))?;
        Ok(())
    }

    /// Opens a file that exists.
    pub fn open_existing(path: &Path) -> Result<Self, StoreError> {
        if !path.exists() {
            return Err(StoreError::Failed(format!(
                "there is no file {}",
                path.display()
            )));
        }
        Self::open_with(path, OpenFlags::empty())
    }

    fn open_with(path: &Path, create: OpenFlags) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | create;
        let at = |error: &rusqlite::Error| opening(path, error);
        let mut connection =
            Connection::open_with_flags(path, flags).map_err(|error| at(&error))?;
        // Nothing is written before it is known whose file this is.
        lock(&connection).map_err(|error| at(&error))?;
        let head = match identify(&connection, path)? {
            FileKind::New => {
                set_merge_at_end(&connection, true).map_err(|error| at(&error))?;
                new_head(path)?
            }
            FileKind::Current => Head::open(path).map_err(|error| {
                let head = Head::path_of(path);
                StoreError::Corrupt(format!("its head {}: {error}", head.display()))
            })?,
            FileKind::Earlier => {
                let counters = content::counters(&connection)?;
                let last = (counters.revision > 0).then_some((counters.revision, [0; 32]));
                Head::create(path, last).map_err(|error| with_head(path, &error))?
            }
        };
        prepare(&mut connection).map_err(|error| at(&error))?;
        Ok(Self {
            connection,
            path: path.to_owned(),
            head,
            counters: Counters::default(),
            stored: StoredTenants::default(),
        })
    }

    /// Returns what a damaged store still has, and what it lost, a line each. The files are not
    /// changed.
    ///
    /// # Errors
    /// The file is no store, or has no topology any more.
    pub fn salvage(path: &Path) -> Result<(Snapshot, Vec<String>), StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags);
        let connection = connection.map_err(|error| opening(path, &error))?;
        lock(&connection).map_err(|error| opening(path, &error))?;
        identify(&connection, path)?;
        content::salvage(&connection, Head::open(path).ok().as_ref())
    }
}

impl Store for Sqlite {
    fn load(&mut self) -> Result<Snapshot, StoreError> {
        content::check(&self.connection)?;
        let content = Content::read(&self.connection, &mut Err)?;
        let (snapshot, mut counters) = (content.snapshot, content.counters);
        let sum = counters.sum.get_or_insert(Sum::new(content.sum));
        if sum.content() != content.sum {
            return Err(StoreError::Corrupt(format!(
                "rows of its commit {} are missing or older",
                counters.revision
            )));
        }
        self.head.check(counters.revision, sum.digest())?;
        // Nothing of the log is needed any more.
        set_merge_at_end(&self.connection, true).map_err(|error| opening(&self.path, &error))?;
        self.counters = counters;
        self.stored = StoredTenants::new(&content.checksums);
        Ok(snapshot)
    }

    fn begin(&mut self, tenants: &BTreeMap<TenantId, Arc<Tenant>>) {
        self.stored.begin(tenants);
    }

    fn commit(&mut self, changes: &[Change]) -> Result<u64, StoreError> {
        if changes.is_empty() {
            return Ok(self.counters.revision);
        }
        let mut counters = self.counters;
        counters.revision += 1;
        let transaction = self.connection.transaction().map_err(|e| writing(&e))?;
        let sum = counters.sum.unwrap_or(Sum::new(0));
        let mut rows = Rows::begin(&transaction, sum, counters.revision);
        let mut written = Vec::new();
        for change in Change::coalesced(changes) {
            match change {
                Change::NextId(next) => counters.next_id = *next,
                Change::Tenant(tenant) => {
                    let sections = self.stored.sections(tenant, sections::MAX_SECTIONS);
                    written.push((tenant, rows.put_tenant(tenant, sections.as_ref())?));
                }
                other => rows.put(other)?,
            }
        }
        let sum = rows.end(counters.next_id);
        counters.sum = Some(sum);
        rows::put_counters(&transaction, &counters)?;
        transaction.commit().map_err(|error| writing(&error))?;
        // The commit is durable, and the head may not have it.
        let put = self.head.put(counters.revision, *sum.digest());
        put.map_err(|error| StoreError::Uncertain(error.to_string()))?;
        self.counters = counters;
        for (tenant, of) in written {
            match of {
                Some(of) => self.stored.put_whole(tenant, of, false),
                None => self.stored.put_sections(tenant),
            }
        }
        for change in changes {
            if let Change::Gone(id) = change {
                self.stored.remove(*id);
            }
        }
        Ok(counters.revision)
    }

    fn check_writable(&mut self) -> Result<bool, StoreError> {
        let transaction = self.connection.transaction().map_err(|e| writing(&e))?;
        rows::put_counters(&transaction, &self.counters)?;
        transaction.commit().map_err(|error| writing(&error))?;
        Ok(true)
    }
}

/// The database that was opened.
enum FileKind {
    New,
    Earlier,
    Current,
}

/// Takes the file's lock at the first access, until the file is closed.
fn lock(connection: &Connection) -> rusqlite::Result<()> {
    // Frames of the log behind a damaged one are kept for a salvage.
    set_merge_at_end(connection, false)?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")
}

/// Sets whether the log is merged into the file, and removed, when the file is closed.
fn set_merge_at_end(connection: &Connection, merge: bool) -> rusqlite::Result<()> {
    let option = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    connection.set_db_config(option, !merge).map(|_| ())
}

/// Checks that the file is a store of a version that this program knows.
fn identify(connection: &Connection, path: &Path) -> Result<FileKind, StoreError> {
    let pragma = |name| -> Result<i32, StoreError> {
        let value = connection.pragma_query_value(None, name, |row| row.get(0));
        value.map_err(|error| opening(path, &error))
    };
    let failed = |what: String| Err(StoreError::Failed(what));
    // First, for a file that cannot be written cannot be locked either.
    let read_only = connection.is_readonly(rusqlite::MAIN_DB);
    let read_only = read_only.map_err(|error| opening(path, &error))?;
    let path = path.display();
    if read_only {
        return failed(format!("{path} cannot be written"));
    }
    let (application, schema) = (pragma("application_id")?, pragma("user_version")?);
    if application == 0 && schema == 0 && pragma("schema_version")? == 0 {
        return Ok(FileKind::New);
    }
    if application != APPLICATION {
        return failed(format!("{path} is a database, but not one of tailbound's"));
    }
    match schema {
        SCHEMA | WITHOUT_SECTIONS | WITHOUT_TOKENS | WITHOUT_AUDIT => Ok(FileKind::Current),
        schema if EARLIER.contains(&schema) => Ok(FileKind::Earlier),
        schema => failed(format!(
            "{path} is of version {schema}, and this tailbound knows {SCHEMA}: use the one \
             that wrote it, or a newer one"
        )),
    }
}

/// Makes the head of a new database.
///
/// # Errors
/// There is a head with commits: the database was removed, or is another one's.
fn new_head(path: &Path) -> Result<Head, StoreError> {
    if let Ok(head) = Head::open(path)
        && let Some(last) = head.last()
    {
        let head = Head::path_of(path);
        return Err(StoreError::Corrupt(format!(
            "{} is empty, and {} has commit {}; to begin without its tenants, remove {1}",
            path.display(),
            head.display(),
            last.revision
        )));
    }
    Head::create(path, None).map_err(|error| with_head(path, &error))
}

/// Creates the tables of a new file, and makes commits durable. An unchanged file is not written, so
/// that it can be read from a full disk.
fn prepare(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let begin = rusqlite::TransactionBehavior::Exclusive;
    let transaction = connection.transaction_with_behavior(begin)?;
    if !transaction.table_exists(None, "document")? {
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
    }
    let schema: i32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if schema != SCHEMA {
        transaction.execute_batch(AUDIT_TABLE)?;
        transaction.execute_batch(SECTION_TABLE)?;
        transaction.pragma_update(None, "user_version", SCHEMA)?;
    }
    transaction.commit()
}

fn with_head(path: &Path, error: &std::io::Error) -> StoreError {
    if error.kind() == std::io::ErrorKind::StorageFull {
        return StoreError::NoSpace;
    }
    StoreError::Failed(format!("{}: {error}", Head::path_of(path).display()))
}

/// Makes the error for a failure before anything was written.
fn opening(path: &Path, error: &rusqlite::Error) -> StoreError {
    let path = path.display();
    StoreError::Failed(match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            format!("{path} is not a database of SQLite, or its beginning is damaged")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            format!("{path} is in use: a service is running with it")
        }
        Some(ErrorCode::ReadOnly) => format!("{path} cannot be written"),
        Some(ErrorCode::DiskFull) => return StoreError::NoSpace,
        Some(ErrorCode::DatabaseCorrupt) => return StoreError::Corrupt(error.to_string()),
        _ => format!("{path}: {error}"),
    })
}

fn reading(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Corrupt(error.to_string())
        }
        // A value of another type than the tables allow.
        None => StoreError::Corrupt(error.to_string()),
        _ => StoreError::Failed(error.to_string()),
    }
}

fn writing(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::NoSpace,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Corrupt(error.to_string())
        }
        // A log that could not be synced may be there after a crash all the
        // same.
        Some(ErrorCode::SystemIoFailure) => StoreError::Uncertain(error.to_string()),
        _ => StoreError::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
