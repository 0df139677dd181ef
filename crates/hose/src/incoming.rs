//! Permitted rates of the senders to each local VM, for policing.
//!
//! A sender's host may use a rate from its grant until the end of the lease or the confirmation of
//! another one, and its static share after the end of its pledge. The reported rates are never
//! lower, so a conforming host is never policed. Reductions are reported late, without harm.

use crate::config::Times;
use crate::ids::{Destination, GuestId, MachineId, PairId, PairKey, PeerIndex};
use crate::machines::{Local, LocalIndex};
use crate::receiver::ReceivingSide;
use crate::table::Place;
use crate::view::View;
use crate::wire::AnnouncedMachine;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use tailbound_units::{Bytes, Nanos, Rate};

/// Interval of a full scan, in intervals. Urgent changes are handled when they happen.
const SCAN: u64 = 50;

/// Limit on the machines and senders that one scan step processes; the senders of the last machine
/// may exceed it.
const LOOKS: usize = 64;

/// A pledge that ends within this number of intervals counts as ended. The number is larger than
/// the time between two checks, which is a heartbeat and a scan, and smaller than the rest of a
/// pledge that each heartbeat renews.
const PLEDGE_ENDS: u64 = 210;

/// A remote VM that sends to a local one, by a number that is unique at that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SenderId(pub u64);

impl SenderId {
    const fn new(peer: PeerIndex, machine: MachineId) -> Self {
        Self((peer.0 as u64) << 32 | machine.0 as u64)
    }
}

/// A change of the permitted traffic to a local VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// Limit of all its senders together.
    Receiver {
        /// The machine.
        guest: GuestId,
        /// B, S, `S_in`, and N-1.
        limits: ReceiverLimits,
    },
    /// The VM and its senders no longer take part.
    Closed {
        /// The machine.
        guest: GuestId,
    },
    /// A remote VM may send to it; the rate follows.
    Sender {
        /// The machine here.
        guest: GuestId,
        /// The one that sends.
        sender: SenderId,
        /// Sources of its frames.
        sources: Vec<Destination>,
    },
    /// New permitted rate of the sender.
    Rate {
        /// The machine here.
        guest: GuestId,
        /// The one that sends.
        sender: SenderId,
        /// The rate.
        rate: Rate,
    },
    /// The sender was removed, or starts again.
    Gone {
        /// The machine here.
        guest: GuestId,
        /// The one that sent.
        sender: SenderId,
    },
}

impl Incoming {
    /// Returns the local VM.
    pub const fn guest(&self) -> GuestId {
        match self {
            Self::Receiver { guest, .. }
            | Self::Closed { guest }
            | Self::Sender { guest, .. }
            | Self::Rate { guest, .. }
            | Self::Gone { guest, .. } => *guest,
        }
    }
}

/// Limits of all senders to a VM together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverLimits {
    /// Guaranteed bandwidth B.
    pub bandwidth: Rate,
    /// S of each sender, equal for all VMs of a tenant.
    pub burst: Bytes,
    /// `S_in`, the burst of all senders together; `None` without a limit.
    pub burst_in: Option<Bytes>,
    /// N-1, of which some may be on this host.
    pub senders: u64,
}

impl ReceiverLimits {
    fn of(local: &Local) -> Self {
        Self {
            bandwidth: local.machine.bandwidth,
            burst: local.machine.burst,
            burst_in: local.machine.inward.map(|inward| inward.most),
            senders: local.tenant_size.saturating_sub(1),
        }
    }
}

/// A sender, as it was reported.
#[derive(Debug)]
struct AnnouncedSender {
    guest: GuestId,
    sources: Vec<Destination>,
    rate: Rate,
}

/// A local VM and a remote one that sends to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sender {
    receiver: MachineId,
    peer: PeerIndex,
    id: MachineId,
}

impl Sender {
    /// Returns the range of all senders to a local machine on some peers.
    const fn all(receiver: MachineId, first: PeerIndex, last: PeerIndex) -> RangeInclusive<Self> {
        let first = Self {
            receiver,
            peer: first,
            id: MachineId(0),
        };
        let last = Self {
            receiver,
            peer: last,
            id: MachineId(u32::MAX),
        };
        first..=last
    }

