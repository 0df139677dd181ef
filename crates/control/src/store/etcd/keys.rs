//! The keys of the store, and their documents.
//!
//! ```text
//! PREFIX/leader                 the leader; held by a lease
//! PREFIX/commits                TERM/NUMBER of the last commit
//! PREFIX/data/tenants/ID        20 digits, for the order
//! PREFIX/data/sections/ID/NUMBER   machines of a tenant that its document has otherwise
//! PREFIX/data/hosts             states of all hosts that are not open
//! PREFIX/data/said/HOST         the last report of a host
//! PREFIX/data/topology
//! PREFIX/data/next-id
//! PREFIX/data/keys/OWNER/KEY    idempotency keys; `-` is the operators' OWNER
//! PREFIX/tokens/NAME            issued tokens
//! PREFIX/audit/NUMBER           entries of the audit from this number; 20 digits
//! PREFIX/parts/ID/NUMBER        parts of long documents
//! ```
//!
//! The audit and the tokens are not under `data`, so that earlier versions ignore them: there, an
//! issued token is unknown. Earlier versions refuse a store with sections.

use super::value::Pointer;
use crate::ledger::{Change, KeyId, Subject, TokenRecord};
use crate::store::sections::Section;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use tailbound_placement::TenantId;

/// The owner in the keys of operators; names of owners never start with it.
const OPERATORS: &str = "-";
/// Prefix of the names of the audit's documents.
const AUDIT: &str = "audit/";
/// Prefix of the names of tokens.
const TOKENS: &str = "tokens/";
/// Prefix of the names of tenants' documents.
const TENANTS: &str = "tenants/";
/// Prefix of the names of sections of tenants.
const SECTIONS: &str = "sections/";

/// Returns whether a document is not under `data`.
fn is_apart(name: &str) -> bool {
    name.starts_with(AUDIT) || name.starts_with(TOKENS)
}

/// The keys of one store.
#[derive(Debug, Clone)]
pub struct Keys {
    prefix: String,
}

impl Keys {
    /// Makes the keys of the store under a prefix without `/` at its end.
    pub fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
        }
    }

    /// Returns the prefix of all keys.
    pub fn all(&self) -> String {
        format!("{}/", self.prefix)
    }

    /// Returns the leader's key.
    pub fn leader(&self) -> String {
        format!("{}/leader", self.prefix)
    }

    /// Returns the key of the last commit's number.
    pub fn commits(&self) -> String {
        format!("{}/commits", self.prefix)
    }

    /// Returns the key of a document.
    pub(super) fn key(&self, name: &str) -> String {
        let folder = if is_apart(name) { "" } else { "data/" };
        format!("{}/{folder}{name}", self.prefix)
    }

    /// Returns the first key of each range of documents, and the first one after the range: `0`
    /// comes right after `/`.
    pub(super) fn ranges(&self) -> [(String, String); 3] {
        ["data", "audit", "tokens"].map(|folder| {
            let key = format!("{}/{folder}", self.prefix);
            (format!("{key}/"), format!("{key}0"))
        })
    }

    /// Returns the prefix of the sections of all tenants.
    pub(super) fn sections(&self) -> String {
        self.key(SECTIONS)
    }

    /// Returns the prefix of the parts of all documents.
    pub fn parts(&self) -> String {
        format!("{}/parts/", self.prefix)
    }

    /// Returns the prefix of the parts of one document.
    pub fn parts_of(&self, id: &str) -> String {
        format!("{}/parts/{id}/", self.prefix)
    }

    /// Returns the key of one part.
    pub fn part(&self, pointer: &Pointer, number: u32) -> String {
        format!("{}{number:05}", self.parts_of(&pointer.id))
    }

    /// Returns the document's name if the key is one of a document.
    pub fn document<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        let name = key.strip_prefix(self.all().as_bytes())?;
        if let Some(name) = name.strip_prefix(b"data/") {
            return std::str::from_utf8(name).ok();
        }
        std::str::from_utf8(name).ok().filter(|name| is_apart(name))
    }
}

