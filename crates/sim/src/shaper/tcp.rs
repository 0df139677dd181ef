//! A TCP connection that always has data: CUBIC (RFC 9438), without hystart.
//!
//! Segments of one connection leave in order, so an acknowledgement of one that was sent
//! three later than another says that the other is lost (RFC 6675 with all gaps known). What is
//! lost is sent anew as whatever comes next: the sender always has data.

use std::collections::VecDeque;
use tailbound_units::Nanos;

/// An Ethernet frame of a full segment.
pub(super) const SEGMENT: usize = 1514;

/// CUBIC's constants (RFC 9438, 5).
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// Segments that are sent at first (RFC 6928), and the most: Linux's 4 MiB for sending.
const FIRST: f64 = 10.0;
const MOST: f64 = 2_800.0;
/// So many later ones were acknowledged of a segment that is lost.
const REORDERING: u64 = 3;
/// Nothing was acknowledged for that long: all is lost.
const TIMEOUT: Nanos = Nanos::from_secs(3);

/// The sender's side.
#[derive(Debug)]
pub(super) struct Cubic {
    window: f64,
    threshold: f64,
    most_before: f64,
    /// When the window was reduced last.
    reduced: Option<Nanos>,
    /// What was sent and not acknowledged, by number.
    outstanding: VecDeque<u64>,
    next: u64,
    /// Losses of numbers below this one are of one reduction.
    recovered: u64,
    heard: Nanos,
}

impl Cubic {
    pub(super) fn new() -> Self {
        Self {
            window: FIRST,
            threshold: f64::INFINITY,
            most_before: 0.0,
            reduced: None,
            outstanding: VecDeque::new(),
            next: 0,
            recovered: 0,
            heard: Nanos::ZERO,
        }
    }

    /// The number of the next segment, where the window has room.
    pub(super) fn send(&mut self) -> Option<u64> {
        if self.outstanding.len() as f64 >= self.window.floor() {
            return None;
        }
        self.next += 1;
        self.outstanding.push_back(self.next);
        Some(self.next)
    }

    /// A segment was acknowledged.
    pub(super) fn acknowledge(&mut self, now: Nanos, number: u64) {
        self.heard = now;
        let Some(place) = self.outstanding.iter().position(|it| *it == number) else {
            return;
        };
        self.outstanding.remove(place);
        let mut lost = None;
        while let Some(first) = self.outstanding.front()
            && first + REORDERING <= number
        {
            lost = self.outstanding.pop_front();
        }
        if lost.is_some_and(|lost| lost > self.recovered) {
            self.most_before = self.window;
            self.window = (self.window * BETA).max(2.0);
            self.threshold = self.window;
            self.reduced = Some(now);
            self.recovered = self.next;
        } else if self.window < self.threshold {
            self.window += 1.0;
        } else if let Some(reduced) = self.reduced {
            let since = now.since(reduced).as_secs_f64();
            let k = (self.most_before * (1.0 - BETA) / C).cbrt();
            let target = C * (since - k).powi(3) + self.most_before;
            self.window += ((target - self.window) / self.window).clamp(0.01 / self.window, 0.5);
        }
        self.window = self.window.min(MOST);
    }

    /// When all that is outstanding is taken for lost.
    pub(super) fn times_out_at(&self) -> Nanos {
        self.heard + TIMEOUT
    }

    /// All that is outstanding is lost.
    pub(super) fn time_out(&mut self, now: Nanos) {
        self.outstanding.clear();
        self.heard = now;
        self.threshold = (self.window / 2.0).max(2.0);
        self.window = 1.0;
    }
}
