//! Tokens file: identities, quotas of owners, and limits on the rate of requests.
//!
//! The file has hashes only, so that a reader of the file cannot use the tokens:
//!
//! ```toml
//! [[token]]
//! name = "ops"            # for the log
//! role = "operator"
//! sha256 = "…"            # of the token, 64 hexadecimal digits
//! expires = "2027-01-31T00:00:00Z"  # left out: never
//!
//! [[token]]
//! name = "prometheus"
//! role = "metrics"        # or "viewer", "maintenance"
//! sha256 = "…"
//!
//! [[token]]
//! name = "acme-ci"
//! role = "tenant"
//! owner = "acme"
//! sha256 = "…"
//!
//! [[token]]
//! name = "host-a-1"
//! role = "host"
//! host = "a-1"
//! sha256 = "…"
//!
//! [[quota]]               # what an owner may have by its own tokens
//! owner = "acme"          # left out: each owner that has none of its own
//! tenants = 20
//! vms = 600
//! bandwidth = "100Gbit/s" # guaranteed to all its machines together
//! reservations = 200      # open at a time
//!
//! [requests]              # a second, at most; ten seconds' worth at once
//! tenant = 100            # each tenant's token
//! host = 50               # each host's token
//! stranger = 50           # each address without a known token
//! operator = 1000         # each token of another role; not limited if left out
//! ```

use crate::expiry::Expiry;
use crate::ledger::token::check_scope;
use crate::ledger::{Quota, TokenHash, TokenRecord};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::num::NonZeroU32;
use std::path::Path;
use tailbound_api::TokenRole;
use tailbound_document::{Document, DocumentError, Mistake, Problem, Step, unknown_word};
use tailbound_units::Rate;

/// The role of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// May do everything.
    Operator,
    /// As a viewer, and may drain and restore hosts.
    Maintenance,
    /// Reads everything that an operator reads but secrets: backups and keys of hosts.
    Viewer,
    /// Reads the metrics, and nothing else.
    Metrics,
    /// Sees and changes what is the owner's.
    Tenant {
        /// The owner.
        owner: String,
    },
    /// Reads what one host has to keep to.
    Host {
        /// The host's name.
        host: String,
    },
}

impl Caller {
    /// Makes the caller of a role whose scope was checked. A scope that the role needs is empty if it
    /// is missing, which no owner and no host is.
    fn of(role: TokenRole, owner: Option<&str>, host: Option<&str>) -> Self {
        let named = |scope: Option<&str>| scope.unwrap_or_default().to_owned();
        match role {
            TokenRole::Operator => Self::Operator,
            TokenRole::Maintenance => Self::Maintenance,
            TokenRole::Viewer => Self::Viewer,
            TokenRole::Metrics => Self::Metrics,
            TokenRole::Tenant => Self::Tenant {
                owner: named(owner),
            },
            TokenRole::Host => Self::Host { host: named(host) },
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator => formatter.write_str("operator"),
            Self::Maintenance => formatter.write_str("maintenance"),
            Self::Viewer => formatter.write_str("viewer"),
            Self::Metrics => formatter.write_str("metrics"),
            Self::Tenant { owner } => write!(formatter, "tenant {owner}"),
            Self::Host { host } => write!(formatter, "host {host}"),
        }
    }
}

/// The name and the role of a known token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The token's name; never secret.
    pub name: String,
    /// The role of its holder.
    pub caller: Caller,
    /// The list that has the token.
    pub(super) origin: Origin,
    /// The end of the token's validity; None has no end.
    pub(super) expires: Option<Expiry>,
}

/// The list that has a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// None: the server requires no token.
    Open,
    /// The tokens file, with this hash.
    File([u8; 32]),
    /// The store, with this hash.
    Store([u8; 32]),
}

/// Requests a second, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Rates {
    /// Requests a second with each tenant's token.
    tenant: NonZeroU32,
    /// Requests a second with each host's token.
    host: NonZeroU32,
    /// Requests a second from each address without a known token.
    pub(super) stranger: NonZeroU32,
    /// Requests a second with each token of another role; None has no limit.
    operator: Option<NonZeroU32>,
}

impl Default for Rates {
    fn default() -> Self {
        const fn rate(a_second: u32) -> NonZeroU32 {
            match NonZeroU32::new(a_second) {
                Some(rate) => rate,
                None => NonZeroU32::MIN,
            }
        }
        Self {
            tenant: rate(100),
            host: rate(50),
            stranger: rate(50),
            operator: None,
        }
    }
}

impl Identity {
    /// Makes the identity of an issued token.
    pub(super) fn issued(token: &TokenRecord) -> Self {
        let (owner, host) = (token.owner.as_deref(), token.host.as_deref());
        Self {
            name: token.name.clone(),
            caller: Caller::of(token.role, owner, host),
            origin: Origin::Store(token.sha256.0),
            expires: token.expires.map(Expiry::at),
        }
    }

