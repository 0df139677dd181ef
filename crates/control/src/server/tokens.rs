//! Who may call: the tokens file.
//!
//! It holds only hashes, so that reading it gives nobody a token:
//!
//! ```toml
//! [[token]]
//! name = "ops"            # for the log
//! role = "operator"
//! sha256 = "…"            # of the token, 64 hexadecimal digits
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
//! ```

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use tailbound_document::Location;

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// May do everything.
    Operator,
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

/// A known token's name, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The token's name in the file; never secret.
    pub name: String,
    /// Who holds it.
    pub caller: Caller,
    /// Its hash; None where no token is needed.
    pub(super) hash: Option<[u8; 32]>,
}

/// All tokens of a file.
#[derive(Debug, Default)]
pub struct Tokens {
    by_hash: HashMap<[u8; 32], Identity>,
}

/// Why a tokens file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// It cannot be read.
    #[error("cannot read the tokens file {path}: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not TOML, or not of this form.
    #[error("{path}:{place}: {message}")]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// Where.
        place: Location,
        /// What is wrong.
        message: String,
    },
    /// A token contradicts itself or another.
    #[error("{path}: token {name:?}: {message}")]
    Token {
        /// Which file.
        path: PathBuf,
        /// The token's name.
        name: String,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// There is none.
    #[error("{path}: there are no tokens; `tailbound place token --role operator` makes one")]
    Empty {
        /// Which file.
        path: PathBuf,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, rename = "token")]
    tokens: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    role: Role,
    owner: Option<String>,
    host: Option<String>,
    sha256: String,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Role {
    Operator,
    Tenant,
    Host,
}

impl Tokens {
    /// Reads a tokens file.
    ///
    /// # Errors
    /// It cannot be read, is not of the form above, has no token, or has one
    /// twice.
    pub fn load(path: &Path) -> Result<Self, TokensError> {
        let text = std::fs::read_to_string(path).map_err(|source| TokensError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, TokensError> {
        let file: File = toml::from_str(text).map_err(|error| TokensError::Syntax {
            path: path.to_owned(),
            place: Location::of(text, error.span().map_or(0, |span| span.start)),
            message: error.message().to_owned(),
        })?;
        let mut by_hash = HashMap::new();
        let mut names = HashSet::new();
        for entry in file.tokens {
            let wrong = |message: String| TokensError::Token {
                path: path.to_owned(),
                name: entry.name.clone(),
                message,
            };
            let caller = entry
                .caller()
                .map_err(|message| wrong(message.to_owned()))?;
            let hash = digest_of(&entry.sha256).ok_or_else(|| {
                wrong(
                    "sha256 is not 64 hexadecimal digits; it is the token's hash, which \
                       `tailbound place token` prints"
                        .to_owned(),
                )
            })?;
            if !names.insert(entry.name.clone()) {
                return Err(wrong("the name is there twice".to_owned()));
            }
            let identity = Identity {
                name: entry.name.clone(),
                caller,
                hash: Some(hash),
            };
            if let Some(other) = by_hash.insert(hash, identity) {
                return Err(wrong(format!("is the same as {:?}", other.name)));
            }
        }
        if by_hash.is_empty() {
            return Err(TokensError::Empty {
                path: path.to_owned(),
            });
        }
        Ok(Self { by_hash })
    }

    /// Whose token this is.
    ///
    /// Only its hash is compared. How long that takes tells about the hash, from
    /// which nobody finds a token.
    pub fn identify(&self, token: &[u8]) -> Option<&Identity> {
        self.by_hash.get(&<[u8; 32]>::from(Sha256::digest(token)))
    }

    /// Whether this is one of these still.
    pub(super) fn have(&self, identity: &Identity) -> bool {
        let held = identity.hash.and_then(|hash| self.by_hash.get(&hash));
        held == Some(identity)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.by_hash.len()
    }
}

impl Entry {
    fn caller(&self) -> Result<Caller, &'static str> {
        match (self.role, &self.owner, &self.host) {
            (Role::Operator, None, None) => Ok(Caller::Operator),
            (Role::Operator, ..) => Err("an operator has neither owner nor host"),
            (Role::Tenant, Some(owner), None) if tailbound_api::is_name(owner) => {
                Ok(Caller::Tenant {
                    owner: owner.clone(),
                })
            }
            (Role::Tenant, Some(_), None) => {
                Err("its owner is not 1 to 63 of a-z, 0-9 and -, neither first nor last a -")
            }
            (Role::Tenant, ..) => Err("a tenant's token has an owner and no host"),
            (Role::Host, None, Some(host)) => Ok(Caller::Host { host: host.clone() }),
            (Role::Host, ..) => Err("a host's token has a host and no owner"),
        }
    }
}

fn digest_of(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, digits) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(digest)
}
