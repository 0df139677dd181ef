//! Receiving side: divides the bandwidth of each local VM among its senders, and never grants a
//! rate that another sender may still use.

mod drain;
mod grant;
mod pool;

use crate::config::{MAX_PAIRS, Times};
use crate::context::Context;
use crate::ids::{PairId, PairKey, PeerIndex, SequenceNumber};
use crate::machines::{LocalIndex, tenant};
use crate::schedule::{Scope, is_worth_a_datagram};
use crate::share::{Claim, Divider};
use crate::table::{Beside, Table, place};
use crate::view::View;
use crate::wire::Entry;
use drain::Drain;
use grant::Grant;
use pool::{Lending, Pool};
use std::mem;
use tailbound_units::{Bytes, Nanos, Rate};

place! {
    /// A pair that receives here, as a place in the table of them.
    GrantIndex
}

/// A machine here, as what it receives.
#[derive(Debug, Default)]
struct Sink {
    /// Demands and grants of its senders.
    grants: Vec<GrantIndex>,
    /// True if its bandwidth must be divided again.
    changed: bool,
    /// True if it is in `divided` of the receiving side.
    divided: bool,
    /// Rate at which it takes data from its queue.
    drain: Drain,
    /// The part of its inward burst that is lent.
    pool: Pool,
}

/// A request that came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IncomingRequest {
    /// The datagram that it came in.
    pub(crate) sequence: SequenceNumber,
    pub(crate) demand: Rate,
    /// The datagram with the latest grant that the sender keeps to.
    pub(crate) confirms: SequenceNumber,
    /// Wanted bytes of the inward burst. In a returned grant, not zero if the sender's bucket was
    /// full.
    pub(crate) wanted: Bytes,
}

/// A sender with a demand whose grant can be raised.
#[derive(Debug, Clone, Copy)]
struct Requester {
    grant: GrantIndex,
    /// Largest rate that it may be using already.
    in_force: Rate,
}

/// Grantable rates of a machine.
#[derive(Debug, Clone, Copy)]
struct Budget {
    /// B without the static shares that may be used unasked.
    free: Rate,
    /// Sum of the rates that may be in force by its grants.
    held: Rate,
    /// Sum of the rates that the requesting senders may have in the end.
    total: Rate,
    /// False while leases of the host's former life may be in force.
    is_settled: bool,
}

/// Reusable buffers of a division.
#[derive(Debug, Default)]
struct Buffers {
    divider: Divider,
    requesters: Vec<Requester>,
    claims: Vec<Claim>,
    targets: Vec<Rate>,
    raises: Vec<Rate>,
}

/// The receiving side of a host.
#[derive(Debug)]
pub(crate) struct ReceivingSide {
    grants: Table<GrantIndex, PairKey, Grant>,
    sinks: Beside<LocalIndex, Sink>,
    /// Machines whose bandwidth was divided since the last call of [`Self::take_divided`].
    divided: Vec<LocalIndex>,
    /// Grants to the machines of each peer, by [`PeerIndex`].
    peers: Vec<Vec<GrantIndex>>,
    /// End of the leases from the host's former life.
    settled: Nanos,
    buffers: Buffers,
    lending: Lending,
    /// Pairs for which there was no room.
    pub(crate) no_room: u64,
}

impl ReceivingSide {
    /// Makes a receiving side without grants.
    pub(crate) fn new(now: Nanos, times: Times, peers: usize) -> Self {
        Self {
            grants: Table::new(2 * MAX_PAIRS),
            sinks: Beside::default(),
            divided: Vec::new(),
            // This host is the last.
            peers: vec![Vec::new(); peers + 1],
            settled: now + times.lease_counted(),
            buffers: Buffers::default(),
            lending: Lending::default(),
            no_room: 0,
        }
    }

    /// Returns the number of pairs that have a grant, or may have one.
    pub(crate) fn grants(&self) -> usize {
        self.grants.len()
    }

    /// Returns whether any machine of a peer has a grant, or may have one.
    pub(crate) fn serves(&self, peer: PeerIndex) -> bool {
        !self.peers[peer.0].is_empty()
    }

    /// Adds a machine of this host.
    pub(crate) fn add_local(&mut self, local: LocalIndex) {
        self.sinks.reset(local);
    }

    /// Returns whether any sender has a grant of a machine of this host, or may have one.
    pub(crate) fn is_sent_to(&self, local: LocalIndex) -> bool {
        !self.sinks[local].grants.is_empty()
    }

