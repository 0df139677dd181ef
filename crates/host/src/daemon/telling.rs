//! What guests are guaranteed and limited to comes into force, a few guests a turn: in the switch, and
//! then in the exchange of rates with other hosts. Then the placement service is told what is
//! kept.

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

/// What a turn does of it: as much as for so many guests of which nothing changes.
const WORK: usize = 32;

/// Guarantees on their way into force, as far as they have come.
pub(super) enum Telling {
    /// Guests are looked up, and held to their limits.
    Wanted(Vec<(GuestId, Option<Guarantee>)>),
    /// The switch holds guests to them.
    Applying(Applying),
    /// Other hosts are to hear of these guests; of so many ports they were asked for.
    Machines(HoseGuests, usize),
    /// The exchange of rates takes them up.
    Settling,
    /// The placement service is to hear what is kept here; so many guests were looked at.
    Reporting(Kept, usize),
}

/// Guests that came or left, of which others are to hear.
#[derive(Debug, Default)]
pub(super) struct Moved {
    /// There are such.
    is_news: bool,
    /// When others may hear of them: each time costs a look at all guests.
    next: Nanos,
}

impl Moved {
    /// The least time between two tellings.
    const SPACING: Nanos = Nanos::from_millis(100);

    /// When there is something to tell.
    pub(super) fn poll_at(&self) -> Option<Nanos> {
        self.is_news.then_some(self.next)
    }

    /// Whether others are to hear now that guests moved.
    fn take(&mut self, now: Nanos) -> bool {
        let is_due = self.poll_at().is_some_and(|at| at <= now);
        if is_due {
            self.is_news = false;
            self.next = now + Self::SPACING;
        }
        is_due
    }
}

/// What is kept of what guests are to be guaranteed.
#[derive(Default)]
pub(super) struct Kept {
    /// What the configuration guarantees to others than machines of tenants.
    reserved: Rate,
    /// By tenant: the first machine that is refused.
    refused: BTreeMap<TenantId, RefusedVm>,
    /// Machines that are to come here, and are here.
    arrived: Vec<String>,
}

impl Telling {
    /// What is kept is told, and nothing else.
    pub(super) fn report() -> Self {
        Self::Reporting(Kept::default(), 0)
    }
}

/// Begins to exchange rates, where that was set up, for the guests that there are, which get
/// back what they had in the daemon before.
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
    /// Begins to tell the switch what its guests are to be guaranteed, and the exchange of
    /// rates what they are.
    pub(super) fn begin_telling(&mut self) {
        self.telling = Some(Telling::Wanted(Vec::new()));
        self.tell_again_once_settled();
    }

    /// Has other hosts and the placement service hear that guests came or left, if they did:
    /// once what is being told is told.
    pub(super) fn note_moved(&mut self, now: Nanos, have_moved: bool) {
        self.moved.is_news |= have_moved;
        if self.telling.is_none() && self.moved.take(now) {
            self.telling = Some(Telling::Machines(HoseGuests::default(), 0));
        }
    }

    /// Goes on with that, where there is anything to tell.
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

    /// Looks up what some more guests are to be guaranteed, and holds them to their limits.
    /// Returns whether that was all of them.
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

    /// Asks for some more guests, and tells the exchange of rates once all were asked for.
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

    /// Begins to tell the placement service what is kept, unless that is told anyway.
    pub(super) fn begin_reporting(&mut self) {
        self.telling.get_or_insert_with(Telling::report);
    }

    /// Looks at some more guests, and tells the placement service once all were looked at.
    fn tell_service(&mut self, mut kept: Kept, looked_at: usize) -> Option<Telling> {
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
