//! Controlled delay: drops when packets have waited too long for too long
//! (RFC 8289; Small is Better, 3.3).
//!
//! The estimator is the shortest sojourn time in an interval (RFC 8289, 3.2), the
//! control law drops at intervals that shrink with the square root of the count
//! of drops (3.3). The code follows the pseudo-code of section 5; the square root
//! is exact, in integers.

use super::{Backlog, QueueStats, Queued};
use crate::Frame;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use tailbound_units::{Bytes, Nanos};

/// Parameters and limits of a queue under `CoDel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CodelConfig {
    /// The sojourn time that is accepted as standing; 5 ms, which is 5 % of the
    /// interval (RFC 8289, 4.4).
    pub target: Nanos,
    /// How long it may be exceeded; 100 ms, a round trip of the wide Internet
    /// (RFC 8289, 4.3).
    pub interval: Nanos,
    /// Marks in place of dropping where the sender takes marks; off, as in
    /// Linux's `codel`.
    pub ecn: bool,
    /// Most packets; 1000, as in Linux.
    pub packets: usize,
    /// Most bytes; 64 MiB, so that 1000 packets of 64 KiB fit.
    pub memory: Bytes,
}

impl Default for CodelConfig {
    fn default() -> Self {
        Self {
            target: Nanos::from_millis(5),
            interval: Nanos::from_millis(100),
            ecn: false,
            packets: 1000,
            memory: Bytes(64 << 20),
        }
    }
}

/// A FIFO under `CoDel`. See the module.
#[derive(Debug)]
pub struct Codel<F> {
    config: CodelConfig,
    control: Control,
    frames: VecDeque<Queued<F>>,
    backlog: Backlog,
    largest: u64,
}

impl<F: Frame> Codel<F> {
    pub(super) fn new(config: CodelConfig) -> Self {
        Self {
            config,
            control: Control::NEW,
            frames: VecDeque::new(),
            backlog: Backlog::default(),
            largest: FULL_FRAME,
        }
    }

    pub(super) fn enqueue(&mut self, queued: Queued<F>, stats: &mut QueueStats) {
        let CodelConfig {
            packets, memory, ..
        } = self.config;
        if self.backlog.has_room(queued.frame.len(), packets, memory) {
            self.restore(queued);
        } else {
            stats.drops.full += 1;
        }
    }

    pub(super) fn restore(&mut self, queued: Queued<F>) {
        self.backlog.add(queued.frame.len());
        self.frames.push_back(queued);
    }

    pub(super) fn dequeue(&mut self, now: Nanos, stats: &mut QueueStats) -> Option<Queued<F>> {
        let Self {
            config,
            control,
            frames,
            backlog,
            largest,
        } = self;
        let parameters = Parameters {
            target: config.target,
            interval: config.interval,
            ecn: config.ecn,
        };
        control.dequeue(parameters, now, stats, || {
            let queued = frames.pop_front()?;
            let len = queued.frame.len();
            backlog.remove(len);
            *largest = (*largest).max(len as u64);
            Some((queued, backlog.bytes.0 <= *largest))
        })
    }

    pub(super) fn backlog(&self) -> Backlog {
        self.backlog
    }

    pub(super) fn drain(&mut self, into: &mut Vec<Queued<F>>) {
        into.extend(self.frames.drain(..));
        self.backlog = Backlog::default();
    }
}

/// Bytes of a full Ethernet frame without its FCS: below so much left, there is
/// no standing queue (RFC 8289, 5.4: `maxpacket`). Grows with the largest packet
/// seen, as in Linux, for queues of packets that are not segmented.
pub(super) const FULL_FRAME: u64 = 1514;

/// What the control loop is tuned by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parameters {
    pub(super) target: Nanos,
    pub(super) interval: Nanos,
    pub(super) ecn: bool,
}

/// The state of one control loop (RFC 8289, 5.3).
#[derive(Debug, Clone, Copy)]
pub(super) struct Control {
    /// When the sojourn time will have been above target for an interval.
    first_above: Option<Nanos>,
    /// When the next drop is due, while dropping.
    drop_next: Nanos,
    /// Drops since dropping began.
    count: u32,
    /// `count` when dropping began last.
    last_count: u32,
    dropping: bool,
}

impl Control {
    /// A loop that has seen nothing.
    pub(super) const NEW: Self = Self {
        first_above: None,
        drop_next: Nanos::ZERO,
        count: 0,
        last_count: 0,
        dropping: false,
    };

    #[cfg(test)]
    pub(super) const fn dropping(&self) -> bool {
        self.dropping
    }

    /// The next frame that may leave (RFC 8289, 5.5).
    ///
    /// `pop` takes the frame at the head, and says whether no more than one
    /// packet's worth of bytes is left behind it.
    pub(super) fn dequeue<F: Frame>(
        &mut self,
        parameters: Parameters,
        now: Nanos,
        stats: &mut QueueStats,
        mut pop: impl FnMut() -> Option<(Queued<F>, bool)>,
    ) -> Option<Queued<F>> {
        let Some((mut queued, above)) = self.next(parameters, now, &mut pop) else {
            self.dropping = false;
            return None;
        };
        if self.dropping {
            self.dropping = above;
            while self.dropping && now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                let next_drop = control_law(parameters.interval, self.drop_next, self.count);
                if mark(&mut queued, parameters, stats) {
                    self.drop_next = next_drop;
                    break;
                }
                stats.drops.codel += 1;
                match self.next(parameters, now, &mut pop) {
                    Some((next, true)) => {
                        self.drop_next = next_drop;
                        queued = next;
                    }
                    Some((next, false)) => {
                        self.dropping = false;
                        queued = next;
                    }
                    None => {
                        self.dropping = false;
                        return None;
                    }
                }
            }
        } else if above {
            self.begin(parameters.interval, now);
            if !mark(&mut queued, parameters, stats) {
                stats.drops.codel += 1;
                (queued, _) = self.next(parameters, now, &mut pop)?;
            }
        }
        Some(queued)
    }

    /// The frame at the head, and whether the sojourn time has been above target
    /// for an interval (RFC 8289, 5.4 `dodequeue`).
    fn next<F: Frame>(
        &mut self,
        parameters: Parameters,
        now: Nanos,
        pop: &mut impl FnMut() -> Option<(Queued<F>, bool)>,
    ) -> Option<(Queued<F>, bool)> {
        let Some((queued, last)) = pop() else {
            self.first_above = None;
            return None;
        };
        if now.since(queued.enqueued) < parameters.target || last {
            self.first_above = None;
            return Some((queued, false));
        }
        let Some(first_above) = self.first_above else {
            self.first_above = Some(now.saturating_add(parameters.interval));
            return Some((queued, false));
        };
        Some((queued, now >= first_above))
    }

    /// Begins to drop: at the rate of last time where that was not long ago.
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

/// Marks the frame where that is wanted and its sender takes marks.
fn mark<F: Frame>(queued: &mut Queued<F>, parameters: Parameters, stats: &mut QueueStats) -> bool {
    let marked = parameters.ecn && queued.frame.mark_congestion();
    stats.marked += u64::from(marked);
    marked
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
