//! The sending side: what machines here have to send to those elsewhere, what they
//! may, and how each one's bandwidth is divided among its receivers.

mod flow;
mod pair;
mod pairs;

use crate::config::Times;
use crate::context::Context;
use crate::ids::{FlowKey, PairId, PairKey, PeerIndex, SequenceNumber};
use crate::machines::{LocalIndex, Locals};
use crate::schedule::{Scope, is_worth_a_datagram};
use crate::share::{Claim, Divider};
use crate::table::Beside;
use crate::view::Wanted;
use crate::wire::Entry;
pub use flow::Usage;
use flow::{Flow, Sample};
use pair::{Pair, State};
use pairs::{PairIndex, Pairs, Regime};
use std::collections::HashMap;
use std::mem;
use tailbound_units::{Nanos, Rate};

/// A rate that is to be set, or taken away, for what a guest sends to a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// What it is for.
    pub flow: FlowKey,
    /// `B_i`; 0 where nothing was granted, `None` where there is no limit any more.
    pub rate: Option<Rate>,
}

/// A grant that came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IncomingGrant {
    /// The datagram that it came in.
    pub(crate) sequence: SequenceNumber,
    pub(crate) rate: Rate,
    /// When the lease is over.
    pub(crate) lease: Nanos,
}

/// What one division works with; kept, so that none allocates.
#[derive(Debug, Default)]
struct Buffers {
    divider: Divider,
    members: Vec<PairIndex>,
    claims: Vec<Claim>,
    shares: Vec<Rate>,
    offers: Vec<Rate>,
}

/// The sending side of a host.
#[derive(Debug)]
pub(crate) struct SendingSide {
    pairs: Pairs,
    /// The pair of each flow that has a limit.
    flows: HashMap<FlowKey, PairIndex>,
    /// Whether the bandwidth of a machine is to be divided again.
    changed: Beside<LocalIndex, bool>,
    last_sample: Nanos,
    changes: Vec<Change>,
    /// For the pairs of a machine, and for the flows of a pair.
    pair_buffers: Buffers,
    flow_buffers: Buffers,
    /// Pairs for which there was no room.
    pub(crate) no_room: u64,
    /// Leases that ran out in use.
    pub(crate) fallbacks: u64,
    /// Pledges that ran out.
    pub(crate) silences: u64,
}

impl SendingSide {
    /// No pair, and pledges to all peers: what this host may have pledged before
    /// it started again stands.
    pub(crate) fn new(now: Nanos, times: Times, peers: usize) -> Self {
        Self {
            pairs: Pairs::new(peers, now + times.pledge()),
            flows: HashMap::new(),
            changed: Beside::default(),
            last_sample: now,
            changes: Vec::new(),
            pair_buffers: Buffers::default(),
            flow_buffers: Buffers::default(),
            no_room: 0,
            fallbacks: 0,
            silences: 0,
        }
    }

    /// How many pairs there are, in use or not.
    pub(crate) fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// How many pairs are in use.
    pub(crate) const fn open_pairs(&self) -> usize {
        self.pairs.open()
    }

    /// Whether any pair to a peer is in use.
    pub(crate) fn uses(&self, peer: PeerIndex) -> bool {
        self.pairs.is_used(peer)
    }

