//! The keys that datagrams are signed with: one a pair of hosts.
//!
//! A pair's key follows from a secret and the names of both hosts (HKDF-SHA256, RFC
//! 5869). Whoever has the secret can derive every pair's key. Whoever has the keys of
//! one host's pairs can speak for that host alone.

use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::str::FromStr;

/// The shortest secret that is taken, in bytes: as long as the hash (RFC 2104, 3).
pub const SHORTEST_SECRET: usize = 32;

/// Bytes of a pair's key, and of a MAC.
pub(crate) const LENGTH: usize = 32;

/// What no other use of the same secret derives keys by.
const PURPOSE: &[u8] = b"tailbound hose, version 2";

/// What all pairs' keys follow from. `Debug` does not show it.
#[derive(Clone)]
pub struct Secret(Hkdf<Sha256>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// The secret of these bytes; `None` where they are fewer than [`SHORTEST_SECRET`].
    pub fn new(secret: &[u8]) -> Option<Self> {
        (secret.len() >= SHORTEST_SECRET).then(|| Self(Hkdf::new(Some(PURPOSE), secret)))
    }

    /// The key of two hosts, whichever is named first.
    #[expect(clippy::missing_panics_doc, reason = "it does not")]
    pub fn pair_key(&self, one: &str, other: &str) -> Key {
        let (first, second) = if one <= other {
            (one, other)
        } else {
            (other, one)
        };
        // The length ends the first name, so that no two pairs are written alike.
        let len = (first.len() as u64).to_be_bytes();
        let info = [&len[..], first.as_bytes(), second.as_bytes()];
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

    /// The key in 64 hexadecimal digits, as [`Key::from_str`] reads it.
    pub fn to_hex(&self) -> String {
        let digits = self.bytes.iter().map(|byte| format!("{byte:02x}"));
        digits.collect()
    }

    /// Appends the MAC of all that is in `datagram`.
    pub(crate) fn seal(&self, datagram: &mut Vec<u8>) {
        let mac = self.mac.clone().chain_update(&datagram).finalize();
        datagram.extend_from_slice(&mac.into_bytes());
    }

    /// Whether `mac` is the MAC of `body`, in constant time.
    pub(crate) fn verifies(&self, body: &[u8], mac: &[u8]) -> bool {
        let signed = self.mac.clone().chain_update(body);
        signed.verify_slice(mac).is_ok()
    }
}

/// A text that is no key. It does not say which text: that may be nearly one.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Secret {
        Secret::new(b"0123456789abcdef0123456789abcdef").unwrap()
    }

    #[test]
    fn a_key_is_of_two_hosts_in_either_order_and_of_no_others() {
        let key = secret().pair_key("a", "b");
        assert_eq!(key, secret().pair_key("b", "a"));
        for (one, other) in [("a", "c"), ("c", "b"), ("", "ab"), ("ab", ""), ("a", "a")] {
            assert_ne!(key, secret().pair_key(one, other), "{one}, {other}");
        }
        assert_ne!(secret().pair_key("a", "bc"), secret().pair_key("ab", "c"));
        let another = Secret::new(&[7; SHORTEST_SECRET]).unwrap();
        assert_ne!(key, another.pair_key("a", "b"));
        assert!(Secret::new(&[7; SHORTEST_SECRET - 1]).is_none());
    }

    /// Computed with Python's `hmac`, by the two steps of RFC 5869.
    #[test]
    fn a_key_is_derived_as_documented() {
        let key = secret().pair_key("b", "a").to_hex();
        assert_eq!(
            key,
            "51651307a428ecf4304b1cda2c2a66c2d3510b6c92fee589446e530974613b8c"
        );
    }

    #[test]
    fn a_key_is_read_as_it_is_written_and_not_shown() {
        let key = secret().pair_key("a", "b");
        assert_eq!(key.to_hex().parse(), Ok(key.clone()));
        let wrong = ["", "0", &key.to_hex()[1..], &format!("{}0", key.to_hex())];
        for text in wrong {
            assert_eq!(text.parse::<Key>(), Err(KeyTextError));
        }
        assert_eq!("g".repeat(64).parse::<Key>(), Err(KeyTextError));
        assert_eq!(format!("{key:?} {:?}", secret()), "Key Secret");
    }
}
