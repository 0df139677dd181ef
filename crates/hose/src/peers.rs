//! State of each peer: its clock, pledges in both directions, and its announced VMs.

use crate::config::Times;
use crate::ids::{Epoch, HostId, MachineId, PeerIndex, Revision, SequenceNumber, TimeOfDay};
use crate::keys::{KeyEpoch, PairKeys};
use crate::machines::MAX_MACHINES;
use crate::replay::Window;
use crate::wire::{AnnouncedMachine, Header};
use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::ops::{Index, IndexMut};
use std::sync::Arc;
use tailbound_units::Nanos;

/// Number of epochs that are tried, one after the other, before they begin anew: eight hours from
/// the present time on, and from the peer's last known epoch. The peer's epoch advances by some
/// minutes with each loss of its state.
const MAX_EPOCHS: u32 = 64;

/// A host's list of machines, by their ids.
#[derive(Debug, Default)]
struct List {
    revision: Revision,
    machines: BTreeMap<MachineId, AnnouncedMachine>,
}

/// State of another host.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: HostId,
    /// Keys that sign the datagrams from and to it; without them there are none.
    pub(crate) keys: Option<Arc<PairKeys>>,
    /// Its latest key, by its last header.
    latest_key: Option<KeyEpoch>,
    /// True if its last datagram was refused for its classes.
    pub(crate) is_refused: bool,
    /// Our epoch as it began, as it is towards this peer, and the latest one that this
    /// peer has heard of.
    life: Epoch,
    pub(crate) epoch: Epoch,
    epoch_known: Epoch,
    /// Number of epochs that were tried to find one that the peer accepts, if a datagram of the
    /// peer was refused and none was accepted since.
    tries: Option<u32>,
    pub(crate) window: Window,
    /// The number of the last datagram to it.
    sent: SequenceNumber,
    /// Moment of the last accepted datagram from it.
    pub(crate) heard: Option<Nanos>,
    /// Latest moment on its clock in a header, and the moment on ours when the header was received.
    pub(crate) time: Nanos,
    pub(crate) time_heard: Nanos,
    /// The latest moment on our clock that it has heard.
    pub(crate) echo: Option<Nanos>,
    /// End of its pledge to send only what was granted to ours.
    pub(crate) pledged_to_us: Nanos,
    /// The version of our list of machines that it has.
    pub(crate) known: Revision,
    /// Version of our list of machines that is being sent to it, and the index of the next machine.
    telling: Option<(Revision, usize)>,
    /// Its list in force with the last complete version, and the incomplete next version.
    list: List,
    draft: List,
}

/// Changes through a header that the callers must handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// The peer had been silent for longer than a heartbeat.
    pub(crate) was_silent: bool,
    /// Its pledge had ended, and was renewed.
    pub(crate) pledged_again: bool,
    /// The peer refuses this host's epoch, because it knows a later one.
    pub(crate) knows_later: bool,
}

impl Peer {
    fn new(id: HostId, epoch: Epoch) -> Self {
        Self {
            id,
            keys: None,
            latest_key: None,
            is_refused: false,
            life: epoch,
            epoch,
            epoch_known: Epoch::default(),
            tries: None,
            window: Window::default(),
            sent: SequenceNumber::default(),
            heard: None,
            time: Nanos::ZERO,
            time_heard: Nanos::ZERO,
            echo: None,
            pledged_to_us: Nanos::ZERO,
            known: Revision::default(),
            telling: None,
            list: List::default(),
            draft: List::default(),
        }
    }

    /// Returns the next sequence number to it.
    pub(crate) fn next_sequence(&mut self) -> SequenceNumber {
        self.sent = self.sent.next();
        self.sent
    }

    /// Returns its latest key; None for a silent host, which may have restarted with other keys.
    pub(crate) fn latest_key(&self, now: Nanos, times: Times) -> Option<KeyEpoch> {
        self.latest_key.filter(|_| !self.is_silent(now, times))
    }

    /// Returns its machines.
    pub(crate) const fn machines(&self) -> &BTreeMap<MachineId, AnnouncedMachine> {
        &self.list.machines
    }

    /// Returns its machines, for a change.
    pub(crate) const fn machines_mut(&mut self) -> &mut BTreeMap<MachineId, AnnouncedMachine> {
        &mut self.list.machines
    }

    /// Returns the index of the next machine of the version `ours` of our list that it must
    /// receive.
    pub(crate) fn told_up_to(&self, ours: Revision) -> usize {
        let telling = self.telling.filter(|(revision, _)| *revision == ours);
        telling.map_or(0, |(_, next)| next)
    }

    /// Sets the next machine of the version `ours` of our list that it must receive; None if it was
    /// sent all of them.
    pub(crate) fn tell_next(&mut self, ours: Revision, next: Option<usize>) {
        self.telling = next.map(|next| (ours, next));
    }

    /// Returns whether it was sent only a part of our list.
    pub(crate) const fn is_being_told(&self) -> bool {
        self.telling.is_some()
    }

    /// The version of its list of machines that we have whole.
    pub(crate) const fn revision(&self) -> Revision {
        self.list.revision
    }

    /// Returns whether it can receive our list of machines, and lacks the version `ours`.
    pub(crate) fn lacks(&self, ours: Revision) -> bool {
        self.heard.is_some() && self.known < ours
    }

    /// Returns whether no datagram of it was accepted for longer than two heartbeats.
    pub(crate) fn is_silent(&self, now: Nanos, times: Times) -> bool {
        let heartbeats = Nanos(2 * times.heartbeat().0);
        self.heard.is_none_or(|heard| now.since(heard) > heartbeats)
    }

