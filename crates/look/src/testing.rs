//! Fixtures of several tests.

use crate::evidence::{CpuWait, Occupant, Run};
use std::sync::Arc;
use tailbound_units::Nanos;

/// Waits of these lengths in milliseconds, a second apart, on a CPU that `occupant` had.
pub(crate) fn waits(lengths: &[u64], occupant: &Occupant) -> Vec<CpuWait> {
    let wait = |(index, length): (usize, &u64)| {
        let from = Nanos::from_secs(index as u64);
        let until = Nanos(from.0 + length * 1_000_000);
        CpuWait {
            thread: 7,
            was_preempted: false,
            from,
            until,
            reservation: Nanos::ZERO,
            quota: Nanos::ZERO,
            runs: Arc::new([Run {
                from,
                until,
                occupant: occupant.clone(),
                is_real_time: false,
                stolen: Nanos::ZERO,
                interrupted: Nanos::ZERO,
            }]),
        }
    };
    lengths.iter().enumerate().map(wait).collect()
}
