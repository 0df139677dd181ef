//! IP prefixes as text.

use smoltcp::wire::{IpAddress, IpCidr, Ipv4Cidr, Ipv6Cidr};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The addresses of a prefix (RFC 4632, RFC 4291), written `10.0.0.0/24`; a single
/// address without a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix(IpCidr);

impl Prefix {
    /// Makes the prefix of all addresses that share the first `length` bits of `address`.
    ///
    /// # Errors
    /// The length is more than an address has bits, or a later bit of `address` is set.
    pub fn new(address: IpAddr, length: u8) -> Result<Self, PrefixError> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        if length > bits {
            return Err(PrefixError::Length { length, bits });
        }
        let network: IpAddr = match address {
            IpAddr::V4(v4) => Ipv4Cidr::new(v4, length).network().address().into(),
            IpAddr::V6(v6) => {
                let kept = u128::MAX.checked_shl(u32::from(128 - length)).unwrap_or(0);
                Ipv6Addr::from(u128::from(v6) & kept).into()
            }
        };
        if network != address {
            return Err(PrefixError::HostBits {
                address,
                network,
                length,
            });
        }
        Ok(Self(IpCidr::new(IpAddress::from(address), length)))
    }

    /// The prefix of all IPv6 link-local addresses (RFC 4291, 2.5.6).
    pub const LINK_LOCAL: Self = Self(IpCidr::Ipv6(Ipv6Cidr::new(
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0),
        64,
    )));

    /// Returns the first address.
    pub fn address(self) -> IpAddr {
        self.0.address().into()
    }

    /// Returns the number of bits that the addresses share.
    pub const fn length(self) -> u8 {
        self.0.prefix_len()
    }

    /// Returns the address of a prefix with a single one.
    pub fn single(self) -> Option<IpAddr> {
        let bits = if self.address().is_ipv4() { 32 } else { 128 };
        (self.length() == bits).then(|| self.address())
    }

    /// Returns true if `address` is in the prefix.
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains_addr(&address.into())
    }

    /// Returns true if the prefixes have a common address.
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.address()) || other.contains(self.address())
    }
}

impl From<IpAddr> for Prefix {
    fn from(address: IpAddr) -> Self {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        Self(IpCidr::new(address.into(), bits))
    }
}

impl From<Ipv4Addr> for Prefix {
    fn from(address: Ipv4Addr) -> Self {
        IpAddr::from(address).into()
    }
}

impl From<Ipv6Addr> for Prefix {
    fn from(address: Ipv6Addr) -> Self {
        IpAddr::from(address).into()
    }
}

/// Reason why a text is not a prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// The text contains no address.
    #[error(
        "{0:?} is neither an IP address nor a prefix; write for example \"10.0.0.1\" or \
         \"10.0.0.0/24\""
    )]
    Text(String),
    /// The length is too large.
    #[error("a prefix of {length} bits is longer than an address; use at most {bits}")]
    Length {
        /// The length in the text.
        length: u8,
        /// The number of bits of an address.
        bits: u8,
    },
    /// The address has bits set behind the length.
    #[error(
        "{address}/{length} has bits set behind the first {length}; for all of the prefix write \
         \"{network}/{length}\", for the one address \"{address}\""
    )]
    HostBits {
        /// The address in the text.
        address: IpAddr,
        /// The address without these bits.
        network: IpAddr,
        /// The length.
        length: u8,
    },
}

impl FromStr for Prefix {
    type Err = PrefixError;
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let bad = || PrefixError::Text(text.to_owned());
        let Some((address, length)) = text.split_once('/') else {
            return Ok(text.parse::<IpAddr>().map_err(|_| bad())?.into());
        };
        let plain = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        let length = length.parse().ok().filter(|_| plain).ok_or_else(bad)?;
        Self::new(address.parse().map_err(|_| bad())?, length)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.single() {
            Some(address) => address.fmt(f),
            None => self.0.fmt(f),
        }
    }
}

impl<'de> serde::Deserialize<'de> for Prefix {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("a prefix")
    }

    #[test]
    fn a_prefix_contains_all_addresses_with_its_leading_bits() {
        let four = prefix("10.0.0.0/24");
        assert!(four.contains(IpAddr::from([10, 0, 0, 255])));
        assert!(!four.contains(IpAddr::from([10, 0, 1, 0])));
        assert!(!four.contains("::".parse().expect("an address")));
        assert_eq!(four.single(), None);
        let one = prefix("fd00::1");
        assert_eq!(one.single(), "fd00::1".parse().ok());
        assert!(prefix("fd00::/64").overlaps(one) && one.overlaps(prefix("::/0")));
        assert!(!prefix("10.0.0.0/25").overlaps(prefix("10.0.0.128/25")));
        assert_eq!(Prefix::LINK_LOCAL, prefix("fe80::/64"));
    }

    #[test]
    fn a_prefix_error_suggests_the_correct_form() {
        let error = |text: &str| text.parse::<Prefix>().expect_err("wrong").to_string();
        assert!(error("10.0.0.5/24").contains("write \"10.0.0.0/24\""));
        assert!(error("fd00::1/64").contains("write \"fd00::/64\""));
        assert!(error("fd00::1/0").contains("write \"::/0\""));
        assert!(error("10.0.0.0/33").contains("at most 32"));
        for text in [
            "",
            "/",
            "10.0.0/8",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/8/8",
        ] {
            assert!(error(text).contains("neither an IP address"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_value_parses_to_the_same_value(address: u128, length in 0u8..=128, v4: bool) {
            let kept = |bits: u32, length: u8| {
                u128::MAX.checked_shl(bits - u32::from(length)).unwrap_or(0)
            };
            let (address, length): (IpAddr, _) = if v4 {
                let length = length % 33;
                let address = u32::try_from(address >> 96).expect("32 bits");
                let network = u128::from(address) & kept(32, length);
                (Ipv4Addr::from(network as u32).into(), length)
            } else {
                (Ipv6Addr::from(address & kept(128, length)).into(), length)
            };
            let prefix = Prefix::new(address, length).expect("a prefix");
            prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
            prop_assert!(prefix.contains(address));
        }
    }
}
