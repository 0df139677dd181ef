//! Rate limit of a guest, over all destinations.
//!
//! The smooth window follows Cheng and Wang, "`QoS` Scheduling for Latency-sensitive Cloud
//! Applications", 2.3, 3.2 and 4. A token bucket enforces a rate with a delay of each packet that
//! is unpredictable: media players and users perceive it as jitter. So the delay of each packet
//! lies in a window `[d, d + 3 ms]`, which moves only slowly ([`window`](self::WindowConfig)).
//!
//! A line of delays limits no rate: traffic that arrives for a second at twice the limit leaves at
//! twice the limit. So there are two layers:
//!
//! ```text
//! departure = the latest of   the departure before
//!                             arrival + the window's delay
//!                             what the token bucket allows
//! ```
//!
//! The bucket is exact: in any time t at most `rate · t + depth` bytes leave, plus one packet if
//! small control packets bypassed the queue. If the bucket delays packets beyond the window, the
//! window follows it at its next interval, and such packets are counted.
//!
//! The paper leaves the following open, and they are decisions of this module: the signs and gains,
//! the window's start and speed, its return, and the bucket beneath it.
//!
//! Two more kinds of limit have the same interface: the bucket alone, behind any
//! [`QueueConfig`](crate::QueueConfig); and the credit of Xen's netback, with which the paper
//! compares itself.
//!
//! Large packets are segmented first. Packets that wait for the window or for credit stay in order;
//! under a bucket the queue decides the order. Control packets ([`Control`]) may bypass the queue,
//! within a budget, and are charged as all others.
//!
//! The host must not read from a guest that exceeds its limit ([`Shaper::is_read`]): then the
//! guest's own ring fills. A window has no other bound of its queue; a frame that arrives
//! nevertheless is dropped.

mod config;
mod credit;
mod gate;
mod pass;
mod window;

pub use config::{
    BucketConfig, ControlConfig, CreditConfig, Gain, Gains, RateLimit, ShaperConfig, ShaperError,
    WindowConfig,
};
pub use gate::Gate;

use crate::queue::{Backlog, Count, Queue, QueueStats, Queued, Spare, shrink_list};
use crate::{Connection, Control, Frame};
use credit::Credit;
use pass::Pass;
use std::collections::VecDeque;
use tailbound_units::{Bytes, Nanos};
use window::Window;

/// Counters of a shaper since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShaperStats {
    /// Frames that left, with each segment counted.
    pub sent: Count,
    /// Frames among these that bypassed the queue.
    pub at_once: Count,
    /// Control packets that did not bypass the queue, because the budget was spent or packets of
    /// their flow waited.
    pub lined_up: u64,
    /// Frames that left later than their window because the bucket held them.
    pub beyond_window: u64,
    /// Packets that were segmented.
    pub segmented: u64,
    /// Counters of the queue: frames that a full line or the bucket's queue dropped.
    pub queue: QueueStats,
}

/// Position of the window, by the bounds of its delays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowPosition {
    /// The lowest delay.
    pub least: Nanos,
    /// The highest delay.
    pub greatest: Nanos,
}

/// A frame that waits in order of arrival.
#[derive(Debug)]
struct HeldFrame<F> {
    frame: F,
    came: Nanos,
    /// Release time by the window alone.
    release: Nanos,
}

impl<F> From<HeldFrame<F>> for Queued<F> {
    fn from(held: HeldFrame<F>) -> Self {
        Self {
            frame: held.frame,
            enqueued: held.came,
        }
    }
}

/// Algorithm of a limit, and its queue.
#[derive(Debug)]
enum Kind<F> {
    Bucket {
        gate: Gate,
        queue: Box<Queue<F>>,
    },
    Smooth {
        gate: Gate,
        window: Window,
        line: Line<F>,
    },
    Credit {
        credit: Credit,
        line: Line<F>,
    },
}

/// Frames in order of arrival.
#[derive(Debug)]
struct Line<F> {
    frames: VecDeque<HeldFrame<F>>,
    /// Bytes of all frames that arrived and of all that left, and the memory of the waiting frames.
    came: u64,
    left: u64,
    memory: Bytes,
}

/// Limit of one guest. The module describes it.
#[derive(Debug)]
pub struct Shaper<F> {
    config: ShaperConfig,
    kind: Kind<F>,
    pass: Pass,
    /// Frames that bypassed the queue, until they are pulled.
    at_once: VecDeque<Queued<F>>,
    at_once_held: Backlog,
    /// Limits of the queue: [`Shaper::is_read`] is false beyond them.
    memory: Bytes,
    bytes: Bytes,
    /// Memory of waiting frames beyond which frames are dropped: higher, because a large packet
    /// arrives as a whole.
    full: Bytes,
    stats: ShaperStats,
    /// The latest time that was passed in.
    now: Nanos,
}

