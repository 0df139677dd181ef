//! What guests are guaranteed comes into force, a few guests a turn: in the switch, and
//! then in the exchange of rates with other hosts.

use super::Daemon;
use super::level::Restoring;
use crate::guarantees::Guarantees;
use crate::hose::{Hose, HoseGuests, HoseSetup};
use tailbound_dataplane::{Guarantee, GuestId};
use tailbound_switch::{Applying, Switch};
use tailbound_units::Nanos;

/// What a turn does of it: as much as for so many guests of which nothing changes.
const WORK: usize = 32;

/// Guarantees on their way into force, as far as they have come.
pub(super) enum Telling {
    /// Guests are looked up.
    Wanted(Vec<(GuestId, Option<Guarantee>)>),
    /// The switch holds guests to them.
    Applying(Applying),
    /// Other hosts are to hear of these guests; of so many ports they were asked for.
    Machines(HoseGuests, usize),
    /// The exchange of rates takes them up.
    Settling,
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
    }

    /// Goes on with that, where there is anything to tell.
    pub(super) fn go_on_telling(&mut self, now: Nanos) {
        let Some(telling) = self.telling.take() else {
            return;
        };
        self.telling = match telling {
            Telling::Wanted(mut wanted) => {
                let before = wanted.len();
                let guests = self.switch.guests().enumerate().skip(before);
                let some = guests.take(WORK);
                wanted.extend(some.map(|(place, (id, _))| (id, self.guarantees.wanted_at(place))));
                Some(if wanted.len() - before == WORK {
                    Telling::Wanted(wanted)
                } else {
                    Telling::Applying(Switch::begin_apply(wanted))
                })
            }
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
                is_changing.then_some(Telling::Settling)
            }
        };
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
}
