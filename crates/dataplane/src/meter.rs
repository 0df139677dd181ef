//! Flow meter and tagger (Small is Better, 4.3).
//!
//! A flow is all IP packets from one guest to one destination address. Each has a
//! token bucket of `rate` and `burst`: a packet that finds enough tokens takes
//! them and is [`Class::High`], any other is [`Class::BestEffort`]. So a flow's
//! size is judged by its rate, before the packet goes out, and a large packet by
//! all its bytes, before it is segmented.
//!
//! **A flow that became low** stays low until it is checked again, `recheck` after
//! it became so and then every `recheck`. Meanwhile its bucket goes on filling at
//! `rate`, and each of its packets is charged as debt, down to `-burst`. A check
//! lets it become high again when the bucket holds the packet and is at least half
//! full. So:
//! - a flow that goes on above `rate` stays in debt, and stays low;
//! - one that falls silent is out of debt and half full after at most
//!   1.5·`burst`/`rate` (36 ms by default), and high at its next check;
//! - one that falls below `rate` follows as its surplus fills the bucket;
//! - one that sends at just `rate` does not flap: it has to save half a burst first.
//!
//! **What is not IP** (ARP and the like) is one flow a guest, whatever its
//! destination: a few such frames go first, a flood does not.
//!
//! Tokens are counted in bits times nanoseconds a second, so that both a byte
//! (8·10^9) and a nanosecond (`rate`) are whole numbers: no remainder is lost,
//! and a packet costs no division.
//!
//! The work a packet costs is bounded: one look-up, and at most two idle flows
//! collected.

mod table;

use crate::{Class, FlowKey, Frame};
use serde::{Deserialize, Serialize};
use table::Table;
use tailbound_units::{Bytes, Nanos, Rate};

/// What a small flow is, and how many flows are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MeterConfig {
    /// How fast a flow's bucket fills; 10 Mbit/s, 1 % of a 1 Gbit/s link.
    pub rate: Rate,
    /// What the bucket holds; 30 KB, some twenty full frames. More than 250 MB
    /// counts as that.
    pub burst: Bytes,
    /// After what time a low flow is checked again; 100 ms.
    pub recheck: Nanos,
    /// After what time without a packet a flow is forgotten; 10 s.
    pub idle: Nanos,
    /// Flows that are known at once; 65,536, about 6 MB. When there is no room,
    /// the one that has been idle for longest goes.
    pub flows: usize,
}

impl Default for MeterConfig {
    fn default() -> Self {
        Self {
            rate: Rate::from_mbit(10),
            burst: Bytes(30_000),
            recheck: Nanos::from_millis(100),
            idle: Nanos::from_secs(10),
            flows: 65_536,
        }
    }
}

/// What the meter has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MeterStats {
    /// Packets that were given the high class.
    pub high: u64,
    /// Packets that were given best effort.
    pub best_effort: u64,
    /// Times that a flow became low.
    pub demoted: u64,
    /// Times that a check made a flow high again.
    pub promoted: u64,
    /// Flows forgotten since they were idle.
    pub collected: u64,
    /// Flows forgotten since the table was full.
    pub evicted: u64,
}

/// Idle flows collected for each packet: more than the one that it may add.
const COLLECT: usize = 2;

/// Bit-nanoseconds a second in a byte.
const BYTE: i64 = 8_000_000_000;

/// Largest bucket: three times its tokens fit in 63 bits.
const MAX_BURST: u64 = 250_000_000;

/// A flow meter. See the module.
#[derive(Debug)]
pub struct Meter {
    config: MeterConfig,
    /// A full bucket.
    full: i64,
    /// Nanoseconds in which even the deepest debt becomes a full bucket.
    fill_time: u64,
    flows: Table<Bucket>,
    stats: MeterStats,
}

#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    tokens: i64,
    /// When a low flow is checked again; `None` while it is high.
    low_until: Option<Nanos>,
}

impl Meter {
    /// A meter that knows no flow. Its table is allocated here.
    pub fn new(config: &MeterConfig) -> Self {
        let burst = config.burst.0.min(MAX_BURST);
        let full = burst.cast_signed() * BYTE;
        let fill_time = match config.rate.0 {
            0 => u64::MAX,
            rate => (2 * full).cast_unsigned().div_ceil(rate),
        };
        Self {
            config: *config,
            full,
            fill_time,
            flows: Table::new(config.flows),
            stats: MeterStats::default(),
        }
    }

    /// What it has done so far.
    pub const fn stats(&self) -> &MeterStats {
        &self.stats
    }

    /// How many flows it knows.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Decides the class of a frame at `now` and writes it into the frame. A
    /// frame without a source guest is left as it is.
    pub fn tag<F: Frame>(&mut self, now: Nanos, frame: &mut F) {
        let Some(source) = frame.source() else { return };
        let key = frame.flow().unwrap_or(FlowKey {
            source,
            destination: NOT_IP,
        });
        let class = self.class(now, key, frame.len());
        frame.set_class(class);
    }

    /// The class of a packet of `len` bytes that flow `key` sends at `now`.
    pub fn class(&mut self, now: Nanos, key: FlowKey, len: usize) -> Class {
        let idle = self.config.idle;
        self.stats.collected += self.flows.collect(now, idle, COLLECT);
        let cost = i64::try_from(len).unwrap_or(i64::MAX).saturating_mul(BYTE);
        let fresh = Bucket {
            tokens: self.full,
            low_until: None,
        };
        let touched = self.flows.touch(now, key, fresh);
        self.stats.evicted += u64::from(touched.evicted);
        let bucket = touched.value;

        bucket.tokens = if touched.since_last.0 >= self.fill_time {
            self.full
        } else {
            // Less than twice a full bucket, since less than `fill_time` passed.
            let gain = touched.since_last.0 * self.config.rate.0;
            self.full.min(bucket.tokens + gain.cast_signed())
        };
        let enough = bucket.tokens >= cost;
        let high = match bucket.low_until {
            None => enough,
            Some(until) => now >= until && enough && bucket.tokens >= self.full / 2,
        };
        bucket.tokens = bucket.tokens.saturating_sub(cost).max(-self.full);
        match (high, bucket.low_until) {
            (true, None) => {}
            (true, Some(_)) => {
                bucket.low_until = None;
                self.stats.promoted += 1;
            }
            (false, Some(until)) if now < until => {}
            (false, was) => {
                bucket.low_until = Some(now.saturating_add(self.config.recheck));
                self.stats.demoted += u64::from(was.is_none());
            }
        }
        if high {
            self.stats.high += 1;
            Class::High
        } else {
            self.stats.best_effort += 1;
            Class::BestEffort
        }
    }

    /// Takes another configuration over. Known flows keep their tokens, as far as
    /// the new bucket holds them, and their class.
    pub fn reconfigure(&mut self, config: &MeterConfig) {
        let mut next = Self::new(config);
        next.stats = self.stats;
        self.flows.move_into(&mut next.flows);
        let full = next.full;
        next.flows
            .for_each(|bucket| bucket.tokens = bucket.tokens.clamp(-full, full));
        *self = next;
    }
}

/// Stands for every destination that is not an IP address: the unspecified
/// address, which no packet is sent to.
const NOT_IP: u128 = 0;

#[cfg(test)]
mod tests;
