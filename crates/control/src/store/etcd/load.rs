//! Reads all of a store at one revision.

use super::keys::{self, Keys};
use super::layout::Layout;
use super::link::Link;
use super::messages::{KeyValue, RangeRequest};
use super::value::{self, Pointer};
use crate::ledger::Snapshot;
use crate::store::StoreError;
use crate::store::sections::{self, Sections};
use std::collections::BTreeMap;
use tailbound_placement::TenantId;

/// The number of documents in one answer: with [`value::INLINE`] each, 64 MiB at most.
const PAGE: i64 = 2000;

/// A store at one revision.
#[derive(Debug)]
pub struct StoreContent {
    /// The content of the store.
    pub snapshot: Snapshot,
    /// The layout of its documents.
    pub layout: Layout,
    /// The leader's key, if there is a leader.
    pub leader: Option<KeyValue>,
    /// The revision of etcd at which all of this was read. Everything that was committed before the
    /// call is in it.
    pub revision: i64,
}

impl StoreContent {
    /// Returns the revision as those of ledgers, which are not negative either.
    pub fn revision(&self) -> u64 {
        u64::try_from(self.revision).unwrap_or(0)
    }
}

/// Reads a store.
///
/// # Errors
/// [`StoreError::Corrupt`] if a document is damaged; [`StoreError::Failed`] if etcd does not
/// answer, or compacted the revision away meanwhile.
pub async fn load(link: &mut Link, keys: &Keys) -> Result<StoreContent, StoreError> {
    // A read without a revision goes through the majority, so this is the
    // newest one, and the pages below are read at it.
    let leader = RangeRequest::one(keys.leader());
    let mut first = link
        .call(async |client| client.range(leader).await)
        .await
        .map_err(failed)?;
    let revision = first.header.unwrap_or_default().revision;
    let mut loaded = StoreContent {
        snapshot: Snapshot {
            revision: u64::try_from(revision).unwrap_or(0),
            ..Snapshot::default()
        },
        layout: Layout::default(),
        leader: first.kvs.pop(),
        revision,
    };
    let mut sections = BTreeMap::new();
    for (from, end) in keys.ranges() {
        load_range(link, keys, from, &end, &mut loaded, &mut sections).await?;
    }
    join(&mut loaded, sections)?;
    Ok(loaded)
}

/// Reads the documents of a range of keys at the revision of what is loaded.
async fn load_range(
    link: &mut Link,
    keys: &Keys,
    from: String,
    end: &str,
    loaded: &mut StoreContent,
    sections: &mut BTreeMap<TenantId, Sections>,
) -> Result<(), StoreError> {
    let revision = loaded.revision;
    let mut from = from.into_bytes();
    loop {
        let request = RangeRequest {
            key: from.clone(),
            range_end: end.into(),
            limit: PAGE,
            revision,
            keys_only: false,
        };
        let page = link
            .call(async |client| client.range(request).await)
            .await
            .map_err(failed)?;
        for kv in page.kvs {
            let Some(name) = keys.document(&kv.key) else {
                return Err(corrupt(&kv, "its name is not text"));
            };
            let document = document(link, keys, &kv.value, revision).await?;
            loaded.layout.put(name, &kv.value, &document);
            if let Some((id, number)) = keys::section_of(name) {
                let section = keys::read_section(&document).map_err(|why| corrupt(&kv, &why))?;
                sections.entry(id).or_default().insert(number, section);
            } else {
                let change = keys::change(name, Some(&document));
                let change = change.map_err(|why| corrupt(&kv, &why))?;
                loaded.snapshot.apply(&[change]);
            }
            from = kv.key;
            from.push(0);
        }
        if !page.more {
            return Ok(());
        }
    }
}

/// Puts the sections into the tenants that were read. Sections of tenants that are gone are left over.
fn join(loaded: &mut StoreContent, all: BTreeMap<TenantId, Sections>) -> Result<(), StoreError> {
    for (id, sections) in all {
        let tenant = loaded.snapshot.tenants.get_mut(&id);
        if let (Some(tenant), Some(of)) = (tenant, loaded.layout.digest(id)) {
            let joined = sections::join(tenant, of, sections);
            joined.map_err(|why| StoreError::Corrupt(format!("tenant {}: {why}", id.0)))?;
        }
    }
    Ok(())
}

/// Returns the document of a value, or of the parts that it points to, at a revision.
///
/// # Errors
/// As [`load`].
pub async fn document(
    link: &mut Link,
    keys: &Keys,
    value: &[u8],
    revision: i64,
) -> Result<Vec<u8>, StoreError> {
    let Some(pointer) = Pointer::read(value) else {
        return Ok(value.to_vec());
    };
    let mut parts = Vec::new();
    for number in 0..pointer.count {
        let request = RangeRequest {
            revision,
            ..RangeRequest::one(keys.part(&pointer, number))
        };
        let mut part = link
            .call(async |client| client.range(request).await)
            .await
            .map_err(failed)?;
        let part = part
            .kvs
            .pop()
            .ok_or_else(|| StoreError::Corrupt(format!("{pointer}: part {number} is missing")))?;
        parts.push(part.value);
    }
    value::join(&parts).map_err(|error| StoreError::Corrupt(format!("{pointer}: {error}")))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: super::LinkError) -> StoreError {
    StoreError::Failed(error.to_string())
}

fn corrupt(kv: &KeyValue, why: &str) -> StoreError {
    let key = String::from_utf8_lossy(&kv.key);
    StoreError::Corrupt(format!("{key}: {why}"))
}
