//! What is sent at a constant rate, as voice and video over RTP are.

use super::peers::Peers;
use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;
use tailbound_experiment::Section;
use tailbound_units::{Bytes, Nanos};

/// Streams of a constant rate: on each connection a message of one length, at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    /// How far messages of a stream are apart.
    pub every: Nanos,
    /// How long each is.
    pub size: Bytes,
    /// To whom a host has one, each.
    #[serde(default)]
    pub peers: Peers,
}

/// Streams as they go on.
#[derive(Debug, Clone)]
pub(super) struct Streaming {
    every: Nanos,
    size: u64,
    /// When each stream sends within a period, and the end that does, in that order.
    turns: Vec<(Nanos, u32)>,
    /// Whose turn it is, and when the period began.
    turn: usize,
    period: Nanos,
    /// Nothing begins from here on.
    until: Nanos,
}

impl Streams {
    pub(super) fn check(&self, hosts: usize, section: &mut Section<'_>) {
        let distances = Nanos::from_micros(1)..=Nanos::from_secs(60);
        section.range("every", self.every, distances);
        section.range("size", self.size, Bytes(1)..=Bytes(100_000_000));
        self.peers.check(hosts, section);
    }

    /// What each host sends on average, in bits a second.
    pub(super) fn rate(&self, hosts: usize) -> f64 {
        let each = 8.0 * self.size.0 as f64 / self.every.as_secs_f64();
        each * self.peers.count(hosts) as f64
    }
}

impl Streaming {
    /// Streams from these ends, which begin at random within a period.
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

    /// The message that is due: the end that sends, and its length.
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
