//! The audit of changes: entries in a chain, which are kept in the transactions of their changes.
//!
//! The entries of one transaction are a block, which is one value of the store. Each entry has a
//! digest of itself and of the entry before, so a changed or missing entry is detected
//! ([`verify`]). The newest [`MAX_ENTRIES`] are kept; the chain goes on.

use super::Ledger;
use super::change::{AuditBlock, Change};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use tailbound_api::AuditEntry;

/// The number of entries that are kept. A transaction forgets few old blocks, so there may be more
/// for some time.
pub const MAX_ENTRIES: usize = 50_000;
/// A block ends with the entry that reaches this size, in bytes of JSON.
const BLOCK_BYTES: usize = 16 << 10;
/// Limit on the blocks that one transaction forgets: etcd accepts 128 operations.
const FORGET: usize = 6;

/// The kept entries.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trail {
    /// Blocks by the number of their first entry.
    blocks: BTreeMap<u64, Arc<AuditBlock>>,
    /// The number of entries.
    len: usize,
}

impl Trail {
    /// Returns the trail of kept blocks.
    pub(super) fn of(blocks: BTreeMap<u64, Arc<AuditBlock>>) -> Self {
        let len = blocks.values().map(|block| block.entries.len()).sum();
        Self { blocks, len }
    }

    pub(super) const fn blocks(&self) -> &BTreeMap<u64, Arc<AuditBlock>> {
        &self.blocks
    }

    /// Returns the block that begins with this entry.
    pub(crate) fn block(&self, first: u64) -> Option<&Arc<AuditBlock>> {
        self.blocks.get(&first)
    }

    pub(super) fn put(&mut self, first: u64, block: Arc<AuditBlock>) {
        self.len += block.entries.len();
        if let Some(old) = self.blocks.insert(first, block) {
            self.len -= old.entries.len();
        }
    }

    pub(super) fn remove(&mut self, first: u64) {
        if let Some(old) = self.blocks.remove(&first) {
            self.len -= old.entries.len();
        }
    }

    fn newest(&self) -> Option<&Arc<AuditEntry>> {
        let (_, block) = self.blocks.last_key_value()?;
        block.entries.last()
    }

    /// Returns the number of the newest entry; 0 without entries.
    pub(crate) fn last(&self) -> u64 {
        self.newest().map_or(0, |entry| entry.number)
    }

    /// Returns the number of the oldest kept entry; that of the next one without entries.
    pub(crate) fn oldest(&self) -> u64 {
        let first = self.blocks.first_key_value();
        first.map_or(1, |(first, _)| *first)
    }

    /// Returns the entries with numbers above `since`.
    pub(crate) fn after(&self, since: u64) -> impl Iterator<Item = &Arc<AuditEntry>> {
        // The block with the first of them begins at it or before.
        let from = self.blocks.range(..=since.saturating_add(1)).next_back();
        let from = from.map_or(0, |(first, _)| *first);
        let blocks = self.blocks.range(from..);
        blocks
            .flat_map(|(_, block)| &block.entries)
            .filter(move |entry| entry.number > since)
    }

    /// Returns the changes that add entries without numbers and digests, and that forget old ones.
    pub(crate) fn seal(&self, entries: Vec<AuditEntry>) -> Vec<Change> {
        self.seal_within(entries, MAX_ENTRIES)
    }

    fn seal_within(&self, entries: Vec<AuditEntry>, most: usize) -> Vec<Change> {
        if entries.is_empty() {
            return Vec::new();
        }
        let added = entries.len();
        let mut number = self.last();
        let mut digest = self.newest().map_or("", |entry| &entry.digest).to_owned();
        let mut changes = Vec::new();
        let mut block = AuditBlock {
            previous: digest.clone(),
            entries: Vec::new(),
        };
        let mut size = 0;
        for mut entry in entries {
            number += 1;
            entry.number = number;
            let link = Link::of(&digest, &entry);
            size += link.bytes;
            entry.digest.clone_from(&link.digest);
            digest = link.digest;
            block.entries.push(Arc::new(entry));
            if size >= BLOCK_BYTES {
                let next = AuditBlock {
                    previous: digest.clone(),
                    entries: Vec::new(),
                };
                changes.extend(std::mem::replace(&mut block, next).into_change());
                size = 0;
            }
        }
        changes.extend(block.into_change());
        let mut over = (self.len + added).saturating_sub(most);
        for (first, old) in self.blocks.iter().take(FORGET) {
            if old.entries.len() > over {
                break;
            }
            over -= old.entries.len();
            changes.push(Change::AuditGone(*first));
        }
        changes
    }
}

impl AuditBlock {
    /// Returns the change that keeps the block; `None` if it is empty.
    fn into_change(self) -> Option<Change> {
        let first = self.entries.first()?.number;
        Some(Change::Audit(first, Arc::new(self)))
    }
}

/// Returns the audit of a ledger.
pub(crate) const fn of(ledger: &Ledger) -> &Trail {
    &ledger.log.audit
}

/// Adds what [`Trail::seal`] returned to a ledger, once it is durable.
pub(crate) fn add(ledger: &mut Ledger, sealed: &[Change]) {
    for change in sealed {
        match change {
            Change::Audit(first, block) => ledger.log.audit.put(*first, Arc::clone(block)),
            Change::AuditGone(first) => ledger.log.audit.remove(*first),
            other => unreachable!("seal returns no such change: {other:?}"),
        }
    }
}

/// An entry's link in the chain.
struct Link {
    digest: String,
    /// The length of the entry's JSON.
    bytes: usize,
}

impl Link {
    fn of(previous: &str, entry: &AuditEntry) -> Self {
        debug_assert!(entry.digest.is_empty(), "it is not in its own digest");
        let text = serde_json::to_vec(entry).expect("entries have strings as keys");
        let mut hash = Sha256::new();
        hash.update(previous);
        hash.update(&text);
        let digest = hash.finalize();
        let digest = digest.iter().fold(String::new(), |mut text, byte| {
            // Writing to a String does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        Self {
            digest,
            bytes: text.len(),
        }
    }
}

/// Checks the chain of all kept blocks: numbers without gaps, and the digest of each entry.
///
/// # Errors
/// The number of the first wrong entry, and what is wrong.
pub(crate) fn verify(blocks: &BTreeMap<u64, Arc<AuditBlock>>) -> Result<(), (u64, &'static str)> {
    let mut before: Option<&AuditEntry> = None;
    for (first, block) in blocks {
        let expected = before.map_or(*first, |before| before.number + 1);
        if *first != expected {
            return Err((expected, "it is missing"));
        }
        let mut previous = before.map_or(&block.previous, |entry| &entry.digest);
        if *previous != block.previous {
            return Err((*first, "the digest of the entry before is another one"));
        }
        if block.entries.is_empty() {
            return Err((*first, "its block is empty"));
        }
        for (number, entry) in (*first..).zip(&block.entries) {
            if entry.number != number {
                return Err((number, "it has another number"));
            }
            let bare = AuditEntry {
                digest: String::new(),
                ..AuditEntry::clone(entry)
            };
            if Link::of(previous, &bare).digest != entry.digest {
                return Err((number, "it is not the entry that was written"));
            }
            previous = &entry.digest;
            before = Some(&**entry);
        }
    }
    let is_first = blocks.first_key_value();
    match is_first {
        Some((1, block)) if !block.previous.is_empty() => Err((1, "an entry before it is missing")),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "tests/trail.rs"]
mod tests;
