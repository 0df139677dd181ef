//! `tailbound place backup`, `tailbound place import` and `tailbound place salvage`.

use super::form::Output;
use super::request::count;
use super::service::Service;
use super::store::StoreUrl;
use crate::command::output::{self, paint};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use tailbound_api::client::Client;
use tailbound_control::audit::audit;
use tailbound_control::backup;
use tailbound_control::ledger::{Ledger, Snapshot};
use tailbound_control::store::Sqlite;

/// Arguments of `tailbound place backup`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The service keeps running, with SQLite and with etcd. The backup is a \
    snapshot: lines of JSON, with a checksum in the last line. An existing file is replaced \
    when the new one is complete. `tailbound place import` creates a store from it."
)]
pub(super) struct Backup {
    /// The file to write, or - for standard output
    file: PathBuf,
    #[command(flatten)]
    service: Service,
}

/// Arguments of `tailbound place import`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Checks every guarantee twice: as the service does at its start, and by the \
    exact curves of `tailbound place audit`. Hosts with newer versions than the backup's \
    follow the new store. Issued tokens are as in the backup, also those that were revoked since; \
    --without-tokens leaves all out. If ports carry more than the rules allow, as tenants of an earlier \
    version may, --over accepts all tenants and lists these: they stay, and no further tenant \
    is admitted there. Exit code: 0 done; 1 a guarantee does not hold, nothing was written; 2 \
    failed."
)]
pub(super) struct Import {
    /// A file of `tailbound place backup`
    file: PathBuf,
    /// The store to create: sqlite:FILE, which must not exist
    #[arg(long, value_name = "STORE")]
    store: StoreUrl,
    /// Accept tenants that were admitted by other rules, and list them
    #[arg(long)]
    over: bool,
    /// Leave out all issued tokens: then no token that was revoked after the backup is valid again
    #[arg(long)]
    without_tokens: bool,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Arguments of `tailbound place salvage`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "For a store of SQLite with which the service does not start, as it is damaged. \
    The backup has everything that can be read; what is lost is listed. The store is not changed. \
    `tailbound place import` creates a store from the backup. A recent backup may have tenants that \
    the store has lost: compare both. Exit code: 0 nothing is lost; 1 something is lost; 2 failed."
)]
pub(super) struct Salvage {
    /// The file to write
    file: PathBuf,
    /// The damaged store: sqlite:FILE
    #[arg(long, value_name = "STORE")]
    store: StoreUrl,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// The advice after an import of a backup with issued tokens.
const RESTORED_TOKENS: &str = "TOKENS  issued tokens are as they were in the backup: one that was revoked since is \
    valid again. Compare `tailbound place token list` with the audit log, or import with --without-tokens\n";

/// Content of a backup.
#[derive(Debug, Serialize)]
struct Content {
    revision: u64,
    tenants: usize,
    vms: u64,
    keys: usize,
    /// Issued tokens, which an import brings back.
    tokens: usize,
    /// After an import: tenants that the rules would not admit now at their places.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    over: Vec<String>,
    /// After a salvage: what could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lost: Vec<String>,
}

impl Content {
    fn of(snapshot: &Snapshot) -> Self {
        let vms = snapshot.tenants.values();
        Self {
            revision: snapshot.revision,
            tenants: snapshot.tenants.len(),
            vms: vms.map(|tenant| u64::from(tenant.request.vms)).sum(),
            keys: snapshot.keys.len(),
            tokens: snapshot.tokens.len(),
            over: Vec::new(),
            lost: Vec::new(),
        }
    }

