//! Failures of the store.

use crate::api_support::{ACME, Place, Setup};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tailbound_api::Tenant;
use tailbound_control::ledger::{Change, Snapshot};
use tailbound_control::store::{Store, StoreError};
use tailbound_placement::TenantId;

/// Store that the test makes fail: with fault 0 it keeps commits, with 1 to 4 it refuses them, and
/// with 5 commits wait.
#[derive(Clone, Default)]
struct FaultyStore {
    fault: Arc<AtomicU8>,
    kept: Arc<Mutex<Snapshot>>,
}

impl Store for FaultyStore {
    fn load(&mut self) -> Result<Snapshot, StoreError> {
        Ok(self.kept.lock().unwrap().clone())
    }

    fn begin(&mut self, _tenants: &BTreeMap<TenantId, Arc<Tenant>>) {}

    fn commit(&mut self, changes: &[Change]) -> Result<u64, StoreError> {
        match self.fault.load(Ordering::Relaxed) {
            1 => Err(StoreError::NoSpace),
            4 => Err(StoreError::Corrupt("a page differs".to_owned())),
            2 => Err(StoreError::Failed("the disk is on fire".to_owned())),
            3 => Err(StoreError::Uncertain("the store does not reply".to_owned())),
            fault => {
                if fault == 5 {
                    while self.fault.load(Ordering::Relaxed) == 5 {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
                let mut kept = self.kept.lock().unwrap();
                kept.apply(changes);
                kept.revision += 1;
                Ok(kept.revision)
            }
        }
    }

    fn check_writable(&mut self) -> Result<bool, StoreError> {
        match self.fault.load(Ordering::Relaxed) {
            0 => Ok(true),
            1 => Err(StoreError::NoSpace),
            _ => Ok(false),
        }
    }
}

/// Starts a service that has `state` with a [`FaultyStore`], and returns the store's fault, too.
pub(crate) fn faulty(failure: u8, state: Option<Snapshot>) -> (Place, Arc<AtomicU8>) {
    let store = FaultyStore::default();
    let fault = Arc::clone(&store.fault);
    fault.store(failure, Ordering::Relaxed);
    let place = Place::with(Setup {
        store: Some(Box::new(store)),
        state,
        ..Setup::default()
    });
    (place, fault)
}

#[test]
fn a_failed_commit_is_a_specific_error_and_changes_no_state() {
    let (place, fault) = faulty(0, None);
    place.admit("web", 1);
    let state = place.state();
    let body = r#"{"name": "db", "vms": 1}"#;
    for (how, status, code, detail) in [
        (1, 507, "no-space", "no space is left"),
        (2, 500, "store", "the disk is on fire"),
        (0, 201, "", ""),
        (3, 503, "unavailable", "it is not known"),
    ] {
        fault.store(how, Ordering::Relaxed);
        let answer = place.post(ACME, "/v1/tenants", body);
        assert_eq!(answer.status, status, "{answer:?}");
        if status == 201 {
            let path = answer.header("location").to_owned();
            place.send(ACME, "DELETE", &path, &[], None);
        } else {
            let problem = answer.problem();
            assert_eq!(problem.0, code);
            assert!(problem.1.contains(detail), "{problem:?}");
        }
        assert_eq!(place.state().tenants, state.tenants);
        assert_eq!(place.get(ACME, "/v1/tenants/1").status, 200);
    }
    // From then on it is not known what the store has.
    let answer = place.post(ACME, "/v1/tenants", body);
    assert_eq!((answer.status, answer.header("retry-after")), (503, "1"));
    assert_eq!(place.get("", "/readyz").status, 503);
    assert_eq!(place.get("", "/healthz").status, 200);
}
