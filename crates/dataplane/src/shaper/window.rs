//! The smooth window: the delay of each packet.
//!
//! The window `[d, d + width]` moves once an interval. Its controller is a PID on the relative
//! difference between arrivals and the limit's allotment (Cheng and Wang, 3.2, have the sign of the
//! sum but no gains). Error and move are relative: for TCP the plant is a window over a round trip,
//! whose slope differs by the square of the rate, so an absolute gain for 4 Mbit/s is 64 times too
//! high at 32 Mbit/s. With e in [-1, 1]:
//!
//! ```text
//! move = d · (Kp · e + Kd · (e - e before)) + Ki · sum of e · width       d within [dmin, dmax - width]
//! sum of e = half of that before + e
//! ```
//!
//! Within an interval a packet's delay is proportional: `d` up to the allotment so far, `d + width`
//! above it by a tenth of the interval's allotment or more, and linear in between. (Literally the
//! paper shortens the delay of a guest that has exceeded its allotment, which can only increase its
//! excess.)
//!
//! **No bumps.** The window slides evenly from one interval's end to the next's. So arrival plus
//! delay never decreases, packets stay in order, and no packet is beyond its window because the
//! window moved.
//!
//! **No wind-up.** If the bucket held the last packet of an interval beyond the window, the window
//! moves around that packet's delay immediately, which changes no delay, and the sum is cleared.
//!
//! **Idle** intervals count, too: with no arrivals e is -1, and the window returns within a few
//! intervals.

use super::WindowPosition;
use super::config::{Gains, WindowConfig};
use std::num::NonZeroU64;
use tailbound_units::{Nanos, Rate};

/// Excess over the allotment at which a packet's delay grows by the whole window, as a part of an
/// interval's allotment.
const PROPORTIONAL: f64 = 0.1;
/// Part of the sum of errors that remains after an interval, from 0 to 1.
const LEAK: f64 = 0.5;
/// Distance from the lowest delay within which a window counts as being there: a microsecond.
const NEAR: f64 = 1e3;

/// Converts a whole number through a signed one, with half as many instructions. Exact up to 2^53,
/// three months in nanoseconds.
#[inline]
const fn float(number: u64) -> f64 {
    number.cast_signed() as f64
}

/// Rounds nanoseconds, from zero to 2^52, to the nearest whole number. Half as many instructions as
/// a conversion that handles all other numbers.
#[inline]
const fn whole(nanos: f64) -> Nanos {
    const BITS: u32 = f64::MANTISSA_DIGITS - 1;
    const UNITS: f64 = (1_u64 << BITS) as f64;
    // In this range the last bit is a whole one.
    let bits = (nanos + UNITS).to_bits();
    Nanos(bits << (u64::BITS - BITS) >> (u64::BITS - BITS))
}

/// The window. The module describes it.
#[derive(Debug, Clone)]
pub(super) struct Window {
    gains: Gains,
    width: f64,
    /// Lower bound of the window's end.
    at_least: Nanos,
    /// Bounds of `from` in nanoseconds.
    least: f64,
    greatest: f64,
    interval: Nanos,
    /// Bytes per nanosecond.
    rate: f64,
    allotted: f64,
    /// Additional delay for each byte beyond the allotment so far.
    per_byte: f64,
    /// Begin and end of the present interval: zero before the first packet.
    began: Nanos,
    ends: Nanos,
    /// Position of the window at the begin, and its movement per nanosecond.
    from: f64,
    slope: f64,
    /// Bytes that arrived in the interval.
    came: f64,
    sum: f64,
    last_error: f64,
    /// Nanoseconds that the last packet waited, if it was beyond its window. Written for each
    /// packet: so it takes one word.
    beyond: Option<NonZeroU64>,
}

impl Window {
    pub(super) fn new(config: &WindowConfig) -> Self {
        let (width, interval) = (config.width.0 as f64, config.interval.0 as f64);
        let rate = config.rate.0 as f64 / 8e9;
        let allotted = rate * interval;
        Self {
            gains: config.gains,
            width,
            at_least: config.dmin.saturating_add(config.width),
            least: config.dmin.0 as f64,
            greatest: config.dmax.0 as f64 - width,
            interval: config.interval,
            rate,
            allotted,
            per_byte: width / (PROPORTIONAL * allotted),
            began: Nanos::ZERO,
            ends: Nanos::ZERO,
            from: config.dmin.0 as f64,
            slope: 0.0,
            came: 0.0,
            sum: 0.0,
            last_error: 0.0,
            beyond: None,
        }
    }

