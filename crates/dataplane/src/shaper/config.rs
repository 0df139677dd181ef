//! Configuration of a limit, as plain data.

use crate::queue::{FqCodelConfig, QueueConfig};
use serde::{Deserialize, Deserializer, Serialize};
use tailbound_units::{Bytes, Nanos, Rate};

/// A full Ethernet frame, without FCS.
pub(super) const LONGEST_FRAME: Bytes = Bytes(1514);
/// Maximum length of a control packet that may bypass the queue: an echo of 86 bytes, or an
/// acknowledgement with all its options.
pub(super) const LONGEST_CONTROL: usize = 128;
/// Minimum depth of a bucket: one frame, and one that is owed.
const LEAST_DEPTH: Bytes = Bytes(2 * LONGEST_FRAME.0);
/// Default depth of a bucket, as time.
const DEPTH: Nanos = Nanos::from_millis(20);
/// Bounds of the default memory of a guest's frames.
const LEAST_MEMORY: u64 = 256 << 10;
const MOST_MEMORY: u64 = 4 << 20;
/// Maximum time that a bucket may take to fill.
const LONGEST_FILL: Nanos = Nanos::from_secs(3600);

/// A limit that breaks a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShaperError {
    /// The rate is zero, so no frame could leave.
    #[error("a limit of 0 passes nothing")]
    NoRate,
    /// The depth is less than a full frame and one that is owed.
    #[error("a depth of {depth} holds no two full frames ({LEAST_DEPTH})")]
    Depth {
        /// The bucket's depth.
        depth: Bytes,
    },
    /// A bucket that takes this long to fill limits nothing.
    #[error("a depth of {depth} takes more than {LONGEST_FILL} to fill at {rate}")]
    DepthTooLong {
        /// The bucket's depth.
        depth: Bytes,
        /// The limit.
        rate: Rate,
    },
    /// The window has no room between its bounds.
    #[error("a window {width} wide does not fit between a dmin of {dmin} and a dmax of {dmax}")]
    Bounds {
        /// The lowest delay.
        dmin: Nanos,
        /// The highest delay.
        dmax: Nanos,
        /// Width of the window.
        width: Nanos,
    },
    /// The width of the window is zero.
    #[error("a window of width 0 holds no delay")]
    NoWidth,
    /// The interval is shorter than a packet.
    #[error("an interval of {interval} is shorter than a full frame takes at {rate}, {packet}")]
    Interval {
        /// The window's interval.
        interval: Nanos,
        /// The limit.
        rate: Rate,
        /// Time of a frame at the limit.
        packet: Nanos,
    },
    /// The interval of credit is zero.
    #[error("credit with an interval of 0 is never given")]
    NoInterval,
    /// The share of control packets exceeds the limit.
    #[error("control packets cannot have {percent} % of the limit")]
    Percent {
        /// The share in percent.
        percent: u8,
    },
    /// The memory is less than the segments of a packet of 64 KiB need.
    #[error("a memory of {memory} holds no packet of 64 KiB ({LEAST_MEMORY} B)")]
    Memory {
        /// Memory of the guest's frames.
        memory: Bytes,
    },
}

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// Rate of Ethernet frames without FCS.
    pub rate: Rate,
    /// Burst after a pause; 20 ms of the rate, at least two full frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<Bytes>,
}

impl RateLimit {
    /// A limit with the default depth.
    pub const fn new(rate: Rate) -> Self {
        Self { rate, depth: None }
    }

    /// Burst that may leave after a pause.
    pub fn depth(&self) -> Bytes {
        let default = self.rate.bytes_in(DEPTH).max(LEAST_DEPTH);
        self.depth.unwrap_or(default)
    }

    /// Checks the limit.
    ///
    /// # Errors
    /// The broken rule.
    pub fn check(&self) -> Result<(), ShaperError> {
        let (rate, depth) = (self.rate, self.depth());
        if rate.0 == 0 {
            return Err(ShaperError::NoRate);
        }
        if depth < LEAST_DEPTH {
            return Err(ShaperError::Depth { depth });
        }
        if rate.time_for(depth) > LONGEST_FILL {
            return Err(ShaperError::DepthTooLong { depth, rate });
        }
        Ok(())
    }
}

