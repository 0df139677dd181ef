//! The keys with which hosts sign their messages about rates. Each host gets those of its own
//! pairs, so that it cannot impersonate another host.
//!
//! A key is derived from one secret, the epoch and the names of the two hosts. An epoch is a fixed
//! number of seconds of the time of day, so that replicas share the secret only.

use super::App;
use super::access;
use super::extract::{By, PathName};
use super::problem::{Absent, ApiError, Guarded};
use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};
use tailbound_api::{HoseKeyEpoch, HoseKeys, KEYS_HEADER, NO_KEYS, PairKeyText};
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

    /// Makes keys of a secret without a file.
    #[cfg(test)]
    pub(super) fn of(secret: Secret, period: Duration) -> Self {
        Self {
            secret: RwLock::new(Arc::new(secret)),
            period,
        }
    }

    /// Replaces the secret for all further keys.
    pub(super) fn replace(&self, secret: Secret) {
        *self.secret.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(secret);
    }

    /// Returns the source of a host's keys at a time of day.
    pub(super) fn source(&self, today: Duration, host: &str) -> KeySource {
        let secret = Arc::clone(&self.secret.read().unwrap_or_else(PoisonError::into_inner));
        let period = self.period.max(Duration::from_nanos(1));
        // Each host has a clock that is late by its own share: the hosts do not all receive the keys
        // of an epoch at once. The epochs of two hosts differ by at most one, so they share a key.
        let late = share(host, (period / SPREAD.0).min(SPREAD.1));
        let here = today.saturating_sub(late);
        // From 1 on, whatever the clock says.
        let epoch = u32::try_from(here.as_nanos() / period.as_nanos())
            .unwrap_or(u32::MAX)
            .max(2);
        KeySource {
            print: print_of(&secret),
            secret,
            epoch,
            period,
            next: period.as_nanos() - here.as_nanos() % period.as_nanos(),
        }
    }
}

/// The largest part of an epoch, and the longest time, by which a host's epoch begins later.
const SPREAD: (u32, Duration) = (16, Duration::from_mins(10));

/// Returns a host's own share of a time: always the same, from 0 up.
pub(super) fn share(host: &str, of: Duration) -> Duration {
    let hash = Sha256::digest(host);
    of * u32::from(u16::from_be_bytes([hash[0], hash[1]])) / (u32::from(u16::MAX) + 1)
}

/// Returns the time of day.
pub(super) fn today() -> Duration {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}

/// Returns a short fingerprint of a secret: a part of a key of two hosts without a name.
fn print_of(secret: &Secret) -> u32 {
    let key = secret.pair_key(KeyEpoch(0), "", "").to_hex();
    u32::from_str_radix(&key[..8], 16).expect("a key has 64 hexadecimal digits")
}

/// The source of a host's keys at one moment.
#[derive(Debug)]
pub(super) struct KeySource {
    secret: Arc<Secret>,
    print: u32,
    epoch: u32,
    period: Duration,
    /// The time until the host's next epoch in nanoseconds.
    next: u128,
}

impl KeySource {
    /// Returns the latest epoch, 2 or more.
    pub(super) const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns a fingerprint of the secret.
    pub(super) const fn print(&self) -> u32 {
        self.print
    }

    pub(super) fn period(&self) -> Nanos {
        nanos(self.period.as_nanos())
    }

    pub(super) fn until_next(&self) -> Duration {
        Duration::from_nanos(nanos(self.next).0)
    }

    /// Returns the key of two hosts.
    pub(super) fn key(&self, epoch: u32, host: &str, other: &str) -> PairKeyText {
        let key = self.secret.pair_key(KeyEpoch(epoch), host, other);
        PairKeyText(key.to_hex())
    }

    /// Returns the mark of the keys with these hosts up to an epoch. It has nothing of a key.
    pub(super) fn mark(&self, epoch: u32, peers: &BTreeSet<String>) -> String {
        let mut hash = Sha256::new();
        for peer in peers {
            hash.update(peer.as_bytes());
            hash.update([0]);
        }
        let hash = hash.finalize();
        let peers = hash[..8].iter();
        let peers = peers.fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        format!("{:08x}-{epoch}-{peers}", self.print)
    }

