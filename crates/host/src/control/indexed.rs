//! Guarantees of the placement service for this host, indexed by VM.

use std::collections::HashMap;
use tailbound_api::{HostGuarantees, VmGuarantee};

/// The service's guarantees for this host, indexed by VM. The watch thread builds the index, not
/// the packet loop.
#[derive(Debug)]
pub(crate) struct IndexedGuarantees {
    all: HostGuarantees,
    /// The index of each VM in `all`.
    places: HashMap<String, usize>,
}

impl IndexedGuarantees {
    /// Returns the complete answer.
    pub(crate) fn all(&self) -> &HostGuarantees {
        &self.all
    }

    /// Returns the guarantee of a VM; `None` if the service does not know the VM.
    pub(crate) fn of(&self, vm: &str) -> Option<&VmGuarantee> {
        self.all.vms.get(*self.places.get(vm)?)
    }
}

impl From<HostGuarantees> for IndexedGuarantees {
    fn from(all: HostGuarantees) -> Self {
        let names = all.vms.iter().map(|vm| vm.vm.clone());
        Self {
            places: names.zip(0..).collect(),
            all,
        }
    }
}
