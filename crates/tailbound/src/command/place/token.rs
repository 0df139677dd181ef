//! `tailbound place token`.

use super::form::Output;
use crate::command::output;
use crate::exit::{Exit, Failure};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::time::Duration;
use tailbound_api::client::random;
use tailbound_api::is_name;
use tailbound_control::server::Expiry;
use tailbound_units::Nanos;

/// The role of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Role {
    /// All requests
    Operator,
    /// Reads, and drains and restores of hosts
    Maintenance,
    /// Reads, but backups and keys of hosts
    Viewer,
    /// The metrics
    Metrics,
    /// Requests about the tenants of one owner
    Tenant,
    /// Requests about the guarantees of one host
    Host,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Maintenance => "maintenance",
            Self::Viewer => "viewer",
            Self::Metrics => "metrics",
            Self::Tenant => "tenant",
            Self::Host => "host",
        }
    }
}

/// Arguments of `tailbound place token`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The entry for the token file (tailbound place serve --tokens) goes to \
    standard output: append it by `>> tokens.toml`. The secret goes to standard error and is \
    stored nowhere else. The service reloads the file at SIGHUP."
)]
pub(super) struct Token {
    /// The role of the token
    #[arg(long, value_enum)]
    role: Role,
    /// The owner, for the role tenant
    #[arg(long, required_if_eq("role", "tenant"))]
    owner: Option<String>,
    /// The host, for the role host
    #[arg(long, required_if_eq("role", "host"))]
    host: Option<String>,
    /// The token's name in the service's log [default: the owner, the host or the role]
    #[arg(long)]
    name: Option<String>,
    /// The time for which the token is valid, such as 720h [default: without end]
    #[arg(long, value_name = "TIME")]
    valid_for: Option<Nanos>,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// A token; its entry in the token file has all fields except the secret.
#[derive(Debug, Serialize)]
struct NewToken {
    name: String,
    role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
}

#[derive(Debug, Serialize)]
struct File {
    token: [NewToken; 1],
}

impl Token {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let (owner, host) = match self.role {
            Role::Operator | Role::Maintenance | Role::Viewer | Role::Metrics => (None, None),
            Role::Tenant => (self.owner.clone(), None),
            Role::Host => (None, self.host.clone()),
        };
        if owner != self.owner || host != self.host {
            return Err(Failure::wrong_arguments(
                "--owner goes with --role tenant, --host with --role host",
            ));
        }
        if let Some(owner) = owner.as_ref().filter(|owner| !is_name(owner)) {
            return Err(Failure::wrong_arguments(format!(
                "{owner:?} cannot be an owner; use 1 to 63 of a-z, 0-9 and -, no - at either end"
            )));
        }
        let secret = hexadecimal(&random::<32>().map_err(Failure::new)?);
        let name = self.name.or_else(|| owner.clone()).or_else(|| host.clone());
        let made = NewToken {
            name: name.unwrap_or_else(|| self.role.name().to_owned()),
            role: self.role,
            owner,
            host,
            sha256: hexadecimal(&Sha256::digest(secret.as_bytes())),
            expires: self.valid_for.map(|valid| {
                let end = Expiry::after(Duration::from_nanos(valid.0));
                end.to_string()
            }),
        };
        let text = match self.output {
            Output::Json => output::json("place-token", 1, &made),
            Output::Text => {
                let file = toml::to_string(&File { token: [made] });
                format!("{}\n", file.map_err(Failure::new)?.trim_end())
            }
        };
        output::print(&text);
        eprintln!("the secret, which is shown this once:");
        eprintln!("{secret}");
        Ok(Exit::Holds)
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
