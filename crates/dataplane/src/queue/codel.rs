//! Controlled delay: drops when packets have waited too long for too long
//! (RFC 8289; Small is Better, 3.3).
//!
//! The estimator is the shortest sojourn time in an interval (RFC 8289, 3.2), the
//! control law drops at intervals that shrink with the square root of the count
//! of drops (3.3). The code follows the pseudo-code of section 5; the square root
//! is exact, in integers.

use super::spare::{Spare, shrink_list};
use super::{Backlog, QueueStats, Queued};
use crate::Frame;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use tailbound_units::{Bytes, Nanos};

/// Parameters and limits of a queue under `CoDel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CodelConfig {
    /// Acceptable standing delay; 5 ms (RFC 8289, 4.4).
    pub target: Nanos,
    /// Time above the target until the queue acts; 100 ms (RFC 8289, 4.3).
    pub interval: Nanos,
    /// Marks packets of ECN-capable senders instead of dropping them; false.
    pub ecn: bool,
    /// Full frame without FCS; 1,514 B (9,014 B for an MTU of 9,000). `CoDel` ignores queues up to
    /// this size (RFC 8289, 5.4).
    pub mtu: Bytes,
    /// Delay from which frames of scalable senders (ECT(1), L4S) are marked, even without `ecn`;
    /// never. For TCP Prague: 1 ms (RFC 9332).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ce_threshold: Option<Nanos>,
    /// Limit in packets; 1,000.
    pub packets: usize,
    /// Limit in memory; 68 MiB.
    pub memory: Bytes,
}

impl Default for CodelConfig {
    fn default() -> Self {
        Self {
            target: Nanos::from_millis(5),
            interval: Nanos::from_millis(100),
            ecn: false,
            mtu: Bytes(1514),
            ce_threshold: None,
            packets: 1000,
            memory: Bytes(68 << 20),
        }
    }
}

/// A FIFO under `CoDel`. The module describes it.
#[derive(Debug)]
pub struct Codel<F> {
    config: CodelConfig,
    control: Control,
    waiting: Waiting<F>,
}

/// The waiting frames.
#[derive(Debug)]
struct Waiting<F> {
    frames: VecDeque<Queued<F>>,
    backlog: Backlog,
}

impl<F: Frame> Waiting<F> {
    fn pop(&mut self) -> Option<Queued<F>> {
        let queued = self.frames.pop_front()?;
        self.backlog.remove(&queued.frame);
        Some(queued)
    }
}

impl<F: Frame> Line for Waiting<F> {
    fn head(&self) -> Option<(Nanos, u64)> {
        let head = self.frames.front()?;
        let behind = self.backlog.bytes.0 - head.frame.len() as u64;
        Some((head.enqueued, behind))
    }

    fn drop_head(&mut self) {
        self.pop();
    }

    fn mark_head(&mut self) -> bool {
        let head = self.frames.front_mut();
        head.is_some_and(|queued| queued.frame.mark_congestion())
    }

    fn mark_scalable_head(&mut self) -> bool {
        let head = self.frames.front_mut().map(|queued| &mut queued.frame);
        head.is_some_and(|frame| frame.is_scalable() && frame.mark_congestion())
    }
}

impl<F: Frame> Codel<F> {
    pub(super) fn new(config: CodelConfig) -> Self {
        Self {
            config,
            control: Control::NEW,
            waiting: Waiting {
                frames: VecDeque::new(),
                backlog: Backlog::default(),
            },
        }
    }

    pub(super) fn enqueue(&mut self, queued: Queued<F>, stats: &mut QueueStats) {
        let CodelConfig {
            packets, memory, ..
        } = self.config;
        let backlog = self.waiting.backlog;
        if backlog.has_room(&queued.frame, packets, memory) {
            self.restore(queued);
        } else {
            stats.drops.full += 1;
        }
    }

    pub(super) fn restore(&mut self, queued: Queued<F>) {
        let waiting = &mut self.waiting;
        waiting.backlog.add(&queued.frame);
        waiting.frames.push_back(queued);
    }

