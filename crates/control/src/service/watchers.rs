//! The watchers of each host's guarantees.

use crate::ledger::AffectedHosts;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use tokio::sync::watch;

/// The last revision at which each watched host changed. A slow watcher costs nothing: it sees the
/// last revision.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    hosts: Mutex<HashMap<String, watch::Sender<u64>>>,
}

impl Watchers {
    pub(super) fn watch(&self, host: &str, revision: u64) -> watch::Receiver<u64> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        // Those whose watchers have all gone.
        hosts.retain(|_, sender| !sender.is_closed());
        let sender = hosts.entry(host.to_owned());
        sender
            .or_insert_with(|| watch::Sender::new(revision))
            .subscribe()
    }

    /// Returns how many watch a host.
    pub(super) fn of(&self, host: &str) -> usize {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.get(host).map_or(0, watch::Sender::receiver_count)
    }

    /// Wakes the watchers of the hosts that changed.
    pub(super) fn wake(&self, touched: &AffectedHosts, revision: u64) {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        match touched {
            AffectedHosts::All => hosts.values().for_each(|sender| {
                sender.send_replace(revision);
            }),
            AffectedHosts::Hosts(names) => {
                for sender in names.iter().filter_map(|name| hosts.get(name)) {
                    sender.send_replace(revision);
                }
            }
        }
    }
}
