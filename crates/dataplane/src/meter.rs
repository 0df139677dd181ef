//! Flow meter and tagger (Small is Better, 4.3).
//!
//! A flow is all IP packets from one guest to one destination address. Each has a token bucket of
//! `rate` and `burst`: a packet that finds enough tokens takes them and belongs to a small flow
//! ([`tailbound_classes::Traffic::SmallFlow`]), any other is [`tailbound_classes::Traffic::Bulk`].
//! So a flow is classified by its rate, before the packet leaves, and a large packet by all its
//! bytes, before it is segmented.
//!
//! **A flow that became large** stays large until its next check, `recheck` after it became large
//! and then every `recheck`. Meanwhile its bucket continues to fill at `rate`, and each of its
//! packets is charged as debt, down to `-burst`. A check makes the flow small again when the bucket
//! holds the packet and is at least half full. So:
//! - a flow that continues above `rate` stays in debt, and stays large;
//! - one that falls silent is out of debt and half full after at most 1.5·`burst`/`rate` (36 ms by
//!   default), and small at its next check;
//! - one that falls below `rate` follows as its surplus fills the bucket;
//! - one that sends at exactly `rate` does not flap: it must save half a burst first.
//!
//! **A guest has a budget** for all its small flows together, and all guests have a joint one
//! ([`Share`]): otherwise many small flows would equal a large one, whether an attacker opens them
//! or a shuffle among a hundred peers does. A flow that meets an empty budget becomes large as one
//! above its rate does, so its frames do not alternate between two classes. A guest also has a
//! share of the flow table: when the table is full, a guest above its share loses its own oldest
//! flow.
//!
//! **Frames without IP** to one station (ARP answers, for example) are one flow of the guest, for
//! all destinations: a few such frames have priority, a flood has not.
//!
//! Tokens are counted in bits times nanoseconds per second, so that both a byte (8·10^9) and a
//! nanosecond (`rate`) are whole numbers: no remainder is lost, and a packet needs no division.
//! This is the unit of [`tailbound_units::exact::Work`], but signed and without its saturation: a
//! flow that was silent for longer than its bucket takes to fill needs no multiplication, and
//! `Work` would cost each packet eight instructions more, 6 % of all.
//!
//! The cost of a packet is bounded: one look-up, and at most two idle flows collected, when a flow
//! is added or is used for the first time in 67 ms.

mod budget;
mod table;

pub use budget::Share;

use crate::{FlowKey, Frame, GuestId, HashKeys};
use budget::Budgets;
use serde::{Deserialize, Serialize};
use table::{Table, Touched};
use tailbound_units::exact::BYTE_IN_NANOS;
use tailbound_units::{Bytes, Nanos, Rate};

/// Classifies flows: a flow within its token bucket is small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MeterConfig {
    /// Rate of a flow's token bucket; 10 Mbit/s.
    pub rate: Rate,
    /// Depth of this bucket; 30 KB, at most 250 MB.
    pub burst: Bytes,
    /// Interval of reclassification of large flows; 100 ms.
    pub recheck: Nanos,
    /// Idle time until a flow is evicted; 10 s.
    pub idle: Nanos,
    /// Maximum of tracked flows; 65,536 (about 5 MB). A full table evicts the longest idle flow of
    /// a guest above its share.
    pub flows: usize,
    /// Rate of a guest's small flows together; a quarter of the link divided by the guests. The
    /// link is `nic.rate` or `pacer.link`; an uplink's meter needs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Rate>,
    /// The rate of the link that the guests share; their small flows may use a quarter of it.
    /// `None`: unknown, and only `budget` applies.
    #[serde(skip)]
    pub link: Option<Rate>,
}

impl Default for MeterConfig {
    fn default() -> Self {
        Self {
            rate: Rate::from_mbit(10),
            burst: Bytes(30_000),
            recheck: Nanos::from_millis(100),
            idle: Nanos::from_secs(10),
            flows: 65_536,
            budget: None,
            link: None,
        }
    }
}

impl MeterConfig {
    /// Budgets of small flows for this number of guests.
    pub fn share(&self, guests: usize) -> Share {
        Share::new(self.budget, self.link, guests)
    }
}

/// Counters of the meter since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MeterStats {
    /// Packets of small flows.
    pub small: u64,
    /// All other packets.
    pub bulk: u64,
    /// Times that a flow became large.
    pub demoted: u64,
    /// Times that a check made a flow small again.
    pub promoted: u64,
    /// Packets of small flows that found the budget of their guest or of all guests spent.
    pub over_budget: u64,
    /// Flows that were forgotten because they were idle.
    pub collected: u64,
    /// Flows that were forgotten because the table was full.
    pub evicted: u64,
}

/// Granularity of the order in which flows are forgotten: 2^26 ns are 67 ms, small compared with
/// the seconds after which a flow is idle.
const GRAIN_BITS: u32 = 26;

/// The work of a byte.
const BYTE: i64 = BYTE_IN_NANOS.cast_signed();

