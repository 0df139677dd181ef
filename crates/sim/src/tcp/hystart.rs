//! The end of slow start before losses: `HyStart` (Ha and Rhee, "Taming the elephants", 2011), as
//! Linux's CUBIC has it (`hystart_update` of `tcp_cubic.c`; RFC 9438, 4.10 allows it).
//!
//! Two signs, each looked for in every round trip: acknowledgements that follow each other closely
//! for half of the shortest round trip fill the network, and a round trip that is clearly longer
//! than the shortest has a queue in it.

use super::MSS;
use tailbound_units::Nanos;

/// Windows below this size stay in slow start (`hystart_low_window`).
const LOW_WINDOW: u32 = 16;
/// Longest gap between acknowledgements of one train (`hystart_ack_delta_us`).
const TRAIN_GAP: Nanos = Nanos::from_millis(2);
/// Samples of a round trip before it is compared (`HYSTART_MIN_SAMPLES`).
const SAMPLES: u32 = 8;
/// A round trip counts as longer if it exceeds the shortest by an eighth, by this much at least
/// (`HYSTART_DELAY_MIN`), and by this much at most (`HYSTART_DELAY_MAX`).
const LEAST_LONGER: Nanos = Nanos::from_millis(4);
const MOST_LONGER: Nanos = Nanos::from_millis(16);
/// A train may last for as long as the sender takes for this number of bytes (four times
/// `sk_gso_max_size`),
const COALESCED: u64 = 4 << 16;
/// no longer than this (`hystart_ack_delay`).
const MOST_COALESCED: Nanos = Nanos::from_millis(1);

/// Round trip of an acknowledgement.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundTripOf {
    /// Round trip of the last acknowledged segment.
    pub(super) delay: Nanos,
    /// The acknowledged position, and the end of the sent data.
    pub(super) una: u64,
    pub(super) next: u64,
    /// Smoothed round trip.
    pub(super) smoothed: Nanos,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct HyStart {
    /// The shortest of all round trips.
    least: Nanos,
    /// The current round trip ends when this position is acknowledged.
    until: u64,
    /// Start of the round trip, and time of the last acknowledgement of its train.
    begun: Nanos,
    last: Nanos,
    /// Shortest sample of the round trip, and number of samples.
    shortest: Nanos,
    samples: u32,
    found: bool,
}

impl HyStart {
    pub(super) const fn new() -> Self {
        Self {
            least: Nanos::MAX,
            until: 0,
            begun: Nanos::ZERO,
            last: Nanos::ZERO,
            shortest: Nanos::MAX,
            samples: 0,
            found: false,
        }
    }

    /// Records a measured round trip.
    pub(super) fn measure(&mut self, delay: Nanos) {
        self.least = self.least.min(delay);
    }

    /// Handles an acknowledgement in slow start, with a window of `window` segments. Returns true
    /// if slow start ends.
    pub(super) fn ends(&mut self, now: Nanos, window: u32, of: &RoundTripOf) -> bool {
        if self.found {
            return false;
        }
        if of.una > self.until {
            self.until = of.next;
            (self.begun, self.last) = (now, now);
            (self.shortest, self.samples) = (Nanos::MAX, 0);
        }
        if window < LOW_WINDOW {
            return false;
        }
        if now.since(self.last) <= TRAIN_GAP {
            self.last = now;
            let longest = self.least.saturating_add(coalesced(window, of.smoothed));
            self.found = now.since(self.begun) > Nanos(longest.0 / 2);
        }
        self.shortest = self.shortest.min(of.delay);
        if self.samples < SAMPLES {
            self.samples += 1;
        } else {
            let longer = Nanos(self.least.0 / 8).clamp(LEAST_LONGER, MOST_LONGER);
            self.found |= self.shortest > self.least.saturating_add(longer);
        }
        self.found
    }
}

/// Returns the time that the sender takes for [`COALESCED`]: Linux assumes two windows a round trip
/// in slow start (`tcp_update_pacing_rate`).
fn coalesced(window: u32, smoothed: Nanos) -> Nanos {
    let bytes = 2 * u64::from(window) * u64::from(MSS);
    Nanos(COALESCED * smoothed.0 / bytes).min(MOST_COALESCED)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Nanos = Nanos::from_millis(1);

    /// A connection with round trips of 20 ms and a window that grows beyond the least.
    struct Slow {
        hystart: HyStart,
        una: u64,
    }

    impl Slow {
        fn new() -> Self {
            let mut hystart = HyStart::new();
            hystart.measure(Nanos::from_millis(20));
            Self { hystart, una: 1 }
        }

        /// Acknowledges one more segment; 100 are in flight.
        fn acknowledge(&mut self, now: Nanos, window: u32, delay: Nanos) -> bool {
            self.una += u64::from(MSS);
            self.hystart.measure(delay);
            let of = RoundTripOf {
                delay,
                una: self.una,
                next: self.una + 100 * u64::from(MSS),
                smoothed: Nanos::from_millis(20),
            };
            self.hystart.ends(now, window, &of)
        }
    }

    /// With a window of 100 Linux reckons with 200 segments in 20 ms, 262,144 B of which take
    /// 18 ms, more than the millisecond: (20 + 1) / 2 = 10.5 ms are too long for a train.
    #[test]
    fn a_train_as_long_as_half_a_round_trip_ends_slow_start() {
        let mut slow = Slow::new();
        let mut ended = Vec::new();
        for millisecond in 0..14 {
            let now = Nanos(millisecond * MILLISECOND.0);
            if slow.acknowledge(now, 100, Nanos::from_millis(20)) {
                ended.push(millisecond);
            }
        }
        // It ends once.
        assert_eq!(ended, [11]);
    }

    #[test]
    fn acknowledgements_apart_are_no_train_nor_is_a_small_window() {
        for (apart, window) in [(3, 100), (1, 15)] {
            let mut slow = Slow::new();
            for it in 0..60 {
                let now = Nanos(it * apart * MILLISECOND.0);
                assert!(!slow.acknowledge(now, window, Nanos::from_millis(20)));
            }
        }
    }

    /// An eighth of 20 ms is 2.5 ms, and 4 ms are the least: more than 24 ms end slow start, with
    /// the ninth sample.
    #[test]
    fn a_longer_round_trip_ends_slow_start() {
        for (delay, ninth) in [(24_000, false), (24_001, true)] {
            let mut slow = Slow::new();
            for number in 1..=9 {
                let now = Nanos(number * 3 * MILLISECOND.0);
                let ends = slow.acknowledge(now, 100, Nanos::from_micros(delay));
                assert_eq!(ends, ninth && number == 9, "{delay} us, sample {number}");
            }
        }
    }

    /// One short sample of a round trip is enough for it not to be longer.
    #[test]
    fn the_shortest_sample_of_a_round_trip_counts() {
        let mut slow = Slow::new();
        for number in 1..=50 {
            let now = Nanos(number * 3 * MILLISECOND.0);
            let delay = Nanos::from_millis(if number == 4 { 22 } else { 40 });
            assert!(!slow.acknowledge(now, 100, delay), "sample {number}");
        }
    }
}
