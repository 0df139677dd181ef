//! CPU quotas of control groups (`cpu.max`, `cpu.cfs_quota_us`), and how often they held
//! somebody up. They count for proportional shares alone: a thread with a deadline runs
//! whatever its groups' quotas are.

use super::read;
use std::path::Path;
use tailbound_units::Nanos;

/// CPU time that the threads of a group have together in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// The time.
    pub runtime: Nanos,
    /// The period.
    pub period: Nanos,
}

/// What a group's quota did since the group was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttled {
    /// In how many periods the quota was used up.
    pub periods: u64,
    /// How long the group could not run for that, summed up over CPUs.
    pub time: Nanos,
}

/// A group's quota; `None` where it has none, or is gone.
pub fn quota(directory: &Path) -> Option<Quota> {
    let (runtime, period) = match read(directory, "cpu.max") {
        // "max 100000", "20000 100000"
        Some(text) => {
            let (runtime, period) = text.split_once(' ')?;
            (runtime.parse().ok()?, period.parse().ok()?)
        }
        // Version 1; without a quota it is -1.
        None => (
            read(directory, "cpu.cfs_quota_us")?.parse().ok()?,
            read(directory, "cpu.cfs_period_us")?.parse().ok()?,
        ),
    };
    (period > 0).then_some(Quota {
        runtime: Nanos::from_micros(runtime),
        period: Nanos::from_micros(period),
    })
}

/// What a group's quota did; nothing where it has none.
pub fn throttled(directory: &Path) -> Throttled {
    let text = read(directory, "cpu.stat").unwrap_or_default();
    let number = |name: &str| -> Option<u64> {
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.parse().ok()
    };
    // Version 2 counts microseconds, version 1 nanoseconds.
    let micros = number("throttled_usec").map(|micros| micros.saturating_mul(1000));
    Throttled {
        periods: number("nr_throttled").unwrap_or(0),
        time: Nanos(micros.or_else(|| number("throttled_time")).unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        directory
    }

    #[test]
    fn quotas_of_both_versions_are_read() {
        let fifth = Some(Quota {
            runtime: Nanos::from_millis(20),
            period: Nanos::from_millis(100),
        });
        let legacy = |quota| {
            vec![
                ("cpu.cfs_quota_us", quota),
                ("cpu.cfs_period_us", "100000\n"),
            ]
        };
        for (files, expected) in [
            (vec![("cpu.max", "20000 100000\n")], fifth),
            (vec![("cpu.max", "max 100000\n")], None),
            (legacy("20000\n"), fifth),
            (legacy("-1\n"), None),
            (vec![("cpu.max", "20000 0\n")], None),
            (vec![], None),
        ] {
            assert_eq!(quota(group(&files).path()), expected, "{files:?}");
        }
    }

    #[test]
    fn what_a_quota_did_is_read_in_both_units() {
        let expected = Throttled {
            periods: 3,
            time: Nanos::from_micros(250),
        };
        for stat in [
            "usage_usec 9\nnr_periods 7\nnr_throttled 3\nthrottled_usec 250\n",
            "nr_periods 7\nnr_throttled 3\nthrottled_time 250000\n",
        ] {
            assert_eq!(throttled(group(&[("cpu.stat", stat)]).path()), expected);
        }
        assert_eq!(throttled(group(&[]).path()), Throttled::default());
    }
}