/// Maximum of a bucket: 63 bits hold three times its tokens, and the cost of the longest frame
/// below its deepest debt.
const MAX_BURST: u64 = 250_000_000;

/// A flow meter. The module describes it.
#[derive(Debug)]
pub struct Meter {
    config: MeterConfig,
    /// A full bucket.
    full: i64,
    /// Nanoseconds in which even the deepest debt becomes a full bucket.
    fill_time: u64,
    flows: Table<Bucket, GRAIN_BITS>,
    budgets: Budgets,
    /// The number of guests that share the meter.
    guests: usize,
    /// Counters. The table counts collected and evicted flows itself; the counts of earlier tables
    /// are here.
    pub(crate) stats: MeterStats,
}

#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    tokens: i64,
    /// Time at which a large flow is checked again; zero for a small flow.
    check_at: Nanos,
}

impl Bucket {
    /// Processes a packet of a large flow, or of one that becomes large with it. Returns true if
    /// the flow is small again. `affords` checks whether the flow may be small again, and if so,
    /// charges the packet to the budgets.
    #[inline(never)]
    fn large(
        &mut self,
        now: Nanos,
        recheck: Nanos,
        affords: impl FnOnce() -> bool,
        stats: &mut MeterStats,
    ) -> bool {
        if now >= self.check_at {
            let was_large = self.check_at != Nanos::ZERO;
            if was_large && affords() {
                self.check_at = Nanos::ZERO;
                stats.promoted += 1;
                stats.small += 1;
                return true;
            }
            stats.demoted += u64::from(!was_large);
            self.check_at = now.saturating_add(recheck).max(Nanos(1));
        }
        stats.bulk += 1;
        false
    }
}

impl Meter {
    /// Creates a meter without flows, and allocates its table.
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
            budgets: Budgets::new(config, burst),
            guests: 1,
            stats: MeterStats::default(),
        }
    }

    /// The configuration.
    pub const fn config(&self) -> &MeterConfig {
        &self.config
    }

    /// Divides the table and the joint budget among this number of guests from now on. The default
    /// is one guest.
    pub fn set_guests(&mut self, guests: usize) {
        self.flows.share_among(guests);
        self.budgets.set_share(self.config.share(guests));
        self.guests = guests;
    }

    /// Counters since the start.
    pub fn stats(&self) -> MeterStats {
        MeterStats {
            over_budget: self.stats.over_budget + self.budgets.refused,
            collected: self.stats.collected + self.flows.collected,
            evicted: self.stats.evicted + self.flows.evicted,
            ..self.stats
        }
    }

    /// Number of known flows.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Checks whether a frame from guest `source` to one station at `now` belongs to a small flow.
    pub fn is_small<F: Frame>(&mut self, now: Nanos, source: GuestId, frame: &F) -> bool {
        let key = frame.flow().unwrap_or(FlowKey {
            source,
            destination: NOT_IP,
        });
        self.is_of_small_flow(now, key, frame.len())
    }

    /// Checks whether flow `key`, with a packet of `len` bytes at `now`, is small. `now` never
    /// decreases.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "one caller, once for every packet")]
    pub fn is_of_small_flow(&mut self, now: Nanos, key: FlowKey, len: usize) -> bool {
        let Touched {
            value: bucket,
            since_last,
            first,
        } = self.flows.touch(now, key, || Bucket {
            tokens: self.full,
            check_at: Nanos::ZERO,
        });
        let full = self.full;
        let cost = (len.cast_signed() as i64).wrapping_mul(BYTE);
        let mut tokens = full;
        if since_last.0 < self.fill_time {
            // Less than twice a full bucket, as less than `fill_time` passed.
            let gain = since_last.0 * self.config.rate.0;
            tokens = tokens.min(bucket.tokens + gain.cast_signed());
        }
        let left = tokens - cost;
        if left >= 0 && bucket.check_at == Nanos::ZERO && self.budgets.take(now, key.source, cost) {
            bucket.tokens = left;
            self.stats.small += 1;
            self.flows.touched(now, first);
            return true;
        }
        let promotable = left >= 0 && tokens >= full / 2;
        bucket.tokens = left.max(-full);
        let is_small = {
            let budgets = &mut self.budgets;
            let affords = move || promotable && budgets.fill_and_take(now, key.source, cost);
            bucket.large(now, self.config.recheck, affords, &mut self.stats)
        };
        self.flows.touched(now, first);
        is_small
    }

    /// Changes the configuration. Known flows keep their tokens up to the new depth, and stay large
    /// or small.
    pub fn reconfigure(&mut self, config: &MeterConfig) {
        let mut next = Self::new(config);
        next.set_guests(self.guests);
        next.stats = self.stats();
        self.flows.move_into(&mut next.flows);
        let full = next.full;
        next.flows
            .for_each(|bucket| bucket.tokens = bucket.tokens.clamp(-full, full));
        *self = next;
    }
}

/// Destination of all frames without IP: the unspecified address, which no packet is sent to.
const NOT_IP: u128 = 0;

#[cfg(test)]
mod tests;
