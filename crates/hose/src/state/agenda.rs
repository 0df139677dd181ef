//! Application of added, removed and changed VMs, local and remote, in pieces of bounded time.
//!
//! ```text
//! here:       compare each that is here ► add the others
//! elsewhere:  take each on the list of a peer ► forget those that are not on it
//! then, for each of their tenants: count it ► make its pairs anew ► announce those here
//! ```
//!
//! Invariants between two pieces: each pair is in force completely, with its rate and grant, or not
//! at all, so the bound of the rates to a VM holds. A pair to remove keeps its rate until its
//! removal, and a pair to add has none. The list of VMs is not announced while it is incomplete,
//! and the larger shares of a new list are permitted here before its announcement.

use super::HoseState;
use crate::ids::{MachineId, PeerIndex};
use crate::incoming::IncomingCheck;
use crate::machines::{LocalIndex, Machines, tenant};
use crate::table::Place;
use crate::wire::AnnouncedMachine;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use tailbound_units::Nanos;

/// Limit on the machines and pairs that a piece processes; the last machine may exceed it.
pub(crate) const PIECE: usize = 64;

/// Pending work. See the module.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    here: Option<Here>,
    /// The tenant whose pairs are updated at present.
    tenant: Option<PairUpdate>,
    /// Tenants with changed machines, and the peers of these.
    touched: VecDeque<ChangedTenants>,
    /// True if our list differs from the announced one.
    pub(super) is_unannounced: bool,
    /// The list that is being taken, and those that are next: at most one of each peer.
    list: Option<List>,
    lists: VecDeque<List>,
    /// Moment of the last piece.
    at: Nanos,
}

/// The new list of local machines.
#[derive(Debug)]
struct Here {
    /// Machines of the list that were not compared yet.
    wanted: Machines,
    /// Index of the next local machine to compare.
    next: usize,
    /// Tenants of changed machines.
    touched: BTreeSet<String>,
}

/// A peer's list of machines, which has become whole.
#[derive(Debug)]
struct List {
    peer: PeerIndex,
    /// Machines that were not applied yet, and the ids of those that were.
    machines: BTreeMap<MachineId, AnnouncedMachine>,
    taken: BTreeSet<MachineId>,
    /// The last of those that there were that was looked for among them.
    last: Option<MachineId>,
    /// Tenants of changed machines.
    touched: BTreeSet<String>,
    /// The peers that it took machines from, and that have them again.
    fewer: BTreeSet<PeerIndex>,
    more: BTreeSet<PeerIndex>,
}

/// Tenants with changed machines.
#[derive(Debug)]
struct ChangedTenants {
    tenants: TenantSet,
    peers: PeerSet,
}

/// Tenants whose pairs are updated.
#[derive(Debug)]
enum TenantSet {
    /// All tenants with machines here.
    All,
    /// These tenants.
    Tenants(BTreeSet<String>),
}

/// Peers with changed machines.
#[derive(Debug, Clone)]
enum PeerSet {
    /// This host, so that the pairs to all peers change.
    Here,
    /// These peers, which are processed in this order.
    On(Arc<[PeerIndex]>),
}

/// Progress of the update of one tenant's local machines, or of all.
#[derive(Debug)]
struct PairUpdate {
    /// `None`: all of them.
    tenant: Option<String>,
    peers: PeerSet,
    /// True if the number of its known machines has changed.
    is_resized: bool,
    step: Step,
    /// The last machine processed in this step.
    last: Option<LocalIndex>,
}

/// Next step for each of them.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Update the size of its tenant.
    Count,
    /// Update the pairs to a peer, by its index among the concerned peers.
    Pairs(usize),
}

impl Agenda {
    fn is_done(&self) -> bool {
        self.here.is_none()
            && self.tenant.is_none()
            && self.touched.is_empty()
            && !self.is_unannounced
            && self.list.is_none()
            && self.lists.is_empty()
    }

