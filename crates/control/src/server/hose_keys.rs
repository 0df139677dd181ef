//! The keys with which hosts sign their messages about rates. Each host gets those of its own
//! pairs, so that it cannot impersonate another host.
//!
//! A key is derived from one secret, the epoch and the names of the two hosts. An epoch is a fixed
//! number of seconds of the time of day, so that replicas share the secret only.

use super::App;
use super::extract::{By, PathName};
use super::guarantees::check;
use super::problem::{Absent, ApiError, Guarded};
use axum::Json;
use axum::extract::State;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};
use tailbound_api::{HoseKeyEpoch, HoseKeys, PairKeyText};
use tailbound_hose::{KeyEpoch, SHORTEST_SECRET, Secret};
use tailbound_sys::secret::{self, SecretError};
use tailbound_units::Nanos;

/// The inputs of the key derivation.
#[derive(Debug, Clone)]
pub struct HoseSecret {
    /// The file of the secret, readable for its owner only.
    pub file: PathBuf,
    /// The length of an epoch; at least a second.
    pub period: Duration,
}

/// An error of the secret's file.
#[derive(Debug, thiserror::Error)]
#[error("the secret of hosts' keys {}: {source}", path.display())]
pub struct HoseSecretError {
    path: PathBuf,
    source: SecretError,
}

/// Derives the keys of hosts.
#[derive(Debug)]
pub(super) struct KeyMaker {
    secret: RwLock<Arc<Secret>>,
    period: Duration,
}

impl HoseSecret {
    pub(super) fn load(&self) -> Result<Secret, HoseSecretError> {
        let failed = |source| HoseSecretError {
            path: self.file.clone(),
            source,
        };
        let bytes = secret::read(&self.file, SHORTEST_SECRET).map_err(failed)?;
        let (len, shortest) = (bytes.len(), SHORTEST_SECRET);
        Secret::new(&bytes).ok_or_else(|| failed(SecretError::Short { len, shortest }))
    }
}

impl KeyMaker {
    pub(super) fn new(config: &HoseSecret) -> Result<Self, HoseSecretError> {
        Ok(Self {
            secret: RwLock::new(Arc::new(config.load()?)),
            period: config.period,
        })
    }

    /// Replaces the secret for all further keys.
    pub(super) fn replace(&self, secret: Secret) {
        *self.secret.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(secret);
    }

    /// Returns the keys of a host and each of `others` at a time of day.
    fn keys(&self, today: Duration, host: &str, others: &[String]) -> HoseKeys {
        let secret = Arc::clone(&self.secret.read().unwrap_or_else(PoisonError::into_inner));
        let period = self.period.as_nanos().max(1);
        // From 1 on, whatever the clock says.
        let epoch = u32::try_from(today.as_nanos() / period)
            .unwrap_or(u32::MAX)
            .max(2);
        let next = period - today.as_nanos() % period;
        let nanos = |nanos: u128| Nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let epochs = [epoch - 1, epoch].map(|epoch| {
            let keys = others.iter().filter(|other| *other != host).map(|other| {
                let key = secret.pair_key(KeyEpoch(epoch), host, other);
                (other.clone(), PairKeyText(key.to_hex()))
            });
            HoseKeyEpoch {
                epoch,
                keys: keys.collect(),
            }
        });
        HoseKeys {
            host: host.to_owned(),
            period: nanos(period),
            next: nanos(next),
            epochs: epochs.into(),
        }
    }
}

/// Returns the keys with which a host signs its messages about rates to other hosts.
///
/// The answer has the keys of the host's own pairs, for the two latest epochs.
#[utoipa::path(
    get, path = "/v1/hosts/{name}/hose-keys", tag = "hosts", operation_id = "get_hose_keys",
    params(("name" = String, Path, description = "The host's name", example = "a-1")),
    responses(
        (status = 200, description = "A key for each other host", body = HoseKeys),
        Guarded, Absent,
    )
)]
pub(super) async fn get(
    State(app): State<Arc<App>>,
    By(by): By,
    PathName(name): PathName,
) -> Result<Json<HoseKeys>, ApiError> {
    check(&by, &name)?;
    let Some(maker) = app.keys.clone() else {
        return Err(ApiError::not_found(
            "this service issues no keys to hosts: it was started without --hose-secret",
        ));
    };
    let unknown = ApiError::not_found(format!("there is no host {name:?}"));
    // Two hashes or so for each other host of the topology, of which there may be many.
    let answer = app.ask(&by, move |service| {
        let hosts = service.question(|ledger| ledger.host_names(&name))?;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Some(maker.keys(since.unwrap_or_default(), &name, &hosts))
    });
    answer.await?.map(Json).ok_or(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maker(secret: &[u8; 32]) -> KeyMaker {
        KeyMaker {
            secret: RwLock::new(Arc::new(Secret::new(secret).unwrap())),
            period: Duration::from_mins(1),
        }
    }

    const HOSTS: [&str; 3] = ["a", "b", "c"];

    fn keys(maker: &KeyMaker, seconds: u64, host: &str) -> HoseKeys {
        maker.keys(
            Duration::from_secs(seconds),
            host,
            &HOSTS.map(str::to_owned),
        )
    }

    #[test]
    fn a_host_gets_what_it_shares_with_each_other_one_and_nothing_else() {
        let maker = maker(&[7; 32]);
        let [a, b, c] = HOSTS.map(|host| keys(&maker, 6_000, host));
        assert_eq!(
            (a.period, a.next),
            (Nanos::from_secs(60), Nanos::from_secs(60))
        );
        let epochs = |keys: &HoseKeys| keys.epochs.iter().map(|of| of.epoch).collect::<Vec<_>>();
        assert_eq!(epochs(&a), [99, 100]);
        for place in 0..2 {
            let of = |keys: &HoseKeys, other: &str| keys.epochs[place].keys.get(other).cloned();
            assert_eq!(of(&a, "a"), None);
            assert_eq!(a.epochs[place].keys.len(), 2);
            assert_eq!(of(&a, "b"), of(&b, "a"));
            assert_eq!(of(&a, "c"), of(&c, "a"));
            // What b and c share is not among what a has, of either epoch.
            let theirs = of(&b, "c").expect("they have one");
            let has = a.epochs.iter().flat_map(|of| of.keys.values());
            assert!(has.into_iter().all(|key| *key != theirs));
        }
        assert_ne!(a.epochs[0].keys["b"], a.epochs[1].keys["b"]);
    }

    #[test]
    fn the_latest_key_of_an_epoch_is_the_former_one_of_the_next() {
        let maker = maker(&[7; 32]);
        let (before, after) = (keys(&maker, 6_059, "a"), keys(&maker, 6_060, "a"));
        assert_eq!(before.next, Nanos::from_secs(1));
        assert_eq!(before.epochs[1], after.epochs[0]);
        // Whatever clock: no epoch is 0, which is not the service's.
        assert_eq!(keys(&maker, 0, "a").epochs[0].epoch, 1);
        assert_eq!(keys(&maker, u64::MAX, "a").epochs[1].epoch, u32::MAX);
        maker.replace(Secret::new(&[8; 32]).unwrap());
        assert_ne!(keys(&maker, 6_060, "a").epochs, after.epochs);
        let shown = format!("{after:?} {maker:?}");
        assert!(!shown.contains(&after.epochs[0].keys["b"].0), "{shown}");
    }
}