    /// Hands over the rates that changed, in the order of their changes.
    pub(crate) fn poll_changes(&mut self) -> impl Iterator<Item = Change> + '_ {
        self.changes.drain(..)
    }

    /// Takes a machine of this host up.
    pub(crate) fn add_local(&mut self, local: LocalIndex) {
        self.pairs.add_local(local);
        self.changed.reset(local);
    }

    /// A machine's guarantee is another.
    pub(crate) fn handle_guarantee(&mut self, local: LocalIndex) {
        self.changed[local] = true;
    }

    /// Forgets a machine of this host and its pairs, and returns how many these were. Those
    /// of others here that send to it are looked for as well.
    pub(crate) fn remove_local(&mut self, cx: &Context<'_>, local: LocalIndex) -> usize {
        let pairs = self.pairs.all_of(local);
        for pair in &pairs {
            self.remove_pair(cx, *pair);
        }
        let (view, peer) = (cx.view, cx.view.here());
        let receiver = view.locals[local].id;
        for other in view.locals.of(view.locals[local].tenant()) {
            let sender = view.locals[other].id;
            let pair = PairId { sender, receiver };
            if let Some(pair) = self.pairs.find(&PairKey { peer, pair }) {
                self.remove_pair(cx, pair);
            }
        }
        pairs.len()
    }

    /// Makes the pairs of a machine here to those on a peer be `wanted`, which are in the
    /// order of their receivers. Those that are there already keep their rates. `latest` is
    /// the peer's latest datagram.
    pub(crate) fn set_pairs(
        &mut self,
        cx: &mut Context<'_>,
        local: LocalIndex,
        peer: PeerIndex,
        wanted: &[Wanted],
        latest: SequenceNumber,
    ) {
        let before: Vec<_> = self.pairs.of(local, peer).collect();
        for index in before {
            let pair = &mut self.pairs[index];
            let receiver = pair.key.pair.receiver;
            let place = wanted.binary_search_by_key(&receiver, |wanted| wanted.receiver);
            match place.map(|place| &wanted[place]) {
                Ok(same) if pair.is_to(&same.destinations) => {
                    pair.share = same.share;
                    self.refresh(cx, index);
                }
                _ => self.remove_pair(cx, index),
            }
        }
        let sender = cx.view.locals[local].id;
        for wanted in wanted {
            let receiver = wanted.receiver;
            let pair = PairId { sender, receiver };
            let key = PairKey { peer, pair };
            if self.pairs.find(&key).is_none() {
                self.add_pair(cx, local, key, wanted, latest);
            }
        }
    }

    fn add_pair(
        &mut self,
        cx: &mut Context<'_>,
        local: LocalIndex,
        key: PairKey,
        wanted: &Wanted,
        latest: SequenceNumber,
    ) {
        let pair = Pair::new(key, local, wanted.share, latest);
        let Some(index) = self.pairs.insert(pair) else {
            self.no_room += 1;
            return;
        };
        let guest = cx.view.locals[local].machine.guest;
        for destination in wanted.destinations.iter().copied() {
            let flow = FlowKey { guest, destination };
            // What two machines claim is the first one's.
            self.flows.entry(flow).or_insert_with(|| {
                self.pairs[index].flows.push(Flow::new(destination));
                index
            });
        }
        self.refresh(cx, index);
    }

    fn remove_pair(&mut self, cx: &Context<'_>, index: PairIndex) {
        self.set_state(index, State::Idle);
        let local = self.pairs[index].local;
        let guest = cx.view.locals[local].machine.guest;
        for flow in mem::take(&mut self.pairs[index].flows) {
            let flow = FlowKey {
                guest,
                destination: flow.destination,
            };
            self.flows.remove(&flow);
            self.changes.push(Change { flow, rate: None });
        }
        self.pairs.remove(index);
    }

    fn set_state(&mut self, index: PairIndex, next: State) {
        let local = self.pairs[index].local;
        self.changed[local] |= self.pairs.set_state(index, next);
    }

    /// Tells the receiver's host, by the next datagram, that an idle pair holds
    /// nothing.
    fn give_back(&mut self, cx: &mut Context<'_>, index: PairIndex) {
        self.pairs.give_back(index);
        cx.expedite_datagram(self.pairs[index].key.peer);
    }

    /// Notes what a flow has sent since the last sample.
    pub(crate) fn handle_usage(&mut self, cx: &mut Context<'_>, flow: FlowKey, usage: Usage) {
        let Some(index) = self.flows.get(&flow).copied() else {
            return;
        };
        let pair = &mut self.pairs[index];
        let mut flows = pair.flows.iter_mut();
        if let Some(flow) = flows.find(|known| known.destination == flow.destination) {
            flow.handle_usage(usage);
        }
        if !pair.state.is_open() {
            let peer = pair.key.peer;
            self.set_state(index, State::Requesting);
            cx.expedite_datagram(peer);
        }
    }

    /// Ends a sample: what was not noted to be used since the last one was not.
    pub(crate) fn end_sample(&mut self, cx: &mut Context<'_>) {
        let elapsed = cx.now.since(self.last_sample);
        if elapsed == Nanos::ZERO {
            return;
        }
        self.last_sample = cx.now;
        if self.pairs.open() > 0 {
            cx.recompute_soon();
        }
        let mut open = mem::take(&mut self.pair_buffers.members);
        for local in cx.view.locals.indices() {
            open.clear();
            open.extend(self.pairs.open_of(local));
            for pair in &open {
                self.sample(cx, elapsed, *pair);
            }
        }
        self.pair_buffers.members = open;
    }

    fn sample(&mut self, cx: &mut Context<'_>, elapsed: Nanos, index: PairIndex) {
        let pair = &mut self.pairs[index];
        let sample = Sample {
            elapsed,
            interval: cx.times.interval,
            share: pair.share,
        };
        pair.demand = Rate::ZERO;
        for flow in &mut pair.flows {
            flow.end_sample(sample);
            pair.demand = pair.demand.saturating_add(flow.demand);
        }
        let (local, demand) = (pair.local, pair.demand);
        self.changed[local] = true;
        if demand == Rate::ZERO {
            self.set_state(index, State::Idle);
            self.refresh(cx, index);
            self.give_back(cx, index);
        }
    }

    /// What a pair may use now.
    fn allowed(&self, now: Nanos, locals: &Locals, index: PairIndex) -> Rate {
        let pair = &self.pairs[index];
        match self.pairs.regime(pair.key.peer) {
            Regime::Grants { .. } => pair.state.allowed(now, pair.share),
            Regime::StaticShares => pair.share.min(locals[pair.local].share()),
        }
    }

    /// Brings a pair's rate down to what it may use. It goes up when its sender's
    /// bandwidth is divided again.
    fn refresh(&mut self, cx: &mut Context<'_>, index: PairIndex) {
        let allowed = self.allowed(cx.now, &cx.view.locals, index);
        let pair = &self.pairs[index];
        let (local, rate) = (pair.local, pair.rate.min(allowed));
        self.changed[local] = true;
        cx.recompute_soon();
        self.set_rate(&cx.view.locals, index, rate);
    }

    /// Sets what a pair may send, divided among its destinations in use.
    fn set_rate(&mut self, locals: &Locals, index: PairIndex, rate: Rate) {
        let Buffers {
            divider,
            claims,
            shares,
            ..
        } = &mut self.flow_buffers;
        let pair = &mut self.pairs[index];
        pair.rate = rate;
        let guest = locals[pair.local].machine.guest;
        // Where none is in use, each may be the next one.
        let idle = pair.flows.iter().all(|flow| flow.demand == Rate::ZERO);
        let takes_part = |flow: &Flow| idle || flow.demand > Rate::ZERO;
        claims.clear();
        for flow in pair.flows.iter().filter(|flow| takes_part(flow)) {
            claims.push(Claim {
                demand: flow.demand,
                limit: rate,
            });
        }
        divider.divide(rate, claims, shares);
        let mut shares = shares.iter().copied();
        for flow in &mut pair.flows {
            let share = if takes_part(flow) {
                shares.next()
            } else {
                None
            };
            let rate = Some(share.unwrap_or(Rate::ZERO));
            if flow.rate != rate {
                flow.rate = rate;
                let flow = FlowKey {
                    guest,
                    destination: flow.destination,
                };
                self.changes.push(Change { flow, rate });
            }
        }
    }

    /// Divides the bandwidth of machines here among those they send to.
    pub(crate) fn recompute(&mut self, cx: &mut Context<'_>, scope: Scope) {
        for local in cx.view.locals.indices() {
            let is_active = !self.pairs.open_of(local).is_empty();
            if self.changed[local] || (scope == Scope::All && is_active) {
                self.allocate(cx, local);
            }
        }
    }

    /// Whether each pair is where its state puts it.
    pub(crate) fn is_consistent(&self) -> bool {
        self.pairs.is_consistent()
    }

    /// The sender allocation: divides a machine's bandwidth among those it sends to,
    /// and computes what it asks each for.
    fn allocate(&mut self, cx: &mut Context<'_>, local: LocalIndex) {
        let Buffers {
            mut divider,
            mut members,
            mut claims,
            mut shares,
            mut offers,
        } = mem::take(&mut self.pair_buffers);
        self.changed[local] = false;
        members.clear();
        members.extend(self.pairs.open_of(local));
        // Idle ones too that need not ask: what is left may be theirs.
        members.extend(self.pairs.idle_unpledged_of(local));
        let locals = &cx.view.locals;
        claims.clear();
        claims.extend(members.iter().map(|pair| Claim {
            demand: self.pairs[*pair].demand,
            limit: self.allowed(cx.now, locals, *pair),
        }));
        let bandwidth = locals[local].machine.bandwidth;
        divider.offer(bandwidth, &claims, &mut offers);
        divider.divide(bandwidth, &claims, &mut shares);
        for (place, index) in members.iter().copied().enumerate() {
            self.fall_back(cx.now, index);
            let pair = &mut self.pairs[index];
            let peer = pair.key.peer;
            let request = pair.demand.min(offers[place]);
            let before = mem::replace(&mut pair.request, request);
            self.set_rate(locals, index, shares[place]);
            if is_worth_a_datagram(request, before) {
                cx.expedite_datagram(peer);
            }
        }
        self.pair_buffers = Buffers {
            divider,
            members,
            claims,
            shares,
            offers,
        };
    }

    /// Notes that a pair's lease has run out, if it has and leaves the pair less.
    fn fall_back(&mut self, now: Nanos, index: PairIndex) {
        let pair = &self.pairs[index];
        if pair.state.falls_back(now, pair.share) {
            let granted = pair.state.granted();
            self.fallbacks += 1;
            self.set_state(index, State::FellBack { granted });
        }
    }

    /// Takes a grant. Returns false where there is no such pair.
    pub(crate) fn handle_grant(
        &mut self,
        cx: &mut Context<'_>,
        key: PairKey,
        grant: IncomingGrant,
    ) -> bool {
        let IncomingGrant {
            sequence,
            rate,
            lease,
        } = grant;
        let Some(index) = self.pairs.find(&key) else {
            // Of a machine that is gone: it uses nothing. What it was granted is kept for it
            // until this is heard.
            self.pairs.give_back_stray(key, sequence);
            cx.expedite_datagram(key.peer);
            return false;
        };
        let unpledged = self.pairs.regime(key.peer) == Regime::StaticShares;
        let pair = &mut self.pairs[index];
        if sequence <= pair.latest_grant || unpledged {
            return true;
        }
        pair.latest_grant = sequence;
        if !pair.state.is_open() {
            // It has no use for it, and has said so; perhaps that was lost, or was
            // said of what came before.
            self.give_back(cx, index);
            return true;
        }
        let before = pair.state.granted();
        let (local, lowers) = (pair.local, rate < pair.rate);
        self.set_state(index, State::Granted { rate, lease });
        if lowers {
            self.refresh(cx, index);
        }
        if rate < before && is_worth_a_datagram(rate, before) {
            cx.expedite_datagram(key.peer);
        }
        if rate != before {
            self.changed[local] = true;
            cx.recompute_soon();
        }
        true
    }

    /// Whether there is anything to ask of a peer, or to give back to it.
    pub(crate) fn has_requests(&self, peer: PeerIndex) -> bool {
        self.pairs.has_requests(peer)
    }

    /// Adds what is asked of a peer, and given back to it, to what is sent. What is
    /// given back is told once.
    pub(crate) fn take_requests(&mut self, peer: PeerIndex, entries: &mut Vec<Entry>) {
        self.pairs.take_requests(peer, entries);
    }

    /// Pledges to a peer up to `until`, or does not where that is `None`: then its
    /// machines are sent their static shares from when the last pledge has run out.
    pub(crate) fn set_pledge(
        &mut self,
        cx: &mut Context<'_>,
        peer: PeerIndex,
        until: Option<Nanos>,
    ) {
        match (self.pairs.regime(peer), until) {
            (Regime::Grants { pledged }, Some(until)) => {
                let pledged = pledged.max(until);
                self.pairs.set_regime(peer, Regime::Grants { pledged });
            }
            (Regime::Grants { pledged }, None) if pledged <= cx.now => {
                self.silences += 1;
                self.pairs.set_regime(peer, Regime::StaticShares);
                self.start_over(cx, peer);
            }
            (Regime::StaticShares, Some(pledged)) => {
                self.pairs.set_regime(peer, Regime::Grants { pledged });
                self.start_over(cx, peer);
            }
            (Regime::Grants { .. } | Regime::StaticShares, None) => {}
        }
    }

    /// A peer has started again: it has granted nothing.
    pub(crate) fn handle_restart(&mut self, cx: &mut Context<'_>, peer: PeerIndex) {
        for place in 0..self.pairs.to(peer).len() {
            let index = self.pairs.to(peer)[place];
            self.pairs[index].latest_grant = SequenceNumber::default();
        }
        self.start_over(cx, peer);
    }

    /// To a peer, this host has started again: what the peer granted is void.
    pub(crate) fn handle_own_restart(&mut self, cx: &mut Context<'_>, peer: PeerIndex) {
        self.start_over(cx, peer);
    }

    /// Forgets what a peer granted, and sets what each pair may use without.
    fn start_over(&mut self, cx: &mut Context<'_>, peer: PeerIndex) {
        for place in 0..self.pairs.to(peer).len() {
            let index = self.pairs.to(peer)[place];
            if self.pairs[index].state.is_open() {
                self.set_state(index, State::Requesting);
            }
            self.refresh(cx, index);
        }
        cx.recompute_soon();
    }
}