    /// Returns the delay of a packet of `len` bytes that arrives at `now`.
    #[inline]
    pub(super) fn delay(&mut self, now: Nanos, len: usize) -> Nanos {
        let passed = self.count(now, len);
        let more = (self.came - passed * self.rate) * self.per_byte;
        // Neither is NaN, so the comparison needs no order of NaN.
        let part = if more > 0.0 { more } else { 0.0 };
        let part = if part < self.width { part } else { self.width };
        whole(self.from + self.slope * passed + part)
    }

    /// Counts a packet that arrives at `now`; returns the time since the begin of the interval.
    #[inline]
    pub(super) fn count(&mut self, now: Nanos, len: usize) -> f64 {
        if now >= self.ends {
            self.begin(now);
        }
        self.came += float(len as u64);
        float(now.0.wrapping_sub(self.began.0))
    }

    /// Checks whether a packet that came at `came` and is held until `due` may be beyond the
    /// window, by the lower bound of the window's end.
    #[inline]
    pub(super) const fn may_be_beyond(&self, came: Nanos, due: Nanos) -> bool {
        due.0.wrapping_sub(came.0) > self.at_least.0
    }

    /// Checks whether such a packet is beyond the window.
    #[cold]
    #[inline(never)]
    pub(super) fn is_beyond(&self, came: Nanos, due: Nanos) -> bool {
        float(due.since(came).0) > self.greatest_at(due)
    }

    /// Records the delay of the last packet, if it was beyond the window.
    #[inline]
    pub(super) fn note(&mut self, beyond: Option<Nanos>) {
        self.beyond = beyond.and_then(|waited| NonZeroU64::new(waited.0));
    }

    fn greatest_at(&self, now: Nanos) -> f64 {
        let passed = now.min(self.ends).since(self.began);
        self.from + self.slope * float(passed.0) + self.width
    }

    /// Begins the intervals up to `now`.
    #[cold]
    #[inline(never)]
    fn begin(&mut self, now: Nanos) {
        if self.ends == Nanos::ZERO {
            self.began = now;
        }
        let mut began = self.began;
        while now.since(began) >= self.interval {
            if self.is_at_rest() {
                // All further idle intervals have no effect.
                let whole = now.since(began).0 / self.interval.0;
                began += Nanos(whole * self.interval.0);
                break;
            }
            began += self.interval;
            self.end_interval();
        }
        self.began = began;
        self.ends = began.saturating_add(self.interval);
    }

    /// Checks whether an idle interval has no effect.
    fn is_at_rest(&self) -> bool {
        let is_still = self.slope == 0.0 && self.sum == 0.0 && self.last_error <= -1.0;
        self.came == 0.0 && self.from <= self.least && is_still && self.beyond.is_none()
    }

    fn end_interval(&mut self) {
        self.from += self.slope * self.interval.0 as f64;
        let error = (self.came / self.allotted - 1.0).clamp(-1.0, 1.0);
        self.came = 0.0;
        let change = error - self.last_error;
        self.last_error = error;
        if let Some(waited) = self.beyond.take() {
            self.sum = 0.0;
            self.slope = 0.0;
            let middle = waited.get() as f64 - self.width / 2.0;
            self.from = middle.clamp(self.least, self.greatest);
            return;
        }
        self.sum = self.sum * LEAK + error;
        let Gains {
            proportional,
            integral,
            derivative,
        } = self.gains;
        let part = proportional.get() * error + derivative.get() * change;
        let to = self.from + self.from * part + integral.get() * self.sum * self.width;
        let mut within = to.clamp(self.least, self.greatest);
        if within - self.least < NEAR {
            within = self.least;
        }
        if within <= self.least || within >= self.greatest {
            self.sum = 0.0;
        }
        self.slope = (within - self.from) / self.interval.0 as f64;
    }

