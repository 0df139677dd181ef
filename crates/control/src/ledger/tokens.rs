//! Tokens that the service issued: kept by their hashes, in force at each replica that has the
//! change.

use super::change::Change;
use super::command::Reply;
use super::draft::Draft;
use super::token::{TokenHash, TokenRecord, check_scope};
use super::{Ledger, LedgerError};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use tailbound_api::is_name;
use tailbound_units::Nanos;

/// Limit on the tokens of an owner that have not expired.
pub const MAX_OF_OWNER: usize = 100;
/// Limit on all tokens that have not expired.
pub const MAX_TOKENS: usize = 200_000;
/// Limit on the expired tokens that one decision deletes, so that decisions stay short.
const FORGET: usize = 8;

/// Rule for the name of a token.
const NAME: &str = "a token's name is 1 to 63 of a-z, 0-9 and -, neither first nor last a -";

/// All tokens of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tokens {
    by_name: BTreeMap<String, Arc<TokenRecord>>,
    by_hash: HashMap<TokenHash, Arc<TokenRecord>>,
    of_owners: HashMap<String, BTreeSet<String>>,
    /// The names by the ends of their validity.
    by_end: BTreeSet<(u64, String)>,
}

impl Tokens {
    pub(super) fn get(&self, name: &str) -> Option<&Arc<TokenRecord>> {
        self.by_name.get(name)
    }

    pub(super) const fn all(&self) -> &BTreeMap<String, Arc<TokenRecord>> {
        &self.by_name
    }

    pub(super) fn put(&mut self, token: Arc<TokenRecord>) {
        self.remove(&token.name);
        if let Some(owner) = &token.owner {
            let names = self.of_owners.entry(owner.clone()).or_default();
            names.insert(token.name.clone());
        }
        if let Some(end) = token.expires {
            self.by_end.insert((end, token.name.clone()));
        }
        self.by_hash.insert(token.sha256, Arc::clone(&token));
        self.by_name.insert(token.name.clone(), token);
    }

    pub(super) fn remove(&mut self, name: &str) {
        let Some(token) = self.by_name.remove(name) else {
            return;
        };
        self.by_hash.remove(&token.sha256);
        if let Some(end) = token.expires {
            self.by_end.remove(&(end, token.name.clone()));
        }
        if let Some(owner) = &token.owner
            && let Some(names) = self.of_owners.get_mut(owner)
        {
            names.remove(name);
            if names.is_empty() {
                self.of_owners.remove(owner);
            }
        }
    }

    /// Returns the names of the tokens that have expired, the oldest first.
    fn expired(&self, now: u64) -> impl Iterator<Item = &String> {
        let ended = self.by_end.iter().take_while(move |(end, _)| *end <= now);
        ended.map(|(_, name)| name)
    }

    /// Returns the number of an owner's tokens that have not expired.
    fn live_of(&self, owner: &str, now: u64) -> usize {
        let names = self.of_owners.get(owner).into_iter().flatten();
        let tokens = names.filter_map(|name| self.by_name.get(name));
        tokens.filter(|token| !token.has_expired(now)).count()
    }

    fn check_number(&self, token: &TokenRecord, now: u64) -> Result<(), LedgerError> {
        let owner = token.owner.as_deref();
        let (has, most) = owner.map_or_else(
            || (self.by_name.len() - self.expired(now).count(), MAX_TOKENS),
            |owner| (self.live_of(owner, now), MAX_OF_OWNER),
        );
        if has < most {
            return Ok(());
        }
        Err(LedgerError::Quota {
            owner: owner.unwrap_or("the service").to_owned(),
            after: format!("{} tokens", has + 1),
            most: most.to_string(),
            before: has.to_string(),
        })
    }
}

/// Returns the token with this hash, also one that has expired.
pub(crate) fn identify(ledger: &Ledger, hash: [u8; 32]) -> Option<&Arc<TokenRecord>> {
    ledger.callers.tokens.by_hash.get(&TokenHash(hash))
}

