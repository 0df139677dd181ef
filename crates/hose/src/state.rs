//! State of one host: dispatches datagrams to the sending and receiving side, and combines both
//! sides' entries into datagrams.

mod agenda;
mod send;

use self::agenda::{Agenda, PIECE};
use crate::config::HoseConfig;
use crate::context::Context;
use crate::ids::{
    FlowKey, GuestId, HostId, PairKey, PeerIndex, SequenceNumber, Station, TimeOfDay,
};
use crate::incoming::{Incoming, IncomingSide};
use crate::keys::PairKeys;
use crate::machines::{LocalIndex, Machine, Machines};
use crate::peers::Peer;
use crate::receiver::{IncomingRequest, ReceivingSide};
use crate::replay::{Fresh, Stale};
use crate::schedule::{Schedule, Scope};
use crate::sender::{Change, IncomingGrant, SendingSide, Usage};
use crate::stations::{StationChange, Stations};
use crate::stats::{DropReason, HoseStats};
use crate::view::View;
use crate::wire::{Entry, Envelope, Header, Message, Writer};
use std::mem;
use std::sync::Arc;
use tailbound_units::{Bytes, Nanos};

/// Rounds of requests and grants between local VMs per division: a reduction in the first round is
/// granted to another VM in the second, and confirmed in the third.
const ROUNDS_HERE: usize = 3;

/// Bytes sent per poll, with [`DATAGRAM`] more per datagram: about eight full ones, or twenty short
/// ones.
const AT_ONCE: usize = 16 * 1024;

/// Fixed cost of a datagram in bytes, besides the hash of its bytes.
const DATAGRAM: usize = 512;

/// One host's part in the exchange of rates. The crate's documentation describes its use.
#[derive(Debug)]
pub struct HoseState {
    config: HoseConfig,
    pub(crate) view: View,
    stations: Stations,
    /// The number of the last message of this host to itself.
    told_here: SequenceNumber,
    pub(crate) sending: SendingSide,
    pub(crate) receiving: ReceivingSide,
    incoming: IncomingSide,
    agenda: Agenda,
    /// Number of items that one call processes.
    pub(crate) piece: usize,
    pub(crate) schedule: Schedule,
    writer: Writer,
    /// Entries of the next datagram; the buffer is reused, so that no datagram allocates.
    entries: Vec<Entry>,
    /// Counters that belong to neither side.
    stats: HoseStats,
}

/// Epoch of a datagram's grants and pledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    /// The current epoch of this host.
    ThisEpoch,
    /// Another epoch; the grants and pledges are void.
    Another,
}

impl HoseState {
    /// Returns a host without VMs, keys and known peers.
    ///
    /// # Panics
    /// The commitment is longer than half a lease.
    pub fn new(now: Nanos, config: HoseConfig) -> Self {
        let times = config.times();
        assert!(
            config.commitment.0 <= times.lease().0 / 2,
            "a commitment is at most half a lease"
        );
        let view = View::new(config.host, &config.peers, config.epoch);
        let peers = view.peers.len();
        Self {
            sending: SendingSide::new(now, times, peers),
            receiving: ReceivingSide::new(now, times, peers),
            incoming: IncomingSide::default(),
            agenda: Agenda::default(),
            piece: PIECE,
            schedule: Schedule::new(now, config.interval, peers),
            view,
            stations: Stations::default(),
            told_here: SequenceNumber::default(),
            writer: Writer::default(),
            entries: Vec::new(),
            stats: HoseStats::default(),
            config,
        }
    }

    /// Sets the keys of this host with each peer. Peers without a key are not exchanged with;
    /// previous grants and pledges end. Datagrams signed with a key that stays remain valid.
    pub fn set_keys(
        &mut self,
        now: Nanos,
        mut keys_with: impl FnMut(HostId) -> Option<Arc<PairKeys>>,
    ) {
        for index in self.view.peers.indices() {
            let peer = &mut self.view.peers[index];
            let before = mem::replace(&mut peer.keys, keys_with(peer.id));
            // One that had a key hears of another with the next datagram.
            if before.is_none() && peer.keys.is_some() {
                self.schedule.expedite_datagram(now, index);
            }
        }
    }

    /// Sets the VMs with a guarantee on this host, replacing all previous ones. Unchanged VMs keep
    /// their rates.
    ///
    /// The change is applied in pieces of bounded time: one immediately, and one with each
    /// [`Self::poll_datagrams`]. While pieces remain, [`Self::poll_at`] returns the present.
    pub fn set_machines(&mut self, now: Nanos, machines: impl Into<Machines>) {
        self.begin_machines(now, machines.into());
    }

