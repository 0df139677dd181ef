//! What may come for each machine here, and from whom: for whoever holds its senders to
//! that.
//!
//! A sender's host may use a rate that was granted to it from the moment at which it is
//! granted until its lease is over or it has confirmed another, and its static share
//! unasked once its pledge is over. What is told here is never less than that, so that
//! nobody who keeps to the protocol is taken for one who does not. What a machine may send
//! falls late; who holds it to that need not be told at once.

use crate::config::Times;
use crate::ids::{Destination, GuestId, MachineId, PairId, PairKey, PeerIndex};
use crate::machines::{Local, LocalIndex, tenant};
use crate::receiver::ReceivingSide;
use crate::view::View;
use crate::wire::Announced;
use std::collections::BTreeMap;
use tailbound_units::{Bytes, Nanos, Rate};

/// How often everything is looked at again, in intervals. What must not wait is looked at
/// when it happens.
const SCAN: u64 = 50;

/// A pledge that ends within so many intervals counts as ended: it is longer than any two
/// looks are apart, which are a heartbeat and a scan, and shorter than what is left of a
/// pledge that is renewed with each heartbeat.
const PLEDGE_ENDS: u64 = 210;

/// A machine elsewhere that sends to one here, by a number that no other has at that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SenderId(pub u64);

impl SenderId {
    const fn new(peer: PeerIndex, machine: MachineId) -> Self {
        Self((peer.0 as u64) << 32 | machine.0 as u64)
    }
}

/// A change of what may come for a machine here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// Its senders may send it that much in all.
    Receiver {
        /// The machine.
        guest: GuestId,
        /// B, S, and N-1.
        limits: ReceiverLimits,
    },
    /// It takes no part any more, nor do its senders.
    Closed {
        /// The machine.
        guest: GuestId,
    },
    /// A machine elsewhere may send to it; its rate follows.
    Sender {
        /// The machine here.
        guest: GuestId,
        /// The one that sends.
        sender: SenderId,
        /// What its frames come from.
        sources: Vec<Destination>,
    },
    /// What that may use from now on, as far as is known here.
    Rate {
        /// The machine here.
        guest: GuestId,
        /// The one that sends.
        sender: SenderId,
        /// The rate.
        rate: Rate,
    },
    /// It may not send any more, or begins anew.
    Gone {
        /// The machine here.
        guest: GuestId,
        /// The one that sent.
        sender: SenderId,
    },
}

impl Incoming {
    /// The machine here that it is about.
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

/// What may come for a machine in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverLimits {
    /// B.
    pub bandwidth: Rate,
    /// S of each sender: all machines of a tenant have one.
    pub burst: Bytes,
    /// N-1, of which some may be on this host.
    pub senders: u64,
}

impl ReceiverLimits {
    fn of(local: &Local) -> Self {
        Self {
            bandwidth: local.machine.bandwidth,
            burst: local.machine.burst,
            senders: local.tenant_size.saturating_sub(1),
        }
    }
}

/// A sender, as it was told.
#[derive(Debug)]
struct Told {
    guest: GuestId,
    sources: Vec<Destination>,
    rate: Rate,
}

/// What was told of all senders to machines here, and is to be told.
#[derive(Debug, Default)]
pub(crate) struct IncomingSide {
    receivers: BTreeMap<MachineId, (GuestId, ReceiverLimits)>,
    senders: BTreeMap<PairKey, Told>,
    /// When all is looked at again.
    next_scan: Nanos,
    changes: Vec<Incoming>,
}

impl IncomingSide {
    /// Has everything looked at again: machines came or went, here or elsewhere.
    pub(crate) fn scan_soon(&mut self) {
        self.next_scan = Nanos::ZERO;
    }

    /// A peer has started again: its machines' buckets are new.
    pub(crate) fn handle_restart(&mut self, peer: PeerIndex) {
        let restarted = self.senders.extract_if(.., |key, _| key.peer == peer);
        let gone = restarted.map(|(key, told)| Incoming::Gone {
            guest: told.guest,
            sender: SenderId::new(key.peer, key.pair.sender),
        });
        self.changes.extend(gone);
        self.scan_soon();
    }

