//! Brings guests' guarantees and limits into force, a few guests per turn: first in the switch,
//! then in the exchange of rates with other hosts. Then the placement service receives a report.

use super::Daemon;
use super::level::Restoring;
use crate::control::limits;
use crate::guarantees::Guarantees;
use crate::hose::{Hose, HoseGuests, HoseSetup};
use std::collections::BTreeMap;
use tailbound_api::{RefusedVm, TenantId};
use tailbound_dataplane::{Guarantee, GuestId};
use tailbound_switch::{Applying, Switch};
use tailbound_units::{Nanos, Rate};

/// Work per turn, in units of an unchanged guest.
const WORK: usize = 32;

/// The state of guarantees on their way into force.
pub(super) enum Telling {
    /// Guarantees are looked up, and limits are set.
    Wanted(Vec<(GuestId, Option<Guarantee>)>),
    /// The switch applies the guarantees.
    Applying(Applying),
    /// The guests for the exchange of rates are collected. The number is that of the visited ports.
    Machines(HoseGuests, usize),
    /// The exchange of rates applies the guests.
    Settling,
    /// The report to the placement service is collected. The number is that of the visited guests.
    Reporting(GuaranteeReport, usize),
}

/// Guests that arrived or left, which other hosts must learn.
#[derive(Debug, Default)]
pub(super) struct Moved {
    /// True if there are such guests.
    is_news: bool,
    /// The earliest time of the next announcement: each visits all guests.
    next: Nanos,
}

impl Moved {
    /// The shortest time between two announcements.
    const SPACING: Nanos = Nanos::from_millis(100);

    /// Returns the time of the next announcement, if there is one.
    pub(super) fn poll_at(&self) -> Option<Nanos> {
        self.is_news.then_some(self.next)
    }

    /// Returns true, once, if an announcement is due now.
    fn take(&mut self, now: Nanos) -> bool {
        let is_due = self.poll_at().is_some_and(|at| at <= now);
        if is_due {
            self.is_news = false;
            self.next = now + Self::SPACING;
        }
        is_due
    }
}

/// The report on guests' guarantees so far.
#[derive(Default)]
pub(super) struct GuaranteeReport {
    /// The total that the configuration guarantees to guests that are no VMs of tenants.
    reserved: Rate,
    /// By tenant: the first VM whose guarantee is refused.
    refused: BTreeMap<TenantId, RefusedVm>,
    /// VMs that the service expects here, and that have arrived.
    arrived: Vec<String>,
}

impl Telling {
    /// Returns the state of a report alone.
    pub(super) fn report() -> Self {
        Self::Reporting(GuaranteeReport::default(), 0)
    }
}

/// Begins to exchange rates, if that is configured, for the present guests. They get back the
/// levels that they had in the daemon before.
pub(super) fn begin_exchange(
    setup: Option<HoseSetup>,
    guarantees: &Guarantees,
    levels: &mut Restoring,
    switch: &mut Switch,
    now: Nanos,
) -> Option<Hose> {
    let mut hose = setup.and_then(|setup| setup.start(now));
    let limited = levels.restore(now, switch, hose.is_some());
    if let Some(hose) = &mut hose {
        let mut gathered = HoseGuests::default();
        for (place, (id, _)) in switch.guests().enumerate() {
            if let Some(guest) = guarantees.hose_guest(switch, place, id) {
                hose.gather(&mut gathered, guest);
            }
        }
        hose.set_guests(now, gathered);
        hose.keep_for_now(now, limited, switch);
    }
    hose
}

impl Daemon {
    /// Begins to apply the guests' guarantees in the switch, and then in the exchange of rates.
    pub(super) fn begin_telling(&mut self) {
        self.telling = Some(Telling::Wanted(Vec::new()));
        self.tell_again_once_settled();
    }

    /// Announces arrived and left guests to other hosts and the placement service, after the
    /// announcement in progress.
    pub(super) fn note_moved(&mut self, now: Nanos, have_moved: bool) {
        self.moved.is_news |= have_moved;
        if self.telling.is_none() && self.moved.take(now) {
            self.telling = Some(Telling::Machines(HoseGuests::default(), 0));
        }
    }

