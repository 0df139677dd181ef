//! What was answered to requests with an idempotency key.

use super::change::{KeyId, KeyRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tailbound_units::Nanos;

/// How long an answer is kept for a retry.
pub const KEY_LIFE: Nanos = Nanos::from_secs(24 * 3600);

/// How many answers are kept at most: the oldest go first.
///
/// Retries come within seconds; at 500 requests a second these are more than
/// three minutes.
pub const MAX_KEYS: usize = 100_000;

/// How many keys one decision forgets at most, so that it stays short.
const FORGET: usize = 8;

/// The answers by key and by age.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Keys {
    records: BTreeMap<Arc<KeyId>, Arc<KeyRecord>>,
    by_age: BTreeSet<(Nanos, Arc<KeyId>)>,
}

impl Keys {
    /// What was answered, unless that is too long ago.
    pub(super) fn live(&self, key: &KeyId, now: Nanos) -> Option<&Arc<KeyRecord>> {
        self.get(key).filter(|record| !is_old(record.at, now))
    }

    /// What was answered, however long ago.
    pub(super) fn get(&self, key: &KeyId) -> Option<&Arc<KeyRecord>> {
        self.records.get(key)
    }

    /// Some of those that are too old, or too many for one more.
    pub(super) fn outdated(&self, now: Nanos) -> Vec<KeyId> {
        let surplus = (self.records.len() + 1).saturating_sub(MAX_KEYS);
        self.by_age
            .iter()
            .enumerate()
            .take(FORGET)
            .take_while(|(index, (at, _))| *index < surplus || is_old(*at, now))
            .map(|(_, (_, key))| KeyId::clone(key))
            .collect()
    }

    pub(super) fn put(&mut self, key: KeyId, record: Arc<KeyRecord>) {
        self.remove(&key);
        let key = Arc::new(key);
        self.by_age.insert((record.at, Arc::clone(&key)));
        self.records.insert(key, record);
    }

    pub(super) fn remove(&mut self, key: &KeyId) {
        if let Some((key, record)) = self.records.remove_entry(key) {
            self.by_age.remove(&(record.at, key));
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (KeyId, Arc<KeyRecord>)> {
        let all = self.records.iter();
        all.map(|(key, record)| (KeyId::clone(key), Arc::clone(record)))
    }
}

fn is_old(at: Nanos, now: Nanos) -> bool {
    now.0.saturating_sub(at.0) >= KEY_LIFE.0
}
