//! Senders that conform to their envelope, and use it.

use super::{Frame, Node, Time};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tailbound_units::exact::{BYTE_IN_PICOS, TokenBucket};
use tailbound_units::{Bytes, Nanos, Rate};

/// Limit of the data that a sender may send in any time t: `min(burst_rate · t + frame, rate · t +
/// burst)`, the curve A' of Silo's figure 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// B, the average rate.
    pub rate: Rate,
    /// S, the burst: at least a frame.
    pub burst: Bytes,
    /// Bmax, the rate of a burst; unlimited if `None`.
    pub burst_rate: Option<Rate>,
    /// The longest frame on the wire, including all overhead.
    pub frame: Bytes,
}

/// Pattern of a sender within its envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// All data at the earliest permitted times: the burst, then the average rate.
    Greedy,
    /// The whole burst, then a pause: until the bucket is full again and `pause` has passed.
    Bursts {
        /// Time from the full bucket until the next burst.
        pause: Nanos,
    },
    /// Frames of any length with pauses of any length between them, within the envelope.
    Random,
}

/// Configuration of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceConfig {
    /// Envelope of the sender.
    pub envelope: Envelope,
    /// Pattern of the sender.
    pub pattern: Pattern,
    /// Time of its begin, with full buckets: it has been idle before.
    pub start: Time,
    /// Time after which it begins no frame.
    pub stop: Time,
    /// Class of its frames.
    pub class: u8,
}

/// The shortest frame: 64 bytes, preamble and gap.
const SHORTEST: Bytes = Bytes(84);

fn bucket(rate: Rate, burst: Bytes) -> TokenBucket<Time> {
    TokenBucket::new(BYTE_IN_PICOS, rate, burst.into()).expect("days at most")
}

/// A sender.
#[derive(Debug, Clone)]
pub struct Source {
    config: SourceConfig,
    flow: u32,
    route: u32,
    average: TokenBucket<Time>,
    fast: Option<TokenBucket<Time>>,
    /// Number of frames sent.
    sent: u32,
    /// True if the rest of the burst, which is shorter than a whole frame, was sent.
    rest_sent: bool,
    /// Time and length of the next frame.
    next: (Time, Bytes),
    random: Pcg64Mcg,
}

impl Source {
    /// Returns a sender of a flow whose first node is at `route` of the simulation's routes. Random
    /// decisions follow from `seed`.
    ///
    /// # Panics
    /// A rate is zero, or the burst is below a frame or takes longer than 13 days.
    pub fn new(config: SourceConfig, flow: u32, route: u32, seed: u64) -> Self {
        let Envelope {
            rate,
            burst,
            burst_rate,
            frame,
        } = config.envelope;
        assert!(rate.0 > 0 && burst_rate.is_none_or(|rate| rate.0 > 0));
        assert!(burst >= frame && frame.0 > 0, "a burst is a frame at least");
        let mut source = Self {
            config,
            flow,
            route,
            average: bucket(rate, burst),
            fast: burst_rate.map(|rate| bucket(rate, frame)),
            sent: 0,
            rest_sent: false,
            next: (Time::NEVER, frame),
            random: Pcg64Mcg::seed_from_u64(seed),
        };
        source.plan(config.start);
        source
    }

    /// Number of frames sent so far.
    pub fn sent(&self) -> u32 {
        self.sent
    }

    /// Returns the time from which both buckets allow a frame of this size, not before `now`.
    fn allowed(&self, now: Time, size: Bytes) -> Time {
        let fast = self.fast.map_or(now, |it| it.leaves(now, size.into()));
        self.average.leaves(now, size.into()).max(fast)
    }

    /// Plans the next frame.
    fn plan(&mut self, now: Time) {
        let next = match self.config.pattern {
            Pattern::Random => self.plan_random(now),
            Pattern::Greedy => self.plan_burst(now, None),
            Pattern::Bursts { pause } => self.plan_burst(now, Some(pause)),
        };
        let begins = next.0 <= self.config.stop;
        self.next = if begins { next } else { (Time::NEVER, next.1) };
    }

    fn plan_random(&mut self, now: Time) -> (Time, Bytes) {
        let most = self.config.envelope.frame;
        let least = SHORTEST.min(most);
        let size = if self.random.random_bool(0.5) {
            most
        } else {
            Bytes(self.random.random_range(least.0..=most.0))
        };
        // Up to the fill time of the bucket, all orders of magnitude alike; half of the frames have
        // no pause.
        let longest = Time(self.average.fill_time());
        let pause = if self.random.random_bool(0.5) {
            0
        } else {
            let order = self.random.random_range(0..=longest.0.max(1).ilog2());
            self.random.random_range(0..=longest.0 >> order)
        };
        let begin = if self.sent == 0 {
            now
        } else {
            now + Time(pause)
        };
        (self.allowed(begin, size), size)
    }

    fn plan_burst(&mut self, now: Time, pause: Option<Nanos>) -> (Time, Bytes) {
        let whole = self.config.envelope.frame;
        let fast = self.fast.map_or(now, |it| it.leaves(now, whole.into()));
        if self.average.leaves(now, whole.into()) <= fast {
            return (self.allowed(now, whole), whole);
        }
        // Less than a frame is left of the burst.
        let rest = self.average.tokens(now).into();
        if rest >= SHORTEST && !self.rest_sent {
            self.rest_sent = true;
            return (self.allowed(now, rest), rest);
        }
        let Some(pause) = pause else {
            return (self.allowed(now, whole), whole);
        };
        self.rest_sent = false;
        let again = self.average.full_at() + pause.into();
        (self.allowed(again.max(now), whole), whole)
    }
}

impl Node for Source {
    fn poll_at(&self) -> Time {
        self.next.0
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Frame>) {
        // All frames of a burst without a burst rate are sent in one poll.
        while self.next.0 <= now {
            let size = self.next.1;
            self.average.charge(now, size.into());
            if let Some(fast) = &mut self.fast {
                fast.charge(now, size.into());
            }
            out.push(Frame {
                flow: self.flow,
                number: self.sent,
                size,
                class: self.config.class,
                sent: now,
                next: self.route,
            });
            self.sent += 1;
            self.plan(now);
        }
    }

    fn receive(&mut self, _: Time, _: Frame, _: &mut Vec<Frame>) {
        // No route leads to a sender.
    }
}
