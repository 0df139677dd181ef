//! Brings guests' guarantees and limits into force, a few guests per turn: first in the switch,
//! then in the exchange of rates with other hosts. Then the placement service receives a report.

use super::level::LevelsToRestore;
use super::rates::RateExchange;
use super::service::Service;
use crate::control::{IndexedGuarantees, limits};
use crate::guarantees::Guarantees;
use crate::hose::{Hose, HoseGuests, HoseSetup};
use std::collections::BTreeMap;
use std::sync::Arc;
use tailbound_api::{RefusedVm, TenantId};
use tailbound_dataplane::{Guarantee, GuestId};
use tailbound_switch::{Applying, GuestRef, Switch};
use tailbound_units::{Nanos, Rate};

/// Work per turn, in units of an unchanged guest.
const WORK: usize = 32;

/// The state of guarantees on their way into force.
enum Progress {
    /// Guarantees are looked up, and limits are set.
    LookingUp(Vec<(GuestId, Option<Guarantee>)>),
    /// The switch applies the guarantees.
    Applying(Applying),
    /// The guests for the exchange of rates are collected.
    Gathering { guests: HoseGuests, visited: usize },
    /// The exchange of rates applies the guests.
    Settling,
    /// The report to the placement service is collected.
    Reporting {
        report: GuaranteeReport,
        visited: usize,
    },
}

/// Guests that arrived or left, which other hosts must learn.
#[derive(Debug, Default)]
struct PendingAnnouncement {
    /// True if there are such guests.
    is_news: bool,
    /// The earliest time of the next announcement: each visits all guests.
    next: Nanos,
}

impl PendingAnnouncement {
    /// The shortest time between two announcements.
    const SPACING: Nanos = Nanos::from_millis(100);

