//! Algorithm 1 of Bobtail, and its early end.

use crate::boundary;
use crate::config::{Config, ConfigError, Stop};
use crate::verdict::NodeVerdict;
use tailbound_units::Nanos;

/// A [`Config`] that makes sense, ready to decide.
///
/// **BAD** as soon as more than the high mark were late: later sleeps cannot change that.
///
/// **GOOD** early, with [`Stop::Early`], by a sequential test: if the whole run would have counted
/// more than the low mark, the probability of stopping with GOOD is at most 1 - confidence, over
/// all looks together. With the defaults a node without a late sleep is GOOD after 119,213 of
/// 600,000 (19.9 %), one with one after 250,197, and so on. `boundary.rs` describes the method and
/// its proof.
///
/// **Assumption**: late sleeps are distributed evenly over the run. They come in clusters if a
/// neighbour computes only occasionally. A neighbour that happens to rest during the first fifth of
/// the run and comes back is missed, more often than 1 - confidence: a neighbour that rests half of
/// the time in spells longer than the run is missed half of the time, by any test of this length,
/// Algorithm 1 included. Against neighbours whose spells are between the two lengths,
/// [`Stop::Exact`] helps; against longer ones, repeating does.
///
/// **The whole run** ends after [`Config::samples`] sleeps or [`Config::span`], the earlier one. A
/// scheduler that protects each vCPU from preemption in its first millisecond (Xen's ratelimit)
/// stretches each sleep tenfold beside a neighbour that always computes, while late ones come at a
/// constant rate in time. The full number of sleeps would take ten times as long, and count ten
/// times as many late ones.
///
/// **UNSURE** always takes the whole run: until its end both other verdicts are possible.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    config: Config,
    good_at: Vec<u64>,
}

impl Rule {
    /// Checks the configuration and computes when it may stop: some microseconds,
    /// 0.1 s for the highest low mark there is.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let (samples, low) = (config.samples, config.low_mark);
        let good_at = match config.stop {
            Stop::Early { confidence } => boundary::good_at(samples, low, 1.0 - confidence),
            Stop::Exact => Vec::new(),
        };
        Ok(Self { config, good_at })
    }

    /// Returns its configuration.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the answer after the whole run (Algorithm 1, lines 8 to 14).
    pub const fn answer(&self, late: u64) -> NodeVerdict {
        if late <= self.config.low_mark {
            NodeVerdict::Good
        } else if late <= self.config.high_mark {
            NodeVerdict::Unsure
        } else {
            NodeVerdict::Bad
        }
    }

    /// Returns the number of sleeps after which `late` late ones are few enough for
    /// GOOD; the whole run if they never are earlier.
    pub fn good_at(&self, late: u64) -> u64 {
        let moment = usize::try_from(late)
            .ok()
            .and_then(|late| self.good_at.get(late));
        moment.copied().unwrap_or(self.config.samples)
    }

    /// Returns the completed part of the whole run in sleeps, after `samples` sleeps and `elapsed`
    /// time. If sleeps take longer than they should, the completed share of [`Config::span`]
    /// counts.
    pub fn progress(&self, samples: u64, elapsed: Nanos) -> u64 {
        let Config {
            samples: all, span, ..
        } = self.config;
        let by_time =
            u128::from(all) * u128::from(elapsed.as_nanos()) / u128::from(span.as_nanos().max(1));
        let by_time = u64::try_from(by_time).unwrap_or(u64::MAX);
        samples.max(by_time).min(all)
    }

    /// Returns the answer, if it is known, after `progress` sleeps ([`Rule::progress`]), `late` of
    /// them late.
    pub fn decide(&self, progress: u64, late: u64) -> Option<NodeVerdict> {
        let decided = late > self.config.high_mark || progress >= self.good_at(late);
        decided.then(|| self.answer(late))
    }
}

#[cfg(test)]
mod tests {
    use super::NodeVerdict::{Bad, Good, Unsure};
    use super::*;
    use proptest::prelude::*;

    fn rule(stop: Stop) -> Rule {
        let config = Config {
            samples: 1000,
            low_mark: 3,
            high_mark: 15,
            stop,
            ..Config::default()
        };
        Rule::new(config).unwrap()
    }

    const EARLY: Stop = Stop::Early { confidence: 0.95 };

    #[test]
    fn the_marks_belong_to_the_better_side() {
        let rule = rule(Stop::Exact);
        let answers = [0, 3, 4, 15, 16].map(|late| rule.answer(late));
        assert_eq!(answers, [Good, Good, Unsure, Unsure, Bad]);
    }

    #[test]
    fn bad_is_known_at_the_first_late_sleep_beyond_the_high_mark() {
        for stop in [EARLY, Stop::Exact] {
            assert_eq!(rule(stop).decide(16, 16), Some(NodeVerdict::Bad));
            assert_eq!(rule(stop).decide(16, 15), None);
        }
    }

    #[test]
    fn an_exact_run_calls_nothing_good_before_its_end() {
        let rule = rule(Stop::Exact);
        assert_eq!(rule.decide(999, 0), None);
        assert_eq!(rule.decide(1000, 0), Some(NodeVerdict::Good));
        assert_eq!(rule.decide(1000, 4), Some(NodeVerdict::Unsure));
    }

    #[test]
    fn unsure_takes_the_whole_run() {
        let rule = rule(EARLY);
        assert!((4..=15).all(|late| rule.decide(999, late).is_none()));
        assert_eq!(rule.decide(1000, 4), Some(NodeVerdict::Unsure));
    }

    #[test]
    fn a_run_ends_by_its_sleeps_or_its_time() {
        let rule = rule(EARLY);
        let span = rule.config().span;
        assert_eq!(rule.progress(7, Nanos::ZERO), 7);
        assert_eq!(rule.progress(7, Nanos(span.as_nanos() / 4)), 250);
        assert_eq!(rule.progress(700, Nanos(span.as_nanos() / 4)), 700);
        assert_eq!(rule.progress(7, span), 1000);
        assert_eq!(rule.progress(2000, Nanos::MAX), 1000);
    }

    proptest! {
        #[test]
        fn after_the_last_sleep_there_is_always_the_answer_of_algorithm_1(late in 0_u64..1000) {
            for stop in [EARLY, Stop::Exact] {
                let rule = rule(stop);
                prop_assert_eq!(rule.decide(1000, late), Some(rule.answer(late)));
            }
        }
    }
}
