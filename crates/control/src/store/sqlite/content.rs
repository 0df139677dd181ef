//! Reading the tables.

use super::head::Head;
use super::rows::{self, COUNTERS, parse, section_name};
use super::{Counters, SAID, TOKEN, reading};
use crate::ledger::{KeyId, KeyRecord, Snapshot, TokenRecord, trail};
use crate::store::StoreError;
use crate::store::sections::{self, Section, Sections};
use rusqlite::{Connection, Row};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tailbound_placement::TenantId;

/// Everything that a file has.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) snapshot: Snapshot,
    pub(super) counters: Counters,
    /// Sum of the checksums of all rows but the counters'.
    pub(super) sum: u64,
    /// The checksums of the tenants' own rows.
    pub(super) checksums: HashMap<TenantId, u64>,
    sections: BTreeMap<TenantId, Sections>,
    /// Tenants of which a section cannot be read.
    incomplete: BTreeSet<TenantId>,
}

/// Decides whether reading goes on without something that cannot be read.
type OnError<'e> = &'e mut dyn FnMut(StoreError) -> Result<(), StoreError>;

impl Content {
    /// Reads all rows.
    pub(super) fn read(connection: &Connection, on_error: OnError<'_>) -> Result<Self, StoreError> {
        let mut content = Self::default();
        // All of them: one whose name was damaged must not be missed.
        let documents = "SELECT name, value, checksum FROM document";
        each(connection, documents, on_error, |row| content.document(row))?;
        let tenants = "SELECT id, value, checksum FROM tenant ORDER BY id";
        each(connection, tenants, on_error, |row| content.tenant(row))?;
        let keys = "SELECT owner, name, value, checksum FROM key";
        each(connection, keys, on_error, |row| content.key(row))?;
        // A salvage may read a file of an earlier version.
        if connection.table_exists(None, "audit").unwrap_or(true) {
            let blocks = "SELECT id, value, checksum FROM audit ORDER BY id";
            each(connection, blocks, on_error, |row| content.block(row))?;
        }
        if connection.table_exists(None, "section").unwrap_or(true) {
            let sections =
                "SELECT tenant, number, value, checksum FROM section ORDER BY tenant, number";
            each(connection, sections, on_error, |row| content.section(row))?;
        }
        content.join(on_error)?;
        content.snapshot.revision = content.counters.revision;
        content.snapshot.next_id = content.counters.next_id;
        Ok(content)
    }

    fn document(&mut self, row: &Row<'_>) -> Result<(), StoreError> {
        let (name, value) = (text(row, 0)?, text(row, 1)?);
        let checksum = number(row, 2)?;
        if name == COUNTERS {
            self.counters = parse("", name, value, checksum)?;
            return Ok(());
        }
        rows::add(&mut self.sum, checksum);
        match name {
            "topology" => self.snapshot.topology = Some(parse("", name, value, checksum)?),
            "hosts" => self.snapshot.hosts = parse("", name, value, checksum)?,
            other if other.starts_with(TOKEN) => {
                let token: Arc<TokenRecord> = parse("", name, value, checksum)?;
                self.snapshot.tokens.insert(token.name.clone(), token);
            }
            other => {
                let Some(host) = other.strip_prefix(SAID) else {
                    let why = format!("there is a document {other:?}");
                    return Err(StoreError::Corrupt(why));
                };
                let last_report = parse("", name, value, checksum)?;
                self.snapshot.said.insert(host.to_owned(), last_report);
            }
        }
        Ok(())
    }

    fn tenant(&mut self, row: &Row<'_>) -> Result<(), StoreError> {
        let (id, checksum) = (number(row, 0)?, number(row, 2)?);
        rows::add(&mut self.sum, checksum);
        let tenant = parse("tenant", &id.to_string(), text(row, 1)?, checksum)?;
        let id = TenantId(id.cast_unsigned());
        self.checksums.insert(id, checksum.cast_unsigned());
        self.snapshot.tenants.insert(id, tenant);
        Ok(())
    }

    fn section(&mut self, row: &Row<'_>) -> Result<(), StoreError> {
        let (id, checksum) = (number(row, 0)?, number(row, 3)?);
        rows::add(&mut self.sum, checksum);
        let tenant = TenantId(id.cast_unsigned());
        // Until it is read.
        let is_first = self.incomplete.insert(tenant);
        let number = row.get(1).map_err(|error| reading(&error))?;
        let section: Section = parse(
            "section",
            &section_name(id, number),
            text(row, 2)?,
            checksum,
        )?;
        self.sections
            .entry(tenant)
            .or_default()
            .insert(number, section);
        if is_first {
            self.incomplete.remove(&tenant);
        }
        Ok(())
    }

    /// Puts the sections into their tenants. Tenants of which a section is lost are left out: their own
    /// rows may be older.
    fn join(&mut self, on_error: OnError<'_>) -> Result<(), StoreError> {
        let tenants = &mut self.snapshot.tenants;
        for id in &self.incomplete {
            tenants.remove(id);
        }
        for (id, sections) in std::mem::take(&mut self.sections) {
            let (Some(tenant), Some(of)) = (tenants.get_mut(&id), self.checksums.get(&id)) else {
                continue;
            };
            if let Err(why) = sections::join(tenant, *of, sections) {
                tenants.remove(&id);
                on_error(StoreError::Corrupt(format!("tenant {}: {why}", id.0)))?;
            }
        }
        Ok(())
    }

