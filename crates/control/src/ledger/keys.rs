//! The replies to requests with an idempotency key.

use super::change::{KeyId, KeyRecord};
use super::command::Reply;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tailbound_api::Tenant;
use tailbound_units::Nanos;

/// Time for which a reply is kept for retries.
pub const KEY_LIFE: Nanos = Nanos::from_secs(24 * 3600);

/// Limit on the kept replies; the next constant is the rough limit in bytes. The oldest replies of
/// the owner with the most bytes are deleted first, so that an owner's requests do not evict the
/// replies of others.
/// the others.
///
/// Retries come within seconds; at 500 requests a second these are more than
/// three minutes.
pub const MAX_KEYS: usize = 100_000;
const MAX_BYTES: u64 = 256 << 20;

/// The kept replies by key and by age.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Keys {
    records: BTreeMap<Arc<KeyId>, Arc<KeyRecord>>,
    by_age: ByAge,
    owners: BTreeMap<Option<String>, Share>,
    /// The owners by the number of bytes that they use.
    shares: BTreeSet<(u64, Option<String>)>,
    bytes: u64,
}

type ByAge = BTreeSet<(Nanos, Arc<KeyId>)>;

/// The keys of one owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Share {
    by_age: ByAge,
    bytes: u64,
}

impl Keys {
    /// Returns the kept reply, unless it is too old.
    pub(super) fn live(&self, key: &KeyId, now: Nanos) -> Option<&Arc<KeyRecord>> {
        self.get(key).filter(|record| !is_old(record.at, now))
    }

    /// Returns the kept reply, however old.
    pub(super) fn get(&self, key: &KeyId) -> Option<&Arc<KeyRecord>> {
        self.records.get(key)
    }

    /// Returns `now`, or a time after every kept reply if that is later: a clock that went back,
    /// or one of another replica that is behind, does not make a new reply an old one.
    pub(super) fn later(&self, now: Nanos) -> Nanos {
        let last = self.by_age.last();
        last.map_or(now, |(last, _)| now.max(Nanos(last.0.saturating_add(1))))
    }

    /// Returns a key that is too old, or one to forget before another can be kept.
    pub(super) fn outdated(&self, now: Nanos) -> Option<KeyId> {
        let (at, oldest) = self.by_age.first()?;
        if is_old(*at, now) {
            return Some(KeyId::clone(oldest));
        }
        if self.records.len() < MAX_KEYS && self.bytes < MAX_BYTES {
            return None;
        }
        let (_, owner) = self.shares.last()?;
        let (_, oldest) = self.owners.get(owner)?.by_age.first()?;
        Some(KeyId::clone(oldest))
    }

    pub(super) fn put(&mut self, key: Arc<KeyId>, record: Arc<KeyRecord>) {
        self.remove(&key);
        self.by_age.insert((record.at, Arc::clone(&key)));
        let mut share = self.take(&key);
        share.by_age.insert((record.at, Arc::clone(&key)));
        share.bytes += bytes(&record);
        self.give_back(&key, share);
        self.records.insert(key, record);
    }

    pub(super) fn remove(&mut self, key: &KeyId) {
        if let Some((key, record)) = self.records.remove_entry(key) {
            let entry = (record.at, key);
            self.by_age.remove(&entry);
            let mut share = self.take(&entry.1);
            share.by_age.remove(&entry);
            share.bytes -= bytes(&record);
            self.give_back(&entry.1, share);
        }
    }

    fn take(&mut self, key: &KeyId) -> Share {
        let share = self.owners.remove(&key.owner).unwrap_or_default();
        self.shares.remove(&(share.bytes, key.owner.clone()));
        self.bytes -= share.bytes;
        share
    }

    fn give_back(&mut self, key: &KeyId, share: Share) {
        if share.by_age.is_empty() {
            return;
        }
        self.bytes += share.bytes;
        self.shares.insert((share.bytes, key.owner.clone()));
        self.owners.insert(key.owner.clone(), share);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (KeyId, Arc<KeyRecord>)> {
        let all = self.records.iter();
        all.map(|(key, record)| (KeyId::clone(key), Arc::clone(record)))
    }
}

fn is_old(at: Nanos, now: Nanos) -> bool {
    now.0.saturating_sub(at.0) >= KEY_LIFE.0
}

/// Returns roughly how many items of 64 bytes a tenant has.
fn items(tenant: &Tenant) -> usize {
    let records = tenant.reservations.iter();
    tenant.runs.len()
        + records
            .map(|record| 1 + 2 * record.machines.len())
            .sum::<usize>()
}

/// Returns roughly how many bytes a record takes: a tenant's grows with its number of hosts.
fn bytes(record: &KeyRecord) -> u64 {
    let items = match &record.reply {
        Reply::Tenant(tenant) => items(tenant),
        Reply::Batch(tenants) => tenants.iter().flatten().map(|it| items(it)).sum(),
        Reply::Reservation(reservation) => 2 * reservation.machines.len(),
        Reply::Machine(_) | Reply::Token(_) => 8,
        Reply::Adopted(report) => 4 * report.misfits.len(),
        Reply::Deleted | Reply::Noted => 0,
        Reply::Hosts(change) => {
            let refits = change.affected.iter().map(|tenant| tenant.refit.len());
            2 * change.affected.len() + refits.sum::<usize>()
        }
        Reply::Topology(diff) => {
            diff.added.len() + diff.removed.len() + diff.changed.len() + diff.broken.len()
        }
    };
    512 + 64 * items as u64
}
