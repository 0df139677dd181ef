//! Storage of the ports' descriptors in systemd, for the restart after a crash of this process
//! (`FDSTORE=1`, `sd_notify(3)`).

use super::notify::{notify, notify_with};
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

/// The keys of the descriptors that systemd stores.
#[derive(Debug)]
pub(super) struct Store {
    /// True if systemd stores descriptors for this service (`FileDescriptorStoreMax=`).
    is_open: bool,
    keys: BTreeSet<String>,
}

impl Store {
    /// Returns a store with the descriptors of `keys`, and removes those of `others`.
    pub(super) fn new(keys: Vec<String>, others: &[String]) -> Self {
        for key in others {
            remove(key);
        }
        let most = std::env::var("FDSTORE").ok();
        Self {
            is_open: most.is_some_and(|most| most != "0"),
            keys: keys.into_iter().collect(),
        }
    }

    /// Stores a descriptor in systemd.
    pub(super) fn keep(&mut self, key: &str, descriptor: BorrowedFd<'_>) {
        if self.is_open && self.keys.insert(key.to_owned()) {
            notify_with(&format!("FDSTORE=1\nFDNAME={key}"), descriptor);
        }
    }

    /// Removes the descriptor of a key.
    pub(super) fn forget(&mut self, key: &str) {
        if self.keys.remove(key) {
            remove(key);
        }
    }
}

/// Makes systemd close its copy of a descriptor.
pub(super) fn remove(key: &str) {
    notify(&format!("FDSTOREREMOVE=1\nFDNAME={key}"));
}
