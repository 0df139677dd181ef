//! `tailbound place`: the placement service from the command line.
//!
//! Each subcommand asks one thing of the service and prints the answer: with
//! `--output json` as it came, otherwise in sentences and tables.

mod audit;
mod backup;
mod bound;
mod explain;
mod failure;
mod form;
mod guarantees;
mod hosts;
mod limit;
mod moves;
mod name;
mod openapi;
mod request;
mod serve;
mod service;
mod standing;
mod status;
mod store;
mod summary;
mod tables;
mod tenants;
mod token;
mod topology;

use crate::exit::{Exit, Failure};

/// Arguments of `tailbound place`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The service is named with --url, or by the environment: TAILBOUND_URL, \
    TAILBOUND_TOKEN_FILE, TAILBOUND_CA. Exit code: 0 done; 1 refused, does not fit, or would break \
    a promise; 2 could not: the service is away, a file or a name is wrong, the token does not \
    allow it."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Run the placement service
    Serve(Box<serve::Serve>),
    /// Admit a tenant: promise its machines what they ask for, and place them
    Create(tenants::Create),
    /// List tenants
    List(tenants::List),
    /// Show a tenant, where its machines are, and which hosts keep what it is promised
    Get(tenants::Get),
    /// Give a tenant another number of machines; those that stay are not moved
    Resize(tenants::Resize),
    /// Take a tenant's machines and promises away
    Delete(tenants::Delete),
    /// Move a tenant's machines off hosts that are closed or do not keep what it is promised
    Relocate(tenants::Relocate),
    /// Have a machine move to another host: both have a place for it until it is there
    Move(moves::Move),
    /// Limit what a tenant's machines may send and be sent, while they run
    Limit(limit::Limit),
    /// Say whether a request would pass now, and where it would go
    Fit(explain::Fit),
    /// Say the same, and if it does not pass, why not and what would
    Explain(explain::Explain),
    /// Bound the delay between two machines of a tenant
    Bound(bound::Bound),
    /// List hosts, and whether they follow
    Hosts(hosts::List),
    /// Show a host, its machines and its ports
    Host(hosts::Show),
    /// Give a host, rack or pod no more machines
    Drain(hosts::Drain),
    /// Take a host, rack or pod for broken
    Fail(hosts::Fail),
    /// Open a host, rack or pod again
    Restore(hosts::Restore),
    /// Show the tree of hosts, compare it with a file, or replace it
    Topology(topology::Args),
    /// Show what a host has to keep to
    Guarantees(guarantees::Guarantees),
    /// Tell which promises are not kept, and which are again, as it happens
    Events(standing::Events),
    /// Show the service and the data centre in short
    Status(status::Status),
    #[command(about = "Print the OpenAPI document of the service")]
    Openapi,
    /// Check every promise from a store alone, without the code that decided
    Audit(audit::Audit),
    /// Write all that the service keeps to a file, while it runs
    Backup(backup::Backup),
    /// Make a new store of a backup, if every promise in it holds
    Import(backup::Import),
    /// Make a token for the service's file of tokens
    Token(token::Token),
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match self.action {
            Action::Serve(serve) => serve.run(),
            Action::Create(create) => create.run(),
            Action::List(list) => list.run(),
            Action::Get(get) => get.run(),
            Action::Resize(resize) => resize.run(),
            Action::Delete(delete) => delete.run(),
            Action::Relocate(relocate) => relocate.run(),
            Action::Move(step) => step.run(),
            Action::Limit(limit) => limit.run(),
            Action::Fit(fit) => fit.run(),
            Action::Explain(explain) => explain.run(),
            Action::Bound(bound) => bound.run(),
            Action::Hosts(list) => list.run(),
            Action::Host(show) => show.run(),
            Action::Drain(drain) => drain.run(),
            Action::Fail(fail) => fail.run(),
            Action::Restore(restore) => restore.run(),
            Action::Topology(args) => args.run(),
            Action::Guarantees(guarantees) => guarantees.run(),
            Action::Events(events) => events.run(),
            Action::Status(status) => status.run(),
            Action::Openapi => Ok(openapi::show()),
            Action::Audit(audit) => audit.run(),
            Action::Backup(backup) => backup.run(),
            Action::Import(import) => import.run(),
            Action::Token(token) => token.run(),
        }
    }
}
