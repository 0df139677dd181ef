//! Names of tenants on the command line.

use super::service::Service;
use crate::exit::Failure;
use std::str::FromStr;
use tailbound_api::client::{Client, TenantFilter};
use tailbound_api::is_name;
use tailbound_placement::TenantId;

/// A tenant: its ID, its name, or its owner and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::command) enum TenantName {
    Id(TenantId),
    Name { owner: Option<String>, name: String },
}

impl FromStr for TenantName {
    type Err = String;

    /// Parses a name. A number is an ID; a tenant whose name is a number needs its owner before it.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(TenantId(id)));
        }
        let (owner, name) = match text.split_once('/') {
            Some((owner, name)) => (Some(owner), name),
            None => (None, text),
        };
        if is_name(name) && owner.is_none_or(is_name) {
            return Ok(Self::Name {
                owner: owner.map(str::to_owned),
                name: name.to_owned(),
            });
        }
        Err("a tenant is its id, NAME or OWNER/NAME, of a-z, 0-9 and -".to_owned())
    }
}

impl TenantName {
    /// Returns the ID of the selected tenant.
    pub(in crate::command) fn id(
        &self,
        service: &Service,
        client: &Client,
    ) -> Result<TenantId, Failure> {
        let (owner, name) = match self {
            Self::Id(id) => return Ok(*id),
            Self::Name { owner, name } => (owner, name),
        };
        let filter = TenantFilter {
            owner: owner.clone(),
            name: Some(name.clone()),
        };
        let page = client
            .tenants(&filter, None)
            .map_err(|error| service.failure(error))?;
        let shown = owner
            .as_ref()
            .map_or_else(|| name.clone(), |owner| format!("{owner}/{name}"));
        match page.items.as_slice() {
            [] => Err(Failure::new(format!(
                "there is no tenant {shown} that you may see; tailbound place list has them all"
            ))),
            [tenant] => Ok(tenant.id),
            several => {
                let several: Vec<_> = several
                    .iter()
                    .map(|tenant| format!("{}/{} (id {})", tenant.owner, tenant.name, tenant.id.0))
                    .collect();
                Err(Failure::new(format!(
                    "several tenants have the name {shown}: {}; select one of them",
                    several.join(", ")
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_an_id_unless_an_owner_stands_before_it() {
        assert_eq!("17".parse(), Ok(TenantName::Id(TenantId(17))));
        let named = |owner: Option<&str>, name: &str| TenantName::Name {
            owner: owner.map(str::to_owned),
            name: name.to_owned(),
        };
        assert_eq!("web".parse(), Ok(named(None, "web")));
        assert_eq!("acme/17".parse(), Ok(named(Some("acme"), "17")));
        for wrong in ["", "/", "acme/", "/web", "a/b/c", "Web", "a b", "../x"] {
            assert!(wrong.parse::<TenantName>().is_err(), "{wrong}");
        }
    }
}
