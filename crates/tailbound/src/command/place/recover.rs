//! `tailbound place recover`.

use super::form::Output;
use super::request::{count, read_topology};
use super::serve::policy;
use super::store::StoreUrl;
use crate::command::output::{self, paint};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::path::{Path, PathBuf};
use tailbound_api::HostGuarantees;
use tailbound_control::audit::audit;
use tailbound_control::ledger::{Ledger, Recovery, read_state, recover};
use tailbound_control::store::Sqlite;
use tailbound_placement::Policy;

/// Limit on the length of a state file, in bytes.
const MAX_FILE: u64 = 64 << 20;

/// Arguments of `tailbound place recover`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "For a store that is lost together with its backups. Copy the state file of each \
    host (tailbound host --control-state) into one directory, and stop the service meanwhile. The \
    new store has the hosts' tenants with their ids, machines, guarantees, CPU reservations and \
    limits, and closed hosts. No host holds CPUs, memory, fault domains, messages, reservations, \
    tokens and idempotency keys: the new store has none. If hosts contradict each other, the one \
    that knew the later change counts. Contradictions, gaps, and tenants that do not fit are listed. \
    Exit code: 0 done; 1 done, and something is listed; 2 failed, nothing was written."
)]
pub(super) struct Recover {
    /// A directory with the state files of all hosts; subdirectories count, too
    #[arg(long, value_name = "DIRECTORY")]
    from_hosts: PathBuf,
    /// The topology: the file from which the lost store began, with later changes
    #[arg(long, value_name = "FILE")]
    topology: PathBuf,
    /// The admission policy of the lost store [default: silo]
    #[arg(long, value_parser = policy)]
    policy: Option<Policy>,
    /// The store to create: sqlite:FILE, which must not exist
    #[arg(long, value_name = "STORE")]
    store: StoreUrl,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// The JSON document.
#[derive(Debug, Serialize)]
struct Document {
    hosts: usize,
    tenants: usize,
    vms: u64,
    /// Contradictions, gaps, misfits, and files that could not be read.
    findings: Vec<String>,
}

impl Recover {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let StoreUrl::Sqlite(store) = &self.store else {
            return Err(Failure::wrong_arguments(
                "a store is recovered into a file: --store sqlite:FILE",
            ));
        };
        let spec = read_topology(&self.topology)?;
        let (host_states, mut findings) = read_all(&self.from_hosts)?;
        if host_states.is_empty() {
            return Err(Failure::new(format!(
                "{}: there is no state file of a host in it",
                self.from_hosts.display()
            )));
        }
        let Recovery {
            snapshot,
            hosts,
            findings: found,
        } = recover(spec, self.policy.unwrap_or_default(), host_states).map_err(Failure::new)?;
        findings.extend(found.iter().map(ToString::to_string));
        // As the service does at its start, and by the exact curves.
        Ledger::load(snapshot.clone()).map_err(Failure::new)?;
        let audited = audit(&snapshot).findings;
        findings.extend(audited.iter().map(ToString::to_string));
        Sqlite::restore(store, &snapshot).map_err(Failure::new)?;
        let vms = snapshot.tenants.values();
        let document = Document {
            hosts,
            tenants: snapshot.tenants.len(),
            vms: vms.map(|tenant| u64::from(tenant.request.vms)).sum(),
            findings,
        };
        output::print(&match self.output {
            Output::Json => output::json("place-recover", 1, &document),
            Output::Text => document.text(),
        });
        Ok(Exit::holds(document.findings.is_empty()))
    }
}

impl Document {
    fn text(&self) -> String {
        let lines = self.findings.iter().map(|what| format!("FOUND  {what}\n"));
        let lines: String = lines.collect();
        format!(
            "{}  {}, {} of {}\n{lines}",
            paint().good("RECOVERED"),
            count(self.tenants as u64, "tenant"),
            count(self.vms, "machine"),
            count(self.hosts as u64, "host"),
        )
    }
}

/// Returns the guarantees in all files below a directory, and the files that have none.
fn read_all(directory: &Path) -> Result<(Vec<HostGuarantees>, Vec<String>), Failure> {
    let (mut host_states, mut unread) = (Vec::new(), Vec::new());
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        let failed = |error| Failure::new(format!("{}: {error}", directory.display()));
        let entries = std::fs::read_dir(&directory).map_err(failed)?;
        let mut paths = Vec::new();
        for entry in entries {
            paths.push(entry.map_err(failed)?.path());
        }
        paths.sort();
        for path in paths {
            // Not through a link, which may lead back.
            let kind = std::fs::symlink_metadata(&path).map_err(failed)?;
            if kind.is_dir() {
                directories.push(path);
                continue;
            }
            match read_file(&path, kind.len()) {
                Ok(guarantees) => host_states.push(guarantees),
                Err(why) => unread.push(format!("{}: {why}", path.display())),
            }
        }
    }
    Ok((host_states, unread))
}

fn read_file(path: &Path, length: u64) -> Result<HostGuarantees, String> {
    if length > MAX_FILE {
        return Err(format!("{length} bytes are too many for a state file"));
    }
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    read_state(&text)
}
