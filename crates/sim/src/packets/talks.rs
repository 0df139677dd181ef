//! Guests on hosts, by name, and the messages between them.

use super::packet::{GuestSeat, Protocol};
use super::sizes::{self, Kind, Sizes};
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;
use std::collections::BTreeMap;
use tailbound_experiment::{Name, Section};
use tailbound_units::Nanos;

/// A guest with messages.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestSpec {
    /// Name in talks.
    pub name: Name,
    /// Host, from 0.
    pub host: usize,
    /// Pinned to this core, from 0; any.
    pub core: Option<u32>,
}

/// Messages between two guests, on one connection.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Talk {
    /// Name of its series.
    pub name: Name,
    /// First sender.
    pub from: Name,
    /// Receiver.
    pub to: Name,
    /// Mean interval of messages (Poisson); without it, a message follows the last one's end.
    pub every: Option<Nanos>,
    /// Lengths of the messages.
    pub message: Sizes,
    /// Lengths of the answers; no answers.
    pub answer: Option<Sizes>,
    /// Transport; the setting's.
    pub protocol: Option<Protocol>,
}

/// Returns the positions of guests, by name.
pub(super) fn seats(guests: &[GuestSpec]) -> BTreeMap<&str, GuestSeat> {
    let mut there = BTreeMap::new();
    let mut seats = BTreeMap::new();
    for guest in guests {
        let number: &mut u32 = there.entry(guest.host).or_default();
        *number += 1;
        let seat = GuestSeat {
            host: guest.host as u32,
            guest: *number,
        };
        seats.insert(guest.name.get_ref().as_str(), seat);
    }
    seats
}

impl Talk {
    /// Returns the positions of the sender and the receiver.
    pub(super) fn seats(
        &self,
        seats: &BTreeMap<&str, GuestSeat>,
    ) -> Option<(GuestSeat, GuestSeat)> {
        let seat = |name: &Name| seats.get(name.get_ref().as_str()).copied();
        Some((seat(&self.from)?, seat(&self.to)?))
    }

    pub(super) fn check(&self, seats: &BTreeMap<&str, GuestSeat>, section: &mut Section<'_>) {
        for (key, name) in [("from", &self.from), ("to", &self.to)] {
            if !seats.contains_key(name.get_ref().as_str()) {
                let message = format!("{} is no guest: name one of `guest`", name.get_ref());
                section.at(key, message);
            }
        }
        if let Some((from, to)) = self.seats(seats)
            && from.host == to.host
        {
            section.at("to", "is on the same host: frames pass switches here");
        }
        if let Some(every) = self.every {
            let pauses = Nanos::from_micros(1)..=Nanos::from_secs(60);
            section.range("every", every, pauses);
        }
        self.message.check("message", section);
        if let Some(answer) = &self.answer {
            answer.check("answer", section);
        }
    }
}

/// State of a talk.
#[derive(Debug, Clone, Copy)]
struct Running {
    /// The end that writes first.
    end: u32,
    every: Option<Nanos>,
    message: Sizes,
    answer: Option<Sizes>,
    next: Nanos,
}

/// State of all talks.
#[derive(Debug, Clone)]
pub(super) struct Talking {
    /// Talks, by owner of their connections.
    talks: Vec<Option<Running>>,
    random: Pcg64Mcg,
    /// End of the time in which messages begin.
    until: Nanos,
}

impl Talking {
    /// Returns talks, each with the end that writes first; `None` switches a talk off.
    pub(super) fn new(talks: &[(&Talk, Option<u32>)], until: Nanos, random: Pcg64Mcg) -> Self {
        let running = |(talk, end): &(&Talk, Option<u32>)| {
            Some(Running {
                end: (*end)?,
                every: talk.every,
                message: talk.message,
                answer: talk.answer,
                next: Nanos::ZERO,
            })
        };
        let mut talking = Self {
            talks: talks.iter().map(running).collect(),
            random,
            until,
        };
        for owner in 0..talks.len() {
            talking.plan(owner, Nanos::ZERO);
        }
        talking
    }

    /// Sets the time of the next message of a talk, after one at `now`.
    fn plan(&mut self, owner: usize, now: Nanos) {
        let Some(talk) = &mut self.talks[owner] else {
            return;
        };
        let pause = talk
            .every
            .map_or(0, |every| sizes::pause(&mut self.random, every.0 as f64));
        let next = now.saturating_add(Nanos(pause));
        talk.next = if next < self.until { next } else { Nanos::MAX };
    }

    pub(super) fn next_at(&self) -> Nanos {
        let next = self.talks.iter().flatten().map(|talk| talk.next).min();
        next.unwrap_or(Nanos::MAX)
    }

    /// Begins the message that is due.
    pub(super) fn begin(&mut self, begun: &mut Vec<(u32, Kind, u64)>) {
        let due = self.next_at();
        let is_due = |talk: &Option<Running>| talk.is_some_and(|talk| talk.next == due);
        let Some(owner) = self.talks.iter().position(is_due) else {
            return;
        };
        let Some(talk) = &mut self.talks[owner] else {
            return;
        };
        let kind = match talk.answer {
            Some(answer) => Kind::Question(answer.draw(&mut self.random)),
            None => Kind::Flow,
        };
        begun.push((talk.end, kind, talk.message.draw(&mut self.random)));
        if talk.every.is_some() {
            self.plan(owner, due);
        } else {
            talk.next = Nanos::MAX;
        }
    }

    /// Handles the completion of a message, including its answer.
    pub(super) fn end(&mut self, now: Nanos, owner: u32) {
        let owner = owner as usize;
        if self.talks[owner].is_some_and(|talk| talk.every.is_none()) {
            self.plan(owner, now);
        }
    }
}
