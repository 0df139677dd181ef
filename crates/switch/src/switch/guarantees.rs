//! Changes of guests' guarantees on a paced uplink.

use super::Parts;
use super::Switch;
use super::guest::{GuestPort, Refusal};
use super::steps::{CHANGED, some};
use super::{GuestMut, GuestRef};
use crate::index::GuestIndex;
use std::ops::Range;
use tailbound_dataplane::pacer::PacerError;
use tailbound_dataplane::{Guarantee, GuestId, Mark, Pacer, PacerConfig, Packet};
use tailbound_units::Nanos;

/// Guarantees on their way into force.
#[derive(Debug)]
pub struct Applying {
    wanted: Vec<(GuestId, Option<Guarantee>)>,
    step: Step,
}

/// The next step, with the index of the next guest.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Stores the new guarantees in the guests.
    Note(usize),
    /// Sets the guarantees that shrink.
    Less(usize),
    /// Sets all guarantees.
    All(usize),
    Done,
}

impl Applying {
    /// Begins to change the guarantees of several guests, as [`Switch::apply`] does in one call.
    pub const fn new(guarantees: Vec<(GuestId, Option<Guarantee>)>) -> Self {
        Self {
            wanted: guarantees,
            step: Step::Note(0),
        }
    }
}

impl GuestMut<'_> {
    /// Returns the guest's guarantee in the pacer; `None`: best effort, or no pacer.
    pub fn guarantee(&self) -> Option<&Guarantee> {
        self.parts.transmitter.pacer()?.guarantee(self.id())
    }
}

impl GuestRef<'_> {
    /// Returns the rule that refuses the guest's guarantee; `None` if the guarantee is in force, or
    /// the uplink is not paced.
    pub fn refusal(self) -> Option<PacerError> {
        Some(self.state().promise.refusal?.rule)
    }
}

impl Switch {
    /// Returns the guests in the order of their ports: the number of each, which stays as long as
    /// there is a guest of its name, and that name.
    pub fn guests(&self) -> impl Iterator<Item = (GuestId, &str)> {
        let names = self
            .parts
            .table
            .guest_ports()
            .map(|port| self.parts.table[port].name.as_str());
        self.parts.table.guests().map(|guest| guest.id).zip(names)
    }

    /// Returns the wire of the uplink; `None` if the uplink is not paced.
    pub fn wire(&self) -> Option<&PacerConfig> {
        Some(self.parts.transmitter.paced()?.wire())
    }

    /// Returns the guarantee of a guest in the pacer; `None`: best effort, or no pacer.
    pub fn guarantee(&self, guest: GuestId) -> Option<&Guarantee> {
        self.parts.transmitter.pacer()?.guarantee(guest)
    }

    /// Sets the marks of the fabric's delay classes: received frames with them are guaranteed.
    pub fn set_delay_marks(&mut self, marks: impl IntoIterator<Item = Mark>) {
        self.parts.receiver.set_delay_marks(marks);
    }

    /// Changes the guarantees of several guests from `now` on: first those that shrink, so that
    /// there is room for the rest, then all. Unknown guests are skipped. A guarantee that breaks a
    /// rule is logged and counted, and its guest keeps the old one.
    pub fn apply(
        &mut self,
        now: Nanos,
        guarantees: impl IntoIterator<Item = (GuestId, Option<Guarantee>)>,
    ) {
        let mut applying = Applying::new(guarantees.into_iter().collect());
        while !self.apply_some(now, &mut applying, usize::MAX) {}
    }

