//! What comes for a guest, held to what those who send it are guaranteed.
//!
//! Whoever paces a guaranteed guest holds what it sends to one receiver to {`B_i`, S}
//! (Silo, SIGCOMM 2015, 4.3), and the rates of all its senders sum up to at most the
//! receiver's B. So what comes for a guest conforms to {`B_i`, S} from each sender and to
//! {B, (N-1)·S} in all, if everybody keeps to that. [`Inward`] finds out who does not, on
//! the receiver's own host: what conforms is to be served first, what exceeds it below, so
//! that nobody's excess delays what others are guaranteed.
//!
//! **What conforms is never taken for excess**, not even when all senders send their whole
//! burst at once. Frames do not take equally long: one may wait on its way and the next
//! not, and they come closer together than they left. Where that differs by at most
//! `jitter`, what left within {`B_i`, S} comes within {`B_i`, S + `B_i`·`jitter`} (Silo, 4.2,
//! with the capacities of the queues on the way for `jitter`). So a bucket is as deep as
//! that. A frame may also wait for its guest's other receivers once its own rate allows it,
//! while that of the next is due: one full frame more.
//!
//! **Rates change** when the control says so ([`Inward::set_rate`]). A higher one holds at
//! once. What left at a higher rate may still be on its way, so a lower one holds `jitter`
//! to twice that later: at any time the bucket has the highest rate of the last `jitter`,
//! at least. What comes in any time from s to t is at most S and what the rates allow from
//! s - `jitter` to t. So it is at most S, what the bucket's rate allows from s to t, and
//! what that of t allows in `jitter`. That is what a bucket allows which keeps its level
//! while its depth follows its rate. It holds as well where a sender's frames leave before
//! their moment, as from a pacer that hands over batches, as long as none is earlier than
//! the latest by more than `jitter`.
//!
//! **Clocks** differ. Rates are those by the sender's clock, so they are taken to be higher
//! by 1/1024: a clock that is steered is at most 500 ppm off (adjtimex(2)), in either
//! direction.
//!
//! A new sender's buckets are full: what it sent until now is not known, and it may not
//! have sent anything. Memory is bounded by what was announced, never by what comes.

use crate::pacer::WireCount;
use std::collections::BTreeMap;
use tailbound_units::exact::Work;
use tailbound_units::{Bytes, Nanos, Rate, WireBytes};

/// A full frame on the wire, with two VLAN tags.
const FRAME: Bytes = Bytes(1546);

/// What a guest's senders are guaranteed together. Sizes and rates are those on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InwardConfig {
    /// B, what they may send it together.
    pub bandwidth: Rate,
    /// S, what each may send at once.
    pub burst: Bytes,
    /// N-1, how many machines may send to it.
    pub senders: u32,
    /// By how much longer one frame of a sender may take than another, from when its
    /// bucket releases it to when it is looked at here.
    pub jitter: Nanos,
}

impl InwardConfig {
    /// What a sender may send at once, and a frame that waited for others of its guest.
    const fn each(&self) -> Bytes {
        Bytes(self.burst.0.saturating_add(FRAME.0))
    }

    /// The same of all senders.
    const fn all(&self) -> Bytes {
        Bytes(self.each().0.saturating_mul(self.senders as u64))
    }

    /// How deep a bucket is that holds `burst` and fills at `rate`.
    const fn depth(&self, burst: Bytes, rate: Rate) -> Work {
        Work::of(burst).plus(Work::done(rate, self.jitter))
    }
}

/// A machine that sends to a guest, by a number that the control chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SenderId(pub u64);

/// Where a frame of the guaranteed class belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is within what its sender is guaranteed, and all of them are.
    Conforming,
    /// It is not.
    Exceeding,
    /// Nobody has announced its sender.
    Unannounced,
}

