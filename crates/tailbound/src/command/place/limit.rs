//! `tailbound place limit`, and the arguments that `place create` shares with it.

use super::enforcement::confirmed;
use super::name::TenantName;
use super::service::{Service, TENANT};
use super::summary::summary;
use crate::exit::{Exit, Failure};
use tailbound_api::{InLimit, LimitKind, OutLimit, VmLimit};
use tailbound_units::Rate;

/// Arguments for the limits of VMs' sent and received traffic.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limit")]
pub(super) struct LimitArgs {
    /// The rate limit of each VM's outgoing traffic, to all destinations together
    #[arg(long = "limit-out", value_name = "RATE")]
    out: Option<Rate>,
    /// The algorithm of the outgoing limit
    #[arg(
        long = "limit-kind",
        value_enum,
        value_name = "KIND",
        default_value = "bucket",
        requires = "out"
    )]
    kind: Kind,
    /// The rate limit of each VM's incoming traffic
    #[arg(long = "limit-in", value_name = "RATE")]
    inward: Option<Rate>,
}

/// Mechanism of a VM's outgoing limit.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Kind {
    /// A token bucket
    Bucket,
    /// Smooth window: delays that keep TCP's window from collapsing; for VMs without a guarantee
    SmoothWindow,
}

impl LimitArgs {
    /// Returns the limits; `None` without arguments.
    pub(super) fn limit(&self) -> Option<VmLimit> {
        let kind = match self.kind {
            Kind::Bucket => LimitKind::Bucket,
            Kind::SmoothWindow => LimitKind::SmoothWindow,
        };
        let limit = VmLimit {
            out: self.out.map(|rate| OutLimit { kind, rate }),
            inward: self.inward.map(|rate| InLimit { rate }),
        };
        (!limit.is_none()).then_some(limit)
    }
}

/// Arguments of `tailbound place limit`.
#[derive(Debug, clap::Args)]
#[command(group(
    clap::ArgGroup::new("what")
        .args(["out", "inward", "none"])
        .multiple(true)
        .required(true)
))]
pub(super) struct Limit {
    /// The tenant's ID, name, or OWNER/NAME
    tenant: TenantName,
    #[command(flatten)]
    args: LimitArgs,
    /// Remove the limits of both directions
    #[arg(long, conflicts_with_all = ["out", "inward"], help_heading = "Limit")]
    none: bool,
    #[command(flatten)]
    service: Service,
}

impl Limit {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let limit = self.args.limit().unwrap_or_default();
        // The service checks the same; here errors are wrong arguments, and no request is sent.
        limit.check(None).map_err(Failure::wrong_arguments)?;
        let client = self.service.client()?;
        let id = self.tenant.id(&self.service, &client)?;
        let limited = client.limit(id, &limit);
        let tenant = limited.map_err(|error| self.service.failure(error))?;
        let tenant = confirmed(&client, tenant);
        let word = if limit.is_none() {
            "UNLIMITED"
        } else {
            "LIMITED"
        };
        self.service.print(TENANT, &tenant, |paint| {
            summary(&paint.good(word), &tenant, paint)
        });
        Ok(Exit::Holds)
    }
}
