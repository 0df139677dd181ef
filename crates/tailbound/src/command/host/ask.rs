//! `tailbound host add-guest`, `change-guest`, `remove-guest`, `show`, `drain`: requests to a
//! daemon at its control socket.

use super::daemon_args::{DaemonArgs, failure};
use super::libvirt;
use super::snoop;
use super::status;
use super::verify;
use crate::command::output::{self, Output};
use crate::exit::{Exit, Failure, print_error};
use std::fmt::Write as _;
use std::io::{Read as _, stdin};
use std::path::{Path, PathBuf};
use tailbound_host::socket::{
    Guarantee, GuaranteedBy, Guest, GuestSource, HostStatus, Link, Outcome, Port, Request,
};
use tailbound_report::{Paint, Table, human};
use tailbound_units::Nanos;

/// Name of standard input in errors.
const STDIN: &str = "<stdin>";

/// Requests to a running daemon.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Ask {
    /// Add guests to the running daemon, and keep them for its next start
    AddGuest(Add),
    /// Change added guests, and keep the change for the next start
    ChangeGuest(Change),
    /// Remove an added guest
    RemoveGuest(Remove),
    /// Show guests, guarantees and counters
    Show(Show),
    /// Show everything that is wanted and not in force
    Status(status::Status),
    /// Stop reading from a guest and wait until its queued packets are sent
    Drain(Drain),
    /// Prepare the migration of a guest, and wait until it may start
    MigratePrepare(snoop::MigratePrepare),
    /// Check whether a guest gets its guarantee, and if not, which side is at fault
    Verify(verify::Verify),
    /// Inspect early acknowledgement
    #[command(subcommand)]
    Snoop(snoop::Snoop),
    /// Add and remove a domain's guests, as libvirt's hook for QEMU
    LibvirtHook(libvirt::Hook),
    /// Apply changes of running libvirt domains' metadata to guests
    LibvirtWatch(libvirt::Watch),
}

impl Ask {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        match self {
            Self::AddGuest(add) => add.run(),
            Self::ChangeGuest(change) => change.run(),
            Self::RemoveGuest(remove) => remove.run(),
            Self::Show(show) => show.run(),
            Self::Status(status) => status.run(),
            Self::Drain(drain) => drain.run(),
            Self::MigratePrepare(prepare) => prepare.run(),
            Self::Verify(verify) => verify.run(),
            Self::Snoop(snoop) => snoop.run(),
            Self::LibvirtHook(hook) => hook.run(),
            Self::LibvirtWatch(watch) => watch.run(),
        }
    }
}

/// Arguments of `tailbound host add-guest`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Adds all guests or none. A guest that exists with the same values is not an \
    error. Exit code: 0 the guests exist; 1 refused, nothing was changed; 2 the file cannot be \
    read, or no daemon answers."
)]
pub(super) struct Add {
    /// A file with `[[guest]]` sections, as in the configuration (TOML); - for standard input
    #[arg(value_name = "GUESTS")]
    guests: PathBuf,
    /// Also change guests that were added before with other values
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    daemon: DaemonArgs,
}

impl Add {
    fn run(self) -> Result<Exit, Failure> {
        let (name, toml) = read(&self.guests)?;
        let replace = self.replace;
        let request = Request::AddGuest { toml, replace };
        have(&self.daemon, &request, &name, "added\n")
    }
}

/// Arguments of `tailbound host change-guest`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Changes all guests or none. Only packets queued for a replaced port are \
    lost. Exit code: 0 changed; 1 refused (a guest is missing or a rule would be broken), \
    nothing was changed; 2 the file cannot be read, or no daemon answers."
)]
pub(super) struct Change {
    /// A file with `[[guest]]` sections, as in the configuration (TOML); - for standard input
    #[arg(value_name = "GUESTS")]
    guests: PathBuf,
    #[command(flatten)]
    daemon: DaemonArgs,
}