impl<F: Frame> Shaper<F> {
    /// Creates a shaper with an empty queue.
    ///
    /// # Errors
    /// The rule that the configuration breaks.
    pub fn new(config: &ShaperConfig) -> Result<Self, ShaperError> {
        config.check()?;
        let kind = match config {
            ShaperConfig::Bucket(config) => Kind::Bucket {
                gate: Gate::new(&config.limit()),
                queue: Box::new(Queue::new(&config.queue)),
            },
            ShaperConfig::SmoothWindow(config) => Kind::Smooth {
                gate: Gate::new(&config.limit()),
                window: Window::new(config),
                line: Line::default(),
            },
            ShaperConfig::Credit(config) => Kind::Credit {
                credit: Credit::new(config),
                line: Line::default(),
            },
        };
        Ok(Self {
            pass: Pass::new(config.control(), config.rate()),
            memory: config.memory(),
            bytes: config.most_bytes(),
            full: Bytes(config.memory().0.saturating_add(HIGHEST_BURST)),
            config: config.clone(),
            kind,
            at_once: VecDeque::new(),
            at_once_held: Backlog::default(),
            stats: ShaperStats::default(),
            now: Nanos::ZERO,
        })
    }

    /// Takes in a frame of the guest at `now` and segments it to one MTU. The frame may be dropped
    /// if [`Shaper::is_read`] returned false, or by the bucket's queue.
    #[inline]
    pub fn push(&mut self, now: Nanos, frame: F) {
        self.now = self.now.max(now);
        if frame.segments() > 1 {
            return self.push_cut(frame);
        }
        self.push_one(frame);
    }

    #[cold]
    #[inline(never)]
    fn push_cut(&mut self, frame: F) {
        self.stats.segmented += 1;
        frame.segment(|segment| self.push_one(segment));
    }

    #[inline]
    fn push_one(&mut self, frame: F) {
        if let Some(control) = frame.control() {
            return self.push_control(frame, control);
        }
        self.push_data(frame);
    }

    #[inline]
    fn push_data(&mut self, frame: F) {
        let came = self.now;
        let Kind::Smooth { window, line, .. } = &mut self.kind else {
            return self.push_otherwise(frame);
        };
        let release = came + window.delay(came, frame.len());
        if line.memory > self.full {
            return self.count_drop();
        }
        line.push(HeldFrame {
            frame,
            came,
            release,
        });
    }

    /// Queues a frame under a bucket or credit.
    #[inline(never)]
    fn push_otherwise(&mut self, frame: F) {
        let came = self.now;
        match &mut self.kind {
            Kind::Bucket { queue, .. } => queue.push(came, frame, &mut self.stats.queue),
            Kind::Smooth { line, .. } | Kind::Credit { line, .. } => {
                let most = self.bytes.0.saturating_add(HIGHEST_BURST);
                if line.memory > self.full || line.backlog().bytes.0 > most {
                    return self.count_drop();
                }
                let release = came;
                line.push(HeldFrame {
                    frame,
                    came,
                    release,
                });
            }
        }
    }

    #[cold]
    #[inline(never)]
    const fn count_drop(&mut self) {
        self.stats.queue.drops.full += 1;
    }

    #[cold]
    #[inline(never)]
    fn push_control(&mut self, frame: F, control: Control) {
        if !self.passes(&frame, control) {
            return self.push_data(frame);
        }
        self.stats.at_once.add(frame.len());
        self.at_once_held.add(&frame);
        let enqueued = self.now;
        self.at_once.push_back(Queued { frame, enqueued });
    }

    /// Checks whether a control packet may bypass the queue, and if so, charges it.
    #[cold]
    fn passes(&mut self, frame: &F, control: Control) -> bool {
        let (now, len) = (self.now, frame.len());
        let flow_waits = match &self.kind {
            Kind::Bucket { queue, .. } => queue.backlog().packets > 0,
            Kind::Smooth { line, .. } => line.has(frame.connection()),
            Kind::Credit { .. } => return false,
        };
        let (Kind::Bucket { gate, .. } | Kind::Smooth { gate, .. }) = &mut self.kind else {
            return false;
        };
        let Some(within) = self.pass.admits(now, control, len, flow_waits) else {
            return false;
        };
        let passes = within && gate.passes(now, len);
        if passes {
            self.pass.charge(now, len);
            if let Kind::Smooth { window, .. } = &mut self.kind {
                window.count(now, len);
            }
        } else {
            self.stats.lined_up += 1;
        }
        passes
    }

