//! Moves of machines between hosts, with places on both hosts until the arrival.

use super::command::Reply;
use super::draft::{Draft, Replacement};
use super::{Ledger, LedgerError, marks, runs};
use std::sync::Arc;
use tailbound_api::{HostReport, MoveStep, MoveVm, Moving, Tenant, VmName};
use tailbound_placement::{MoveError, NodeId, TenantId};

/// Host of a machine after its move ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The machine is on its new host.
    There,
    /// The machine stayed on its old host.
    Here,
}

/// The machine of a tenant's number.
fn name(tenant: &Tenant, number: u32) -> VmName {
    VmName {
        owner: tenant.owner.clone(),
        tenant: tenant.name.clone(),
        number,
    }
}

impl Ledger {
    /// Moves a machine, or ends its move.
    pub(super) fn move_vm(
        &mut self,
        owner: Option<&str>,
        id: TenantId,
        step: &MoveVm,
        draft: &mut Draft,
    ) -> Result<Reply, LedgerError> {
        let tenant = self.visible(owner, id)?;
        let MoveVm { vm, step } = step;
        match (step, &tenant.moving) {
            (MoveStep::Begin { to }, Some(moving)) if (moving.vm, &moving.to) == (*vm, to) => {
                Ok(Reply::Tenant(tenant))
            }
            (MoveStep::Begin { .. }, Some(moving)) => Err(LedgerError::on_its_way(&tenant, moving)),
            (MoveStep::Begin { to }, None) => self.begin_move(&tenant, *vm, to, draft),
            (MoveStep::Done, Some(moving)) if moving.vm == *vm => {
                self.end_move(&tenant, moving, End::There, draft)
            }
            (MoveStep::Cancel, Some(moving)) if moving.vm == *vm => {
                self.end_move(&tenant, moving, End::Here, draft)
            }
            (MoveStep::Done | MoveStep::Cancel, _) => {
                let vm = name(&tenant, *vm);
                Err(LedgerError::NotFound(format!("move of {vm}")))
            }
        }
    }

    fn begin_move(
        &mut self,
        tenant: &Arc<Tenant>,
        vm: u32,
        to: &str,
        draft: &mut Draft,
    ) -> Result<Reply, LedgerError> {
        let from = self.machine(tenant, vm)?;
        marks::check_not_open(tenant, vm)?;
        let host = self.host_node(to);
        let host = host.ok_or_else(|| LedgerError::NotFound(format!("host {to:?}")))?;
        if host == from {
            let vm = name(tenant, vm);
            return Err(LedgerError::Absurd(format!("{vm} is on {to} already")));
        }
        let old = self.placement_of(tenant.id);
        let new = self.datacentre.begin_move(tenant.id, from, host);
        let new = new.cloned().map_err(|why| match why {
            MoveError::Tenant(error) => error.into(),
            why => LedgerError::NoMove {
                vm: name(tenant, vm).to_string(),
                to: to.to_owned(),
                why: why.to_string(),
            },
        })?;
        let moving = Moving {
            vm,
            to: to.to_owned(),
        };
        let next = Tenant {
            moving: Some(moving),
            ..Tenant::clone(tenant)
        };
        Ok(self.relisted(tenant, next, &Replacement { old, new }, draft))
    }

    fn end_move(
        &mut self,
        tenant: &Arc<Tenant>,
        moving: &Moving,
        end: End,
        draft: &mut Draft,
    ) -> Result<Reply, LedgerError> {
        let there = self.host_node(&moving.to);
        let there = there.ok_or_else(|| LedgerError::NotFound(format!("host {:?}", moving.to)))?;
        let (leave, runs) = match end {
            End::There => {
                let topology = self.datacentre.topology();
                let runs = runs::moved(&tenant.runs, moving.vm, topology.shared_name(there));
                (self.machine(tenant, moving.vm)?, runs)
            }
            End::Here => (there, tenant.runs.clone()),
        };
        let old = self.placement_of(tenant.id);
        let new = self.datacentre.end_move(tenant.id, leave)?.clone();
        let next = Tenant {
            runs,
            moving: None,
            ..Tenant::clone(tenant)
        };
        Ok(self.relisted(tenant, next, &Replacement { old, new }, draft))
    }

    /// Returns the tenants that have a machine on its way to this host, if the host reports that
    /// the machine has arrived.
    pub(super) fn arrivals<'a>(
        &'a self,
        host: NodeId,
        report: &'a HostReport,
    ) -> impl Iterator<Item = TenantId> + 'a {
        let here = if report.arrived.is_empty() {
            Vec::new()
        } else {
            self.index.at(host)
        };
        let to = self.datacentre.topology().name(host);
        here.into_iter().filter(move |id| {
            let tenant = self.tenants.get(id);
            let moving = tenant.and_then(|tenant| Some((tenant, tenant.moving.as_ref()?)));
            moving.is_some_and(|(tenant, moving)| {
                moving.to == to
                    && report
                        .arrived
                        .contains(&name(tenant, moving.vm).to_string())
            })
        })
    }

    /// Records that a tenant's moving machine has arrived.
    pub(super) fn arrive(&mut self, id: TenantId, draft: &mut Draft) -> Result<(), LedgerError> {
        let tenant = self.visible(None, id)?;
        if let Some(moving) = &tenant.moving {
            self.end_move(&tenant, moving, End::There, draft)?;
        }
        Ok(())
    }
}
