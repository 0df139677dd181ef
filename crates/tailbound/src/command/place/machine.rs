//! `tailbound place machine`: a machine by the name that its scheduler gave it.

use super::request::read_machine;
use super::service::Service;
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::path::PathBuf;
use tailbound_api::{Machine, MachinePut, MachineState};

/// Arguments of `tailbound place machine`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without --on and --gone-from, the machine is shown. --on confirms a reserved \
    machine, brings another one to the host, and admits one that is unknown; its other places are \
    released. A tenant without other machines is deleted. Exit code: 0 done; 1 refused; 2 failed."
)]
pub(super) struct ByName {
    /// The machine's name, as in `place reserve --machine`
    name: String,
    /// The owner; required with an operator's or a host's token
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// The machine is on this host, or starts there
    #[arg(long, value_name = "HOST")]
    on: Option<String>,
    /// The name of its tenant there [default: that of the machine's place]
    #[arg(long, value_name = "TENANT", requires = "on")]
    tenant: Option<String>,
    /// The request of the machine, if its tenant is new, as for `place create --file`
    #[arg(long, value_name = "FILE", requires = "on")]
    file: Option<PathBuf>,
    /// The machine has left this host
    #[arg(long, value_name = "HOST", conflicts_with = "on")]
    gone_from: Option<String>,
    #[command(flatten)]
    service: Service,
}

/// JSON document of a machine that has left a host: the service's answer is empty.
#[derive(Debug, Serialize)]
struct Departure<'a> {
    name: &'a str,
    host: &'a str,
}

impl ByName {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let (name, owner) = (&*self.name, self.owner.as_deref());
        if let Some(host) = &self.gone_from {
            self.service
                .ask(|client| client.delete_machine(name, owner, host))?;
            self.service
                .print("place-machine-gone", &Departure { name, host }, |paint| {
                    format!("{}  {name:?} from {host}\n", paint.good("GONE"))
                });
            return Ok(Exit::Holds);
        }
        let machine = match (&self.on, &self.tenant) {
            (Some(host), tenant) => {
                let put = MachinePut {
                    tenant: tenant.clone(),
                    owner: self.owner.clone(),
                    host: host.clone(),
                    request: self.file.as_deref().map(read_machine).transpose()?,
                };
                self.service.ask(|client| client.put_machine(name, &put))?
            }
            _ => self.service.ask(|client| client.machine(name, owner))?,
        };
        self.print(&machine);
        Ok(Exit::Holds)
    }

    fn print(&self, machine: &Machine) {
        self.service.print("place-machine", machine, |paint| {
            let word = match machine.state {
                MachineState::Reserved => paint.doubtful("RESERVED"),
                MachineState::Confirmed => paint.good("CONFIRMED"),
            };
            let Machine { name, vm, host, .. } = machine;
            format!("{word}  {name:?} is {vm} on {host}\n")
        });
    }
}
