//! VMs of this host.

use crate::ids::{Address, Destination, GuestId, MachineId, Revision, Station};
use crate::table::{Place, Table, place};
use crate::wire::{AnnouncedMachine, Entry, MAX_ADDRESSES};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::{Bound, Index, IndexMut};
use tailbound_units::{Bytes, Rate};

/// Largest number of a host's announced VMs.
pub(crate) const MAX_MACHINES: usize = 4096;

/// Inward burst of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InwardBurst {
    /// `S_in`: bytes beyond B that may be on their way to the VM.
    pub most: Bytes,
    /// The part that each other VM may always use, by its pacer. This host lends the rest.
    pub part: Bytes,
}

/// A VM of this host with a guarantee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its guest here.
    pub guest: GuestId,
    /// `OWNER/NAME/NUMBER`; `OWNER/NAME` is the tenant.
    pub name: String,
    /// Its station. Without one, it is known only by its addresses.
    pub station: Option<Station>,
    /// Its addresses. The first [`MAX_ADDRESSES`] are announced.
    pub addresses: Vec<Address>,
    /// Guaranteed bandwidth B.
    pub bandwidth: Rate,
    /// Guaranteed burst S.
    pub burst: Bytes,
    /// Inward burst of each VM of its tenant; `None` without a limit.
    pub inward: Option<InwardBurst>,
    /// N, the tenant's number of VMs, unless more are known.
    pub tenant_machines: u32,
}

/// The VMs of a host. The last one with a name counts.
#[derive(Debug, Default)]
pub struct Machines(BTreeMap<String, Machine>);

impl Machines {
    /// Adds a machine.
    pub fn push(&mut self, machine: Machine) {
        self.0.insert(machine.name.clone(), machine);
    }

    /// Removes and returns the machine of that name.
    pub(crate) fn take(&mut self, name: &str) -> Option<Machine> {
        self.0.remove(name)
    }

    /// Removes and returns the first machine by name.
    pub(crate) fn take_first(&mut self) -> Option<Machine> {
        self.0.pop_first().map(|(_, machine)| machine)
    }
}

impl From<Vec<Machine>> for Machines {
    fn from(machines: Vec<Machine>) -> Self {
        let mut all = Self::default();
        for machine in machines {
            all.push(machine);
        }
        all
    }
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
    /// N: the configured number, or the number of known machines if that is larger.
    pub(crate) tenant_size: u64,
}

impl Local {
    /// Returns the static share of each of its senders without a grant, B/(N-1).
    pub(crate) fn share(&self) -> Rate {
        Rate(self.machine.bandwidth.0 / (self.tenant_size.max(2) - 1))
    }

    /// Returns the bytes of its inward burst that its host may lend: all but the parts of the others.
    pub(crate) fn lendable(&self) -> Bytes {
        self.machine.inward.map_or(Bytes::ZERO, |inward| {
            let others = self.tenant_size.max(2) - 1;
            let parts = Bytes(inward.part.0.saturating_mul(others));
            inward.most.saturating_sub(parts)
        })
    }

    /// Returns the most that is lent to one sender: S without its part; `None` if nothing is lent.
    pub(crate) fn most_lent(&self) -> Option<Bytes> {
        let Machine { inward, burst, .. } = &self.machine;
        inward.map(|inward| burst.saturating_sub(inward.part))
    }

    /// Returns the bytes beyond its rate that it may always send to another machine; zero without an
    /// inward burst.
    pub(crate) fn part(&self) -> Bytes {
        let inward = self.machine.inward;
        inward.map_or(Bytes::ZERO, |inward| inward.part)
    }

    pub(crate) fn tenant(&self) -> &str {
        tenant(&self.machine.name)
    }

    /// Returns its destinations.
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
    names: HashSet<String>,
    tenants: HashMap<String, BTreeSet<LocalIndex>>,
    next_id: MachineId,
    /// The version of the list that is announced, and how many machines are on it.
    revision: Revision,
    listed: u16,
}

impl Locals {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(MAX_MACHINES),
            names: HashSet::new(),
            tenants: HashMap::new(),
            next_id: MachineId(1),
            revision: Revision(1),
            listed: 0,
        }
    }

    /// Adds a VM. Returns `None` if the table is full.
    pub(crate) fn insert(&mut self, machine: Machine) -> Option<LocalIndex> {
        let id = self.next_id;
        let name = machine.name.clone();
        let local = Local {
            tenant_size: machine.tenant_machines.into(),
            machine,
            id,
        };
        let index = self.table.insert(id, local)?;
        self.next_id = MachineId(id.0 + 1);
        let tenant = self.tenants.entry(tenant(&name).to_owned());
        tenant.or_default().insert(index);
        self.names.insert(name);
        Some(index)
    }

    pub(crate) fn remove(&mut self, index: LocalIndex) {
        let id = self.table[index].id;
        let Some(Local { machine, .. }) = self.table.remove(&id) else {
            return;
        };
        let name = machine.name;
        self.names.remove(&name);
        if let Some(machines) = self.tenants.get_mut(tenant(&name)) {
            machines.remove(&index);
            if machines.is_empty() {
                self.tenants.remove(tenant(&name));
            }
        }
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

    /// The first machine at a place of this number or a later one.
    pub(crate) fn first_from(&self, number: usize) -> Option<LocalIndex> {
        self.table.first_from(number)
    }

    /// Returns whether a VM of that name is here.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The machines of a tenant, in the order of their places.
    pub(crate) fn of(&self, tenant: &str) -> impl Iterator<Item = LocalIndex> + '_ {
        self.tenants.get(tenant).into_iter().flatten().copied()
    }

    /// Returns the number of a tenant's machines.
    pub(crate) fn count(&self, tenant: &str) -> u64 {
        self.tenants
            .get(tenant)
            .map_or(0, |machines| machines.len() as u64)
    }

    /// The machine of a tenant after another one, or the first.
    pub(crate) fn next_of(&self, tenant: &str, after: Option<LocalIndex>) -> Option<LocalIndex> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let machines = self.tenants.get(tenant)?;
        machines.range((after, Bound::Unbounded)).next().copied()
    }

    /// The version of the list that is announced, and how many machines are on it.
    pub(crate) const fn list(&self) -> (Revision, u16) {
        (self.revision, self.listed)
    }

    /// Makes the current list of machines the announced one.
    pub(crate) fn announce(&mut self) {
        self.revision = self.revision.next();
        self.listed = self.len() as u16;
    }

    /// Adds some machines of the list to the entries, from an index on. Returns the index of the
    /// next one; `None` at the end.
    pub(crate) fn push_announcements(
        &self,
        from: usize,
        count: usize,
        entries: &mut Vec<Entry>,
    ) -> Option<usize> {
        let mut next = self.first_from(from);
        for _ in 0..count {
            let index = next?;
            let local = &self[index];
            let addresses = &local.machine.addresses;
            entries.push(Entry::Machine(AnnouncedMachine {
                id: local.id,
                station: local.machine.station,
                name: local.machine.name.clone(),
                bandwidth: local.machine.bandwidth,
                share: local.share(),
                addresses: addresses.iter().copied().take(MAX_ADDRESSES).collect(),
            }));
            next = self.first_from(index.number() + 1);
        }
        next.map(LocalIndex::number)
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
