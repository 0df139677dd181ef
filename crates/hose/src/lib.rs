//! The hose model between hosts (Silo, SIGCOMM 2015, 4.1 and 4.3): how fast each
//! machine may send to each other one of its tenant.
//!
//! docs/hose.md has the protocol, the bounds and their proof. In short: for each
//! pair (sender, receiver) that is in use, the sender's host requests a rate from
//! the receiver's host, which divides its machine's bandwidth B among all senders
//! (max-min fair) and **grants** each a rate on a lease. The sender's host divides
//! its own machine's B among the receivers, within what they granted. A host never
//! grants what another may still use: a rate is taken back first, and given to the
//! other when the first has said that it keeps to less, or its lease is over. So
//! the rates to one receiver sum up to at most its B at every moment, whatever
//! datagrams are lost, late, doubled or in disorder.
//!
//! Pairs that are not in use hold nothing of B. That is safe since hosts **pledge**
//! to each other, in every datagram, to send nothing that was not granted, up to a
//! moment in the near future. When a host falls silent its pledge runs out, and
//! from then on each of its machines may use the static share B/(N-1) unasked, and
//! is counted with that.
//!
//! [`HoseState`] is pure: `now` goes in, datagrams and rates come out. Call in this
//! order: [`HoseState::receive`] for each datagram, [`HoseState::used`] for each
//! destination that was used and [`HoseState::sampled`] after them,
//! [`HoseState::poll`] for what is to be sent, [`HoseState::changes`] for the new
//! rates; then sleep until [`HoseState::poll_at`].
//!
//! [`wire`] has the datagrams, `sender` and `receiver` the two ends of a pair,
//! `learn` who is where, `share` the division.

mod ids;
mod learn;
mod peer;
mod receiver;
mod replay;
mod sender;
mod share;
mod table;
pub mod wire;

pub use ids::{FlowKey, GuestId};
pub use wire::{HostId, Key};

use learn::Local;
use peer::Peer;
use receiver::{Grant, GrantKey};
use replay::{Fresh, Stale};
use sender::{Pair, PairKey};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use table::Table;
use tailbound_units::{Bytes, Nanos, Rate};
use wire::{Entry, Header, MAX_DATAGRAM, Malformed, Message, Writer};

/// Pairs that one host keeps, whether they are in use or not, in each direction.
pub const MAX_PAIRS: usize = 65_536;

/// A lease is so many intervals long: as many datagrams in a row may be lost.
const LEASE: u64 = 20;
/// How often an idle host is heard, in intervals.
const HEARTBEAT: u64 = 100;
/// How long a pledge holds, in intervals: three heartbeats in a row may be lost.
const PLEDGE: u64 = 600;

/// What a host is told at its start.
#[derive(Debug, Clone)]
pub struct HoseConfig {
    /// Which host this is.
    pub host: HostId,
    /// Higher than at every start before; the time of day in nanoseconds will do.
    pub epoch: u64,
    /// How often rates are exchanged while there is traffic; 1 ms. Leases,
    /// pledges and heartbeats are multiples of it.
    pub interval: Nanos,
    /// The other hosts.
    pub peers: Vec<HostId>,
}

/// A machine on this host that has a guarantee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its guest here.
    pub guest: GuestId,
    /// `OWNER/NAME/NUMBER`; all with the same `OWNER/NAME` are of one tenant.
    pub name: String,
    /// Where it is reached; IPv4 as IPv4-mapped IPv6. The first
    /// [`wire::MAX_ADDRESSES`] are announced.
    pub addresses: Vec<u128>,
    /// B.
    pub bandwidth: Rate,
    /// S.
    pub burst: Bytes,
    /// N, how many machines the tenant has; if more are known, they count.
    pub tenant_machines: u32,
}

/// A rate that is to be set, or taken away, for what a guest sends to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The guest that sends.
    pub guest: GuestId,
    /// The address.
    pub destination: u128,
    /// `B_i`, 0 where nothing was granted, or none any more.
    pub rate: Option<Rate>,
}

