//! The keys with which a host signs its messages about rates to other hosts.
//!
//! A host has a key with each host with which it shares a tenant, for the two latest epochs. It
//! reads all of them ([`HoseKeys`]), and follows their changes ([`HoseKeyUpdate`]) on the stream of
//! its guarantees.

use crate::HostGuarantees;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use tailbound_units::Nanos;

/// The request header with the mark of the keys that the host has, or [`NO_KEYS`]. A stream of
/// guarantees with this header has [`HostLine`]s.
pub const KEYS_HEADER: &str = "hose-keys";

/// The mark of a host without keys.
pub const NO_KEYS: &str = "none";

/// Number of epochs whose keys a host has.
const EPOCHS: usize = 2;

/// The keys of a host: those of its own pairs only, of the two latest epochs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HoseKeys {
    /// The host.
    pub host: String,
    /// The length of an epoch.
    pub period: Nanos,
    /// The time until the next epoch.
    pub next: Nanos,
    /// The epochs, the latest one last; none if the host has the keys of this mark.
    pub epochs: Vec<HoseKeyEpoch>,
    /// The mark of these keys; services of earlier versions send none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mark: String,
}

/// The keys of one epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HoseKeyEpoch {
    /// The number of the epoch, from 1 on; it rises.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 4_294_967_295_u64))]
    pub epoch: u32,
    /// The key for each host with which this host shares a tenant.
    pub keys: BTreeMap<String, PairKeyText>,
}

/// The key of two hosts, as 64 hexadecimal digits. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(pattern = "^[0-9a-f]{64}$"))]
#[serde(transparent)]
pub struct PairKeyText(pub String);

impl fmt::Debug for PairKeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairKeyText")
    }
}

/// A change of the keys of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HoseKeyUpdate {
    /// The host.
    pub host: String,
    /// The length of an epoch.
    pub period: Nanos,
    /// The mark of the keys to which the change applies. It is absent if the host deletes all its
    /// keys first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// New keys. The host keeps the keys of the two latest epochs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<HoseKeyEpoch>,
    /// The hosts with which this host shares no tenant any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
    /// The mark of the keys after this change.
    pub mark: String,
}

/// A line of the stream of a host that also receives its keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum HostLine {
    /// A change of the host's keys; the only line with a mark.
    Keys(HoseKeyUpdate),
    /// All guarantees of the host.
    Guarantees(HostGuarantees),
}

impl HoseKeys {
    /// Makes the keys of a host that has none yet.
    pub fn none(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            period: Nanos::ZERO,
            next: Nanos::ZERO,
            epochs: Vec::new(),
            mark: NO_KEYS.to_owned(),
        }
    }

    /// Applies a change. Returns false, and does nothing, if these are not the keys to which it
    /// applies.
    pub fn apply(&mut self, update: HoseKeyUpdate) -> bool {
        match update.base {
            None => self.epochs.clear(),
            Some(base) if base == self.mark => {}
            Some(_) => return false,
        }
        self.period = update.period;
        self.mark = update.mark;
        for of in &mut self.epochs {
            for host in &update.gone {
                of.keys.remove(host);
            }
        }
        for new in update.epochs {
            match self.epochs.iter_mut().find(|of| of.epoch == new.epoch) {
                Some(of) => of.keys.extend(new.keys),
                None => self.epochs.push(new),
            }
        }
        self.epochs.sort_by_key(|of| of.epoch);
        let old = self.epochs.len().saturating_sub(EPOCHS);
        self.epochs.drain(..old);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(epoch: u32, hosts: &[&str]) -> HoseKeyEpoch {
        let key = |host: &&str| ((*host).to_owned(), PairKeyText(format!("{epoch}{host}")));
        HoseKeyEpoch {
            epoch,
            keys: hosts.iter().map(key).collect(),
        }
    }

    #[test]
    fn a_host_keeps_the_keys_of_two_epochs() {
        let update = |base: Option<&str>, epochs: &[HoseKeyEpoch], gone: &[&str], mark: &str| {
            HoseKeyUpdate {
                host: "a".to_owned(),
                period: Nanos::from_secs(60),
                base: base.map(str::to_owned),
                epochs: epochs.to_vec(),
                gone: gone.iter().map(|host| (*host).to_owned()).collect(),
                mark: mark.to_owned(),
            }
        };
        let mut keys = HoseKeys::none("a");
        let first = [epoch(4, &["b"]), epoch(5, &["b"])];
        assert!(keys.apply(update(None, &first, &[], "1")));
        let others = [epoch(4, &["c"]), epoch(5, &["c"])];
        assert!(!keys.apply(update(Some("0"), &others, &["b"], "2")));
        assert_eq!(keys.epochs, first);
        assert!(keys.apply(update(Some("1"), &others, &["b"], "2")));
        assert_eq!(keys.epochs, others);
        assert!(keys.apply(update(Some("2"), &[epoch(6, &["c"])], &[], "3")));
        assert_eq!(keys.epochs, [epoch(5, &["c"]), epoch(6, &["c"])]);
        let whole = [epoch(3, &["d"]), epoch(4, &["d"])];
        assert!(keys.apply(update(None, &whole, &[], "7")));
        assert_eq!(keys.epochs, whole);
        assert_eq!(
            (keys.mark.as_str(), keys.period),
            ("7", Nanos::from_secs(60))
        );
    }
}
