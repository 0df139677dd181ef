//! systemd keeps the descriptors of ports, for when this process dies (`FDSTORE=1`,
//! `sd_notify(3)`).

use super::notify::{notify, notify_with};
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

/// What systemd keeps.
#[derive(Debug)]
pub(super) struct Store {
    /// It keeps descriptors for this service (`FileDescriptorStoreMax=`).
    is_open: bool,
    keys: BTreeSet<String>,
}

impl Store {
    /// One that has kept descriptors of `keys`, and of others that are of no use any more.
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

    /// Has systemd keep a descriptor.
    pub(super) fn keep(&mut self, key: &str, descriptor: BorrowedFd<'_>) {
        if self.is_open && self.keys.insert(key.to_owned()) {
            notify_with(&format!("FDSTORE=1\nFDNAME={key}"), descriptor);
        }
    }

    /// The descriptor of a key is closed.
    pub(super) fn forget(&mut self, key: &str) {
        if self.keys.remove(key) {
            remove(key);
        }
    }
}

/// Has systemd close its copy of a descriptor.
pub(super) fn remove(key: &str) {
    notify(&format!("FDSTOREREMOVE=1\nFDNAME={key}"));
}
