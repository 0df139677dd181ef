//! Keys of datagrams, one per pair of hosts.
//!
//! A pair's key is derived from a secret, the key's epoch and the names of both hosts (HKDF-SHA256,
//! RFC 5869). A holder of the secret can derive all keys. A holder of one host's keys can only
//! impersonate that host and its peers towards it.
//!
//! A host has at most two keys with each peer ([`PairKeys`]). It accepts both, and signs with the
//! latest that the peer has as well. Keys thus change without loss, at any time of their arrival.

use crate::ids::SequenceNumber;
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::str::FromStr;

/// Minimum length of a secret in bytes: that of the hash (RFC 2104, 3).
pub const SHORTEST_SECRET: usize = 32;

/// Bytes of a pair's key, and of a MAC.
pub(crate) const LENGTH: usize = 32;

/// Salt that separates this use of the secret from others.
const PURPOSE: &[u8] = b"tailbound hose, version 3";

/// Epoch of a pair's key, rising from 1. 0 is the key of a secret that the hosts have themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyEpoch(pub u32);

impl KeyEpoch {
    /// Epoch of a key that the hosts derive from a secret of their own.
    pub const OWN: Self = Self(0);
}

/// Secret of all keys. `Debug` does not show it.
#[derive(Clone)]
pub struct Secret(Hkdf<Sha256>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Returns the secret; `None` if it is shorter than [`SHORTEST_SECRET`].
    pub fn new(secret: &[u8]) -> Option<Self> {
        (secret.len() >= SHORTEST_SECRET).then(|| Self(Hkdf::new(Some(PURPOSE), secret)))
    }

    /// Returns the key of two hosts in an epoch; the order of the names has no effect.
    #[expect(clippy::missing_panics_doc, reason = "it does not")]
    pub fn pair_key(&self, epoch: KeyEpoch, one: &str, other: &str) -> Key {
        let (first, second) = if one <= other {
            (one, other)
        } else {
            (other, one)
        };
        // The length ends the first name, so that no two pairs are written alike.
        let len = (first.len() as u64).to_be_bytes();
        let epoch = epoch.0.to_be_bytes();
        let info = [&epoch[..], &len[..], first.as_bytes(), second.as_bytes()];
        let mut key = [0; LENGTH];
        let expanded = self.0.expand_multi_info(&info, &mut key);
        expanded.expect("HKDF gives up to 255 times as many bytes");
        Key::new(key)
    }
}

/// The key of a pair of hosts, for HMAC-SHA256 (RFC 2104). `Debug` does not show it.
#[derive(Clone)]
pub struct Key {
    bytes: [u8; LENGTH],
    mac: Hmac<Sha256>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Key {}

impl Key {
    /// The key of these bytes.
    #[expect(clippy::missing_panics_doc, reason = "it does not")]
    pub fn new(bytes: [u8; LENGTH]) -> Self {
        let mac = Hmac::new_from_slice(&bytes).expect("HMAC takes a key of any length");
        Self { bytes, mac }
    }

    /// Returns the key as 64 hexadecimal digits, as [`Key::from_str`] reads it.
    pub fn to_hex(&self) -> String {
        let digits = self.bytes.iter().map(|byte| format!("{byte:02x}"));
        digits.collect()
    }

    /// Appends the MAC of `datagram`.
    pub(crate) fn seal(&self, datagram: &mut Vec<u8>) {
        let mac = self.mac.clone().chain_update(&datagram).finalize();
        datagram.extend_from_slice(&mac.into_bytes());
    }

    /// Returns whether `mac` is the MAC of `body`, in constant time.
    pub(crate) fn verifies(&self, body: &[u8], mac: &[u8]) -> bool {
        let signed = self.mac.clone().chain_update(body);
        signed.verify_slice(mac).is_ok()
    }
}

/// Error of an invalid key. It does not contain the text, which may be nearly a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key of hosts is 64 hexadecimal digits")]
pub struct KeyTextError;

impl FromStr for Key {
    type Err = KeyTextError;

    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        let digits: Option<Vec<u8>> = text
            .chars()
            .map(|digit| digit.to_digit(16).map(|value| value as u8))
            .collect();
        let digits = digits.filter(|digits| digits.len() == 2 * LENGTH);
        let digits = digits.ok_or(KeyTextError)?;
        let mut bytes = [0; LENGTH];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(Self::new(bytes))
    }
}

/// The keys of this host with a peer: the latest, and the previous one if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairKeys {
    latest: (KeyEpoch, Key),
    former: Option<(KeyEpoch, Key)>,
}

impl PairKeys {
    /// The one key of a secret that both hosts have.
    pub fn own(key: Key) -> Self {
        Self {
            latest: (KeyEpoch::OWN, key),
            former: None,
        }
    }

