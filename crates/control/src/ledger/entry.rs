//! Entries of the audit: the words for a call, and for what became of it.

use super::change::Change;
use super::command::{Call, Command, NamedMachine, Reply};
use super::decide::Decision;
use super::{Ledger, machines, tokens};
use crate::expiry::Expiry;
use std::collections::BTreeSet;
use tailbound_api::{AuditEntry, AuditOutcome, Machine, MachineState, MoveStep, Tenant};
use tailbound_placement::TenantId;
use tailbound_units::Nanos;

/// Limit on the length of a text of an entry, in bytes.
const MAX_TEXT: usize = 500;

/// A call in words, made before its decision.
pub(crate) struct Description {
    owner: Option<String>,
    what: String,
    before: String,
}

impl Description {
    /// Describes a call that is about to be decided. The result names no object of another owner
    /// than the caller's.
    pub(crate) fn new(ledger: &Ledger, call: &Call) -> Self {
        let (what, before) = words(ledger, call);
        Self {
            owner: owner(ledger, call),
            what,
            before,
        }
    }

    /// Returns the entry of a call that was decided. Returns `None` if it changed nothing, or if it
    /// is the report of a host that changed no tenant.
    pub(crate) fn done(self, call: &Call, decision: &Decision, now: Nanos) -> Option<AuditEntry> {
        let changes = decision.changes.iter().chain(&decision.undo.0);
        let owners: BTreeSet<&str> = changes.clone().filter_map(owner_of).collect();
        let is_report = matches!(
            call.command,
            Command::Report { .. } | Command::Silence { .. }
        );
        if decision.changes.is_empty() || (is_report && owners.is_empty()) {
            return None;
        }
        let mut owners: Vec<_> = owners.into_iter().map(str::to_owned).collect();
        if owners.is_empty() {
            owners.extend(self.owner.clone());
        }
        let after = after(&decision.reply);
        Some(AuditEntry {
            owners,
            ..self.entry(call, AuditOutcome::Done, after, now)
        })
    }

    /// Returns the entry of a call that was refused; `None` for one of the service, and for the
    /// report of a host.
    pub(crate) fn refused(self, call: &Call, why: String, now: Nanos) -> Option<AuditEntry> {
        match call.command {
            Command::Report { .. } | Command::Silence { .. } | Command::Expire(_) => None,
            _ => Some(self.entry(call, AuditOutcome::Refused, why, now)),
        }
    }

    fn entry(self, call: &Call, outcome: AuditOutcome, after: String, now: Nanos) -> AuditEntry {
        AuditEntry {
            number: 0,
            at_ms: now.0 / 1_000_000,
            caller: call.caller.clone(),
            command: call.command.name().to_owned(),
            owners: self.owner.into_iter().collect(),
            what: cut(self.what),
            before: cut(self.before),
            after: cut(after),
            outcome,
            more: 0,
            digest: String::new(),
        }
    }
}

/// Returns the entry of a call whose transaction failed; `None` if the call was refused before.
pub(crate) fn taken_back(entry: &AuditEntry, why: String) -> Option<AuditEntry> {
    (entry.outcome == AuditOutcome::Done).then(|| AuditEntry {
        number: 0,
        digest: String::new(),
        after: cut(why),
        outcome: AuditOutcome::Refused,
        ..entry.clone()
    })
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text.push_str("...");
    }
    text
}

/// Returns the owner of the tenant that a change puts.
fn owner_of(change: &Change) -> Option<&str> {
    match change {
        Change::Tenant(tenant) => Some(&tenant.owner),
        Change::Token(token) => token.owner.as_deref(),
        _ => None,
    }
}

/// Returns the owner whose object a call is about, as far as it is one owner's.
fn owner(ledger: &Ledger, call: &Call) -> Option<String> {
    let named = match &call.command {
        Command::Create(new) => new.owner.as_deref(),
        Command::Reserve(new) => new.owner.as_deref(),
        Command::PutMachine(put) => Some(put.machine.owner.as_str()),
        Command::DeleteMachine { machine, .. } => Some(machine.owner.as_str()),
        Command::IssueToken(token) => token.owner.as_deref(),
        other => other
            .tenant()
            .and_then(|id| Some(ledger.tenant(id)?.owner.as_str())),
    };
    // A caller with an owner sees and changes only what is that owner's.
    call.owner.as_deref().or(named).map(str::to_owned)
}

