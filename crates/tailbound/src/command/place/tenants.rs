//! `tailbound place create`, `list`, `get`, `resize`, `change`, `delete`, `relocate`.

use super::enforcement::{self, confirmed, state_of, state_word};
use super::explain::why;
use super::limit::LimitArgs;
use super::name::{NewName, TenantName};
use super::request::{GuaranteeChange, RequestArgs, count, words};
use super::scheduling::{DeletedTenant, On};
use super::service::{Service, TENANT};
use super::summary::{of_earlier_version, on_its_way, promised, summary};
use super::tables::{delay, runs};
use crate::command::output::{self, paint};
use crate::exit::{Exit, Failure};
use std::collections::BTreeSet;
use tailbound_api::client::TenantFilter;
use tailbound_api::{Code, DEFAULT_BURSTS, Tenant, TenantPatch, TenantState};
use tailbound_report::{NOTHING, Paint, Table};

/// Arguments of `tailbound place create`.
#[derive(Debug, clap::Args)]
pub(super) struct Create {
    /// The tenant's name, unique for its owner, or OWNER/NAME; may be in the file instead
    #[arg(required_unless_present = "file")]
    name: Option<NewName>,
    /// The tenant's owner; with a tenant token, the token's owner
    #[arg(long)]
    owner: Option<String>,
    #[command(flatten)]
    request: RequestArgs,
    /// Admit the tenant on this host with one machine, or N, or refuse it; the service chooses the
    /// hosts without. Repeatable
    #[arg(long, value_name = "HOST[:N]", help_heading = "Request")]
    on: Vec<On>,
    #[command(flatten)]
    limit: LimitArgs,
    #[command(flatten)]
    service: Service,
}

impl Create {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let service = &self.service;
        let (owner, name) = NewName::parts(self.name.as_ref(), self.owner.as_ref())?;
        let mut tenant = self.request.tenant(name, owner)?;
        if let Some(limit) = self.limit.limit() {
            let guarantee = tenant.guarantee.as_ref();
            limit.check(guarantee).map_err(Failure::wrong_arguments)?;
            tenant.limit = limit;
        }
        if !self.on.is_empty() {
            tenant.placement = self.on.iter().map(|On(host)| host.clone()).collect();
        }
        let client = service.client()?;
        let error = match client.create(&tenant) {
            Ok(tenant) => {
                let tenant = confirmed(&client, tenant);
                service.print(TENANT, &tenant, |paint| {
                    summary(&state_word(state_of(&tenant), paint), &tenant, paint)
                });
                return Ok(Exit::Holds);
            }
            Err(error) => error,
        };
        let refused = error.code() == Some(Code::Refused);
        if refused && tenant.placement.is_empty() && !service.for_programs() {
            let request = tenant.request();
            // Only in text output: a missing explanation is no error.
            if let Ok(explanation) = client.explain(&request)
                && !explanation.fits
            {
                let paint = paint();
                let head = paint.bad("REFUSED");
                let why = why(&explanation, paint);
                output::print(&format!(
                    "{head}  {}: {}\n{why}",
                    tenant.name,
                    words(&request)
                ));
                return Ok(Exit::DoesNotHold);
            }
        }
        let ownerless = tenant.owner.is_none() && error.code() == Some(Code::Absurd);
        let failure = service.failure(error);
        Err(if ownerless {
            failure.hint("name the tenant OWNER/NAME, or write `owner` into the file")
        } else {
            failure
        })
    }
}

/// Arguments of `tailbound place list`.
#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// List only tenants of this owner
    #[arg(long)]
    owner: Option<String>,
    /// List only tenants of this name
    #[arg(long)]
    name: Option<String>,
    /// List only tenants in this state
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Option<TenantState>,
    #[command(flatten)]
    service: Service,
}

fn state(text: &str) -> Result<TenantState, String> {
    let all = [
        TenantState::Admitted,
        TenantState::Pending,
        TenantState::Degraded,
    ];
    let found = all.into_iter().find(|state| state.word() == text);
    found.ok_or_else(|| "use admitted, pending or degraded".to_owned())
}

impl List {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let filter = TenantFilter {
            owner: self.owner.clone(),
            name: self.name.clone(),
            state: self.state,
        };
        let all = self
            .service
            .all_pages(|client, after| client.tenants(&filter, after))?;
        self.service
            .print("place-list", &all, |paint| list(&all.items, paint));
        Ok(Exit::Holds)
    }
}

fn list(tenants: &[Tenant], paint: Paint) -> String {
    if tenants.is_empty() {
        return "no tenants\n".to_owned();
    }
    let head = [
        "tenant",
        "id",
        "state",
        "machines",
        "hosts",
        "bandwidth",
        "burst",
        "burst rate",
        "delay",
    ];
    let mut table = Table::new(&head, &[]);
    for tenant in tenants {
        let guarantee = tenant.request.guarantee.as_ref();
        let or_nothing = |text: Option<String>| text.unwrap_or_else(|| NOTHING.to_owned());
        table.row([
            format!("{}/{}", tenant.owner, tenant.name),
            tenant.id.0.to_string(),
            state_of(tenant).word().to_owned(),
            tenant.request.vms.to_string(),
            hosts(tenant).to_string(),
            or_nothing(guarantee.map(|guarantee| guarantee.bandwidth.to_string())),
            or_nothing(guarantee.map(|guarantee| guarantee.burst.to_string())),
            or_nothing(guarantee.and_then(|guarantee| Some(guarantee.burst_rate?.to_string()))),
            or_nothing(guarantee.and_then(delay)),
        ]);
    }
    table.render(paint) + &of_earlier_version(tenants, DEFAULT_BURSTS)
}