    /// Returns the token's hash; None if the server requires no token.
    pub(super) const fn hash(&self) -> Option<[u8; 32]> {
        match self.origin {
            Origin::Open => None,
            Origin::File(hash) | Origin::Store(hash) => Some(hash),
        }
    }

    /// Returns whether the token is not valid any more.
    pub(super) fn has_expired(&self) -> bool {
        self.expires.is_some_and(Expiry::is_past)
    }
}

impl Rates {
    pub(super) fn of(&self, caller: &Caller) -> Option<NonZeroU32> {
        match caller {
            Caller::Operator | Caller::Maintenance | Caller::Viewer | Caller::Metrics => {
                self.operator
            }
            Caller::Tenant { .. } => Some(self.tenant),
            Caller::Host { .. } => Some(self.host),
        }
    }
}

/// Rule for an owner's name.
const OWNER: &str = "an owner is 1 to 63 of a-z, 0-9 and -, neither first nor last a -";
/// Rule for a token's hash.
const HASH: &str = "this is not 64 hexadecimal digits; it is the token's hash, which `tailbound \
    place token` prints";

/// Rule for the end of a token.
const EXPIRES: &str = "this is no date and time with an offset, such as 2027-01-31T00:00:00Z";

/// Returns the hash by which a token is kept.
pub(super) fn hash_of(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// All tokens of a file.
#[derive(Debug, Default)]
pub struct Tokens {
    by_hash: HashMap<[u8; 32], Identity>,
    /// Quotas of owners by name; the entry None is the default.
    quotas: HashMap<Option<String>, Quota>,
    /// Limits on the rate of requests.
    pub(super) rates: Rates,
}

/// Quota for the tenants that an owner's tokens create.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaEntry {
    owner: Option<String>,
    tenants: Option<u64>,
    vms: Option<u64>,
    bandwidth: Option<Rate>,
    reservations: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenEntry {
    /// Name in the audit log.
    name: String,
    /// Permissions.
    role: TokenRole,
    /// Owner of the tenants (role `tenant`).
    owner: Option<String>,
    /// Name of the host (role `host`).
    host: Option<String>,
    /// Hexadecimal SHA-256 of the secret.
    sha256: String,
    /// The end of the validity, as a date and time with an offset.
    expires: Option<String>,
}

impl Tokens {
    /// Reads a tokens file.
    ///
    /// # Errors
    /// The file is unreadable, is not of the form above, has no token, or has a token twice. The
    /// error lists all mistakes.
    pub fn load(path: &Path) -> Result<Self, DocumentError> {
        DocumentError::load(path, Self::parse)
    }

    /// Reads the text of a tokens file.
    ///
    /// # Errors
    /// All mistakes, with their positions.
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        let document = Document::parse(text)?;
        let mut mistakes = Vec::new();
        let mut entries: Vec<(usize, TokenEntry)> = Vec::new();
        let mut quotas: Vec<(usize, QuotaEntry)> = Vec::new();
        let mut rates: Option<Rates> = None;
        for entry in document.entries() {
            match entry.key() {
                "token" => entries = entry.read_list(&mut mistakes),
                "quota" => quotas = entry.read_list(&mut mistakes),
                "requests" => rates = entry.read(&mut mistakes),
                other => {
                    let known = ["token", "quota", "requests"];
                    mistakes.push(entry.wrong_key(unknown_word("key", other, &known)));
                }
            }
        }
        if entries.is_empty() && mistakes.is_empty() {
            let message = "there are no tokens; `tailbound place token --role operator` makes one";
            mistakes.push(document.mistake(0..0, message));
        }
        let mut tokens = Self {
            rates: rates.unwrap_or_default(),
            ..Self::default()
        };
        let mut names = HashSet::new();
        let mut problems = Vec::new();
        for (index, entry) in entries {
            let problem = |key, message: String| {
                let path = [Step::Key("token"), Step::Index(index), Step::Key(key)];
                Problem::new(&path, message)
            };
            if !names.insert(entry.name.clone()) {
                let message = format!("there are two tokens named {:?}", entry.name);
                problems.push(problem("name", message));
            }
            match entry.identity() {
                Ok((hash, identity)) => {
                    if let Some(other) = tokens.by_hash.insert(hash, identity) {
                        let message = format!("this is the token {:?} again", other.name);
                        problems.push(problem("sha256", message));
                    }
                }
                Err((key, message)) => problems.push(problem(key, message.to_owned())),
            }
        }
        for (index, entry) in quotas {
            if let Err((key, message)) = tokens.add_quota(entry) {
                let path = [Step::Key("quota"), Step::Index(index), Step::Key(key)];
                problems.push(Problem::new(&path, message));
            }
        }
        mistakes.extend(document.locate(problems));
        if mistakes.is_empty() {
            return Ok(tokens);
        }
        mistakes.sort_by_key(|mistake| mistake.location);
        Err(mistakes)
    }

    /// Adds a quota. The error is the wrong key and the reason.
    fn add_quota(&mut self, entry: QuotaEntry) -> Result<(), (&'static str, String)> {
        let QuotaEntry {
            owner,
            tenants,
            vms,
            bandwidth,
            reservations,
        } = entry;
        if let Some(owner) = owner
            .as_deref()
            .filter(|owner| !tailbound_api::is_name(owner))
        {
            return Err(("owner", format!("{owner:?} is no owner: {OWNER}")));
        }
        let quota = Quota {
            tenants,
            vms,
            bandwidth,
            reservations,
        };
        let of = match &owner {
            Some(owner) => format!("the owner {owner:?}"),
            None => "all other owners (without `owner`)".to_owned(),
        };
        match self.quotas.insert(owner, quota) {
            None => Ok(()),
            Some(_) => Err(("owner", format!("there are two quotas of {of}"))),
        }
    }

    /// Returns what an owner may have at most by its own tokens.
    pub fn quota(&self, owner: &str) -> Quota {
        let own = self.quotas.get(&Some(owner.to_owned()));
        own.or_else(|| self.quotas.get(&None))
            .copied()
            .unwrap_or_default()
    }

    /// Returns the holder of a token, also of one that has expired.
    ///
    /// Only the hash is compared. The duration of the comparison can leak bits of the hash, and a
    /// token cannot be computed from its hash.
    pub fn identify(&self, token: &[u8]) -> Option<&Identity> {
        self.by_hash.get(&hash_of(token))
    }

    /// Returns the tokens of the file that have expired, and the ends of their validity in seconds since
    /// 1970.
    pub(super) fn expired(&self) -> impl Iterator<Item = (&str, u64)> {
        let ended = self.by_hash.values().filter(|token| token.has_expired());
        ended.filter_map(|token| Some((token.name.as_str(), token.expires?.seconds())))
    }

    /// Returns whether a token of the file has this name.
    pub(super) fn has_name(&self, name: &str) -> bool {
        self.by_hash.values().any(|token| token.name == name)
    }

    /// Returns whether the token is still in the file, with the same role, and has not expired.
    pub(super) fn have(&self, identity: &Identity) -> bool {
        let stored_identity = identity.hash().and_then(|hash| self.by_hash.get(&hash));
        stored_identity == Some(identity) && !identity.has_expired()
    }

    /// Returns the number of tokens.
    pub fn count(&self) -> usize {
        self.by_hash.len()
    }
}