    pub(super) fn dequeue(&mut self, now: Nanos, stats: &mut QueueStats) -> Option<Queued<F>> {
        let parameters = Parameters {
            target: self.config.target,
            interval: self.config.interval,
            mtu: self.config.mtu,
            ecn: self.config.ecn,
            ce_threshold: self.config.ce_threshold,
        };
        self.control
            .admit(&parameters, now, stats, &mut self.waiting);
        self.waiting.pop()
    }

    pub(super) fn backlog(&self) -> Backlog {
        self.waiting.backlog
    }

    pub(super) fn give_back(&mut self) -> Spare {
        shrink_list(&mut self.waiting.frames)
    }

    pub(super) fn drain(&mut self, into: &mut Vec<Queued<F>>) {
        into.extend(self.waiting.frames.drain(..));
        self.waiting.backlog = Backlog::default();
    }
}

/// A line of frames as the control loop sees it: the loop checks the head, and drops or admits it.
/// Frames do not move for that.
pub(crate) trait Line {
    /// Returns the time at which the head was pushed, and the number of bytes behind it; `None` if
    /// no frame waits.
    fn head(&self) -> Option<(Nanos, u64)>;
    /// Drops the head.
    fn drop_head(&mut self);
    /// Marks the head; false if its sender accepts no marks.
    fn mark_head(&mut self) -> bool;
    /// Marks the head if its sender is scalable; false otherwise.
    fn mark_scalable_head(&mut self) -> bool;
}

/// Parameters of the control loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameters {
    pub(crate) target: Nanos,
    pub(crate) interval: Nanos,
    pub(crate) mtu: Bytes,
    pub(crate) ecn: bool,
    pub(crate) ce_threshold: Option<Nanos>,
}

/// The state of one control loop (RFC 8289, 5.3).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Control {
    /// Time at which the sojourn time will have been above target for an interval; zero while it is
    /// below.
    first_above: Nanos,
    /// When the next drop is due, while dropping.
    drop_next: Nanos,
    /// Drops since dropping began.
    count: u32,
    /// `count` when dropping began last.
    last_count: u32,
    dropping: bool,
}

impl Control {
    /// A control loop in its initial state.
    pub(crate) const NEW: Self = Self {
        first_above: Nanos::ZERO,
        drop_next: Nanos::ZERO,
        count: 0,
        last_count: 0,
        dropping: false,
    };

    /// Records that the head has not waited too long.
    #[inline]
    pub(crate) const fn rest(&mut self) {
        self.first_above = Nanos::ZERO;
        self.dropping = false;
    }

    /// Checks whether the head, which has waited too long, may leave nevertheless, because heads
    /// have not waited too long for an interval yet: then no further check is necessary.
    #[inline]
    pub(crate) fn bears(&mut self, now: Nanos) -> bool {
        let bears = now < self.first_above;
        self.dropping &= !bears;
        bears
    }

    #[cfg(test)]
    pub(super) const fn dropping(&self) -> bool {
        self.dropping
    }

    #[cfg(test)]
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Drops from the head of `line` until the head may leave at `now`; false if no frame is left
    /// (RFC 8289, 5.5).
    #[inline]
    pub(crate) fn admit(
        &mut self,
        parameters: &Parameters,
        now: Nanos,
        stats: &mut QueueStats,
        line: &mut impl Line,
    ) -> bool {
        let admitted = match self.look(parameters, now, line) {
            Head::None => {
                self.dropping = false;
                false
            }
            Head::Good => {
                self.dropping = false;
                true
            }
            Head::Bad => self.admit_bad(parameters, now, stats, line),
        };
        if let Some(threshold) = parameters.ce_threshold {
            mark_scalable(threshold, now, stats, line);
        }
        admitted
    }

