//! What a limit is, as plain data.

use crate::queue::{FqCodelConfig, QueueConfig};
use serde::{Deserialize, Deserializer, Serialize};
use tailbound_units::{Bytes, Nanos, Rate};

/// A full Ethernet frame, without FCS.
pub(super) const LONGEST_FRAME: Bytes = Bytes(1514);
/// The longest control packet that passes at once: an echo of 86 bytes, an acknowledgement
/// with all its options.
pub(super) const LONGEST_CONTROL: usize = 128;
/// The least that a bucket holds: a frame, and one that is owed.
const LEAST_DEPTH: Bytes = Bytes(2 * LONGEST_FRAME.0);
/// What a bucket holds by default, as time.
const DEPTH: Nanos = Nanos::from_millis(20);
/// Bounds of the memory that frames of a guest may hold by default.
const LEAST_MEMORY: u64 = 256 << 10;
const MOST_MEMORY: u64 = 4 << 20;
/// Longest that a bucket may take to fill.
const LONGEST_FILL: Nanos = Nanos::from_secs(3600);

/// A limit that breaks a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShaperError {
    /// Nothing could ever leave.
    #[error("a limit of 0 lets nothing pass")]
    NoRate,
    /// A bucket holds a full frame, and what one more owes.
    #[error("a depth of {depth} holds no two full frames ({LEAST_DEPTH})")]
    Depth {
        /// The bucket's.
        depth: Bytes,
    },
    /// A bucket that takes that long to fill limits nothing.
    #[error("a depth of {depth} takes more than {LONGEST_FILL} to fill at {rate}")]
    DepthTooLong {
        /// The bucket's.
        depth: Bytes,
        /// The limit.
        rate: Rate,
    },
    /// The window has no room between its bounds.
    #[error("a window {width} wide does not fit between a dmin of {dmin} and a dmax of {dmax}")]
    Bounds {
        /// The least delay.
        dmin: Nanos,
        /// The greatest.
        dmax: Nanos,
        /// How wide the window is.
        width: Nanos,
    },
    /// A window that is no wider than nothing.
    #[error("a window of width 0 holds no delay")]
    NoWidth,
    /// An interval without a packet tells nothing.
    #[error("an interval of {interval} is shorter than a full frame takes at {rate}, {packet}")]
    Interval {
        /// The window's.
        interval: Nanos,
        /// The limit.
        rate: Rate,
        /// What a frame takes.
        packet: Nanos,
    },
    /// Credit that comes at no time.
    #[error("credit with an interval of 0 is never given")]
    NoInterval,
    /// More than all of the limit.
    #[error("control packets cannot have {percent} % of the limit")]
    Percent {
        /// What is theirs.
        percent: u8,
    },
    /// Less memory than a packet of 64 KiB holds, cut.
    #[error("a memory of {memory} holds no packet of 64 KiB ({LEAST_MEMORY} B)")]
    Memory {
        /// What the guest's frames may hold.
        memory: Bytes,
    },
}

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// The rate, counted in Ethernet frames without FCS.
    pub rate: Rate,
    /// The depth of the bucket; by default 20 ms of the rate, at least two full frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<Bytes>,
}

impl RateLimit {
    /// A limit with the default depth.
    pub const fn new(rate: Rate) -> Self {
        Self { rate, depth: None }
    }

    /// What may leave at once after a pause.
    pub fn depth(&self) -> Bytes {
        let default = self.rate.bytes_in(DEPTH).max(LEAST_DEPTH);
        self.depth.unwrap_or(default)
    }

    /// Checks that it can be kept.
    ///
    /// # Errors
    /// The rule that it breaks.
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

/// The budget for control packets (TCP without payload, ICMP echo, ARP, ND) that bypass the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlConfig {
    /// The share of the limit, in percent; 5. With 0 no packet bypasses the queue.
    pub percent: u8,
    /// The burst, in packets of 128 bytes; 64. Half of the burst is reserved for connection setup.
    pub packets: u32,
    /// True: DNS requests and answers bypass the queue, too. False by default.
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

/// How much a guest may send: a bucket, and a queue before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketConfig {
    /// See [`RateLimit::rate`].
    pub rate: Rate,
    /// See [`RateLimit::depth`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<Bytes>,
    /// The queue in front of the bucket; FQ-CoDel by default.
    #[serde(default = "fq_codel")]
    pub queue: QueueConfig,
    /// The memory limit of queued frames; by default 200 ms of the rate, from 256 KiB to 4 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// The budget for control packets that bypass the queue.
    #[serde(default)]
    pub control: ControlConfig,
}

