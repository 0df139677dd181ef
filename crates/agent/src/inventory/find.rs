//! The guest that a person means. Pure.

use super::super::text::printable;
use super::identity::{Identity, short};
use super::{Guest, Inventory};

/// The fewest digits of a container's id that pick it.
const MIN_DIGITS: usize = 4;
/// Largest number of names in an error.
const MAX_LISTED: usize = 20;

/// Reason why a text selects no guest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// No guest has this name.
    #[error("there is no guest \"{asked}\" here; {}", listed(.known))]
    Unknown {
        /// The name that was asked for.
        asked: String,
        /// The names of all guests.
        known: Vec<String>,
    },
    /// Several have that name.
    #[error("{} guests are called \"{asked}\"; use a key: {}", .keys.len(), .keys.join(", "))]
    Several {
        /// The name that was asked for.
        asked: String,
        /// Their keys.
        keys: Vec<String>,
    },
}

fn listed(known: &[String]) -> String {
    if known.is_empty() {
        return "no domain, pod, container, VMM or named network namespace runs here".to_owned();
    }
    let shown = known.iter().take(MAX_LISTED).map(String::as_str);
    let shown: Vec<_> = shown.collect();
    let more = known.len().saturating_sub(MAX_LISTED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("running here: {}{more}", shown.join(", "))
}

impl Inventory {
    /// Returns the guest with this key or name, or whose container id begins so.
    ///
    /// # Errors
    /// None or several are meant; the message lists what there is.
    pub fn find(&self, query: &str) -> Result<&Guest, FindError> {
        find(&self.guests, query)
    }
}

fn find<'g>(guests: &'g [Guest], query: &str) -> Result<&'g Guest, FindError> {
    let is_key = |guest: &&Guest| *guest.key == *query;
    if let Some(guest) = guests.iter().find(is_key) {
        return Ok(guest);
    }
    let named: Vec<_> = guests.iter().filter(|guest| guest.name == query).collect();
    let matches = if named.is_empty() {
        let begins = |guest: &&Guest| has_id(guest, query);
        guests.iter().filter(begins).collect()
    } else {
        named
    };
    match matches.as_slice() {
        [one] => Ok(one),
        [] => Err(FindError::Unknown {
            asked: printable(query),
            known: guests.iter().map(|guest| guest.name.clone()).collect(),
        }),
        several => Err(FindError::Several {
            asked: printable(query),
            keys: several.iter().map(|guest| guest.key.to_string()).collect(),
        }),
    }
}

/// Returns true if the guest has a container whose id begins with `query`, or is a pod with that
/// UID or a domain with that UUID.
fn has_id(guest: &Guest, query: &str) -> bool {
    let begins = |id: &str| query.len() >= MIN_DIGITS && id.starts_with(query);
    match &guest.identity {
        Identity::Container { id, .. } => begins(id) || short(id) == query,
        Identity::Pod { uid, .. } => uid == query || guest.containers.keys().any(|id| begins(id)),
        Identity::Domain { uuid, .. } => uuid.is_some_and(|uuid| uuid.to_string() == query),
        Identity::Vmm { process, .. } => process.pid.to_string() == query,
        Identity::Namespace { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity::Runtime;
    use super::*;

    fn container(id: &str, name: Option<&str>) -> Guest {
        let identity = Identity::Container {
            runtime: Runtime::Docker,
            id: id.repeat(16),
            name: name.map(str::to_owned),
        };
        Guest::new(identity)
    }

    #[test]
    fn a_name_that_two_guests_have_is_refused_with_their_keys() {
        let guests = [
            container("4fa6", Some("web")),
            container("5fa6", Some("web")),
            container("5fb6", None),
        ];
        let key = |asked: &str| find(&guests, asked).map(|guest| guest.key.to_string());
        assert_eq!(key("4fa6"), Ok("container/4fa64fa64fa6".into()));
        assert_eq!(key("5fb65fb65fb6"), Ok("container/5fb65fb65fb6".into()));
        assert_eq!(
            key("container/5fa65fa65fa6"),
            Ok("container/5fa65fa65fa6".into())
        );
        let error = key("web").unwrap_err().to_string();
        assert!(error.starts_with("2 guests are called \"web\""), "{error}");
        assert!(
            error.contains("container/4fa64fa64fa6, container/5fa65fa65fa6"),
            "{error}"
        );
        let error = key("5f").unwrap_err().to_string();
        assert!(
            error.contains("running here: web, web, 5fb65fb65fb6"),
            "{error}"
        );
        let error = find(&[], "\x1b").unwrap_err().to_string();
        assert!(!error.chars().any(char::is_control), "{error}");
    }
}
