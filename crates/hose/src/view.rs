//! What a host knows of the machines and hosts around it.

use crate::directory::Directory;
use crate::ids::{Destination, Epoch, HostId, PairId, PairKey, PeerIndex};
use crate::machines::{Local, LocalIndex, Locals, tenant};
use crate::peers::Peers;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use tailbound_units::{Nanos, Rate};

/// A pair that is to be: a machine here that may send to one elsewhere.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The machine that sends.
    pub(crate) local: LocalIndex,
    /// The static share of the receiver's bandwidth.
    pub(crate) share: Rate,
    /// What the receiver is reached by.
    pub(crate) destinations: Vec<Destination>,
}

/// Whose pairs are made anew.
#[derive(Debug)]
pub(crate) enum Tenants {
    /// Those of all tenants.
    All,
    /// Those of one or more.
    These {
        /// Their machines here, in the order of their places.
        locals: Vec<LocalIndex>,
    },
}

impl Tenants {
    /// Whether a machine here is of one of them.
    pub(crate) fn have(&self, local: LocalIndex) -> bool {
        match self {
            Self::All => true,
            Self::These { locals } => locals.binary_search(&local).is_ok(),
        }
    }
}

/// This host's machines, the other hosts, and who is where.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) locals: Locals,
    pub(crate) peers: Peers,
    pub(crate) directory: Directory,
}

impl View {
    /// No machine here, which begins with `epoch`, and nobody was heard.
    pub(crate) fn new(this: HostId, peers: &[HostId], epoch: Epoch) -> Self {
        Self {
            locals: Locals::new(),
            peers: Peers::new(this, peers, epoch),
            directory: Directory::default(),
        }
    }

    /// This host, where pairs are concerned: both of whose machines are here.
    pub(crate) fn here(&self) -> PeerIndex {
        PeerIndex(self.peers.len())
    }

    /// Whether the machines of a peer, or of this host, send what they were granted and
    /// nothing else at least up to `until`.
    pub(crate) fn is_pledged(&self, peer: PeerIndex, until: Nanos) -> bool {
        peer == self.here() || self.peers[peer].pledged_to_us >= until
    }

    /// The name and the bandwidth of a pair's sender, which is not here or is.
    pub(crate) fn sender(&self, key: &PairKey) -> Option<(&str, Rate)> {
        let sender = key.pair.sender;
        if key.peer == self.here() {
            let Local { machine, .. } = &self.locals[self.locals.find(sender)?];
            return Some((&machine.name, machine.bandwidth));
        }
        let machine = self.peers[key.peer].machines().get(&sender)?;
        Some((&machine.name, machine.bandwidth))
    }

    /// Counts the machines of each tenant that has one here. Returns whether any
    /// number has changed.
    pub(crate) fn update_tenant_sizes(&mut self) -> bool {
        let locals = &mut self.locals;
        let mut here: HashMap<String, u64> = HashMap::new();
        let all: Vec<_> = locals.indices().collect();
        for index in &all {
            let tenant = locals[*index].tenant().to_owned();
            *here.entry(tenant).or_default() += 1;
        }
        let mut changed = false;
        for index in all {
            let local = &mut locals[index];
            let count = here.get(local.tenant()).copied().unwrap_or(1);
            let elsewhere = self.directory.machines_where(local.tenant(), |_| true);
            let told = u64::from(local.machine.tenant_machines);
            let size = (count + elsewhere).max(told);
            changed |= size != local.tenant_size;
            local.others_here = count - 1;
            local.tenant_size = size;
        }
        changed
    }

    /// The tenants of those names.
    pub(crate) fn tenants(&self, names: &BTreeSet<String>) -> Tenants {
        let locals = self.locals.indices();
        let locals = locals.filter(|index| names.contains(self.locals[*index].tenant()));
        Tenants::These {
            locals: locals.collect(),
        }
    }

    /// The machines here of some tenants.
    fn locals_of(&self, tenants: &Tenants) -> impl Iterator<Item = LocalIndex> + '_ {
        let (all, some) = match tenants {
            Tenants::All => (Some(self.locals.indices()), Vec::new()),
            Tenants::These { locals } => (None, locals.clone()),
        };
        all.into_iter().flatten().chain(some)
    }

    /// The pairs of this host's machines and a peer's of the same tenant.
    pub(crate) fn pairs_to(&self, peer: PeerIndex, tenants: &Tenants) -> BTreeMap<PairId, Wanted> {
        let mut names = HashSet::new();
        let mut senders: HashMap<&str, Vec<LocalIndex>> = HashMap::new();
        for index in self.locals_of(tenants) {
            let local = &self.locals[index];
            names.insert(local.machine.name.as_str());
            senders.entry(local.tenant()).or_default().push(index);
        }
        let mut wanted = BTreeMap::new();
        for remote in self.peers[peer].machines().values() {
            let Some(senders) = senders.get(tenant(&remote.name)) else {
                continue;
            };
            let elsewhere = !self.directory.is_at(&remote.name, peer);
            if elsewhere || names.contains(remote.name.as_str()) {
                continue;
            }
            for local in senders.iter().copied() {
                let pair = PairId {
                    sender: self.locals[local].id,
                    receiver: remote.id,
                };
                let pair_wanted = Wanted {
                    local,
                    share: remote.share,
                    destinations: remote.destinations().collect(),
                };
                wanted.insert(pair, pair_wanted);
            }
        }
        wanted
    }

    /// The pairs of this host's machines of one tenant.
    pub(crate) fn pairs_here(&self, tenants: &Tenants) -> BTreeMap<PairId, Wanted> {
        let mut machines: HashMap<&str, Vec<LocalIndex>> = HashMap::new();
        for index in self.locals_of(tenants) {
            let tenant = self.locals[index].tenant();
            machines.entry(tenant).or_default().push(index);
        }
        let mut wanted = BTreeMap::new();
        for machines in machines.values() {
            for (sender, receiver) in pairs_of(machines) {
                let receiver = &self.locals[receiver];
                let pair = PairId {
                    sender: self.locals[sender].id,
                    receiver: receiver.id,
                };
                let pair_wanted = Wanted {
                    local: sender,
                    share: receiver.share(),
                    destinations: receiver.destinations().collect(),
                };
                wanted.insert(pair, pair_wanted);
            }
        }
        wanted
    }

    /// Peers' machines of a local one's tenant whose hosts have pledged at least
    /// up to `until`.
    pub(crate) fn pledged_machines(&self, local: LocalIndex, until: Nanos) -> u64 {
        let tenant = self.locals[local].tenant();
        self.directory
            .machines_where(tenant, |peer| self.peers[peer].pledged_to_us >= until)
    }
}

/// Each two of `machines`, either way.
fn pairs_of(machines: &[LocalIndex]) -> impl Iterator<Item = (LocalIndex, LocalIndex)> + '_ {
    let pairs = machines.iter().flat_map(move |sender| {
        let receivers = machines.iter();
        receivers.map(move |receiver| (*sender, *receiver))
    });
    pairs.filter(|(sender, receiver)| sender != receiver)
}
