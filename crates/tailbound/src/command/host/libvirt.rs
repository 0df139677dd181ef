//! `tailbound host libvirt-hook`, `libvirt-watch`: guests that are domains of libvirt.

use super::which::Which;
use crate::exit::{Exit, Failure, print_error};
use std::io::{Read as _, stdin};
use tailbound_host::libvirt;

/// The longest XML that is read, in bytes.
const LONGEST: u64 = 16 << 20;

/// Arguments of `tailbound host libvirt-hook`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "libvirt calls this by a script in /etc/libvirt/hooks/qemu.d, with the domain's \
    XML on standard input. At `start` the guests of its metadata are added, at `stopped` they are \
    removed, at `reconnect` they are added where they are not there; nothing is done at others. \
    Exit code: 0 it is so, or is of no concern here; 1 refused, and nothing has changed; 2 no \
    daemon answers within 5 s. Of `start` any but 0 keeps libvirt from starting the domain; of \
    `reconnect` it is always 0, since libvirt would kill the domain."
)]
pub(super) struct Hook {
    /// The domain's name
    domain: String,
    /// What happens to it
    operation: String,
    /// What else libvirt says of that
    #[arg(hide = true)]
    more: Vec<String>,
    #[command(flatten)]
    daemon: Which,
}

impl Hook {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let mut xml = String::new();
        let read = stdin().take(LONGEST).read_to_string(&mut xml);
        read.map_err(|error| {
            let domain = &self.domain;
            Failure::new(format!(
                "the XML of domain {domain} cannot be read: {error}"
            ))
        })?;
        let connect = || self.daemon.connect();
        match libvirt::hook(&self.operation, &self.domain, &xml, &connect) {
            Ok(said) => {
                for line in said {
                    print_error(&format!("warning: {line}"));
                }
                Ok(Exit::Holds)
            }
            Err(error) if error.is_unasked() => Err(Failure::new(error)),
            Err(error) => Err(Failure::with(Exit::DoesNotHold, error)),
        }
    }
}

/// Arguments of `tailbound host libvirt-watch`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "libvirt calls no hook when metadata change while a domain runs; this is told of \
    it by `virsh event`. What domains left behind that have stopped is removed. Exit code: 0 ended \
    by SIGTERM or SIGINT; 2 it cannot begin."
)]
pub(super) struct Watch {
    /// Whose domains
    #[arg(long, value_name = "URI", default_value = "qemu:///system")]
    libvirt: String,
    #[command(flatten)]
    daemon: Which,
}

impl Watch {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        libvirt::watch(&self.libvirt, &|| self.daemon.connect())?;
        Ok(Exit::Holds)
    }
}
