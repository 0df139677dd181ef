//! The configuration of a probe, and its mistakes.

use tailbound_units::Nanos;

/// Condition for a probe to stop before it has slept [`Config::samples`] times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stop {
    /// BAD as soon as it is certain, GOOD by a sequential test (see [`crate::Rule`]).
    Early {
        /// Smallest probability that a node is not called GOOD early if its whole run would have
        /// counted more than the low mark. 0.5 to less than 1.
        confidence: f64,
    },
    /// BAD as soon as it is certain, GOOD and UNSURE after the last sleep: the
    /// verdict is that of Algorithm 1.
    Exact,
}

/// The configuration of a probe. The defaults are those of Bobtail 4.2 and 4.3, found on
/// small EC2 instances of 2013 under Xen, whose time slice is 30 ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// S: the length of a sleep, 100 us.
    pub sleep: Nanos,
    /// M: the largest number of sleeps, 600,000.
    pub samples: u64,
    /// The run is whole after this time, even if fewer sleeps were made: 100 s, which is what
    /// 600,000 took in the paper.
    pub span: Nanos,
    /// A sleep that took this long or longer is late, 10 ms: RPC servers have no
    /// more time than that.
    pub late: Nanos,
    /// `LOW_MARK`: a node with at most this number of late sleeps is GOOD, 13.
    pub low_mark: u64,
    /// `HIGH_MARK`: a node with more is BAD, 5 · `LOW_MARK`.
    pub high_mark: u64,
    /// Condition for an early end.
    pub stop: Stop,
    /// Above this share of the vCPU used by others in the same guest, a late sleep
    /// that nothing explains is not held against the neighbours, 0.25.
    pub busy: f64,
    /// A run that takes longer ends without a verdict, 110 s: Bobtail decides "in
    /// under two minutes".
    pub time_limit: Nanos,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sleep: Nanos::from_micros(100),
            samples: 600_000,
            span: Nanos::from_secs(100),
            late: Nanos::from_millis(10),
            low_mark: 13,
            high_mark: 65,
            stop: Stop::Early { confidence: 0.95 },
            busy: 0.25,
            time_limit: Nanos::from_secs(110),
        }
    }
}

/// A mistake in a configuration.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// M is zero.
    #[error("0 samples cannot decide: use more than the high mark")]
    NoSamples,
    /// S is zero.
    #[error("a sleep of 0 never yields the CPU: use 1us or more")]
    NoSleep,
    /// The whole run takes no time.
    #[error("a span of 0 ends before the first sleep: use about 100s")]
    NoSpan,
    /// A sleep is late even when it is in time.
    #[error("a sleep of {sleep} is always late at {late}: late must be longer than the sleep")]
    Late {
        /// The length of a sleep, S.
        sleep: Nanos,
        /// The shortest sleep that is late.
        late: Nanos,
    },
    /// The marks are the wrong way round.
    #[error("the low mark {low} is above the high mark {high}")]
    Marks {
        /// The low mark (`LOW_MARK`), in late sleeps.
        low: u64,
        /// The high mark (`HIGH_MARK`), in late sleeps.
        high: u64,
    },
    /// The numbers of sleeps and marks exclude BAD.
    #[error("{samples} samples can never exceed the high mark {high}: use more samples")]
    TooFew {
        /// The number of sleeps, M.
        samples: u64,
        /// The high mark (`HIGH_MARK`), in late sleeps.
        high: u64,
    },
    /// The confidence is not from 0.5 to less than 1.
    #[error("a confidence of {0} is not from 0.5 to less than 1")]
    Confidence(f64),
    /// The low mark is too high to compute when a run may stop.
    #[error(
        "a low mark of {low} is above {max}, the most at which a run can stop early: run exact"
    )]
    LowMark {
        /// The low mark (`LOW_MARK`), in late sleeps.
        low: u64,
        /// The highest low mark.
        max: u64,
    },
    /// The share is not between 0 and 1.
    #[error("a busy share of {0} is not from 0 to 1")]
    Busy(f64),
    /// The time limit is shorter than one sleep.
    #[error("a time limit of {limit} is less than one sleep of {sleep}")]
    TimeLimit {
        /// The limit.
        limit: Nanos,
        /// The length of a sleep, S.
        sleep: Nanos,
    },
}