    fn block(&mut self, row: &Row<'_>) -> Result<(), StoreError> {
        let (id, checksum) = (number(row, 0)?, number(row, 2)?);
        rows::add(&mut self.sum, checksum);
        let block = parse("audit", &id.to_string(), text(row, 1)?, checksum)?;
        self.snapshot.audit.insert(id.cast_unsigned(), block);
        Ok(())
    }

    fn key(&mut self, row: &Row<'_>) -> Result<(), StoreError> {
        let (owner, name, checksum) = (text(row, 0)?, text(row, 1)?, number(row, 3)?);
        rows::add(&mut self.sum, checksum);
        let record: Arc<KeyRecord> = parse(owner, name, text(row, 2)?, checksum)?;
        let id = KeyId {
            owner: (!owner.is_empty()).then(|| owner.to_owned()),
            key: name.to_owned(),
        };
        self.snapshot.keys.insert(id, record);
        Ok(())
    }
}

/// Calls `take` with every row of a query.
fn each(
    connection: &Connection,
    query: &str,
    on_error: OnError<'_>,
    mut take: impl FnMut(&Row<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut statement = match connection.prepare(query) {
        Ok(statement) => statement,
        Err(error) => return on_error(reading(&error)),
    };
    let mut rows = statement.raw_query();
    loop {
        match rows.next() {
            Ok(Some(row)) => take(row).or_else(&mut *on_error)?,
            Ok(None) => return Ok(()),
            // A page: rows behind it cannot be reached.
            Err(error) => return on_error(reading(&error)),
        }
    }
}

fn text<'r>(row: &'r Row<'_>, column: usize) -> Result<&'r str, StoreError> {
    let value = row.get_ref(column).map_err(|error| reading(&error))?;
    let wrong = |_| StoreError::Corrupt(format!("column {column} of a row is no text"));
    value.as_str().map_err(wrong)
}

fn number(row: &Row<'_>, column: usize) -> Result<i64, StoreError> {
    row.get(column).map_err(|error| reading(&error))
}

/// Checks the file's structure. Its content is checked when it is read.
pub(super) fn check(connection: &Connection) -> Result<(), StoreError> {
    let checked = connection.pragma_query_value(None, "quick_check", |row| row.get::<_, String>(0));
    match checked.map_err(|error| reading(&error))?.as_str() {
        "ok" => Ok(()),
        // Several lines, of which the first one names the place.
        wrong => Err(StoreError::Corrupt(
            wrong.lines().next().unwrap_or_default().to_owned(),
        )),
    }
}

/// Returns the counters of a store; those of a new one if it has none.
pub(super) fn counters(connection: &Connection) -> Result<Counters, StoreError> {
    let mut counters = Counters::default();
    let query = "SELECT value, checksum FROM document WHERE name = 'counters'";
    each(connection, query, &mut Err, |row| {
        counters = parse("", COUNTERS, text(row, 0)?, number(row, 1)?)?;
        Ok(())
    })?;
    Ok(counters)
}

/// Returns what can be read, and what is lost.
pub(super) fn salvage(
    connection: &Connection,
    head: Option<&Head>,
) -> Result<(Snapshot, Vec<String>), StoreError> {
    let mut lost = Vec::new();
    let mut note = |error: StoreError| {
        lost.push(match error {
            StoreError::Corrupt(why) => why,
            other => other.to_string(),
        });
        Ok(())
    };
    check(connection).or_else(&mut note)?;
    let mut content = Content::read(connection, &mut note)?;
    if let Some(sum) = content.counters.sum
        && sum.content() != content.sum
    {
        note(StoreError::Corrupt(format!(
            "rows of commit {} are missing or older; it is not known which",
            content.counters.revision
        )))?;
    }
    let digest = content.counters.sum.map_or([0; 32], |sum| *sum.digest());
    match head {
        Some(head) => head
            .check(content.counters.revision, &digest)
            .or_else(&mut note)?,
        None => note(StoreError::Corrupt("its head cannot be read".to_owned()))?,
    }
    // The audit continues after the last entry that is lost, so that an import has a whole chain.
    while let Err((number, problem)) = trail::verify(&content.snapshot.audit) {
        note(StoreError::Corrupt(format!(
            "the audit's entries up to {number}: {problem}"
        )))?;
        content.snapshot.audit = content.snapshot.audit.split_off(&(number + 1));
    }
    let snapshot = &mut content.snapshot;
    if snapshot.topology.is_none() {
        return Err(StoreError::Corrupt(
            "its topology cannot be read".to_owned(),
        ));
    }
    // An import skips the numbers of lost commits and tenants.
    let newest = head.and_then(Head::last).map_or(0, |mark| mark.revision);
    snapshot.revision = snapshot.revision.max(newest);
    let highest = snapshot.tenants.keys().next_back().map_or(0, |id| id.0 + 1);
    snapshot.next_id = snapshot.next_id.max(highest);
    Ok((content.snapshot, lost))
}
