//! What the placement service said of this host, ready to be looked up by machine.

use std::collections::HashMap;
use tailbound_api::{HostGuarantees, VmGuarantee};

/// What the placement service said of this host. It is made where it is heard, and not in
/// the packet loop.
#[derive(Debug)]
pub(crate) struct Said {
    all: HostGuarantees,
    /// The place of each machine.
    places: HashMap<String, usize>,
}

impl Said {
    /// All of it.
    pub(crate) fn all(&self) -> &HostGuarantees {
        &self.all
    }

    /// What is said of a machine; `None` where it is not known.
    pub(crate) fn of(&self, vm: &str) -> Option<&VmGuarantee> {
        self.all.vms.get(*self.places.get(vm)?)
    }
}

impl From<HostGuarantees> for Said {
    fn from(all: HostGuarantees) -> Self {
        let names = all.vms.iter().map(|vm| vm.vm.clone());
        Self {
            places: names.zip(0..).collect(),
            all,
        }
    }
}