/// Why a datagram changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Dropped {
    /// It is none of ours.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It is for another host.
    #[error("it is for another host")]
    Misdirected,
    /// No such peer is configured.
    #[error("it is from a host that is no peer")]
    Stranger,
    /// It came before.
    #[error("it came before")]
    Duplicate,
    /// It is of an earlier epoch, or too late.
    #[error("it is of an earlier epoch, or too late")]
    Old,
}

/// How many datagrams changed nothing, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HoseDrops {
    length: u64,
    version: u64,
    mac: u64,
    entries: u64,
    misdirected: u64,
    stranger: u64,
    duplicate: u64,
    old: u64,
}

impl HoseDrops {
    fn count(&mut self, dropped: Dropped) {
        *match dropped {
            Dropped::Malformed(Malformed::Length) => &mut self.length,
            Dropped::Malformed(Malformed::Version) => &mut self.version,
            Dropped::Malformed(Malformed::Mac) => &mut self.mac,
            Dropped::Malformed(Malformed::Entries) => &mut self.entries,
            Dropped::Misdirected => &mut self.misdirected,
            Dropped::Stranger => &mut self.stranger,
            Dropped::Duplicate => &mut self.duplicate,
            Dropped::Old => &mut self.old,
        } += 1;
    }

    /// Each reason as one word for a counter's label, and its count.
    pub const fn by_reason(&self) -> [(&'static str, u64); 8] {
        [
            ("length", self.length),
            ("version", self.version),
            ("mac", self.mac),
            ("entries", self.entries),
            ("misdirected", self.misdirected),
            ("stranger", self.stranger),
            ("duplicate", self.duplicate),
            ("old", self.old),
        ]
    }
}

/// What has happened so far, and how things are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HoseStats {
    /// Datagrams that were taken.
    pub received: u64,
    /// Datagrams that were made.
    pub sent: u64,
    /// Datagrams that changed nothing.
    pub dropped: HoseDrops,
    /// Entries that name a machine or a pair that is not here, or not known yet.
    pub unknown: u64,
    /// Pairs for which there was no room.
    pub no_room: u64,
    /// Leases that ran out in use, as the receiver's host was silent.
    pub fallbacks: u64,
    /// Pledges to a host that ran out, so that its machines are sent their
    /// static shares.
    pub silences: u64,
    /// Peers that started again.
    pub restarts: u64,
    /// Peers that were heard within four heartbeats.
    pub alive: u64,
    /// Peers that are configured.
    pub peers: u64,
    /// Pairs with a limit here.
    pub pairs: u64,
    /// Those of them in use.
    pub open: u64,
    /// Pairs that are granted something here.
    pub granted: u64,
}

/// One host's side. See the module.
#[derive(Debug)]
pub struct HoseState {
    config: HoseConfig,
    key: Key,
    started: Nanos,
    peers: Vec<Peer>,
    by_host: HashMap<HostId, usize>,
    /// Peers by when they are sent something next.
    timers: BTreeSet<(Nanos, usize)>,
    locals: Table<u32, Local>,
    next_id: u32,
    revision: u32,
    /// On which peer a machine of a name is.
    homes: HashMap<String, usize>,
    /// How many machines of a tenant are on which peer.
    tenants: HashMap<String, BTreeMap<usize, u64>>,
    pairs: Table<PairKey, Pair>,
    /// The pair of each flow that has a limit.
    flows: HashMap<FlowKey, usize>,
    grants: Table<GrantKey, Grant>,
    /// When the shares of all that is in use are looked at next.
    tick: Nanos,
    /// When those whose demands changed may be looked at.
    dirty: Option<Nanos>,
    last_sample: Nanos,
    changes: Vec<Change>,
    writer: Writer,
    stats: HoseStats,
}

