//! On which peer a machine is, and how many of a tenant are on each, as the peers
//! announce it.

use crate::ids::PeerIndex;
use crate::machines::tenant;
use crate::peers::Peers;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Who is where.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// The peer of each machine, by the machine's name.
    homes: HashMap<String, PeerIndex>,
    /// How many machines of each tenant are on each peer.
    tenants: HashMap<String, BTreeMap<PeerIndex, u64>>,
}

impl Directory {
    /// Takes a peer's list of machines, which has become whole. A machine that
    /// another peer announced as well is here now: the latest announcement counts.
    ///
    /// Returns the peers that lost or won machines: those that lost some first, as
    /// addresses have to be free before they are another's.
    pub(crate) fn handle_list(&mut self, peers: &Peers, from: PeerIndex) -> Vec<PeerIndex> {
        let here = self.homes.extract_if(|_, home| *home == from);
        let mut gone: HashSet<_> = here.map(|(name, _)| name).collect();
        let mut fewer = BTreeSet::new();
        for machine in peers[from].machines().values() {
            gone.remove(&machine.name);
            let before = self.homes.insert(machine.name.clone(), from);
            fewer.extend(before.filter(|before| *before != from));
        }
        // What this peer has no more may be where it was before, or has moved to.
        let mut more = BTreeSet::new();
        for other in peers.indices() {
            if gone.is_empty() {
                break;
            }
            for machine in peers[other].machines().values() {
                if let Some(name) = gone.take(&machine.name) {
                    self.homes.insert(name, other);
                    more.insert(other);
                }
            }
        }
        let changed: Vec<_> = fewer.into_iter().chain([from]).chain(more).collect();
        for peer in &changed {
            self.count_machines(peers, *peer);
        }
        changed
    }

    /// Whether a machine is on a peer.
    pub(crate) fn is_at(&self, name: &str, peer: PeerIndex) -> bool {
        self.homes.get(name) == Some(&peer)
    }

    /// How many machines of a tenant are on those peers that `counts` holds for.
    pub(crate) fn machines_where(&self, tenant: &str, counts: impl Fn(PeerIndex) -> bool) -> u64 {
        let hosts = self.tenants.get(tenant).into_iter().flatten();
        hosts
            .filter(|(peer, _)| counts(**peer))
            .map(|(_, count)| count)
            .sum()
    }

    fn count_machines(&mut self, peers: &Peers, peer: PeerIndex) {
        for hosts in self.tenants.values_mut() {
            hosts.remove(&peer);
        }
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for machine in peers[peer].machines().values() {
            if self.is_at(&machine.name, peer) {
                *counts.entry(tenant(&machine.name)).or_default() += 1;
            }
        }
        for (tenant, count) in counts {
            let hosts = self.tenants.entry(tenant.to_owned()).or_default();
            hosts.insert(peer, count);
        }
        self.tenants.retain(|_, hosts| !hosts.is_empty());
    }
}
