//! `tailbound place status`.

use super::request::count;
use super::service::Service;
use crate::exit::{Exit, Failure};
use tailbound_api::Role;
use tailbound_client::Client;
use tailbound_placement::Policy;

/// Arguments of `tailbound place status`.
#[derive(Debug, clap::Args)]
pub(super) struct Status {
    #[command(flatten)]
    service: Service,
}

impl Status {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let status = self.service.ask(Client::status)?;
        self.service.print(&status, |_| text(&status));
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
        policy(status.policy),
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

/// A policy's name.
pub(super) const fn policy(policy: Policy) -> &'static str {
    match policy {
        Policy::Silo => "silo",
        Policy::Oktopus => "oktopus",
        Policy::OktopusBursts => "oktopus-bursts",
        Policy::Locality => "locality",
    }
}
