//! Endless TCP streams, as far as their windows matter: slow start and CUBIC in small windows (RFC
//! 9438, 4.3), losses detected by later segments that have arrived (RFC 8985), a probe without such
//! segments, and time-outs (RFC 6298). Times are parameters, so that a network may be slower or
//! faster than a real one.

use std::collections::{BTreeMap, BTreeSet};
use tailbound_units::Nanos;

/// Times that do not follow from the network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    /// The least time-out.
    pub(super) timeout: Nanos,
    /// Longest delay of an acknowledgement of one segment.
    pub(super) delay: Nanos,
}

/// Acknowledgement of a receiver: all segments before `next`, and those of the 128 after it whose
/// bit is set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ack {
    next: u64,
    behind: u128,
}

impl Ack {
    fn has(&self, number: u64) -> bool {
        let behind = number.wrapping_sub(self.next);
        number < self.next || (behind < BEHIND && self.behind >> behind & 1 == 1)
    }
}

/// Number of segments after the first missing one that a receiver accepts.
const BEHIND: u64 = 128;

#[derive(Debug, Clone, Copy)]
struct SentSegment {
    at: Nanos,
    /// Number of segments that were sent before, in total.
    order: u64,
    again: bool,
}

/// The sender of a stream. Segments have numbers.
#[derive(Debug)]
pub(super) struct Sender {
    timing: Timing,
    next: u64,
    acked: u64,
    flying: BTreeMap<u64, SentSegment>,
    lost: BTreeSet<u64>,
    sent: u64,
    window: f64,
    threshold: f64,
    /// Losses before this one have been answered.
    recovered: u64,
    /// Duration of a round trip, and its variation.
    round_trip: Nanos,
    varies: Nanos,
    /// The shortest so far.
    shortest: Nanos,
    /// The window and the threshold before a time-out that may have been too early.
    before: Option<(f64, f64)>,
    timer: Nanos,
    probe: Option<Nanos>,
}

/// Limit on a sender's segments in flight.
const MAX_SEGMENTS_IN_FLIGHT: f64 = 120.0;
/// Factor of the window after a loss, and its growth in a round trip.
const KEPT: f64 = 0.7;
const GROWTH: f64 = 3.0 * (1.0 - KEPT) / (1.0 + KEPT);

impl Sender {
    pub(super) fn new(timing: Timing) -> Self {
        Self {
            timing,
            next: 0,
            acked: 0,
            flying: BTreeMap::new(),
            lost: BTreeSet::new(),
            sent: 0,
            window: 10.0,
            threshold: f64::MAX,
            recovered: 0,
            round_trip: Nanos::ZERO,
            varies: Nanos::ZERO,
            shortest: Nanos::MAX,
            before: None,
            timer: Nanos::MAX,
            probe: None,
        }
    }

    /// The next segment that may be sent now.
    pub(super) fn poll(&mut self, now: Nanos) -> Option<u64> {
        if now >= self.timer {
            self.time_out();
        }
        let probes = self.probe.is_some_and(|at| now >= at);
        if !probes
            && self.flying.len() as f64 >= self.window.floor().clamp(1.0, MAX_SEGMENTS_IN_FLIGHT)
        {
            return None;
        }
        if self.lost.is_empty() && self.next >= self.acked + BEHIND {
            return None;
        }
        let lost = self.lost.pop_first();
        let number = lost.unwrap_or(self.next);
        self.next += u64::from(lost.is_none());
        self.sent += 1;
        let sent = SentSegment {
            at: now,
            order: self.sent,
            again: lost.is_some(),
        };
        self.flying.insert(number, sent);
        self.set_timers(now);
        if probes {
            self.probe = None;
        }
        Some(number)
    }

    fn set_timers(&mut self, now: Nanos) {
        if self.flying.is_empty() {
            (self.timer, self.probe) = (Nanos::MAX, None);
            return;
        }
        let guess = self.round_trip.max(Nanos(1));
        self.timer = now + guess + Nanos(4 * self.varies.0).max(self.timing.timeout);
        let alone = if self.flying.len() == 1 {
            self.timing.delay
        } else {
            Nanos::ZERO
        };
        self.probe = Some(now + Nanos(2 * guess.0) + alone).filter(|at| *at < self.timer);
    }

    fn time_out(&mut self) {
        self.before = Some((self.window, self.threshold));
        self.lost.extend(self.flying.keys());
        self.flying.clear();
        self.threshold = (self.window * KEPT).max(2.0);
        self.window = 1.0;
        self.recovered = self.next;
        self.timer = Nanos::MAX;
        self.probe = None;
    }

