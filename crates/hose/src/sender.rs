//! The sender's end of a pair: what its machine has to send, what it may, and how
//! its bandwidth is divided among those it sends to.

use super::learn::Local;
use super::share::{Claim, divide, offers};
use super::wire::{Entry, Header};
use super::{Change, FlowKey, GuestId, HoseState};
use tailbound_units::{Bytes, Nanos, Rate};

/// A machine here that sends to one there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PairKey {
    /// Its id here.
    pub(super) sender: u32,
    /// The other's host, as a place in the list of peers.
    pub(super) peer: usize,
    /// The other's id there.
    pub(super) receiver: u32,
}

/// What a guest sends to one address of a receiver.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) address: u128,
    /// Bytes on the wire since the last sample, and whether frames wait.
    taken: u64,
    waiting: bool,
    /// What it lacks of a full bucket, in bytes: as the pacer's, whose rate is set
    /// here.
    deficit: u64,
    /// What it sent in the last sample and the one before, in bits a second.
    recent: [u64; 2],
    /// What it has use for, in bits a second.
    demand: u64,
    /// What is set.
    rate: Option<Rate>,
}

impl Flow {
    pub(super) const fn new(address: u128) -> Self {
        Self {
            address,
            taken: 0,
            waiting: false,
            deficit: 0,
            recent: [0; 2],
            demand: 0,
            rate: None,
        }
    }

    /// Ends a sample that was `elapsed` long.
    fn sample(&mut self, elapsed: Nanos, interval: Nanos, burst: Bytes, share: u64) {
        let refilled = self.rate.map_or(0, |rate| rate.bytes_in(elapsed).0);
        self.deficit = (self.deficit + self.taken)
            .saturating_sub(refilled)
            .min(burst.0);
        let span = elapsed.0.clamp(interval.0, 2 * interval.0).max(1);
        let rate = u128::from(self.taken) * 8_000_000_000 / u128::from(span);
        self.recent = [rate.try_into().unwrap_or(u64::MAX), self.recent[0]];
        let used = self.recent[0].max(self.recent[1]);
        self.demand = if self.waiting {
            u64::MAX
        } else if self.deficit > 0 {
            // A bucket that is not full yet is filled at no less than the share
            // that is the pair's whatever others want.
            used.saturating_add(used / 4).max(share)
        } else {
            used.saturating_add(used / 4)
        };
        self.taken = 0;
        self.waiting = false;
    }
}

/// One pair, as its sender's host has it.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) key: PairKey,
    /// Where its sender is in the table of machines.
    pub(super) local: usize,
    /// By address, usually one.
    pub(super) flows: Vec<Flow>,
    /// What it may use unasked when the receiver's host is silent.
    pub(super) share: u64,
    /// Whether it is in use.
    open: bool,
    /// What it was granted last, by which datagram, and until when more than the
    /// share counts of it.
    granted: u64,
    pub(super) seen: u64,
    lease: Nanos,
    /// Whether the lease ran out in use, which is counted once.
    fell_back: bool,
    demand: u64,
    /// What is requested.
    request: u64,
    /// What its flows may send together.
    rate: u64,
}

impl Pair {
    /// A pair that keeps to no grant up to datagram `seen`.
    pub(super) const fn new(key: PairKey, local: usize, share: u64, seen: u64) -> Self {
        Self {
            key,
            local,
            flows: Vec::new(),
            share,
            open: false,
            granted: 0,
            seen,
            lease: Nanos::ZERO,
            fell_back: false,
            demand: 0,
            request: 0,
            rate: 0,
        }
    }

    /// Whether it has a flow for each of these addresses.
    pub(super) fn is_to(&self, addresses: &[u128]) -> bool {
        let flows = self.flows.iter().map(|flow| flow.address);
        flows.eq(addresses.iter().copied())
    }
}

/// Grants of unknown pairs that are given back at once; the others with the next.
const MAX_STRAYS: usize = 64;

/// What takes or gives less than 1/32 is not worth a datagram of its own.
pub(super) const fn differs(a: u64, b: u64) -> bool {
    a.abs_diff(b) > b / 32
}

impl HoseState {
    /// Tells what a guest sent to an address since the last sample: `taken` bytes
    /// on the wire, and whether frames had to wait for the rate that is set.
    pub fn used(
        &mut self,
        now: Nanos,
        guest: GuestId,
        destination: u128,
        taken: Bytes,
        waiting: bool,
    ) {
        let flow = FlowKey {
            source: guest,
            destination,
        };
        let Some(index) = self.flows.get(&flow).copied() else {
            return;
        };
        let pair = &mut self.pairs[index];
        let mut flows = pair.flows.iter_mut();
        if let Some(flow) = flows.find(|flow| flow.address == destination) {
            flow.taken = flow.taken.saturating_add(taken.0);
            flow.waiting |= waiting;
        }
        if !pair.open {
            pair.open = true;
            let Pair { key, local, .. } = *pair;
            self.stats.open += 1;
            self.peers[key.peer].open.push(index);
            self.peers[key.peer].parked.retain(|pair| *pair != index);
            self.locals[local].open.push(index);
            self.hurry(now, key.peer);
        }
    }