impl HoseState {
    /// A host without machines, that has heard of nobody.
    pub fn new(now: Nanos, config: HoseConfig, key: Key) -> Self {
        let mut state = Self {
            key,
            started: now,
            peers: Vec::new(),
            by_host: HashMap::new(),
            timers: BTreeSet::new(),
            locals: Table::new(peer::MAX_MACHINES),
            next_id: 1,
            revision: 1,
            homes: HashMap::new(),
            tenants: HashMap::new(),
            pairs: Table::new(MAX_PAIRS),
            flows: HashMap::new(),
            grants: Table::new(MAX_PAIRS),
            tick: now,
            dirty: None,
            last_sample: now,
            changes: Vec::new(),
            writer: Writer::default(),
            stats: HoseStats::default(),
            config,
        };
        for id in state.config.peers.clone() {
            if id != state.config.host && !state.by_host.contains_key(&id) {
                state.by_host.insert(id, state.peers.len());
                state.timers.insert((now, state.peers.len()));
                state.peers.push(Peer::new(id, now, now + state.pledge()));
            }
        }
        state
    }

    /// Takes a datagram, whoever sent it.
    ///
    /// # Errors
    /// Why it changed nothing; it is counted.
    pub fn receive(&mut self, now: Nanos, datagram: &[u8]) -> Result<(), Dropped> {
        let taken = self.take(now, datagram);
        match taken {
            Ok(()) => self.stats.received += 1,
            Err(dropped) => self.stats.dropped.count(dropped),
        }
        taken
    }

    /// Counts a datagram that its receiver does not hand in, and gives why.
    pub fn refuse(&mut self, dropped: Dropped) -> Dropped {
        self.stats.dropped.count(dropped);
        dropped
    }

    fn take(&mut self, now: Nanos, datagram: &[u8]) -> Result<(), Dropped> {
        let Message { header, entries } = Message::parse(self.key.open(datagram)?)?;
        if header.to != self.config.host {
            return Err(Dropped::Misdirected);
        }
        let index = *self.by_host.get(&header.from).ok_or(Dropped::Stranger)?;
        let fresh = self.peers[index].window.take(header.epoch, header.seq);
        match fresh {
            Err(Stale::Duplicate) => return Err(Dropped::Duplicate),
            Err(Stale::Old) => return Err(Dropped::Old),
            Ok(Fresh::Restarted) => self.restarted(now, index),
            Ok(Fresh::Next) => {}
        }
        self.greet(now, index, &header);
        // What is about grants or a pledge of another epoch of ours is void.
        let of_this_epoch = header.echo_epoch == self.config.epoch && header.echo_time <= now.0;
        let mut whole = self.peers[index].learn(header.revision, header.machines, None);
        for entry in entries {
            match entry {
                Entry::Machine(machine) => {
                    let peer = &mut self.peers[index];
                    whole |= peer.learn(header.revision, header.machines, Some(machine));
                }
                _ if whole => {
                    self.learned(now, index);
                    whole = false;
                    self.pair_entry(now, index, &header, of_this_epoch, &entry);
                }
                _ => self.pair_entry(now, index, &header, of_this_epoch, &entry),
            }
        }
        if whole {
            self.learned(now, index);
        }
        Ok(())
    }

    fn pair_entry(
        &mut self,
        now: Nanos,
        index: usize,
        header: &Header,
        of_this_epoch: bool,
        entry: &Entry,
    ) {
        if !of_this_epoch {
            return;
        }
        let known = match *entry {
            Entry::Request {
                sender,
                receiver,
                demand,
                seen,
            } => self.requested(now, index, header.seq, (sender, receiver), demand, seen),
            Entry::Grant {
                sender,
                receiver,
                rate,
            } => self.granted(now, index, header, (sender, receiver), rate),
            Entry::Machine(_) => true,
        };
        self.stats.unknown += u64::from(!known);
    }

