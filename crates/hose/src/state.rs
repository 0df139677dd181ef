//! One host: what comes in goes to the side it is for, and what both sides have to
//! say goes out in one datagram.

mod agenda;
mod send;

use self::agenda::{Agenda, PIECE};
use crate::config::{HoseConfig, Times};
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
use crate::stats::{Dropped, HoseStats};
use crate::view::View;
use crate::wire::{Entry, Envelope, Header, Message, Writer};
use std::mem;
use std::sync::Arc;
use tailbound_units::{Bytes, Nanos};

/// How often machines of this host request and grant in one moment: what one keeps to
/// less of is granted to another in the second round, and confirmed in the third.
const ROUNDS_HERE: usize = 3;

/// What is sent at once, in bytes, where a datagram counts as [`DATAGRAM`] more: some eight
/// full ones, or twenty short ones.
const AT_ONCE: usize = 16 * 1024;

/// What a datagram costs beside what each of its bytes does, which are hashed, in bytes.
const DATAGRAM: usize = 512;

/// One host's part in the exchange of rates. The crate's documentation says how to
/// drive it.
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
    /// How much of that is done at once.
    pub(crate) piece: usize,
    pub(crate) schedule: Schedule,
    writer: Writer,
    /// What the next datagram says; kept, so that none allocates.
    entries: Vec<Entry>,
    /// What neither side counts.
    stats: HoseStats,
}

/// Whether what a datagram says of grants and pledges is about our epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    /// It is.
    ThisEpoch,
    /// It is about another one, and void.
    Another,
}

impl HoseState {
    /// A host without machines and keys, that has heard of nobody.
    pub fn new(now: Nanos, config: HoseConfig) -> Self {
        let times = Times {
            interval: config.interval,
        };
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

    /// Sets the keys of this host and each peer. There are no datagrams to and from one
    /// without; what was granted and pledged before runs out. What is signed with one that
    /// both had, and have, is taken before and after.
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

    /// Sets which machines with a guarantee are on this host: these and no others, whatever
    /// was set before. One that is the same as before keeps its rates.
    ///
    /// That comes into force in pieces, each of which takes a bounded time: one at once, and
    /// one with each [`Self::poll_datagrams`], which [`Self::poll_at`] asks for at once
    /// while there are more.
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

    /// Forgets a machine of this host; returns how many pairs and grants it had.
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

    /// Takes a datagram, whoever sent it. `today` is the time of day, which decides
    /// about epochs alone.
    ///
    /// # Errors
    /// Why it changed nothing; it is counted.
    pub fn handle_datagram(
        &mut self,
        now: Nanos,
        today: TimeOfDay,
        datagram: &[u8],
    ) -> Result<(), Dropped> {
        let accepted = self.accept(now, today, datagram);
        match accepted {
            Ok(()) => self.stats.received += 1,
            Err(dropped) => self.stats.dropped.count(dropped),
        }
        accepted
    }

    /// Counts a datagram that is not worth being handled.
    pub fn handle_dropped(&mut self, dropped: Dropped) {
        self.stats.dropped.count(dropped);
    }

    fn accept(&mut self, now: Nanos, today: TimeOfDay, datagram: &[u8]) -> Result<(), Dropped> {
        let envelope = Envelope::read(datagram)?;
        if envelope.to != self.config.host {
            return Err(Dropped::Misdirected);
        }
        let from = self.view.peers.find(envelope.from);
        let from = from.ok_or(Dropped::Stranger)?;
        let peer = &mut self.view.peers[from];
        let keys = peer.keys.as_deref().ok_or(Dropped::NoKey)?;
        let key = keys.of(envelope.key).ok_or(Dropped::NoKey)?;
        let Message { header, entries } = Message::parse(envelope.open(key)?)?;
        let fresh = match peer.window.note(today, header.epoch, header.sequence) {
            Err(Stale::Duplicate) => return Err(Dropped::Duplicate),
            Err(stale @ (Stale::Old | Stale::Ahead)) => {
                peer.handle_refused();
                let is_old = stale == Stale::Old;
                return Err(if is_old { Dropped::Old } else { Dropped::Ahead });
            }
            Ok(fresh) => fresh,
        };
        // Whoever comes to have other classes starts the exchange again.
        peer.is_refused = !self.config.classes.agrees_with(header.classes);
        if peer.is_refused {
            let (host, classes) = (header.from, header.classes);
            return Err(Dropped::Classes { host, classes });
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
                let lease = header.echo_time + self.times().lease();
                let known = self.handle_pair_entry(now, from, header.sequence, lease, &entry);
                self.stats.unknown += u64::from(!known);
            }
        }
        if let Some(list) = list {
            self.begin_list(now, from, list);
        }
        Ok(())
    }

