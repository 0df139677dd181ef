//! Streams of a constant rate, as voice and video over RTP are.

use super::peers::Peers;
use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;
use tailbound_experiment::Section;
use tailbound_units::{Bytes, Nanos};

/// Streams of a constant rate, of equal messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    /// Interval of messages in a stream.
    pub every: Nanos,
    /// Length of a message.
    pub size: Bytes,
    /// Peers of a host, one stream each.
    #[serde(default)]
    pub peers: Peers,
}

/// State of the streams.
#[derive(Debug, Clone)]
pub(super) struct Streaming {
    every: Nanos,
    size: u64,
    /// Time of each stream within a period, and its sending end, sorted.
    turns: Vec<(Nanos, u32)>,
    /// Index of the next stream, and start of the period.
    turn: usize,
    period: Nanos,
    /// End of the time in which messages begin.
    until: Nanos,
}

impl Streams {
    pub(super) fn check(&self, hosts: usize, section: &mut Section<'_>) {
        let distances = Nanos::from_micros(1)..=Nanos::from_secs(60);
        section.range("every", self.every, distances);
        section.range("size", self.size, Bytes(1)..=Bytes(100_000_000));
        self.peers.check(hosts, section);
    }

    /// Average rate of each host, in bits a second.
    pub(super) fn rate(&self, hosts: usize) -> f64 {
        let each = 8.0 * self.size.0 as f64 / self.every.as_secs_f64();
        each * self.peers.count(hosts) as f64
    }
}

impl Streaming {
    /// Returns streams from these ends, with random offsets within a period.
    pub(super) fn new(
        streams: Streams,
        ends: impl Iterator<Item = u32>,
        until: Nanos,
        random: &mut Pcg64Mcg,
    ) -> Self {
        let turn = |end| (Nanos(random.random_range(0..streams.every.0)), end);
        let mut turns: Vec<(Nanos, u32)> = ends.map(turn).collect();
        turns.sort_unstable();
        Self {
            every: streams.every,
            size: streams.size.0,
            turns,
            turn: 0,
            period: Nanos::ZERO,
            until,
        }
    }

    pub(super) fn next_at(&self) -> Nanos {
        let turn = self.turns.get(self.turn);
        let at = turn.map_or(Nanos::MAX, |turn| self.period + turn.0);
        if at < self.until { at } else { Nanos::MAX }
    }

    /// Returns the message that is due: the sending end, and the length.
    pub(super) fn begin(&mut self) -> (u32, u64) {
        let end = self.turns[self.turn].1;
        self.turn += 1;
        if self.turn == self.turns.len() {
            self.turn = 0;
            self.period += self.every;
        }
        (end, self.size)
    }
}
