//! Location of VMs by peer, and of each tenant's VMs, as announced.

use crate::ids::{MachineId, PeerIndex};
use crate::machines::tenant;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Location of all machines. The duration of each method depends on the number of peers that
/// announce the same machine.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// Peers that announce each machine, by the machine's name, with its id there. The machine is
    /// where it was announced last.
    homes: HashMap<String, Vec<(PeerIndex, MachineId)>>,
    /// The machines of each tenant that are on each peer.
    tenants: HashMap<String, BTreeMap<PeerIndex, BTreeSet<MachineId>>>,
}

impl Directory {
    /// Records that a peer announces a machine, which is now located there, even if other peers
    /// announce it, too. Returns the other peer that it was on.
    pub(crate) fn announce(
        &mut self,
        name: &str,
        peer: PeerIndex,
        id: MachineId,
    ) -> Option<PeerIndex> {
        let Some(homes) = self.homes.get_mut(name) else {
            self.homes.insert(name.to_owned(), vec![(peer, id)]);
            self.arrive(name, peer, id);
            return None;
        };
        let before = homes.last().copied();
        if before == Some((peer, id)) {
            return None;
        }
        homes.retain(|home| *home != (peer, id));
        homes.push((peer, id));
        if let Some((peer, id)) = before {
            self.leave(name, peer, id);
        }
        self.arrive(name, peer, id);
        before.map(|(home, _)| home).filter(|home| *home != peer)
    }

    /// A peer announces a machine no longer. Returns the other peer that it is on now.
    pub(crate) fn withdraw(
        &mut self,
        name: &str,
        peer: PeerIndex,
        id: MachineId,
    ) -> Option<PeerIndex> {
        let homes = self.homes.get_mut(name)?;
        let was_there = homes.last() == Some(&(peer, id));
        homes.retain(|home| *home != (peer, id));
        let now = homes.last().copied();
        if now.is_none() {
            self.homes.remove(name);
        }
        if !was_there {
            return None;
        }
        self.leave(name, peer, id);
        let (home, id) = now?;
        self.arrive(name, home, id);
        Some(home).filter(|home| *home != peer)
    }

    fn arrive(&mut self, name: &str, peer: PeerIndex, id: MachineId) {
        let tenant = tenant(name);
        if !self.tenants.contains_key(tenant) {
            self.tenants.insert(tenant.to_owned(), BTreeMap::new());
        }
        if let Some(hosts) = self.tenants.get_mut(tenant) {
            hosts.entry(peer).or_default().insert(id);
        }
    }

    fn leave(&mut self, name: &str, peer: PeerIndex, id: MachineId) {
        let Some(hosts) = self.tenants.get_mut(tenant(name)) else {
            return;
        };
        if let Some(machines) = hosts.get_mut(&peer) {
            machines.remove(&id);
            if machines.is_empty() {
                hosts.remove(&peer);
            }
        }
        if hosts.is_empty() {
            self.tenants.remove(tenant(name));
        }
    }

    /// The machines of a tenant that are on a peer, by their ids.
    pub(crate) fn machines_at(
        &self,
        tenant: &str,
        peer: PeerIndex,
    ) -> impl Iterator<Item = MachineId> + '_ {
        let hosts = self.tenants.get(tenant);
        let machines = hosts.and_then(|hosts| hosts.get(&peer));
        machines.into_iter().flatten().copied()
    }

    /// The machines of a tenant, with the peers that they are on.
    pub(crate) fn machines_of(
        &self,
        tenant: &str,
    ) -> impl Iterator<Item = (PeerIndex, MachineId)> + '_ {
        let hosts = self.tenants.get(tenant).into_iter().flatten();
        hosts.flat_map(|(peer, machines)| machines.iter().map(|id| (*peer, *id)))
    }

    /// Returns the number of a tenant's VMs on peers that satisfy `counts`.
    pub(crate) fn machines_where(&self, tenant: &str, counts: impl Fn(PeerIndex) -> bool) -> u64 {
        let hosts = self.tenants.get(tenant).into_iter().flatten();
        hosts
            .filter(|(peer, _)| counts(**peer))
            .map(|(_, machines)| machines.len() as u64)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_where_it_was_announced_last_and_falls_back_when_that_ends() {
        let mut directory = Directory::default();
        let (one, two) = (PeerIndex(1), PeerIndex(2));
        let at = |directory: &Directory| directory.machines_of("a/b").collect::<Vec<_>>();
        assert_eq!(directory.announce("a/b/0", one, MachineId(7)), None);
        assert_eq!(directory.announce("a/b/0", two, MachineId(3)), Some(one));
        assert_eq!(at(&directory), [(two, MachineId(3))]);
        // Said once more by the one that it has left.
        assert_eq!(directory.announce("a/b/0", one, MachineId(7)), Some(two));
        assert_eq!(at(&directory), [(one, MachineId(7))]);
        assert_eq!(directory.withdraw("a/b/0", one, MachineId(7)), Some(two));
        assert_eq!(at(&directory), [(two, MachineId(3))]);
        // By another id of the same peer: it has not moved.
        assert_eq!(directory.announce("a/b/0", two, MachineId(4)), None);
        assert_eq!(directory.withdraw("a/b/0", two, MachineId(3)), None);
        assert_eq!(at(&directory), [(two, MachineId(4))]);
        assert_eq!(directory.withdraw("a/b/0", two, MachineId(4)), None);
        assert_eq!(at(&directory), []);
        assert!(directory.homes.is_empty() && directory.tenants.is_empty());
    }
}
