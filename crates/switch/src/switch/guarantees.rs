//! What guests are guaranteed on a paced uplink, as it changes.

use super::Switch;
use super::guest::{GuestPort, Refusal};
use super::steps::{CHANGED, some};
use crate::forward::PortIndex;
use std::ops::Range;
use tailbound_dataplane::pacer::PacerError;
use tailbound_dataplane::{Guarantee, GuestId, Pacer, PacerConfig, Packet};
use tailbound_units::Nanos;

/// A guarantee that cannot be set. The guest keeps the one that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GuaranteeError {
    /// There is no such guest (any more).
    #[error("there is no guest of number {0}")]
    NoGuest(GuestId),
    /// It breaks a rule of the pacer.
    #[error(transparent)]
    Refused(#[from] PacerError),
}

/// Guarantees on their way into force.
#[derive(Debug)]
pub struct Applying {
    wanted: Vec<(GuestId, Option<Guarantee>)>,
    step: Step,
}

/// What is to be done next, from a guest on.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Guests are told what they are to have.
    Note(usize),
    /// What becomes less is set.
    Less(usize),
    /// All is set.
    All(usize),
    Done,
}

impl Switch {
    /// The guests in the order of their ports: the number of each, by which it is
    /// known as long as there is a guest of its name, and that name.
    pub fn guests(&self) -> impl Iterator<Item = (GuestId, &str)> {
        let names = self.states[self.first_guest()..].iter();
        let names = names.map(|state| state.name.as_str());
        self.guests.iter().map(|guest| guest.id).zip(names)
    }

    /// The wire of the uplink; `None` where it is not paced.
    pub fn wire(&self) -> Option<&PacerConfig> {
        Some(self.uplink.as_ref()?.egress.paced()?.wire())
    }

    /// What the pacer holds a guest to; `None`: best effort, or no pacer.
    pub fn guarantee(&self, guest: GuestId) -> Option<&Guarantee> {
        self.uplink.as_ref()?.egress.pacer()?.guarantee(guest)
    }

    /// The rule for which the guest at `place` among [`Switch::guests`] is not guaranteed what it
    /// is to be; `None` where it is, or the uplink is not paced.
    pub fn refusal(&self, place: usize) -> Option<PacerError> {
        Some(self.guests.get(place)?.refusal?.rule)
    }

    /// Guarantees a guest something else from `now` on, or nothing any more. Where the
    /// uplink is not paced, it is kept until it is.
    ///
    /// # Errors
    /// There is no such guest, or the rule that the guarantee breaks. Then the guest
    /// keeps the one that it has; this one is logged and counted, and set as soon as a
    /// change of others makes room for it.
    pub fn set_guarantee(
        &mut self,
        now: Nanos,
        guest: GuestId,
        guarantee: Option<Guarantee>,
    ) -> Result<(), GuaranteeError> {
        let known = self.guests.iter_mut().find(|known| known.id == guest);
        known.ok_or(GuaranteeError::NoGuest(guest))?.guarantee = guarantee;
        self.apply(now, []);
        let refusal = self.guests.iter().find(|known| known.id == guest);
        match refusal.and_then(|known| known.refusal) {
            Some(refusal) => Err(refusal.rule.into()),
            None => Ok(()),
        }
    }

    /// Guarantees several guests something else from `now` on: first what becomes less,
    /// so that there is room for the rest, then all. Guests that are not there are
    /// passed over. What breaks a rule is logged and counted, and its guest keeps the
    /// guarantee that it has.
    pub fn apply(
        &mut self,
        now: Nanos,
        guarantees: impl IntoIterator<Item = (GuestId, Option<Guarantee>)>,
    ) {
        let mut applying = Self::begin_apply(guarantees.into_iter().collect());
        while !self.apply_some(now, &mut applying, usize::MAX) {}
    }

    /// Begins to guarantee several guests something else, as [`Switch::apply`] does at once.
    pub fn begin_apply(guarantees: Vec<(GuestId, Option<Guarantee>)>) -> Applying {
        Applying {
            wanted: guarantees,
            step: Step::Note(0),
        }
    }

