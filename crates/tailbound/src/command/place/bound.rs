//! `tailbound place bound`.

use super::name::TenantName;
use super::service::Service;
use super::tables::ports;
use crate::exit::{Exit, Failure};
use std::fmt::Write as _;
use tailbound_api::{MessageBound, PairBound};
use tailbound_placement::CpuLatency;
use tailbound_report::{NOTHING, Paint};
use tailbound_units::rounded_up::time;
use tailbound_units::{Bytes, Nanos};

/// Arguments of `tailbound place bound`.
#[derive(Debug, clap::Args)]
pub(super) struct Bound {
    /// The tenant's ID, name, or OWNER/NAME
    tenant: TenantName,
    /// The number of the sending VM
    from: u32,
    /// The number of the receiving VM
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
        self.service
            .print("place-bound", &bound, |paint| text(&bound, paint));
        Ok(Exit::Holds)
    }
}

fn text(bound: &PairBound, paint: Paint) -> String {
    let mut out = format!(
        "from {} on {} to {} on {}, a frame waits in queues at most\n",
        bound.from, bound.from_host, bound.to, bound.to_host
    );
    if let Some(class) = bound.class {
        let _ = writeln!(out, "in delay class {class}");
    }
    let promised = match bound.promised {
        Some(promised) => (time(promised.0), "as promised"),
        None => (NOTHING.to_owned(), "no delay is promised"),
    };
    let lines = [
        (time(bound.now.0), "with the tenants there are now"),
        (time(bound.capacity.0), "with any further tenants"),
        promised,
    ];
    let width = lines.iter().map(|(time, _)| time.len()).max();
    for (time, when) in &lines {
        // Writing to a String does not fail.
        let _ = writeln!(out, "  {time:>0$}  {when}", width.unwrap_or_default());
    }
    if let Some(message) = &bound.message {
        out += &of_message(bound, message, paint);
    }
    if bound.ports.is_empty() {
        out += "\nno queue of the network is between them\n";
    } else {
        let _ = write!(out, "\n{}", ports(&bound.ports, paint));
    }
    out
}

/// Returns the time of a message, part by part.
fn of_message(bound: &PairBound, message: &MessageBound, paint: Paint) -> String {
    let whole = match (&message.total, &message.unbounded) {
        (Some(total), _) => format!("takes at most {}", time(total.0)),
        (None, why) => {
            let why = why.as_deref().unwrap_or(NOTHING);
            paint.bad(&format!("has no bound: {why}"))
        }
    };
    let mut out = format!("\na message of {} {whole}\n", message.size);
    let end =
        |cpu: Option<&CpuLatency>| cpu.map_or_else(|| NOTHING.to_owned(), |it| time(it.total().0));
    let at = |number, host: &str, cpu: Option<&CpuLatency>| {
        let parts = cpu.map(parts).filter(|parts| !parts.is_empty());
        let parts = parts.map_or_else(String::new, |parts| format!(": {parts}"));
        format!("CPU of {number} on {host}{parts}")
    };
    let rest = message.size.0 - message.burst.0;
    let after_bursts = message.after_bursts.map(|longer| {
        let (from, near) = (bound.from, format!("the host, rack or pod of {}", bound.to));
        (
            time(longer.0),
            format!("after its bursts, instead of the two times above: {from} sent them to other VMs in {near}, and all VMs send there"),
        )
    });
    let promised = if bound.promised.is_some() {
        "promised"
    } else {
        "the queues' capacity"
    };
    let lines = [
        (
            end(message.send.as_ref()),
            at(bound.from, &bound.from_host, message.send.as_ref()),
        ),
        (
            time(message.at_burst_rate.0),
            format!("{} at the burst rate", message.burst),
        ),
        (
            time(message.at_bandwidth.0),
            format!("{} more at the bandwidth", Bytes(rest)),
        ),
        (time(message.delay.0), format!("in queues, {promised}")),
        (
            end(message.receive.as_ref()),
            at(bound.to, &bound.to_host, message.receive.as_ref()),
        ),
    ];
    let [send, fast, slow, queues, receive] = lines;
    let lines = [send, fast, slow].into_iter().chain(after_bursts);
    let lines: Vec<_> = lines.chain([queues, receive]).collect();
    let width = lines.iter().map(|(time, _)| time.len()).max();
    for (time, meaning) in &lines {
        // Writing to a String does not fail.
        let _ = writeln!(out, "  {time:>0$}  {meaning}", width.unwrap_or_default());
    }
    out
}

/// Returns the existing parts of a vCPU's time.
fn parts(cpu: &CpuLatency) -> String {
    let CpuLatency {
        demand,
        blackout,
        overrun,
        charged,
        lateness,
    } = *cpu;
    let parts = [
        (demand, "of work"),
        (blackout, "without a CPU"),
        (overrun, "after an earlier overrun"),
        (charged, "for interrupts and steal charged to it"),
        (lateness, "late because of others, interrupts and steal"),
    ];
    let parts = parts.into_iter().filter(|(part, _)| *part > Nanos::ZERO);
    let parts: Vec<_> = parts
        .map(|(part, what)| format!("{} {what}", time(part.0)))
        .collect();
    parts.join(", ")
}