    /// Returns the keys of a host and these hosts, unless the host `has` those of their mark.
    pub(super) fn keys(&self, host: &str, peers: &BTreeSet<String>, has: &str) -> HoseKeys {
        let mark = self.mark(self.epoch, peers);
        let epochs = [self.epoch - 1, self.epoch].map(|epoch| {
            let keys = peers
                .iter()
                .map(|other| (other.clone(), self.key(epoch, host, other)));
            HoseKeyEpoch {
                epoch,
                keys: keys.collect(),
            }
        });
        HoseKeys {
            host: host.to_owned(),
            period: self.period(),
            next: nanos(self.next),
            epochs: if mark == has {
                Vec::new()
            } else {
                epochs.into()
            },
            mark,
        }
    }
}

fn nanos(nanos: u128) -> Nanos {
    Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The mark of the keys that a host has, if it sends one.
pub(super) struct KeysMark(pub(super) Option<String>);

impl FromRequestParts<Arc<App>> for KeysMark {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, ApiError> {
        let mark = parts.headers.get(KEYS_HEADER);
        let mark = mark.map(|mark| mark.to_str().unwrap_or(NO_KEYS).to_owned());
        Ok(Self(mark))
    }
}

/// Returns the keys with which a host signs its messages about rates to other hosts.
///
/// The answer has the keys with each host with which this host shares a tenant, for the two latest
/// epochs. There are no epochs in it if the host has the keys of the mark in `Hose-Keys`.
#[utoipa::path(
    get, path = "/v1/hosts/{name}/hose-keys", tag = "hosts", operation_id = "get_hose_keys",
    params(
        ("name" = String, Path, description = "The host's name", example = "a-1"),
        ("hose-keys" = Option<String>, Header, description = "The mark of the keys that the host has"),
    ),
    responses(
        (status = 200, description = "A key for each host with a common tenant", body = HoseKeys),
        Guarded, Absent,
    )
)]
pub(super) async fn get(
    State(app): State<Arc<App>>,
    By(by): By,
    PathName(name): PathName,
    KeysMark(mark): KeysMark,
) -> Result<Json<HoseKeys>, ApiError> {
    access::check_host(&by, &name)?;
    let Some(maker) = app.keys.clone() else {
        return Err(ApiError::not_found(
            "this service issues no keys to hosts: it was started without --hose-secret",
        ));
    };
    let unknown = ApiError::not_found(format!("there is no host {name:?}"));
    // Some hashes for each other host, of which there may be many.
    let answer = app.ask(&by, move |service| {
        let peers = service.read(|ledger| ledger.peers(&name))?;
        let source = maker.source(today(), &name);
        Some(source.keys(&name, &peers, mark.as_deref().unwrap_or_default()))
    });
    answer.await?.map(Json).ok_or(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maker(secret: &[u8; 32]) -> KeyMaker {
        KeyMaker::of(Secret::new(secret).unwrap(), Duration::from_mins(1))
    }

    const HOSTS: [&str; 3] = ["a", "b", "c"];

    fn keys(maker: &KeyMaker, seconds: u64, host: &str) -> HoseKeys {
        // Each host's own clock shows this time.
        let late = share(host, Duration::from_mins(1) / SPREAD.0);
        let today = Duration::from_secs(seconds).saturating_add(late);
        let peers = HOSTS.iter().filter(|other| **other != host);
        let peers = peers.map(|other| (*other).to_owned()).collect();
        maker.source(today, host).keys(host, &peers, "")
    }

    #[test]
    fn a_host_receives_only_the_keys_that_it_shares_with_peers() {
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
        assert_eq!(keys(&maker, u64::MAX / 2, "a").epochs[1].epoch, u32::MAX);
        maker.replace(Secret::new(&[8; 32]).unwrap());
        assert_ne!(keys(&maker, 6_060, "a").epochs, after.epochs);
        let shown = format!("{after:?} {maker:?}");
        assert!(!shown.contains(&after.epochs[0].keys["b"].0), "{shown}");
    }
}