/// What came in the guaranteed class, by where it belonged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InwardStats {
    /// [`Admission::Conforming`].
    pub conforming: WireCount,
    /// [`Admission::Exceeding`].
    pub exceeding: WireCount,
    /// [`Admission::Unannounced`].
    pub unannounced: WireCount,
}

/// What comes for one guest. See the module.
#[derive(Debug)]
pub struct Inward {
    config: InwardConfig,
    /// Of all senders.
    all: Bucket,
    senders: BTreeMap<SenderId, Sender>,
    /// Whose each source is.
    sources: BTreeMap<u128, SenderId>,
    stats: InwardStats,
}

impl Inward {
    /// Nobody sends yet.
    pub fn new(now: Nanos, config: InwardConfig) -> Self {
        let rate = faster(config.bandwidth);
        Self {
            config,
            all: Bucket::full(now, rate, config.depth(config.all(), rate)),
            senders: BTreeMap::new(),
            sources: BTreeMap::new(),
            stats: InwardStats::default(),
        }
    }

    /// What its senders are guaranteed together.
    pub const fn config(&self) -> &InwardConfig {
        &self.config
    }

    /// Holds its senders to something else together from `now` on. Buckets keep what is
    /// in them as far as they hold it.
    pub fn reconfigure(&mut self, now: Nanos, config: InwardConfig) {
        for sender in self.senders.values_mut() {
            sender.advance(now, &self.config);
            sender.reshape(now, &config);
        }
        let rate = faster(config.bandwidth);
        self.all
            .reshape(now, rate, config.depth(config.all(), rate));
        self.config = config;
    }

    /// A machine sends from these sources, with a full bucket that does not fill yet:
    /// stations (as [`FlowKey::station`](crate::FlowKey::station)) and addresses (IPv4 as
    /// IPv4-mapped IPv6). One that was known keeps its bucket. A source that was another's
    /// is this one's now.
    pub fn add_sender(
        &mut self,
        now: Nanos,
        id: SenderId,
        sources: impl IntoIterator<Item = u128>,
    ) {
        self.sources.retain(|_, owner| *owner != id);
        self.sources
            .extend(sources.into_iter().map(|source| (source, id)));
        let config = &self.config;
        self.senders
            .entry(id)
            .or_insert_with(|| Sender::idle(now, config));
    }

    /// What a machine sends is no longer guaranteed.
    pub fn remove_sender(&mut self, id: SenderId) {
        self.sources.retain(|_, owner| *owner != id);
        self.senders.remove(&id);
    }

    /// Holds a machine to another rate: at once where that is higher, else `jitter` to
    /// twice that later. One that is not known is passed over.
    pub fn set_rate(&mut self, now: Nanos, id: SenderId, rate: Rate) {
        if let Some(sender) = self.senders.get_mut(&id) {
            sender.set_rate(now, faster(rate), &self.config);
        }
    }

    /// The machine that sends from a source; `None` where nobody has announced it.
    pub fn sender(&self, source: u128) -> Option<SenderId> {
        self.sources.get(&source).copied()
    }

    /// Takes a frame of the guaranteed class into account at `now`: from which machine it
    /// is, and what it takes of the wire.
    pub fn admit(&mut self, now: Nanos, from: Option<SenderId>, wire: WireBytes) -> Admission {
        let sender = from.and_then(|id| self.senders.get_mut(&id));
        let Some(sender) = sender else {
            count(&mut self.stats.unannounced, wire);
            return Admission::Unannounced;
        };
        sender.advance(now, &self.config);
        self.all.drain(now);
        let work = Work::of(wire.into());
        if sender.bucket.holds(work) && self.all.holds(work) {
            sender.bucket.charge(work);
            self.all.charge(work);
            count(&mut self.stats.conforming, wire);
            Admission::Conforming
        } else {
            count(&mut self.stats.exceeding, wire);
            Admission::Exceeding
        }
    }

    /// What has come so far.
    pub const fn stats(&self) -> InwardStats {
        self.stats
    }
}