    /// Ends a sample: what was not told to be used since the last one was not.
    pub fn sampled(&mut self, now: Nanos) {
        let elapsed = now.since(self.last_sample);
        if elapsed == Nanos::ZERO {
            return;
        }
        self.last_sample = now;
        let mut sampled = false;
        for index in self.locals.all() {
            let burst = self.locals[index].machine.burst;
            for pair in self.locals[index].open.clone() {
                sampled = true;
                self.sample(now, elapsed, pair, burst);
            }
        }
        if sampled {
            self.soon(now);
        }
    }

    fn sample(&mut self, now: Nanos, elapsed: Nanos, index: usize, burst: Bytes) {
        let interval = self.config.interval;
        let pair = &mut self.pairs[index];
        let mut demand = 0_u64;
        for flow in &mut pair.flows {
            flow.sample(elapsed, interval, burst, pair.share);
            demand = demand.saturating_add(flow.demand);
        }
        pair.demand = demand;
        let Pair { key, local, .. } = *pair;
        self.locals[local].allocate = true;
        if demand == 0 {
            self.close(index);
            self.refresh(now, index);
            self.peers[key.peer].parked.push(index);
            self.hurry(now, key.peer);
        }
    }

    /// Ends the use of a pair: what it was granted is given back.
    pub(super) fn close(&mut self, index: usize) {
        let pair = &mut self.pairs[index];
        if !pair.open {
            return;
        }
        pair.open = false;
        pair.granted = 0;
        pair.demand = 0;
        pair.request = 0;
        let Pair { key, local, .. } = *pair;
        self.stats.open -= 1;
        self.peers[key.peer].open.retain(|open| *open != index);
        self.locals[local].open.retain(|open| *open != index);
        self.locals[local].allocate = true;
    }

    /// What a pair may use now.
    fn allowed(&self, now: Nanos, index: usize) -> u64 {
        let pair = &self.pairs[index];
        if !self.peers[pair.key.peer].bound {
            pair.share.min(self.locals[pair.local].share())
        } else if now <= pair.lease {
            pair.granted
        } else {
            pair.granted.min(pair.share)
        }
    }

    /// Brings a pair's rate down to what it may use. Up it goes when its sender's
    /// bandwidth is divided again.
    pub(super) fn refresh(&mut self, now: Nanos, index: usize) {
        let allowed = self.allowed(now, index);
        let pair = &self.pairs[index];
        let (local, rate) = (pair.local, pair.rate.min(allowed));
        self.locals[local].allocate = true;
        self.soon(now);
        self.set_rate(index, rate);
    }

    /// Sets what a pair may send, divided among the addresses in use.
    fn set_rate(&mut self, index: usize, rate: u64) {
        let pair = &mut self.pairs[index];
        pair.rate = rate;
        let guest = self.locals[pair.local].machine.guest;
        let used = pair.flows.iter().filter(|flow| flow.demand > 0).count();
        // None is in use: then each may be the next one.
        let shared = used == 0;
        let claims: Vec<_> = pair
            .flows
            .iter()
            .filter(|flow| shared || flow.demand > 0)
            .map(|flow| Claim {
                demand: flow.demand,
                limit: rate,
            })
            .collect();
        let mut rates = divide(rate, &claims).into_iter();
        for flow in &mut pair.flows {
            let takes_part = shared || flow.demand > 0;
            let rate = if takes_part { rates.next() } else { None };
            let rate = Rate(rate.unwrap_or(0));
            if flow.rate != Some(rate) {
                flow.rate = Some(rate);
                self.changes.push(Change {
                    guest,
                    destination: flow.address,
                    rate: Some(rate),
                });
            }
        }
    }

    /// Divides a machine's bandwidth among those it sends to, and says what it
    /// asks each for.
    pub(super) fn allocate(&mut self, now: Nanos, local: usize) {
        self.locals[local].allocate = false;
        let Local { open, loose, .. } = &self.locals[local];
        let mut open = open.clone();
        // Those too that nobody waits for may be used unasked: as far as there is
        // something left.
        open.extend(loose.iter().filter(|pair| !self.pairs[**pair].open));
        let bandwidth = self.locals[local].machine.bandwidth.0;
        let claims: Vec<_> = open
            .iter()
            .map(|pair| Claim {
                demand: self.pairs[*pair].demand,
                limit: self.allowed(now, *pair),
            })
            .collect();
        let limits: Vec<_> = claims
            .iter()
            .map(|claim| claim.demand.min(claim.limit))
            .collect();
        let offers = offers(bandwidth, &limits);
        let rates = divide(bandwidth, &claims);
        for ((index, rate), offer) in open.into_iter().zip(rates).zip(offers) {
            let pair = &mut self.pairs[index];
            let request = pair.demand.min(offer);
            let before = std::mem::replace(&mut pair.request, request);
            let ran_out = now > pair.lease && pair.granted > pair.share;
            if ran_out && !pair.fell_back {
                self.stats.fallbacks += 1;
            }
            pair.fell_back = ran_out;
            let peer = pair.key.peer;
            self.set_rate(index, rate);
            if differs(request, before) {
                self.hurry(now, peer);
            }
        }
    }