    /// Handles an acknowledgement.
    pub(super) fn handle(&mut self, now: Nanos, ack: Ack) {
        let before = self.lost.len();
        self.lost.retain(|number| !ack.has(*number));
        let late = (before - self.lost.len()) as u32;
        if late > 0 {
            self.undo_time_out(now);
        }
        let mut came = Vec::new();
        self.flying.retain(|number, sent| {
            let has = ack.has(*number);
            came.extend(has.then_some(*sent));
            !has
        });
        if late == 0 && came.is_empty() {
            return;
        }
        self.before = None;
        self.acked = self.acked.max(ack.next);
        for sent in came.iter().filter(|sent| !sent.again) {
            self.handle_round_trip(now.since(sent.at));
        }
        let latest = came.iter().map(|sent| sent.order).max().unwrap_or(0);
        let mut lost = BTreeSet::new();
        self.flying.retain(|number, sent| {
            let stays = sent.order > latest;
            lost.extend((!stays).then_some(*number));
            stays
        });
        if lost.last().is_some_and(|last| *last >= self.recovered) {
            self.threshold = (self.window * KEPT).max(2.0);
            self.window = self.threshold;
            self.recovered = self.next;
        } else {
            self.grow(f64::from(late) + came.len() as f64);
        }
        self.lost.append(&mut lost);
        self.set_timers(now);
    }

    /// Undoes a time-out, if there was one: a segment from before it was acknowledged, so it was
    /// spurious (RFC 5682).
    fn undo_time_out(&mut self, now: Nanos) {
        let Some((window, threshold)) = self.before.take() else {
            return;
        };
        (self.window, self.threshold) = (window, threshold);
        for number in std::mem::take(&mut self.lost) {
            self.sent += 1;
            let sent = SentSegment {
                at: now,
                order: self.sent,
                again: true,
            };
            self.flying.insert(number, sent);
        }
    }

    fn handle_round_trip(&mut self, sample: Nanos) {
        self.shortest = self.shortest.min(sample);
        // HyStart (RFC 9406): a queue is there.
        let unit = self.timing.timeout.0 / 50;
        let more = Nanos((self.shortest.0 / 8).clamp(unit, 4 * unit));
        if self.window >= 16.0 && sample > self.shortest + more {
            self.threshold = self.threshold.min(self.window);
        }
        if self.round_trip == Nanos::ZERO {
            (self.round_trip, self.varies) = (sample, Nanos(sample.0 / 2));
        } else {
            let apart = sample.0.abs_diff(self.round_trip.0);
            self.varies = Nanos((3 * self.varies.0 + apart) / 4);
            self.round_trip = Nanos((7 * self.round_trip.0 + sample.0) / 8);
        }
    }

    /// Increases the window by the growth that `came` acknowledged segments allow.
    fn grow(&mut self, came: f64) {
        if self.window < self.threshold {
            self.window += came;
        } else if self.acked >= self.recovered {
            self.window += GROWTH * came / self.window;
        }
        self.window = self.window.min(MAX_SEGMENTS_IN_FLIGHT);
    }
}

/// The receiver of a stream.
#[derive(Debug)]
pub(super) struct Receiver {
    timing: Timing,
    next: u64,
    behind: u128,
    /// Segments that were not acknowledged yet, and the time of their acknowledgement.
    owed: u32,
    due: Nanos,
}

impl Receiver {
    pub(super) fn new(timing: Timing) -> Self {
        Self {
            timing,
            next: 0,
            behind: 0,
            owed: 0,
            due: Nanos::MAX,
        }
    }

    /// Returns the number of segments that have come in order.
    pub(super) fn received(&self) -> u64 {
        self.next
    }

    /// Takes a segment.
    pub(super) fn handle(&mut self, now: Nanos, number: u64) {
        let in_order = number == self.next && self.behind == 0;
        let behind = number.wrapping_sub(self.next);
        if number >= self.next && behind < BEHIND {
            self.behind |= 1 << behind;
        }
        while self.behind & 1 == 1 {
            self.behind >>= 1;
            self.next += 1;
        }
        self.owed += 1;
        let at = if in_order && self.owed < 2 {
            now + self.timing.delay
        } else {
            now
        };
        self.due = self.due.min(at);
    }

    /// The acknowledgement that is due.
    pub(super) fn poll(&mut self, now: Nanos) -> Option<Ack> {
        if now < self.due {
            return None;
        }
        (self.owed, self.due) = (0, Nanos::MAX);
        Some(Ack {
            next: self.next,
            behind: self.behind,
        })
    }
}
