//! The exact replay of messages against a guarantee.

use crate::confidence::most_likely;
use crate::price::Tuple;
use crate::question::Question;
use crate::side::{BurstRate, SideLevel, Sides};
use crate::traffic::{Kind, Message, Traffic, wire_size};
use tailbound_units::{Bytes, Nanos};

/// Percent of a guarantee that would cause more episodes of the same kind, which show the number of
/// messages that an episode delays.
const NEAR: u64 = 80;

/// Messages nearer than this to each other have one cause: one episode.
const EPISODE: Nanos = Nanos::from_secs(1);

/// The outcome of a judgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// With 95 % certainty at most the allowed share is late, if traffic stays as it was.
    Sure,
    /// At most the allowed share was late, but there were too few messages for more than that.
    Held,
    /// More than the allowed share was late.
    Missed,
}

/// Counts of messages that the guarantee delays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    /// Their sender's bucket was above S, and its bandwidth too small beside bulk.
    pub sent: usize,
    /// More than `S_in` was on its way to their receiver, in the same way.
    pub received: usize,
    /// The rate of a burst, Bmax, was too low for all that their sender sent at that time.
    pub slow: usize,
}

/// A guarantee, judged by messages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judgement {
    /// Number of messages that the question is about.
    pub messages: usize,
    /// Number of messages that were late for any reason.
    pub late: usize,
    /// Causes; one message may have several.
    pub waits: Waits,
    /// Number of separate episodes of late messages.
    pub episodes: usize,
    /// Largest likely share of late messages (95 %), from 0 to 1: of independent episodes, each of
    /// the average size, or of the size with four fifths of the guarantee if that is larger.
    pub at_most: f64,
    /// The outcome.
    pub verdict: Verdict,
}

/// Returns true if the question is about the message.
pub(crate) fn is_judged(message: &Message, question: Question) -> bool {
    message.kind == Kind::Data && message.wire <= wire_size(question.size)
}

/// Late messages, in order of time, and their episodes.
#[derive(Debug, Default)]
struct Late {
    messages: usize,
    episodes: usize,
    last: Option<Nanos>,
}

impl Late {
    fn add(&mut self, at: Nanos) {
        let is_new = self.last.is_none_or(|last| !is_joined(last, at));
        self.messages += 1;
        self.episodes += usize::from(is_new);
        self.last = Some(at);
    }

    /// Returns the average number of messages of an episode, at least one.
    fn size(&self) -> f64 {
        self.messages.max(1) as f64 / self.episodes.max(1) as f64
    }
}

/// Returns true if late messages at these times are of one episode.
pub(crate) fn is_joined(earlier: Nanos, later: Nanos) -> bool {
    later.since(earlier) < EPISODE
}

/// The limits beyond which a message is late.
struct Limits {
    burst: Bytes,
    burst_in: Bytes,
    time: Nanos,
}

impl Limits {
    /// Returns whether a message is late for S, for `S_in`, and for Bmax.
    fn causes(&self, [sent, received]: [SideLevel; 2], time: Nanos) -> [bool; 3] {
        [
            sent.needed(self.time) > self.burst,
            received.needed(self.time) > self.burst_in,
            time > self.time,
        ]
    }
}

