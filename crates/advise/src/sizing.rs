//! The least burst and the least burst rate of recorded messages.

use crate::confidence::most_waits;
use crate::judge::{is_joined, is_judged};
use crate::question::Question;
use crate::side::{BurstRate, Sides};
use crate::traffic::{Traffic, wire_size};
use std::collections::BTreeSet;
use tailbound_units::{Bytes, Nanos, Rate};

/// Smallest burst: one longest frame on the wire.
const LEAST_BURST: Bytes = Bytes(1_538);
/// Number of causes for which a message may be late: each gets an equal part of the allowed ones.
const CAUSES: f64 = 3.0;

/// A level at a time.
type Level = (Bytes, Nanos);

/// The messages on which a choice is based: those up to a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice<'t> {
    pub(crate) traffic: &'t Traffic,
    pub(crate) question: Question,
    pub(crate) until: Nanos,
    /// Number of messages that the question is about, up to that time.
    pub(crate) messages: usize,
}

impl Choice<'_> {
    /// Number of messages that may be late for one cause.
    fn budget(&self) -> f64 {
        self.messages as f64 * self.question.late() / CAUSES
    }

    /// Returns the least S and `S_in` for a bandwidth with which messages have their tokens within
    /// `time`, rounded up to two digits.
    pub(crate) fn bursts(&self, bandwidth: Rate, time: Nanos) -> (Bytes, Bytes) {
        let mut sides = self.sides(bandwidth);
        let mut highest = [Highest::new(self.budget()), Highest::new(self.budget())];
        for message in self.before() {
            let levels = sides.add(message);
            if is_judged(message, self.question) {
                for (highest, level) in highest.iter_mut().zip(levels) {
                    highest.add((level.needed(time), message.at));
                }
            }
        }
        let [sent, received] = highest.map(|it| it.least_burst(self.budget()));
        let readable = |burst: Bytes| Bytes(round_up(burst.max(LEAST_BURST).0));
        let sent = readable(sent);
        // A machine may get the burst of one sender in any case.
        (sent, readable(received).max(sent))
    }

    /// Returns the number of lines of the sender of each message, for a bandwidth.
    pub(crate) fn lines(&self, bandwidth: Rate) -> Vec<u64> {
        let mut sides = self.sides(bandwidth);
        self.before()
            .map(|message| sides.add(message)[0].lines)
            .collect()
    }

    /// Returns the least Bmax with which messages are sent within `time`, from `rates` in
    /// ascending order; `None` if the largest one is too slow. `lines` are those of
    /// [`Self::lines`].
    pub(crate) fn burst_rate(&self, rates: &[Rate], lines: &[u64], time: Nanos) -> Option<Rate> {
        let place = rates.partition_point(|rate| !self.is_fast(*rate, lines, time));
        rates.get(place).copied()
    }

    fn is_fast(&self, rate: Rate, lines: &[u64], time: Nanos) -> bool {
        let small = wire_size(self.question.size);
        let mut bursts = BurstRate::new(self.traffic.machines().len(), rate, small);
        let (mut waits, mut episodes, mut last) = (0, 0, None::<Nanos>);
        for (message, lines) in self.before().zip(lines) {
            let sent = bursts.add(message, *lines);
            if sent > time && is_judged(message, self.question) {
                waits += 1;
                episodes += usize::from(last.is_none_or(|last| !is_joined(last, message.at)));
                last = Some(message.at);
            }
        }
        waits == 0 || most_waits(waits, episodes) <= self.budget()
    }

    fn sides(&self, bandwidth: Rate) -> Sides {
        let machines = self.traffic.machines().len();
        Sides::new(machines, bandwidth, wire_size(self.question.size))
    }

    fn before(&self) -> impl Iterator<Item = &crate::Message> {
        let messages = self.traffic.messages().iter();
        messages.take_while(|message| message.at <= self.until)
    }
}

/// The highest levels of a replay: those of the messages that may be late, and two more.
struct Highest {
    levels: BTreeSet<(Level, usize)>,
    most: usize,
    added: usize,
}

impl Highest {
    fn new(budget: f64) -> Self {
        Self {
            levels: BTreeSet::new(),
            most: budget as usize + 2,
            added: 0,
        }
    }

    fn add(&mut self, level: Level) {
        self.added += 1;
        let is_full = self.levels.len() == self.most;
        if is_full && self.levels.first().is_some_and(|(low, _)| *low >= level) {
            return;
        }
        self.levels.insert((level, self.added));
        if is_full {
            self.levels.pop_first();
        }
    }

    /// Returns the least level of which the messages above are likely to be within the budget, as
    /// their largest likely number; the highest level if one message is too much.
    fn least_burst(&self, budget: f64) -> Bytes {
        let mut above: BTreeSet<Nanos> = BTreeSet::new();
        let mut episodes = 0;
        let mut least = None;
        for (waits, ((level, at), _)) in self.levels.iter().rev().enumerate() {
            if waits > 0 && most_waits(waits, episodes) > budget {
                break;
            }
            least = Some(*level);
            episodes = with_episode(&above, *at, episodes);
            above.insert(*at);
        }
        least.unwrap_or(Bytes::ZERO)
    }
}