    /// Returns the moment of the next piece: the last piece's moment while work is pending.
    pub(super) fn poll_at(&self) -> Option<Nanos> {
        (!self.is_done()).then_some(self.at)
    }
}

impl HoseState {
    /// Returns whether a change of VMs is not completely applied.
    pub fn is_changing(&self) -> bool {
        !self.agenda.is_done()
    }

    /// Replaces the list of local machines: the first piece runs in this call, the rest when the
    /// state is polled.
    pub(super) fn begin_machines(&mut self, now: Nanos, wanted: Machines) {
        let is_first = self.agenda.is_done();
        let before = self.agenda.here.take();
        self.agenda.here = Some(Here {
            wanted,
            next: 0,
            touched: before.map(|here| here.touched).unwrap_or_default(),
        });
        if is_first {
            self.go_on(now);
        }
    }

    /// Applies a peer's list of machines in the same way.
    pub(super) fn begin_list(
        &mut self,
        now: Nanos,
        peer: PeerIndex,
        machines: BTreeMap<MachineId, AnnouncedMachine>,
    ) {
        let is_first = self.agenda.is_done();
        // What it said before is void, where nothing of it is in force.
        self.agenda.lists.retain(|list| list.peer != peer);
        self.agenda.lists.push_back(List {
            peer,
            machines,
            taken: BTreeSet::new(),
            last: None,
            touched: BTreeSet::new(),
            fewer: BTreeSet::new(),
            more: BTreeSet::new(),
        });
        self.schedule.expedite_datagram(now, peer);
        if is_first {
            self.go_on(now);
        }
    }

    /// Removes a piece of the remaining state of a host that exchanges nothing any more, and has no
    /// machines ([`Self::set_machines`]): its limits, and the announced stations. Returns
    /// whether there was any; poll the results afterwards.
    pub fn wind_up(&mut self, now: Nanos) -> bool {
        self.go_on(now) > 0 || self.stations.end_some(PIECE)
    }

    /// Runs the next piece. Returns the number of processed VMs and pairs; 0 if no piece remains.
    pub(crate) fn go_on(&mut self, now: Nanos) -> usize {
        self.agenda.at = now;
        let mut looked_at = 0;
        while looked_at < self.piece
            && let Some(some) = self.do_next(now)
        {
            looked_at += some;
        }
        looked_at
    }

    /// Runs the next step of the oldest change, so that a large change does not block others for
    /// ever. Returns the number of processed items.
    fn do_next(&mut self, now: Nanos) -> Option<usize> {
        if let Some(here) = self.agenda.here.take() {
            return Some(self.go_on_here(now, here));
        }
        if let Some(tenant) = self.agenda.tenant.take() {
            return Some(self.go_on_tenant(now, tenant));
        }
        if let Some(touched) = self.agenda.touched.pop_front() {
            self.begin_tenant(touched);
            return Some(1);
        }
        if std::mem::take(&mut self.agenda.is_unannounced) {
            self.announce(now);
            return Some(1);
        }
        let list = self.agenda.list.take();
        let list = list.or_else(|| self.agenda.lists.pop_front())?;
        Some(self.go_on_list(list))
    }

    /// Compares a machine that is here, or adds one that is not.
    fn go_on_here(&mut self, now: Nanos, mut here: Here) -> usize {
        let mut looked_at = 1;
        if let Some(index) = self.view.locals.first_from(here.next) {
            here.next = index.number() + 1;
            looked_at += self.compare(now, index, &mut here);
        } else if let Some(machine) = here.wanted.take_first() {
            // Those that are added are not compared.
            here.next = usize::MAX;
            here.touched.insert(tenant(&machine.name).to_owned());
            self.agenda.is_unannounced = true;
            self.add_local(machine);
        } else {
            if !here.touched.is_empty() {
                let tenants = if self.sending.no_room > 0 {
                    // Room that has become free is anybody's.
                    TenantSet::All
                } else {
                    TenantSet::Tenants(here.touched)
                };
                let peers = PeerSet::Here;
                self.agenda
                    .touched
                    .push_back(ChangedTenants { tenants, peers });
            }
            return looked_at;
        }
        self.agenda.here = Some(here);
        looked_at
    }