impl Change {
    fn run(self) -> Result<Exit, Failure> {
        let (name, toml) = read(&self.guests)?;
        let request = Request::ChangeGuest { toml };
        have(&self.daemon, &request, &name, "changed\n")
    }
}

/// Requests a change of guests from a daemon; `name` is the name of their text, `done` is printed
/// if a guest changes.
fn have(daemon: &DaemonArgs, request: &Request, name: &Path, done: &str) -> Result<Exit, Failure> {
    match daemon.ask(request)? {
        Outcome::Done {
            changed,
            unguaranteed,
        } => {
            output::print(if changed {
                done
            } else {
                "there already; nothing has changed\n"
            });
            for guest in unguaranteed {
                print_error(&format!(
                    "warning: {guest} is not held to its guarantee as long as there is no room \
                     for it on the uplink; `tailbound host show` has what it is held to"
                ));
            }
            Ok(Exit::Holds)
        }
        other => Err(failure(other, name)),
    }
}

/// Reads a file, or standard input; returns its name and its text.
fn read(file: &Path) -> Result<(PathBuf, String), Failure> {
    let is_stdin = file == Path::new("-");
    let name = if is_stdin { Path::new(STDIN) } else { file };
    let text = if is_stdin {
        let mut text = String::new();
        stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(file)
    };
    let unread = |error| Failure::new(format!("{}: cannot be read: {error}", name.display()));
    Ok((name.to_owned(), text.map_err(unread)?))
}

/// Arguments of `tailbound host remove-guest`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A missing guest is not an error. Exit code: 0 the guest does not exist; 1 \
    the guest is in the configuration file and stays; 2 no daemon answers."
)]
pub(super) struct Remove {
    /// The name of the guest
    guest: String,
    #[command(flatten)]
    daemon: DaemonArgs,
}

impl Remove {
    fn run(self) -> Result<Exit, Failure> {
        let request = Request::RemoveGuest { guest: self.guest };
        match self.daemon.ask(&request)? {
            Outcome::Done { changed, .. } => {
                output::print(if changed {
                    "removed\n"
                } else {
                    "not there; nothing has changed\n"
                });
                Ok(Exit::Holds)
            }
            other => Err(failure(other, Path::new(""))),
        }
    }
}

/// Arguments of `tailbound host drain`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "From then on, the guest's packets stay in its own ring or queue; packets to \
    the guest are delivered as before. The state lasts until --undo or the end of the daemon. \
    Exit code: 0 all queued packets were sent; 1 some are still queued, or there is no such \
    guest; 2 no daemon answers."
)]
#[group(id = "whom", required = true, multiple = false, args = ["guest", "all"])]
pub(super) struct Drain {
    /// The name of the guest
    guest: Option<String>,
    /// All guests
    #[arg(long)]
    all: bool,
    /// Resume reading from the port
    #[arg(long)]
    undo: bool,
    /// The time to wait for queued packets to be sent; at most an hour
    #[arg(long, value_name = "TIME", default_value = "1s")]
    within: Nanos,
    #[command(flatten)]
    daemon: DaemonArgs,
}

impl Drain {
    fn run(self) -> Result<Exit, Failure> {
        let undo = self.undo;
        let patience_ms = self.within.0 / 1_000_000;
        let request = match self.guest {
            Some(guest) => Request::Drain {
                guest,
                undo,
                patience_ms,
            },
            None => Request::DrainAll { undo, patience_ms },
        };
        match self.daemon.ask(&request)? {
            Outcome::Drained { waiting: true } => Err(Failure::with(
                Exit::DoesNotHold,
                format!(
                    "packets are still queued after {}; reading stays stopped: wait longer, or \
                        resume with --undo",
                    self.within
                ),
            )),
            Outcome::Drained { waiting: false } => {
                output::print(if undo { "read again\n" } else { "drained\n" });
                Ok(Exit::Holds)
            }
            other => Err(failure(other, Path::new(""))),
        }
    }
}