    fn add_local(&mut self, machine: Machine) {
        let station = machine.station;
        match self.view.locals.insert(machine) {
            Some(index) => {
                self.view.update_tenant_size(index);
                self.stations.add(station);
                self.sending.add_local(index);
                self.receiving.add_local(index);
            }
            None => self.stats.no_room += 1,
        }
    }

    /// Removes a VM of this host; returns the number of its pairs and grants.
    fn remove_local(&mut self, now: Nanos, index: LocalIndex) -> usize {
        let local = &self.view.locals[index];
        self.stations.remove(local.machine.station);
        self.incoming.remove_receiver(local.id);
        let (mut cx, sending, receiving) = self.sides(now);
        let grants = receiving.remove_local(&mut cx, index);
        let pairs = sending.remove_local(&cx, index);
        self.view.locals.remove(index);
        grants + pairs
    }

    /// Handles a datagram from any sender. `today` is the time of day, used for epochs only.
    ///
    /// # Errors
    /// The reason for the drop, which is also counted.
    pub fn handle_datagram(
        &mut self,
        now: Nanos,
        today: TimeOfDay,
        datagram: &[u8],
    ) -> Result<(), DropReason> {
        let accepted = self.accept(now, today, datagram);
        match accepted {
            Ok(()) => self.stats.received += 1,
            Err(dropped) => self.stats.dropped.count(dropped),
        }
        accepted
    }

    /// Counts a datagram that the caller dropped.
    pub fn handle_dropped(&mut self, dropped: DropReason) {
        self.stats.dropped.count(dropped);
    }

    fn accept(&mut self, now: Nanos, today: TimeOfDay, datagram: &[u8]) -> Result<(), DropReason> {
        let envelope = Envelope::read(datagram)?;
        if envelope.to != self.config.host {
            return Err(DropReason::Misdirected);
        }
        let from = self.view.peers.find(envelope.from);
        let from = from.ok_or(DropReason::Stranger)?;
        let peer = &mut self.view.peers[from];
        let keys = peer.keys.as_deref().ok_or(DropReason::NoKey)?;
        let key = keys.of(envelope.key).ok_or(DropReason::NoKey)?;
        let Message { header, entries } = Message::parse(envelope.open(key)?)?;
        let fresh = match peer.window.note(today, header.epoch, header.sequence) {
            Err(Stale::Duplicate) => return Err(DropReason::Duplicate),
            Err(stale @ (Stale::Old | Stale::Ahead)) => {
                peer.handle_refused();
                let is_old = stale == Stale::Old;
                return Err(if is_old {
                    DropReason::Old
                } else {
                    DropReason::Ahead
                });
            }
            Ok(fresh) => fresh,
        };
        // Whoever comes to have other classes starts the exchange again.
        peer.is_refused = !self.config.classes.agrees_with(header.classes);
        if peer.is_refused {
            let (host, classes) = (header.from, header.classes);
            return Err(DropReason::Classes { host, classes });
        }
        if fresh == Fresh::Restarted {
            self.handle_restart(now, from);
        }
        self.handle_header(now, from, &header);
        let about = if self.view.peers[from].is_about_us(now, &header) {
            About::ThisEpoch
        } else {
            About::Another
        };
        // The machines come before what is about their pairs.
        let Header {
            revision, machines, ..
        } = header;
        let mut list = self.view.peers[from].handle_machine(revision, machines, None);
        for entry in entries {
            if let Entry::Machine(machine) = entry {
                let peer = &mut self.view.peers[from];
                let whole = peer.handle_machine(revision, machines, Some(machine));
                list = list.or(whole);
                continue;
            }
            if let Some(list) = list.take() {
                self.begin_list(now, from, list);
            }
            if about == About::ThisEpoch {
                let lease = header.echo_time + self.config.times().usable_lease();
                let known = self.handle_pair_entry(now, from, header.sequence, lease, &entry);
                self.stats.unknown += u64::from(!known);
            }
        }
        if let Some(list) = list {
            self.begin_list(now, from, list);
        }
        Ok(())
    }

    /// Handles a request or a grant that came in message `sequence`; the lease of a grant is over
    /// at `lease`. Returns false if the pair is unknown.
    fn handle_pair_entry(
        &mut self,
        now: Nanos,
        from: PeerIndex,
        sequence: SequenceNumber,
        lease: Nanos,
        entry: &Entry,
    ) -> bool {
        let (mut cx, sending, receiving) = self.sides(now);
        let key = |pair| PairKey { peer: from, pair };
        match *entry {
            Entry::Request {
                pair,
                demand,
                confirms,
                wanted,
            } => {
                let request = IncomingRequest {
                    sequence,
                    demand,
                    confirms,
                    wanted,
                };
                receiving.handle_request(&mut cx, key(pair), request)
            }
            Entry::Grant { pair, rate, lent } => {
                let grant = IncomingGrant {
                    sequence,
                    rate,
                    lent,
                    lease,
                };
                sending.handle_grant(&mut cx, key(pair), grant)
            }
            Entry::Machine(_) => true,
        }
    }