    /// Returns the time of the next announcement, if there is one.
    fn poll_at(&self) -> Option<Nanos> {
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
struct GuaranteeReport {
    /// The total that the configuration guarantees to guests that are no VMs of tenants.
    reserved: Rate,
    /// By tenant: the first VM whose guarantee is refused.
    refused: BTreeMap<TenantId, RefusedVm>,
    /// VMs that the service expects here, and that have arrived.
    arrived: Vec<String>,
}

impl Progress {
    /// Begins to collect the guests for the exchange of rates.
    fn gather() -> Self {
        Self::Gathering {
            guests: HoseGuests::default(),
            visited: 0,
        }
    }

    /// Begins to collect a report alone.
    fn report() -> Self {
        Self::Reporting {
            report: GuaranteeReport::default(),
            visited: 0,
        }
    }
}

/// The guarantees of all guests, and their way into force.
pub(super) struct Enforcement {
    guarantees: Arc<Guarantees>,
    /// Bucket levels from the daemon before this one that are not yet restored.
    levels: LevelsToRestore,
    /// `None` if all guarantees are in force and reported.
    progress: Option<Progress>,
    moved: PendingAnnouncement,
}

/// The former guarantees, after others were put in their place.
pub(super) struct ReplacedGuarantees {
    pub(super) guarantees: Arc<Guarantees>,
    /// True if the new ones must be brought into force for more guests than were reconfigured.
    pub(super) is_incomplete: bool,
}

impl Enforcement {
    /// Makes the enforcement of guarantees that a new switch has already. The placement service
    /// receives a report first.
    pub(super) fn new(guarantees: Guarantees, levels: LevelsToRestore) -> Self {
        Self {
            guarantees: Arc::new(guarantees),
            levels,
            progress: Some(Progress::report()),
            moved: PendingAnnouncement::default(),
        }
    }

    /// Begins to exchange rates, if that is configured, for the present guests. They get back the
    /// levels that they had in the daemon before.
    pub(super) fn begin_exchange(
        &mut self,
        now: Nanos,
        setup: Option<HoseSetup>,
        switch: &mut Switch,
    ) -> Option<Hose> {
        let mut hose = setup.and_then(|setup| setup.start(now));
        let limited = self.levels.restore(now, switch, hose.is_some());
        if let Some(hose) = &mut hose {
            let mut gathered = HoseGuests::default();
            for (place, (id, _)) in switch.guests().enumerate() {
                if let Some(guest) = self.guarantees.hose_guest(switch, place, id) {
                    hose.gather(&mut gathered, guest);
                }
            }
            hose.set_guests(now, gathered);
            hose.keep_for_now(now, limited, switch);
        }
        hose
    }

    /// Returns the guarantees of all guests.
    pub(super) const fn guarantees(&self) -> &Arc<Guarantees> {
        &self.guarantees
    }

    /// Returns true until all guarantees are in force and reported.
    pub(super) const fn is_busy(&self) -> bool {
        self.progress.is_some()
    }

    /// Returns the time of the next announcement of arrived and left guests.
    pub(super) fn poll_at(&self) -> Option<Nanos> {
        self.moved.poll_at()
    }

    /// Takes the placement service's guarantees, and begins to bring them into force. Returns false
    /// if none has changed, and only a report follows.
    pub(super) fn update(&mut self, guarantees: Arc<IndexedGuarantees>) -> bool {
        let have_changed = Arc::make_mut(&mut self.guarantees).update(guarantees);
        if have_changed {
            self.begin();
        } else {
            self.begin_report();
        }
        have_changed
    }

    /// Puts the guarantees of another configuration in place of the present ones, whose enforcement
    /// ends. The present answer of the placement service stays.
    pub(super) fn replace(&mut self, mut guarantees: Guarantees) -> ReplacedGuarantees {
        // The service may have answered while the configuration was prepared.
        let is_other = guarantees.follow(&self.guarantees);
        // The ports of the enforcement in progress are gone.
        let was_busy = self.progress.take().is_some();
        ReplacedGuarantees {
            guarantees: std::mem::replace(&mut self.guarantees, Arc::new(guarantees)),
            is_incomplete: is_other || was_busy,
        }
    }

    /// Begins to apply the guests' guarantees in the switch, and then in the exchange of rates.
    pub(super) fn begin(&mut self) {
        self.progress = Some(Progress::LookingUp(Vec::new()));
    }

    /// Begins to report to the placement service, unless a report follows anyway.
    pub(super) fn begin_report(&mut self) {
        self.progress.get_or_insert_with(Progress::report);
    }

    /// Announces arrived and left guests to other hosts and the placement service, after the
    /// announcement in progress.
    pub(super) fn note_moved(&mut self, now: Nanos, have_moved: bool) {
        self.moved.is_news |= have_moved;
        if self.progress.is_none() && self.moved.take(now) {
            self.progress = Some(Progress::gather());
        }
    }

    /// Continues the enforcement, if there is one.
    pub(super) fn poll(
        &mut self,
        now: Nanos,
        switch: &mut Switch,
        rates: &mut RateExchange,
        service: &Service,
    ) {
        let Some(progress) = self.progress.take() else {
            return;
        };
        self.progress = match progress {
            Progress::LookingUp(mut wanted) => Some(if self.look_up(now, &mut wanted, switch) {
                Progress::Applying(Applying::new(wanted))
            } else {
                Progress::LookingUp(wanted)
            }),
            Progress::Applying(mut applying) => {
                Some(if switch.apply_some(now, &mut applying, WORK) {
                    Progress::gather()
                } else {
                    Progress::Applying(applying)
                })
            }
            Progress::Gathering { guests, visited } => {
                Some(self.tell_hosts(now, guests, visited, switch, rates))
            }
            Progress::Settling => {
                let is_changing = rates.running().is_some_and(Hose::is_changing);
                Some(if is_changing {
                    Progress::Settling
                } else {
                    Progress::report()
                })
            }
            Progress::Reporting { report, visited } => {
                let limits_rates = rates.running().is_some();
                self.tell_service(report, visited, limits_rates, switch, service)
            }
        };
    }

    /// Looks up the guarantees of some more guests, and sets their limits. Returns true when all
    /// guests were visited.
    fn look_up(
        &self,
        now: Nanos,
        wanted: &mut Vec<(GuestId, Option<Guarantee>)>,
        switch: &mut Switch,
    ) -> bool {
        let mut cost = 0;
        while cost < WORK {
            let place = wanted.len();
            let Some((guest, _)) = switch.guests().nth(place) else {
                switch.set_delay_marks(self.guarantees.delay_marks());
                return true;
            };
            wanted.push((guest, self.guarantees.wanted_at(place)));
            cost += 1;
            if let Some(limits) = self.guarantees.limits_at(place) {
                let (out, pipeline) = (limits.out.as_ref(), &limits.pipeline);
                let guest = switch.guest_mut(guest);
                cost += guest.map_or(0, |mut guest| guest.set_limits(now, out, pipeline));
            }
        }
        false
    }

    /// Collects some more guests, and passes them to the exchange of rates once all were collected.
    fn tell_hosts(
        &mut self,
        now: Nanos,
        mut guests: HoseGuests,
        visited: usize,
        switch: &mut Switch,
        rates: &mut RateExchange,
    ) -> Progress {
        let hose = rates.running_mut();
        let mut count = 0;
        for (place, (id, _)) in switch.guests().enumerate().skip(visited).take(WORK) {
            count += 1;
            if let Some(hose) = &hose
                && let Some(guest) = self.guarantees.hose_guest(switch, place, id)
            {
                hose.gather(&mut guests, guest);
            }
        }
        if count == WORK && hose.is_some() {
            return Progress::Gathering {
                guests,
                visited: visited + count,
            };
        }
        let limited = self.levels.restore(now, switch, hose.is_some());
        if let Some(hose) = hose {
            hose.set_guests(now, guests);
            hose.keep_for_now(now, limited, switch);
        }
        Progress::Settling
    }

    /// Visits some more guests, and reports to the placement service once all were visited.
    /// `limits_rates` is true if the exchange of rates limits the traffic to each receiver.
    fn tell_service(
        &self,
        mut report: GuaranteeReport,
        visited: usize,
        limits_rates: bool,
        switch: &Switch,
        service: &Service,
    ) -> Option<Progress> {
        let reporter = service.reporter()?;
        let guests = switch.guests().count();
        let end = guests.min(visited + WORK);
        for place in visited..end {
            report.reserved.0 += self.guarantees.reserved_at(place).0;
            let arriving = self.guarantees.arriving_at(place);
            let guest = switch.guest_at(place);
            if let Some(vm) = arriving.filter(|_| guest.is_some_and(GuestRef::has_come)) {
                report.arrived.push(vm.to_owned());
            }
            let rule = guest.and_then(GuestRef::refusal);
            if let Some(refused) = self.guarantees.refused_at(place, rule) {
                report.refused.entry(refused.tenant).or_insert(refused);
            }
        }
        if end < guests {
            return Some(Progress::Reporting {
                report,
                visited: end,
            });
        }
        let wire = switch.wire();
        let limits = wire.and_then(|wire| limits(wire, report.reserved, limits_rates));
        let refused = report.refused.into_values().collect();
        reporter.tell(self.guarantees.report(limits, refused, report.arrived));
        None
    }
}