/// Returns the prefix of the names of a tenant's sections.
pub(super) fn sections_of(id: TenantId) -> String {
    format!("{SECTIONS}{:020}/", id.0)
}

/// Returns the name of a section of a tenant.
pub(super) fn section(id: TenantId, number: u32) -> String {
    format!("{}{number:010}", sections_of(id))
}

/// Returns the tenant and the number of the section of this name.
pub(super) fn section_of(name: &str) -> Option<(TenantId, u32)> {
    let (id, number) = name.strip_prefix(SECTIONS)?.split_once('/')?;
    Some((TenantId(id.parse().ok()?), number.parse().ok()?))
}

/// Returns the tenant whose document has this name.
pub(super) fn tenant_of(name: &str) -> Option<TenantId> {
    Some(TenantId(name.strip_prefix(TENANTS)?.parse().ok()?))
}

/// Returns the digest of a tenant's document by which its sections name it.
pub(super) fn digest(document: &[u8]) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&Sha256::digest(document)[..8]);
    u64::from_le_bytes(first)
}

/// Reads a section.
pub(super) fn read_section(document: &[u8]) -> Result<Section, String> {
    parse(document)
}

/// Returns the name of a thing's document.
pub(super) fn name(subject: Subject<'_>) -> String {
    match subject {
        Subject::Tenant(id) => format!("{TENANTS}{:020}", id.0),
        Subject::Hosts => "hosts".to_owned(),
        Subject::Said(host) => format!("said/{host}"),
        Subject::Topology => "topology".to_owned(),
        Subject::NextId => "next-id".to_owned(),
        Subject::Token(token) => format!("{TOKENS}{token}"),
        Subject::Audit(first) => format!("{AUDIT}{first:020}"),
        Subject::Key(KeyId { owner, key }) => {
            format!("keys/{}/{key}", owner.as_deref().unwrap_or(OPERATORS))
        }
    }
}

/// Returns the document after a change; None if the change deletes it.
pub(super) fn document(change: &Change) -> Result<Option<Vec<u8>>, serde_json::Error> {
    match change {
        Change::Tenant(tenant) => serde_json::to_vec(tenant.as_ref()),
        Change::Hosts(hosts) => serde_json::to_vec(hosts.as_ref()),
        Change::Said(_, last_report) => serde_json::to_vec(last_report.as_ref()),
        Change::Topology(topology) => serde_json::to_vec(topology.as_ref()),
        Change::Key(_, record) => serde_json::to_vec(record.as_ref()),
        Change::Token(token) => serde_json::to_vec(token.as_ref()),
        Change::NextId(next) => serde_json::to_vec(next),
        Change::Audit(_, block) => serde_json::to_vec(block.as_ref()),
        Change::Gone(_)
        | Change::KeyGone(_)
        | Change::SaidGone(_)
        | Change::TokenGone(_)
        | Change::AuditGone(_) => return Ok(None),
    }
    .map(Some)
}

