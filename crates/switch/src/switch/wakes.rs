//! Wake-ups by a port that has nothing to do.
//!
//! A driver kicks for frames and for room. A kick without either costs the packet loop a turn and
//! some system calls, and no frame pays for that: a guest that kicks without pause keeps the loop
//! awake all the time, on a CPU that others need too. So a port that wakes the loop for nothing
//! more than once each [`INTERVAL`], after [`BURST`] such times, rests: its descriptor is not
//! waited for until the interval is over. A frame that its guest sends meanwhile waits as long.
//!
//! A wake-up is free if the port received or took a frame since the last one for nothing: a
//! driver's kick may come when its frames were taken already.

use tailbound_units::Nanos;

/// The interval of wake-ups for nothing: a turn for each is 1 % of the loop's time.
const INTERVAL: Nanos = Nanos::from_micros(500);

/// Wake-ups for nothing that may come sooner.
const BURST: u64 = 32;

/// Wake-ups of a port for nothing: a virtual scheduling algorithm (ITU-T I.371).
#[derive(Debug, Default)]
pub(super) struct Wakes {
    /// The port woke the loop, and was not served since.
    is_woken: bool,
    /// Frames that the port had received and taken by the last wake-up for nothing.
    frames: u64,
    /// The moment at which the next wake-up for nothing would keep to the interval.
    expected: Nanos,
}

impl Wakes {
    /// The port wakes the loop.
    pub(super) const fn note(&mut self) {
        self.is_woken = true;
    }

    /// The port is served, and has something to do.
    pub(super) const fn clear(&mut self) {
        self.is_woken = false;
    }

    /// Returns true if the port woke the loop, and was not served since.
    pub(super) const fn is_woken(&self) -> bool {
        self.is_woken
    }

    /// The port, which has received and taken a number of `frames` so far, has nothing to do.
    /// Charges it if it woke the loop; returns the moment until which it rests.
    pub(super) fn charge(&mut self, now: Nanos, frames: u64) -> Option<Nanos> {
        let is_woken = std::mem::replace(&mut self.is_woken, false);
        if !is_woken || std::mem::replace(&mut self.frames, frames) != frames {
            return None;
        }
        self.expected = self.expected.max(now) + INTERVAL;
        let until = self.expected.since(Nanos(INTERVAL.0 * BURST));
        (until > now).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn useless_wake_ups_are_rate_limited_after_a_burst() {
        let mut wakes = Wakes::default();
        let begin = Nanos::from_secs(1);
        let mut now = begin;
        let mut count = 0;
        while now < begin + Nanos::from_secs(1) {
            count += 1;
            wakes.note();
            let until = wakes.charge(now, 7);
            assert!(until.is_none_or(|until| until <= now + INTERVAL));
            now = until.unwrap_or(now + Nanos::from_micros(2));
        }
        assert!((2000..=2000 + BURST + 1).contains(&count), "{count}");
    }

    #[test]
    fn a_turn_that_something_else_woke_is_not_charged() {
        let mut wakes = Wakes::default();
        for turn in 0..100_000 {
            assert_eq!(wakes.charge(Nanos(turn), 7), None);
        }
    }

    #[test]
    fn one_wake_up_behind_each_frame_is_free() {
        let mut wakes = Wakes::default();
        for frame in 1..100_000 {
            let now = Nanos(frame * 2000);
            wakes.note();
            assert_eq!(wakes.charge(now, frame), None);
        }
    }
}
