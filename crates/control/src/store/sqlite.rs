//! The ledger in one `SQLite` file: every value as JSON with a checksum.
//!
//! The write-ahead log is synced with each commit, so a commit costs one `fsync` and survives a
//! crash of the host. The file is locked exclusively while it is open: two services cannot use it.

use super::{Store, StoreError};
use crate::backup;
use crate::ledger::{Change, KeyId, KeyRecord, Snapshot};
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, params};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tailbound_placement::TenantId;

/// The application id in the header of our files: `tbnd`.
const APPLICATION: i32 = 0x7462_6e64;

/// The version of the tables and of their content.
const SCHEMA: i32 = 2;

/// The previous version, without reports of hosts and without numbers of tenants' changes. It is
/// read unchanged, and has the current version afterwards.
const SCHEMA_BEFORE: i32 = 1;

/// Prefix of the names of documents with reports of hosts.
const SAID: &str = "said/";

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

/// A store in one file, for one service at a time.
#[derive(Debug)]
pub struct Sqlite {
    connection: Connection,
    path: PathBuf,
    counters: Counters,
}

/// The document that changes with every commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counters {
    revision: u64,
    next_id: u64,
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
        let connection = Connection::open_with_flags(path, flags).map_err(|error| at(&error))?;
        let mut store = Self {
            connection,
            path: path.to_owned(),
            counters: Counters::default(),
        };
        // Nothing is written before it is known whose file this is.
        store.lock().map_err(|error| at(&error))?;
        store.identify()?;
        store.prepare().map_err(|error| at(&error))?;
        Ok(store)
    }

    /// Takes the file's lock at the first access, until the file is closed.
    fn lock(&self) -> rusqlite::Result<()> {
        self.connection.busy_timeout(Duration::ZERO)?;
        self.connection
            .pragma_update(None, "locking_mode", "EXCLUSIVE")
    }

    /// Checks that the file is a store of a version that this program knows.
    fn identify(&self) -> Result<(), StoreError> {
        let pragma = |name| -> Result<i32, StoreError> {
            let value = self
                .connection
                .pragma_query_value(None, name, |row| row.get(0));
            value.map_err(|error| opening(&self.path, &error))
        };
        let path = self.path.display();
        let failed = |what: String| Err(StoreError::Failed(what));
        // First, for a file that cannot be written cannot be locked either.
        let read_only = self.connection.is_readonly(rusqlite::MAIN_DB);
        if read_only.map_err(|error| opening(&self.path, &error))? {
            return failed(format!("{path} cannot be written"));
        }
        let (application, schema) = (pragma("application_id")?, pragma("user_version")?);
        if application == 0 && schema == 0 && pragma("schema_version")? == 0 {
            // It is new and empty.
        } else if application != APPLICATION {
            return failed(format!("{path} is a database, but not one of tailbound's"));
        } else if schema != SCHEMA && schema != SCHEMA_BEFORE {
            return failed(format!(
                "{path} is of version {schema}, and this tailbound knows {SCHEMA}: use the one \
                 that wrote it, or a newer one"
            ));
        }
        Ok(())
    }

    /// Creates the tables of a new file, and makes commits durable.
    fn prepare(&mut self) -> rusqlite::Result<()> {
        self.connection.pragma_update(None, "journal_mode", "WAL")?;
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        let begin = rusqlite::TransactionBehavior::Exclusive;
        let transaction = self.connection.transaction_with_behavior(begin)?;
        if !transaction.table_exists(None, "document")? {
            transaction.execute_batch(TABLES)?;
            transaction.pragma_update(None, "application_id", APPLICATION)?;
        }
        transaction.pragma_update(None, "user_version", SCHEMA)?;
        transaction.commit()
    }

    /// Checks the file's structure. Its content is checked when it is read.
    fn check(&self) -> Result<(), StoreError> {
        let checked = self
            .connection
            .pragma_query_value(None, "quick_check", |row| row.get::<_, String>(0));
        match checked.map_err(|error| reading(&error))?.as_str() {
            "ok" => Ok(()),
            // Several lines, of which the first one names the place.
            wrong => Err(StoreError::Corrupt(
                wrong.lines().next().unwrap_or_default().to_owned(),
            )),
        }
    }

    /// Calls `each` with every row of a query.
    fn rows<T>(
        &self,
        query: &str,
        mut each: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<Result<T, StoreError>>,
    ) -> Result<Vec<T>, StoreError> {
        let mut statement = self.connection.prepare(query).map_err(|e| reading(&e))?;
        let rows = statement.query_map([], |row| each(row));
        let mut all = Vec::new();
        for row in rows.map_err(|error| reading(&error))? {
            all.push(row.map_err(|error| reading(&error))??);
        }
        Ok(all)
    }
}

