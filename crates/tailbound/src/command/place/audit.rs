//! `tailbound place audit`.

use super::form::Output;
use super::request::count;
use super::store::StoreUrl;
use crate::command::output::{self, paint};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fmt::Write as _;
use tailbound_api::UnpromisedGuest;
use tailbound_control::audit::{CpuOnHost, Report, audit};
use tailbound_control::store::{Sqlite, Store as _, etcd};
use tailbound_report::Paint;

/// Arguments of `tailbound place audit`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Reads the store directly, not through the service, and recomputes every port \
    from all tenants by exact curves, in code of its own. An SQLite store is locked by its \
    service: stop the service first. Exit code: 0 all guarantees hold; 1 a guarantee does not \
    hold; 2 the store cannot be read."
)]
pub(super) struct Audit {
    /// The store: sqlite:FILE, or etcd://HOST:PORT[,...]/PREFIX
    #[arg(long, value_name = "STORE")]
    store: StoreUrl,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// JSON document of `--output json`.
#[derive(Debug, Serialize)]
struct Document<'r> {
    holds: bool,
    tenants: usize,
    vms: u64,
    ports: usize,
    keys: usize,
    entries: usize,
    reservations: usize,
    misfits: usize,
    cpu: Vec<Cpu<'r>>,
    late: Vec<Late<'r>>,
    findings: Vec<Finding<'r>>,
}

/// Reserved CPU of a host, in thousandths of a CPU.
#[derive(Debug, Serialize)]
struct Cpu<'r> {
    host: &'r str,
    reserved: u128,
    vcpus: u128,
    /// Capacity that the host reported; `None` if its agent reserves nothing, or is silent.
    reservable: Option<u64>,
    /// Guests with larger reservations than their guarantees, and their reservations.
    unpromised: &'r [UnpromisedGuest],
    holds: bool,
}

/// A host whose frames leave later than admission counted with.
#[derive(Debug, Serialize)]
struct Late<'r> {
    host: &'r str,
    machines: u64,
    why: String,
}

#[derive(Debug, Serialize)]
struct Finding<'r> {
    subject: &'r str,
    what: &'r str,
}

impl Audit {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let snapshot = match &self.store {
            StoreUrl::Sqlite(path) => Sqlite::open_existing(path).and_then(|mut file| file.load()),
            StoreUrl::Etcd(location) => etcd::snapshot(location),
        };
        let snapshot = snapshot.map_err(Failure::new)?;
        let report = audit(&snapshot);
        output::print(&match self.output {
            Output::Json => output::json("place-audit", 1, &Document::new(&report)),
            Output::Text => text(&report, paint()),
        });
        Ok(Exit::holds(holds(&report)))
    }
}

impl<'r> Document<'r> {
    fn new(report: &'r Report) -> Self {
        let findings = report.findings.iter().map(|finding| Finding {
            subject: &finding.subject,
            what: &finding.what,
        });
        let cpu = report.cpu.iter().map(|cpu| Cpu {
            host: &cpu.host,
            reserved: cpu.reserved,
            vcpus: cpu.vcpus,
            reservable: cpu.keeps.map(|keeps| keeps.reservable),
            unpromised: &cpu.unpromised,
            holds: cpu.holds(),
        });
        let late = report.late.iter().map(|late| Late {
            host: &late.host,
            machines: late.machines,
            why: late.rule.to_string(),
        });
        Self {
            holds: holds(report),
            tenants: report.tenants,
            vms: report.vms,
            ports: report.ports,
            keys: report.keys,
            entries: report.entries,
            reservations: report.reservations,
            misfits: report.misfits,
            cpu: cpu.collect(),
            late: late.collect(),
            findings: findings.collect(),
        }
    }
}

/// Returns true if every guarantee holds, by the hosts' last reports of their CPU and lateness.
fn holds(report: &Report) -> bool {
    let on_hosts = report.late.is_empty() && report.cpu.iter().all(CpuOnHost::holds);
    report.findings.is_empty() && on_hosts
}

/// Returns the numbers of open reservations and of misfits that are above zero.
fn others(report: &Report) -> String {
    let mut out = String::new();
    for (number, noun) in [
        (report.reservations, "open reservation"),
        (report.misfits, "adopted misfit"),
    ] {
        if number > 0 {
            // Writing to a String does not fail.
            let _ = write!(out, ", {}", count(number as u64, noun));
        }
    }
    out
}

fn text(report: &Report, paint: Paint) -> String {
    let word = if holds(report) {
        paint.good("HOLDS")
    } else {
        paint.bad("DOES NOT HOLD")
    };
    let mut out = format!(
        "{word}  {}, {}, {} with promises, {}{}\n",
        count(report.tenants as u64, "tenant"),
        count(report.vms, "machine"),
        count(report.ports as u64, "port"),
        count(report.keys as u64, "idempotency key"),
        others(report),
    );
    for finding in &report.findings {
        // Writing to a String does not fail.
        let _ = writeln!(out, "{finding}");
    }
    for cpu in &report.cpu {
        let cpu_text = cpu.to_string();
        let is_well = cpu.holds() && cpu.unpromised.is_empty();
        let cpu_text = if is_well {
            cpu_text
        } else {
            paint.bad(&cpu_text)
        };
        let _ = writeln!(out, "{cpu_text}");
    }
    for late in &report.late {
        let _ = writeln!(out, "{}", paint.bad(&late.to_string()));
    }
    out
}
