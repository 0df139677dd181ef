//! The buckets of one machine in one direction, as the pacer serves them.
//!
//! Messages above the size of the question are *bulk*: they have no deadline. The pacer has a line
//! for each peer, and lines take turns. So a smaller message beside the bulk of k peers has a
//! (k+1)-th part of B, and finds no burst that the bulk left. Bulk counts as present until a bucket
//! of rate B with the bulk alone is empty, and k counts all its peers since it last was: both are
//! upper bounds.

use crate::bucket::LeakyBucket;
use crate::traffic::{MachineId, Message};
use tailbound_units::{Bytes, Nanos, Rate};

/// State of one machine and direction.
#[derive(Debug, Clone)]
struct Side {
    /// All messages.
    all: LeakyBucket,
    /// Bulk alone.
    bulk: LeakyBucket,
    /// Messages that are no bulk, each with its part of the rate.
    small: LeakyBucket,
    /// Peers of the bulk that is present; `None` are those outside the tenant.
    peers: Vec<Option<MachineId>>,
}

/// A message in its buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SideLevel {
    /// Level of all messages.
    pub(crate) all: Bytes,
    /// Number of lines that share the rate, its own included: 1 without bulk.
    pub(crate) lines: u64,
    /// Time in which its part of the rate carries it and the small messages before it.
    pub(crate) shared: Nanos,
}

impl SideLevel {
    const NONE: Self = Self {
        all: Bytes::ZERO,
        lines: 1,
        shared: Nanos::ZERO,
    };

    /// Returns the burst that the message needs to be in time: none if its part of the rate
    /// suffices beside bulk.
    pub(crate) fn needed(self, time: Nanos) -> Bytes {
        if self.lines > 1 && self.shared <= time {
            Bytes::ZERO
        } else {
            self.all
        }
    }
}

impl Side {
    fn new(rate: Rate) -> Self {
        Self {
            all: LeakyBucket::new(rate),
            bulk: LeakyBucket::new(rate),
            small: LeakyBucket::new(rate),
            peers: Vec::new(),
        }
    }

    fn add(
        &mut self,
        rate: Rate,
        message: &Message,
        peer: Option<MachineId>,
        bulk: bool,
    ) -> SideLevel {
        let all = self.all.add(message.at, message.wire);
        let present = self.bulk.add(message.at, Bytes::ZERO) > Bytes::ZERO;
        // Until now the small ones had the part that they had at the message before.
        self.small.add(message.at, Bytes::ZERO);
        if !present {
            self.peers.clear();
        }
        if bulk {
            self.bulk.add(message.at, message.wire);
            if !self.peers.contains(&peer) {
                self.peers.push(peer);
            }
        } else {
            self.small.add(message.at, message.wire);
        }
        let lines = self.peers.len() as u64 + 1;
        let part = Rate((rate.0 / lines).max(1));
        self.small.set_rate(part);
        let level = self.small.add(message.at, Bytes::ZERO);
        SideLevel {
            all,
            lines,
            shared: part.time_for(level),
        }
    }
}

/// The state of all machines of a tenant at one bandwidth.
#[derive(Debug)]
pub(crate) struct Sides {
    rate: Rate,
    /// Largest message that is no bulk.
    small: Bytes,
    sent: Vec<Side>,
    received: Vec<Side>,
}

impl Sides {
    pub(crate) fn new(machines: usize, rate: Rate, small: Bytes) -> Self {
        Self {
            rate,
            small,
            sent: vec![Side::new(rate); machines],
            received: vec![Side::new(rate); machines],
        }
    }

    /// Adds a message, and returns its levels at its sender and at its receiver; no levels at an
    /// end that is no machine of the tenant.
    pub(crate) fn add(&mut self, message: &Message) -> [SideLevel; 2] {
        let bulk = message.wire > self.small;
        let rate = self.rate;
        let sent = message.from.map(|machine| &mut self.sent[machine.index()]);
        let sent = sent.map(|side| side.add(rate, message, message.to, bulk));
        let received = message
            .to
            .map(|machine| &mut self.received[machine.index()]);
        let received = received.map(|side| side.add(rate, message, message.from, bulk));
        [sent, received].map(|level| level.unwrap_or(SideLevel::NONE))
    }
}

/// The buckets of all machines for the rate of bursts, without bulk.
#[derive(Debug)]
pub(crate) struct BurstRate {
    rate: Rate,
    small: Bytes,
    sent: Vec<LeakyBucket>,
}

impl BurstRate {
    pub(crate) fn new(machines: usize, rate: Rate, small: Bytes) -> Self {
        Self {
            rate,
            small,
            sent: vec![LeakyBucket::new(rate); machines],
        }
    }

    /// Adds a message beside `lines - 1` lines of bulk, and returns the time until it is sent.
    pub(crate) fn add(&mut self, message: &Message, lines: u64) -> Nanos {
        let Some(machine) = message.from.filter(|_| message.wire <= self.small) else {
            return Nanos::ZERO;
        };
        let level = self.sent[machine.index()].add(message.at, message.wire);
        self.rate.time_for(Bytes(level.0.saturating_mul(lines)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Kind;

    #[test]
    fn a_small_message_beside_bulk_has_its_part_of_the_rate() {
        let message = |ms, to, wire| Message {
            at: Nanos::from_millis(ms),
            from: Some(MachineId::new(0)),
            to: Some(MachineId::new(to)),
            wire: Bytes(wire),
            kind: Kind::Data,
        };
        // 1,000 bytes a millisecond.
        let mut sides = Sides::new(4, Rate::from_mbit(8), Bytes(1_000));
        let mut add = |ms, to, wire| sides.add(&message(ms, to, wire))[0];
        let ms = Nanos::from_millis;
        let level = |all, lines, shared| SideLevel {
            all: Bytes(all),
            lines,
            shared,
        };
        assert_eq!(add(0, 1, 1_000), level(1_000, 1, ms(1)));
        // Bulk to two peers: 10,000 bytes until 20 ms.
        add(10, 1, 8_000);
        add(10, 2, 2_000);
        // A third of 8 Mbit/s is no whole number of bits: rounded up.
        assert_eq!(add(10, 1, 1_000), level(11_000, 3, Nanos(3_000_001)));
        assert_eq!(add(11, 3, 500).needed(ms(4)), Bytes::ZERO);
        assert_eq!(add(11, 3, 0).needed(ms(3)), Bytes(10_500));
        // The bulk has left, and of the small ones a part of a part.
        let after = add(21, 3, 100);
        assert_eq!((after.lines, after.all), (1, Bytes(600)));
    }

    #[test]
    fn a_burst_beside_bulk_has_its_part_of_the_burst_rate() {
        let mut bursts = BurstRate::new(1, Rate::from_mbit(8), Bytes(1_000));
        let mut message = Message {
            at: Nanos::ZERO,
            from: Some(MachineId::new(0)),
            to: None,
            wire: Bytes(500),
            kind: Kind::Data,
        };
        assert_eq!(bursts.add(&message, 1), Nanos::from_micros(500));
        assert_eq!(bursts.add(&message, 3), Nanos::from_millis(3));
        message.wire = Bytes(1_001);
        assert_eq!(bursts.add(&message, 3), Nanos::ZERO);
    }
}