    /// Compares a machine with the machine of its name in the new list. Returns the number of pairs
    /// that it lost.
    fn compare(&mut self, now: Nanos, index: LocalIndex, here: &mut Here) -> usize {
        let local = &mut self.view.locals[index];
        let other = match here.wanted.take(&local.machine.name) {
            Some(machine) if machine == local.machine => return 0,
            other => other,
        };
        here.touched.insert(local.tenant().to_owned());
        self.agenda.is_unannounced = true;
        match other {
            Some(machine) if machine.guest == local.machine.guest => {
                self.stations
                    .replace(local.machine.station, machine.station);
                local.machine = machine;
                self.sending.handle_guarantee(index);
                0
            }
            other => {
                if let Some(machine) = other {
                    here.wanted.push(machine);
                }
                self.remove_local(now, index)
            }
        }
    }

    /// Begins with the pairs of the next tenant of some.
    fn begin_tenant(&mut self, touched: ChangedTenants) {
        let ChangedTenants { tenants, peers } = touched;
        let tenant = match tenants {
            TenantSet::All => None,
            TenantSet::Tenants(mut tenants) => {
                let Some(tenant) = tenants.pop_first() else {
                    return;
                };
                if !tenants.is_empty() {
                    let tenants = TenantSet::Tenants(tenants);
                    let peers = peers.clone();
                    self.agenda
                        .touched
                        .push_front(ChangedTenants { tenants, peers });
                }
                Some(tenant)
            }
        };
        self.agenda.tenant = Some(PairUpdate {
            tenant,
            peers,
            is_resized: false,
            step: Step::Count,
            last: None,
        });
    }

    /// Continues with one local machine of a tenant.
    fn go_on_tenant(&mut self, now: Nanos, mut remaking: PairUpdate) -> usize {
        let locals = &self.view.locals;
        let next = match &remaking.tenant {
            Some(tenant) => locals.next_of(tenant, remaking.last),
            None => locals.first_from(remaking.last.map_or(0, |last| last.number() + 1)),
        };
        let mut looked_at = 1;
        remaking.last = next;
        match (remaking.step, next) {
            (Step::Count, Some(local)) => {
                looked_at += self.count(local, &mut remaking.is_resized);
            }
            (Step::Count, None) => {
                if remaking.is_resized {
                    // Their shares are others, which this host's own go by as well.
                    self.agenda.is_unannounced = true;
                }
                remaking.step = Step::Pairs(0);
            }
            (Step::Pairs(place), local) => {
                let Some(peer) = self.concerned(&remaking, place) else {
                    return looked_at;
                };
                if let Some(local) = local {
                    looked_at += self.remake_pairs(now, local, peer);
                } else {
                    remaking.step = Step::Pairs(place + 1);
                }
            }
        }
        self.agenda.tenant = Some(remaking);
        looked_at
    }

    /// Returns a peer whose pairs are updated, by its index.
    fn concerned(&self, remaking: &PairUpdate, place: usize) -> Option<PeerIndex> {
        let here = self.view.here();
        match &remaking.peers {
            PeerSet::Here => (place <= here.0).then_some(PeerIndex(place)),
            PeerSet::On(peers) => {
                let there = peers.get(place).copied();
                let own = remaking.is_resized && place == peers.len();
                there.or_else(|| own.then_some(here))
            }
        }
    }

    /// Counts the tenant of a machine here. Returns how many were granted something by it.
    fn count(&mut self, local: LocalIndex, is_resized: &mut bool) -> usize {
        *is_resized |= self.view.update_tenant_size(local);
        self.incoming.look_at_receiver(&self.view.locals[local]);
        self.receiving.handle_machines(&self.view, local)
    }

