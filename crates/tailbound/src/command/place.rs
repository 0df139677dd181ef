//! `tailbound place`: the placement service from the command line.
//!
//! Each subcommand sends one request to the service and prints the answer: with `--output json` as
//! received, otherwise in sentences and tables.

mod audit;
mod audit_log;
mod backup;
mod bound;
mod enforcement;
mod explain;
mod failure;
mod form;
mod guarantees;
mod hosts;
mod limit;
mod machine;
mod moves;
mod name;
mod openapi;
mod recover;
mod request;
mod scheduling;
mod serve;
mod service;
mod status;
mod store;
mod summary;
mod tables;
mod tenants;
mod token;
mod topology;

use crate::exit::{Exit, Failure};
#[cfg(feature = "advise")]
pub(super) use name::TenantName;
#[cfg(feature = "advise")]
pub(super) use request::flags;
#[cfg(feature = "advise")]
pub(super) use service::Service;

/// Arguments of `tailbound place`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "--url selects the service, or the environment variables TAILBOUND_URL, \
    TAILBOUND_TOKEN_FILE and TAILBOUND_CA do. Exit code: 0 done; 1 refused: the request does not \
    fit or would break a guarantee; 2 failed: the service is unreachable, a file or name is \
    wrong, or the token does not permit the request."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Run the placement service
    Serve(Box<serve::Serve>),
    /// Admit a tenant: place its VMs and guarantee what they request
    Create(tenants::Create),
    /// List tenants
    List(tenants::List),
    /// Show a tenant, the hosts of its VMs, and whether each host enforces the guarantee
    Get(tenants::Get),
    /// Change the number of a tenant's VMs; remaining VMs do not move
    Resize(tenants::Resize),
    /// Change the guarantee of a tenant's VMs where they are, and their number
    Change(tenants::Change),
    /// Delete a tenant
    Delete(tenants::Delete),
    /// Move a tenant's VMs away from hosts that are closed or do not enforce its guarantee
    Relocate(tenants::Relocate),
    /// Move a VM to another host; both hosts reserve a slot until the move ends
    Move(moves::Move),
    /// Set rate limits of a tenant's running VMs
    Limit(limit::Limit),
    /// Check which hosts take more machines of a tenant, or a machine of a request
    Candidates(scheduling::Candidates),
    /// Reserve machines on hosts for a time
    Reserve(scheduling::Reserve),
    /// Make the machines of a reservation part of the tenant
    Confirm(scheduling::Confirm),
    /// Cancel a reservation
    Cancel(scheduling::Cancel),
    /// List open reservations
    Reservations(scheduling::Reservations),
    /// Show a machine by its name, set its host, or release its place
    Machine(machine::ByName),
    /// Set the number of a tenant's machines on a host
    Put(scheduling::Put),
    /// Make several changes in one transaction, or none
    Batch(scheduling::MakeBatch),
    /// Record tenants whose machines run already, where they run
    Adopt(scheduling::Adopt),
    /// Check whether a request would be admitted now, and where
    Fit(explain::Fit),
    /// Check a request, and if it is refused, show why and the nearest request that fits
    Explain(explain::Explain),
    /// Compute the delay bound between two VMs of a tenant
    Bound(bound::Bound),
    /// List hosts and whether they follow the service
    Hosts(hosts::List),
    /// Show a host, its VMs and its ports
    Host(hosts::Show),
    /// Close a host, rack or pod to new VMs
    Drain(hosts::Drain),
    /// Mark a host, rack or pod as failed
    Fail(hosts::Fail),
    /// Reopen a host, rack or pod
    Restore(hosts::Restore),
    /// Show the tree of hosts, compare it with a file, or replace it
    Topology(topology::Args),
    /// Show the guarantees that a host must enforce
    Guarantees(guarantees::Guarantees),
    /// Print guarantees as they become broken and as they recover
    Events(enforcement::Events),
    /// Show a summary of the service and the data centre
    Status(status::Status),
    #[command(about = "Print the OpenAPI document of the service")]
    Openapi,
    /// Verify every guarantee in a store by independent code
    Audit(audit::Audit),
    /// Print the audit of changes: caller, change, and the state before and after
    AuditLog(audit_log::AuditLog),
    /// Write a backup of the running service's state to a file
    Backup(backup::Backup),
    /// Create a store from a backup, if every guarantee in it holds
    Import(backup::Import),
    /// Write a backup of what a damaged store still has, and list what it lost
    Salvage(backup::Salvage),
    /// Create a store from the guarantees that hosts hold, after a store without a backup is lost
    Recover(recover::Recover),
    /// Issue, list and revoke tokens, or make an entry for the service's token file
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
            Action::Change(change) => change.run(),
            Action::Delete(delete) => delete.run(),
            Action::Relocate(relocate) => relocate.run(),
            Action::Move(step) => step.run(),
            Action::Limit(limit) => limit.run(),
            Action::Candidates(candidates) => candidates.run(),
            Action::Reserve(reserve) => reserve.run(),
            Action::Confirm(confirm) => confirm.run(),
            Action::Cancel(cancel) => cancel.run(),
            Action::Reservations(reservations) => reservations.run(),
            Action::Machine(machine) => machine.run(),
            Action::Put(put) => put.run(),
            Action::Batch(batch) => batch.run(),
            Action::Adopt(adopt) => adopt.run(),
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
            Action::AuditLog(log) => log.run(),
            Action::Backup(backup) => backup.run(),
            Action::Import(import) => import.run(),
            Action::Salvage(salvage) => salvage.run(),
            Action::Recover(recover) => recover.run(),
            Action::Token(token) => token.run(),
        }
    }
}
