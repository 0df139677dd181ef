//! Who is where: this host's machines, and those that peers announce.

use super::sender::{Flow, Pair, PairKey};
use super::wire::{Announced, Entry, MAX_ADDRESSES};
use super::{Change, FlowKey, HoseState, Machine};
use std::collections::{BTreeMap, HashMap, HashSet};
use tailbound_units::Nanos;

/// A machine of this host.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) machine: Machine,
    /// Its id in datagrams.
    pub(super) id: u32,
    /// Other machines of its tenant on this host.
    pub(super) here: u64,
    /// N: as many as it was told, or more where more are known.
    pub(super) size: u64,
    /// Its pairs in use, as a sender.
    pub(super) open: Vec<usize>,
    /// Its pairs, in use or not, to hosts that nothing was pledged to.
    pub(super) loose: Vec<usize>,
    /// What its senders were granted.
    pub(super) grants: Vec<usize>,
    /// Whether its rates are to be divided again, and what it grants.
    pub(super) allocate: bool,
    pub(super) settle: bool,
}

impl Local {
    /// What each sender may use unasked: B/(N-1).
    pub(super) fn share(&self) -> u64 {
        self.machine.bandwidth.0 / (self.size.max(2) - 1)
    }
}

/// The tenant in a machine's name.
pub(super) fn tenant(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(tenant, _)| tenant)
}

impl HoseState {
    /// Says which machines with a guarantee are on this host, all of them. What
    /// is the same as before keeps its rates.
    pub fn set_machines(&mut self, now: Nanos, machines: Vec<Machine>) {
        let mut left: HashMap<_, _> = machines
            .into_iter()
            .map(|machine| (machine.name.clone(), machine))
            .collect();
        let mut changed = false;
        for index in self.locals.all() {
            let local = &mut self.locals[index];
            match left.remove(&local.machine.name) {
                Some(machine) if machine.guest == local.machine.guest => {
                    if machine != local.machine {
                        changed = true;
                        local.machine = machine;
                        local.settle = true;
                        local.allocate = true;
                    }
                }
                other => {
                    changed = true;
                    self.forget_local(now, index);
                    left.extend(other.map(|machine| (machine.name.clone(), machine)));
                }
            }
        }
        let mut fresh: Vec<_> = left.into_values().collect();
        fresh.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        for machine in fresh {
            changed = true;
            let id = self.next_id;
            let local = Local {
                machine,
                id,
                here: 0,
                size: 0,
                open: Vec::new(),
                loose: Vec::new(),
                grants: Vec::new(),
                allocate: false,
                settle: false,
            };
            match self.locals.insert(id, local) {
                Some(_) => self.next_id += 1,
                None => self.stats.no_room += 1,
            }
        }
        if !changed {
            return;
        }
        self.revision += 1;
        self.size_up();
        for index in 0..self.peers.len() {
            self.pair_up(now, index);
            self.hurry(now, index);
        }
        self.soon(now);
    }

    /// Counts the machines of each tenant that has one here. True where there are
    /// more, or fewer, than before.
    fn size_up(&mut self) -> bool {
        let mut here: HashMap<String, u64> = HashMap::new();
        let all = self.locals.all();
        for index in &all {
            let name = &self.locals[*index].machine.name;
            *here.entry(tenant(name).to_owned()).or_default() += 1;
        }
        let mut changed = false;
        for index in all {
            let local = &mut self.locals[index];
            let tenant = tenant(&local.machine.name);
            let count = here.get(tenant).copied().unwrap_or(1);
            let hosts = self.tenants.get(tenant).into_iter().flatten();
            let known = count + hosts.map(|(_, count)| count).sum::<u64>();
            let size = known.max(u64::from(local.machine.tenant_machines));
            changed |= size != local.size;
            local.here = count - 1;
            local.size = size;
        }
        changed
    }

    fn forget_local(&mut self, now: Nanos, index: usize) {
        for grant in self.locals[index].grants.clone() {
            self.forget_grant(now, grant);
        }
        let id = self.locals[index].id;
        for pair in self.pairs.all() {
            if self.pairs[pair].key.sender == id {
                self.forget_pair(pair);
            }
        }
        self.locals.remove(&id);
    }

    /// Adds this host's machines to what is sent.
    pub(super) fn announce(&self, entries: &mut Vec<Entry>) {
        for index in self.locals.all() {
            let local = &self.locals[index];
            let addresses = &local.machine.addresses;
            entries.push(Entry::Machine(Announced {
                id: local.id,
                name: local.machine.name.clone(),
                bandwidth: local.machine.bandwidth.0,
                share: local.share(),
                addresses: addresses.iter().copied().take(MAX_ADDRESSES).collect(),
            }));
        }
    }

