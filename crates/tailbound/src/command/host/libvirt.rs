//! `tailbound host libvirt-hook`, `libvirt-watch`: guests that are domains of libvirt.

mod nova;

use super::super::adopt::Places;
use super::daemon_args::DaemonArgs;
use crate::exit::{Exit, Failure, print_error};
use std::io::{Read as _, stdin};
use tailbound_adopt::libvirt as adopt;
use tailbound_host::libvirt;

/// Longest XML that is read, in bytes.
const MAX_XML_BYTES: u64 = 16 << 20;

/// Arguments of `tailbound host libvirt-hook`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "libvirt runs this command by a script in /etc/libvirt/hooks/qemu.d, with the \
    domain's XML on standard input. `start` adds the guests of the domain's metadata to the \
    daemon, or adopts the domain if its interface is on a bridge; `stopped` undoes that, \
    `reconnect` repeats it; other events do nothing. With TAILBOUND_URL set, `start` first confirms \
    the place of a server of OpenStack's nova at the placement service. Exit code: \
    0 done, or no guest is concerned; 1 refused, nothing was changed; 2 no daemon answers \
    within 5 s. At `start`, any other code than 0 keeps libvirt from starting the domain. At \
    `reconnect` the code is always 0, since libvirt would kill the domain otherwise."
)]
pub(super) struct Hook {
    /// The domain's name
    domain: String,
    /// The event
    operation: String,
    /// The further arguments of libvirt
    #[arg(hide = true)]
    more: Vec<String>,
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    places: Places,
}

impl Hook {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let mut xml = String::new();
        let read = stdin().take(MAX_XML_BYTES).read_to_string(&mut xml);
        read.map_err(|error| {
            let domain = &self.domain;
            Failure::new(format!(
                "the XML of domain {domain} cannot be read: {error}"
            ))
        })?;
        let connect = || self.daemon.connect();
        let mut lines = match libvirt::hook(&self.operation, &self.domain, &xml, &connect) {
            Ok(lines) => lines,
            Err(error) if error.is_unasked() => return Err(Failure::new(error)),
            Err(error) => return Err(Failure::with(Exit::DoesNotHold, error)),
        };
        if self.operation == "start" {
            nova::confirm(&self.domain, &xml)?;
        }
        // The interfaces that the kernel forwards.
        let Places { state, pins } = &self.places;
        let adopted = adopt::hook(&self.operation, &self.domain, &xml, state, pins);
        lines.extend(adopted.map_err(|error| Failure::with(Exit::DoesNotHold, error))?);
        for line in lines {
            print_error(&format!("warning: {line}"));
        }
        Ok(Exit::Holds)
    }
}

/// Arguments of `tailbound host libvirt-watch`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "libvirt runs no hook when the metadata of a running domain change; this \
    command receives such changes from `virsh event`. It also removes the guests of stopped \
    domains. Exit code: 0 ended by SIGTERM or SIGINT; 2 not started."
)]
pub(super) struct Watch {
    /// The libvirt connection URI
    #[arg(long, value_name = "URI", default_value = "qemu:///system")]
    libvirt: String,
    #[command(flatten)]
    daemon: DaemonArgs,
}

impl Watch {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        libvirt::watch(&self.libvirt, &|| self.daemon.connect())?;
        Ok(Exit::Holds)
    }
}
