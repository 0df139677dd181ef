//! `tailbound place move`.

use super::name::TenantName;
use super::service::{Service, TENANT};
use super::standing::confirmed;
use super::summary::summary;
use crate::exit::{Exit, Failure};
use tailbound_api::{MoveStep, MoveVm, VmName};

/// Arguments of `tailbound place move`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("step").required(true)))]
pub(super) struct Move {
    /// The machine: OWNER/NAME/NUMBER
    machine: VmName,
    /// The host that it is to go to: a place is reserved there, and kept where it is, until that
    /// host says that it is there
    #[arg(long, value_name = "HOST", group = "step")]
    to: Option<String>,
    /// It is there: give its former place back
    #[arg(long, group = "step")]
    done: bool,
    /// It stays: give the new place back
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
