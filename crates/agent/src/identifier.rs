//! Identifiers of virtual machines, which are unique on a host, unlike their names.

use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// The UUID of a libvirt domain, as `virsh domuuid` prints it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Uuid(u128);

/// A text that is no UUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a UUID; use what `virsh domuuid NAME` prints, such as \
     \"3f0c7ad2-9b1e-4c55-8d7a-444455556666\""
)]
pub struct UuidError(String);

/// The lengths of the groups of digits.
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

impl FromStr for Uuid {
    type Err = UuidError;
    fn from_str(text: &str) -> Result<Self, UuidError> {
        let is_digits = |(group, length): (&str, usize)| {
            group.len() == length && group.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let well_formed =
            text.split('-').count() == GROUPS.len() && text.split('-').zip(GROUPS).all(is_digits);
        let digits = u128::from_str_radix(&text.replace('-', ""), 16);
        match digits {
            Ok(number) if well_formed => Ok(Self(number)),
            _ => Err(UuidError(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Uuid {
    type Error = UuidError;
    fn try_from(text: String) -> Result<Self, UuidError> {
        text.parse()
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        let mut rest = digits.as_str();
        for (index, length) in GROUPS.into_iter().enumerate() {
            let (group, after) = rest.split_at(length);
            write!(f, "{}{group}", if index == 0 { "" } else { "-" })?;
            rest = after;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The number of a virtual machine of Proxmox VE, as `qm list` prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "u32")]
pub struct Vmid(u32);

/// A number that is no VMID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a VMID; use 100 to 999999999, as `qm list` prints it")]
pub struct VmidError(String);

impl TryFrom<u32> for Vmid {
    type Error = VmidError;
    fn try_from(number: u32) -> Result<Self, VmidError> {
        if (100..=999_999_999).contains(&number) {
            return Ok(Self(number));
        }
        Err(VmidError(number.to_string()))
    }
}

impl FromStr for Vmid {
    type Err = VmidError;
    fn from_str(text: &str) -> Result<Self, VmidError> {
        let number = text.parse::<u32>();
        number
            .map_err(|_| VmidError(format!("{text:?}")))?
            .try_into()
    }
}

impl fmt::Display for Vmid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_read_in_either_case_and_written_as_libvirt_does() {
        let text = "3f0c7ad2-9b1e-4c55-8d7a-444455556666";
        let uuid: Uuid = text.to_uppercase().parse().unwrap();
        assert_eq!(uuid.to_string(), text);
        assert_eq!(text.parse(), Ok(uuid));
        let zero = "00000000-0000-0000-0000-000000000000";
        assert_eq!(zero.parse::<Uuid>().unwrap().to_string(), zero);
    }

    #[test]
    fn other_texts_are_no_uuid() {
        for text in [
            "",
            "3f0c7ad29b1e4c558d7a444455556666",
            "3f0c7ad2-9b1e-4c55-8d7a-44445555666",
            "3f0c7ad2-9b1e-4c55-8d7a-444455556666-1",
            "+f0c7ad2-9b1e-4c55-8d7a-444455556666",
            "3f0c7ad2-9b1e-4c55-8d7a44-4455556666",
            "zf0c7ad2-9b1e-4c55-8d7a-444455556666",
        ] {
            let error = text.parse::<Uuid>().unwrap_err().to_string();
            assert!(error.contains("virsh domuuid"), "{error}");
        }
    }

    #[test]
    fn a_vmid_accepts_only_the_numbers_of_proxmox() {
        assert_eq!("100".parse::<Vmid>().unwrap().to_string(), "100");
        for text in ["99", "1000000000", "-1", "web", ""] {
            let error = text.parse::<Vmid>().unwrap_err().to_string();
            assert!(error.contains("qm list"), "{error}");
        }
    }
}
