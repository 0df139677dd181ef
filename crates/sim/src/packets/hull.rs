//! HULL's pacer (Alizadeh et al., "Less is more", NSDI 2012, 4.2): a token bucket between a host's
//! transport and its link, for flows that react to congestion.
//!
//! A flow is paced for a fixed time after an acknowledgement with a mark, one in eight of these, so
//! that short flows seldom are. Frames of paced flows wait for the bucket, whose rate R follows
//! their rate: each interval T, R becomes (1 - η)·R + η·M/T + β·Q, where M arrived in the interval
//! and Q is queued. The initial rate is the link's.

use super::pool::{Frames, List};
use crate::net::Time;
use serde::Deserialize;
use tailbound_experiment::Section;
use tailbound_units::{Nanos, Rate};

/// HULL's pacer, with the paper's values by default.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HullPacer {
    /// Interval of rate updates (T).
    pub interval: Nanos,
    /// Weight of the new rate (η).
    pub gain: f64,
    /// Increase of the rate per queued bit, in bit/s (β).
    pub backlog: f64,
    /// Probability that a marked acknowledgement starts pacing of its flow.
    pub chance: f64,
    /// Time of this pacing.
    pub lasts: Nanos,
}

impl Default for HullPacer {
    fn default() -> Self {
        Self {
            interval: Nanos::from_micros(64),
            gain: 0.125,
            backlog: 16.0,
            chance: 0.125,
            lasts: Nanos::from_millis(10),
        }
    }
}

impl HullPacer {
    pub(super) fn check(&self, section: &mut Section<'_>) {
        let intervals = Nanos::from_micros(1)..=Nanos::from_millis(10);
        section.range("interval", self.interval, intervals);
        section.range("gain", self.gain, 0.001..=1.0);
        section.range("backlog", self.backlog, 0.0..=1e6);
        section.range("chance", self.chance, 0.0..=1.0);
        let times = Nanos::from_micros(1)..=Nanos::from_secs(10);
        section.range("lasts", self.lasts, times);
    }
}

/// Capacity of a bucket, in bytes: one frame, so that frames leave one by one.
const DEPTH: f64 = 1_538.0;
/// Lowest rate as a share of the link's rate, so that no frame waits forever.
const MIN_LINK_SHARE: f64 = 0.001;
/// Number of intervals without a frame after which the rate is the link's again.
const FORGETS: u64 = 1_000;

/// State of a host's pacer.
#[derive(Debug)]
pub(super) struct Bucket {
    config: HullPacer,
    /// Rate of the link, in bytes per picosecond.
    link: f64,
    /// Rate of the bucket, in bytes per picosecond.
    rate: f64,
    tokens: f64,
    /// Time of the last update of the tokens.
    at: Time,
    /// End of the interval.
    ends: Time,
    /// Bytes that arrived in the interval.
    came: f64,
    /// Queued frames, and their bytes.
    pub(super) waiting: List,
    bytes: f64,
    /// Size of the first of them.
    first: f64,
}

impl Bucket {
    pub(super) fn new(config: HullPacer, link: Rate) -> Self {
        let link = link.0 as f64 / 8e12;
        Self {
            config,
            link,
            rate: link,
            tokens: DEPTH,
            at: Time::ZERO,
            ends: config.interval.into(),
            came: 0.0,
            waiting: List::EMPTY,
            bytes: 0.0,
            first: 0.0,
        }
    }

    /// Returns the time of the next [`Bucket::pop`].
    pub(super) fn poll_at(&self) -> Time {
        if self.waiting.is_empty() {
            return Time::NEVER;
        }
        let lacks = (self.first - self.tokens).max(0.0);
        let full = self.at + Time((lacks / self.rate).ceil() as u64);
        full.min(self.ends)
    }

    /// Queues a frame, by its place in the pool.
    pub(super) fn push(&mut self, now: Time, frames: &mut Frames, place: u32) {
        self.go_on(now);
        let size = f64::from(frames.packet(place).size);
        if self.waiting.is_empty() {
            self.first = size;
        }
        self.came += size;
        self.bytes += size;
        self.waiting.push(frames, place, Time::NEVER);
    }

