//! Finds the samples that this computer disturbed.
//!
//! The computers that run the lab are shared. While an experiment runs, a monitor records the time
//! that the hypervisor has taken from each CPU (*stolen*), and the waits in a run queue of the
//! threads that a request passes through (*ours*: our infrastructure had no CPU; stalls only, see
//! [`LossTotal::read_stalls`]). Threads whose waits are the subject of the measurement are not among
//! them.
//!
//! A sample is *late* when it took more than twice its variant's median. A sample is *disturbed*,
//! late or not, when the time lost around it, beyond the usual loss of samples in time, is at least
//! half a median: that could have made a sample late. For a late sample the lost time must also be
//! half of its excess over the median. A late sample must therefore also meet the condition of one
//! in time, and the tail is not trimmed more than the rest. Stolen time is checked first. A late
//! sample that is not disturbed is *unexplained*: the mechanism's own tail.
//!
//! While a packet queues in a switch, the threads before and behind it wait for a CPU many times,
//! and these waits do not delay it. A packet that passes a thread a known number of times is
//! delayed by at most that number of the thread's waits, so that only the longest ones count
//! ([`Losses::passages`]).

use crate::guest::Sample;
use tailbound_units::Nanos;

/// Time above which a sample is late, in medians.
const LATE_MEDIANS: u64 = 2;

/// A growing total with occasional readings, for example a CPU's steal time.
///
/// `/proc/stat` shows whole ticks of 10 ms. A step of one tick only shows that the last 10 ms of
/// loss lie somewhere since the previous step, so they are spread evenly over that time; the rest
/// of a larger step was lost since the previous reading.
#[derive(Debug, Clone, Default)]
pub(crate) struct LossTotal {
    /// Amounts, each spread evenly over its time.
    spans: Vec<Span>,
    previous: Option<Reading>,
    /// Time of the last change of the total.
    changed: Nanos,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    from: Nanos,
    to: Nanos,
    amount: Nanos,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    at: Nanos,
    total: Nanos,
}

impl LossTotal {
    /// Adds a reading of a total that is shown in steps of `tick` (1 ns: exact).
    pub(crate) fn read(&mut self, at: Nanos, total: Nanos, tick: Nanos) {
        let Some(previous) = self.previous.replace(Reading { at, total }) else {
            self.changed = at;
            return;
        };
        let step = total.since(previous.total);
        if step == Nanos::ZERO {
            return;
        }
        let first = if tick > Nanos(1) {
            step.min(tick)
        } else {
            Nanos::ZERO
        };
        self.add(self.changed, at, first);
        self.add(previous.at, at, step.since(first));
        self.changed = at;
    }

    /// Adds a reading of an exact total of which only stalls count: the loss since the previous
    /// reading, if it is at least a quarter of the time. A thread that wakes often waits briefly
    /// each time; such waits are normal on any busy host, add up over a long request, and delay it
    /// by much less than the sum.
    pub(crate) fn read_stalls(&mut self, at: Nanos, total: Nanos) {
        let previous = self.previous.replace(Reading { at, total });
        let Some(previous) = previous else {
            return;
        };
        let step = total.since(previous.total);
        if step.as_nanos().saturating_mul(4) >= at.since(previous.at).as_nanos() {
            self.add(previous.at, at, step);
        }
    }

    fn add(&mut self, from: Nanos, to: Nanos, amount: Nanos) {
        if amount > Nanos::ZERO {
            self.spans.push(Span { from, to, amount });
        }
    }

    /// Returns the loss between two times.
    pub(crate) fn between(&self, from: Nanos, to: Nanos) -> Nanos {
        let sum: u128 = self.parts(from, to).sum();
        Nanos(u64::try_from(sum).unwrap_or(u64::MAX))
    }

    /// Returns the sum of the `count` largest losses between two times.
    fn largest(&self, count: usize, from: Nanos, to: Nanos) -> Nanos {
        let mut parts: Vec<u128> = self.parts(from, to).filter(|part| *part > 0).collect();
        parts.sort_unstable_by(|a, b| b.cmp(a));
        let sum: u128 = parts.iter().take(count).sum();
        Nanos(u64::try_from(sum).unwrap_or(u64::MAX))
    }

