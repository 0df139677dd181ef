//! `tailbound place token`.

use super::form::Output;
use super::service::Service;
use crate::command::output;
use crate::exit::{Exit, Failure};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::time::Duration;
use tailbound_api::client::{issue_token, random, revoke_token, tokens};
use tailbound_api::{TokenRole, is_name};
use tailbound_control::server::Expiry;
use tailbound_report::{NOTHING, Table};
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
        self.of_api().word()
    }

    const fn of_api(self) -> TokenRole {
        match self {
            Self::Operator => TokenRole::Operator,
            Self::Maintenance => TokenRole::Maintenance,
            Self::Viewer => TokenRole::Viewer,
            Self::Metrics => TokenRole::Metrics,
            Self::Tenant => TokenRole::Tenant,
            Self::Host => TokenRole::Host,
        }
    }
}

/// Arguments of `tailbound place token`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Without a subcommand, the entry for the token file (tailbound place serve \
    --tokens) goes to standard output: append it by `>> tokens.toml`. The secret goes to standard \
    error and is stored nowhere else. The service reloads the file at SIGHUP. `create` needs a \
    running service and no file: all replicas know its token within a second."
)]
pub(super) struct Token {
    #[command(subcommand)]
    action: Option<Action>,
    /// The role of the token
    #[arg(long, value_enum, required = true)]
    role: Option<Role>,
    #[command(flatten)]
    scope: Scope,
    /// The token's name in the service's log [default: the owner, the host or the role]
    #[arg(long)]
    name: Option<String>,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Issue a token by the running service, and print its secret
    Create(Create),
    /// List the issued tokens
    List(List),
    /// Revoke an issued token
    Revoke(Revoke),
}

/// The scope of a token, and its end.
#[derive(Debug, clap::Args)]
struct Scope {
    /// The owner, for the role tenant
    #[arg(long, required_if_eq("role", "tenant"))]
    owner: Option<String>,
    /// The host, for the role host
    #[arg(long, required_if_eq("role", "host"))]
    host: Option<String>,
    /// The time for which the token is valid, such as 720h [default: without end]
    #[arg(long, value_name = "TIME")]
    valid_for: Option<Nanos>,
}

impl Scope {
    /// Checks that the scope is that of a role.
    fn check(&self, role: Role) -> Result<(), Failure> {
        let (owner, host) = (self.owner.is_some(), self.host.is_some());
        if (owner && role != Role::Tenant) || (host && role != Role::Host) {
            return Err(Failure::wrong_arguments(
                "--owner goes with --role tenant, --host with --role host",
            ));
        }
        match self.owner.as_ref().filter(|owner| !is_name(owner)) {
            None => Ok(()),
            Some(owner) => Err(Failure::wrong_arguments(format!(
                "{owner:?} cannot be an owner; use 1 to 63 of a-z, 0-9 and -, no - at either end"
            ))),
        }
    }

    fn expires(&self) -> Option<String> {
        let end = |valid: Nanos| Expiry::after(Duration::from_nanos(valid.0)).to_string();
        self.valid_for.map(end)
    }
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
        match self.action {
            Some(Action::Create(create)) => create.run(),
            Some(Action::List(list)) => list.run(),
            Some(Action::Revoke(revoke)) => revoke.run(),
            None => self.entry(),
        }
    }

    /// Makes an entry of the token file.
    fn entry(self) -> Result<Exit, Failure> {
        let role = self
            .role
            .ok_or_else(|| Failure::wrong_arguments("--role is missing"))?;
        self.scope.check(role)?;
        let expires = self.scope.expires();
        let Scope { owner, host, .. } = self.scope;
        let secret = hexadecimal(&random::<32>().map_err(Failure::new)?);
        let name = self.name.or_else(|| owner.clone()).or_else(|| host.clone());
        let made = NewToken {
            name: name.unwrap_or_else(|| role.name().to_owned()),
            role,
            owner,
            host,
            sha256: hexadecimal(&Sha256::digest(secret.as_bytes())),
            expires,
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

/// Arguments of `tailbound place token create`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The secret goes to standard output, and everything else to standard error: \
    `tailbound place token create ci --role viewer > ci.token` makes a file for --token-file. The \
    service keeps a hash of the secret. A token has no more rights than the one that issues it, and \
    does not outlive it."
)]
struct Create {
    /// The token's name, unique in the service
    name: String,
    /// The role of the token
    #[arg(long, value_enum)]
    role: Role,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    service: Service,
}

impl Create {
    fn run(self) -> Result<Exit, Failure> {
        self.scope.check(self.role)?;
        let expires = self.scope.expires();
        let Scope { owner, host, .. } = self.scope;
        let new = tailbound_api::NewToken {
            name: self.name,
            role: self.role.of_api(),
            owner,
            host,
            expires,
        };
        let issued = self.service.ask(|client| issue_token(client, &new))?;
        if !self.service.for_programs() {
            let token = &issued.token;
            let end = token.expires.as_deref();
            let end = end.map_or_else(String::new, |end| format!(", until {end}"));
            eprintln!("{}: {}{end}; its secret:", token.name, rights(token));
        }
        self.service.print("place-token-create", &issued, |_| {
            format!("{}\n", issued.secret)
        });
        Ok(Exit::Holds)
    }
}

/// Arguments of `tailbound place token list`.
#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    service: Service,
}

impl List {
    fn run(self) -> Result<Exit, Failure> {
        let all = self.service.all_pages(tokens)?;
        self.service.print("place-token-list", &all, |paint| {
            let mut table = Table::new(&["token", "rights", "until", "issued", "by"], &[]);
            for token in &all.items {
                table.row([
                    token.name.clone(),
                    rights(token),
                    token.expires.clone().unwrap_or_else(|| NOTHING.to_owned()),
                    token.issued.clone(),
                    match token.issued_by.as_str() {
                        "" => NOTHING.to_owned(),
                        by => by.to_owned(),
                    },
                ]);
            }
            match all.items.len() {
                0 => "no tokens were issued\n".to_owned(),
                _ => table.render(paint),
            }
        });
        Ok(Exit::Holds)
    }
}

/// Returns a token's role with its owner or host.
fn rights(token: &tailbound_api::Token) -> String {
    let scope = token.owner.as_deref().or(token.host.as_deref());
    let role = token.role.word();
    scope.map_or_else(|| role.to_owned(), |scope| format!("{role} {scope}"))
}

/// Arguments of `tailbound place token revoke`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Within a second no replica accepts the token, and its streams end. A token of the \
    token file is revoked by a SIGHUP after its entry is deleted."
)]
struct Revoke {
    /// The token's name
    name: String,
    #[command(flatten)]
    service: Service,
}

/// JSON document of `--output json`: the service's answer is empty.
#[derive(Debug, Serialize)]
struct RevokedToken {
    name: String,
}

impl Revoke {
    fn run(self) -> Result<Exit, Failure> {
        self.service
            .ask(|client| revoke_token(client, &self.name))?;
        let revoked = RevokedToken { name: self.name };
        self.service.print("place-token-revoke", &revoked, |paint| {
            format!("{}  token {}\n", paint.good("REVOKED"), revoked.name)
        });
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