    fn text(&self) -> String {
        let tokens = match self.tokens {
            0 => String::new(),
            tokens => format!(", {}", count(tokens as u64, "issued token")),
        };
        format!(
            "{}, {}, {}{tokens}, at revision {}",
            count(self.tenants as u64, "tenant"),
            count(self.vms, "machine"),
            count(self.keys as u64, "idempotency key"),
            self.revision,
        )
    }
}

impl Backup {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let text = self.service.ask(Client::backup)?;
        let snapshot = backup::read(&text)
            .map_err(|error| Failure::new(format!("the service's answer: {error}")))?;
        if self.file == Path::new("-") {
            output::print(&text);
            return Ok(Exit::Holds);
        }
        write(&self.file, &text)
            .map_err(|error| Failure::new(format!("{}: {error}", self.file.display())))?;
        let content = Content::of(&snapshot);
        self.service.print("place-backup", &content, |paint| {
            format!("{}  {}\n", paint.good("WRITTEN"), content.text())
        });
        Ok(Exit::Holds)
    }
}

/// Writes a file for its owner alone, atomically.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    // The name is durable, too.
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

impl Import {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let StoreUrl::Sqlite(store) = &self.store else {
            return Err(Failure::wrong_arguments(
                "a backup is made into a file: --store sqlite:FILE; etcd has snapshots of its own \
                 (etcdctl snapshot)",
            ));
        };
        let name = self.file.display();
        let text = std::fs::read_to_string(&self.file);
        let text = text.map_err(|error| Failure::new(format!("{name}: {error}")))?;
        let mut snapshot =
            backup::read(&text).map_err(|error| Failure::new(format!("{name}: {error}")))?;
        if self.without_tokens {
            snapshot.tokens.clear();
        }
        let broken = |problem: &dyn std::fmt::Display| {
            Failure::with(
                Exit::DoesNotHold,
                format!("{name}: a promise in it does not hold: {problem}"),
            )
        };
        let ledger = Ledger::load(snapshot.clone()).map_err(|error| broken(&error))?;
        let findings = audit(&snapshot).findings;
        if let Some(finding) = findings.iter().find(|finding| !finding.is_over) {
            return Err(broken(finding));
        }
        if let Some(finding) = findings.first().filter(|_| !self.over) {
            return Err(broken(&format!(
                "{finding}; --over takes what other rules admitted as it is"
            )));
        }
        Sqlite::restore(store, &snapshot).map_err(Failure::new)?;
        let mut content = Content::of(&snapshot);
        if !findings.is_empty() {
            content.over = ledger.tenants_over();
        }
        output::print(&match self.output {
            Output::Json => output::json("place-import", 1, &content),
            Output::Text => {
                let over = findings.iter().map(|finding| format!("OVER  {finding}\n"));
                let tenants = content.over.iter();
                let tenants = tenants.map(|name| format!("OVER  tenant {name} is kept as it is\n"));
                let over: String = over.chain(tenants).collect();
                let tokens = match content.tokens {
                    0 => "",
                    _ => RESTORED_TOKENS,
                };
                format!(
                    "{}  {}\n{over}{tokens}",
                    paint().good("IMPORTED"),
                    content.text()
                )
            }
        });
        Ok(Exit::Holds)
    }
}

impl Salvage {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let StoreUrl::Sqlite(store) = &self.store else {
            return Err(Failure::wrong_arguments(
                "only a file is salvaged: --store sqlite:FILE; etcd has snapshots of its own \
                 (etcdctl snapshot)",
            ));
        };
        let (snapshot, lost) = Sqlite::salvage(store).map_err(Failure::new)?;
        write(&self.file, &backup::write(&snapshot))
            .map_err(|error| Failure::new(format!("{}: {error}", self.file.display())))?;
        let mut content = Content::of(&snapshot);
        content.lost = lost;
        output::print(&match self.output {
            Output::Json => output::json("place-salvage", 1, &content),
            Output::Text => {
                let lost = content.lost.iter().map(|what| format!("LOST  {what}\n"));
                let lost: String = lost.collect();
                format!("{}  {}\n{lost}", paint().good("SALVAGED"), content.text())
            }
        });
        Ok(Exit::holds(content.lost.is_empty()))
    }
}
