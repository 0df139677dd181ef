//! Sending side: demand and permitted rates of local VMs, and the division of each VM's bandwidth
//! among its receivers.

mod confirmation;
mod flow;
mod loan;
mod pair;
mod pairs;

use crate::config::Times;
use crate::context::Context;
use crate::ids::{FlowKey, HostId, PairId, PairKey, PeerIndex, SequenceNumber};
use crate::machines::{LocalIndex, Locals};
use crate::schedule::{Scope, is_worth_a_datagram};
use crate::share::{Claim, Divider};
use crate::table::Beside;
use crate::view::{PairRequest, View};
use crate::wire::Entry;
use confirmation::Confirmation;
pub use flow::Usage;
use flow::{Flow, Sample};
use pair::{Pair, State};
use pairs::{PairIndex, Pairs, Regime};
use std::collections::HashMap;
use std::mem;
use tailbound_units::{Bytes, Nanos, Rate};

/// Change of the rate limit of a guest's traffic to a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The limited flow.
    pub flow: FlowKey,
    /// `B_i`; 0 without a grant, `None` to remove the limit.
    pub rate: Option<Rate>,
    /// Bytes of the receiver's inward burst that its host lends: the flow's bucket is deeper by that.
    pub lent: Bytes,
    /// The static share: the rate of all flows to the receiver without a grant and without a pledge, for an
    /// enforcement that outlives this host's exchange.
    pub share: Rate,
    /// The machine that receives it.
    pub receiver: Receiver,
}

/// A machine that receives, as a member of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receiver {
    /// The host that announces it.
    pub host: HostId,
    /// Its number on that host.
    pub machine: u32,
    /// Number of its destinations.
    pub destinations: usize,
}

/// A received grant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IncomingGrant {
    /// The datagram that it came in.
    pub(crate) sequence: SequenceNumber,
    pub(crate) rate: Rate,
    /// Bytes that are lent.
    pub(crate) lent: Bytes,
    /// End of the lease.
    pub(crate) lease: Nanos,
}

/// Reusable buffers of a division.
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
    /// Marks VMs whose bandwidth must be divided again.
    changed: Beside<LocalIndex, bool>,
    last_sample: Nanos,
    changes: Vec<Change>,
    /// Buffers for the pairs of a machine, and for the flows of a pair.
    pair_buffers: Buffers,
    flow_buffers: Buffers,
    /// Pairs for which there was no room.
    pub(crate) no_room: u64,
    /// Leases that ended in use.
    pub(crate) fallbacks: u64,
    /// Pledges that ended.
    pub(crate) silences: u64,
}

impl SendingSide {
    /// Makes a sending side without pairs, with pledges to all peers: this host may have made them
    /// before it restarted.
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

    /// Returns the number of pairs.
    pub(crate) fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Returns the number of active pairs.
    pub(crate) const fn open_pairs(&self) -> usize {
        self.pairs.open()
    }

    /// Returns whether a pair to a peer is active.
    pub(crate) fn uses(&self, peer: PeerIndex) -> bool {
        self.pairs.is_used(peer)
    }

