//! Configuration of a pacer, and its rules.

use super::{void, wheel};
use crate::queue::{FqCodelConfig, QueueConfig};
use crate::{GuestId, Packet};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tailbound_units::{Bytes, Nanos, Rate, WireBytes};

/// The link and how the pacer fills it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct PacerConfig {
    /// The rate of the link, including preambles and gaps: 1 Mbit/s to 1 Tbit/s.
    pub link: Rate,
    /// The transmit time of one batch; 50 us (Silo, 5), or one longest frame's on a slow link. The
    /// NIC holds at most one batch, and a frame waits at most one batch behind frames already
    /// handed over.
    #[serde(default = "defaults::unset_batch")]
    pub batch: Nanos,
    /// True: gaps are filled with void frames. True by default; set it to false for a NIC that
    /// keeps launch times itself.
    #[serde(default = "defaults::voids")]
    pub voids: bool,
    /// The longest frame on the wire; 1,538 B, which is 1,500 B of payload. Add 4 B for each VLAN
    /// tag that guests may use.
    #[serde(default = "defaults::frame")]
    pub frame: Bytes,
    /// The longest delay that the pacer makes up for at the link's rate, in bursts of this length.
    /// 0 by default: each guest makes up for delays within its own burst and burst rate, and every
    /// interval conforms.
    #[serde(default)]
    pub catch_up: Nanos,
    /// The memory for queued frames of all guaranteed guests; 512 MiB by default, at least 1 MiB. A
    /// guest's share is 20 ms of its rate, at least 2 MiB, scaled down in proportion if the shares
    /// exceed the total. One destination may hold a quarter of the guest's share.
    #[serde(default = "defaults::memory")]
    pub memory: Bytes,
    /// The queue of frames without a guarantee; FQ-CoDel by default.
    #[serde(default = "defaults::best_effort")]
    pub best_effort: QueueConfig,
    /// True: a guest may exceed its guarantee while the link is idle; flows that wait for {B, S}
    /// become elastic. True by default.
    #[serde(default = "defaults::work_conserving")]
    pub work_conserving: bool,
    /// The pause between a flow's last elastic frame and its first guaranteed one; 1 ms by default,
    /// at most 1 s. It must cover the longest queueing delay of the lowest class in the network, or
    /// frames can be reordered.
    #[serde(default = "defaults::drain")]
    pub drain: Nanos,
}

mod defaults {
    use super::{Bytes, FqCodelConfig, Nanos, QueueConfig};

    pub(super) const fn batch() -> Nanos {
        Nanos::from_micros(50)
    }
    /// Longer than any valid batch: replaced once link and frame are known.
    pub(super) const fn unset_batch() -> Nanos {
        Nanos(u64::MAX)
    }
    pub(super) const fn voids() -> bool {
        true
    }
    pub(super) const fn frame() -> Bytes {
        Bytes(1538)
    }
    pub(super) const fn memory() -> Bytes {
        Bytes(512 << 20)
    }
    pub(super) fn best_effort() -> QueueConfig {
        QueueConfig::FqCodel(FqCodelConfig::default())
    }
    pub(super) const fn work_conserving() -> bool {
        true
    }
    pub(super) const fn drain() -> Nanos {
        Nanos::from_millis(1)
    }
    pub(super) const fn horizon() -> Nanos {
        Nanos::from_millis(2)
    }
    #[expect(
        clippy::unnecessary_wraps,
        reason = "the default of a field that may be none"
    )]
    pub(super) const fn mark() -> Option<Nanos> {
        Some(Nanos::from_millis(1))
    }
}

impl<'de> Deserialize<'de> for PacerConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut config = Self::deserialize(deserializer)?;
        if config.batch == defaults::unset_batch() {
            config.batch = config.least_batch().max(defaults::batch());
        }
        Ok(config)
    }
}

impl Serialize for PacerConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl PacerConfig {
    /// Creates a configuration for a wire of `link` with the defaults.
    pub fn new(link: Rate) -> Self {
        let frame = defaults::frame();
        Self {
            link,
            batch: link.time_for(frame).max(defaults::batch()),
            voids: defaults::voids(),
            frame,
            catch_up: Nanos::ZERO,
            memory: defaults::memory(),
            best_effort: defaults::best_effort(),
            work_conserving: defaults::work_conserving(),
            drain: defaults::drain(),
        }
    }

    /// The shortest batch that holds a longest frame.
    pub const fn least_batch(&self) -> Nanos {
        self.link.time_for(self.frame)
    }

    /// Creates a configuration without elastic flows: guests never exceed their guarantees, even if
    /// the wire is idle.
    pub fn strict(link: Rate) -> Self {
        Self {
            work_conserving: false,
            ..Self::new(link)
        }
    }

    /// The batch in bytes of the wire, if the wire follows the rules.
    pub(super) fn batch_on_the_wire(&self) -> Result<WireBytes, PacerError> {
        let Self { link, frame, .. } = *self;
        if !(1_000_000..=1_000_000_000_000).contains(&link.0) {
            return Err(PacerError::Link(link));
        }
        let batch = link.bytes_in(self.batch);
        if frame < void::SHORTEST.into() || frame > batch || frame > MAX_FRAME.into() {
            return Err(PacerError::Frame { frame, batch });
        }
        if self.memory < LEAST_MEMORY {
            return Err(PacerError::Memory(self.memory));
        }
        if self.drain > MOST_DRAIN {
            return Err(PacerError::Drain(self.drain));
        }
        Ok(batch.into())
    }

    /// `catch_up` in bytes of the wire, limited so that departures stay within a wheel's range.
    pub(super) fn catch_up_on_the_wire(&self) -> WireBytes {
        let length = WireBytes::from(self.link.bytes_in(self.catch_up));
        length.min(wheel::RANGE / 4)
    }