impl Config {
    /// Returns the configuration of a probe that sleeps for 2 ms each time, and so costs a
    /// twentieth: of as long a run, with the same marks. A stop of the vCPU ends some part of a
    /// sleep, so such a sleep is late from 11 ms on: all stops of 11 ms and none of less than 9
    /// ms make one, as half of them do at 10 ms.
    pub fn coarse() -> Self {
        Self {
            sleep: Nanos::from_millis(2),
            samples: 50_000,
            late: Nanos::from_millis(11),
            ..Self::default()
        }
    }

    /// The highest low mark with which a run can stop early.
    pub const MAX_EARLY_LOW_MARK: u64 = 255;

    /// Returns the first mistake in it.
    pub fn check(&self) -> Result<(), ConfigError> {
        let &Self {
            sleep,
            samples,
            late,
            low_mark: low,
            high_mark: high,
            busy,
            time_limit: limit,
            ..
        } = self;
        if samples == 0 {
            return Err(ConfigError::NoSamples);
        }
        if sleep == Nanos::ZERO {
            return Err(ConfigError::NoSleep);
        }
        if self.span == Nanos::ZERO {
            return Err(ConfigError::NoSpan);
        }
        if late <= sleep {
            return Err(ConfigError::Late { sleep, late });
        }
        if low > high {
            return Err(ConfigError::Marks { low, high });
        }
        if samples <= high {
            return Err(ConfigError::TooFew { samples, high });
        }
        if !(0.0..=1.0).contains(&busy) {
            return Err(ConfigError::Busy(busy));
        }
        if limit < sleep {
            return Err(ConfigError::TimeLimit { limit, sleep });
        }
        if let Stop::Early { confidence } = self.stop {
            if !(0.5..1.0).contains(&confidence) {
                return Err(ConfigError::Confidence(confidence));
            }
            let max = Self::MAX_EARLY_LOW_MARK;
            if low > max {
                return Err(ConfigError::LowMark { low, max });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: fn() -> Config = Config::default;

    #[test]
    fn the_defaults_are_the_papers() {
        let config = GOOD();
        assert_eq!(config.check(), Ok(()));
        assert_eq!(config.high_mark, 5 * config.low_mark);
        assert_eq!(Config::coarse().check(), Ok(()));
    }

    #[test]
    fn each_invalid_probe_setting_has_its_own_error() {
        let early = |confidence| Stop::Early { confidence };
        #[rustfmt::skip]
        let cases: [(Config, &str); 14] = [
            (Config { samples: 0, ..GOOD() }, "0 samples"),
            (Config { sleep: Nanos::ZERO, ..GOOD() }, "a sleep of 0"),
            (Config { span: Nanos::ZERO, ..GOOD() }, "a span of 0"),
            (Config { late: Nanos::from_micros(100), ..GOOD() }, "always late at 100us"),
            (Config { late: Nanos::ZERO, ..GOOD() }, "always late at 0ns"),
            (Config { low_mark: 66, ..GOOD() }, "the low mark 66 is above the high mark 65"),
            (Config { samples: 65, ..GOOD() }, "65 samples can never exceed"),
            (Config { stop: early(1.0), ..GOOD() }, "a confidence of 1 "),
            (Config { stop: early(0.49), ..GOOD() }, "a confidence of 0.49"),
            (Config { stop: early(f64::NAN), ..GOOD() }, "a confidence of NaN"),
            (Config { low_mark: 256, high_mark: 256, ..GOOD() }, "a low mark of 256 is above 255"),
            (Config { busy: f64::NAN, ..GOOD() }, "a busy share of NaN"),
            (Config { busy: 1.1, ..GOOD() }, "a busy share of 1.1"),
            (Config { time_limit: Nanos(1), ..GOOD() }, "a time limit of 1ns"),
        ];
        for (config, message) in cases {
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn any_low_mark_will_do_for_a_run_that_does_not_stop_early() {
        let config = Config {
            low_mark: 1000,
            high_mark: 5000,
            stop: Stop::Exact,
            ..GOOD()
        };
        assert_eq!(config.check(), Ok(()));
    }
}