    /// Continues with some guests, up to the cost of `work` unchanged guests. Returns true when all
    /// is done. Between two calls the switch does turns as usual.
    pub fn apply_some(&mut self, now: Nanos, applying: &mut Applying, work: usize) -> bool {
        let guests = self.parts.table.guest_count();
        let mut left = work;
        while left > 0 {
            let cost = match applying.step {
                Step::Note(from) => {
                    let range = some(from, applying.wanted.len(), left);
                    for (guest, guarantee) in &applying.wanted[range.clone()] {
                        if let Some(guest) = self.parts.table.guest_of_mut(*guest) {
                            guest.promise.guarantee = *guarantee;
                        }
                    }
                    let is_over = range.end == applying.wanted.len();
                    applying.step = next(is_over, Step::Less(0), Step::Note(range.end));
                    range.len()
                }
                Step::Less(from) => {
                    let (end, cost) = self.parts.set_some(now, Pass::Less, from, left);
                    applying.step = next(end == guests, Step::All(0), Step::Less(end));
                    cost
                }
                Step::All(from) => {
                    let (end, cost) = self.parts.set_some(now, Pass::All, from, left);
                    applying.step = next(end == guests, Step::Done, Step::All(end));
                    cost
                }
                Step::Done => return true,
            };
            left = left.saturating_sub(cost + 1);
        }
        matches!(applying.step, Step::Done)
    }
}

impl Parts {
    /// Sets the pacer's guarantees of some guests, starting at one. Returns the index of the next
    /// guest, and the cost.
    fn set_some(&mut self, now: Nanos, pass: Pass, from: usize, work: usize) -> (usize, usize) {
        let mut cost = 0;
        let mut index = from.min(self.table.guest_count());
        while cost < work && index < self.table.guest_count() {
            let changed = self.set_in_pacer(now, pass, index..index + 1);
            cost += if changed { CHANGED } else { 1 };
            index += 1;
        }
        (index, cost)
    }

    /// Sets the pacer's guarantees of some guests if they differ; returns true if any did.
    pub(super) fn set_in_pacer(&mut self, now: Nanos, pass: Pass, guests: Range<usize>) -> bool {
        let Some(pacer) = self.transmitter.pacer_mut() else {
            return false;
        };
        let mut changed = false;
        for index in guests.clone().map(GuestIndex::new) {
            let (guest, name) = self.table.named_mut(index);
            changed |= pacer.guarantee(guest.id) != guest.promise.guarantee.as_ref();
            if guest.set_in_pacer(now, pacer, pass) {
                self.refusals += 1;
                if let Some(Refusal { rule, guarantee }) = guest.promise.refusal {
                    tracing::error!(
                        guest = name, bandwidth = %guarantee.bandwidth,
                        burst = %guarantee.burst, burst_rate = %guarantee.burst_rate, %rule,
                        "guarantee refused; the guest keeps the one that it had"
                    );
                }
            }
        }
        self.transmitter.add_freed();
        for guest in guests.map(GuestIndex::new) {
            self.place_limit(now, self.table.port_at(guest));
        }
        changed
    }
}

fn next(is_over: bool, then: Step, else_: Step) -> Step {
    if is_over { then } else { else_ }
}

/// The guarantees to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    /// Guarantees that take no more of the wire than the present ones.
    Less,
    /// All guarantees.
    All,
}

impl GuestPort {
    /// Sets the guest's guarantee in the pacer if it differs; returns true if it is refused for the
    /// first time.
    fn set_in_pacer(&mut self, now: Nanos, pacer: &mut Pacer<Packet>, pass: Pass) -> bool {
        let wanted = self.promise.guarantee.as_ref();
        let held = pacer.guarantee(self.id);
        if held == wanted {
            self.promise.refusal = None;
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
        let refusal = result.err().zip(self.promise.guarantee);
        let refusal = refusal.map(|(rule, guarantee)| Refusal { rule, guarantee });
        let before = std::mem::replace(&mut self.promise.refusal, refusal);
        refusal.is_some() && refusal != before
    }
}

fn is_less(wanted: Option<&Guarantee>, held: Option<&Guarantee>) -> bool {
    let (Some(wanted), Some(held)) = (wanted, held) else {
        return wanted.is_none();
    };
    wanted.bandwidth <= held.bandwidth
}