    /// Records the data that a machine of this host has taken from its port, and whether frames are
    /// waiting there.
    pub(crate) fn handle_drained(
        &mut self,
        cx: &mut Context<'_>,
        local: LocalIndex,
        drained: Bytes,
        waiting: bool,
    ) {
        let sink = &mut self.sinks[local];
        let bandwidth = cx.view.locals[local].machine.bandwidth;
        let (now, interval) = (cx.now, cx.times.interval);
        if sink
            .drain
            .handle(now, interval, bandwidth, drained, waiting)
        {
            sink.changed = true;
            cx.recompute_soon();
        }
    }

    /// Forgets a machine of this host, what it granted and what others here granted it.
    /// Returns how many grants were looked for.
    pub(crate) fn remove_local(&mut self, cx: &mut Context<'_>, local: LocalIndex) -> usize {
        let mut looked_for = self.sinks[local].grants.len();
        while let Some(grant) = self.sinks[local].grants.last().copied() {
            self.remove_grant(cx, grant);
        }
        let (view, peer) = (cx.view, cx.view.here());
        let sender = view.locals[local].id;
        for other in view.locals.of(view.locals[local].tenant()) {
            let receiver = view.locals[other].id;
            let pair = PairId { sender, receiver };
            if let Some(grant) = self.grants.find(&PairKey { peer, pair }) {
                self.remove_grant(cx, grant);
            }
            looked_for += 1;
        }
        looked_for
    }

    /// A peer has started again: it holds nothing of what it was granted.
    pub(crate) fn handle_restart(&mut self, cx: &mut Context<'_>, peer: PeerIndex) {
        while let Some(grant) = self.peers[peer.0].last().copied() {
            self.remove_grant(cx, grant);
        }
    }

    /// Handles a change of a local machine or of its senders: schedules a division of its bandwidth,
    /// and limits each grant by its sender's bandwidth. Returns the number of grants.
    pub(crate) fn handle_machines(&mut self, view: &View, local: LocalIndex) -> usize {
        let sink = &mut self.sinks[local];
        sink.changed = true;
        for index in &sink.grants {
            let grant = &mut self.grants[*index];
            if let Some((_, bandwidth)) = view.sender(&grant.key) {
                grant.limit = bandwidth;
            }
        }
        sink.grants.len()
    }

    /// Schedules a new division of the bandwidth of all machines with grants.
    pub(crate) fn recompute_all_soon(&mut self, cx: &mut Context<'_>) {
        for local in cx.view.locals.indices() {
            let sink = &mut self.sinks[local];
            sink.changed |= !sink.grants.is_empty();
        }
        cx.recompute_soon();
    }

    /// Handles a request. Returns false for an unknown VM, or VMs of different tenants.
    pub(crate) fn handle_request(
        &mut self,
        cx: &mut Context<'_>,
        key: PairKey,
        request: IncomingRequest,
    ) -> bool {
        let IncomingRequest {
            demand,
            confirms,
            wanted,
            ..
        } = request;
        let index = match self.grants.find(&key) {
            Some(index) => index,
            None if demand == Rate::ZERO => return true,
            None => match self.add_grant(cx, key) {
                Ok(index) => index,
                Err(NotAdded::Unknown) => return false,
                Err(NotAdded::NoRoom) => {
                    self.no_room += 1;
                    return true;
                }
            },
        };
        let grant = &mut self.grants[index];
        let ended = if demand > Rate::ZERO {
            grant.confirm(confirms)
        } else {
            grant.give_back(confirms, wanted > Bytes::ZERO)
        };
        grant.handle_demand(cx.now, &request);
        let local = grant.local;
        self.sinks[local].pool.owe(ended);
        if grant.demand == Rate::ZERO {
            grant.set_next(Rate::ZERO);
            grant.set_lent(Bytes::ZERO);
            if grant.is_over() {
                self.remove_grant(cx, index);
            }
        }
        self.sinks[local].changed = true;
        cx.recompute_soon();
        true
    }

    fn add_grant(&mut self, cx: &Context<'_>, key: PairKey) -> Result<GrantIndex, NotAdded> {
        let sender = cx.view.sender(&key);
        let receiver = cx.view.locals.find(key.pair.receiver);
        let (Some((name, bandwidth)), Some(local)) = (sender, receiver) else {
            return Err(NotAdded::Unknown);
        };
        if tenant(name) != cx.view.locals[local].tenant() {
            return Err(NotAdded::Unknown);
        }
        if !self.has_room(cx.view, key.peer) {
            return Err(NotAdded::NoRoom);
        }
        let grant = Grant::new(key, local, bandwidth, cx.now);
        let index = self.grants.insert(key, grant).ok_or(NotAdded::NoRoom)?;
        self.peers[key.peer.0].push(index);
        self.sinks[local].grants.push(index);
        Ok(index)
    }

