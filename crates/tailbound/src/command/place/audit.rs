//! `tailbound place audit`.

use super::form::Output;
use super::request::count;
use super::store::StoreUrl;
use crate::command::output::{self, paint};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fmt::Write as _;
use tailbound_control::audit::{Report, audit};
use tailbound_control::store::{Sqlite, Store as _, etcd};
use tailbound_report::Paint;

/// Arguments of `tailbound place audit`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Reads the store itself, not through the service, and recomputes every port from \
    all tenants by the exact curves, without the code that decided. A file is its service's alone: \
    stop that first. Exit code: 0 all holds; 1 something does not; 2 could not read the store."
)]
pub(super) struct Audit {
    /// Where it is: sqlite:FILE, or etcd://HOST:PORT[,...]/PREFIX
    #[arg(long, value_name = "STORE")]
    store: StoreUrl,
    /// What to print
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// What `--output json` prints.
#[derive(Debug, Serialize)]
struct Document<'r> {
    schema: u32,
    kind: &'static str,
    version: &'static str,
    holds: bool,
    tenants: usize,
    vms: u64,
    ports: usize,
    keys: usize,
    findings: Vec<Finding<'r>>,
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
            Output::Json => output::json(&Document::new(&report)),
            Output::Text => text(&report, paint()),
        });
        Ok(Exit::holds(report.findings.is_empty()))
    }
}

impl<'r> Document<'r> {
    fn new(report: &'r Report) -> Self {
        let findings = report.findings.iter().map(|finding| Finding {
            subject: &finding.subject,
            what: &finding.what,
        });
        Self {
            schema: 1,
            kind: "place-audit",
            version: env!("CARGO_PKG_VERSION"),
            holds: report.findings.is_empty(),
            tenants: report.tenants,
            vms: report.vms,
            ports: report.ports,
            keys: report.keys,
            findings: findings.collect(),
        }
    }
}

fn text(report: &Report, paint: Paint) -> String {
    let word = if report.findings.is_empty() {
        paint.good("HOLDS")
    } else {
        paint.bad("DOES NOT HOLD")
    };
    let mut out = format!(
        "{word}  {}, {}, {} with promises, {}\n",
        count(report.tenants as u64, "tenant"),
        count(report.vms, "machine"),
        count(report.ports as u64, "port"),
        count(report.keys as u64, "idempotency key"),
    );
    for finding in &report.findings {
        // Writing to a String does not fail.
        let _ = writeln!(out, "{finding}");
    }
    out
}
