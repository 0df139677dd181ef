//! `tailbound place move`.

use super::enforcement::confirmed;
use super::name::TenantName;
use super::service::{Service, TENANT};
use super::summary::summary;
use crate::exit::{Exit, Failure};
use tailbound_api::{MoveStep, MoveVm, VmName};

/// Arguments of `tailbound place move`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("step").required(true)))]
pub(super) struct Move {
    /// The VM: OWNER/NAME/NUMBER
    machine: VmName,
    /// The destination host. The service reserves a slot there, and keeps the old slot until the
    /// destination reports the VM's arrival
    #[arg(long, value_name = "HOST", group = "step")]
    to: Option<String>,
    /// The move has finished: release the slot on the source host
    #[arg(long, group = "step")]
    done: bool,
    /// The move is cancelled: release the slot on the destination host
    #[arg(long, group = "step")]
    cancel: bool,
    #[command(flatten)]
    service: Service,
}

impl Move {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let client = self.service.client()?;
        let VmName {
            owner,
            tenant,
            number,
        } = self.machine;
        let named = TenantName::Name {
            owner: Some(owner),
            name: tenant,
        };
        let id = named.id(&self.service, &client)?;
        let (word, step) = match self.to {
            Some(to) => ("MOVES", MoveStep::Begin { to }),
            None if self.done => ("MOVED", MoveStep::Done),
            None => ("STAYS", MoveStep::Cancel),
        };
        let moved = client.move_vm(id, &MoveVm { vm: number, step });
        let tenant = moved.map_err(|error| self.service.failure(error))?;
        let tenant = confirmed(&client, tenant);
        self.service.print(TENANT, &tenant, |paint| {
            summary(&paint.good(word), &tenant, paint)
        });
        Ok(Exit::Holds)
    }
}