    /// Notes what a header says.
    fn greet(&mut self, now: Nanos, index: usize, header: &Header) {
        let pledge = self.pledge();
        let heartbeat = self.heartbeat();
        let peer = &mut self.peers[index];
        let silent = peer.heard.is_none_or(|heard| now.since(heard) > heartbeat);
        peer.heard = Some(now);
        if header.time >= peer.time {
            peer.time = header.time;
            peer.time_heard = now;
        }
        let before = peer.pledged_to_us;
        if header.echo_epoch == self.config.epoch && header.echo_time <= now.0 {
            let echo = Nanos(header.echo_time);
            peer.echo = peer.echo.max(Some(echo));
            peer.known = peer.known.max(header.known.min(self.revision));
            if header.pledge {
                // Their clock may be a little faster than ours.
                let until = echo + pledge - Nanos(pledge.0 / 64);
                peer.pledged_to_us = peer.pledged_to_us.max(until);
            }
        }
        // Whoever begins is answered at once.
        if silent {
            self.hurry(now, index);
        }
        if before <= now && self.peers[index].pledged_to_us > now {
            self.settle_all(now);
        }
    }

    /// A peer has started again: it holds nothing of what it was granted, and has
    /// granted nothing. Pledges stand, in both directions: others may have been
    /// granted what rests on them.
    fn restarted(&mut self, now: Nanos, index: usize) {
        let peer = &mut self.peers[index];
        if peer.heard.is_some() {
            self.stats.restarts += 1;
        }
        peer.time = 0;
        peer.echo = None;
        peer.known = 0;
        peer.revision = 0;
        peer.draft_revision = 0;
        peer.draft.clear();
        for grant in self.peers[index].grants.clone() {
            self.forget_grant(now, grant);
        }
        for pair in self.peers[index].pairs.clone() {
            self.pairs[pair].seen = 0;
        }
        self.start_over(now, index);
        self.hurry(now, index);
    }

    /// What is to be sent now: `send` gets each datagram and the host it is for.
    pub fn poll(&mut self, now: Nanos, mut send: impl FnMut(HostId, &[u8])) {
        if self.tick <= now {
            self.tick = now + self.config.interval;
            self.share_out(now, true);
        } else if self.dirty.is_some_and(|at| at <= now) {
            self.share_out(now, false);
        }
        while let Some((at, index)) = self.timers.first().copied()
            && at <= now
        {
            let heartbeat = self.heartbeat();
            self.timers.remove(&(at, index));
            self.send(now, index, &mut send);
            let peer = &self.peers[index];
            let silence = peer
                .heard
                .is_none_or(|heard| now.since(heard).0 > 2 * heartbeat.0);
            let quiet = peer.open.is_empty() && peer.grants.is_empty();
            let lacks = peer.heard.is_some() && peer.known < self.revision;
            let pace = match (silence || quiet, lacks) {
                (false, _) => 1,
                (_, true) => 8,
                _ => HEARTBEAT,
            };
            let due = now + Nanos(self.config.interval.0 * pace);
            self.peers[index].due = due;
            self.timers.insert((due, index));
        }
    }

    /// Looks at the shares of all machines, or of those where something changed.
    fn share_out(&mut self, now: Nanos, all: bool) {
        self.dirty = None;
        for index in self.locals.all() {
            let local = &self.locals[index];
            if (all && !local.grants.is_empty()) || local.settle {
                self.settle(now, index);
            }
            let local = &self.locals[index];
            if (all && !local.open.is_empty()) || local.allocate {
                self.allocate(now, index);
            }
        }
    }

    /// Has shares looked at soon, at most eight times an interval.
    fn soon(&mut self, now: Nanos) {
        let interval = self.config.interval;
        let last = self.tick.saturating_sub(interval);
        let slice = interval.0 / 8;
        let at = if now.since(last) >= interval || slice == 0 {
            now
        } else {
            last + Nanos(now.since(last).0.div_ceil(slice) * slice)
        };
        self.dirty = Some(self.dirty.map_or(at, |dirty| dirty.min(at)));
    }

    /// Has the next datagram go to a peer soon, at most four an interval.
    fn hurry(&mut self, now: Nanos, index: usize) {
        let gap = Nanos(self.config.interval.0 / 4);
        let peer = &mut self.peers[index];
        let at = peer.last_sent.map_or(now, |last| now.max(last + gap));
        if at < peer.due {
            self.timers.remove(&(peer.due, index));
            peer.due = at;
            self.timers.insert((at, index));
        }
    }