/// Budget of control packets (TCP without payload, ICMP echo, ARP, ND) that bypass the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlConfig {
    /// Percentage of the limit; 5. With 0 no packet bypasses the queue.
    pub percent: u8,
    /// Burst, in packets of 128 bytes; 64. Half is for connection setup.
    pub packets: u32,
    /// DNS bypasses the queue, too; false.
    pub dns: bool,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self {
            percent: 5,
            packets: 64,
            dns: false,
        }
    }
}

/// Configuration of a bucket, with a queue in front of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketConfig {
    /// Rate of Ethernet frames without FCS.
    pub rate: Rate,
    /// Burst after a pause; 20 ms of the rate, at least two full frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<Bytes>,
    /// Queue before the bucket; FQ-CoDel.
    #[serde(default = "fq_codel")]
    pub queue: QueueConfig,
    /// Memory limit of queued frames; 200 ms of the rate, from 256 KiB to 4 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Budget of control packets that bypass the queue.
    #[serde(default)]
    pub control: ControlConfig,
}

fn fq_codel() -> QueueConfig {
    QueueConfig::FqCodel(FqCodelConfig::default())
}

impl BucketConfig {
    /// Creates a bucket of the default depth with FQ-CoDel in front of it.
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            depth: None,
            queue: fq_codel(),
            memory: None,
            control: ControlConfig::default(),
        }
    }

    /// The bucket.
    pub const fn limit(&self) -> RateLimit {
        RateLimit {
            rate: self.rate,
            depth: self.depth,
        }
    }
}

/// A gain of a controller: zero or more, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "f64")]
pub struct Gain(u32);

impl Gain {
    /// Creates a gain from thousandths.
    pub const fn from_thousandths(thousandths: u32) -> Self {
        Self(thousandths)
    }

    /// The gain.
    pub fn get(self) -> f64 {
        f64::from(self.0) / 1e3
    }
}

impl From<Gain> for f64 {
    fn from(gain: Gain) -> Self {
        gain.get()
    }
}

impl<'de> Deserialize<'de> for Gain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let gain = f64::deserialize(deserializer)?;
        if (0.0..=1e3).contains(&gain) {
            Ok(Self((gain * 1e3).round() as u32))
        } else {
            Err(serde::de::Error::custom(format!(
                "a gain of {gain} drives the window away from the limit; use 0 to 1000"
            )))
        }
    }
}

/// Gains of the controller that moves the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gains {
    /// Gain of the error; 2.
    pub proportional: Gain,
    /// Gain of the sum of errors, in widths of the window; 1.
    pub integral: Gain,
    /// Gain of the error's change; 0.
    pub derivative: Gain,
}

impl Default for Gains {
    fn default() -> Self {
        Self {
            proportional: Gain(2000),
            integral: Gain(1000),
            derivative: Gain(0),
        }
    }
}

/// Configuration of a smooth window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowConfig {
    /// Rate of Ethernet frames without FCS.
    pub rate: Rate,
    /// Burst of the bucket beneath; 20 ms of the rate, at least two full frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<Bytes>,
    /// Lower end of the delay range, where the window starts and returns to; 0.
    #[serde(default)]
    pub dmin: Nanos,
    /// Upper end of the delay range; 100 ms. Frames that wait longer leave without a window.
    #[serde(default = "dmax")]
    pub dmax: Nanos,
    /// Width of the window; 3 ms.
    #[serde(default = "width")]
    pub width: Nanos,
    /// Control interval; 1 s.
    #[serde(default = "second")]
    pub interval: Nanos,
    /// Gains of the controller that moves the window.
    #[serde(default)]
    pub gains: Gains,
    /// Memory limit of queued frames; 200 ms of the rate, from 256 KiB to 4 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Budget of control packets that bypass the queue.
    #[serde(default)]
    pub control: ControlConfig,
}

const fn dmax() -> Nanos {
    Nanos::from_millis(100)
}

const fn width() -> Nanos {
    Nanos::from_millis(3)
}

const fn second() -> Nanos {
    Nanos::from_secs(1)
}