    /// Takes a grant for the pair (`sender` here, `receiver` there). False where
    /// there is no such pair.
    pub(super) fn granted(
        &mut self,
        now: Nanos,
        peer: usize,
        header: &Header,
        (sender, receiver): (u32, u32),
        rate: u64,
    ) -> bool {
        let key = PairKey {
            sender,
            peer,
            receiver,
        };
        let Some(index) = self.pairs.find(&key) else {
            // Of a machine that is gone: it uses nothing.
            let strays = &mut self.peers[peer].strays;
            if strays.len() < MAX_STRAYS {
                strays.push((sender, receiver, header.seq));
            }
            return false;
        };
        let lease = Nanos(header.echo_time) + self.lease();
        let bound = self.peers[peer].bound;
        let pair = &mut self.pairs[index];
        if header.seq <= pair.seen || !bound {
            return true;
        }
        pair.seen = header.seq;
        if !pair.open {
            // It has no use for it, and has said so; perhaps that was lost, or was
            // said of what came before.
            if !self.peers[peer].parked.contains(&index) {
                self.peers[peer].parked.push(index);
            }
            self.hurry(now, peer);
            return true;
        }
        let before = std::mem::replace(&mut pair.granted, rate);
        pair.lease = lease;
        let lower = rate < before;
        if rate < pair.rate {
            self.refresh(now, index);
        }
        if lower && differs(rate, before) {
            self.hurry(now, peer);
        }
        if rate != before {
            let local = self.pairs[index].local;
            self.locals[local].allocate = true;
            self.soon(now);
        }
        true
    }

    /// Adds what is asked of a peer to what is sent.
    pub(super) fn requests(&self, peer: usize, entries: &mut Vec<Entry>) {
        let peer = &self.peers[peer];
        for index in peer.open.iter().chain(&peer.parked) {
            let pair = &self.pairs[*index];
            entries.push(Entry::Request {
                sender: pair.key.sender,
                receiver: pair.key.receiver,
                demand: if pair.open { pair.request.max(1) } else { 0 },
                seen: pair.seen,
            });
        }
        for (sender, receiver, seen) in peer.strays.iter().copied() {
            entries.push(Entry::Request {
                sender,
                receiver,
                demand: 0,
                seen,
            });
        }
    }

    /// Whether the next datagram to a peer pledges, and, if so, keeps to it. It
    /// does while the peer hears us: else nothing asked of it would be heard
    /// either.
    pub(super) fn keep_pledge(&mut self, now: Nanos, index: usize) -> bool {
        let length = self.pledge();
        let peer = &mut self.peers[index];
        let until = peer.time_heard + length;
        let heard = peer
            .echo
            .is_some_and(|echo| now.since(echo) <= Nanos(length.0 / 2));
        if heard && until > now {
            peer.pledged = peer.pledged.max(until);
            if !peer.bound {
                self.bind(index);
                self.start_over(now, index);
            }
            return true;
        }
        if peer.bound && peer.pledged <= now {
            self.stats.silences += 1;
            self.release(index);
            self.start_over(now, index);
        }
        false
    }

    /// What a peer granted, and was pledged, is over.
    pub(super) fn release(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        peer.pledged = Nanos::ZERO;
        if !std::mem::take(&mut peer.bound) {
            return;
        }
        for pair in self.peers[index].pairs.clone() {
            let local = self.pairs[pair].local;
            self.locals[local].loose.push(pair);
        }
    }

    /// Nothing is sent to a peer's machines any more but what they grant.
    fn bind(&mut self, index: usize) {
        self.peers[index].bound = true;
        for pair in self.peers[index].pairs.clone() {
            let local = self.pairs[pair].local;
            self.locals[local].loose.retain(|loose| *loose != pair);
        }
    }

    /// Forgets what a peer granted, and sets what each pair may use without.
    pub(super) fn start_over(&mut self, now: Nanos, index: usize) {
        for pair in self.peers[index].pairs.clone() {
            self.pairs[pair].granted = 0;
            self.pairs[pair].lease = Nanos::ZERO;
            self.refresh(now, pair);
        }
        self.soon(now);
    }
}
