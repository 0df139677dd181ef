//! Decisions about a frame between a port and the NIC: class, limit, pacing and queue.
//!
//! A [`Pipeline`] describes a packet's path from a guest to the wire, as data.
//!
//! ```text
//! push ► class and mark ► segment ► queue ► pull, when the limit and the NIC's queue admit it
//! ```
//!
//! Each part is optional. The default path of Linux is `{ queue = { kind = "fifo" } }`; all of
//! Small is Better is a meter, `segment = true`, `fq-codel`, and a NIC queue: before and after are
//! two configurations of one program.
//!
//! Call [`Pipeline::push`] for each frame that arrives, then [`Pipeline::pull`] until it returns
//! `None`, then sleep until [`Pipeline::poll_at`] or the next frame.
//!
//! On a wire with guarantees a [`PacedPipeline`] takes its place; an [`Egress`] is either of the
//! two, and changes into the other without losing a frame. The caller moves bytes and knows
//! addresses, and makes no decisions: a switch with real packets, a simulator with records.

mod classifier;
mod egress;
mod paced;

pub use classifier::{Classifier, Promise};
pub use egress::{Egress, EgressConfig, EgressStats};
pub use paced::{Coverage, Leaving, PacedPipeline, PacedPipelineConfig};

use crate::queue::{Backlog, Nic, NicConfig, Queue, QueueConfig, QueueStats, Spare};
use crate::{Classes, Frame, Gate, HashKeys, MeterConfig, MeterStats, RateLimit};
use serde::{Deserialize, Serialize};
use tailbound_units::{Bytes, Nanos, WireBytes};

/// The queue in front of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PipelineConfig {
    /// Classifies flows as small or large; none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meter: Option<MeterConfig>,
    /// Segments packets to the MTU before the queue; false.
    pub segment: bool,
    /// Software queue; a FIFO of 1,000 packets.
    pub queue: QueueConfig,
    /// Limits the bytes behind the queue; none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nic: Option<NicConfig>,
    /// The classes of the fabric behind the queue: each frame of a guest gets its class from the
    /// table, and the class's mark. `None`: frames keep their guests' marks, and are not metered.
    #[serde(skip)]
    pub classes: Option<Classes>,
    /// Rate limit of all departing Ethernet frames; packets are segmented. Frames with priority are
    /// charged and do not wait.
    #[serde(skip)]
    pub limit: Option<RateLimit>,
}

/// Counters of a pipeline since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PipelineStats {
    /// Frames pushed, before segmentation.
    pub frames: u64,
    /// Frames among them that were segmented.
    pub segmented: u64,
    /// The queue's counters, after segmentation.
    pub queue: QueueStats,
    /// The meter's counters; zero without one.
    pub meter: MeterStats,
}

/// A frame that leaves.
#[derive(Debug)]
pub struct Departure<F> {
    /// The frame.
    pub frame: F,
    /// Time that the frame waited in the software queue.
    pub sojourn: Nanos,
}

/// Next item to send on a wire.
#[derive(Debug)]
pub enum Outgoing<F> {
    /// A frame.
    Frame {
        /// The frame.
        frame: F,
        /// Earliest begin on the wire, on the clock of `now`, for a NIC with launch times. `None`:
        /// immediately after the previous item.
        launch_at: Option<Nanos>,
    },
    /// A void frame, which fills a gap between two others (see
    /// [`crate::pacer::void`]). Its bytes are the port's own.
    Void {
        /// Length on the wire: 84 to 1538 bytes.
        wire: WireBytes,
    },
}

impl<F> Outgoing<F> {
    /// A frame that leaves as soon as it can.
    pub const fn frame(frame: F) -> Self {
        Self::Frame {
            frame,
            launch_at: None,
        }
    }
}

/// A packet's path. The module describes it.
#[derive(Debug)]
pub struct Pipeline<F> {
    config: PipelineConfig,
    classifier: Classifier,
    /// Frames with priority over all others.
    first: Queue<F>,
    /// Bytes of such frames that have left.
    first_left: Bytes,
    queue: Queue<F>,
    limit: Option<Gate>,
    nic: Option<Nic>,
    stats: PipelineStats,
    /// The latest time that was passed in.
    now: Nanos,
}

impl<F: Frame> Pipeline<F> {
    /// Creates an empty pipeline.
    pub fn new(config: &PipelineConfig) -> Self {
        Self::with_keys(config, HashKeys::random())
    }

    /// Creates an empty pipeline with given keys for the meter's table.
    pub fn with_keys(config: &PipelineConfig, keys: HashKeys) -> Self {
        Self {
            config: config.clone(),
            classifier: Classifier::new(config.classes, config.meter.as_ref(), keys),
            first: Queue::new(&config.queue),
            first_left: Bytes(0),
            queue: Queue::new(&config.queue),
            limit: config.limit.as_ref().map(Gate::new),
            nic: config.nic.as_ref().map(Nic::new),
            stats: PipelineStats::default(),
            now: Nanos::ZERO,
        }
    }

    /// Takes in a frame at `now`. This frame or another one may be dropped; the counters report the
    /// reason.
    pub fn push(&mut self, now: Nanos, mut frame: F) {
        self.now = self.now.max(now);
        self.stats.frames += 1;
        self.classifier.classify(now, &mut frame, Promise::Nothing);
        let segments = self.segments();
        let Self { queue, stats, .. } = self;
        if segments && frame.segments() > 1 {
            stats.segmented += 1;
            frame.segment(|segment| queue.push(now, segment, &mut stats.queue));
        } else {
            queue.push(now, frame, &mut stats.queue);
        }
    }