    /// Sends a peer all that it is to know, in as many datagrams as that takes.
    fn send(&mut self, now: Nanos, index: usize, send: &mut impl FnMut(HostId, &[u8])) {
        let pledge = self.keep_pledge(now, index);
        let lease = self.lease_held();
        let mut entries = Vec::new();
        let peer = &self.peers[index];
        if peer.heard.is_some() && peer.known < self.revision {
            self.announce(&mut entries);
        }
        self.requests(index, &mut entries);
        let grants_from = entries.len();
        let grants = self.peers[index].grants.clone();
        self.offer(&grants, &mut entries);

        let peer = &mut self.peers[index];
        peer.last_sent = Some(now);
        peer.parked.clear();
        peer.strays.clear();
        // A lease counts from `echo_time`, which was before we heard it.
        let until = peer.time_heard + lease;
        let mut header = Header {
            from: self.config.host,
            to: peer.id,
            epoch: self.config.epoch,
            seq: 0,
            time: now.0,
            echo_epoch: peer.window.epoch,
            echo_time: peer.time,
            revision: self.revision,
            known: peer.revision,
            machines: self.locals.len() as u16,
            pledge,
        };
        let mut rest = entries.as_slice();
        let mut done = 0;
        loop {
            let peer = &mut self.peers[index];
            peer.seq += 1;
            header.seq = peer.seq;
            self.writer.start(&header);
            let fitting = rest
                .iter()
                .position(|entry| !self.writer.push(entry))
                .unwrap_or(rest.len());
            for place in done..done + fitting {
                if let Some(grant) = place.checked_sub(grants_from).map(|at| grants[at]) {
                    self.grants[grant].wrote(header.seq, until);
                }
            }
            let id = self.peers[index].id;
            let datagram = self.writer.finish(&self.key);
            debug_assert!(datagram.len() <= MAX_DATAGRAM);
            send(id, datagram);
            self.stats.sent += 1;
            done += fitting;
            rest = &rest[fitting..];
            if rest.is_empty() {
                break;
            }
        }
    }

    /// When [`Self::poll`] is to be called next, unless something comes before.
    pub fn poll_at(&self) -> Option<Nanos> {
        let peer = self.timers.first().map(|(at, _)| *at);
        let busy = self.pairs_open() || self.grants.len() > 0;
        let tick = busy.then_some(self.tick);
        [peer, tick, self.dirty].into_iter().flatten().min()
    }

    /// Whether any pair is in use here, so that what was used is to be told
    /// each interval.
    pub fn pairs_open(&self) -> bool {
        self.stats.open > 0
    }

    /// How often rates are exchanged.
    pub const fn interval(&self) -> Nanos {
        self.config.interval
    }

    /// The rates that changed since the last call, in the order of their changes.
    pub fn changes(&mut self) -> impl Iterator<Item = Change> + '_ {
        self.changes.drain(..)
    }

    /// What has happened, and how things are.
    pub fn stats(&self, now: Nanos) -> HoseStats {
        let silence = Nanos(4 * self.heartbeat().0);
        let alive = self
            .peers
            .iter()
            .filter_map(|peer| peer.heard)
            .filter(|heard| now.since(*heard) <= silence);
        HoseStats {
            alive: alive.count() as u64,
            peers: self.peers.len() as u64,
            pairs: self.pairs.len() as u64,
            granted: self.grants.len() as u64,
            ..self.stats
        }
    }

    const fn lease(&self) -> Nanos {
        Nanos(self.config.interval.0 * LEASE)
    }

    /// How long what was granted is counted: a sixteenth longer, since the other
    /// clock may be slower than ours.
    const fn lease_held(&self) -> Nanos {
        Nanos(self.lease().0 + self.lease().0 / 16)
    }

    const fn heartbeat(&self) -> Nanos {
        Nanos(self.config.interval.0 * HEARTBEAT)
    }

    const fn pledge(&self) -> Nanos {
        Nanos(self.config.interval.0 * PLEDGE)
    }
}

#[cfg(test)]
mod tests;
