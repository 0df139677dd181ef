//! The receiver's end of a pair: its machine's bandwidth is divided among those
//! that send to it, and nothing is given that another may still use.

use super::HoseState;
use super::learn::{Local, tenant};
use super::sender::differs;
use super::share::{Claim, divide};
use super::wire::Entry;
use tailbound_units::Nanos;

/// A machine there that sends to one here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct GrantKey {
    peer: usize,
    sender: u32,
    receiver: u32,
}

/// Grants of one pair that are not confirmed; then the last two are counted as
/// one.
const UNCONFIRMED: usize = 16;

/// One rate that was granted.
#[derive(Debug, Clone, Copy)]
struct Written {
    /// By which datagrams: the first and the last one.
    first: u64,
    last: u64,
    rate: u64,
    /// When its lease is over at the latest.
    until: Nanos,
}

/// What a machine was granted.
#[derive(Debug)]
pub(super) struct Grant {
    key: GrantKey,
    /// Where its receiver is in the table of machines.
    local: usize,
    /// What it asks for, when it was asked and by which datagram.
    demand: u64,
    heard: Nanos,
    asked_by: u64,
    /// The sender's own bandwidth.
    pub(super) limit: u64,
    /// What was granted: any of it may be in force.
    written: Vec<Written>,
    /// What is granted next.
    next: u64,
}

impl Grant {
    /// The id of the machine that sends, on its host.
    pub(super) const fn sender(&self) -> u32 {
        self.key.sender
    }

    /// The most that may be in force, now or when `next` is written.
    fn held(&self, now: Nanos, share: u64) -> u64 {
        let in_force = self.written.iter().map(|written| {
            if now < written.until {
                written.rate
            } else {
                written.rate.min(share)
            }
        });
        in_force.max().unwrap_or(0).max(self.next)
    }

    /// The sender keeps to the grant of datagram `seen`.
    fn keeps_to(&mut self, seen: u64) {
        let older = self
            .written
            .partition_point(|written| written.first <= seen);
        self.written.drain(..older.saturating_sub(1));
    }

    /// The sender has given back what it was granted up to datagram `seen`; what
    /// came later, if only the same once more, it may find a use for again.
    fn given_back(&mut self, seen: u64) {
        let void = self.written.partition_point(|written| written.last <= seen);
        self.written.drain(..void);
    }

    /// Whether nothing is granted, nor may be in force.
    fn is_over(&self) -> bool {
        self.next == 0 && self.written.iter().all(|written| written.rate == 0)
    }

    /// It was written into datagram `seq`, with a lease that is over at `until`.
    pub(super) fn wrote(&mut self, seq: u64, until: Nanos) {
        let full = self.written.len() >= UNCONFIRMED;
        let rate = self.next;
        match self.written.last_mut() {
            Some(last) if last.rate == rate || full => {
                last.last = seq;
                last.rate = last.rate.max(rate);
                last.until = until;
            }
            _ => self.written.push(Written {
                first: seq,
                last: seq,
                rate,
                until,
            }),
        }
    }
}

impl HoseState {
    /// Takes a request of the pair (`sender` there, `receiver` here). False where
    /// one of them is not known.
    pub(super) fn requested(
        &mut self,
        now: Nanos,
        peer: usize,
        seq: u64,
        (sender, receiver): (u32, u32),
        demand: u64,
        seen: u64,
    ) -> bool {
        let key = GrantKey {
            peer,
            sender,
            receiver,
        };
        let index = match self.grants.find(&key) {
            Some(index) => index,
            None if demand == 0 => return true,
            None => {
                let from = self.peers[peer].machines.get(&sender);
                let (Some(from), Some(local)) = (from, self.locals.find(&receiver)) else {
                    return false;
                };
                let name = &self.locals[local].machine.name;
                if tenant(&from.name) != tenant(name) {
                    return false;
                }
                let grant = Grant {
                    key,
                    local,
                    demand: 0,
                    heard: now,
                    asked_by: 0,
                    limit: from.bandwidth,
                    written: Vec::new(),
                    next: 0,
                };
                let Some(index) = self.grants.insert(key, grant) else {
                    self.stats.no_room += 1;
                    return true;
                };
                self.peers[peer].grants.push(index);
                self.locals[local].grants.push(index);
                index
            }
        };
        let grant = &mut self.grants[index];
        if demand > 0 {
            grant.keeps_to(seen);
        } else {
            grant.given_back(seen);
        }
        if seq > grant.asked_by {
            grant.asked_by = seq;
            grant.demand = demand;
            grant.heard = now;
        }
        let local = grant.local;
        if grant.demand == 0 {
            grant.next = 0;
            if grant.is_over() {
                self.forget_grant(now, index);
            }
        }
        self.locals[local].settle = true;
        self.soon(now);
        true
    }

