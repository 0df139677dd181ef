//! `tailbound place status`.

use super::request::count;
use super::service::Service;
use crate::exit::{Exit, Failure};
use serde::Serialize;
use tailbound_api::Role;
use tailbound_api::client::Client;
use tailbound_placement::Policy;

/// Arguments of `tailbound place status`.
#[derive(Debug, clap::Args)]
pub(super) struct Status {
    #[command(flatten)]
    service: Service,
}

/// JSON document of `--output json`: the API's, except that `version` is this program's in every
/// document.
#[derive(Debug, Serialize)]
struct Document<'s> {
    service_version: &'s str,
    role: Role,
    leader: Option<&'s str>,
    revision: u64,
    policy: Policy,
    tenants: u64,
    pending: u64,
    degraded: u64,
    hosts: u64,
    open_hosts: u64,
    slots: u64,
    used: u64,
}

impl Status {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let status = self.service.ask(Client::status)?;
        let document = Document {
            service_version: &status.version,
            role: status.role,
            leader: status.leader.as_deref(),
            revision: status.revision,
            policy: status.policy,
            tenants: status.tenants,
            pending: status.pending,
            degraded: status.degraded,
            hosts: status.hosts,
            open_hosts: status.open_hosts,
            slots: status.slots,
            used: status.used,
        };
        self.service
            .print("place-status", &document, |_| text(&status));
        Ok(Exit::Holds)
    }
}

fn text(status: &tailbound_api::Status) -> String {
    let role = match (status.role, &status.leader) {
        (Role::Leader, _) => "the leader".to_owned(),
        (Role::Follower, Some(leader)) => format!("a follower of {leader}"),
        (Role::Follower, None) => "a follower that knows of no leader".to_owned(),
    };
    let tenths = (u128::from(status.used) * 1_000)
        .checked_div(u128::from(status.slots))
        .unwrap_or_default();
    format!(
        "tailbound {}, {role}, revision {}, policy {}\n{}, {} pending, {} degraded; {} of {} slots \
         used ({}.{}%), {} of {} hosts open\n",
        status.version,
        status.revision,
        status.policy.name(),
        count(status.tenants, "tenant"),
        status.pending,
        status.degraded,
        status.used,
        status.slots,
        tenths / 10,
        tenths % 10,
        status.open_hosts,
        status.hosts,
    )
}