/// Returns the names of the tokens that have expired, and the ends of their validity.
pub(crate) fn expired(ledger: &Ledger, now: u64) -> impl Iterator<Item = (&str, u64)> {
    let ended = ledger.callers.tokens.by_end.iter();
    let ended = ended.take_while(move |(end, _)| *end <= now);
    ended.map(|(end, name)| (name.as_str(), *end))
}

/// Returns the tokens behind a name in the order of their names; for an owner, only its own.
pub(crate) fn after<'l>(
    ledger: &'l Ledger,
    name: Option<&'l str>,
    owner: Option<&'l str>,
) -> Box<dyn Iterator<Item = &'l Arc<TokenRecord>> + 'l> {
    let tokens = &ledger.callers.tokens;
    let from = name.map_or(Bound::Unbounded, Bound::Excluded);
    let range = (from, Bound::Unbounded);
    match owner {
        None => Box::new(tokens.by_name.range::<str, _>(range).map(|(_, it)| it)),
        Some(owner) => {
            let names = tokens.of_owners.get(owner).into_iter();
            let names = names.flat_map(move |names| names.range::<str, _>(range));
            Box::new(names.filter_map(|name| tokens.by_name.get(name)))
        }
    }
}

/// Returns the token of this name; for an owner, only its own.
pub(crate) fn visible<'l>(
    ledger: &'l Ledger,
    owner: Option<&str>,
    name: &str,
) -> Option<&'l Arc<TokenRecord>> {
    let token = ledger.callers.tokens.get(name);
    token.filter(|token| owner.is_none() || token.owner.as_deref() == owner)
}

/// Issues a token, and deletes some that have expired.
///
/// # Errors
/// The name is taken by another token that has not expired, the scope does not fit the role, the
/// end has passed, or there are too many tokens.
pub(super) fn issue(
    ledger: &mut Ledger,
    token: &Arc<TokenRecord>,
    now: Nanos,
    draft: &mut Draft,
) -> Result<Reply, LedgerError> {
    let now = now.0 / 1_000_000_000;
    if !is_name(&token.name) {
        return Err(LedgerError::Absurd(format!(
            "{:?} cannot be a token's name: {NAME}",
            token.name
        )));
    }
    check_scope(token.role, token.owner.as_deref(), token.host.as_deref())
        .map_err(|(_, why)| LedgerError::Absurd(why.to_owned()))?;
    if token.has_expired(now) {
        return Err(LedgerError::Absurd(
            "the end of the validity is in the past; `expires` is a later time".to_owned(),
        ));
    }
    let tokens = &ledger.callers.tokens;
    let old = tokens.get(&token.name);
    if old.is_some_and(|old| !old.has_expired(now)) || tokens.by_hash.contains_key(&token.sha256) {
        return Err(LedgerError::TokenExists(token.name.clone()));
    }
    tokens.check_number(token, now)?;
    let ended: Vec<_> = tokens.expired(now).take(FORGET).cloned().collect();
    for name in ended {
        remove(ledger, &name, draft);
    }
    let change = Change::Token(Arc::clone(token));
    draft.keep(ledger.before(&change), change);
    ledger.callers.tokens.put(Arc::clone(token));
    Ok(Reply::Token(Arc::clone(token)))
}

/// Revokes a token. An owner sees and revokes its own only.
///
/// # Errors
/// There is no such token.
pub(super) fn revoke(
    ledger: &mut Ledger,
    owner: Option<&str>,
    name: &str,
    draft: &mut Draft,
) -> Result<Reply, LedgerError> {
    if visible(ledger, owner, name).is_none() {
        return Err(LedgerError::NotFound(format!("token {name:?}")));
    }
    remove(ledger, name, draft);
    Ok(Reply::Deleted)
}

fn remove(ledger: &mut Ledger, name: &str, draft: &mut Draft) {
    let change = Change::TokenGone(name.to_owned());
    draft.keep(ledger.before(&change), change);
    ledger.callers.tokens.remove(name);
}
