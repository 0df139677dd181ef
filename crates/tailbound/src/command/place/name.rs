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
            state: None,
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

/// The name of a new tenant: its name, or its owner and name.
///
/// Any text is taken for a name: the service's error has the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::command) struct NewName {
    owner: Option<String>,
    name: String,
}

impl FromStr for NewName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (owner, name) = match text.split_once('/') {
            Some((owner, name)) => (Some(owner), name),
            None => (None, text),
        };
        if owner.is_some_and(|owner| !is_name(owner)) || name.contains('/') {
            return Err("a new tenant is NAME or OWNER/NAME, of a-z, 0-9 and -".to_owned());
        }
        Ok(Self {
            owner: owner.map(str::to_owned),
            name: name.to_owned(),
        })
    }
}

impl NewName {
    /// Returns the owner and the name of a tenant, whose owner may be in an option, too.
    ///
    /// # Errors
    /// There are two owners.
    pub(in crate::command) fn parts<'n>(
        named: Option<&'n Self>,
        owner: Option<&'n String>,
    ) -> Result<(Option<&'n String>, Option<&'n String>), Failure> {
        let own = named.and_then(|named| named.owner.as_ref());
        let name = named.map(|named| &named.name);
        match (own, owner) {
            (Some(own), Some(owner)) if own != owner => Err(Failure::wrong_arguments(format!(
                "the name has the owner {own:?}, and --owner is {owner:?}; leave one out"
            ))),
            (own, owner) => Ok((own.or(owner), name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_tenant_has_the_owner_of_its_name_or_of_the_option() {
        let globex = "globex".to_owned();
        let parts = |text: &str, owner: Option<&String>| {
            let named: NewName = text.parse().unwrap();
            let (owner, name) = NewName::parts(Some(&named), owner).ok()?;
            Some((owner.cloned(), name.cloned().unwrap()))
        };
        let expected = |owner: &str| Some((Some(owner.to_owned()), "web".to_owned()));
        assert_eq!(parts("acme/web", None), expected("acme"));
        assert_eq!(parts("web", Some(&globex)), expected("globex"));
        assert_eq!(parts("globex/web", Some(&globex)), expected("globex"));
        assert_eq!(parts("acme/web", Some(&globex)), None);
        assert_eq!(parts("web", None), Some((None, "web".to_owned())));
        for wrong in ["/web", "a/b/c", "A/web"] {
            assert!(wrong.parse::<NewName>().is_err(), "{wrong}");
        }
    }

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
