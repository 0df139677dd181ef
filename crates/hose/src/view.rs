//! A host's knowledge of VMs and other hosts.

use crate::directory::Directory;
use crate::ids::{Destination, Epoch, HostId, MachineId, PairKey, PeerIndex};
use crate::machines::{Local, LocalIndex, Locals};
use crate::peers::Peers;
use crate::wire::AnnouncedMachine;
use tailbound_units::{Nanos, Rate};

/// A pair to create, of a local VM and a remote or local one.
#[derive(Debug)]
pub(crate) struct PairRequest {
    /// The machine that receives.
    pub(crate) receiver: MachineId,
    /// The static share of its bandwidth.
    pub(crate) share: Rate,
    /// Its destinations.
    pub(crate) destinations: Vec<Destination>,
}

/// Local VMs, other hosts, and the location of VMs.
#[derive(Debug)]
pub(crate) struct View {
    this: HostId,
    pub(crate) locals: Locals,
    pub(crate) peers: Peers,
    pub(crate) directory: Directory,
}

impl View {
    /// Makes a view without local machines, with all peers unheard. This host begins with `epoch`.
    pub(crate) fn new(this: HostId, peers: &[HostId], epoch: Epoch) -> Self {
        Self {
            this,
            locals: Locals::new(),
            peers: Peers::new(this, peers, epoch),
            directory: Directory::default(),
        }
    }

    /// Returns the index that stands for this host in pairs within it.
    pub(crate) fn here(&self) -> PeerIndex {
        PeerIndex(self.peers.len())
    }

    /// Returns the host with this index, a peer or this host.
    pub(crate) fn host(&self, peer: PeerIndex) -> HostId {
        if peer == self.here() {
            self.this
        } else {
            self.peers[peer].id
        }
    }

    /// Returns whether the machines of a peer, or of this host, send only what was granted, at
    /// least up to `until`.
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

    /// Counts the machines of a local one's tenant. Returns whether there are more or fewer.
    pub(crate) fn update_tenant_size(&mut self, local: LocalIndex) -> bool {
        let Self {
            locals, directory, ..
        } = self;
        let tenant = locals[local].tenant();
        let known = locals.count(tenant) + directory.machines_where(tenant, |_| true);
        let told = u64::from(locals[local].machine.tenant_machines);
        let size = known.max(told);
        std::mem::replace(&mut locals[local].tenant_size, size) != size
    }

    /// Returns the number of other machines of a local one's tenant on other hosts, known or not.
    pub(crate) fn others_elsewhere(&self, local: LocalIndex) -> u64 {
        let local = &self.locals[local];
        let here = self.locals.count(local.tenant());
        local.tenant_size.saturating_sub(here)
    }

    /// The pairs of a machine here, as the one that sends, and those of its tenant on a
    /// peer, or here, by their receivers.
    pub(crate) fn wanted(&self, local: LocalIndex, peer: PeerIndex) -> Vec<PairRequest> {
        let tenant = self.locals[local].tenant();
        if peer == self.here() {
            let others = self.locals.of(tenant).filter(|other| *other != local);
            let mut wanted: Vec<_> = others
                .map(|other| {
                    let receiver = &self.locals[other];
                    PairRequest {
                        receiver: receiver.id,
                        share: receiver.share(),
                        destinations: receiver.destinations().collect(),
                    }
                })
                .collect();
            wanted.sort_unstable_by_key(|wanted| wanted.receiver);
            return wanted;
        }
        let receivers = self.machines_at(tenant, peer);
        // One that is announced elsewhere and is here is here.
        let receivers = receivers.filter(|receiver| !self.locals.has(&receiver.name));
        receivers
            .map(|receiver| PairRequest {
                receiver: receiver.id,
                share: receiver.share,
                destinations: receiver.destinations().collect(),
            })
            .collect()
    }

    /// The machines of a tenant that are on a peer, by their ids.
    pub(crate) fn machines_at(
        &self,
        tenant: &str,
        peer: PeerIndex,
    ) -> impl Iterator<Item = &AnnouncedMachine> {
        let machines = self.peers[peer].machines();
        let ids = self.directory.machines_at(tenant, peer);
        ids.filter_map(|id| machines.get(&id))
    }

    /// Peers' machines of a local one's tenant whose hosts have pledged at least
    /// up to `until`.
    pub(crate) fn pledged_machines(&self, local: LocalIndex, until: Nanos) -> u64 {
        let tenant = self.locals[local].tenant();
        self.directory
            .machines_where(tenant, |peer| self.peers[peer].pledged_to_us >= until)
    }
}