/// Returns the object of a call with the requested state, and its state before.
fn words(ledger: &Ledger, call: &Call) -> (String, String) {
    let of_tenant = |id, to: &str| of_tenant(ledger, call, id, to);
    match &call.command {
        Command::Create(new) => {
            let owner = new.owner.as_deref().unwrap_or_default();
            (format!("{owner}/{}", new.name), String::new())
        }
        Command::Change { id, vms, guarantee } => {
            let vms = vms.map(|vms| format!(" to {vms} machines"));
            let guarantee = guarantee.map(|it| format!(" to {} each", it.bandwidth));
            let to = vms.unwrap_or_default() + &guarantee.unwrap_or_default();
            of_tenant(*id, &to)
        }
        Command::Delete { id } | Command::Relocate { id } | Command::Limit { id, .. } => {
            of_tenant(*id, "")
        }
        Command::PutHost { id, host, machines } => {
            of_tenant(*id, &format!(" to {} machines on {host}", machines.vms))
        }
        Command::PutMachine(put) => {
            let tenant = put.put.tenant.as_deref().unwrap_or("its tenant");
            let to = format!(" to {tenant} on {}", put.put.host);
            of_machine(ledger, &put.machine, &to)
        }
        Command::DeleteMachine { machine, host, .. } => {
            of_machine(ledger, machine, &format!(" from {host}"))
        }
        Command::Move { id, step } => {
            let to = match &step.step {
                MoveStep::Begin { to } => format!(" machine {} to {to}", step.vm),
                MoveStep::Done => format!(" machine {}: done", step.vm),
                MoveStep::Cancel => format!(" machine {}: cancelled", step.vm),
            };
            of_tenant(*id, &to)
        }
        Command::SetHosts { node, state } => {
            let before = ledger.host(node).map(|host| host.state.word().to_owned());
            let what = format!("{node} to {}", state.word());
            (what, before.unwrap_or_default())
        }
        Command::IssueToken(token) => (
            format!("token {} ({})", token.name, token.rights()),
            String::new(),
        ),
        Command::RevokeToken(name) => of_token(ledger, call, name),
        Command::SetTopology { .. } => (
            "the topology".to_owned(),
            format!("revision {}", ledger.topology().revision),
        ),
        other => (of_others(other), String::new()),
    }
}

/// Returns the object of a command of a scheduler, a host or the service.
fn of_others(command: &Command) -> String {
    match command {
        Command::Reserve(new) => {
            let owner = new.owner.as_deref().unwrap_or_default();
            let hosts = new.placement.iter().take(MAX_TEXT);
            let hosts: Vec<_> = hosts
                .map(|it| format!("{} on {}", it.vms, it.host))
                .collect();
            let hosts = hosts.join(", ");
            format!("{owner}/{}: {hosts} for {}", new.tenant, new.ttl)
        }
        Command::Confirm(id) | Command::Cancel(id) => format!("reservation {id}"),
        Command::Expire(ids) => format!("{} reservations", ids.len()),
        Command::Batch(operations) => format!("{} operations", operations.len()),
        Command::Adopt(tenants) => format!("{} tenants", tenants.len()),
        Command::Report { host, .. } => format!("arrivals on {host}"),
        _ => String::new(),
    }
}

fn of_tenant(ledger: &Ledger, call: &Call, id: TenantId, wanted: &str) -> (String, String) {
    match ledger.visible(call.owner.as_deref(), id) {
        Ok(tenant) => (
            format!("{}/{} (id {}){wanted}", tenant.owner, tenant.name, id.0),
            summary(&tenant),
        ),
        Err(_) => (format!("id {}{wanted}", id.0), "there is none".to_owned()),
    }
}

fn of_machine(ledger: &Ledger, named: &NamedMachine, wanted: &str) -> (String, String) {
    let NamedMachine { owner, name } = named;
    let before = machines::get(ledger, owner, name);
    let before = before.map_or_else(|| "there is none".to_owned(), |machine| at(&machine));
    (format!("machine {name:?} of {owner}{wanted}"), before)
}

/// Describes a token as far as the caller sees it.
fn of_token(ledger: &Ledger, call: &Call, name: &str) -> (String, String) {
    let token = tokens::visible(ledger, call.owner.as_deref(), name);
    let before = token.map_or_else(|| "there is none".to_owned(), |token| token.rights());
    (format!("token {name}"), before)
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
    let first = tenant.runs.first().map(|run| &*run.host);
    let first = first.unwrap_or_default();
    let more = tenant.runs.len().saturating_sub(1);
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
        Reply::Token(token) => token.expires.map_or_else(
            || "in force".to_owned(),
            |end| format!("in force until {}", Expiry::at(end)),
        ),
        Reply::Topology(diff) => format!("revision {}", diff.revision),
    }
}