    /// Returns the part of each loss between two times.
    fn parts(&self, from: Nanos, to: Nanos) -> impl Iterator<Item = u128> {
        // Spans end in order; spans that begin after `to` may precede a span that began earlier, so
        // all spans that end after `from` are checked.
        let start = self.spans.partition_point(|span| span.to <= from);
        self.spans[start..].iter().map(move |span| {
            let common = span.to.min(to).since(span.from.max(from)).as_nanos();
            let length = span.to.since(span.from).as_nanos().max(1);
            u128::from(span.amount.as_nanos()) * u128::from(common) / u128::from(length)
        })
    }

    /// Returns the total loss.
    pub(crate) fn total(&self) -> Nanos {
        let total = self.spans.iter().map(|span| span.amount.as_nanos());
        Nanos(total.fold(0, u64::saturating_add))
    }
}

/// Class of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SampleClass {
    /// In time.
    OnTime,
    /// Late without a cause outside of the measured mechanism.
    Unexplained,
    /// Disturbed, because our infrastructure waited for a CPU.
    Ours,
    /// Disturbed, because the hypervisor took the CPU away.
    Stolen,
}

impl SampleClass {
    /// Returns whether this computer disturbed the sample: such samples are separated.
    pub(crate) const fn is_hit(self) -> bool {
        matches!(self, Self::Ours | Self::Stolen)
    }
}

/// Time lost in one way, as far as it concerns a series.
#[derive(Debug, Clone, Default)]
pub(crate) struct Losses<'a> {
    /// Losses: one entry for each CPU or thread.
    pub(crate) lost: Vec<&'a LossTotal>,
    /// Interval of the readings: the time of a loss within it is unknown, so the interval is added
    /// to both ends of a sample.
    pub(crate) margin: Nanos,
    /// Maximum of passages of a sample through each thread: at worst, this number of the thread's
    /// longest losses delays it. `None` is unknown, and all losses count.
    pub(crate) passages: Option<usize>,
}

impl Losses<'_> {
    /// Returns the loss between two times.
    pub(crate) fn between(&self, from: Nanos, to: Nanos) -> Nanos {
        let amount = |lost: &&LossTotal| match self.passages {
            Some(count) => lost.largest(count, from, to).as_nanos(),
            None => lost.between(from, to).as_nanos(),
        };
        let amounts = self.lost.iter().map(amount);
        Nanos(amounts.fold(0, u64::saturating_add))
    }

    /// Returns the loss around a sample, and its reference: the length of that time, or 1 for the
    /// sample itself if a longer time means no more passages.
    fn around(&self, sample: &Sample) -> (u64, u64) {
        let from = sample.start.saturating_sub(self.margin);
        let to = sample.end.saturating_add(self.margin);
        let set_against = match self.passages {
            Some(_) => 1,
            None => to.since(from).as_nanos(),
        };
        (self.between(from, to).as_nanos(), set_against)
    }

    /// Returns the usual loss around these samples, relative to its reference.
    fn usual<'s>(&self, samples: impl Iterator<Item = &'s Sample>) -> f64 {
        let share = |sample| {
            let (amount, set_against) = self.around(sample);
            amount as f64 / set_against.max(1) as f64
        };
        let mut shares: Vec<f64> = samples.map(share).collect();
        if shares.is_empty() {
            return 0.0;
        }
        let middle = (shares.len() - 1) / 2;
        *shares.select_nth_unstable_by(middle, f64::total_cmp).1
    }

    /// Returns the loss around a sample beyond the usual one.
    fn unusual(&self, sample: &Sample, usual: f64) -> u64 {
        let (amount, set_against) = self.around(sample);
        amount.saturating_sub((set_against as f64 * usual) as u64)
    }
}