/// Judges a guarantee by the messages after a time. The buckets are filled by all messages before.
pub fn judge(traffic: &Traffic, question: Question, tuple: &Tuple, after: Nanos) -> Judgement {
    let (machines, small) = (traffic.machines().len(), wire_size(question.size));
    let mut sides = Sides::new(machines, tuple.bandwidth, small);
    let mut bursts = BurstRate::new(machines, tuple.burst_rate, small);
    let time = question.within.saturating_sub(tuple.delay);
    let near = Limits {
        burst: Bytes(tuple.burst.0 / 100 * NEAR),
        burst_in: Bytes(tuple.burst_in.0 / 100 * NEAR),
        time: Nanos(time.0 / 100 * NEAR),
    };
    let limits = Limits {
        burst: tuple.burst,
        burst_in: tuple.burst_in,
        time,
    };
    let (mut messages, mut waits) = (0, Waits::default());
    let (mut late, mut nearly_late) = (Late::default(), Late::default());
    for message in traffic.messages() {
        let [sent, received] = sides.add(message);
        let time = bursts.add(message, sent.lines);
        if message.at <= after || !is_judged(message, question) {
            continue;
        }
        messages += 1;
        let causes = limits.causes([sent, received], time);
        waits.sent += usize::from(causes[0]);
        waits.received += usize::from(causes[1]);
        waits.slow += usize::from(causes[2]);
        if causes.contains(&true) {
            late.add(message.at);
        }
        if near.causes([sent, received], time).contains(&true) {
            nearly_late.add(message.at);
        }
    }
    let of_all = |count: f64| count / (messages as f64).max(1.0);
    let size = late.size().max(nearly_late.size());
    let at_most = of_all(most_likely(late.episodes) * size).min(1.0);
    let verdict = if of_all(late.messages as f64) > question.late() {
        Verdict::Missed
    } else if at_most > question.late() {
        Verdict::Held
    } else {
        Verdict::Sure
    };
    Judgement {
        messages,
        late: late.messages,
        waits,
        episodes: late.episodes,
        at_most,
        verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::MachineId;
    use tailbound_units::Rate;

    fn message(at: u64, from: u32, to: u32, wire: u64) -> Message {
        Message {
            at: Nanos(at),
            from: Some(MachineId::new(from)),
            to: Some(MachineId::new(to)),
            wire: Bytes(wire),
            kind: Kind::Data,
        }
    }

    const TUPLE: Tuple = Tuple {
        bandwidth: Rate::from_mbit(8),
        burst: Bytes(2_000),
        burst_in: Bytes(3_000),
        delay: Nanos::from_micros(500),
        burst_rate: Rate::from_mbit(80),
    };

    #[test]
    fn each_cause_of_a_late_message_is_counted() {
        let question: Question = "8 KB within 1 ms at 90 %".parse().unwrap();
        let ms = |ms: u64| ms * 1_000_000;
        let messages = vec![
            // Before the judged part; its bytes are gone when the next one comes.
            message(0, 0, 1, 90_000),
            // The burst, to the byte.
            message(ms(1_000), 0, 1, 2_000),
            // A byte more: the sender's bucket, and of its receiver's 1,001 B are left.
            message(ms(1_001), 0, 2, 1_001),
            // Two senders to one machine: 3,000 B, and a byte more.
            message(ms(3_000), 0, 2, 1_500),
            message(ms(3_000), 1, 2, 1_501),
            // 6 KB need 0.6 ms at 80 Mbit/s, and 0.5 ms are left.
            message(ms(5_000), 1, 2, 6_000),
        ];
        let names = ["a", "b", "c"].map(String::from);
        let traffic = Traffic::new(names.into(), messages);
        let found = judge(&traffic, question, &TUPLE, Nanos::from_millis(500));
        let waits = Waits {
            sent: 2,
            received: 2,
            slow: 1,
        };
        assert_eq!((found.messages, found.late, found.waits), (5, 3, waits));
        assert_eq!((found.episodes, found.verdict), (3, Verdict::Missed));
    }

    #[test]
    fn few_messages_hold_and_many_are_sure() {
        let question: Question = "8 KB within 1 ms at 99 %".parse().unwrap();
        for (count, verdict) in [(299, Verdict::Held), (300, Verdict::Sure)] {
            let messages = (1..=count).map(|number| message(number * 1_000_000, 0, 1, 500));
            let traffic = Traffic::new(vec!["a".into(), "b".into()], messages.collect());
            let found = judge(&traffic, question, &TUPLE, Nanos::ZERO);
            assert_eq!(found.verdict, verdict, "{found:?}");
        }
    }
}