fn hosts(tenant: &Tenant) -> usize {
    let hosts: BTreeSet<_> = tenant.runs.iter().map(|run| &run.host).collect();
    hosts.len()
}

/// Arguments of `tailbound place get`.
#[derive(Debug, clap::Args)]
pub(super) struct Get {
    /// The tenant's ID, name, or OWNER/NAME
    tenant: TenantName,
    #[command(flatten)]
    service: Service,
}

impl Get {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let client = self.service.client()?;
        let id = self.tenant.id(&self.service, &client)?;
        let tenant = client
            .tenant(id)
            .map_err(|error| self.service.failure(error))?;
        self.service.print(TENANT, &tenant, |paint| {
            let hosts = hosts(&tenant);
            let tenant_state = tenant.standing.as_ref();
            let standings = tenant_state.map_or(&[][..], |tenant_state| &tenant_state.hosts);
            format!(
                "{}  {}/{}, id {}: {}; on {}\n{}{}\n{}{}\n{}",
                state_word(state_of(&tenant), paint),
                tenant.owner,
                tenant.name,
                tenant.id.0,
                promised(&tenant),
                count(hosts as u64, "host"),
                of_earlier_version(std::slice::from_ref(&tenant), DEFAULT_BURSTS),
                enforcement::measured(tenant_state.and_then(|it| it.measured.as_ref())),
                runs(&tenant.runs, paint),
                on_its_way(&tenant),
                enforcement::hosts(standings, true, paint)
            )
        });
        Ok(Exit::Holds)
    }
}

/// Arguments of `tailbound place resize`.
#[derive(Debug, clap::Args)]
pub(super) struct Resize {
    /// The tenant's ID, name, or OWNER/NAME
    tenant: TenantName,
    /// The new number of VMs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    vms: u32,
    #[command(flatten)]
    service: Service,
}

impl Resize {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let client = self.service.client()?;
        let id = self.tenant.id(&self.service, &client)?;
        let tenant = client
            .resize(id, self.vms)
            .map_err(|error| self.service.failure(error))?;
        let tenant = confirmed(&client, tenant);
        self.service.print(TENANT, &tenant, |paint| {
            summary(&paint.good("RESIZED"), &tenant, paint)
        });
        Ok(Exit::Holds)
    }
}

/// Arguments of `tailbound place change`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Parts of the guarantee that are left out stay as they are. The new guarantee is \
    checked as an admission is, with all VMs where they are; hosts apply it without a new burst. If \
    another caller changes the tenant meanwhile, nothing changes (exit code 1)."
)]
pub(super) struct Change {
    /// The tenant's ID, name, or OWNER/NAME
    tenant: TenantName,
    /// The new number of VMs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    vms: Option<u32>,
    #[command(flatten)]
    guarantee: GuaranteeChange,
    #[command(flatten)]
    service: Service,
}

impl Change {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        if self.vms.is_none() && !self.guarantee.is_given() {
            return Err(Failure::wrong_arguments(
                "there is nothing to change; pass --vms, or a part of the guarantee such as --bandwidth",
            ));
        }
        let client = self.service.client()?;
        let id = self.tenant.id(&self.service, &client)?;
        let failure = |error| self.service.failure(error);
        let tenant = client.tenant(id).map_err(failure)?;
        let patch = TenantPatch {
            vms: self.vms,
            guarantee: self.guarantee.of(tenant.request.guarantee)?,
        };
        let tenant = client.patch(id, &patch, tenant.change).map_err(failure)?;
        let tenant = confirmed(&client, tenant);
        self.service.print(TENANT, &tenant, |paint| {
            summary(&paint.good("CHANGED"), &tenant, paint)
        });
        Ok(Exit::Holds)
    }
}

/// Arguments of `tailbound place delete`.
#[derive(Debug, clap::Args)]
pub(super) struct Delete {
    /// The tenant's ID, name, or OWNER/NAME
    tenant: TenantName,
    #[command(flatten)]
    service: Service,
}

impl Delete {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let client = self.service.client()?;
        let id = self.tenant.id(&self.service, &client)?;
        client
            .delete(id)
            .map_err(|error| self.service.failure(error))?;
        self.service
            .print("place-delete", &DeletedTenant { id: id.0 }, |paint| {
                format!("{}  id {}\n", paint.good("DELETED"), id.0)
            });
        Ok(Exit::Holds)
    }
}

/// Arguments of `tailbound place relocate`.
#[derive(Debug, clap::Args)]
pub(super) struct Relocate {
    /// The tenant's ID, name, or OWNER/NAME
    tenant: TenantName,
    #[command(flatten)]
    service: Service,
}

impl Relocate {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let client = self.service.client()?;
        let id = self.tenant.id(&self.service, &client)?;
        let failed = |error| self.service.failure(error);
        let before = client.tenant(id).map_err(failed)?;
        let tenant = confirmed(&client, client.relocate(id).map_err(failed)?);
        let word = if before.runs == tenant.runs {
            "NOTHING TO MOVE"
        } else {
            "RELOCATED"
        };
        self.service.print(TENANT, &tenant, |paint| {
            summary(&paint.good(word), &tenant, paint)
        });
        Ok(Exit::Holds)
    }
}