    /// The longest frame.
    #[inline]
    pub(super) fn longest_frame(&self) -> WireBytes {
        self.frame.into()
    }
}

/// Guarantee of a guest: Silo's {B, S, Bmax} (4.1), and the treatment of excess frames. Sizes and
/// rates are those on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guarantee {
    /// B, the average bandwidth.
    pub bandwidth: Rate,
    /// S, the burst that the guest may send after it sent less than B; at least one frame.
    pub burst: Bytes,
    /// Bmax, the rate of a burst; at least B.
    pub burst_rate: Rate,
    /// The limit of queued frames that wait for B, as the time in which the guest may send them; 2
    /// ms, at least a batch. Beyond it the guest's next frames stay in its ring.
    #[serde(default = "defaults::horizon")]
    pub horizon: Nanos,
    /// The queueing delay from which frames are marked (ECN) if it lasts for twenty times as long,
    /// or dropped if they wait for their destination's limit (`CoDel`'s target, RFC 8289); 1 ms, or
    /// the time of one and a half frames at a slower destination's limit. `None`: never.
    #[serde(default = "defaults::mark")]
    pub mark: Option<Nanos>,
}

impl Guarantee {
    /// Creates a guarantee {B, S, Bmax} with the default horizon and mark.
    pub const fn new(bandwidth: Rate, burst: Bytes, burst_rate: Rate) -> Self {
        Self {
            bandwidth,
            burst,
            burst_rate,
            horizon: defaults::horizon(),
            mark: defaults::mark(),
        }
    }
}

/// The rule that a configuration or a guarantee breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PacerError {
    /// The link's rate is out of range.
    #[error("link {0} is not between 1Mbit/s and 1Tbit/s")]
    Link(Rate),
    /// The longest frame is no Ethernet frame, or does not fit into a batch.
    #[error("frame {frame} is not between 84B and what the link carries in a batch, {batch}")]
    Frame {
        /// The longest frame.
        frame: Bytes,
        /// Capacity of the link in a batch.
        batch: Bytes,
    },
    /// The slot is beyond the maximum number of guests.
    #[error("guest {0} is not below {MAX_GUESTS}")]
    Guest(usize),
    /// Frames of the previous guest of the slot still wait.
    #[error("frames of guest {former} wait in the slot of guest {id}")]
    Occupied {
        /// The new guest of the slot.
        id: GuestId,
        /// The previous guest.
        former: GuestId,
    },
    /// The bandwidth is zero, so the guest would never send.
    #[error("bandwidth is zero")]
    NoBandwidth,
    /// The burst is less than one frame.
    #[error("burst {burst} is below one frame on the wire, {frame}")]
    BurstBelowFrame {
        /// The configured burst S.
        burst: Bytes,
        /// The longest frame.
        frame: Bytes,
    },
    /// The burst rate is less than the bandwidth.
    #[error("burst rate {burst_rate} is below the bandwidth, {bandwidth}")]
    BurstRateBelowBandwidth {
        /// The configured burst rate Bmax.
        burst_rate: Rate,
        /// The configured bandwidth B.
        bandwidth: Rate,
    },
    /// The rate exceeds the link's.
    #[error("rate {rate} is above the link's, {link}")]
    AboveLink {
        /// B, `B_i` or Bmax.
        rate: Rate,
        /// The link's rate.
        link: Rate,
    },
    /// The sum of all guarantees exceeds the link's rate.
    #[error("all bandwidths together would be {sum}, above the link's {link}")]
    SumAboveLink {
        /// The sum with this guest's.
        sum: Rate,
        /// The link's rate.
        link: Rate,
    },
    /// A frame at this rate would take longer than the range of departures.
    #[error("rate {rate} is below 1/{MAX_RATIO} of the link's, {link}")]
    TooSlow {
        /// B or `B_i`.
        rate: Rate,
        /// The link's rate.
        link: Rate,
    },
    /// The burst takes longer than the range of the buckets.
    #[error("burst {0} is too long at that rate")]
    BurstTooLong(Bytes),
    /// The horizon is less than a batch, so that the next batch would miss frames that stay in the
    /// ring; or it exceeds the range of a wheel.
    #[error("horizon {horizon} is not between a batch, {batch}, and {most}")]
    Horizon {
        /// The horizon.
        horizon: Nanos,
        /// The batch.
        batch: Nanos,
        /// The longest.
        most: Nanos,
    },
    /// The memory is less than one large packet and its segments need.
    #[error("memory {0} is below {LEAST_MEMORY}")]
    Memory(Bytes),
    /// The pause of `drain` is too long.
    #[error("drain {0} is above {MOST_DRAIN}")]
    Drain(Nanos),
    /// The guest has no guarantee, so its destinations have no limits.
    #[error("guest {0} has no guarantee")]
    NotGuaranteed(GuestId),
}

/// Maximum number of guests; slots are numbered from zero.
pub const MAX_GUESTS: usize = 1 << 20;

/// Maximum ratio of the link's rate to a guarantee's: the departure of a longest frame is then far
/// within the range of a wheel.
pub const MAX_RATIO: u64 = 1_000_000;

/// Returns the lowest rate that can be counted on a link.
pub(super) const fn slowest(link: Rate) -> Rate {
    Rate(link.0.div_ceil(MAX_RATIO))
}

/// Minimum of [`PacerConfig::memory`].
const LEAST_MEMORY: Bytes = Bytes(1 << 20);

/// Maximum of [`PacerConfig::drain`].
const MOST_DRAIN: Nanos = Nanos::from_secs(1);

/// Maximum length of an Ethernet frame on the wire, including large packets.
pub(super) const MAX_FRAME: WireBytes = void::on_the_wire(Packet::MAX_FRAME);