    /// Takes in a frame with priority over all others, in a queue of the same kind and with its own
    /// limits. The frame keeps its class.
    pub fn push_first(&mut self, now: Nanos, frame: F) {
        self.now = self.now.max(now);
        self.stats.frames += 1;
        let segments = self.segments();
        let Self { first, stats, .. } = self;
        if segments && frame.segments() > 1 {
            stats.segmented += 1;
            frame.segment(|segment| first.push(now, segment, &mut stats.queue));
        } else {
            first.push(now, frame, &mut stats.queue);
        }
    }

    /// Returns the frame that leaves at `now`; `None` if no frame waits, the limit allows none, or
    /// the NIC's queue is full.
    pub fn pull(&mut self, now: Nanos) -> Option<Departure<F>> {
        self.now = self.now.max(now);
        if let Some(nic) = &mut self.nic
            && !nic.admits(now)
        {
            return None;
        }
        let stats = &mut self.stats.queue;
        let first = if self.first.is_empty() {
            None
        } else {
            self.first.pull(now, stats)
        };
        let queued = if let Some(first) = first {
            self.first_left.0 += first.frame.len() as u64;
            first
        } else {
            let limit = self.limit.as_ref();
            if limit.is_some_and(|limit| !limit.is_open(now)) {
                return None;
            }
            if self.queue.is_empty() && self.queue.pull_none() {
                return None;
            }
            self.queue.pull(now, stats)?
        };
        if let Some(limit) = &mut self.limit {
            limit.charge(now, queued.frame.len());
        }
        if let Some(nic) = &mut self.nic {
            let frame = &queued.frame;
            nic.sent(now, frame.wire_len(), frame.segments());
        }
        Some(Departure {
            sojourn: now.since(queued.enqueued),
            frame: queued.frame,
        })
    }

    /// Time at which the next [`Pipeline::pull`] may succeed: not after the present if a frame may
    /// leave now; `None` if no frame waits.
    #[inline]
    pub fn poll_at(&self) -> Option<Nanos> {
        if self.is_empty() {
            return None;
        }
        Some(self.leaves_at())
    }

    /// Returns the same for a pipeline that is not empty.
    fn leaves_at(&self) -> Nanos {
        let admitted = self.nic.as_ref().map_or(self.now, Nic::admits_at);
        let limit = self.limit.as_ref();
        let limit = limit.filter(|_| self.first.is_empty());
        let allowed = limit.map_or(self.now, Gate::opens_at);
        admitted.max(allowed).max(self.now)
    }

    /// Changes the configuration. Waiting frames are kept, each flow in order, even beyond a lower
    /// limit; a mechanism whose configuration is unchanged keeps its state; known flows keep their
    /// class.
    ///
    /// Waiting frames remain metered and segmented by the old configuration.
    pub fn reconfigure(&mut self, now: Nanos, config: &PipelineConfig) {
        self.now = self.now.max(now);
        let meter = config.meter.as_ref();
        self.classifier.reconfigure(config.classes, meter);
        if self.config.queue != config.queue {
            self.first.reconfigure(&config.queue);
            self.queue.reconfigure(&config.queue);
        }
        if self.config.limit != config.limit {
            self.limit = match (self.limit.take(), &config.limit) {
                (Some(mut gate), Some(limit)) => {
                    gate.reconfigure(now, limit);
                    Some(gate)
                }
                (_, limit) => limit.as_ref().map(Gate::new),
            };
        }
        if self.config.nic != config.nic {
            self.nic = match (self.nic.take(), &config.nic) {
                (Some(mut nic), Some(config)) => {
                    nic.reconfigure(now, config);
                    Some(nic)
                }
                (_, config) => config.as_ref().map(Nic::new),
            };
        }
        self.config = config.clone();
    }

    /// Frees some of the memory that was not used since the last call, and returns whether more is
    /// left.
    pub fn give_back(&mut self) -> Spare {
        let left = self.first.give_back();
        left.max(self.queue.give_back())
    }

    /// The configuration.
    pub const fn config(&self) -> &PipelineConfig {
        &self.config
    }

    /// Checks whether packets are segmented to one MTU.
    pub const fn segments(&self) -> bool {
        self.config.segment || self.config.limit.is_some()
    }

    /// Divides the meter among this number of guests from now on. The default is one guest.
    pub fn set_guests(&mut self, guests: usize) {
        self.classifier.set_guests(guests);
    }

    /// Checks whether no frame waits in the software queue.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.queue.is_empty()
    }

    /// The frames that wait in the software queue.
    pub fn backlog(&self) -> Backlog {
        self.first.backlog().plus(self.queue.backlog())
    }

    /// Bytes of the frames with priority that have left so far, and whether further ones wait.
    pub fn first(&self) -> (Bytes, bool) {
        (self.first_left, self.first.backlog().packets > 0)
    }

    /// Counters since the start, in the form of an [`Egress`].
    pub fn egress_stats(&self) -> EgressStats {
        let stats = self.stats();
        EgressStats {
            segmented: stats.segmented,
            queue: stats.queue,
            backlog: self.backlog(),
            meter: stats.meter,
        }
    }

    /// Counters since the start.
    pub fn stats(&self) -> PipelineStats {
        PipelineStats {
            meter: self.classifier.stats(),
            ..self.stats
        }
    }
}

#[cfg(test)]
mod tests;
