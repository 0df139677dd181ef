//! `tailbound place bound`.

use super::name::TenantName;
use super::service::Service;
use super::tables::ports;
use crate::command::figures::time;
use crate::exit::{Exit, Failure};
use std::fmt::Write as _;
use tailbound_api::PairBound;
use tailbound_report::{NOTHING, Paint};

/// Arguments of `tailbound place bound`.
#[derive(Debug, clap::Args)]
pub(super) struct Bound {
    /// Its id, name, or owner and name (OWNER/NAME)
    tenant: TenantName,
    /// The sender's number
    from: u32,
    /// The receiver's number
    to: u32,
    #[command(flatten)]
    service: Service,
}

impl Bound {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let client = self.service.client()?;
        let id = self.tenant.id(&self.service, &client)?;
        let bound = client
            .bound(id, self.from, self.to)
            .map_err(|error| self.service.failure(error))?;
        self.service.print(&bound, |paint| text(&bound, paint));
        Ok(Exit::Holds)
    }
}

fn text(bound: &PairBound, paint: Paint) -> String {
    let mut out = format!(
        "from {} on {} to {} on {}, a frame waits in queues at most\n",
        bound.from, bound.from_host, bound.to, bound.to_host
    );
    let promised = match bound.promised {
        Some(promised) => (time(promised.0), "as promised"),
        None => (NOTHING.to_owned(), "no delay is promised"),
    };
    let lines = [
        (time(bound.now.0), "with the tenants there are now"),
        (time(bound.capacity.0), "whoever else comes"),
        promised,
    ];
    let width = lines.iter().map(|(time, _)| time.len()).max();
    for (time, when) in &lines {
        // Writing to a String does not fail.
        let _ = writeln!(out, "  {time:>0$}  {when}", width.unwrap_or_default());
    }
    if bound.ports.is_empty() {
        out += "\nno queue of the network is between them\n";
    } else {
        let _ = write!(out, "\n{}", ports(&bound.ports, paint));
    }
    out
}