    /// Looks at what has changed.
    pub(crate) fn update(
        &mut self,
        now: Nanos,
        times: Times,
        view: &View,
        receiving: &mut ReceivingSide,
    ) {
        if self.next_scan <= now {
            self.next_scan = now + Nanos(times.interval.0 * SCAN);
            self.scan_receivers(view);
            self.scan_senders(now, times, view, receiving);
            return;
        }
        let Self {
            senders, changes, ..
        } = self;
        receiving.take_divided(|local, key, receiving| {
            let rate = may_use(now, times, view, receiving, local, key);
            if let Some(told) = senders.get_mut(&key) {
                told.set_rate(key, rate, changes);
            }
        });
    }

    fn scan_receivers(&mut self, view: &View) {
        // A guest may be another machine than before.
        let gone = self
            .receivers
            .extract_if(.., |id, _| view.locals.find(*id).is_none());
        for (id, (guest, _)) in gone {
            self.senders.retain(|key, _| key.pair.receiver != id);
            self.changes.push(Incoming::Closed { guest });
        }
        for index in view.locals.indices() {
            let local = &view.locals[index];
            let guest = local.machine.guest;
            let limits = ReceiverLimits::of(local);
            let before = self.receivers.insert(local.id, (guest, limits));
            if before != Some((guest, limits)) {
                self.changes.push(Incoming::Receiver { guest, limits });
            }
        }
    }

    fn scan_senders(
        &mut self,
        now: Nanos,
        times: Times,
        view: &View,
        receiving: &mut ReceivingSide,
    ) {
        receiving.take_divided(|_, _, _| {});
        let mut before = std::mem::take(&mut self.senders);
        for peer in view.peers.indices() {
            for (key, local, sender) in view.pairs_from(peer) {
                let guest = view.locals[local].machine.guest;
                let rate = may_use(now, times, view, receiving, local, key);
                let known = before.remove(&key);
                let mut told = match known {
                    Some(told) if told.is(guest, sender) => told,
                    _ => self.announce(key, guest, sender),
                };
                told.set_rate(key, rate, &mut self.changes);
                self.senders.insert(key, told);
            }
        }
        self.changes
            .extend(before.into_iter().map(|(key, told)| Incoming::Gone {
                guest: told.guest,
                sender: SenderId::new(key.peer, key.pair.sender),
            }));
    }

    fn announce(&mut self, key: PairKey, guest: GuestId, sender: &Announced) -> Told {
        let sources: Vec<_> = sender.destinations().collect();
        self.changes.push(Incoming::Sender {
            guest,
            sender: SenderId::new(key.peer, key.pair.sender),
            sources: sources.clone(),
        });
        Told {
            guest,
            sources,
            rate: Rate::ZERO,
        }
    }

    pub(crate) fn poll_changes(&mut self) -> impl Iterator<Item = Incoming> + '_ {
        self.changes.drain(..)
    }
}

impl Told {
    fn is(&self, guest: GuestId, sender: &Announced) -> bool {
        let sources = sender.destinations();
        self.guest == guest && self.sources.iter().copied().eq(sources)
    }

    fn set_rate(&mut self, key: PairKey, rate: Rate, changes: &mut Vec<Incoming>) {
        if std::mem::replace(&mut self.rate, rate) != rate {
            changes.push(Incoming::Rate {
                guest: self.guest,
                sender: SenderId::new(key.peer, key.pair.sender),
                rate,
            });
        }
    }
}

/// The most that a sender may be using.
fn may_use(
    now: Nanos,
    times: Times,
    view: &View,
    receiving: &ReceivingSide,
    local: LocalIndex,
    key: PairKey,
) -> Rate {
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

impl View {
    /// The pairs of a peer's machines and this host's of the same tenant, with those that
    /// send.
    fn pairs_from(
        &self,
        peer: PeerIndex,
    ) -> impl Iterator<Item = (PairKey, LocalIndex, &Announced)> {
        let senders = self.peers[peer].machines().values();
        let senders = senders.filter(move |sender| {
            // A machine that moves is where it was announced last.
            self.directory.is_at(&sender.name, peer)
        });
        senders.flat_map(move |sender| {
            let receivers = self.locals.indices().filter(move |index| {
                let local = &self.locals[*index];
                local.tenant() == tenant(&sender.name) && local.machine.name != sender.name
            });
            receivers.map(move |index| {
                let pair = PairId {
                    sender: sender.id,
                    receiver: self.locals[index].id,
                };
                (PairKey { peer, pair }, index, sender)
            })
        })
    }
}