    pub(super) fn forget_grant(&mut self, now: Nanos, index: usize) {
        let Grant { key, local, .. } = self.grants[index];
        self.peers[key.peer].grants.retain(|grant| *grant != index);
        self.locals[local].grants.retain(|grant| *grant != index);
        self.locals[local].settle = true;
        self.grants.remove(&key);
        self.soon(now);
    }

    /// Has all machines' grants looked at soon.
    pub(super) fn settle_all(&mut self, now: Nanos) {
        for index in self.locals.all() {
            self.locals[index].settle = true;
        }
        self.soon(now);
    }

    /// Divides a machine's bandwidth among its senders.
    ///
    /// At any moment this holds: what may be in force by any grant, and the static
    /// shares of all machines that may use them unasked before a lease given now is
    /// over, sum up to at most B.
    pub(super) fn settle(&mut self, now: Nanos, local: usize) {
        self.locals[local].settle = false;
        // Those whose pledge ends earlier may use shares beside what is given now,
        // or at the latest before the next look.
        let firm = now + self.lease_held() + self.config.interval;
        let bandwidth = self.locals[local].machine.bandwidth.0;
        let share = self.locals[local].share();
        let Local { size, here, .. } = self.locals[local];
        let elsewhere = size.saturating_sub(1 + here);
        let loose = elsewhere.saturating_sub(self.pledged_machines(local, firm));
        let mut reserved = share * loose;
        let mut held = 0;
        let mut asking = Vec::new();
        let mut idle = 0;
        for index in &self.locals[local].grants {
            let grant = &self.grants[*index];
            let in_force = grant.held(now, share);
            held += in_force;
            let pledged = self.peers[grant.key.peer].pledged_to_us >= firm;
            if !pledged {
                reserved = reserved.saturating_sub(in_force.min(share));
            }
            if pledged && grant.demand > 0 && now.since(grant.heard) <= self.lease() {
                asking.push((*index, in_force));
            } else {
                idle += in_force;
            }
        }
        // After a start, leases of the time before may be in force.
        let quiet = loose > 0 && now < self.started + self.lease_held();
        let free = bandwidth.saturating_sub(reserved);
        let pool = if quiet { 0 } else { free.saturating_sub(idle) };
        let claims: Vec<_> = asking
            .iter()
            .map(|(index, _)| Claim {
                demand: self.grants[*index].demand,
                limit: self.grants[*index].limit.min(bandwidth),
            })
            .collect();
        let targets = divide(pool, &claims);
        let raises: Vec<_> = asking
            .iter()
            .zip(&targets)
            .map(|((_, in_force), target)| Claim {
                demand: target.saturating_sub(*in_force),
                limit: target.saturating_sub(*in_force),
            })
            .collect();
        let raises = divide(free.saturating_sub(held), &raises);
        // Those that ask are in the order of all.
        let mut asking = asking.iter().zip(targets).zip(raises).peekable();
        for index in self.locals[local].grants.clone() {
            let next = match asking.next_if(|(((asking, _), _), _)| *asking == index) {
                Some((((_, in_force), target), raise)) => target.min(in_force + raise),
                None => 0,
            };
            let grant = &mut self.grants[index];
            grant.next = next;
            let before = grant.written.last().map_or(0, |written| written.rate);
            let peer = grant.key.peer;
            if differs(next, before) {
                self.hurry(now, peer);
            }
        }
    }

    /// Adds what is granted to what is sent.
    pub(super) fn offer(&self, grants: &[usize], entries: &mut Vec<Entry>) {
        for index in grants {
            let Grant { key, next, .. } = self.grants[*index];
            entries.push(Entry::Grant {
                sender: key.sender,
                receiver: key.receiver,
                rate: next,
            });
        }
    }
}