fn count(counter: &mut WireCount, wire: WireBytes) {
    counter.packets += 1;
    counter.bytes += wire;
}

/// A rate by the fastest clock of those that may be meant.
const fn faster(rate: Rate) -> Rate {
    rate.saturating_add(Rate(rate.0.div_ceil(1024)))
}

/// A machine that sends.
#[derive(Debug)]
struct Sender {
    bucket: Bucket,
    /// What it may send at now.
    rate: Rate,
    /// The highest since the present window began, and in the one before: windows are
    /// `jitter` long, so these are the highest of the last `jitter`, at least.
    recent: Rate,
    before: Rate,
    /// When the next window begins.
    next: Nanos,
}

impl Sender {
    fn idle(now: Nanos, config: &InwardConfig) -> Self {
        Self {
            bucket: Bucket::full(now, Rate::ZERO, Work::of(config.each())),
            rate: Rate::ZERO,
            recent: Rate::ZERO,
            before: Rate::ZERO,
            next: now,
        }
    }

    fn set_rate(&mut self, now: Nanos, rate: Rate, config: &InwardConfig) {
        self.advance(now, config);
        self.rate = rate;
        if rate > self.recent {
            self.recent = rate;
            self.follow(now, config);
        }
    }

    /// Lets time pass.
    fn advance(&mut self, now: Nanos, config: &InwardConfig) {
        while self.next <= now {
            let settled = self.before == self.rate && self.recent == self.rate;
            let at = if settled { now } else { self.next };
            self.before = self.recent;
            self.recent = self.rate;
            if !settled {
                self.follow(at, config);
            }
            self.next = at.saturating_add(Nanos(config.jitter.0.max(1)));
        }
        self.bucket.drain(now);
    }

    /// Gives the bucket the highest rate that what comes now may have left at.
    fn follow(&mut self, now: Nanos, config: &InwardConfig) {
        let (rate, depth) = self.shape(config);
        self.bucket.follow(now, rate, depth);
    }

    /// The same where what it is held to is another.
    fn reshape(&mut self, now: Nanos, config: &InwardConfig) {
        let (rate, depth) = self.shape(config);
        self.bucket.reshape(now, rate, depth);
    }

    fn shape(&self, config: &InwardConfig) -> (Rate, Work) {
        let rate = self.recent.max(self.before);
        (rate, config.depth(config.each(), rate))
    }
}

/// The continuous-state leaky bucket of ITU-T I.371, exact, of which rate and depth may
/// change.
#[derive(Debug)]
struct Bucket {
    rate: Rate,
    depth: Work,
    /// What was charged and has not drained at `at`.
    level: Work,
    at: Nanos,
}

impl Bucket {
    const fn full(now: Nanos, rate: Rate, depth: Work) -> Self {
        Self {
            rate,
            depth,
            level: Work::ZERO,
            at: now,
        }
    }

    fn drain(&mut self, now: Nanos) {
        self.level = self.level.less(Work::done(self.rate, now.since(self.at)));
        self.at = self.at.max(now);
    }

    fn holds(&self, work: Work) -> bool {
        self.level.plus(work) <= self.depth
    }

    fn charge(&mut self, work: Work) {
        self.level = self.level.plus(work);
    }

    /// Takes another rate, and the depth that belongs to it. What was charged stays: at a
    /// higher rate more may be sent at once, at a lower one as much less.
    fn follow(&mut self, now: Nanos, rate: Rate, depth: Work) {
        self.drain(now);
        self.rate = rate;
        self.depth = depth;
    }

    /// Takes another rate and depth. What may be sent at once stays, as far as the new
    /// depth allows.
    fn reshape(&mut self, now: Nanos, rate: Rate, depth: Work) {
        self.drain(now);
        let tokens = self.depth.less(self.level);
        self.level = depth.less(tokens);
        self.rate = rate;
        self.depth = depth;
    }
}

#[cfg(test)]
mod tests;