    /// Continues an announcement, if there is one.
    pub(super) fn go_on_telling(&mut self, now: Nanos) {
        let Some(telling) = self.telling.take() else {
            return;
        };
        self.telling = match telling {
            Telling::Wanted(mut wanted) => Some(if self.look_up(now, &mut wanted) {
                Telling::Applying(Switch::begin_apply(wanted))
            } else {
                Telling::Wanted(wanted)
            }),
            Telling::Applying(mut applying) => {
                Some(if self.switch.apply_some(now, &mut applying, WORK) {
                    Telling::Machines(HoseGuests::default(), 0)
                } else {
                    Telling::Applying(applying)
                })
            }
            Telling::Machines(guests, asked) => Some(self.tell_hosts(now, guests, asked)),
            Telling::Settling => {
                let hose = self.hose.as_ref();
                let is_changing = hose.is_some_and(Hose::is_changing);
                Some(if is_changing {
                    Telling::Settling
                } else {
                    Telling::report()
                })
            }
            Telling::Reporting(kept, looked_at) => self.tell_service(kept, looked_at),
        };
    }

    /// Looks up the guarantees of some more guests, and sets their limits. Returns true when all
    /// guests were visited.
    fn look_up(&mut self, now: Nanos, wanted: &mut Vec<(GuestId, Option<Guarantee>)>) -> bool {
        let mut cost = 0;
        while cost < WORK {
            let place = wanted.len();
            let Some((guest, _)) = self.switch.guests().nth(place) else {
                return true;
            };
            wanted.push((guest, self.guarantees.wanted_at(place)));
            cost += 1;
            if let Some(limits) = self.guarantees.limits_at(place) {
                let (out, pipeline) = (limits.out.as_ref(), &limits.pipeline);
                cost += self.switch.set_limits(now, guest, out, pipeline);
            }
        }
        false
    }

    /// Collects some more guests, and passes them to the exchange of rates once all were collected.
    fn tell_hosts(&mut self, now: Nanos, mut guests: HoseGuests, asked: usize) -> Telling {
        let ports = self.switch.guests().enumerate().skip(asked).take(WORK);
        let mut count = 0;
        for (place, (id, _)) in ports {
            count += 1;
            if let Some(hose) = &self.hose
                && let Some(guest) = self.guarantees.hose_guest(&self.switch, place, id)
            {
                hose.gather(&mut guests, guest);
            }
        }
        if count == WORK && self.hose.is_some() {
            return Telling::Machines(guests, asked + count);
        }
        let limited = self
            .levels
            .restore(now, &mut self.switch, self.hose.is_some());
        if let Some(hose) = &mut self.hose {
            hose.set_guests(now, guests);
            hose.keep_for_now(now, limited, &mut self.switch);
        }
        Telling::Settling
    }

    /// Begins to report to the placement service, unless a report follows anyway.
    pub(super) fn begin_reporting(&mut self) {
        self.telling.get_or_insert_with(Telling::report);
    }

    /// Visits some more guests, and reports to the placement service once all were visited.
    fn tell_service(&mut self, mut kept: GuaranteeReport, looked_at: usize) -> Option<Telling> {
        let reporter = self.reporter.as_ref()?;
        let guests = self.switch.guests().count();
        let end = guests.min(looked_at + WORK);
        for place in looked_at..end {
            kept.reserved.0 += self.guarantees.reserved_at(place).0;
            let arriving = self.guarantees.arriving_at(place);
            if let Some(vm) = arriving.filter(|_| self.switch.has_guest_come(place)) {
                kept.arrived.push(vm.to_owned());
            }
            let rule = self.switch.refusal(place);
            if let Some(refused) = self.guarantees.refused_at(place, rule) {
                kept.refused.entry(refused.tenant).or_insert(refused);
            }
        }
        if end < guests {
            return Some(Telling::Reporting(kept, end));
        }
        let wire = self.switch.wire();
        let limits = wire.and_then(|wire| limits(wire, kept.reserved));
        let refused = kept.refused.into_values().collect();
        reporter.tell(self.guarantees.report(limits, refused, kept.arrived));
        None
    }
}