    /// Returns the frame that leaves at `now`, if any, with its arrival time.
    #[inline]
    pub fn pull(&mut self, now: Nanos) -> Option<Queued<F>> {
        let now = self.now.max(now);
        self.now = now;
        if !self.at_once.is_empty() {
            return self.pull_at_once();
        }
        let Kind::Smooth { gate, window, line } = &mut self.kind else {
            return self.pull_otherwise();
        };
        let HeldFrame { came, release, .. } = *line.frames.front()?;
        let opens = gate.opens_at();
        if release > now || opens > now {
            return None;
        }
        self.stats.sent.packets += 1;
        let frame = line.pop()?.frame;
        let len = frame.len();
        gate.charge(now, len);
        if opens > release && window.may_be_beyond(came, opens) && window.is_beyond(came, opens) {
            window.note(Some(opens.since(came)));
            self.stats.beyond_window += 1;
        } else {
            window.note(None);
        }
        // Apart from the packets: no vector of both is put together and taken apart.
        self.stats.sent.bytes += len as u64;
        let enqueued = came;
        Some(Queued { frame, enqueued })
    }

    /// Returns the next frame under a bucket or credit.
    #[inline(never)]
    fn pull_otherwise(&mut self) -> Option<Queued<F>> {
        let now = self.now;
        let queued: Queued<F> = match &mut self.kind {
            Kind::Bucket { gate, queue } => {
                if !gate.is_open(now) {
                    return None;
                }
                let queued = queue.pull(now, &mut self.stats.queue)?;
                gate.charge(now, queued.frame.len());
                queued
            }
            Kind::Credit { credit, line } => {
                let len = line.frames.front()?.frame.len();
                if !credit.admits(now, len) {
                    return None;
                }
                line.pop()?.into()
            }
            Kind::Smooth { .. } => return None,
        };
        self.stats.sent.add(queued.frame.len());
        Some(queued)
    }

    #[cold]
    #[inline(never)]
    fn pull_at_once(&mut self) -> Option<Queued<F>> {
        let queued = self.at_once.pop_front()?;
        self.at_once_held.remove(&queued.frame);
        self.stats.sent.add(queued.frame.len());
        Some(queued)
    }

    /// Time at which the next [`Shaper::pull`] returns a frame: not after the present if a frame
    /// may leave now; `None` if the queue is empty.
    pub fn poll_at(&self) -> Option<Nanos> {
        if !self.at_once.is_empty() {
            return Some(self.now);
        }
        let at = match &self.kind {
            Kind::Bucket { gate, queue } => (queue.backlog().packets > 0).then(|| gate.opens_at()),
            Kind::Smooth { gate, line, .. } => {
                let head = line.frames.front();
                head.map(|head| head.release.max(gate.opens_at()))
            }
            Kind::Credit { credit, line } => {
                let head = line.frames.front();
                head.map(|head| credit.admits_at(self.now, head.frame.len()))
            }
        };
        at.map(|at| at.max(self.now))
    }

    /// Checks whether the host may read further frames from the guest: false while the queue is at
    /// its limits.
    pub fn is_read(&self) -> bool {
        let backlog = self.backlog();
        backlog.memory < self.memory && backlog.bytes < self.bytes
    }

    /// The waiting frames.
    pub fn backlog(&self) -> Backlog {
        let waiting = match &self.kind {
            Kind::Bucket { queue, .. } => queue.backlog(),
            Kind::Smooth { line, .. } | Kind::Credit { line, .. } => line.backlog(),
        };
        waiting.plus(self.at_once_held)
    }

    /// The configuration.
    pub const fn config(&self) -> &ShaperConfig {
        &self.config
    }

    /// Position of the window at `now`, which is not before the latest time that was passed in;
    /// `None` for other kinds of limit.
    pub fn window(&self, now: Nanos) -> Option<WindowPosition> {
        match &self.kind {
            Kind::Smooth { window, .. } => Some(window.position_at(now)),
            Kind::Bucket { .. } | Kind::Credit { .. } => None,
        }
    }

    /// Counters since the start.
    pub const fn stats(&self) -> ShaperStats {
        self.stats
    }