/// Arguments of `tailbound host show`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Counters start with the daemon; `tailbound top` shows rates. Exit code: 0 \
    shown; 2 no daemon answers."
)]
pub(super) struct Show {
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    daemon: DaemonArgs,
}

impl Show {
    fn run(self) -> Result<Exit, Failure> {
        let host = match self.daemon.ask(&Request::Show {})? {
            Outcome::Shown { host } => host,
            other => return Err(failure(other, Path::new(""))),
        };
        output::print(&match self.output {
            Output::Json => output::json("host-show", 2, &host),
            Output::Text => text(&host, output::paint()),
        });
        Ok(Exit::Holds)
    }
}

const HEAD: [&str; 10] = [
    "port",
    "kept",
    "at",
    "state",
    "guarantee",
    "limit",
    "received",
    "sent",
    "backlog",
    "drops",
];

fn text(host: &HostStatus, paint: Paint) -> String {
    let mut table = Table::new(&HEAD, &[1, 2, 3, 4, 5]);
    if let Some(uplink) = &host.uplink {
        let values = ["-".to_owned(), "-".to_owned()];
        table.row(cells(uplink, "file", state(uplink, false), values));
    }
    for guest in &host.guests {
        let source = match guest.kept {
            GuestSource::File => "file",
            GuestSource::Socket => "socket",
        };
        let state = state(&guest.port, guest.drained);
        let values = [guarantee(guest), limit(guest)];
        table.row(cells(&guest.port, source, state, values));
    }
    let mut text = table.render(paint);
    // Writing to a String does not fail.
    let _ = writeln!(
        text,
        "process {}, up for {}, configuration {}",
        host.pid,
        human(host.uptime_ns as f64, "ns"),
        host.config.display(),
    );
    text
}

/// Returns a row of the table; `values` is the guest's guarantee and limit.
fn cells(port: &Port, source: &str, state: &str, values: [String; 2]) -> [String; 10] {
    let [guarantee, limit] = values;
    let bytes = |bytes: u64| human(bytes as f64, "B");
    [
        port.name.clone(),
        source.to_owned(),
        port.port.clone(),
        state.to_owned(),
        guarantee,
        limit,
        bytes(port.received.bytes),
        bytes(port.sent.bytes),
        bytes(port.backlog.bytes),
        port.dropped().to_string(),
    ]
}

fn state(port: &Port, is_drained: bool) -> &'static str {
    match (port.link, is_drained) {
        (Link::Up, true) => "drained",
        (link, _) => link.word(),
    }
}

/// Returns the mark of a guarantee or a limit that is not from the configuration.
const fn word(by: GuaranteedBy) -> &'static str {
    match by {
        GuaranteedBy::Configuration => "",
        GuaranteedBy::Service => " (service)",
    }
}

/// Returns the limits of a guest's sent and received traffic.
fn limit(guest: &Guest) -> String {
    let limits = guest.limit.clone().unwrap_or_default();
    let text = [("out", limits.out), ("in", limits.inward)]
        .into_iter()
        .filter_map(|(direction, limit)| {
            let limit = limit?;
            let rate = human(limit.rate_bit_s as f64, "bit/s");
            Some(format!("{direction} {rate}{}", word(limit.by)))
        });
    let text: Vec<_> = text.collect();
    if text.is_empty() {
        "-".to_owned()
    } else {
        text.join(", ")
    }
}

/// Returns the guarantee of a guest, with the mark of its origin.
fn guarantee(guest: &Guest) -> String {
    let text = match &guest.guarantee {
        Some(Guarantee {
            bandwidth_bit_s,
            by,
            ..
        }) => {
            format!("{}{}", human(*bandwidth_bit_s as f64, "bit/s"), word(*by))
        }
        None => "-".to_owned(),
    };
    if guest.guarantee_refused {
        format!("{text} (refused)")
    } else {
        text
    }
}
