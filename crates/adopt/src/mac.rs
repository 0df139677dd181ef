//! A MAC address as text.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// A MAC address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Returns true if one station can have it.
    pub fn is_station(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.map(|byte| format!("{byte:02x}"));
        f.write_str(&bytes.join(":"))
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no MAC address of a station; write 02:00:00:00:00:01");
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let is_hexadecimal =
                |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            let part = parts.next().filter(is_hexadecimal).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        let mac = Self(bytes);
        if parts.next().is_some() || !mac.is_station() {
            return Err(wrong());
        }
        Ok(mac)
    }
}

impl Serialize for Mac {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_is_read_as_it_is_written() {
        let mac: Mac = "02:00:00:00:0a:ff".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:00:00:0a:ff");
        for wrong in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:00:01",
            "01:00:00:00:00:01",
            "00:00:00:00:00:00",
            "2:0:0:0:0:1",
            "02:00:00:00:00:+1",
        ] {
            assert!(wrong.parse::<Mac>().is_err(), "{wrong}");
        }
    }
}
