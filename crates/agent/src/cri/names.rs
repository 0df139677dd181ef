//! Names of pods, from a container runtime. Pure: takes `now`, and a function for the query.

use super::{CriError, Pod};
use crate::text::printable;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Pause after a query that failed, or that did not return a pod.
const RETRY_PAUSE: Duration = Duration::from_secs(30);

/// Known names.
#[derive(Debug, Default)]
pub(crate) struct PodNames {
    /// Namespace and name, by UID.
    known: BTreeMap<String, String>,
    /// Earliest time of the next query.
    not_before: Option<Instant>,
    /// Reason why names are unknown.
    missing: Option<String>,
}

impl PodNames {
    /// Looks up these pods, and forgets all others; queries only unknown pods.
    pub(crate) fn look(
        &mut self,
        uids: &BTreeSet<String>,
        now: Instant,
        ask: impl FnOnce() -> Result<Vec<Pod>, CriError>,
    ) {
        self.known.retain(|uid, _| uids.contains(uid));
        if uids.iter().all(|uid| self.known.contains_key(uid)) {
            self.missing = None;
            return;
        }
        if self.not_before.is_some_and(|moment| now < moment) {
            return;
        }
        match ask() {
            Ok(pods) => {
                let named = pods.into_iter().filter(|pod| {
                    uids.contains(&pod.uid) && !pod.namespace.is_empty() && !pod.name.is_empty()
                });
                let named = named.map(|pod| {
                    let name = printable(&format!("{}/{}", pod.namespace, pod.name));
                    (pod.uid, name)
                });
                self.known.extend(named);
                self.missing = None;
            }
            Err(error) => {
                self.missing = Some(format!("the names of pods are not known: {error}"));
            }
        }
        let all = uids.iter().all(|uid| self.known.contains_key(uid));
        self.not_before = (!all).then(|| now + RETRY_PAUSE);
    }

    /// Returns the name of a pod.
    pub(crate) fn of(&self, uid: &str) -> Option<&str> {
        self.known.get(uid).map(String::as_str)
    }

    /// Returns why names are not known.
    pub(crate) fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }
}