    /// Goes on with some guests: as many as cost so much as `work` guests of which nothing
    /// changes. Returns whether all is done. Between two calls the switch does turns as
    /// usual.
    pub fn apply_some(&mut self, now: Nanos, applying: &mut Applying, work: usize) -> bool {
        let guests = self.guests.len();
        let mut left = work;
        while left > 0 {
            let cost = match applying.step {
                Step::Note(from) => {
                    let range = some(from, applying.wanted.len(), left);
                    for (guest, guarantee) in &applying.wanted[range.clone()] {
                        let port = self.slots.port_of(*guest);
                        if let Some(port) = port.and_then(|port| self.guest_at(port)) {
                            port.guarantee = *guarantee;
                        }
                    }
                    let is_over = range.end == applying.wanted.len();
                    applying.step = next(is_over, Step::Less(0), Step::Note(range.end));
                    range.len()
                }
                Step::Less(from) => {
                    let (end, cost) = self.set_some(now, Pass::Less, from, left);
                    applying.step = next(end == guests, Step::All(0), Step::Less(end));
                    cost
                }
                Step::All(from) => {
                    let (end, cost) = self.set_some(now, Pass::All, from, left);
                    applying.step = next(end == guests, Step::Done, Step::All(end));
                    cost
                }
                Step::Done => return true,
            };
            left = left.saturating_sub(cost + 1);
        }
        matches!(applying.step, Step::Done)
    }

    /// Sets the pacer's guarantees of some guests, from one on. Returns how far it came, and
    /// what that cost.
    fn set_some(&mut self, now: Nanos, pass: Pass, from: usize, work: usize) -> (usize, usize) {
        let mut cost = 0;
        let mut index = from.min(self.guests.len());
        while cost < work && index < self.guests.len() {
            let changed = self.set_in_pacer(now, pass, index..index + 1);
            cost += if changed { CHANGED } else { 1 };
            index += 1;
        }
        (index, cost)
    }

    /// Sets the pacer's guarantees of some guests where they are to be others; returns
    /// whether there were such.
    pub(super) fn set_in_pacer(&mut self, now: Nanos, pass: Pass, guests: Range<usize>) -> bool {
        let first = self.first_guest();
        let uplink = self.uplink.as_mut();
        let Some(pacer) = uplink.and_then(|uplink| uplink.egress.pacer_mut()) else {
            return false;
        };
        let states = &self.states[first..][guests.clone()];
        let mut changed = false;
        for (guest, state) in self.guests[guests.clone()].iter_mut().zip(states) {
            changed |= pacer.guarantee(guest.id) != guest.guarantee.as_ref();
            if guest.set_in_pacer(now, pacer, pass) {
                self.refusals += 1;
                if let Some(Refusal { rule, guarantee }) = guest.refusal {
                    tracing::error!(
                        guest = state.name, bandwidth = %guarantee.bandwidth,
                        burst = %guarantee.burst, burst_rate = %guarantee.burst_rate, %rule,
                        "guarantee refused; the guest keeps the one that it had"
                    );
                }
            }
        }
        self.take_freed();
        for guest in guests {
            self.place_limit(now, PortIndex(first + guest));
        }
        changed
    }
}

fn next(is_over: bool, then: Step, else_: Step) -> Step {
    if is_over { then } else { else_ }
}

/// Which guarantees to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    /// Those that take no more of the wire than what is held.
    Less,
    /// All.
    All,
}

impl GuestPort {
    /// Sets the guest's guarantee in the pacer where it is another one; returns whether
    /// it was refused as it was not before.
    fn set_in_pacer(&mut self, now: Nanos, pacer: &mut Pacer<Packet>, pass: Pass) -> bool {
        let wanted = self.guarantee.as_ref();
        let held = pacer.guarantee(self.id);
        if held == wanted {
            self.refusal = None;
            return false;
        }
        if pass == Pass::Less && !is_less(wanted, held) {
            return false;
        }
        let result = pacer.set_guest(now, self.id, wanted);
        if pass == Pass::Less {
            // What is refused here is tried again.
            return false;
        }
        let refusal = result.err().zip(self.guarantee);
        let refusal = refusal.map(|(rule, guarantee)| Refusal { rule, guarantee });
        let before = std::mem::replace(&mut self.refusal, refusal);
        refusal.is_some() && refusal != before
    }
}

fn is_less(wanted: Option<&Guarantee>, held: Option<&Guarantee>) -> bool {
    let (Some(wanted), Some(held)) = (wanted, held) else {
        return wanted.is_none();
    };
    wanted.bandwidth <= held.bandwidth
}