    /// Returns the changed rates in order.
    pub(crate) fn poll_changes(&mut self) -> impl Iterator<Item = Change> + '_ {
        self.changes.drain(..)
    }

    /// Adds a VM of this host.
    pub(crate) fn add_local(&mut self, local: LocalIndex) {
        self.pairs.add_local(local);
        self.changed.reset(local);
    }

    /// Handles a changed guarantee of a VM.
    pub(crate) fn handle_guarantee(&mut self, local: LocalIndex) {
        self.changed[local] = true;
    }

    /// Removes a VM of this host and its pairs, and those of local VMs that send to it. Returns the
    /// number of the VM's pairs.
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

    /// Sets the pairs of a local VM to a peer's VMs to `wanted`, ordered by receiver. Existing
    /// pairs keep their rates. `latest` is the peer's latest datagram.
    pub(crate) fn set_pairs(
        &mut self,
        cx: &mut Context<'_>,
        local: LocalIndex,
        peer: PeerIndex,
        wanted: &[PairRequest],
        latest: SequenceNumber,
    ) {
        let most = cx.view.locals[local].most_lent().unwrap_or_default();
        let before: Vec<_> = self.pairs.of(local, peer).collect();
        for index in before {
            let pair = &mut self.pairs[index];
            let receiver = pair.key.pair.receiver;
            let place = wanted.binary_search_by_key(&receiver, |wanted| wanted.receiver);
            match place.map(|place| &wanted[place]) {
                Ok(same) if pair.is_to(&same.destinations) => {
                    pair.share = same.share;
                    pair.loan.set_most(most);
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
        wanted: &PairRequest,
        latest: SequenceNumber,
    ) {
        let mut pair = Pair::new(key, local, wanted.share, latest);
        let most = cx.view.locals[local].most_lent();
        pair.loan.set_most(most.unwrap_or_default());
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
        let receiver = receiver(cx.view, &self.pairs[index]);
        for flow in mem::take(&mut self.pairs[index].flows) {
            let flow = FlowKey {
                guest,
                destination: flow.destination,
            };
            self.flows.remove(&flow);
            self.changes.push(Change {
                flow,
                rate: None,
                lent: Bytes::ZERO,
                share: Rate::ZERO,
                receiver,
            });
        }
        self.pairs.remove(index);
    }

    fn set_state(&mut self, index: PairIndex, next: State) {
        let local = self.pairs[index].local;
        self.changed[local] |= self.pairs.set_state(index, next);
    }

    /// Returns an idle pair's grant with the next datagram.
    fn give_back(&mut self, cx: &mut Context<'_>, index: PairIndex) {
        self.pairs.give_back(index);
        let Pair {
            key, returns_at, ..
        } = self.pairs[index];
        cx.expedite_datagram_at(returns_at.max(cx.now), key.peer);
    }

    /// Records a flow's usage since the last sample.
    pub(crate) fn handle_usage(&mut self, cx: &mut Context<'_>, flow: FlowKey, usage: Usage) {
        let Some(index) = self.flows.get(&flow).copied() else {
            return;
        };
        let pair = &mut self.pairs[index];
        let mut flows = pair.flows.iter_mut();
        if let Some(flow) = flows.find(|known| known.destination == flow.destination) {
            flow.handle_usage(usage);
        }
        let peer = pair.key.peer;
        let is_new = !pair.state.is_open();
        if is_new {
            self.set_state(index, State::Requesting);
        }
        // Frames that wait are not left to the next sample.
        let loan = &mut self.pairs[index].loan;
        let before = loan.request();
        loan.handle_queued(usage.queued);
        if is_new || loan.request() > before {
            cx.expedite_datagram(peer);
        }
    }

    /// Handles a flow's first frame that waits for its limit: the demand is unlimited from now on,
    /// without waiting for the end of the sample. `queued` bytes wait.
    pub(crate) fn handle_waiting(&mut self, cx: &mut Context<'_>, flow: FlowKey, queued: Bytes) {
        let usage = Usage {
            waiting: true,
            queued,
            ..Usage::default()
        };
        self.handle_usage(cx, flow, usage);
        let Some(index) = self.flows.get(&flow).copied() else {
            return;
        };
        let pair = &mut self.pairs[index];
        for known in &mut pair.flows {
            if known.destination == flow.destination {
                known.demand = Rate::MAX;
            }
        }
        pair.demand = Rate::MAX;
        self.changed[pair.local] = true;
        cx.recompute_soon();
    }

    /// Ends a sample. Flows without recorded usage were not used.
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
        let (mut queued, mut deficit) = (Bytes::ZERO, Bytes::ZERO);
        for flow in &mut pair.flows {
            queued = queued.saturating_add(flow.queued);
            deficit = deficit.saturating_add(flow.deficit());
            flow.end_sample(sample);
            pair.demand = pair.demand.saturating_add(flow.demand);
        }
        let (local, demand) = (pair.local, pair.demand);
        let peer = pair.key.peer;
        let before = pair.loan.request();
        let is_used = deficit > cx.view.locals[local].part();
        pair.loan.end_sample(cx.now, cx.times, queued, is_used);
        let wants_more = pair.loan.request() > before;
        let is_kept = pair.loan.is_kept(cx.now, cx.times);
        self.changed[local] = true;
        if wants_more {
            cx.expedite_datagram(peer);
        }
        if demand == Rate::ZERO && !is_kept {
            self.set_state(index, State::Idle);
            self.refresh(cx, index);
            self.pairs[index].returns_at = cx.now + cx.times.commitment;
            self.give_back(cx, index);
        }
    }

    /// Returns the permitted rate of a pair.
    fn allowed(&self, now: Nanos, locals: &Locals, index: PairIndex) -> Rate {
        let pair = &self.pairs[index];
        match self.pairs.regime(pair.key.peer) {
            Regime::Grants { .. } => pair.state.allowed(now, pair.share),
            Regime::StaticShares => pair.share.min(locals[pair.local].share()),
        }
    }

    /// Lowers a pair's rate to the permitted one. The rate rises with the next division of its
    /// sender's bandwidth.
    fn refresh(&mut self, cx: &mut Context<'_>, index: PairIndex) {
        let allowed = self.allowed(cx.now, &cx.view.locals, index);
        let pair = &self.pairs[index];
        let (local, rate) = (pair.local, pair.rate.min(allowed));
        self.changed[local] = true;
        cx.recompute_soon();
        self.set_rate(cx.view, index, rate);
    }

    /// Sets the rate of a pair, divided among its active destinations.
    fn set_rate(&mut self, view: &View, index: PairIndex, rate: Rate) {
        let Buffers {
            divider,
            claims,
            shares,
            ..
        } = &mut self.flow_buffers;
        let pair = &mut self.pairs[index];
        pair.rate = rate;
        let lent = pair.loan.lent();
        let static_share = pair.share.min(view.locals[pair.local].share());
        let receiver = receiver(view, pair);
        let guest = view.locals[pair.local].machine.guest;
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
            if flow.rate != rate || flow.lent != lent {
                flow.rate = rate;
                flow.lent = lent;
                let flow = FlowKey {
                    guest,
                    destination: flow.destination,
                };
                self.changes.push(Change {
                    flow,
                    rate,
                    lent,
                    share: static_share,
                    receiver,
                });
            }
        }
    }

    /// Divides the bandwidth of local VMs among their receivers.
    pub(crate) fn recompute(&mut self, cx: &mut Context<'_>, scope: Scope) {
        for local in cx.view.locals.indices() {
            let is_active = !self.pairs.open_of(local).is_empty();
            if self.changed[local] || (scope == Scope::All && is_active) {
                self.allocate(cx, local);
            }
        }
    }

    /// Returns whether each pair is on the lists of its state.
    pub(crate) fn is_consistent(&self) -> bool {
        self.pairs.is_consistent()
    }

    /// Sender allocation: divides a VM's bandwidth among its receivers, and computes the requests.
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
            self.set_rate(cx.view, index, shares[place]);
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

    /// Records the end of a pair's lease if it lowers the pair's rate. A loan ends in any case.
    fn fall_back(&mut self, now: Nanos, index: PairIndex) {
        let pair = &mut self.pairs[index];
        if pair.state.is_over(now) {
            pair.loan.lapse();
        }
        if pair.state.falls_back(now, pair.share) {
            let granted = pair.state.granted();
            self.fallbacks += 1;
            self.set_state(index, State::FellBack { granted });
        }
    }

    /// Handles a grant. Returns false for an unknown pair.
    pub(crate) fn handle_grant(
        &mut self,
        cx: &mut Context<'_>,
        key: PairKey,
        grant: IncomingGrant,
    ) -> bool {
        let IncomingGrant {
            sequence,
            rate,
            lent,
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
        if sequence <= pair.confirmation.latest() || unpledged {
            return true;
        }
        pair.confirmation
            .handle_grant(cx.now, cx.times.commitment, sequence);
        if !pair.state.is_open() {
            // It has no use for it, and has said so; perhaps that was lost, or was
            // said of what came before.
            self.give_back(cx, index);
            return true;
        }
        let before = pair.state.granted();
        let (local, lowers) = (pair.local, rate < pair.rate);
        let had = pair.loan.lent();
        let is_lent_other = pair.loan.take(lent);
        let (present, is_lent_less) = (pair.rate, pair.loan.lent() < had);
        self.set_state(index, State::Granted { rate, lease });
        if lowers {
            self.refresh(cx, index);
        } else if is_lent_other {
            // Before it is confirmed.
            self.set_rate(cx.view, index, present);
        }
        if is_lent_less {
            cx.expedite_datagram(key.peer);
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

    /// Returns whether a peer must receive requests or returned grants.
    pub(crate) fn has_requests(&self, peer: PeerIndex) -> bool {
        self.pairs.has_requests(peer)
    }

    /// Adds requests and returned grants for a peer to the entries. Returned grants are sent once.
    pub(crate) fn take_requests(
        &mut self,
        cx: &Context<'_>,
        peer: PeerIndex,
        entries: &mut Vec<Entry>,
    ) {
        self.pairs
            .take_requests(cx.now, cx.times.commitment, peer, entries);
    }

    /// Returns the time until which this host is silent towards a peer: frames may leave by grants that
    /// the peer must count as long.
    pub(crate) fn quiet_until(&self, peer: PeerIndex) -> Nanos {
        self.pairs.quiet_until(peer)
    }

    /// Pledges to a peer up to `until`. With `None`, static shares apply after the last pledge.
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

    /// Handles a restart of a peer, whose grants are void.
    pub(crate) fn handle_restart(&mut self, cx: &mut Context<'_>, peer: PeerIndex) {
        for place in 0..self.pairs.to(peer).len() {
            let index = self.pairs.to(peer)[place];
            self.pairs[index].confirmation = Confirmation::new(SequenceNumber::default());
        }
        self.start_over(cx, peer);
    }

    /// Handles a new epoch of this host towards a peer: the peer's grants are void.
    pub(crate) fn handle_own_restart(&mut self, cx: &mut Context<'_>, peer: PeerIndex) {
        self.start_over(cx, peer);
    }

    /// Discards a peer's grants, and sets each pair's rate without them. This host is silent towards the peer
    /// until frames leave by none of them.
    fn start_over(&mut self, cx: &mut Context<'_>, peer: PeerIndex) {
        self.pairs.quieten(peer, cx.now + cx.times.commitment);
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

/// Returns the machine that receives the traffic of a pair.
fn receiver(view: &View, pair: &Pair) -> Receiver {
    let PairKey { peer, pair: id } = pair.key;
    Receiver {
        host: view.host(peer),
        machine: id.receiver.0,
        destinations: pair.flows.len(),
    }
}