    /// Returns the frame that may leave, if there is one.
    pub(super) fn pop(&mut self, now: Time, frames: &mut Frames) -> Option<u32> {
        self.go_on(now);
        // Times are whole picoseconds.
        if self.waiting.is_empty() || self.tokens + 1e-3 < self.first {
            return None;
        }
        let place = self.waiting.pop(frames)?;
        self.tokens -= self.first;
        self.bytes -= self.first;
        self.first = self.waiting.first_size(frames);
        Some(place)
    }

    /// Adds tokens, and updates the rate at the end of each interval.
    fn go_on(&mut self, now: Time) {
        while self.ends <= now {
            let silent = now.since(self.ends).0 / Time::from(self.config.interval).0;
            if self.waiting.is_empty() && self.came == 0.0 && silent > FORGETS {
                self.rate = self.link;
                self.tokens = DEPTH;
                (self.at, self.ends) = (now, now + self.config.interval.into());
                return;
            }
            self.fill(self.ends);
            let interval = Time::from(self.config.interval);
            let came = self.came / interval.0 as f64;
            // β is for bits and bit/s, and equally for bytes and bytes a second.
            let backlog = self.config.backlog * self.bytes / 1e12;
            let rate = (1.0 - self.config.gain) * self.rate + self.config.gain * came + backlog;
            self.rate = rate.clamp(MIN_LINK_SHARE * self.link, self.link);
            self.came = 0.0;
            self.ends = self.ends + interval;
        }
        self.fill(now);
    }

    fn fill(&mut self, now: Time) {
        let new = now.since(self.at).0 as f64 * self.rate;
        self.tokens = (self.tokens + new).min(DEPTH.max(self.first));
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::packet::tests::frame;
    use crate::packets::pool::Pool;

    /// Sends `number` frames of 1500 B at intervals of `apart`; returns the departure times.
    fn departures(apart: Time, number: u32) -> Vec<Time> {
        let pool = Pool::new();
        let frames = &mut *pool.0.borrow_mut();
        let mut bucket = Bucket::new(HullPacer::default(), Rate::from_mbit(10_000));
        let mut left = Vec::new();
        let mut drain = |bucket: &mut Bucket, frames: &mut Frames, until: Time| {
            while bucket.poll_at() <= until {
                let now = bucket.poll_at();
                if let Some(place) = bucket.pop(now, frames) {
                    frames.free(place);
                    left.push(now);
                }
            }
        };
        for turn in 0..number {
            let now = Time(apart.0 * u64::from(turn / 16) * 16);
            drain(&mut bucket, frames, now);
            let place = frames.put(frame(0, turn));
            bucket.push(now, frames, place);
        }
        drain(&mut bucket, frames, Time(u64::MAX / 2));
        left
    }

    /// Frames arrive in bursts of 16, one per 12 us on average: 1 Gbit/s of 10. They leave one by
    /// one at that rate.
    #[test]
    fn bursts_leave_at_the_rate_at_which_they_come_on_average() {
        let left = departures(Time(12_000_000), 6_400);
        assert_eq!(left.len(), 6_400);
        let steady = &left[3_200..];
        let gaps = steady
            .windows(2)
            .map(|pair| pair[1].since(pair[0]).0 as f64 / 1e6);
        let gaps: Vec<f64> = gaps.collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((mean - 12.0).abs() < 0.2, "{mean} us");
        // Without a pacer they would be 1.2 us apart, and then 174.
        let [least, most] = [f64::min, f64::max].map(|pick| gaps.iter().copied().fold(mean, pick));
        assert!(least > 6.0 && most < 36.0, "{least} to {most} us");
    }

    /// The initial rate is the link's, and earlier frames are forgotten.
    #[test]
    fn the_first_frames_go_at_the_links_rate() {
        let left = departures(Time::ZERO, 3);
        assert_eq!(left[0], Time::ZERO);
        assert!(left[2] < Time(3_000_000), "{left:?}");
    }
}