    /// Takes a request or a grant that came in message `sequence`; the lease of a grant is
    /// over at `lease`. Returns false where it is about a pair that is not known.
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
            } => {
                let request = IncomingRequest {
                    sequence,
                    demand,
                    confirms,
                };
                receiving.handle_request(&mut cx, key(pair), request)
            }
            Entry::Grant { pair, rate } => {
                let grant = IncomingGrant {
                    sequence,
                    rate,
                    lease,
                };
                sending.handle_grant(&mut cx, key(pair), grant)
            }
            Entry::Machine(_) => true,
        }
    }

    fn handle_header(&mut self, now: Nanos, from: PeerIndex, header: &Header) {
        let times = self.times();
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

    /// Notes what a guest sent to a destination since the last sample. It is to be noted in
    /// each sample in which frames were sent or waited, or the bucket was not full at the end.
    pub fn handle_usage(&mut self, now: Nanos, flow: FlowKey, usage: Usage) {
        let (mut cx, sending, _) = self.sides(now);
        sending.handle_usage(&mut cx, flow, usage);
    }

    /// Notes what each guest that is sent to has taken from its port since the last
    /// sample, and whether frames wait for it there, as `drained` says: no more is granted
    /// to those that send to it than it can take.
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

    /// Ends a sample: what was not noted to be used since the last one was not.
    pub fn handle_sample_end(&mut self, now: Nanos) {
        let (mut cx, sending, _) = self.sides(now);
        sending.end_sample(&mut cx);
    }

    /// Hands over what is to be sent now: `send` gets each datagram and the host it
    /// is for. `today` is the time of day, which decides about epochs alone.
    ///
    /// It is some 16 KB at once, but for what the last of these hosts gets: what is left is
    /// due at once.
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

    /// Has the machines of this host request and grant among themselves what others do by
    /// datagrams: at once, so that what one gives back another has in the same moment.
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
            self.sending.take_requests(here, &mut entries);
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

    /// Takes what machines of this host request of and grant to each other.
    fn take_here(&mut self, now: Nanos, sequence: SequenceNumber, entries: &[Entry]) {
        let here = self.view.here();
        for entry in entries {
            let lease = now + self.times().lease();
            let known = self.handle_pair_entry(now, here, sequence, lease, entry);
            debug_assert!(known, "this host knows its own machines");
        }
    }

    /// When [`Self::poll_datagrams`] is to be called next, unless something comes
    /// before.
    pub fn poll_at(&self) -> Option<Nanos> {
        let active = self.has_open_pairs() || self.receiving.grants() > 0;
        let times = [
            self.schedule.poll_at(active),
            self.agenda.poll_at(),
            self.incoming.poll_at(),
        ];
        times.into_iter().flatten().min()
    }

    /// Hands over the rates that changed since the last call, in the order of their
    /// changes.
    pub fn poll_changes(&mut self) -> impl Iterator<Item = Change> + '_ {
        self.sending.poll_changes()
    }

    /// Hands over the stations that machines are reached by, and are no longer, since
    /// the last call: what guests send to these is one flow each, by
    /// [`Destination::Station`](crate::Destination::Station), and all else goes by
    /// address.
    pub fn poll_stations(&mut self) -> impl Iterator<Item = StationChange> + '_ {
        self.stations.poll_changes()
    }

    /// The stations that machines are reached by, here and elsewhere, in no order.
    pub fn stations(&self) -> impl Iterator<Item = Station> + '_ {
        self.stations.announced()
    }

    /// Hands over what changed of what may come for machines here since the last call, in
    /// the order of the changes. What is to be sent must have been polled at `now`.
    pub fn poll_incoming(&mut self, now: Nanos) -> impl Iterator<Item = Incoming> + '_ {
        let times = self.times();
        self.incoming
            .update(now, times, &self.view, &mut self.receiving);
        self.incoming.poll_changes()
    }

    /// Whether any pair is in use here, so that usage is to be noted each interval.
    pub fn has_open_pairs(&self) -> bool {
        self.sending.open_pairs() > 0
    }

    /// Whether anything is granted here, so that what guests take is to be noted each
    /// interval.
    pub fn has_grants(&self) -> bool {
        self.receiving.grants() > 0
    }

    /// How often rates are exchanged.
    pub const fn interval(&self) -> Nanos {
        self.config.interval
    }

    /// What has happened since the start, and what there is now.
    pub fn stats(&self, now: Nanos) -> HoseStats {
        let silence = Nanos(4 * self.times().heartbeat().0);
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

    const fn times(&self) -> Times {
        Times {
            interval: self.config.interval,
        }
    }

    /// Both sides, and what they work with.
    fn sides(&mut self, now: Nanos) -> (Context<'_>, &mut SendingSide, &mut ReceivingSide) {
        let times = self.times();
        let cx = Context {
            now,
            times,
            view: &self.view,
            schedule: &mut self.schedule,
        };
        (cx, &mut self.sending, &mut self.receiving)
    }
}
