//! The part of a guarantee that recorded traffic used.

use crate::bucket::LeakyBucket;
use crate::sizing::rates;
use crate::traffic::{Direction, MachineId, Traffic};
use std::collections::BTreeMap;
use tailbound_units::{Bytes, Nanos, Rate};

/// Length of a row of [`Usage`].
const HOUR: Nanos = Nanos::from_secs(3_600);
/// Least bandwidth of the search.
const LEAST_BANDWIDTH: Rate = Rate(10_000);

/// The highest level of one machine's bucket in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageOf {
    /// The machine.
    pub machine: MachineId,
    /// Direction of its messages.
    pub direction: Direction,
    /// Each hour with messages, from the begin of the recording, and the highest level in it.
    pub hours: BTreeMap<u64, Bytes>,
}

impl UsageOf {
    /// Returns the highest level of all hours.
    pub fn highest(&self) -> Bytes {
        self.hours.values().copied().max().unwrap_or(Bytes::ZERO)
    }
}

/// The part of a guarantee {B, S} that all machines together needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Highest levels at B, of the machines and directions with messages.
    pub levels: Vec<UsageOf>,
    /// Least S with which no message would have waited at B.
    pub burst: Bytes,
    /// Least bandwidth with which no message would have waited with S, with two digits; `None` if
    /// messages waited at B.
    pub bandwidth: Option<Rate>,
}

/// Returns the part of a guarantee that the traffic used.
pub fn usage(traffic: &Traffic, bandwidth: Rate, burst: Bytes) -> Usage {
    let mut hours: BTreeMap<(MachineId, Direction), BTreeMap<u64, Bytes>> = BTreeMap::new();
    let empty = LeakyBucket::new(bandwidth);
    let mut buckets = vec![[empty.clone(), empty]; traffic.machines().len()];
    for message in traffic.messages() {
        for (machine, direction) in [
            (message.from, Direction::Sent),
            (message.to, Direction::Received),
        ] {
            if let Some(machine) = machine {
                let bucket = &mut buckets[machine.index()][direction as usize];
                let level = bucket.add(message.at, message.wire);
                let hours = hours.entry((machine, direction)).or_default();
                let highest = hours.entry(message.at.0 / HOUR.0).or_default();
                *highest = (*highest).max(level);
            }
        }
    }
    let levels: Vec<_> = hours
        .into_iter()
        .map(|((machine, direction), hours)| UsageOf {
            machine,
            direction,
            hours,
        })
        .collect();
    let sent = levels.iter().filter(|it| it.direction == Direction::Sent);
    let needed = sent.map(UsageOf::highest).max().unwrap_or(Bytes::ZERO);
    let rates = rates(LEAST_BANDWIDTH.min(bandwidth), bandwidth);
    let place = rates.partition_point(|rate| highest_sent(traffic, *rate) > burst);
    Usage {
        levels,
        burst: needed,
        bandwidth: rates.get(place).copied(),
    }
}

/// Returns the highest level of all senders' buckets.
fn highest_sent(traffic: &Traffic, rate: Rate) -> Bytes {
    let mut buckets = vec![LeakyBucket::new(rate); traffic.machines().len()];
    let messages = traffic.messages().iter();
    let levels = messages.filter_map(|message| {
        let bucket = &mut buckets[message.from?.index()];
        Some(bucket.add(message.at, message.wire))
    });
    levels.max().unwrap_or(Bytes::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Kind, Message};

    #[test]
    fn the_used_part_has_maxima_by_the_hour_and_direction() {
        let message = |seconds, from, to, wire| Message {
            at: Nanos::from_secs(seconds),
            from: Some(MachineId::new(from)),
            to: Some(MachineId::new(to)),
            wire: Bytes(wire),
            kind: Kind::Data,
        };
        let messages = vec![
            message(0, 0, 1, 3_000),
            message(10, 0, 1, 2_000),
            message(4_000, 0, 1, 1_000),
            message(4_001, 0, 1, 1_000),
        ];
        let traffic = Traffic::new(vec!["a".into(), "b".into()], messages);
        // 1,000 B/s: nothing is left after each pause.
        let found = usage(&traffic, Rate(8_000), Bytes(6_000));
        let hours = BTreeMap::from([(0, Bytes(3_000)), (1, Bytes(1_000))]);
        assert_eq!(found.levels.len(), 2);
        for (of, machine, direction) in [
            (&found.levels[0], 0, Direction::Sent),
            (&found.levels[1], 1, Direction::Received),
        ] {
            assert_eq!(of.machine, MachineId::new(machine));
            assert_eq!((of.direction, &of.hours), (direction, &hours));
        }
        assert_eq!(
            (found.burst, found.bandwidth),
            (Bytes(3_000), Some(Rate(8_000)))
        );
        // With 4,000 B, 3,000 B have to drain by 1,000 B within ten seconds.
        let found = usage(&traffic, Rate(80_000), Bytes(4_000));
        assert_eq!(found.bandwidth, Some(Rate(10_000)));
        let found = usage(&traffic, Rate(80_000), Bytes(2_000));
        assert_eq!(found.bandwidth, None);
    }
}
