//! Guarantees of the placement service for this host, indexed by VM.

use std::collections::HashMap;
use std::sync::Arc;
use tailbound_api::{HostGuarantees, VmGuarantee};
use tailbound_dataplane::pacer::HostGroups;
use tailbound_hose::HostId;

/// The service's guarantees for this host, indexed by VM. The watch thread builds the index, not
/// the packet loop.
#[derive(Debug)]
pub(crate) struct IndexedGuarantees {
    all: HostGuarantees,
    /// The index of each VM in `all`.
    places: HashMap<String, usize>,
    /// The groups of the hosts whose positions it has.
    groups: Arc<HostGroups>,
}

impl IndexedGuarantees {
    /// Returns the complete answer.
    pub(crate) fn all(&self) -> &HostGuarantees {
        &self.all
    }

    /// Returns the groups of the hosts whose positions are known, as the pacer knows them.
    pub(crate) fn groups(&self) -> Arc<HostGroups> {
        Arc::clone(&self.groups)
    }

    /// Returns the guarantee of a VM; `None` if the service does not know the VM.
    pub(crate) fn of(&self, vm: &str) -> Option<&VmGuarantee> {
        self.all.vms.get(*self.places.get(vm)?)
    }
}

impl From<HostGuarantees> for IndexedGuarantees {
    fn from(all: HostGuarantees) -> Self {
        let names = all.vms.iter().map(|vm| vm.vm.clone());
        let number = |name: &String| HostId::of(name).0;
        let groups = all.places.iter().map(|place| {
            let path = place.path.iter().map(number);
            (number(&place.host), path.collect())
        });
        Self {
            places: names.zip(0..).collect(),
            groups: Arc::new(groups.collect()),
            all,
        }
    }
}