    const fn known_as(self) -> SenderId {
        SenderId::new(self.peer, self.id)
    }

    const fn key(self) -> PairKey {
        let pair = PairId {
            sender: self.id,
            receiver: self.receiver,
        };
        PairKey {
            peer: self.peer,
            pair,
        }
    }
}

/// Inputs of a check of incoming traffic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IncomingCheck<'h> {
    pub(crate) now: Nanos,
    pub(crate) times: Times,
    pub(crate) view: &'h View,
    pub(crate) receiving: &'h ReceivingSide,
}

/// Reported senders to local machines, and pending changes.
#[derive(Debug, Default)]
pub(crate) struct IncomingSide {
    receivers: BTreeMap<MachineId, (GuestId, ReceiverLimits)>,
    senders: BTreeMap<Sender, AnnouncedSender>,
    /// Time of the next full scan.
    next_scan: Nanos,
    /// Index of the next machine of a full scan in progress.
    scanning: Option<usize>,
    /// Time of the last check.
    looked: Nanos,
    changes: Vec<Incoming>,
}

impl IncomingSide {
    /// Marks the limit of all senders to a VM as changed.
    pub(crate) fn look_at_receiver(&mut self, local: &Local) {
        let guest = local.machine.guest;
        let limits = ReceiverLimits::of(local);
        let before = self.receivers.insert(local.id, (guest, limits));
        if before != Some((guest, limits)) {
            self.changes.push(Incoming::Receiver { guest, limits });
        }
    }

    /// Removes a local VM.
    pub(crate) fn remove_receiver(&mut self, id: MachineId) {
        let Some((guest, _)) = self.receivers.remove(&id) else {
            return;
        };
        let all = Sender::all(id, PeerIndex(0), PeerIndex(usize::MAX));
        self.senders.extract_if(all, |_, _| true).for_each(drop);
        self.changes.push(Incoming::Closed { guest });
    }

    /// Handles a restart of a peer: its VMs have new buckets.
    pub(crate) fn handle_restart(&mut self, peer: PeerIndex) {
        let restarted = self.senders.extract_if(.., |sender, _| sender.peer == peer);
        let gone = restarted.map(|(sender, told)| Incoming::Gone {
            guest: told.guest,
            sender: sender.known_as(),
        });
        self.changes.extend(gone);
        // And all of them are told anew.
        self.scanning = Some(0);
    }

    /// Returns the time of the next scan; the present while a scan is incomplete.
    pub(crate) fn poll_at(&self) -> Option<Nanos> {
        self.scanning.map(|_| self.looked)
    }

    /// Handles changes, and a part of a due scan.
    pub(crate) fn update(
        &mut self,
        now: Nanos,
        times: Times,
        view: &View,
        receiving: &mut ReceivingSide,
    ) {
        let Self {
            senders, changes, ..
        } = self;
        receiving.take_divided(|local, key, receiving| {
            let check = IncomingCheck {
                now,
                times,
                view,
                receiving,
            };
            let sender = Sender {
                receiver: key.pair.receiver,
                peer: key.peer,
                id: key.pair.sender,
            };
            if let Some(told) = senders.get_mut(&sender) {
                told.set_rate(sender, check.may_use(local, key), changes);
            }
        });
        self.looked = now;
        if self.next_scan <= now {
            self.next_scan = now + Nanos(times.interval.0 * SCAN);
            self.scanning = self.scanning.or(Some(0));
        }
        let check = IncomingCheck {
            now,
            times,
            view,
            receiving,
        };
        let mut looks = 0;
        while looks < LOOKS
            && let Some(place) = self.scanning
        {
            let local = view.locals.first_from(place);
            self.scanning = local.map(|local| local.number() + 1);
            if let Some(local) = local {
                looks += 1 + self.look_at_senders(check, local);
            }
        }
    }