    /// Returns the two latest of these keys; `None` without keys, or with two of one epoch.
    pub fn latest_of(keys: impl IntoIterator<Item = (KeyEpoch, Key)>) -> Option<Self> {
        let mut keys: Vec<_> = keys.into_iter().collect();
        keys.sort_by_key(|(epoch, _)| *epoch);
        let is_twice = keys.windows(2).any(|two| two[0].0 == two[1].0);
        let latest = keys.pop().filter(|_| !is_twice)?;
        Some(Self {
            latest,
            former: keys.pop(),
        })
    }

    /// The epoch of the latest key.
    pub fn epoch(&self) -> KeyEpoch {
        self.latest.0
    }

    /// Returns the key of an epoch if this host has it.
    pub(crate) fn of(&self, epoch: KeyEpoch) -> Option<&Key> {
        let keys = [Some(&self.latest), self.former.as_ref()];
        let mut keys = keys.into_iter().flatten();
        keys.find(|(of, _)| *of == epoch).map(|(_, key)| key)
    }

    /// Returns the key to sign datagram `sequence` for a host whose latest key is of epoch
    /// `theirs`. If that is unknown, the keys alternate.
    pub(crate) fn for_host(
        &self,
        theirs: Option<KeyEpoch>,
        sequence: SequenceNumber,
    ) -> &(KeyEpoch, Key) {
        let has_latest = match theirs {
            Some(theirs) => theirs >= self.latest.0,
            None => sequence.0.is_multiple_of(2),
        };
        match &self.former {
            Some(former) if !has_latest => former,
            _ => &self.latest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Secret {
        Secret::new(b"0123456789abcdef0123456789abcdef").unwrap()
    }

    #[test]
    fn a_key_is_of_two_hosts_in_either_order_and_of_no_others() {
        let own = |one: &str, other: &str| secret().pair_key(KeyEpoch::OWN, one, other);
        let key = own("a", "b");
        assert_eq!(key, own("b", "a"));
        for (one, other) in [("a", "c"), ("c", "b"), ("", "ab"), ("ab", ""), ("a", "a")] {
            assert_ne!(key, own(one, other), "{one}, {other}");
        }
        assert_ne!(own("a", "bc"), own("ab", "c"));
        assert_ne!(key, secret().pair_key(KeyEpoch(1), "a", "b"));
        let another = Secret::new(&[7; SHORTEST_SECRET]).unwrap();
        assert_ne!(key, another.pair_key(KeyEpoch::OWN, "a", "b"));
        assert!(Secret::new(&[7; SHORTEST_SECRET - 1]).is_none());
    }

    /// Computed with Python's `hmac`, by the two steps of RFC 5869.
    #[test]
    fn a_key_is_derived_as_documented() {
        let key = |epoch| secret().pair_key(KeyEpoch(epoch), "b", "a").to_hex();
        assert_eq!(
            key(0),
            "60fd1a4851b8dddd239d050f13c42d28125e86cdb44f477f339ddc7865ddb716"
        );
        assert_eq!(
            key(20_780),
            "5f2c87f530d5cabbe036e7c01c302325baa9de0f7f01a4ffa8d6b9cd0dfd9054"
        );
    }

    #[test]
    fn a_key_is_read_as_it_is_written_and_not_shown() {
        let key = secret().pair_key(KeyEpoch::OWN, "a", "b");
        assert_eq!(key.to_hex().parse(), Ok(key.clone()));
        let wrong = ["", "0", &key.to_hex()[1..], &format!("{}0", key.to_hex())];
        for text in wrong {
            assert_eq!(text.parse::<Key>(), Err(KeyTextError));
        }
        assert_eq!("g".repeat(64).parse::<Key>(), Err(KeyTextError));
        assert_eq!(format!("{key:?} {:?}", secret()), "Key Secret");
    }

    #[test]
    fn the_two_latest_keys_are_valid_and_the_latest_common_one_signs() {
        let key = |epoch| secret().pair_key(KeyEpoch(epoch), "a", "b");
        let of = |epochs: &[u32]| {
            let keys = epochs.iter().map(|epoch| (KeyEpoch(*epoch), key(*epoch)));
            PairKeys::latest_of(keys)
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[5, 5]), None);
        let keys = of(&[5, 7, 6]).unwrap();
        assert_eq!(keys.epoch(), KeyEpoch(7));
        assert_eq!(keys.of(KeyEpoch(5)), None);
        assert_eq!(keys.of(KeyEpoch(6)), Some(&key(6)));
        let signs = |keys: &PairKeys, theirs, number| {
            let theirs = Option::map(theirs, KeyEpoch);
            keys.for_host(theirs, SequenceNumber(number)).0.0
        };
        for (theirs, expected) in [(5, 6), (6, 6), (7, 7), (8, 7)] {
            assert_eq!(signs(&keys, Some(theirs), 1), expected);
        }
        // Of another host that has one of them or the other, every second is heard.
        assert_eq!((signs(&keys, None, 1), signs(&keys, None, 2)), (6, 7));
        let only = PairKeys::own(key(0));
        assert_eq!((signs(&only, Some(7), 1), signs(&only, None, 1)), (0, 0));
    }
}