    /// Handles a header. `revision` is this host's.
    pub(crate) fn handle_header(
        &mut self,
        now: Nanos,
        times: Times,
        header: &Header,
        revision: Revision,
    ) -> Greeting {
        let heartbeat = times.heartbeat();
        let was_silent = self.heard.is_none_or(|heard| now.since(heard) > heartbeat);
        self.heard = Some(now);
        self.tries = None;
        if header.time >= self.time {
            self.time = header.time;
            self.time_heard = now;
            self.latest_key = Some(header.latest_key);
            self.epoch_known = header.echo_epoch;
        }
        let before = self.pledged_to_us;
        if self.is_about_us(now, header) {
            self.echo = self.echo.max(Some(header.echo_time));
            self.known = self.known.max(header.known.min(revision));
            if header.pledge {
                let until = header.echo_time + times.pledge_counted();
                self.pledged_to_us = self.pledged_to_us.max(until);
            }
        }
        Greeting {
            was_silent,
            pledged_again: before <= now && self.pledged_to_us > now,
            knows_later: self.epoch_known > self.epoch,
        }
    }

    /// Returns whether the grants and pledges of a header are about our epoch.
    pub(crate) fn is_about_us(&self, now: Nanos, header: &Header) -> bool {
        header.echo_epoch == self.epoch && header.echo_time <= now
    }

    /// Records that a datagram of it was refused as old, or too far ahead.
    pub(crate) fn handle_refused(&mut self) {
        self.tries = self.tries.or(Some(0));
    }

    /// Changes our epoch towards it to one that it accepts, if it would not accept the current one.
    /// There are three cases. It knows a later epoch. Or it knows none as late, and ours is so far
    /// ahead of the time of day that it may be refused. Or none of its datagrams is accepted here:
    /// it must learn the reason but may refuse our datagrams as well, so that possible epochs are
    /// tried in turn. Returns whether the epoch was changed.
    ///
    /// For the peer a new epoch is a restart of this host: it forgets the grants in both
    /// directions, and our list of machines.
    pub(crate) fn settle_epoch(&mut self, now: Nanos, times: Times, today: TimeOfDay) -> bool {
        let Some(next) = self.epoch_known.after(self.life) else {
            return false;
        };
        let tries = self.tries.filter(|_| self.is_silent(now, times));
        let epoch = if let Some(tries) = tries {
            self.tries = Some((tries + 1) % MAX_EPOCHS);
            let since = [Epoch::starting(today), self.epoch_known.max(self.life)];
            since[tries as usize % 2].tried(self.life, tries / 2)
        } else if self.epoch_known > self.epoch {
            next
        } else if self.epoch > next && self.epoch > Epoch::latest(today) {
            next.max(Epoch::starting(today))
        } else {
            return false;
        };
        self.epoch = epoch;
        self.known = Revision::default();
        true
    }

    /// Handles one machine of the list `revision`, which has `count` in all. Returns the list when
    /// it is complete.
    pub(crate) fn handle_machine(
        &mut self,
        revision: Revision,
        count: u16,
        machine: Option<AnnouncedMachine>,
    ) -> Option<BTreeMap<MachineId, AnnouncedMachine>> {
        if revision <= self.list.revision || revision < self.draft.revision {
            return None;
        }
        if revision > self.draft.revision {
            self.draft.revision = revision;
            self.draft.machines.clear();
        }
        if let Some(machine) = machine
            && self.draft.machines.len() < MAX_MACHINES
        {
            self.draft.machines.insert(machine.id, machine);
        }
        if self.draft.machines.len() != usize::from(count) {
            return None;
        }
        self.list.revision = revision;
        Some(mem::take(&mut self.draft.machines))
    }

    /// Forgets the state of its former epoch, except for its pledge and its machines. Its pledge
    /// stays, because grants to others may rest on it. Its machines stay until it announces others.
    pub(crate) fn handle_restart(&mut self) {
        self.time = Nanos::ZERO;
        self.echo = None;
        self.epoch_known = Epoch::default();
        self.known = Revision::default();
        self.telling = None;
        self.list.revision = Revision::default();
        self.draft = List::default();
    }
}

/// State of all other hosts.
#[derive(Debug)]
pub(crate) struct Peers {
    peers: Vec<Peer>,
    by_host: HashMap<HostId, PeerIndex>,
}

impl Peers {
    /// Peers that were never heard: each of `hosts` once, without this host, which
    /// begins with `epoch`.
    pub(crate) fn new(this: HostId, hosts: &[HostId], epoch: Epoch) -> Self {
        let mut peers = Self {
            peers: Vec::new(),
            by_host: HashMap::new(),
        };
        for id in hosts {
            if *id != this && !peers.by_host.contains_key(id) {
                peers.by_host.insert(*id, PeerIndex(peers.peers.len()));
                peers.peers.push(Peer::new(*id, epoch));
            }
        }
        peers
    }

    pub(crate) fn find(&self, host: HostId) -> Option<PeerIndex> {
        self.by_host.get(&host).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    pub(crate) fn indices(&self) -> impl Iterator<Item = PeerIndex> + use<> {
        (0..self.peers.len()).map(PeerIndex)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter()
    }
}

impl Index<PeerIndex> for Peers {
    type Output = Peer;

    fn index(&self, peer: PeerIndex) -> &Peer {
        &self.peers[peer.0]
    }
}

impl IndexMut<PeerIndex> for Peers {
    fn index_mut(&mut self, peer: PeerIndex) -> &mut Peer {
        &mut self.peers[peer.0]
    }
}
