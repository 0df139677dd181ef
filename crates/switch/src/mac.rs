//! MAC addresses as text.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

/// A 48-bit MAC address, written `02:00:00:00:00:01`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl Hash for Mac {
    /// Returns the address as one number, which takes less work for a hash than six bytes.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut number = [0; 8];
        number[..6].copy_from_slice(&self.0);
        state.write_u64(u64::from_le_bytes(number));
    }
}

impl Mac {
    /// The address of all stations.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns true for the address of a group of stations, broadcast included.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns true for 01:80:C2:00:00:00 to 0F, which no bridge forwards (IEEE 802.1Q, 8.6.3).
    pub const fn is_link_local_group(self) -> bool {
        matches!(self.0, [0x01, 0x80, 0xc2, 0, 0, 0..=0x0f])
    }

    /// Returns the interface identifier that a stateless IPv6 address takes from this one (RFC
    /// 4291, appendix A).
    pub const fn eui64(self) -> [u8; 8] {
        let mac = self.0;
        [
            mac[0] ^ 2,
            mac[1],
            mac[2],
            0xff,
            0xfe,
            mac[3],
            mac[4],
            mac[5],
        ]
    }

    /// Returns the address that an interface identifier was made of, if it looks like one of
    /// [`Mac::eui64`].
    pub const fn from_eui64(identifier: [u8; 8]) -> Option<Self> {
        let [_, _, _, 0xff, 0xfe, ..] = identifier else {
            return None;
        };
        let i = identifier;
        Some(Self([i[0] ^ 2, i[1], i[2], i[5], i[6], i[7]]))
    }
}

/// Reason why a text is not a MAC address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a MAC address; write six bytes in hexadecimal, for example \"02:00:00:00:00:01\""
)]
pub struct MacError(String);

impl FromStr for Mac {
    type Err = MacError;
    fn from_str(text: &str) -> Result<Self, MacError> {
        let bad = || MacError(text.to_owned());
        let mut mac = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut mac {
            let part = parts.next().ok_or_else(bad)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(bad());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() {
            return Err(bad());
        }
        Ok(Self(mac))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0;
        write!(f, "{first:02x}")?;
        rest.iter().try_for_each(|byte| write!(f, ":{byte:02x}"))
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<'de> serde::Deserialize<'de> for Mac {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl serde::Serialize for Mac {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_value_parses_to_the_same_value() {
        let mac = Mac([0x02, 0xab, 0, 1, 0xff, 9]);
        assert_eq!(mac.to_string().parse(), Ok(mac));
        assert_eq!(Mac::from_eui64(mac.eui64()), Some(mac));
        assert_eq!(Mac::from_eui64([0; 8]), None);
    }

    #[test]
    fn anything_but_six_hexadecimal_bytes_is_refused() {
        for text in [
            "",
            "02",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "+2:00:00:00:00:01",
            "02-00-00-00-00-01",
            "0200:00:00:00:01",
            "02:00:00:00:00:0g",
        ] {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }
}