/// Returns the change that a put or deleted document makes: the inverse of `name` and `document`.
/// Otherwise returns what is wrong.
pub fn change(name: &str, document: Option<&[u8]>) -> Result<Change, String> {
    let unknown = || "there is no such document".to_owned();
    if let Some(id) = name.strip_prefix(TENANTS) {
        let id = TenantId(id.parse().map_err(|_| unknown())?);
        return Ok(match document {
            Some(document) => Change::Tenant(Arc::new(parse(document)?)),
            None => Change::Gone(id),
        });
    }
    if let Some(key) = name.strip_prefix("keys/") {
        let (owner, key) = key.split_once('/').ok_or_else(unknown)?;
        let key = KeyId {
            owner: (owner != OPERATORS).then(|| owner.to_owned()),
            key: key.to_owned(),
        };
        return Ok(match document {
            Some(document) => Change::Key(Arc::new(key), Arc::new(parse(document)?)),
            None => Change::KeyGone(key),
        });
    }
    if let Some(first) = name.strip_prefix(AUDIT) {
        let first = first.parse().map_err(|_| unknown())?;
        return Ok(match document {
            Some(document) => Change::Audit(first, Arc::new(parse(document)?)),
            None => Change::AuditGone(first),
        });
    }
    if let Some(token) = name.strip_prefix(TOKENS) {
        return Ok(match document {
            Some(document) => Change::Token(named(token, parse(document)?)?),
            None => Change::TokenGone(token.to_owned()),
        });
    }
    if let Some(host) = name.strip_prefix("said/") {
        let host = host.to_owned();
        return Ok(match document {
            Some(document) => Change::Said(host, Arc::new(parse(document)?)),
            None => Change::SaidGone(host),
        });
    }
    let document = document.ok_or("it was deleted by another program")?;
    match name {
        "hosts" => Ok(Change::Hosts(Arc::new(parse(document)?))),
        "topology" => Ok(Change::Topology(Arc::new(parse(document)?))),
        "next-id" => Ok(Change::NextId(parse(document)?)),
        _ => Err(unknown()),
    }
}

/// Returns a token whose document has its name.
fn named(name: &str, token: TokenRecord) -> Result<Arc<TokenRecord>, String> {
    if token.name == name {
        Ok(Arc::new(token))
    } else {
        Err(format!("it is the token {:?}", token.name))
    }
}

fn parse<T: DeserializeOwned + Serialize>(document: &[u8]) -> Result<T, String> {
    crate::kept::read(document)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Hosts;
    use proptest::prelude::*;
    use tailbound_api::HostState;

    fn back_and_forth(change: &Change) {
        let document = document(change).unwrap();
        let name = name(change.subject());
        assert_eq!(
            super::change(&name, document.as_deref()).as_ref(),
            Ok(change)
        );
    }

    #[test]
    fn a_change_comes_back_from_its_document() {
        let hosts: Hosts = [("a-1".to_owned(), HostState::Drained)].into();
        back_and_forth(&Change::Hosts(Arc::new(hosts)));
        back_and_forth(&Change::NextId(u64::MAX));
        back_and_forth(&Change::Gone(TenantId(7)));
        back_and_forth(&Change::AuditGone(7));
        let token = format!(
            r#"{{"name":"ci","role":"tenant","owner":"acme","sha256":"{}","issued":7,"issued_by":{{"token":"ops","role":"operator"}}}}"#,
            "0a".repeat(32)
        );
        back_and_forth(&Change::Token(serde_json::from_str(&token).unwrap()));
        let of_another = change("tokens/other", Some(token.as_bytes()));
        assert!(of_another.unwrap_err().contains("it is the token \"ci\""));
        back_and_forth(&Change::TokenGone("ci".to_owned()));
        back_and_forth(&Change::SaidGone("a/1".to_owned()));
        let said = r#"{"report":{"revision":7,"change":3},"silent_since":9}"#;
        let said = Arc::new(serde_json::from_str(said).unwrap());
        back_and_forth(&Change::Said("a/1".to_owned(), said));
        for owner in [None, Some("acme".to_owned())] {
            back_and_forth(&Change::KeyGone(KeyId {
                owner,
                key: "a/b c".to_owned(),
            }));
        }
    }

    #[test]
    fn tenants_are_listed_in_the_order_of_their_numbers() {
        let name = |id| name(Subject::Tenant(TenantId(id)));
        assert!(name(9) < name(10) && name(10) < name(u64::MAX));
    }

    proptest! {
        #[test]
        fn any_document_is_a_change_or_an_error(
            name in "(tenants/|keys/|said/|audit/|tokens/|hosts|topology|next-id)?[ -~]{0,12}",
            document in prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
        ) {
            let _ = change(&name, document.as_deref());
        }
    }
}
