//! The audit log: for each write the caller, the token, the state before and after, and the result.
//!
//! Each write is one line with the target `audit`. Reports of hosts are not logged.

use super::extract::Author;
use super::tokens::Caller;
use crate::ledger::{Command, Ledger, NamedMachine, Reply, machines};
use crate::service::ServiceError;
use crate::store::StoreError;
use tailbound_api::{Machine, MachineState, MoveStep, Tenant};
use tailbound_placement::TenantId;

/// Log entry of a call, made before the decision.
pub(super) struct Entry {
    by: String,
    request: String,
    role: String,
    command: &'static str,
    what: String,
    before: String,
}

impl Entry {
    /// Returns None for reports of hosts, which are not logged.
    pub(super) fn new(
        author: &Author,
        command: &Command,
        name: &'static str,
        ledger: &Ledger,
    ) -> Option<Self> {
        let by = author.by();
        let (what, before) = match command {
            Command::Report { .. } | Command::Silence { .. } | Command::Expire(_) => return None,
            Command::Create(new) => {
                let owner = new.owner.as_deref().unwrap_or_default();
                (format!("{owner}/{}", new.name), String::new())
            }
            Command::Change { id, vms, guarantee } => {
                let vms = vms.map(|vms| format!(" to {vms} machines"));
                let guarantee = guarantee.map(|it| format!(" to {} each", it.bandwidth));
                let to = vms.unwrap_or_default() + &guarantee.unwrap_or_default();
                of_tenant(ledger, *id, &to)
            }
            Command::Delete { id } | Command::Relocate { id } | Command::Limit { id, .. } => {
                of_tenant(ledger, *id, "")
            }
            Command::PutHost { id, host, machines } => of_tenant(
                ledger,
                *id,
                &format!(" to {} machines on {host}", machines.vms),
            ),
            Command::PutMachine(put) => {
                let tenant = put.put.tenant.as_deref().unwrap_or("its tenant");
                let to = format!(" to {tenant} on {}", put.put.host);
                of_machine(ledger, &put.machine, &to)
            }
            Command::DeleteMachine { machine, host, .. } => {
                of_machine(ledger, machine, &format!(" from {host}"))
            }
            Command::Reserve(_)
            | Command::Confirm(_)
            | Command::Cancel(_)
            | Command::Batch(_)
            | Command::Adopt(_) => (of_scheduler(command), String::new()),
            Command::Move { id, step } => {
                let to = match &step.step {
                    MoveStep::Begin { to } => format!(" machine {} to {to}", step.vm),
                    MoveStep::Done => format!(" machine {}: done", step.vm),
                    MoveStep::Cancel => format!(" machine {}: cancelled", step.vm),
                };
                of_tenant(ledger, *id, &to)
            }
            Command::SetHosts { node, state } => {
                let before = ledger.host(node).map(|host| host.state.word().to_owned());
                (
                    format!("{node} to {}", state.word()),
                    before.unwrap_or_default(),
                )
            }
            Command::SetTopology { .. } => (
                "the topology".to_owned(),
                format!("revision {}", ledger.topology().revision),
            ),
        };
        Some(Self {
            by: by.name.clone(),
            request: author.request().to_owned(),
            role: match &by.caller {
                Caller::Operator => "operator".to_owned(),
                Caller::Maintenance => "maintenance".to_owned(),
                Caller::Viewer => "viewer".to_owned(),
                Caller::Metrics => "metrics".to_owned(),
                Caller::Tenant { owner } => format!("tenant {owner}"),
                Caller::Host { host } => format!("host {host}"),
            },
            command: name,
            what,
            before,
        })
    }

    /// Writes the line. A call whose commit may have become durable has the outcome `unknown`; a retry
    /// with the same idempotency key settles it.
    pub(super) fn write(self, done: &Result<Reply, ServiceError>) {
        let Self {
            by,
            request,
            role,
            command,
            what,
            before,
        } = self;
        let (outcome, after) = match done {
            Ok(reply) => ("done", after(reply)),
            Err(error @ (ServiceError::Store(StoreError::Uncertain(_)) | ServiceError::Ended)) => {
                ("unknown", error.to_string())
            }
            Err(error) => ("refused", error.to_string()),
        };
        tracing::info!(target: "audit", by, role, command, what, before, after, outcome, request, "audit");
    }
}

/// Returns a description of what a scheduler's command is about.
fn of_scheduler(command: &Command) -> String {
    match command {
        Command::Reserve(new) => {
            let owner = new.owner.as_deref().unwrap_or_default();
            let hosts = new.placement.iter();
            let hosts: Vec<_> = hosts
                .map(|it| format!("{} on {}", it.vms, it.host))
                .collect();
            format!(
                "{owner}/{}: {} for {}",
                new.tenant,
                hosts.join(", "),
                new.ttl
            )
        }
        Command::Confirm(id) | Command::Cancel(id) => format!("reservation {id}"),
        Command::Batch(operations) => format!("{} operations", operations.len()),
        Command::Adopt(tenants) => format!("{} tenants", tenants.len()),
        _ => String::new(),
    }
}

fn of_tenant(ledger: &Ledger, id: TenantId, wanted: &str) -> (String, String) {
    match ledger.tenant(id) {
        Some(tenant) => (
            format!("{}/{} (id {}){wanted}", tenant.owner, tenant.name, id.0),
            summary(tenant),
        ),
        None => (format!("id {}{wanted}", id.0), "there is none".to_owned()),
    }
}

fn of_machine(ledger: &Ledger, named: &NamedMachine, wanted: &str) -> (String, String) {
    let NamedMachine { owner, name } = named;
    let before = machines::get(ledger, owner, name);
    let before = before.map_or_else(|| "there is none".to_owned(), |machine| at(&machine));
    (format!("machine {name:?} of {owner}{wanted}"), before)
}

/// Returns a short description of a named machine.
fn at(machine: &Machine) -> String {
    let word = match machine.state {
        MachineState::Reserved => "reserved",
        MachineState::Confirmed => "confirmed",
    };
    format!("{} {word} on {}", machine.vm, machine.host)
}

/// Returns a short description of a tenant.
fn summary(tenant: &Tenant) -> String {
    let hosts: Vec<_> = tenant.runs.iter().map(|run| &*run.host).collect();
    let first = hosts.first().copied().unwrap_or_default();
    let more = hosts.len().saturating_sub(1);
    let vms = tenant.request.vms;
    if more == 0 {
        format!("{vms} machines on {first}")
    } else {
        format!("{vms} machines on {first} and {more} more")
    }
}

fn after(reply: &Reply) -> String {
    match reply {
        Reply::Tenant(tenant) => format!("id {}: {}", tenant.id.0, summary(tenant)),
        Reply::Deleted => "gone".to_owned(),
        Reply::Reservation(reservation) => format!(
            "reservation {} of id {}: {} machines",
            reservation.id,
            reservation.tenant.0,
            reservation.machines.len()
        ),
        Reply::Machine(machine) => at(machine),
        Reply::Batch(tenants) => format!("{} operations", tenants.len()),
        Reply::Adopted(report) => format!(
            "{} tenants, {} were there, {} misfits",
            report.adopted,
            report.present,
            report.misfits.len()
        ),
        Reply::Hosts(change) => format!(
            "{} hosts {}, {} tenants concerned",
            change.hosts,
            change.state.word(),
            change.affected.len()
        ),
        Reply::Noted => String::new(),
        Reply::Topology(diff) => format!("revision {}", diff.revision),
    }
}