    /// Changes the configuration. Waiting frames stay in order of arrival. A bucket keeps its
    /// tokens up to its new depth, and a window's distance from zero is scaled to the time of the
    /// same bytes at the new rate.
    ///
    /// # Errors
    /// The rule that the configuration breaks; the shaper is then unchanged.
    pub fn reconfigure(&mut self, now: Nanos, config: &ShaperConfig) -> Result<(), ShaperError> {
        self.now = self.now.max(now);
        if self.config == *config {
            return Ok(());
        }
        let mut next = Self::new(config)?;
        next.now = self.now;
        next.stats = self.stats;
        std::mem::swap(&mut next.at_once, &mut self.at_once);
        next.at_once_held = self.at_once_held;
        let before = self.gate();
        let (old_rate, new_rate) = (self.config.rate(), config.rate());
        if let (Some(before), Some(gate)) = (before, next.gate_mut()) {
            gate.follow(before, now);
        }
        if let (Kind::Smooth { window: old, .. }, Kind::Smooth { window, .. }) =
            (&mut self.kind, &mut next.kind)
        {
            window.follow(old, self.now, old_rate, new_rate);
        }
        for held in self.take() {
            next.restore(held);
        }
        *self = next;
        Ok(())
    }

    const fn gate(&self) -> Option<&Gate> {
        match &self.kind {
            Kind::Bucket { gate, .. } | Kind::Smooth { gate, .. } => Some(gate),
            Kind::Credit { .. } => None,
        }
    }

    const fn gate_mut(&mut self) -> Option<&mut Gate> {
        match &mut self.kind {
            Kind::Bucket { gate, .. } | Kind::Smooth { gate, .. } => Some(gate),
            Kind::Credit { .. } => None,
        }
    }

    /// Takes out all queued frames, in order of arrival.
    fn take(&mut self) -> Vec<HeldFrame<F>> {
        match &mut self.kind {
            Kind::Bucket { queue, .. } => {
                let mut waiting = Vec::with_capacity(queue.backlog().packets);
                queue.drain(&mut waiting);
                waiting.sort_by_key(|queued| queued.enqueued);
                let held = waiting.into_iter().map(|queued| HeldFrame {
                    frame: queued.frame,
                    came: queued.enqueued,
                    release: queued.enqueued,
                });
                held.collect()
            }
            Kind::Smooth { line, .. } | Kind::Credit { line, .. } => {
                std::mem::take(line).frames.into()
            }
        }
    }

    fn restore(&mut self, held: HeldFrame<F>) {
        match &mut self.kind {
            Kind::Bucket { queue, .. } => queue.restore(held.into()),
            Kind::Smooth { line, .. } | Kind::Credit { line, .. } => line.push(held),
        }
    }

    /// Takes out all waiting frames in the order in which they would leave, for a guest whose limit
    /// has ended.
    pub fn into_waiting(mut self) -> impl Iterator<Item = F> {
        let at_once = std::mem::take(&mut self.at_once);
        let at_once = at_once.into_iter().map(|queued| queued.frame);
        at_once.chain(self.take().into_iter().map(|held| held.frame))
    }

    /// Frees some of the memory that was not used since the last call, and returns whether more is
    /// left.
    pub fn give_back(&mut self) -> Spare {
        let left = shrink_list(&mut self.at_once);
        left.max(match &mut self.kind {
            Kind::Bucket { queue, .. } => queue.give_back(),
            Kind::Smooth { line, .. } | Kind::Credit { line, .. } => shrink_list(&mut line.frames),
        })
    }
}

/// Bytes of one segmented packet by which the queue may exceed its limit, because it arrives as a
/// whole.
const HIGHEST_BURST: u64 = 2 * 64 * 1024;

impl<F> Default for Line<F> {
    fn default() -> Self {
        Self {
            frames: VecDeque::new(),
            came: 0,
            left: 0,
            memory: Bytes(0),
        }
    }
}

impl<F: Frame> Line<F> {
    #[inline]
    fn push(&mut self, held: HeldFrame<F>) {
        self.came += held.frame.len() as u64;
        self.memory.0 += held.frame.truesize().0;
        self.frames.push_back(held);
    }

    #[inline]
    fn pop(&mut self) -> Option<HeldFrame<F>> {
        let held = self.frames.pop_front()?;
        self.left += held.frame.len() as u64;
        self.memory.0 -= held.frame.truesize().0;
        Some(held)
    }

    /// The waiting frames.
    fn backlog(&self) -> Backlog {
        Backlog {
            packets: self.frames.len(),
            bytes: Bytes(self.came - self.left),
            memory: self.memory,
        }
    }

    /// Checks whether the line may have a frame of a connection: never false if it has one. Returns
    /// true for a long line without a search.
    fn has(&self, connection: Connection) -> bool {
        let mut frames = self.frames.iter();
        self.frames.len() > LOOKS || frames.any(|held| held.frame.connection() == connection)
    }
}

/// Number of frames that are searched for one of a connection: the length of a line of 100 ms at 30
/// Mbit/s.
const LOOKS: usize = 256;

#[cfg(test)]
mod tests;