impl Store for Sqlite {
    fn load(&mut self) -> Result<Snapshot, StoreError> {
        self.check()?;
        let mut snapshot = Snapshot::default();
        let mut counters = Counters::default();
        // All of them: one whose name was damaged must not be missed.
        self.rows("SELECT name, value, checksum FROM document", |row| {
            let (name, value) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
            let checksum = row.get(2)?;
            Ok(match name {
                "counters" => parse("", name, value, checksum).map(|found| counters = found),
                "topology" => {
                    parse("", name, value, checksum).map(|found| snapshot.topology = Some(found))
                }
                "hosts" => parse("", name, value, checksum).map(|found| snapshot.hosts = found),
                other => match other.strip_prefix(SAID) {
                    Some(host) => parse("", name, value, checksum).map(|found| {
                        snapshot.said.insert(host.to_owned(), found);
                    }),
                    None => Err(StoreError::Corrupt(format!(
                        "there is a document {other:?}"
                    ))),
                },
            })
        })?;
        let tenants = self.rows(
            "SELECT id, value, checksum FROM tenant ORDER BY id",
            |row| {
                let id: i64 = row.get(0)?;
                let value = row.get_ref(1)?.as_str()?;
                let tenant = parse("tenant", &id.to_string(), value, row.get(2)?);
                Ok(tenant.map(|tenant| (TenantId(id.cast_unsigned()), tenant)))
            },
        )?;
        let keys = self.rows("SELECT owner, name, value, checksum FROM key", |row| {
            let (owner, name) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
            let record = parse(owner, name, row.get_ref(2)?.as_str()?, row.get(3)?);
            let id = KeyId {
                owner: (!owner.is_empty()).then(|| owner.to_owned()),
                key: name.to_owned(),
            };
            Ok(record.map(|record: Arc<KeyRecord>| (id, record)))
        })?;
        snapshot.revision = counters.revision;
        snapshot.next_id = counters.next_id;
        snapshot.tenants = tenants.into_iter().collect();
        snapshot.keys = keys.into_iter().collect();
        self.counters = counters;
        Ok(snapshot)
    }

    fn commit(&mut self, changes: &[Change]) -> Result<u64, StoreError> {
        if changes.is_empty() {
            return Ok(self.counters.revision);
        }
        let mut counters = self.counters;
        counters.revision += 1;
        let transaction = self.connection.transaction().map_err(|e| writing(&e))?;
        for change in changes {
            match change {
                Change::NextId(next) => counters.next_id = *next,
                other => put(&transaction, other)?,
            }
        }
        put_document(&transaction, "counters", &counters)?;
        transaction.commit().map_err(|error| writing(&error))?;
        self.counters = counters;
        Ok(counters.revision)
    }
}

fn put(transaction: &Transaction<'_>, change: &Change) -> Result<(), StoreError> {
    let run = |sql: &str, values: &[&dyn rusqlite::ToSql]| {
        let mut statement = transaction.prepare_cached(sql)?;
        statement.execute(values)
    };
    let done = match change {
        Change::Tenant(tenant) => {
            let id = tenant.id.0.cast_signed();
            let (value, checksum) = text("tenant", &id.to_string(), tenant)?;
            run(
                "INSERT OR REPLACE INTO tenant VALUES (?, ?, ?)",
                params![id, value, checksum],
            )
        }
        Change::Gone(id) => run(
            "DELETE FROM tenant WHERE id = ?",
            params![id.0.cast_signed()],
        ),
        Change::Key(key, record) => {
            let owner = key.owner.as_deref().unwrap_or_default();
            let (value, checksum) = text(owner, &key.key, record)?;
            run(
                "INSERT OR REPLACE INTO key VALUES (?, ?, ?, ?)",
                params![owner, key.key, value, checksum],
            )
        }
        Change::KeyGone(key) => run(
            "DELETE FROM key WHERE owner = ? AND name = ?",
            params![key.owner.as_deref().unwrap_or_default(), key.key],
        ),
        Change::Hosts(hosts) => return put_document(transaction, "hosts", hosts),
        Change::Said(host, said) => {
            return put_document(transaction, &format!("{SAID}{host}"), said);
        }
        Change::SaidGone(host) => run(
            "DELETE FROM document WHERE name = ?",
            params![format!("{SAID}{host}")],
        ),
        Change::Topology(topology) => return put_document(transaction, "topology", topology),
        // With the revision, in one document.
        Change::NextId(_) => return Ok(()),
    };
    done.map(|_| ()).map_err(|error| writing(&error))
}

fn put_document(
    transaction: &Transaction<'_>,
    name: &str,
    value: &impl Serialize,
) -> Result<(), StoreError> {
    let (value, checksum) = text("", name, value)?;
    transaction
        .prepare_cached("INSERT OR REPLACE INTO document VALUES (?, ?, ?)")
        .and_then(|mut statement| statement.execute(params![name, value, checksum]))
        .map(|_| ())
        .map_err(|error| writing(&error))
}

/// Returns a value as it is kept, and its checksum.
fn text(kind: &str, name: &str, value: &impl Serialize) -> Result<(String, i64), StoreError> {
    let text = serde_json::to_string(value);
    let text = text.map_err(|error| StoreError::Failed(error.to_string()))?;
    let checksum = checksum(kind, name, &text);
    Ok((text, checksum))
}

fn parse<T: DeserializeOwned + Serialize>(
    kind: &str,
    name: &str,
    value: &str,
    expected: i64,
) -> Result<T, StoreError> {
    let corrupt = |why: &str| StoreError::Corrupt(format!("{kind} {name:?}: {why}"));
    if checksum(kind, name, value) != expected {
        return Err(corrupt("its checksum is wrong"));
    }
    // What it is not, is told; that it is damaged is not: its checksum is right.
    crate::kept::read(value.as_bytes())
        .map_err(|why| StoreError::Failed(format!("{kind} {name:?}: {why}")))
}

/// Returns the first 64 bits of a SHA-256 over a value and its name.
fn checksum(kind: &str, name: &str, value: &str) -> i64 {
    let mut hash = Sha256::new();
    for part in [kind, name, value] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let mut first = [0; 8];
    first.copy_from_slice(&hash.finalize()[..8]);
    i64::from_le_bytes(first)
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