/// Returns the class of each sample of a series, in the samples' order.
pub(crate) fn judge(
    samples: &[Sample],
    stolen: &Losses<'_>,
    ours: &Losses<'_>,
) -> Vec<SampleClass> {
    let median = median(samples);
    let late = |sample: &Sample| sample.latency().as_nanos() > median.saturating_mul(LATE_MEDIANS);
    let in_time = || samples.iter().filter(|sample| !late(sample));
    let usual = [stolen.usual(in_time()), ours.usual(in_time())];
    let class = |sample: &Sample| {
        let excess = sample.latency().as_nanos().saturating_sub(median);
        let half = excess.max(median).max(1).div_ceil(2);
        if stolen.unusual(sample, usual[0]) >= half {
            SampleClass::Stolen
        } else if ours.unusual(sample, usual[1]) >= half {
            SampleClass::Ours
        } else if late(sample) {
            SampleClass::Unexplained
        } else {
            SampleClass::OnTime
        }
    };
    samples.iter().map(class).collect()
}

fn median(samples: &[Sample]) -> u64 {
    let mut latencies: Vec<u64> = samples.iter().map(|s| s.latency().as_nanos()).collect();
    if latencies.is_empty() {
        return 0;
    }
    let middle = (latencies.len() - 1) / 2;
    *latencies.select_nth_unstable(middle).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;
    const TICK: Nanos = Nanos::from_millis(10);
    const EXACT: Nanos = Nanos(1);

    fn lost(tick: Nanos, readings: &[(u64, u64)]) -> LossTotal {
        let mut lost = LossTotal::default();
        for (at, total) in readings {
            lost.read(MS(*at), MS(*total), tick);
        }
        lost
    }

    fn sample(start: u64, latency: u64) -> Sample {
        Sample {
            arrival: 0,
            start: MS(start),
            end: MS(start + latency),
        }
    }

    /// Nine samples of 10 ms long before, so that the median is 10 ms.
    fn with_median_10ms(late: Sample) -> Vec<Sample> {
        let usual = (0..9).map(|_| sample(100, 10));
        usual.chain([late]).collect()
    }

    fn losses<'a>(lost: &[&'a LossTotal]) -> Losses<'a> {
        Losses {
            lost: lost.to_vec(),
            margin: MS(10),
            passages: None,
        }
    }

    fn nothing() -> Losses<'static> {
        Losses::default()
    }

    #[test]
    fn a_punctual_sample_beside_lost_time_is_set_apart() {
        // Half a median of 10 ms is what could have made it late.
        let enough = lost(EXACT, &[(0, 0), (1000, 0), (1010, 5)]);
        let too_little = lost(EXACT, &[(0, 0), (1000, 0), (1010, 4)]);
        for latency in [1, 10, 20] {
            let samples = with_median_10ms(sample(1000, latency));
            let class = |lost| judge(&samples, &losses(&[lost]), &nothing());
            assert_eq!(class(&enough)[9], SampleClass::Stolen, "{latency} ms");
            assert_eq!(class(&too_little)[9], SampleClass::OnTime, "{latency} ms");
            // Those that lie elsewhere are as they were.
            assert_eq!(class(&enough)[..9], [SampleClass::OnTime; 9]);
        }
    }

    #[test]
    fn lost_time_that_excuses_late_samples_excludes_punctual_ones() {
        for lost_ms in 0..40 {
            let loss = lost(EXACT, &[(0, 0), (1000, 0), (1010, lost_ms)]);
            let is_hit = |latency| {
                let samples = with_median_10ms(sample(1000, latency));
                judge(&samples, &losses(&[&loss]), &nothing())[9].is_hit()
            };
            assert!(is_hit(10) >= is_hit(60), "{lost_ms} ms");
        }
    }

    #[test]
    fn a_late_sample_is_stolen_when_steal_explains_half_of_its_excess() {
        let samples = with_median_10ms(sample(1000, 50)); // excess 40 ms
        let enough = lost(EXACT, &[(0, 0), (1000, 0), (1010, 20)]);
        let too_little = lost(EXACT, &[(0, 0), (1000, 0), (1010, 19)]);
        let class = |lost| judge(&samples, &losses(&[lost]), &nothing())[9];
        assert_eq!(class(&enough), SampleClass::Stolen);
        assert_eq!(class(&too_little), SampleClass::Unexplained);
    }

    #[test]
    fn steal_is_blamed_before_our_own_waiting() {
        let samples = with_median_10ms(sample(1000, 50));
        let loss = lost(EXACT, &[(1000, 0), (1010, 30)]);
        let blame = |stolen, ours| judge(&samples, &stolen, &ours)[9];
        assert_eq!(
            blame(losses(&[&loss]), losses(&[&loss])),
            SampleClass::Stolen
        );
        assert_eq!(blame(nothing(), losses(&[&loss])), SampleClass::Ours);
    }

    #[test]
    fn time_lost_far_from_a_sample_excuses_no_lateness() {
        let samples = with_median_10ms(sample(1000, 50));
        let before = lost(EXACT, &[(900, 0), (980, 80)]);
        let after = lost(EXACT, &[(1070, 0), (1150, 80)]);
        let classes = judge(&samples, &losses(&[&before, &after]), &nothing());
        assert_eq!(classes[9], SampleClass::Unexplained);
    }

    #[test]
    fn waits_that_punctual_samples_met_too_excuse_no_lateness() {
        let samples = with_median_10ms(sample(1000, 50));
        // Half of all the time: 35 ms around the late sample, more than its excess needs.
        let always = lost(EXACT, &[(0, 0), (2000, 1000)]);
        let classes = judge(&samples, &nothing(), &losses(&[&always]));
        assert_eq!(classes[9], SampleClass::Unexplained);
    }

    #[test]
    fn only_waits_within_a_samples_passages_excuse_its_lateness() {
        let samples = with_median_10ms(sample(1000, 50)); // excess 40 ms
        // 3 ms in each 10 ms, and once 18 ms.
        let mut total = 0;
        let readings = (90..=120).map(|n| {
            total += if n == 105 { 18 } else { 3 };
            (n * 10, total)
        });
        let often = lost(EXACT, &readings.collect::<Vec<_>>());
        let class = |passages| {
            let ours = Losses {
                passages,
                ..losses(&[&often])
            };
            judge(&samples, &nothing(), &ours)[9]
        };
        assert_eq!(class(None), SampleClass::Ours);
        assert_eq!(class(Some(1)), SampleClass::Unexplained, "18 ms of 20");
        assert_eq!(class(Some(2)), SampleClass::Ours, "21 ms of 20");
    }

    #[test]
    fn one_tick_after_a_quiet_second_spreads_over_that_second() {
        // 10 ms of steal somewhere in the last second.
        let readings: Vec<_> = (0..=100)
            .map(|n| (n * 10, if n == 100 { 10 } else { 0 }))
            .collect();
        let lost = lost(TICK, &readings);
        assert_eq!(lost.between(MS(900), MS(1000)), MS(1));
        assert_eq!(lost.total(), MS(10));
    }

    #[test]
    fn all_but_one_of_many_lost_ticks_count_as_recent() {
        let readings: Vec<_> = (0..=100)
            .map(|n| (n * 10, if n == 100 { 50 } else { 0 }))
            .collect();
        let lost = lost(TICK, &readings);
        assert_eq!(lost.between(MS(990), MS(1000)), Nanos(40_100_000));
    }

    #[test]
    fn only_stalls_count_of_a_thread_that_waits_a_little_all_the_time() {
        let mut lost = LossTotal::default();
        for (at, total) in [(0, 0), (20, 4), (40, 8), (60, 13), (80, 33)] {
            lost.read_stalls(MS(at), MS(total));
        }
        assert_eq!(lost.total(), MS(25));
        assert_eq!(lost.between(MS(0), MS(40)), Nanos::ZERO);
    }

    #[test]
    fn no_samples_have_no_fate() {
        assert_eq!(judge(&[], &nothing(), &nothing()), []);
    }

    proptest! {
        #[test]
        fn lost_time_adds_up_to_the_counters_total(
            steps in prop::collection::vec((1u64..50, 0u64..5), 1..50), cut in 0u64..2000,
        ) {
            let (mut at, mut total) = (0, 0);
            let mut lost = LossTotal::default();
            lost.read(MS(0), MS(0), TICK);
            for (time, ticks) in steps {
                at += time;
                total += ticks * 10;
                lost.read(MS(at), MS(total), TICK);
            }
            prop_assert_eq!(lost.total(), MS(total));
            let parts = lost.between(Nanos::ZERO, MS(cut)).0 + lost.between(MS(cut), Nanos::MAX).0;
            // Each span rounds down once on either side of the cut.
            prop_assert!(parts <= MS(total).0 && parts + 400 >= MS(total).0);
        }
    }
}