    /// Counts packets that were dropped for lack of room, because they signal their senders as
    /// strongly (Linux: `flow->cvars.count += i`).
    pub(super) fn handle_dropped(&mut self, packets: u32) {
        self.count = self.count.wrapping_add(packets);
    }

    /// [`Control::admit`] for a head that has waited too long for too long.
    #[inline(never)]
    fn admit_bad(
        &mut self,
        parameters: &Parameters,
        now: Nanos,
        stats: &mut QueueStats,
        line: &mut impl Line,
    ) -> bool {
        if !self.dropping {
            self.begin(parameters.interval, now);
            return Self::signal(parameters, stats, line)
                || self.look(parameters, now, line) != Head::None;
        }
        while now >= self.drop_next {
            self.count = self.count.wrapping_add(1);
            let next_drop = control_law(parameters.interval, self.drop_next, self.count);
            if Self::signal(parameters, stats, line) {
                self.drop_next = next_drop;
                return true;
            }
            match self.look(parameters, now, line) {
                Head::Bad => self.drop_next = next_drop,
                head => {
                    self.dropping = false;
                    return head == Head::Good;
                }
            }
        }
        true
    }

    /// Signals the sender to slow down: marks the head, which then may leave, or drops it and
    /// returns false.
    fn signal(parameters: &Parameters, stats: &mut QueueStats, line: &mut impl Line) -> bool {
        if parameters.ecn && line.mark_head() {
            stats.marked += 1;
            return true;
        }
        line.drop_head();
        stats.drops.codel += 1;
        false
    }

    /// Checks the head: it is bad if the sojourn time has been above target for an interval (RFC
    /// 8289, 5.4 `dodequeue`).
    #[inline]
    fn look(&mut self, parameters: &Parameters, now: Nanos, line: &impl Line) -> Head {
        let Some((enqueued, behind)) = line.head() else {
            self.first_above = Nanos::ZERO;
            return Head::None;
        };
        if now.since(enqueued) < parameters.target || behind <= parameters.mtu.0 {
            self.first_above = Nanos::ZERO;
            return Head::Good;
        }
        if self.first_above == Nanos::ZERO {
            self.first_above = now.saturating_add(parameters.interval).max(Nanos(1));
            return Head::Good;
        }
        if now < self.first_above {
            return Head::Good;
        }
        Head::Bad
    }

    /// Begins to drop, at the last rate if dropping ended recently.
    fn begin(&mut self, interval: Nanos, now: Nanos) {
        let last_time = self.count.wrapping_sub(self.last_count);
        let recent = now.since(self.drop_next).0 < interval.0.saturating_mul(16);
        self.count = if last_time > 1 && recent {
            last_time
        } else {
            1
        };
        self.last_count = self.count;
        self.drop_next = control_law(interval, now, self.count);
        self.dropping = true;
    }
}

/// Marks the head, which may leave, if it has waited for longer than the threshold and its sender
/// expects such marks (RFC 9331, 4.1; Linux: `ce_threshold`).
#[inline(never)]
fn mark_scalable(threshold: Nanos, now: Nanos, stats: &mut QueueStats, line: &mut impl Line) {
    let waited = line.head().map(|(enqueued, _)| now.since(enqueued));
    if waited > Some(threshold) && line.mark_scalable_head() {
        stats.marked_scalable += 1;
    }
}

/// State of the head of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    None,
    /// The head may leave.
    Good,
    /// The head has waited too long, as those before it for an interval.
    Bad,
}

/// `from` + interval / sqrt(count), rounded down (RFC 8289, 3.3). Exact, since
/// the floor of a root of x is the root of the floor of x.
fn control_law(interval: Nanos, from: Nanos, count: u32) -> Nanos {
    let square = u128::from(interval.0) * u128::from(interval.0) / u128::from(count.max(1));
    let step = match u64::try_from(square) {
        Ok(square) => square.isqrt(),
        Err(_) => square.isqrt() as u64,
    };
    from.saturating_add(Nanos(step))
}

#[cfg(test)]
mod tests;
