//! Fixtures of tests, here and in crates that show verdicts (feature `testing`).

use crate::evidence::{Ahead, CpuWait, Direction, Evidence, Occupant, Points, Run, SlowRequest};
use std::sync::Arc;
use tailbound_units::Nanos;

/// Waits of these lengths in milliseconds, a second apart, on a CPU that `occupant` had.
pub fn waits(lengths: &[u64], occupant: &Occupant) -> Vec<CpuWait> {
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

/// A guest that ran on a CPU.
pub fn guest(name: &str) -> Occupant {
    Occupant::Guest(name.into())
}

/// Evidence of a minute in which there were these waits alone.
pub fn evidence(waits: Vec<CpuWait>) -> Evidence {
    Evidence {
        guest: "db-3".to_owned(),
        window: Nanos::from_secs(60),
        waits,
        ..Evidence::default()
    }
}

/// A request that the guest served: the milliseconds at which it arrived, was delivered and taken, was
/// answered, and left.
pub fn served(moments: [u64; 5]) -> SlowRequest {
    let [arrived, delivered, taken, sent, left] = moments.map(Nanos::from_millis);
    SlowRequest {
        direction: Direction::Served,
        begun: arrived,
        points: Points {
            arrived,
            delivered,
            taken: Some(taken),
            sent,
            left,
        },
        peer: "10.0.0.9:443".into(),
        peer_guest: None,
        ahead_inward: Ahead::Unknown,
        ahead_outward: Ahead::Unknown,
        retransmits: 0,
        dropped: 0,
        zero_window: None,
        queued: None,
        thread: None,
    }
}