    fn handle_header(&mut self, now: Nanos, from: PeerIndex, header: &Header) {
        let times = self.config.times();
        let (revision, _) = self.view.locals.list();
        let peer = &mut self.view.peers[from];
        let greeting = peer.handle_header(now, times, header, revision);
        // Whoever begins is answered at once.
        if greeting.was_silent || greeting.knows_later {
            self.schedule.expedite_datagram(now, from);
        }
        if greeting.pledged_again {
            let (mut cx, _, receiving) = self.sides(now);
            receiving.recompute_all_soon(&mut cx);
        }
    }

    /// A peer has started again: it holds nothing of what it was granted, and has
    /// granted nothing. Pledges stand, in both directions: others may have been
    /// granted what rests on them.
    fn handle_restart(&mut self, now: Nanos, index: PeerIndex) {
        let peer = &mut self.view.peers[index];
        if peer.heard.is_some() {
            self.stats.restarts += 1;
        }
        peer.handle_restart();
        self.incoming.handle_restart(index);
        let (mut cx, sending, receiving) = self.sides(now);
        receiving.handle_restart(&mut cx, index);
        sending.handle_restart(&mut cx, index);
        self.schedule.expedite_datagram(now, index);
    }

    /// Records a guest's usage of a destination since the last sample. Call it for each sample in
    /// which frames were sent or waited, or the bucket was not full at the end.
    pub fn handle_usage(&mut self, now: Nanos, flow: FlowKey, usage: Usage) {
        let (mut cx, sending, _) = self.sides(now);
        sending.handle_usage(&mut cx, flow, usage);
    }

    /// Handles a flow's first frame that waits for its limit since the last sample: its demand is
    /// requested immediately. `queued` bytes on the wire wait.
    pub fn handle_waiting(&mut self, now: Nanos, flow: FlowKey, queued: Bytes) {
        let (mut cx, sending, _) = self.sides(now);
        sending.handle_waiting(&mut cx, flow, queued);
    }

    /// Records, by `drained`, the data that each receiving guest took from its port since the last
    /// sample, and whether frames wait there. Grants to its senders are limited to that rate.
    pub fn sample_drained(
        &mut self,
        now: Nanos,
        mut drained: impl FnMut(GuestId) -> Option<(Bytes, bool)>,
    ) {
        let (mut cx, _, receiving) = self.sides(now);
        for local in cx.view.locals.indices() {
            let guest = cx.view.locals[local].machine.guest;
            if receiving.is_sent_to(local)
                && let Some((drained, waiting)) = drained(guest)
            {
                receiving.handle_drained(&mut cx, local, drained, waiting);
            }
        }
    }

    /// Ends a sample. Flows without recorded usage were not used.
    pub fn handle_sample_end(&mut self, now: Nanos) {
        let (mut cx, sending, _) = self.sides(now);
        sending.end_sample(&mut cx);
    }

    /// Passes each due datagram and its destination host to `send`. `today` is the time of day,
    /// used for epochs only.
    ///
    /// One call sends about 16 KB, and completes the last host. The rest is due immediately.
    pub fn poll_datagrams(
        &mut self,
        now: Nanos,
        today: TimeOfDay,
        mut send: impl FnMut(HostId, &[u8]),
    ) {
        self.go_on(now);
        self.recompute(now);
        let mut cost = 0;
        while cost < AT_ONCE
            && let Some(peer) = self.schedule.datagram_due(now)
        {
            self.settle_epoch(now, today, peer);
            cost += self.send(now, peer, &mut send);
            let next = now + self.until_next(now, peer);
            self.schedule.set_datagram(next, peer);
        }
    }

    /// Recomputes the allocations that are due.
    pub(crate) fn recompute(&mut self, now: Nanos) {
        if let Some(scope) = self.schedule.take_recomputation(now) {
            let (mut cx, sending, receiving) = self.sides(now);
            receiving.recompute(&mut cx, scope);
            sending.recompute(&mut cx, scope);
            self.exchange_here(now);
            debug_assert!(!cfg!(test) || self.sending.is_consistent());
        }
    }

