//! The machines of this host.

use crate::ids::{Address, Destination, GuestId, MachineId, Revision, Station};
use crate::table::{Table, place};
use crate::wire::{Announced, Entry, MAX_ADDRESSES};
use std::ops::{Index, IndexMut};
use tailbound_units::{Bytes, Rate};

/// Machines of one host that are kept, and announced.
pub(crate) const MAX_MACHINES: usize = 4096;

/// A machine on this host that has a guarantee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its guest here.
    pub guest: GuestId,
    /// `OWNER/NAME/NUMBER`; all with the same `OWNER/NAME` are of one tenant.
    pub name: String,
    /// The station that takes what is sent to it by Ethernet; without, it is known by
    /// its addresses alone.
    pub station: Option<Station>,
    /// Its addresses. The first [`MAX_ADDRESSES`] are announced.
    pub addresses: Vec<Address>,
    /// B.
    pub bandwidth: Rate,
    /// S.
    pub burst: Bytes,
    /// N, how many machines the tenant has; if more are known, they count.
    pub tenant_machines: u32,
}

/// The tenant in a machine's name.
pub(crate) fn tenant(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(tenant, _)| tenant)
}

place! {
    /// A machine of this host, as a place in the table of them.
    LocalIndex
}

/// A machine of this host, and what is known of its tenant.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) machine: Machine,
    /// Its id in datagrams.
    pub(crate) id: MachineId,
    /// Other machines of its tenant on this host.
    pub(crate) others_here: u64,
    /// N: as many as it was told, or more where more are known.
    pub(crate) tenant_size: u64,
}

impl Local {
    /// The static share: what each of its senders may use unasked, B/(N-1).
    pub(crate) fn share(&self) -> Rate {
        Rate(self.machine.bandwidth.0 / (self.tenant_size.max(2) - 1))
    }

    /// Other machines of its tenant on other hosts, known or not.
    pub(crate) fn others_elsewhere(&self) -> u64 {
        self.tenant_size.saturating_sub(1 + self.others_here)
    }

    pub(crate) fn tenant(&self) -> &str {
        tenant(&self.machine.name)
    }

    /// All that it is reached by.
    pub(crate) fn destinations(&self) -> impl Iterator<Item = Destination> + '_ {
        let station = self.machine.station.map(Destination::Station);
        let addresses = self.machine.addresses.iter().copied();
        let addresses = addresses.take(MAX_ADDRESSES).map(Destination::Address);
        station.into_iter().chain(addresses)
    }
}

/// All machines of this host.
#[derive(Debug)]
pub(crate) struct Locals {
    table: Table<LocalIndex, MachineId, Local>,
    next_id: MachineId,
    /// The version of the list that is announced.
    pub(crate) revision: Revision,
}

impl Locals {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(MAX_MACHINES),
            next_id: MachineId(1),
            revision: Revision(1),
        }
    }

    /// Adds a machine. Returns `None` where there is no room.
    pub(crate) fn insert(&mut self, machine: Machine) -> Option<LocalIndex> {
        let id = self.next_id;
        let local = Local {
            machine,
            id,
            others_here: 0,
            tenant_size: 0,
        };
        let index = self.table.insert(id, local)?;
        self.next_id = MachineId(id.0 + 1);
        Some(index)
    }

    pub(crate) fn remove(&mut self, index: LocalIndex) {
        let id = self.table[index].id;
        self.table.remove(&id);
    }

    pub(crate) fn find(&self, id: MachineId) -> Option<LocalIndex> {
        self.table.find(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// All machines in the order of their places.
    pub(crate) fn indices(&self) -> impl Iterator<Item = LocalIndex> + '_ {
        self.table.places()
    }

    /// Adds the list of all machines to what is sent.
    pub(crate) fn push_announcements(&self, entries: &mut Vec<Entry>) {
        for index in self.indices() {
            let local = &self[index];
            let addresses = &local.machine.addresses;
            entries.push(Entry::Machine(Announced {
                id: local.id,
                station: local.machine.station,
                name: local.machine.name.clone(),
                bandwidth: local.machine.bandwidth,
                share: local.share(),
                addresses: addresses.iter().copied().take(MAX_ADDRESSES).collect(),
            }));
        }
    }
}

impl Index<LocalIndex> for Locals {
    type Output = Local;

    fn index(&self, index: LocalIndex) -> &Local {
        &self.table[index]
    }
}

impl IndexMut<LocalIndex> for Locals {
    fn index_mut(&mut self, index: LocalIndex) -> &mut Local {
        &mut self.table[index]
    }
}