    /// Checks all senders to a local machine. Returns their number.
    fn look_at_senders(&mut self, check: IncomingCheck<'_>, local: LocalIndex) -> usize {
        let view = check.view;
        let tenant = view.locals[local].tenant();
        let senders = view.directory.machines_of(tenant);
        let senders = senders.filter_map(|(peer, id)| {
            let announced = view.peers[peer].machines().get(&id)?;
            Some((peer, announced))
        });
        let (first, last) = (PeerIndex(0), PeerIndex(usize::MAX));
        self.look_at(check, local, first, last, senders)
    }

    /// Checks the senders to a local machine on one peer.
    pub(crate) fn look_at_peer(
        &mut self,
        check: IncomingCheck<'_>,
        local: LocalIndex,
        peer: PeerIndex,
    ) {
        let view = check.view;
        let senders = view.machines_at(view.locals[local].tenant(), peer);
        let senders = senders.map(|announced| (peer, announced));
        self.look_at(check, local, peer, peer, senders);
    }

    /// Reports changes of a local machine and of its senders on some peers. `senders` are all its
    /// senders there, in order. Returns their number.
    fn look_at<'h>(
        &mut self,
        check: IncomingCheck<'h>,
        local: LocalIndex,
        first: PeerIndex,
        last: PeerIndex,
        senders: impl Iterator<Item = (PeerIndex, &'h AnnouncedMachine)>,
    ) -> usize {
        self.look_at_receiver(&check.view.locals[local]);
        let Local { machine, id, .. } = &check.view.locals[local];
        let guest = machine.guest;
        let mut before: BTreeMap<_, _> = self
            .senders
            .extract_if(Sender::all(*id, first, last), |_, _| true)
            .collect();
        let mut count = 0;
        for (peer, announced) in senders.filter(|(_, sender)| sender.name != machine.name) {
            let sender = Sender {
                receiver: *id,
                peer,
                id: announced.id,
            };
            let mut told = match before.remove(&sender) {
                Some(told) if told.is(guest, announced) => told,
                _ => self.announce(sender, guest, announced),
            };
            let rate = check.may_use(local, sender.key());
            told.set_rate(sender, rate, &mut self.changes);
            self.senders.insert(sender, told);
            count += 1;
        }
        let gone = before.into_iter().map(|(sender, told)| Incoming::Gone {
            guest: told.guest,
            sender: sender.known_as(),
        });
        self.changes.extend(gone);
        count
    }

    fn announce(
        &mut self,
        sender: Sender,
        guest: GuestId,
        announced: &AnnouncedMachine,
    ) -> AnnouncedSender {
        let sources: Vec<_> = announced.destinations().collect();
        self.changes.push(Incoming::Sender {
            guest,
            sender: sender.known_as(),
            sources: sources.clone(),
        });
        AnnouncedSender {
            guest,
            sources,
            rate: Rate::ZERO,
        }
    }

    pub(crate) fn poll_changes(&mut self) -> impl Iterator<Item = Incoming> + '_ {
        self.changes.drain(..)
    }
}

impl AnnouncedSender {
    fn is(&self, guest: GuestId, sender: &AnnouncedMachine) -> bool {
        let sources = sender.destinations();
        self.guest == guest && self.sources.iter().copied().eq(sources)
    }

    fn set_rate(&mut self, sender: Sender, rate: Rate, changes: &mut Vec<Incoming>) {
        if std::mem::replace(&mut self.rate, rate) != rate {
            changes.push(Incoming::Rate {
                guest: self.guest,
                sender: sender.known_as(),
                rate,
            });
        }
    }
}

impl IncomingCheck<'_> {
    /// Returns the highest rate that a sender may be using.
    fn may_use(self, local: LocalIndex, key: PairKey) -> Rate {
        let Self {
            now,
            times,
            view,
            receiving,
        } = self;
        let receiver = &view.locals[local];
        if !receiving.is_settled(now) {
            // Leases of this host's former life may be in force.
            return receiver.machine.bandwidth;
        }
        let share = receiver.share();
        let granted = receiving.in_force(now, key, share);
        let ends = now + Nanos(times.interval.0 * PLEDGE_ENDS);
        if view.is_pledged(key.peer, ends) {
            granted
        } else {
            granted.max(share)
        }
    }
}
