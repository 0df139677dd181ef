//! Batches: several changes, of which all are made or none.

use super::command::{Call, Reply};
use super::draft::{Draft, whole};
use super::{Ledger, LedgerError, pinned};
use tailbound_api::{HostMachines, HostPut, Operation};

/// Makes all operations of a batch.
///
/// # Errors
/// An operation is refused; none was made then.
pub(super) fn execute(
    ledger: &mut Ledger,
    call: &Call,
    operations: &[Operation],
    draft: &mut Draft,
) -> Result<Reply, LedgerError> {
    let tenants = whole(ledger, draft, |ledger, draft| {
        let made = operations.iter().enumerate().map(|(index, operation)| {
            match one(ledger, call, operation, draft) {
                Ok(Reply::Tenant(tenant)) => Ok(Some(tenant)),
                Ok(_) => Ok(None),
                Err(error) => {
                    let error = Box::new(error);
                    Err(LedgerError::InBatch { index, error })
                }
            }
        });
        made.collect()
    })?;
    Ok(Reply::Batch(tenants))
}

fn one(
    ledger: &mut Ledger,
    call: &Call,
    operation: &Operation,
    draft: &mut Draft,
) -> Result<Reply, LedgerError> {
    let owner = call.owner.as_deref();
    match operation {
        Operation::Create(new) => ledger.create(new, &call.quota, draft),
        Operation::Delete(tenant) => {
            let id = pinned::find(ledger, owner, tenant)?;
            ledger.delete(owner, id, draft)
        }
        Operation::Put(HostPut {
            tenant,
            host,
            vms,
            remove,
        }) => {
            let id = pinned::find(ledger, owner, tenant)?;
            let machines = HostMachines {
                vms: *vms,
                remove: remove.clone(),
            };
            pinned::put_host(ledger, call, id, host, &machines, draft)
        }
    }
}
