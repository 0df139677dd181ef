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
//! and a packet costs no division. That is the work of
//! [`tailbound_units::exact::Work`], but signed and without its saturation: a packet
//! may be of a flow that was silent for so long that nothing has to be multiplied, and
//! `Work` costs it eight instructions more, 6 % of all.
//!
//! The work a packet costs is bounded: one look-up, and at most two idle flows
//! collected, which happens when a flow is added or is used for the first time in
//! 67 ms.

mod table;

use crate::{Class, FlowKey, Frame, HashKeys};
use serde::{Deserialize, Serialize};
use table::Table;
use tailbound_units::exact::BYTE_IN_NANOS;
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
    /// Flows that are known at once; 65,536, about 5 MB. When there is no room,
    /// the one that has been idle for longest goes (to within 10 ms).
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

/// How exact the order is in which flows are forgotten: 2^26 ns are 67 ms, little
/// beside the seconds after which a flow is idle.
const GRAIN_BITS: u32 = 26;

/// The work of a byte.
const BYTE: i64 = BYTE_IN_NANOS.cast_signed();

/// Largest bucket: 63 bits hold three times its tokens, and the cost of the
/// longest frame below its deepest debt.
const MAX_BURST: u64 = 250_000_000;

/// A flow meter. See the module.
#[derive(Debug)]
pub struct Meter {
    config: MeterConfig,
    /// A full bucket.
    full: i64,
    /// Nanoseconds in which even the deepest debt becomes a full bucket.
    fill_time: u64,
    flows: Table<Bucket, GRAIN_BITS>,
    /// Collected and evicted flows are in the table's own counters, and those of
    /// tables before it here.
    pub(crate) stats: MeterStats,
}

#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    tokens: i64,
    /// When a low flow is checked again; zero while it is high.
    check_at: Nanos,
}

impl Bucket {
    /// The class of a packet of a flow that is low, or becomes so with it.
    #[inline(never)]
    fn low(
        &mut self,
        now: Nanos,
        recheck: Nanos,
        promotable: bool,
        stats: &mut MeterStats,
    ) -> Class {
        if now >= self.check_at {
            if promotable {
                self.check_at = Nanos::ZERO;
                stats.promoted += 1;
                stats.high += 1;
                return Class::High;
            }
            stats.demoted += u64::from(self.check_at == Nanos::ZERO);
            self.check_at = now.saturating_add(recheck).max(Nanos(1));
        }
        stats.best_effort += 1;
        Class::BestEffort
    }
}

impl Meter {
    /// A meter that knows no flow. Its table is allocated here.
    pub fn new(config: &MeterConfig) -> Self {
        Self::with_keys(config, HashKeys::random())
    }

    /// The same with given keys for its table.
    pub fn with_keys(config: &MeterConfig, keys: HashKeys) -> Self {
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
            flows: Table::new(config.flows, config.idle, keys),
            stats: MeterStats::default(),
        }
    }

    /// What it has done so far.
    pub fn stats(&self) -> MeterStats {
        MeterStats {
            collected: self.stats.collected + self.flows.collected,
            evicted: self.stats.evicted + self.flows.evicted,
            ..self.stats
        }
    }

    /// How many flows it knows.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Decides the class of a frame at `now` and writes it into the frame. A
    /// frame without a source guest is left as it is.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "one caller, once for every packet")]
    pub fn tag<F: Frame>(&mut self, now: Nanos, frame: &mut F) {
        let Some(source) = frame.source() else { return };
        let key = frame.flow().unwrap_or(FlowKey {
            source,
            destination: NOT_IP,
        });
        // Two calls, so that each is compiled for its class.
        match self.class(now, key, frame.len()) {
            Class::High => frame.set_class(Class::High),
            Class::BestEffort => frame.set_class(Class::BestEffort),
        }
    }

    /// The class of a packet of `len` bytes that flow `key` sends at `now`, which
    /// never goes back.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "one caller, once for every packet")]
    pub fn class(&mut self, now: Nanos, key: FlowKey, len: usize) -> Class {
        let fresh = Bucket {
            tokens: self.full,
            check_at: Nanos::ZERO,
        };
        let Self {
            config,
            full,
            fill_time,
            flows,
            stats,
        } = self;
        let cost = (len.cast_signed() as i64).wrapping_mul(BYTE);
        flows.touch(now, key, fresh, |bucket, since_last| {
            let mut tokens = *full;
            if since_last.0 < *fill_time {
                // Less than twice a full bucket, as less than `fill_time` passed.
                let gain = since_last.0 * config.rate.0;
                tokens = tokens.min(bucket.tokens + gain.cast_signed());
            }
            let left = tokens - cost;
            if left >= 0 && bucket.check_at == Nanos::ZERO {
                bucket.tokens = left;
                stats.high += 1;
                return Class::High;
            }
            let promotable = left >= 0 && tokens >= *full / 2;
            bucket.tokens = left.max(-*full);
            bucket.low(now, config.recheck, promotable, stats)
        })
    }

    /// Takes another configuration over. Known flows keep their tokens, as far as
    /// the new bucket holds them, and their class.
    pub fn reconfigure(&mut self, config: &MeterConfig) {
        let mut next = Self::new(config);
        next.stats = self.stats();
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