    /// Returns whether there is room for another pair. Pairs within this host have room of their
    /// own, so that they take none of the others'.
    fn has_room(&self, view: &View, peer: PeerIndex) -> bool {
        let here = self.peers[view.here().0].len();
        let taken = if peer == view.here() {
            here
        } else {
            self.grants.len() - here
        };
        taken < MAX_PAIRS
    }

    fn remove_grant(&mut self, cx: &mut Context<'_>, index: GrantIndex) {
        let Grant { key, local, .. } = self.grants[index];
        let lent = self.grants[index].issued_lent();
        self.peers[key.peer.0].retain(|grant| *grant != index);
        let sink = &mut self.sinks[local];
        sink.grants.retain(|grant| *grant != index);
        sink.pool.owe(lent);
        sink.changed = true;
        self.grants.remove(&key);
        cx.recompute_soon();
    }

    /// Divides the bandwidth of local VMs among their senders.
    pub(crate) fn recompute(&mut self, cx: &mut Context<'_>, scope: Scope) {
        for local in cx.view.locals.indices() {
            let Sink {
                grants,
                changed,
                pool,
                ..
            } = &self.sinks[local];
            if *changed || (scope == Scope::All && (!grants.is_empty() || pool.owes())) {
                self.allocate(cx, local);
            }
        }
    }

    /// Receiver allocation: divides a VM's bandwidth among its senders.
    ///
    /// Invariant: the rates in force of all grants, and the static shares of all VMs that may use
    /// them without a grant before the end of a lease given now, sum up to at most B. A sender
    /// therefore receives a lower target immediately, and a higher one as far as others have
    /// confirmed lower rates.
    fn allocate(&mut self, cx: &mut Context<'_>, local: LocalIndex) {
        self.sinks[local].changed = false;
        if !mem::replace(&mut self.sinks[local].divided, true) {
            self.divided.push(local);
        }
        let Buffers {
            mut divider,
            mut requesters,
            mut claims,
            mut targets,
            mut raises,
        } = mem::take(&mut self.buffers);
        let size = cx.view.locals[local].lendable();
        let pool = &mut self.sinks[local].pool;
        pool.pay(cx.now, cx.times, size);
        let budget = self.budget(cx, local, &mut requesters);
        // It pays with bandwidth that is not demanded.
        let owes = self.sinks[local].pool.owes();

        let bandwidth = cx.view.locals[local].machine.bandwidth;
        claims.clear();
        claims.extend(requesters.iter().map(|requester| {
            let Grant { demand, limit, .. } = self.grants[requester.grant];
            let most = if owes { demand } else { bandwidth };
            let limit = limit.min(most);
            Claim { demand, limit }
        }));
        divider.divide(budget.total, &claims, &mut targets);

        claims.clear();
        for (requester, target) in requesters.iter().zip(&targets) {
            let missing = target.saturating_sub(requester.in_force);
            claims.push(Claim {
                demand: missing,
                limit: missing,
            });
        }
        let unheld = budget.free.saturating_sub(budget.held);
        divider.divide(unheld, &claims, &mut raises);

        for (place, Requester { grant, in_force }) in requesters.iter().copied().enumerate() {
            let next = targets[place].min(in_force + raises[place]);
            self.set_next(cx, grant, next);
        }
        debug_assert!(
            self.held(cx.now, local, cx.view.locals[local].share()) <= budget.held.max(budget.free),
            "capacity in use by another pair is not granted"
        );
        self.lend(cx, local, budget, &requesters);
        self.buffers = Buffers {
            divider,
            requesters,
            claims,
            targets,
            raises,
        };
    }