    /// A peer's list of machines is whole. A machine that another peer had is
    /// here now: the latest word counts.
    pub(super) fn learned(&mut self, now: Nanos, index: usize) {
        let here = self.homes.extract_if(|_, home| *home == index);
        let mut gone: HashSet<_> = here.map(|(name, _)| name).collect();
        let mut fewer = HashSet::new();
        for machine in self.peers[index].machines.values() {
            gone.remove(&machine.name);
            let before = self.homes.insert(machine.name.clone(), index);
            fewer.extend(before);
        }
        // What this peer has no more may be where it was before, or has moved to.
        let mut more = HashSet::new();
        for (other, peer) in self.peers.iter().enumerate() {
            if gone.is_empty() {
                break;
            }
            for machine in peer.machines.values() {
                if let Some(name) = gone.take(&machine.name) {
                    self.homes.insert(name, other);
                    more.insert(other);
                }
            }
        }
        // Addresses are free before they are another's.
        for index in fewer.into_iter().chain([index]).chain(more) {
            self.count_machines(index);
            self.pair_up(now, index);
        }
        for grant in &self.peers[index].grants {
            let grant = &mut self.grants[*grant];
            if let Some(machine) = self.peers[index].machines.get(&grant.sender()) {
                grant.limit = machine.bandwidth;
            }
        }
        if self.size_up() {
            self.revision += 1;
            for other in 0..self.peers.len() {
                self.hurry(now, other);
            }
        }
        self.settle_all(now);
        self.hurry(now, index);
    }

    fn count_machines(&mut self, index: usize) {
        for hosts in self.tenants.values_mut() {
            hosts.remove(&index);
        }
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for machine in self.peers[index].machines.values() {
            if self.homes.get(&machine.name) == Some(&index) {
                *counts.entry(tenant(&machine.name)).or_default() += 1;
            }
        }
        for (tenant, count) in counts {
            let hosts = self.tenants.entry(tenant.to_owned()).or_default();
            hosts.insert(index, count);
        }
        self.tenants.retain(|_, hosts| !hosts.is_empty());
    }

    /// Makes the pairs of this host's machines and a peer's, and forgets those
    /// that are none any more.
    fn pair_up(&mut self, now: Nanos, index: usize) {
        let mut locals: HashMap<String, Vec<usize>> = HashMap::new();
        let mut names = HashSet::new();
        for local in self.locals.all() {
            let name = &self.locals[local].machine.name;
            names.insert(name.clone());
            let list = locals.entry(tenant(name).to_owned()).or_default();
            list.push(local);
        }
        let mut wanted: HashMap<PairKey, (usize, u64, Vec<u128>)> = HashMap::new();
        for remote in self.peers[index].machines.values() {
            let elsewhere = self.homes.get(&remote.name) != Some(&index);
            if elsewhere || names.contains(&remote.name) {
                continue;
            }
            for local in locals.get(tenant(&remote.name)).into_iter().flatten() {
                let key = PairKey {
                    sender: self.locals[*local].id,
                    peer: index,
                    receiver: remote.id,
                };
                wanted.insert(key, (*local, remote.share, remote.addresses.clone()));
            }
        }
        for pair in self.peers[index].pairs.clone() {
            let Pair { key, .. } = self.pairs[pair];
            match wanted.remove(&key) {
                Some((_, share, addresses)) if self.pairs[pair].is_to(&addresses) => {
                    self.pairs[pair].share = share;
                    self.refresh(now, pair);
                }
                other => {
                    self.forget_pair(pair);
                    wanted.extend(other.map(|wanted| (key, wanted)));
                }
            }
        }
        let mut wanted: Vec<_> = wanted.into_iter().collect();
        wanted.sort_unstable_by_key(|(key, _)| *key);
        for (key, (local, share, addresses)) in wanted {
            self.add_pair(now, key, local, share, &addresses);
        }
    }

    fn add_pair(&mut self, now: Nanos, key: PairKey, local: usize, share: u64, addresses: &[u128]) {
        let seen = self.peers[key.peer].window.highest;
        let pair = Pair::new(key, local, share, seen);
        let Some(index) = self.pairs.insert(key, pair) else {
            self.stats.no_room += 1;
            return;
        };
        let guest = self.locals[local].machine.guest;
        for address in addresses {
            let flow = FlowKey {
                source: guest,
                destination: *address,
            };
            // An address that two machines claim is the first one's.
            self.flows.entry(flow).or_insert_with(|| {
                self.pairs[index].flows.push(Flow::new(*address));
                index
            });
        }
        let peer = &mut self.peers[key.peer];
        peer.pairs.push(index);
        if !peer.bound {
            self.locals[local].loose.push(index);
        }
        self.refresh(now, index);
    }

    fn forget_pair(&mut self, index: usize) {
        self.close(index);
        let Pair { key, local, .. } = self.pairs[index];
        self.locals[local].loose.retain(|pair| *pair != index);
        let guest = self.locals[local].machine.guest;
        for flow in std::mem::take(&mut self.pairs[index].flows) {
            self.flows.remove(&FlowKey {
                source: guest,
                destination: flow.address,
            });
            self.changes.push(Change {
                guest,
                destination: flow.address,
                rate: None,
            });
        }
        let peer = &mut self.peers[key.peer];
        peer.pairs.retain(|pair| *pair != index);
        peer.parked.retain(|pair| *pair != index);
        self.pairs.remove(&key);
    }

    /// Peers' machines of a local one's tenant whose hosts have pledged at least
    /// up to `until`.
    pub(super) fn pledged_machines(&self, local: usize, until: Nanos) -> u64 {
        let hosts = self.tenants.get(tenant(&self.locals[local].machine.name));
        hosts
            .into_iter()
            .flatten()
            .filter(|(peer, _)| self.peers[**peer].pledged_to_us >= until)
            .map(|(_, count)| count)
            .sum()
    }
}
