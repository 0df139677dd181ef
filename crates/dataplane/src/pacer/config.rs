//! Configuration of a pacer, and its rules.

use super::class::{DelayClass, Rank};
use super::{void, wheel};
use crate::queue::{FqCodelConfig, QueueConfig};
use crate::{GuestId, Packet};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tailbound_units::{Bursts, Bytes, Nanos, Rate, WireBytes};

/// The paced link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct PacerConfig {
    /// Rate of the wire, 1 Mbit/s to 1 Tbit/s. Above the real rate the socket's buffer fills and
    /// the pace is lost.
    pub link: Rate,
    /// Wire time per call to the NIC; 50 us, or one longest frame if that takes longer.
    #[serde(default = "defaults::unset_batch")]
    pub batch: Nanos,
    /// Fills gaps with void frames, which the first switch drops; true. False for a NIC with launch
    /// times.
    #[serde(default = "defaults::voids")]
    pub voids: bool,
    /// Longest frame on the wire; 1,538 B. Add 4 B per VLAN or priority tag. Longer frames are
    /// dropped.
    #[serde(default = "defaults::frame")]
    pub frame: Bytes,
    /// Longest delay that bursts of this length at the link's rate make up for; 0: each guest makes
    /// up for delays within its guarantee.
    #[serde(default)]
    pub catch_up: Nanos,
    /// Memory for frames of guaranteed guests; 512 MiB, at least 1 MiB. A guest may hold 20 ms of
    /// its bandwidth, at least 2 MiB, or its part of `memory`; a destination a quarter.
    #[serde(default = "defaults::memory")]
    pub memory: Bytes,
    /// Queue of frames without a guarantee; FQ-CoDel.
    #[serde(default = "defaults::best_effort")]
    pub best_effort: QueueConfig,
    /// Permits elastic flows, which exceed a guarantee while the link is idle; true.
    #[serde(default = "defaults::work_conserving")]
    pub work_conserving: bool,
    /// Hold time of a flow between elastic and guaranteed; 1 ms, at most 1 s. Less than the lowest
    /// class's longest wait in the network may reorder frames.
    #[serde(default = "defaults::drain")]
    pub drain: Nanos,
}

mod defaults {
    use super::{Bursts, Bytes, FqCodelConfig, Nanos, QueueConfig};

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
    pub(super) const fn bursts() -> Bursts {
        Bursts::PerReceiver
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

/// Silo's {B, S, Bmax} (4.1) of a guest, on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guarantee {
    /// B: average bandwidth.
    pub bandwidth: Rate,
    /// S: burst after a time below B; at least one frame.
    pub burst: Bytes,
    /// Bmax: rate of a burst; at least B.
    pub burst_rate: Rate,
    /// Frames that may wait in the pacer before the guest's port is not read, as time at
    /// `bandwidth`; 2 ms, at least a batch.
    #[serde(default = "defaults::horizon")]
    pub horizon: Nanos,
    /// `CoDel`'s target (RFC 8289); the interval is 20 times as long. Frames are marked (ECN), or
    /// dropped if a destination's limit is the cause; 1 ms, at a slow destination at least 1.5
    /// frames.
    #[serde(default = "defaults::mark")]
    pub mark: Option<Nanos>,
    /// K: bursts that the guest may send without a pause to machines of one host, rack or pod. A
    /// number needs the places of all destinations ([`super::Pacer::set_place`]), which only the
    /// placement service knows, so no file has it.
    #[serde(skip, default = "defaults::bursts")]
    pub bursts: Bursts,
    /// The guest's part of the inward burst of each receiver; at least one frame. The bucket of a
    /// destination is as deep as that and what is lent ([`super::Pacer::lend`]), at most S. Only the
    /// placement service knows it, so no file has it.
    #[serde(skip)]
    pub credit: Option<Bytes>,
    /// The guest's delay class: its due frames go before those of the ordinary class, with the mark
    /// of the class. Only the placement service knows the classes, so no file has it.
    #[serde(skip)]
    pub class: Option<DelayClass>,
}

impl Guarantee {
    /// The class of its departures.
    #[inline(always)]
    pub(super) fn rank(&self) -> Rank {
        Rank::of(self.class)
    }

    /// Creates a guarantee {B, S, Bmax} with the default horizon and mark.
    pub const fn new(bandwidth: Rate, burst: Bytes, burst_rate: Rate) -> Self {
        Self {
            bandwidth,
            burst,
            burst_rate,
            horizon: defaults::horizon(),
            mark: defaults::mark(),
            bursts: defaults::bursts(),
            credit: None,
            class: None,
        }
    }

    /// Returns the burst that the guest may send to one destination whose host lends it `lent`
    /// bytes.
    pub fn to_each(&self, lent: Bytes) -> Bytes {
        let depth = self.credit.map(|credit| credit.saturating_add(lent));
        depth.map_or(self.burst, |depth| depth.min(self.burst))
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
    /// The part of an inward burst is less than one frame.
    #[error("the part of the inward burst, {credit}, is below one frame on the wire, {frame}")]
    CreditBelowFrame {
        /// The guest's part of each receiver's inward burst.
        credit: Bytes,
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

/// Checks a rate on a link.
///
/// # Errors
/// The rule that the rate breaks.
pub(super) fn check_rate(rate: Rate, link: Rate) -> Result<(), PacerError> {
    if rate.0 == 0 {
        return Err(PacerError::NoBandwidth);
    }
    if rate > link {
        return Err(PacerError::AboveLink { rate, link });
    }
    if rate < slowest(link) {
        return Err(PacerError::TooSlow { rate, link });
    }
    Ok(())
}

/// Checks a sum of guaranteed bandwidths.
///
/// # Errors
/// The sum, if it exceeds the link's rate.
pub(super) fn check_sum(sum: Rate, link: Rate) -> Result<(), PacerError> {
    if sum > link {
        return Err(PacerError::SumAboveLink { sum, link });
    }
    Ok(())
}

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