    /// Returns the grantable rates of a machine, and lowers the grants of senders without a demand
    /// to zero. `requesters` becomes the list of senders with a demand.
    fn budget(
        &mut self,
        cx: &mut Context<'_>,
        local: LocalIndex,
        requesters: &mut Vec<Requester>,
    ) -> Budget {
        let Context {
            now, times, view, ..
        } = *cx;
        // Those whose pledge ends earlier may use shares beside what is given now,
        // or at the latest before the next look.
        let firm = now + times.lease_counted() + times.interval;
        let pledged = view.pledged_machines(local, firm);
        let machine = &view.locals[local];
        let share = machine.share();
        let unpledged = view.others_elsewhere(local).saturating_sub(pledged);
        // What may be used unasked, what may be in force by grants, and what of the
        // latter belongs to those that do not ask.
        let mut reserved = Rate(share.0 * unpledged);
        let mut held = Rate::ZERO;
        let mut idle = Rate::ZERO;
        requesters.clear();
        for place in 0..self.sinks[local].grants.len() {
            let index = self.sinks[local].grants[place];
            let ended = self.grants[index].end_loans(now);
            self.sinks[local].pool.owe(ended);
            let grant = &self.grants[index];
            let in_force = grant.in_force(now, share);
            held += in_force;
            let is_pledged = view.is_pledged(grant.key.peer, firm);
            if !is_pledged {
                // It is not counted twice.
                reserved = reserved.saturating_sub(in_force.min(share));
            }
            let is_heard = now.since(grant.heard) <= times.lease();
            if is_pledged && is_heard && grant.demand > Rate::ZERO {
                requesters.push(Requester {
                    grant: index,
                    in_force,
                });
            } else {
                idle += in_force;
                self.set_next(cx, index, Rate::ZERO);
                self.set_lent(cx, index, Bytes::ZERO);
            }
        }
        // After a start, leases of the time before may be in force.
        let unsettled = unpledged > 0 && now < self.settled;
        let bandwidth = machine.machine.bandwidth;
        let free = bandwidth.saturating_sub(reserved);
        let total = if unsettled {
            Rate::ZERO
        } else {
            let drained = self.sinks[local].drain.limit(bandwidth);
            free.min(drained).saturating_sub(idle)
        };
        let is_settled = !unsettled;
        Budget {
            free,
            held,
            total,
            is_settled,
        }
    }

    /// Hands over the pairs of each machine whose bandwidth was divided since the last
    /// call: what is in force by their grants may have risen.
    pub(crate) fn take_divided(&mut self, mut each: impl FnMut(LocalIndex, PairKey, &Self)) {
        let mut divided = mem::take(&mut self.divided);
        for local in divided.drain(..) {
            self.sinks[local].divided = false;
            for grant in &self.sinks[local].grants {
                each(local, self.grants[*grant].key, self);
            }
        }
        self.divided = divided;
    }

    /// Returns the largest rate that may be in force by a pair's grants.
    pub(crate) fn in_force(&self, now: Nanos, key: PairKey, share: Rate) -> Rate {
        let grant = self.grants.find(&key);
        grant.map_or(Rate::ZERO, |grant| self.grants[grant].in_force(now, share))
    }

    /// Returns whether all leases of the host's former life have ended.
    pub(crate) fn is_settled(&self, now: Nanos) -> bool {
        now >= self.settled
    }

    /// Returns the sum of the rates that may be in force by all grants of a machine.
    fn held(&self, now: Nanos, local: LocalIndex, share: Rate) -> Rate {
        let grants = self.sinks[local].grants.iter();
        grants
            .map(|grant| self.grants[*grant].in_force(now, share))
            .sum()
    }

    /// Sets the rate of the next grant, and sends it soon if it is another rate.
    fn set_next(&mut self, cx: &mut Context<'_>, index: GrantIndex, next: Rate) {
        let grant = &mut self.grants[index];
        let before = grant.set_next(next);
        if is_worth_a_datagram(next, before) {
            cx.expedite_datagram(grant.key.peer);
        }
    }

    /// Sets what the next grant lends, and sends it soon if that is something else.
    fn set_lent(&mut self, cx: &mut Context<'_>, index: GrantIndex, next: Bytes) {
        let grant = &mut self.grants[index];
        if grant.set_lent(next) != next {
            cx.expedite_datagram(grant.key.peer);
        }
    }

    /// Adds what is granted to a peer's machines to what is sent. Returns how many
    /// grants these are.
    pub(crate) fn push_grants(&self, peer: PeerIndex, entries: &mut Vec<Entry>) {
        let grants = self.peers[peer.0].iter();
        entries.extend(grants.map(|index| {
            let grant = &self.grants[*index];
            Entry::Grant {
                pair: grant.key.pair,
                rate: grant.next(),
                lent: grant.next_lent(),
            }
        }));
    }

    /// The grant at `place` of those that [`Self::push_grants`] added goes out in
    /// datagram `sequence`. Its lease is over at `until`.
    pub(crate) fn grant_sent(
        &mut self,
        peer: PeerIndex,
        place: usize,
        sequence: SequenceNumber,
        until: Nanos,
    ) {
        let index = self.peers[peer.0][place];
        self.grants[index].issue(sequence, until);
    }
}

/// Reason why a pair has no grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NotAdded {
    /// One of the pair's machines is unknown, or they belong to different tenants.
    Unknown,
    /// The table is full.
    NoRoom,
}
