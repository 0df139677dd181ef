//! Rows of the tables, with their checksums and the sums over them.

use super::head::Digest;
use super::{SAID, TOKEN, reading, writing};
use crate::ledger::Change;
use crate::store::StoreError;
use crate::store::sections::Sections;
use rusqlite::{OptionalExtension, ToSql, Transaction, params};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tailbound_api::Tenant;
use tailbound_placement::TenantId;

/// The name of the document with the counters, which has the sums of all other rows.
pub(super) const COUNTERS: &str = "counters";

/// Sums over a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sum {
    /// Sum of the checksums of all rows but the counters', modulo 2^64.
    content: u64,
    /// Digest of the last commit and of the digest before it.
    digest: Digest,
}

impl Sum {
    /// The sum of a store that has no digest yet.
    pub(super) const fn new(content: u64) -> Self {
        Self {
            content,
            digest: [0; 32],
        }
    }

    pub(super) const fn content(&self) -> u64 {
        self.content
    }

    pub(super) const fn digest(&self) -> &Digest {
        &self.digest
    }
}

/// Adds a row's checksum to a sum.
pub(super) const fn add(content: &mut u64, checksum: i64) {
    *content = content.wrapping_add(checksum.cast_unsigned());
}

/// The rows of one commit.
pub(super) struct Rows<'t> {
    transaction: &'t Transaction<'t>,
    content: u64,
    digest: Sha256,
}

/// A row by its table and key.
struct Row<'t> {
    /// Reads the checksum of the row.
    find: &'static str,
    replace: &'static str,
    delete: &'static str,
    key: &'t [&'t dyn ToSql],
    kind: &'t str,
    name: &'t str,
}

impl<'t> Rows<'t> {
    pub(super) fn begin(transaction: &'t Transaction<'t>, before: Sum, revision: u64) -> Self {
        let mut digest = Sha256::new();
        digest.update(before.digest);
        digest.update(revision.to_le_bytes());
        Self {
            transaction,
            content: before.content,
            digest,
        }
    }

    /// Returns the sums after the commit.
    pub(super) fn end(mut self, next_id: u64) -> Sum {
        self.digest.update(next_id.to_le_bytes());
        Sum {
            content: self.content,
            digest: self.digest.finalize().into(),
        }
    }

    /// Writes one change.
    pub(super) fn put(&mut self, change: &Change) -> Result<(), StoreError> {
        match change {
            Change::Tenant(tenant) => self.put_tenant(tenant, None).map(drop),
            Change::Gone(id) => {
                self.delete_sections(*id)?;
                let id = id.0.cast_signed();
                self.delete(&tenant_row(&[&id], &id.to_string()))
            }
            Change::Audit(first, block) => {
                let id = first.cast_signed();
                self.replace(&audit_row(&[&id], &id.to_string()), block)
            }
            Change::AuditGone(first) => {
                let id = first.cast_signed();
                self.delete(&audit_row(&[&id], &id.to_string()))
            }
            Change::Key(key, record) => {
                let owner = key.owner.as_deref().unwrap_or_default();
                self.replace(&key_row(&[&owner, &key.key], owner, &key.key), record)
            }
            Change::KeyGone(key) => {
                let owner = key.owner.as_deref().unwrap_or_default();
                self.delete(&key_row(&[&owner, &key.key], owner, &key.key))
            }
            Change::Hosts(hosts) => self.replace(&document(&[&"hosts"], "hosts"), hosts),
            Change::Topology(topology) => {
                self.replace(&document(&[&"topology"], "topology"), topology)
            }
            Change::Said(host, last_report) => {
                let name = format!("{SAID}{host}");
                self.replace(&document(&[&name], &name), last_report)
            }
            Change::SaidGone(host) => {
                let name = format!("{SAID}{host}");
                self.delete(&document(&[&name], &name))
            }
            Change::Token(token) => {
                let name = format!("{TOKEN}{}", token.name);
                self.replace(&document(&[&name], &name), token)
            }
            Change::TokenGone(token) => {
                let name = format!("{TOKEN}{token}");
                self.delete(&document(&[&name], &name))
            }
            // With the revision, in one document.
            Change::NextId(_) => Ok(()),
        }
    }

    /// Writes these sections of a tenant; without sections the whole tenant, whose checksum is returned.
    pub(super) fn put_tenant(
        &mut self,
        tenant: &Tenant,
        sections: Option<&Sections>,
    ) -> Result<Option<u64>, StoreError> {
        let id = tenant.id.0.cast_signed();
        let Some(sections) = sections else {
            self.delete_sections(tenant.id)?;
            let checksum = self.write(&tenant_row(&[&id], &id.to_string()), tenant)?;
            return Ok(Some(checksum.cast_unsigned()));
        };
        for (number, section) in sections {
            let name = section_name(id, *number);
            self.replace(&section_row(&[&id, number], &name), section)?;
        }
        Ok(None)
    }

    /// Deletes the sections that a tenant has.
    fn delete_sections(&mut self, id: TenantId) -> Result<(), StoreError> {
        let id = id.0.cast_signed();
        let query = "SELECT number FROM section WHERE tenant = ?";
        let statement = self.transaction.prepare_cached(query);
        let numbers = statement.and_then(|mut statement| {
            let rows = statement.query_map([id], |row| row.get(0))?;
            rows.collect::<Result<Vec<u32>, _>>()
        });
        for number in numbers.map_err(|error| reading(&error))? {
            self.delete(&section_row(&[&id, &number], &section_name(id, number)))?;
        }
        Ok(())
    }