    /// Makes the pairs of a local machine with those on a peer anew, in both directions, and
    /// removes obsolete ones. Returns the number of receivers.
    fn remake_pairs(&mut self, now: Nanos, local: LocalIndex, peer: PeerIndex) -> usize {
        let wanted = self.view.wanted(local, peer);
        let is_here = peer == self.view.here();
        let latest = if is_here {
            self.told_here
        } else {
            self.view.peers[peer].window.highest
        };
        let times = self.config.times();
        let (mut cx, sending, _) = self.sides(now);
        sending.set_pairs(&mut cx, local, peer, &wanted, latest);
        cx.recompute_soon();
        if !is_here {
            let check = IncomingCheck {
                now,
                times,
                view: &self.view,
                receiving: &self.receiving,
            };
            self.incoming.look_at_peer(check, local, peer);
        }
        wanted.len()
    }

    /// Announces the machines of this host to all peers.
    fn announce(&mut self, now: Nanos) {
        self.view.locals.announce();
        for peer in self.view.peers.indices() {
            self.schedule.expedite_datagram(now, peer);
        }
        self.schedule.recompute_soon(now);
    }

    /// Applies a machine of a peer's list, or removes one that is not on it any more.
    fn go_on_list(&mut self, mut list: List) -> usize {
        let after = list.last.map_or(Bound::Unbounded, Bound::Excluded);
        let known = self.view.peers[list.peer].machines();
        let next = known.range((after, Bound::Unbounded)).next();
        let next = next.map(|(id, _)| *id);
        if let Some((id, machine)) = list.machines.pop_first() {
            self.take_remote(&mut list, id, machine);
        } else if let Some(id) = next {
            list.last = Some(id);
            if !list.taken.contains(&id) {
                self.forget_remote(&mut list, id);
            }
        } else {
            self.end_list(list);
            return 1;
        }
        self.agenda.list = Some(list);
        1
    }

    /// Starts making pairs anew for the list that is now in force.
    fn end_list(&mut self, list: List) {
        let List {
            peer,
            touched,
            fewer,
            more,
            ..
        } = list;
        if touched.is_empty() {
            return;
        }
        // Those that lost some first, as addresses have to be free before they are
        // another's.
        let more = more.into_iter().filter(|other| *other != peer);
        let peers = fewer.into_iter().chain([peer]).chain(more);
        self.agenda.touched.push_back(ChangedTenants {
            tenants: TenantSet::Tenants(touched),
            peers: PeerSet::On(peers.collect()),
        });
    }

    fn take_remote(&mut self, list: &mut List, id: MachineId, machine: AnnouncedMachine) {
        let peer = list.peer;
        let left = self.view.directory.announce(&machine.name, peer, id);
        let machines = self.view.peers[peer].machines_mut();
        list.taken.insert(id);
        list.fewer.extend(left);
        if left.is_none() && machines.get(&id) == Some(&machine) {
            return;
        }
        list.touched.insert(tenant(&machine.name).to_owned());
        let (station, name) = (machine.station, machine.name.clone());
        let before = machines.insert(id, machine);
        self.stations
            .replace(before.as_ref().and_then(|before| before.station), station);
        if let Some(before) = before.filter(|before| before.name != name) {
            self.withdraw(list, id, &before.name);
        }
    }

    fn forget_remote(&mut self, list: &mut List, id: MachineId) {
        if let Some(before) = self.view.peers[list.peer].machines_mut().remove(&id) {
            self.stations.remove(before.station);
            self.withdraw(list, id, &before.name);
        }
    }

    /// A peer announces a machine no longer.
    fn withdraw(&mut self, list: &mut List, id: MachineId, name: &str) {
        let home = self.view.directory.withdraw(name, list.peer, id);
        list.more.extend(home);
        list.touched.insert(tenant(name).to_owned());
    }
}
