//! What guests are guaranteed on a paced uplink, as it changes.

use super::Switch;
use super::guest::{GuestPort, Refusal};
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
        for (guest, guarantee) in guarantees {
            let port = self.slots.port_of(guest);
            if let Some(port) = port.and_then(|port| self.guest_at(port)) {
                port.guarantee = guarantee;
            }
        }
        self.set_in_pacer(now, Pass::Less, 0..self.guests.len());
        self.set_in_pacer(now, Pass::All, 0..self.guests.len());
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
        for (guest, state) in self.guests[guests].iter_mut().zip(states) {
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
        changed
    }
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