    fn replace(&mut self, row: &Row<'_>, value: &impl Serialize) -> Result<(), StoreError> {
        self.write(row, value).map(|_| ())
    }

    /// Writes a row, and returns its checksum.
    fn write(&mut self, row: &Row<'_>, value: &impl Serialize) -> Result<i64, StoreError> {
        self.forget(row)?;
        let (value, checksum) = text(row.kind, row.name, value)?;
        let mut values = row.key.to_vec();
        values.extend(params![value, checksum]);
        self.run(row.replace, &values)?;
        add(&mut self.content, checksum);
        self.note(row, 1, checksum);
        Ok(checksum)
    }

    fn delete(&mut self, row: &Row<'_>) -> Result<(), StoreError> {
        self.forget(row)?;
        self.run(row.delete, row.key)?;
        self.note(row, 0, 0);
        Ok(())
    }

    /// Takes the row that is there out of the sum.
    fn forget(&mut self, row: &Row<'_>) -> Result<(), StoreError> {
        let statement = self.transaction.prepare_cached(row.find);
        let old: Option<i64> = statement
            .and_then(|mut it| it.query_row(row.key, |row| row.get(0)).optional())
            .map_err(|error| reading(&error))?;
        if let Some(old) = old {
            self.content = self.content.wrapping_sub(old.cast_unsigned());
        }
        Ok(())
    }

    fn run(&self, sql: &str, values: &[&dyn ToSql]) -> Result<(), StoreError> {
        let statement = self.transaction.prepare_cached(sql);
        statement
            .and_then(|mut statement| statement.execute(values))
            .map(|_| ())
            .map_err(|error| writing(&error))
    }

    /// Adds a change to the digest.
    fn note(&mut self, row: &Row<'_>, is_there: u8, checksum: i64) {
        self.digest.update([is_there]);
        for part in [row.kind, row.name] {
            self.digest.update((part.len() as u64).to_le_bytes());
            self.digest.update(part);
        }
        self.digest.update(checksum.to_le_bytes());
    }
}

fn tenant_row<'t>(key: &'t [&'t dyn ToSql], name: &'t str) -> Row<'t> {
    Row {
        find: "SELECT checksum FROM tenant WHERE id = ?",
        replace: "INSERT OR REPLACE INTO tenant VALUES (?, ?, ?)",
        delete: "DELETE FROM tenant WHERE id = ?",
        key,
        kind: "tenant",
        name,
    }
}

fn section_row<'t>(key: &'t [&'t dyn ToSql], name: &'t str) -> Row<'t> {
    Row {
        find: "SELECT checksum FROM section WHERE tenant = ? AND number = ?",
        replace: "INSERT OR REPLACE INTO section VALUES (?, ?, ?, ?)",
        delete: "DELETE FROM section WHERE tenant = ? AND number = ?",
        key,
        kind: "section",
        name,
    }
}

/// Returns the name of a section of a tenant in checksums and errors.
pub(super) fn section_name(tenant: i64, number: u32) -> String {
    format!("{tenant}/{number}")
}

fn audit_row<'t>(key: &'t [&'t dyn ToSql], name: &'t str) -> Row<'t> {
    Row {
        find: "SELECT checksum FROM audit WHERE id = ?",
        replace: "INSERT OR REPLACE INTO audit VALUES (?, ?, ?)",
        delete: "DELETE FROM audit WHERE id = ?",
        key,
        kind: "audit",
        name,
    }
}

fn key_row<'t>(key: &'t [&'t dyn ToSql], owner: &'t str, name: &'t str) -> Row<'t> {
    Row {
        find: "SELECT checksum FROM key WHERE owner = ? AND name = ?",
        replace: "INSERT OR REPLACE INTO key VALUES (?, ?, ?, ?)",
        delete: "DELETE FROM key WHERE owner = ? AND name = ?",
        key,
        kind: owner,
        name,
    }
}

fn document<'t>(key: &'t [&'t dyn ToSql], name: &'t str) -> Row<'t> {
    Row {
        find: "SELECT checksum FROM document WHERE name = ?",
        replace: "INSERT OR REPLACE INTO document VALUES (?, ?, ?)",
        delete: "DELETE FROM document WHERE name = ?",
        key,
        kind: "",
        name,
    }
}

/// Writes the counters, which no sum covers but their own checksum.
pub(super) fn put_counters(
    transaction: &Transaction<'_>,
    counters: &impl Serialize,
) -> Result<(), StoreError> {
    let (value, checksum) = text("", COUNTERS, counters)?;
    transaction
        .prepare_cached(document(&[], COUNTERS).replace)
        .and_then(|mut statement| statement.execute(params![COUNTERS, value, checksum]))
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

/// Reads a value, whose checksum must be this.
pub(super) fn parse<T: DeserializeOwned + Serialize>(
    kind: &str,
    name: &str,
    value: &str,
    expected: i64,
) -> Result<T, StoreError> {
    let corrupt = |why: &str| StoreError::Corrupt(format!("{kind} {name:?}: {why}"));
    if checksum(kind, name, value) != expected {
        return Err(corrupt("its checksum is wrong"));
    }
    // The checksum is right, so this value is of another version, and not damaged.
    crate::kept::read(value.as_bytes())
        .map_err(|why| StoreError::Failed(format!("{kind} {name:?}: {why}")))
}

/// Returns the first 64 bits of a SHA-256 over a value and its name.
pub(super) fn checksum(kind: &str, name: &str, value: &str) -> i64 {
    let mut hash = Sha256::new();
    for part in [kind, name, value] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let mut first = [0; 8];
    first.copy_from_slice(&hash.finalize()[..8]);
    i64::from_le_bytes(first)
}