    /// Position at `now`.
    pub(super) fn position_at(&self, now: Nanos) -> WindowPosition {
        let mut then = self.clone();
        if then.ends > Nanos::ZERO && now >= then.ends {
            then.begin(now);
        }
        let passed = now.min(then.ends).since(then.began);
        let least = then.from + then.slope * float(passed.0);
        WindowPosition {
            least: Nanos(least as u64),
            greatest: Nanos((least + then.width) as u64),
        }
    }

    /// Takes over the position of a window at another rate, from `now` on: the delay of the same
    /// bytes is scaled to the new rate.
    pub(super) fn follow(&mut self, before: &Self, now: Nanos, old: Rate, new: Rate) {
        let at = before.position_at(now).least.0 as f64;
        let at = at * (old.0 as f64 / new.0 as f64);
        self.from = at.clamp(self.least, self.greatest);
        if before.ends > Nanos::ZERO {
            self.began = now;
            self.ends = now.saturating_add(self.interval);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Gain;
    use super::*;

    const SECOND: Nanos = Nanos::from_secs(1);

    /// Returns the window's position at the end of each second, in nanoseconds, with arrivals of
    /// these percentages of the limit in each second.
    fn positions(gains: [u32; 3], dmin: Nanos, loads: &[u64]) -> Vec<u64> {
        let [proportional, integral, derivative] = gains.map(Gain::from_thousandths);
        let config = WindowConfig {
            dmin,
            gains: Gains {
                proportional,
                integral,
                derivative,
            },
            ..WindowConfig::new(Rate::from_mbit(8))
        };
        let mut window = Window::new(&config);
        let mut now = SECOND;
        let position = |load: &u64| {
            // 8 Mbit/s are 10 kB for each percent of a second.
            window.count(now, *load as usize * 10_000);
            now += SECOND;
            // The slide to the position that this second decided takes the next one.
            window.position_at(now + SECOND).least.0
        };
        loads.iter().map(position).collect()
    }

    #[track_caller]
    fn assert_near(found: &[u64], wanted: &[u64]) {
        assert_eq!(found.len(), wanted.len());
        let is_near = |(one, other): (&u64, &u64)| one.abs_diff(*other) <= 2;
        assert!(
            found.iter().zip(wanted).all(is_near),
            "{found:?} {wanted:?}"
        );
    }

    #[test]
    fn each_term_of_the_control_law_moves_the_window_by_its_gain() {
        let middle = Nanos::from_millis(10);
        // 1 % too much: the window grows by twice that, relative to its position.
        let found = positions([2_000, 0, 0], middle, &[101, 101, 102]);
        assert_near(&found, &[10_200_000, 10_404_000, 10_820_160]);
        // Half of the sum remains: 1 %, 1.5 %, 1.75 % of 3 ms, added up.
        let found = positions([0, 1_000, 0], Nanos::ZERO, &[101, 101, 101]);
        assert_near(&found, &[30_000, 75_000, 127_500]);
        // An idle second has an error of -1, also where the window cannot go lower.
        let found = positions([0, 0, 10], middle, &[100, 0, 0, 100]);
        assert_near(&found, &[10_000_000, 10_000_000, 10_000_000, 10_100_000]);
        // A change of the error moves the window once, and back when it is undone.
        let found = positions([0, 0, 1_000], middle, &[101, 101, 103, 102]);
        assert_near(&found, &[10_100_000, 10_100_000, 10_302_000, 10_198_980]);
    }

    /// At another rate an interval begins with the change, or with the first packet if none came yet.
    #[test]
    fn an_interval_begins_at_a_change_of_a_window_with_packets() {
        let [slow, fast] = [8, 16].map(Rate::from_mbit);
        let change = SECOND + Nanos::from_millis(300);
        for came in [false, true] {
            let mut before = Window::new(&WindowConfig::new(slow));
            if came {
                before.count(SECOND, 1000);
            }
            let mut after = Window::new(&WindowConfig::new(fast));
            after.follow(&before, change, slow, fast);
            let first = change + Nanos::from_millis(100);
            let passed = Nanos(after.count(first, 1000) as u64);
            assert_eq!(
                passed,
                if came {
                    first.since(change)
                } else {
                    Nanos::ZERO
                }
            );
        }
    }
}