/// Returns the number of episodes with another late message.
fn with_episode(above: &BTreeSet<Nanos>, at: Nanos, episodes: usize) -> usize {
    let before = above.range(..=at).next_back();
    let after = above.range(at..).next();
    let joins_before = before.is_some_and(|before| is_joined(*before, at));
    let joins_after = after.is_some_and(|after| is_joined(at, *after));
    let were_joined =
        matches!((before, after), (Some(one), Some(other)) if is_joined(*one, *other));
    match (joins_before, joins_after) {
        (false, false) => episodes + 1,
        (true, true) if !were_joined => episodes - 1,
        _ => episodes,
    }
}

/// Returns the number of two significant digits that is not below `number`.
pub(crate) fn round_up(number: u64) -> u64 {
    let mut step = 1_u64;
    while number / step >= 100 {
        step *= 10;
    }
    number.div_ceil(step).saturating_mul(step)
}

/// Returns all rates of two significant digits between two rates, and the largest one itself.
pub(crate) fn rates(least: Rate, most: Rate) -> Vec<Rate> {
    let mut rates = Vec::new();
    let mut rate = round_up(least.0);
    while rate < most.0 {
        rates.push(Rate(rate));
        rate = round_up(rate + 1);
    }
    rates.push(most);
    rates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Kind, MachineId, Message};

    #[test]
    fn numbers_of_two_digits_are_never_below() {
        for (number, rounded) in [(0, 0), (99, 99), (101, 110), (990, 990), (15_234, 16_000)] {
            assert_eq!(round_up(number), rounded);
        }
        let rates = rates(Rate(97), Rate(125));
        assert_eq!(rates, [97, 98, 99, 100, 110, 120, 125].map(Rate));
    }

    fn traffic(sizes: impl Iterator<Item = u64>) -> Traffic {
        let messages = sizes.zip(0..).map(|(wire, number)| Message {
            // One each ten seconds: each is an episode, and the bucket is empty before it.
            at: Nanos::from_secs(10 * number),
            from: Some(MachineId::new(0)),
            to: Some(MachineId::new(1)),
            wire: Bytes(wire),
            kind: Kind::Data,
        });
        Traffic::new(vec!["a".into(), "b".into()], messages.collect())
    }

    fn bursts(traffic: &Traffic, share: &str) -> Bytes {
        let question: Question = format!("100 KB within 1 ms at {share} %").parse().unwrap();
        let choice = Choice {
            traffic,
            question,
            until: traffic.end(),
            messages: traffic.messages().len(),
        };
        choice.bursts(Rate::from_mbit(1), Nanos::ZERO).0
    }

    #[test]
    fn a_burst_leaves_as_many_messages_out_as_are_surely_allowed() {
        // 10,000 messages of 10,001 B to 20,000 B.
        let traffic = traffic((0..10_000).map(|number| 20_000 - number));
        // One in a thousand is ten messages, 3.3 for one cause: surely so only if there was none.
        assert_eq!(bursts(&traffic, "99.9"), Bytes(20_000));
        // 333 for one cause: 303 late ones leave at most 333 likely.
        let (all, late) = (most_waits(303, 303), most_waits(304, 304));
        assert!(all <= 1_000.0 / 3.0 && late > 1_000.0 / 3.0, "{all} {late}");
        assert_eq!(bursts(&traffic, "90"), Bytes(20_000));
        let few = Highest::new(1_000.0 / 3.0);
        let mut few = few;
        for message in traffic.messages() {
            few.add((message.wire, message.at));
        }
        assert_eq!(few.least_burst(1_000.0 / 3.0), Bytes(20_000 - 303));
    }

    #[test]
    fn late_messages_of_one_second_are_one_episode() {
        let times = [10, 12, 11, 30, 50];
        let (mut above, mut episodes) = (BTreeSet::new(), 0);
        let mut counts = Vec::new();
        for tenths in times {
            let at = Nanos::from_millis(tenths * 600);
            episodes = with_episode(&above, at, episodes);
            above.insert(at);
            counts.push(episodes);
        }
        assert_eq!(counts, [1, 2, 1, 2, 3]);
    }

    #[test]
    fn the_burst_rate_is_the_least_that_is_fast_enough() {
        let traffic = traffic([5_000, 10_000, 5_000].into_iter());
        let choice = Choice {
            traffic: &traffic,
            question: "100 KB within 1 ms at 99 %".parse().unwrap(),
            until: traffic.end(),
            messages: 3,
        };
        let rates = rates(Rate::from_mbit(1), Rate::from_mbit(1_000));
        let found = choice.burst_rate(&rates, &[1; 3], Nanos::from_micros(500));
        assert_eq!(found, Some(Rate::from_mbit(160)));
        assert_eq!(
            choice.burst_rate(&rates, &[1; 3], Nanos::from_micros(1)),
            None
        );
    }
}
