//! Burst, rate, gaps and lateness of the departures behind a queue.

use tailbound_sys::departures::Departure;
use tailbound_units::exact::Work;
use tailbound_units::{Bytes, Nanos, Rate};

/// The least burst of a token bucket of `rate` that all departures would pass (`S_eff`).
pub(crate) fn effective_burst(departures: &[Departure], rate: Rate) -> Bytes {
    let mut level = Work::ZERO;
    let mut highest = Work::ZERO;
    let mut last = None;
    for departure in departures {
        let elapsed = last.map_or(Nanos::ZERO, |last| departure.time.since(last));
        level = level
            .less(Work::done(rate, elapsed))
            .plus(Work::of(departure.len));
        highest = highest.max(level);
        last = Some(departure.time);
    }
    highest.bytes()
}

/// Mean rate from the first departure to the last one, whose own bytes do not count.
pub(crate) fn mean_rate(departures: &[Departure]) -> Option<Rate> {
    let (last, before) = departures.split_last()?;
    let elapsed = last.time.since(before.first()?.time);
    let bytes: u64 = before.iter().map(|departure| departure.len.0).sum();
    let bits = u128::from(bytes) * 8 * 1_000_000_000;
    let rate = bits.checked_div(u128::from(elapsed.0))?;
    Some(Rate(u64::try_from(rate).unwrap_or(u64::MAX)))
}

/// Times between one departure and the next.
pub(crate) fn gaps(departures: &[Departure]) -> Vec<u64> {
    let pairs = departures.windows(2);
    pairs
        .map(|pair| pair[1].time.since(pair[0].time).0)
        .collect()
}

/// Times from when each departure was due until it was; without those that had no such time, and
/// zero for early ones.
pub(crate) fn lateness(departures: &[Departure]) -> Vec<u64> {
    let due = departures.iter().filter_map(|it| Some((it.due?, it.time)));
    due.map(|(due, time)| time.saturating_sub(due).0).collect()
}

/// Quantiles of some values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sorted(Vec<u64>);

impl Sorted {
    pub(crate) fn new(mut values: Vec<u64>) -> Option<Self> {
        values.sort_unstable();
        (!values.is_empty()).then_some(Self(values))
    }

    /// The smallest value that at least `per_mille` thousandths of all do not exceed.
    pub(crate) fn quantile(&self, per_mille: usize) -> u64 {
        let rank = (self.0.len() * per_mille).div_ceil(1000);
        self.0[rank.clamp(1, self.0.len()) - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn departure(time: u64, len: u64) -> Departure {
        Departure {
            interface: 1,
            time: Nanos(time),
            due: None,
            len: Bytes(len),
            frames: 1,
        }
    }

    #[test]
    fn a_burst_at_once_and_then_frames_at_the_rate_need_that_burst() {
        // 8 Mbit/s: a byte each microsecond.
        let burst = (0..10).map(|_| departure(0, 1000));
        let paced = (1..50).map(|frame| departure(frame * 1_000_000, 1000));
        let all: Vec<_> = burst.chain(paced).collect();
        let rate = Rate::from_mbit(8);
        assert_eq!(effective_burst(&all, rate), Bytes(10_000));
        // One that is 300 us early needs 300 bytes more.
        let mut early = all.clone();
        early[30].time = early[30].time.saturating_sub(Nanos::from_micros(300));
        assert_eq!(effective_burst(&early, rate), Bytes(10_300));
        assert_eq!(mean_rate(&all[9..]), Some(rate));
    }

    #[test]
    fn an_empty_sample_has_no_rate_and_no_quantile() {
        assert_eq!(mean_rate(&[]), None);
        assert_eq!(mean_rate(&[departure(5, 100)]), None);
        let at_once = [departure(5, 100), departure(5, 100)];
        assert_eq!(mean_rate(&at_once), None);
        assert_eq!(effective_burst(&[], Rate::from_mbit(1)), Bytes(0));
        assert_eq!(Sorted::new(Vec::new()), None);
    }

    #[test]
    fn lateness_is_of_frames_that_were_due() {
        let due = |due, time| Departure {
            due: Some(Nanos(due)),
            ..departure(time, 100)
        };
        let all = [due(10, 15), departure(20, 100), due(30, 29)];
        assert_eq!(lateness(&all), [5, 0]);
        assert_eq!(gaps(&all), [5, 9]);
    }

    #[test]
    fn quantiles_are_values_that_were_there() {
        let sorted = Sorted::new((1..=200).rev().collect()).unwrap();
        let quantiles = [0, 5, 500, 990, 999, 1000].map(|it| sorted.quantile(it));
        assert_eq!(quantiles, [1, 1, 100, 198, 200, 200]);
    }

    proptest! {
        /// All pass a token bucket of the effective burst, and not one of a byte less.
        #[test]
        fn no_smaller_burst_would_do(
            frames in prop::collection::vec((0_u64..2_000_000, 60_u64..1515), 1..100)
        ) {
            let mut time = 0;
            let all: Vec<_> = frames
                .into_iter()
                .map(|(gap, len)| {
                    time += gap;
                    departure(time, len)
                })
                .collect();
            // A byte each microsecond, so that all is whole in bits times nanoseconds.
            let burst = effective_burst(&all, Rate::from_mbit(8)).0 * 1000;
            let passes = |burst: u64| {
                let (mut tokens, mut last) = (burst, 0);
                all.iter().all(|frame| {
                    tokens = burst.min(tokens + frame.time.0 - last);
                    last = frame.time.0;
                    let enough = tokens >= frame.len.0 * 1000;
                    tokens = tokens.saturating_sub(frame.len.0 * 1000);
                    enough
                })
            };
            prop_assert!(passes(burst));
            prop_assert!(!passes(burst - 1000));
        }
    }
}
