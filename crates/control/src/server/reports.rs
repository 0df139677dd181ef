//! What hosts say of themselves while they follow their guarantees: which classes they give
//! frames. A fabric holds its promises only where all its hosts have the topology's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tailbound_api::Classes;

/// The reports of all hosts that follow their guarantees here.
#[derive(Debug, Default)]
pub(super) struct Reports(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// By host and stream: of several streams of a host the latest counts.
    open: BTreeMap<(String, u64), Classes>,
}

/// One host's report, until it is dropped.
#[derive(Debug)]
pub(super) struct Report {
    reports: Arc<Reports>,
    key: (String, u64),
    pub(super) classes: Classes,
}

impl Drop for Report {
    fn drop(&mut self) {
        self.reports.lock().open.remove(&self.key);
    }
}

impl Reports {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a host says.
    pub(super) fn note(self: &Arc<Self>, host: &str, classes: Classes) -> Report {
        let mut state = self.lock();
        state.next += 1;
        let key = (host.to_owned(), state.next);
        state.open.insert(key.clone(), classes);
        Report {
            reports: Arc::clone(self),
            key,
            classes,
        }
    }

    /// The classes of a host, where it said so and they are not `right`.
    pub(super) fn other_classes(&self, host: &str, right: Classes) -> Option<Classes> {
        let state = self.lock();
        let of_host = (host.to_owned(), 0)..=(host.to_owned(), u64::MAX);
        let (_, last) = state.open.range(of_host).next_back()?;
        Some(*last).filter(|classes| *classes != right)
    }

    /// How many hosts have others than `right`.
    pub(super) fn differing(&self, right: Classes) -> usize {
        let state = self.lock();
        let of_host = |key: &(String, u64), classes: &Classes| (key.0.clone(), *classes);
        let last: BTreeMap<_, _> = state
            .open
            .iter()
            .map(|(key, classes)| of_host(key, classes))
            .collect();
        last.values().filter(|classes| **classes != right).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_api::Fabric;

    #[test]
    fn a_hosts_latest_report_counts_for_as_long_as_its_stream_is_open() {
        let reports = Arc::new(Reports::default());
        let [two, three] = [Fabric::GuaranteesFirst, Fabric::ThreeClasses].map(Classes::of);
        let right = reports.note("a", two);
        let wrong = reports.note("a-1", three);
        assert_eq!(reports.other_classes("a", two), None);
        assert_eq!(reports.other_classes("a-1", two), Some(three));
        assert_eq!(reports.other_classes("a-2", two), None);
        assert_eq!((reports.differing(two), reports.differing(three)), (1, 1));
        let mended = reports.note("a-1", two);
        assert_eq!(reports.differing(two), 0);
        drop(mended);
        assert_eq!(reports.differing(two), 1);
        drop((right, wrong));
        assert_eq!((reports.differing(two), reports.differing(three)), (0, 0));
    }
}
