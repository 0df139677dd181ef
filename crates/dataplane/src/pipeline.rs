//! Whatever decides about a frame between a port and the NIC: class, limit, pace, queue.
//!
//! A [`Pipeline`] is a packet's way from a guest to the wire, as data.
//!
//! ```text
//! push ► class and mark ► segment ► queue ► pull, when the limit and the NIC's queue admit it
//! ```
//!
//! Each part may be left out. What Linux does by itself is
//! `{ queue = { kind = "fifo" } }`; all of Small is Better is a meter,
//! `segment = true`, `fq-codel`, and a NIC queue: before and after are two
//! configurations of one program.
//!
//! The order to call things in: [`Pipeline::push`] whenever a frame came,
//! [`Pipeline::pull`] until it returns nothing, then sleep until
//! [`Pipeline::poll_at`] or the next frame.
//!
//! On a wire that keeps guarantees a [`PacedPipeline`] stands in its place; an
//! [`Egress`] is either of the two, and becomes the other without losing a frame.
//! Whoever drives them moves bytes and knows addresses, and decides nothing: a switch
//! with real packets, a simulator with records.

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

/// The queue in front of a port: metering, segmentation, queue and NIC limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PipelineConfig {
    /// Classifies flows as small or large.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meter: Option<MeterConfig>,
    /// True: packets are segmented to the MTU before they are enqueued.
    pub segment: bool,
    /// The software queue; a FIFO of 1,000 packets by default.
    pub queue: QueueConfig,
    /// Limits the bytes queued behind the software queue. Without this key, the next stage is not
    /// limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nic: Option<NicConfig>,
    /// The classes of the fabric that is behind it: each frame of a guest gets the one
    /// that the table has for it, and its mark. `None`: frames keep what their guests
    /// wrote, and nothing is metered.
    #[serde(skip)]
    pub classes: Option<Classes>,
    /// What leaves at most, of Ethernet frames: packets are segmented then. What goes before
    /// all others is charged, and does not wait.
    #[serde(skip)]
    pub limit: Option<RateLimit>,
}

/// What a pipeline has done so far.
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
    /// How long it waited in the software queue.
    pub sojourn: Nanos,
}

/// What goes on a wire next.
#[derive(Debug)]
pub enum Outgoing<F> {
    /// A frame.
    Frame {
        /// The frame.
        frame: F,
        /// When it may begin on the wire, on the clock of `now`: for a NIC that keeps
        /// launch times. `None`: as soon as what is before it has left.
        launch_at: Option<Nanos>,
    },
    /// A void frame, which fills a gap between two others (see
    /// [`crate::pacer::void`]). Its bytes are the port's own.
    Void {
        /// What it takes of the wire: 84 to 1538 bytes.
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

/// A packet's way. See the module.
#[derive(Debug)]
pub struct Pipeline<F> {
    config: PipelineConfig,
    classifier: Classifier,
    /// What goes before all that is in `queue`.
    first: Queue<F>,
    /// What has left that.
    first_left: Bytes,
    queue: Queue<F>,
    limit: Option<Gate>,
    nic: Option<Nic>,
    stats: PipelineStats,
    /// The latest moment that was handed in.
    now: Nanos,
}

impl<F: Frame> Pipeline<F> {
    /// An empty pipeline.
    pub fn new(config: &PipelineConfig) -> Self {
        Self::with_keys(config, HashKeys::random())
    }

    /// The same with given keys for the meter's table.
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

    /// Takes a frame in at `now`. It, or another one, may be dropped; the
    /// counters say why.
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

    /// Takes a frame in that goes before all others, in a queue of the same kind and with
    /// limits of its own. It keeps the class that it came with.
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

    /// The frame that leaves at `now`, if any: nothing when nothing waits, the limit allows
    /// none, or the NIC's queue is full.
    pub fn pull(&mut self, now: Nanos) -> Option<Departure<F>> {
        self.now = self.now.max(now);
        if let Some(nic) = &mut self.nic
            && !nic.admits(now)
        {
            return None;
        }
        let stats = &mut self.stats.queue;
        let first = match self.first.backlog().packets {
            0 => None,
            _ => self.first.pull(now, stats),
        };
        let queued = if let Some(first) = first {
            self.first_left.0 += first.frame.len() as u64;
            first
        } else {
            let limit = self.limit.as_ref();
            if limit.is_some_and(|limit| !limit.is_open(now)) {
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

    /// When the next [`Pipeline::pull`] may succeed: not after now where it may at
    /// once; `None` where nothing waits.
    pub fn poll_at(&self) -> Option<Nanos> {
        if self.backlog().packets == 0 {
            return None;
        }
        let admitted = self.nic.as_ref().map_or(self.now, Nic::admits_at);
        let limit = self.limit.as_ref();
        let limit = limit.filter(|_| self.first.backlog().packets == 0);
        let allowed = limit.map_or(self.now, Gate::opens_at);
        Some(admitted.max(allowed).max(self.now))
    }

    /// Becomes a pipeline of `config`. Frames that wait are kept, each flow in
    /// order, even beyond a lower limit; a mechanism whose configuration is the
    /// same is not touched; known flows keep their class.
    ///
    /// What waits has been metered and segmented as the old configuration said.
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

    /// Frees some of the memory that nothing has waited in since it was called last, and
    /// says what is left of it.
    pub fn give_back(&mut self) -> Spare {
        let left = self.first.give_back();
        left.max(self.queue.give_back())
    }

    /// What it is made of.
    pub const fn config(&self) -> &PipelineConfig {
        &self.config
    }

    /// Whether packets are cut to one MTU.
    pub const fn segments(&self) -> bool {
        self.config.segment || self.config.limit.is_some()
    }

    /// Shares the meter among so many guests from now on; among one until it is told.
    pub fn set_guests(&mut self, guests: usize) {
        self.classifier.set_guests(guests);
    }

    /// What waits in the software queue.
    pub fn backlog(&self) -> Backlog {
        self.first.backlog().plus(self.queue.backlog())
    }

    /// The bytes of the frames that went before all others and have left so far, and
    /// whether more of them wait.
    pub fn first(&self) -> (Bytes, bool) {
        (self.first_left, self.first.backlog().packets > 0)
    }

    /// What it has done so far, as an [`Egress`] tells it.
    pub fn egress_stats(&self) -> EgressStats {
        let stats = self.stats();
        EgressStats {
            segmented: stats.segmented,
            queue: stats.queue,
            backlog: self.backlog(),
            meter: stats.meter,
        }
    }

    /// What it has done so far.
    pub fn stats(&self) -> PipelineStats {
        PipelineStats {
            meter: self.classifier.stats(),
            ..self.stats
        }
    }
}

#[cfg(test)]
mod tests;
