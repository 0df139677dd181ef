//! Names of machines.

use crate::is_name;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The name of a machine, `OWNER/NAME/NUMBER`, which never changes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VmName {
    /// The tenant's owner.
    pub owner: String,
    /// The tenant's name.
    pub tenant: String,
    /// The machine's number within the tenant.
    pub number: u32,
}

/// An invalid name of a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no machine's name; write OWNER/NAME/NUMBER, for example \"acme/web/3\"")]
pub struct NameError(pub String);

impl FromStr for VmName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let refused = || NameError(text.to_owned());
        let mut parts = text.split('/');
        let (Some(owner), Some(tenant), Some(number), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(refused());
        };
        let name = Self {
            owner: owner.to_owned(),
            tenant: tenant.to_owned(),
            number: number.parse().map_err(|_| refused())?,
        };
        // One text for each machine: no sign, no zeros before the number.
        if is_name(owner) && is_name(tenant) && name.to_string() == text {
            Ok(name)
        } else {
            Err(refused())
        }
    }
}

impl TryFrom<String> for VmName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<VmName> for String {
    fn from(name: VmName) -> Self {
        name.to_string()
    }
}

impl fmt::Display for VmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.owner, self.tenant, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_machine_has_one_name() {
        let name: VmName = "acme/web-1/30".parse().unwrap();
        assert_eq!((name.tenant.as_str(), name.number), ("web-1", 30));
        for wrong in [
            "",
            "acme",
            "acme/web",
            "acme/web/",
            "acme/web/03",
            "acme/web/+3",
            "acme/web/-3",
            "acme/web/3/4",
            "acme//3",
            "-acme/web/3",
            "acme/Web/3",
            "acme/web/4294967296",
        ] {
            assert_eq!(wrong.parse::<VmName>(), Err(NameError(wrong.into())));
        }
    }

    proptest! {
        #[test]
        fn a_vm_name_prints_as_it_was_parsed(text in "\\PC{0,20}|[a-c-]{0,3}/[a-c-]{0,3}/[0-9]{0,3}") {
            if let Ok(name) = text.parse::<VmName>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
