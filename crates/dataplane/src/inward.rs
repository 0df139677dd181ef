//! Polices traffic to a guest by its senders' guarantees.
//!
//! The pacer on a sender's host limits a guaranteed guest's traffic to one receiver to {`B_i`, S}
//! (Silo, SIGCOMM 2015, 4.3), and the rates of all senders sum up to at most the receiver's B. So
//! traffic to a guest conforms to {`B_i`, S} from each sender and to {B, (N-1)·S} in total, if all
//! hosts enforce the limits; with an inward burst to {B, `S_in`} in total. [`Inward`] detects excess on the receiver's own host: the host serves
//! conforming frames first and excess frames after them, so that a sender's excess does not delay
//! the guaranteed traffic of others.
//!
//! **Conforming frames are never taken for excess**, not even if all senders send their whole
//! bursts at the same time. Delays on the path differ: one frame may wait and the next one not, so
//! they arrive closer together than they left. If delays differ by at most `jitter`, traffic that
//! left within {`B_i`, S} arrives within {`B_i`, S + `B_i`·`jitter`} (Silo, 4.2, with the
//! capacities of the queues on the path for `jitter`). A bucket has this depth, and one full frame
//! more: a host of an earlier version charges a frame to its pair before the frame departs, when
//! its own rate permits it.
//!
//! **Rates change** with [`Inward::set_rate`]. A higher rate applies immediately. Frames that left
//! at a higher rate may still be on the path, so a lower rate applies after `jitter` to twice
//! `jitter`: at any time the bucket has at least the highest rate of the last `jitter`. Arrivals in
//! any interval from s to t are at most S plus the allowance of the rates from s - `jitter` to t.
//! So they are at most S, plus the allowance of the bucket's rate from s to t, plus that of its
//! rate at t for the length of `jitter`. A bucket that keeps its level while its depth follows its
//! rate allows exactly this. The bound also holds if a sender's frames leave before their time, as
//! from a pacer that delivers batches, unless a frame is earlier than the latest one by more than
//! `jitter`.
//!
//! **Clocks** differ. Rates are measured by the sender's clock, so [`Inward`] raises them by
//! 1/1024: a steered clock is at most 500 ppm off (adjtimex(2)), in either direction.
//!
//! A new sender's buckets are full, because its earlier traffic is unknown and may be zero. Memory
//! is bounded by the announced senders, never by arriving traffic.

use crate::pacer::WireCount;
use std::collections::BTreeMap;
use tailbound_units::exact::Work;
use tailbound_units::{Bytes, Nanos, Rate, WireBytes};

/// A full frame on the wire, with two VLAN tags.
const FRAME: Bytes = Bytes(1546);

/// Joint guarantee of a guest's senders. Sizes and rates are those on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InwardConfig {
    /// B, the rate of all senders together.
    pub bandwidth: Rate,
    /// S, the burst of each sender.
    pub burst: Bytes,
    /// `S_in`, the burst of all senders together; `None` for S of each.
    pub burst_in: Option<Bytes>,
    /// N-1, the number of VMs that may send to the guest.
    pub senders: u32,
    /// Maximum difference between the delays of two frames of a sender, from the release by its
    /// bucket to the check here.
    pub jitter: Nanos,
}

impl InwardConfig {
    /// Burst of a sender, and a frame that waited for others of its guest on an earlier host.
    const fn each(&self) -> Bytes {
        Bytes(self.burst.0.saturating_add(FRAME.0))
    }

    /// Burst of all senders, with a frame of each as in [`Self::each`].
    fn all(&self) -> Bytes {
        let of_each = |bytes: Bytes| bytes.0.saturating_mul(self.senders.into());
        let bursts = Bytes(of_each(self.burst));
        let bursts = self.burst_in.map_or(bursts, |most| most.min(bursts));
        bursts.saturating_add(Bytes(of_each(FRAME)))
    }

    /// Depth of a bucket that holds `burst` and fills at `rate`.
    const fn depth(&self, burst: Bytes, rate: Rate) -> Work {
        Work::of(burst).plus(Work::done(rate, self.jitter))
    }
}

/// A VM that sends to a guest, by a number that the control chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SenderId(pub u64);

/// Verdict on a frame of the guaranteed class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The frame is within its sender's guarantee and the joint guarantee of all senders.
    Conforming,
    /// The frame exceeds one of the guarantees.
    Exceeding,
    /// The control has not announced the sender.
    Unannounced,
}