    /// Exchanges requests and grants among the machines of this host directly, as other hosts do by
    /// datagrams. Another machine has a returned rate in the same moment.
    fn exchange_here(&mut self, now: Nanos) {
        let here = self.view.here();
        if !self.sending.has_requests(here) && !self.receiving.serves(here) {
            return;
        }
        let mut entries = mem::take(&mut self.entries);
        for _ in 0..ROUNDS_HERE {
            self.told_here = self.told_here.next();
            let sequence = self.told_here;
            entries.clear();
            let (cx, sending, _) = self.sides(now);
            sending.take_requests(&cx, here, &mut entries);
            self.take_here(now, sequence, &entries);
            let (mut cx, _, receiving) = self.sides(now);
            receiving.recompute(&mut cx, Scope::Changed);
            entries.clear();
            receiving.push_grants(here, &mut entries);
            let until = now + cx.times.lease_counted();
            for place in 0..entries.len() {
                receiving.grant_sent(here, place, sequence, until);
            }
            self.take_here(now, sequence, &entries);
            let (mut cx, sending, _) = self.sides(now);
            sending.recompute(&mut cx, Scope::Changed);
        }
        self.schedule.recomputed();
        self.entries = entries;
    }

    /// Handles requests and grants among machines of this host.
    fn take_here(&mut self, now: Nanos, sequence: SequenceNumber, entries: &[Entry]) {
        let here = self.view.here();
        for entry in entries {
            let lease = now + self.config.times().usable_lease();
            let known = self.handle_pair_entry(now, here, sequence, lease, entry);
            debug_assert!(known, "this host knows its own machines");
        }
    }

    /// Returns the time of the next [`Self::poll_datagrams`], unless an event comes before.
    pub fn poll_at(&self) -> Option<Nanos> {
        let active = self.has_open_pairs() || self.receiving.grants() > 0;
        let times = [
            self.schedule.poll_at(active),
            self.agenda.poll_at(),
            self.incoming.poll_at(),
        ];
        times.into_iter().flatten().min()
    }

    /// Returns the rates that changed since the last call, in order.
    pub fn poll_changes(&mut self) -> impl Iterator<Item = Change> + '_ {
        self.sending.poll_changes()
    }

    /// Returns the stations of VMs that were added or removed since the last call. A guest's
    /// traffic to each station is one flow, [`Destination::Station`](crate::Destination::Station);
    /// other traffic is distinguished by address.
    pub fn poll_stations(&mut self) -> impl Iterator<Item = StationChange> + '_ {
        self.stations.poll_changes()
    }

    /// Returns the stations of all VMs, local and remote, in no order.
    pub fn stations(&self) -> impl Iterator<Item = Station> + '_ {
        self.stations.announced()
    }

    /// Returns the changes of permitted traffic to local VMs since the last call, in order. Call
    /// [`Self::poll_datagrams`] at `now` before.
    pub fn poll_incoming(&mut self, now: Nanos) -> impl Iterator<Item = Incoming> + '_ {
        let times = self.config.times();
        self.incoming
            .update(now, times, &self.view, &mut self.receiving);
        self.incoming.poll_changes()
    }

    /// Returns whether a pair is active, so that usage must be recorded each interval.
    pub fn has_open_pairs(&self) -> bool {
        self.sending.open_pairs() > 0
    }

    /// Returns whether this host has grants, so that drained data must be recorded each interval.
    pub fn has_grants(&self) -> bool {
        self.receiving.grants() > 0
    }

    /// Returns the interval of the exchange.
    pub const fn interval(&self) -> Nanos {
        self.config.interval
    }

    /// Returns counters since the start, and current levels.
    pub fn stats(&self, now: Nanos) -> HoseStats {
        let silence = Nanos(4 * self.config.times().heartbeat().0);
        let heard = self.view.peers.iter().filter_map(|peer| peer.heard);
        let alive = heard.filter(|heard| now.since(*heard) <= silence);
        let count = |is: &dyn Fn(&Peer) -> bool| {
            let peers = self.view.peers.iter();
            peers.filter(|peer| is(peer)).count() as u64
        };
        HoseStats {
            no_room: self.stats.no_room + self.sending.no_room + self.receiving.no_room,
            fallbacks: self.sending.fallbacks,
            silences: self.sending.silences,
            alive: alive.count() as u64,
            peers: self.view.peers.len() as u64,
            keyed: count(&|peer| peer.keys.is_some()),
            other_classes: count(&|peer| peer.is_refused),
            pairs: self.sending.pairs() as u64,
            open: self.sending.open_pairs() as u64,
            granted: self.receiving.grants() as u64,
            ..self.stats
        }
    }

    /// Returns both sides, and their shared context.
    fn sides(&mut self, now: Nanos) -> (Context<'_>, &mut SendingSide, &mut ReceivingSide) {
        let times = self.config.times();
        let cx = Context {
            now,
            times,
            view: &self.view,
            schedule: &mut self.schedule,
        };
        (cx, &mut self.sending, &mut self.receiving)
    }
}