fn fq_codel() -> QueueConfig {
    QueueConfig::FqCodel(FqCodelConfig::default())
}

impl BucketConfig {
    /// A bucket of the default depth with FQ-CoDel before it.
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
    /// A gain of so many thousandths.
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

/// The gains of the controller that moves the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gains {
    /// The gain of the error; 2. At half the load, a window returns within one interval.
    pub proportional: Gain,
    /// The gain of the sum of errors, in widths of the window; 1.
    pub integral: Gain,
    /// The gain of the change of the error; 0, since the error changes with every burst.
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

/// How much a guest may send, in delays of a smooth window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowConfig {
    /// See [`RateLimit::rate`].
    pub rate: Rate,
    /// See [`RateLimit::depth`], of the bucket beneath.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<Bytes>,
    /// The lower end of the delay range, where the window starts and returns to; 0.
    #[serde(default)]
    pub dmin: Nanos,
    /// The upper end of the delay range; 100 ms. Frames that wait longer leave without a window.
    #[serde(default = "dmax")]
    pub dmax: Nanos,
    /// The width of the window; 3 ms, as in the paper.
    #[serde(default = "width")]
    pub width: Nanos,
    /// The length of a control interval; 1 s, as in the paper.
    #[serde(default = "second")]
    pub interval: Nanos,
    /// The gains of the controller that moves the window.
    #[serde(default)]
    pub gains: Gains,
    /// See [`BucketConfig::memory`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// The budget for control packets that bypass the queue.
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

/// How much a guest may send, by the credit of Xen's netback: for comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreditConfig {
    /// See [`RateLimit::rate`].
    pub rate: Rate,
    /// The interval of credit replenishment; 50 ms, as Xen's tools set it.
    #[serde(default = "replenish")]
    pub interval: Nanos,
    /// The tick of the timers: 4 ms at 250 Hz; exact (1 ns) by default.
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

/// The rate limit of a guest's outgoing traffic, and its algorithm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ShaperConfig {
    /// An exact token bucket behind a queue.
    Bucket(BucketConfig),
    /// The smooth window (delays that keep TCP's window from collapsing), above an exact token
    /// bucket.
    SmoothWindow(WindowConfig),
    /// The credit algorithm of Xen's netback.
    Credit(CreditConfig),
}

impl ShaperConfig {
    /// The most memory that frames may hold where the configuration does not say it.
    pub const MOST_DEFAULT_MEMORY: Bytes = Bytes(MOST_MEMORY);

    /// The rate, counted in Ethernet frames without FCS.
    pub const fn rate(&self) -> Rate {
        match self {
            Self::Bucket(config) => config.rate,
            Self::SmoothWindow(config) => config.rate,
            Self::Credit(config) => config.rate,
        }
    }

    /// Checks that it can be kept.
    ///
    /// # Errors
    /// The rule that it breaks.
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

    /// What passes at once; `None` where nothing does.
    pub(super) const fn control(&self) -> Option<&ControlConfig> {
        match self {
            Self::Bucket(config) => Some(&config.control),
            Self::SmoothWindow(config) => Some(&config.control),
            Self::Credit(_) => None,
        }
    }

    /// The memory that frames may hold, but for those of one packet more.
    pub fn memory(&self) -> Bytes {
        let given = match self {
            Self::Bucket(config) => config.memory,
            Self::SmoothWindow(config) => config.memory,
            Self::Credit(_) => None,
        };
        let default = self.rate().bytes_in(dmax()).0.saturating_mul(2);
        given.unwrap_or(Bytes(default.clamp(LEAST_MEMORY, MOST_MEMORY)))
    }

    /// The bytes of frames that may wait.
    pub(super) fn most_bytes(&self) -> Bytes {
        match self {
            // As far as memory goes: what waits in the guest can let no control packet pass.
            Self::Bucket(_) | Self::SmoothWindow(_) => Bytes(u64::MAX),
            // As in netback: what has no credit stays in the ring.
            Self::Credit(_) => Bytes(1),
        }
    }
}