impl WindowConfig {
    /// The paper's window for a limit of `rate`.
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            depth: None,
            dmin: Nanos::ZERO,
            dmax: dmax(),
            width: width(),
            interval: second(),
            gains: Gains::default(),
            memory: None,
            control: ControlConfig::default(),
        }
    }

    pub(super) const fn limit(&self) -> RateLimit {
        RateLimit {
            rate: self.rate,
            depth: self.depth,
        }
    }

    fn check(&self) -> Result<(), ShaperError> {
        let Self {
            dmin, dmax, width, ..
        } = *self;
        if width.0 == 0 {
            return Err(ShaperError::NoWidth);
        }
        if dmin.saturating_add(width) > dmax {
            return Err(ShaperError::Bounds { dmin, dmax, width });
        }
        let (interval, rate) = (self.interval, self.rate);
        let packet = rate.time_for(LONGEST_FRAME);
        if interval < packet || interval.0 == 0 {
            return Err(ShaperError::Interval {
                interval,
                rate,
                packet,
            });
        }
        Ok(())
    }
}

/// Configuration of the credit of Xen's netback, for comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreditConfig {
    /// Rate of Ethernet frames without FCS.
    pub rate: Rate,
    /// Interval of replenishment; 50 ms.
    #[serde(default = "replenish")]
    pub interval: Nanos,
    /// Tick of the timers; 1 ns.
    #[serde(default = "exact")]
    pub tick: Nanos,
}

const fn replenish() -> Nanos {
    Nanos::from_millis(50)
}

const fn exact() -> Nanos {
    Nanos(1)
}

impl CreditConfig {
    /// A limit with exact timers.
    pub const fn new(rate: Rate, interval: Nanos) -> Self {
        Self {
            rate,
            interval,
            tick: exact(),
        }
    }
}

/// Limit of a guest's outgoing traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ShaperConfig {
    /// An exact token bucket behind a queue.
    Bucket(BucketConfig),
    /// The smooth window (delays that keep TCP's window from collapsing) above an exact token
    /// bucket.
    SmoothWindow(WindowConfig),
    /// Credit of Xen's netback.
    Credit(CreditConfig),
}

impl ShaperConfig {
    /// Maximum of the default memory of a guest's frames.
    pub const MOST_DEFAULT_MEMORY: Bytes = Bytes(MOST_MEMORY);

    /// Rate of Ethernet frames without FCS.
    pub const fn rate(&self) -> Rate {
        match self {
            Self::Bucket(config) => config.rate,
            Self::SmoothWindow(config) => config.rate,
            Self::Credit(config) => config.rate,
        }
    }

    /// Checks the limit.
    ///
    /// # Errors
    /// The broken rule.
    pub fn check(&self) -> Result<(), ShaperError> {
        match self {
            Self::Bucket(config) => config.limit().check()?,
            Self::SmoothWindow(config) => {
                config.limit().check()?;
                config.check()?;
            }
            Self::Credit(config) => {
                if config.rate.0 == 0 {
                    return Err(ShaperError::NoRate);
                }
                if config.interval.0 == 0 {
                    return Err(ShaperError::NoInterval);
                }
            }
        }
        let percent = self.control().map_or(0, |control| control.percent);
        if percent > 100 {
            return Err(ShaperError::Percent { percent });
        }
        let memory = self.memory();
        if memory.0 < LEAST_MEMORY {
            return Err(ShaperError::Memory { memory });
        }
        Ok(())
    }

    /// Budget of packets that bypass the queue; `None` if all are queued.
    pub(super) const fn control(&self) -> Option<&ControlConfig> {
        match self {
            Self::Bucket(config) => Some(&config.control),
            Self::SmoothWindow(config) => Some(&config.control),
            Self::Credit(_) => None,
        }
    }

    /// Memory limit of queued frames; one packet may exceed it.
    pub fn memory(&self) -> Bytes {
        let given = match self {
            Self::Bucket(config) => config.memory,
            Self::SmoothWindow(config) => config.memory,
            Self::Credit(_) => None,
        };
        let default = self.rate().bytes_in(dmax()).0.saturating_mul(2);
        given.unwrap_or(Bytes(default.clamp(LEAST_MEMORY, MOST_MEMORY)))
    }

    /// Limit of queued frames in bytes.
    pub(super) fn most_bytes(&self) -> Bytes {
        match self {
            // Limited by memory only: frames that wait in the guest's ring block control packets
            // behind them.
            Self::Bucket(_) | Self::SmoothWindow(_) => Bytes(u64::MAX),
            // As in netback: frames without credit stay in the ring.
            Self::Credit(_) => Bytes(1),
        }
    }
}