/// Counters of frames of the guaranteed class, by verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InwardStats {
    /// Frames and their bytes on the wire with [`Admission::Conforming`].
    pub conforming: WireCount,
    /// Frames and their bytes on the wire with [`Admission::Exceeding`].
    pub exceeding: WireCount,
    /// Frames and their bytes on the wire with [`Admission::Unannounced`].
    pub unannounced: WireCount,
}

/// Policer of the traffic to one guest. The module describes it.
#[derive(Debug)]
pub struct Inward {
    config: InwardConfig,
    /// The bucket of all senders together.
    all: Bucket,
    senders: BTreeMap<SenderId, Sender>,
    /// Owner of each source address.
    sources: BTreeMap<u128, SenderId>,
    stats: InwardStats,
}

impl Inward {
    /// Creates a policer without senders.
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

    /// Joint guarantee of the senders.
    pub const fn config(&self) -> &InwardConfig {
        &self.config
    }

    /// Replaces the joint guarantee from `now` on. Buckets keep their tokens up to their new
    /// depths.
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

    /// Adds a sender with its sources: stations (as [`FlowKey::station`](crate::FlowKey::station))
    /// and addresses (IPv4 as IPv4-mapped IPv6). A new sender has a full bucket with a rate of
    /// zero; a known one keeps its bucket. A source of another sender moves to this one.
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

    /// Ends the guarantee of a sender.
    pub fn remove_sender(&mut self, id: SenderId) {
        self.sources.retain(|_, owner| *owner != id);
        self.senders.remove(&id);
    }

    /// Sets the rate of a sender: immediately if the new rate is higher, else after `jitter` to
    /// twice `jitter`. Unknown senders are ignored.
    pub fn set_rate(&mut self, now: Nanos, id: SenderId, rate: Rate) {
        if let Some(sender) = self.senders.get_mut(&id) {
            sender.set_rate(now, faster(rate), &self.config);
        }
    }

    /// Returns the sender that owns a source; `None` if the source was not announced.
    pub fn sender(&self, source: u128) -> Option<SenderId> {
        self.sources.get(&source).copied()
    }

    /// Accounts a frame of the guaranteed class at `now`: `from` is its sender, `wire` its length
    /// on the wire.
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

    /// Counters since the start.
    pub const fn stats(&self) -> InwardStats {
        self.stats
    }
}

fn count(counter: &mut WireCount, wire: WireBytes) {
    counter.packets += 1;
    counter.bytes += wire;
}

/// Returns a rate by the fastest permitted clock.
const fn faster(rate: Rate) -> Rate {
    rate.saturating_add(Rate(rate.0.div_ceil(1024)))
}

/// A VM that sends to the guest.
#[derive(Debug)]
struct Sender {
    bucket: Bucket,
    /// The current rate.
    rate: Rate,
    /// The highest rates of the present window and of the one before: windows are `jitter` long, so
    /// both cover at least the last `jitter`.
    recent: Rate,
    before: Rate,
    /// Begin of the next window.
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

    /// Advances the windows and the bucket to `now`.
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

    /// Sets the bucket's rate to the highest one at which frames that arrive now may have left.
    fn follow(&mut self, now: Nanos, config: &InwardConfig) {
        let (rate, depth) = self.shape(config);
        self.bucket.follow(now, rate, depth);
    }

    /// Does the same after a change of the configuration.
    fn reshape(&mut self, now: Nanos, config: &InwardConfig) {
        let (rate, depth) = self.shape(config);
        self.bucket.reshape(now, rate, depth);
    }

    fn shape(&self, config: &InwardConfig) -> (Rate, Work) {
        let rate = self.recent.max(self.before);
        (rate, config.depth(config.each(), rate))
    }
}

/// The continuous-state leaky bucket of ITU-T I.371, in exact arithmetic, with variable rate and
/// depth.
#[derive(Debug)]
struct Bucket {
    rate: Rate,
    depth: Work,
    /// Charged work that has not drained at `at`.
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

    /// Sets another rate and its depth, and keeps the level: the permitted burst grows with a
    /// higher rate and shrinks by the same amount with a lower one.
    fn follow(&mut self, now: Nanos, rate: Rate, depth: Work) {
        self.drain(now);
        self.rate = rate;
        self.depth = depth;
    }

    /// Sets another rate and depth, and keeps the permitted burst up to the new depth.
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