impl TokenEntry {
    /// Returns the hash and the identity, or the key that is wrong and why.
    fn identity(&self) -> Result<([u8; 32], Identity), (&'static str, &'static str)> {
        let caller = self.caller()?;
        let hash = self.sha256.parse::<TokenHash>();
        let TokenHash(hash) = hash.map_err(|_| ("sha256", HASH))?;
        let expires = match self.expires.as_deref().map(Expiry::parse) {
            Some(None) => return Err(("expires", EXPIRES)),
            expires => expires.flatten(),
        };
        let identity = Identity {
            name: self.name.clone(),
            caller,
            origin: Origin::File(hash),
            expires,
        };
        Ok((hash, identity))
    }

    fn caller(&self) -> Result<Caller, (&'static str, &'static str)> {
        let (owner, host) = (self.owner.as_deref(), self.host.as_deref());
        check_scope(self.role, owner, host)?;
        Ok(Caller::of(self.role, owner, host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_mistakes_of_a_file_are_reported_with_their_location() {
        let (hash, other) = ("00".repeat(32), "01".repeat(32));
        let text = format!(
            "[[token]]\nname = \"ops\"\nrole = \"operator\"\nsha256 = \"12\"\n\
             [[token]]\nname = \"ops\"\nrole = \"tenant\"\nowner = \"-a\"\nsha256 = \"{hash}\"\n\
             [[token]]\nname = \"h\"\nroll = \"host\"\n\
             [[token]]\nname = \"a\"\nrole = \"operator\"\nsha256 = \"{hash}\"\n\
             [[token]]\nname = \"b\"\nrole = \"operator\"\nsha256 = \"{hash}\"\n\
             [[token]]\nname = \"c\"\nrole = \"viewer\"\nowner = \"acme\"\nsha256 = \"{other}\"\n\
             [[token]]\nname = \"d\"\nrole = \"viewer\"\nsha256 = \"{other}\"\nexpires = \"soon\"\n"
        );
        let mistakes = Tokens::parse(&text).unwrap_err();
        let said: Vec<String> = mistakes.iter().map(Mistake::to_string).collect();
        for (said, expected) in said.iter().zip([
            "4:10: this is not 64 hexadecimal digits",
            "6:8: there are two tokens named \"ops\"",
            "8:9: an owner is 1 to 63 of",
            "12:1: unknown key `roll`; did you mean `role`?",
            "20:10: this is the token \"a\" again",
            "23:8: only the roles tenant and host have an owner",
            "30:11: this is no date and time with an offset",
        ]) {
            assert!(said.starts_with(expected), "{said}\ninstead of {expected}");
        }
        assert_eq!(said.len(), 7);
        let empty = Tokens::parse("").unwrap_err();
        assert!(empty[0].message.starts_with("there are no tokens"));
    }
}
